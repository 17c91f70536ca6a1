"""``adk-skills outdated`` and ``adk-skills update``: what the sources have now, merged with local edits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from adk_skills_agent.cli.install import (
    accept_option,
    agree,
    link_option,
    private_option,
    scope_option,
    signature_option,
    yes_option,
)
from adk_skills_agent.cli.output import print_columns, print_json, printable, safe
from adk_skills_agent.cli.sources import json_option

if TYPE_CHECKING:
    from adk_skills_agent.sources.update import SkillUpdate

_OUTDATED_EXAMPLES = """\b
Examples:
  adk-skills outdated
  adk-skills outdated pdf --json
"""
_WORDS = {
    "current": "as its source",
    "edited": "local edits",
    "update": "newer at its source",
    "merge": "newer at its source, and local edits that can be merged",
    "conflict": "newer at its source, and local edits that conflict",
    "gone": "not at its source any more",
}


@click.command("outdated", epilog=_OUTDATED_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@scope_option
@private_option
@json_option
def outdated_command(
    names: tuple[str, ...], scope: Literal["project", "user"], allow_private: bool, as_json: bool
) -> None:
    """Say which installed skills have changed at their sources. Writes nothing.

    Exit code 1 when one has.
    """
    from adk_skills_agent.sources import open_project
    from adk_skills_agent.sources.update import plan_updates

    updates = plan_updates(open_project(Path.cwd(), scope), names, allow_private=allow_private)
    if as_json:
        print_json({"skills": [_as_json(update) for update in updates]})
    else:
        print_columns((update.name, _WORDS[update.state]) for update in updates)
    if any(update.state not in {"current", "edited"} for update in updates):
        raise click.exceptions.Exit(1)


_UPDATE_EXAMPLES = """\b
Examples:
  adk-skills update --dry-run --diff
  adk-skills update pdf
  adk-skills update pdf --prefer theirs --yes

\b
A file that only one side changed is that side's; a text that both changed is merged by git merge-file; anything else is
a conflict and stops the update of its skill. The lock then has the merged bytes, and the source's tree beside them.
"""


@click.command("update", epilog=_UPDATE_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@scope_option
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--diff", "show_diff", is_flag=True, help="Show what changes: instructions, scripts, other files.")
@click.option("--prefer", type=click.Choice(["ours", "theirs"]), help="Whose side wins where both exclude one another.")
@click.option("--keep-edits", is_flag=True, help="Also pin local edits of skills that have no update.")
@yes_option
@accept_option
@signature_option
@link_option
@private_option
@json_option
def update_command(
    names: tuple[str, ...],
    scope: Literal["project", "user"],
    dry_run: bool,
    show_diff: bool,
    prefer: Literal["ours", "theirs"] | None,
    keep_edits: bool,
    yes: bool,
    accept_findings: bool,
    require_signature: bool,
    link: bool,
    allow_private: bool,
    as_json: bool,
) -> None:
    """Bring installed skills to what their sources have now.

    Local edits are kept and merged, or the update of that skill stops. Exit code 1 when one stopped, or is not at its
    source any more.
    """
    from adk_skills_agent.sources import consent_page, open_project
    from adk_skills_agent.sources.update import apply_updates, plan_updates

    project = open_project(Path.cwd(), scope)
    policy = project.signature_policy().demanding(require_signature)
    signatures = policy if policy.is_asked else None
    planned = plan_updates(project, names, prefer=prefer, allow_private=allow_private, signatures=signatures)
    taken = {"update", "merge", *(("edited",) if keep_edits else ())}
    chosen = [update for update in planned if update.state in taken]
    if not as_json:
        _show(planned, show_diff=show_diff, keep_edits=keep_edits)
    new = [update.theirs for update in chosen if update.theirs is not None and update.state != "edited"]
    done: list[str] = []
    if new and not dry_run:
        agree([consent_page(skill) for skill in new], yes=yes, accept=accept_findings, quiet=as_json, verb="Update")
    if chosen and not dry_run:
        done = apply_updates(project, chosen, link=link)
    if as_json:
        print_json({"skills": [_as_json(update, diff=show_diff) for update in planned], "updated": done})
    else:
        print(f"{len(done)} updated." if not dry_run else f"{len(chosen)} would be updated.")
    if any(update.state in {"conflict", "gone"} for update in planned):
        raise click.exceptions.Exit(1)


def _show(planned: Sequence[SkillUpdate], *, show_diff: bool, keep_edits: bool) -> None:
    for update in planned:
        if update.state == "current":
            continue
        print(f"{safe(update.name)}: {_WORDS[update.state]}")
        if update.theirs is not None and update.changed:
            print(
                f"  theirs  {safe(', '.join(update.changed[:10]))} ({safe(update.theirs.commit[:12] or 'no version')})"
            )
        if update.edited:
            print(f"  ours    {safe(', '.join(update.edited[:10]))}")
        for path in update.conflicts:
            print(f"  conflict in {safe(path)}")
        if update.conflicts:
            print("  Choose a side with --prefer ours or --prefer theirs, or edit the files to agree.", file=sys.stderr)
        if update.state == "edited" and not keep_edits:
            print("  Pin these edits with --keep-edits.", file=sys.stderr)
        if show_diff:
            for line in update.diff():
                print("  " + printable(line))


def _as_json(update: SkillUpdate, *, diff: bool = False) -> dict[str, object]:
    return {
        "name": update.name,
        "state": update.state.value,
        "commit": update.locked.commit,
        "newest": update.theirs.commit if update.theirs is not None else None,
        "theirs": list(update.changed),
        "ours": list(update.edited),
        "conflicts": list(update.conflicts),
        **({"diff": list(update.diff())} if diff else {}),
    }
