"""``adk-skills add``, ``remove``, ``update``, ``outdated``, ``sync``, ``verify``, ``why``, ``pack``: pinned skills."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from adk_skills_agent.cli.output import counted, print_columns, print_json, printable, safe
from adk_skills_agent.cli.sources import (
    a_path,
    complete_installed,
    complete_source,
    json_option,
    no_skill_there,
    open_registry,
    untrusted,
)
from adk_skills_agent.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from adk_skills_agent.sources import ConsentPage, FetchedSkill, Origin, Project
    from adk_skills_agent.sources.requires import Find, Requirement
    from adk_skills_agent.sources.signatures import SignaturePolicy
    from adk_skills_agent.sources.update import SkillUpdate

scope_option = click.option(
    "--scope",
    type=click.Choice(["project", "user"]),
    default="project",
    show_default=True,
    help="Install for this project (.agents/skills) or for the user (~/.agents/skills).",
)
private_option = click.option(
    "--allow-private",
    is_flag=True,
    help="Follow redirects, and addresses that others name, into private networks; take what a lock names from this "
    "machine, too.",
)
yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask. Findings marked STOP still need --accept-findings."
)
accept_option = click.option("--accept-findings", is_flag=True, help="Install in spite of findings marked STOP.")
signature_option = click.option(
    "--require-signature",
    is_flag=True,
    help="Refuse what no trusted person signed; as a setting: require-signature in [tool.adk-skills].",
)
link_option = click.option("--link", is_flag=True, help="Install links to the store instead of copies.")

_ADD_EXAMPLES = """\b
Examples:
  adk-skills add anthropics/skills --skill pdf
  adk-skills add anthropics/skills/skills/pdf@main
  adk-skills add git@git.example.com:team/skills.git --skill review --ref v1.2
  adk-skills add ./skills.zip --all --scope user
  adk-skills add https://example.com --skill pdf
  adk-skills add pypi:fastapi --all
  adk-skills add skills-lock.json

\b
SOURCE is owner/repo[/folder][@ref], a git URL, a folder, an archive (.zip, .skill, .tar.gz, also its URL),
https://host (an index at /.well-known/agent-skills/), pypi:NAME, mcp:URL-or-command, a marketplace of plugins,
skills-lock.json (of npx skills) or gh: (what gh skill install put into .agents/skills).
Before anything is written, it says what would be installed and asks; without a terminal that needs --yes.
"""


@click.command("add", epilog=_ADD_EXAMPLES)
@click.argument("source", shell_complete=complete_source)
@click.option("--skill", "-s", "names", multiple=True, metavar="NAME", help="Which skill, or plugin (repeatable).")
@click.option("--all", "everything", is_flag=True, help="Every skill of the source.")
@click.option("--ref", help="Branch, tag or commit; a version for pypi:.")
@scope_option
@yes_option
@accept_option
@signature_option
@click.option("--bundle", type=a_path, help="Sigstore bundle of the archive; else ARCHIVE.sigstore.json beside it.")
@link_option
@click.option("--force", is_flag=True, help="Replace an existing folder, and local edits; the old files are kept.")
@private_option
@click.option("--dry-run", is_flag=True, help="Show what would be installed, and install nothing.")
@json_option
def add_command(
    source: str,
    names: tuple[str, ...],
    everything: bool,
    ref: str | None,
    scope: Literal["project", "user"],
    yes: bool,
    accept_findings: bool,
    require_signature: bool,
    bundle: Path | None,
    link: bool,
    force: bool,
    allow_private: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Install skills from elsewhere and pin them.

    Writes them below .agents/skills, and their source and digests into adk-skills.lock. Exit code 1 when they cannot be
    fetched, are refused, or you do not agree.
    """
    from adk_skills_agent.sources import consent_page, fetch_skills, open_project, read_origin
    from adk_skills_agent.sources.fetch import is_named_with
    from adk_skills_agent.sources.lock_file import SKILLS_FOLDER
    from adk_skills_agent.sources.origin import repository_of
    from adk_skills_agent.sources.other_installers import fetch_listed, listed_elsewhere, project_of_list
    from adk_skills_agent.sources.requires import resolve_requirements

    if names and everything:
        raise ConfigError("--skill names some skills, and --all takes every one. Leave out one of them.")
    project = open_project(Path.cwd(), scope)
    policy = project.signature_policy().demanding(require_signature, bundle)
    signatures = policy if policy.is_asked else None
    listed = listed_elsewhere(source, Path.cwd(), project.skills_folder)
    if listed is not None:
        if ref is not None or bundle is not None:
            raise ConfigError("Each skill of a list has its own ref. Leave out --ref and --bundle.")
        by = _namer(None if allow_private else project_of_list(source, project.root))
        chosen = fetch_listed(listed, names, by=by, allow_private=allow_private, signatures=signatures)
        origins = [skill.origin for skill in chosen]
    else:
        origin, by = read_origin(source, ref=ref), _namer(None)
        if bundle is not None and origin.kind != "archive":
            raise ConfigError(f"--bundle is for archives, and {safe(str(origin))} is none. Leave out --bundle.")
        chosen = fetch_skills(origin, names, everything=everything, allow_private=allow_private, signatures=signatures)
        origins = [origin]
    if not chosen:
        raise SourceError(f"{safe(str(origins[0]) if origins else source)} has no skill, so nothing was installed.")
    asked = [skill.name for skill in chosen]
    if any(skill.requires for skill in chosen):
        chosen = resolve_requirements(chosen, _finder(project, origins, by, allow_private, signatures))
        project.refuse_other_sources(chosen, asked)
    installed = project.read_lock().skills
    pages = [consent_page(skill, installed.get(skill.name)) for skill in chosen]
    if as_json and dry_run:
        print_json({"skills": [page.to_dict() for page in pages], "installed": []})
        return
    agree(pages, yes=yes, accept=accept_findings, quiet=as_json, dry_run=dry_run)
    if dry_run:
        return
    named = [one for one in origins if by(one) is None]
    named += [skill.origin for skill in chosen if is_named_with(skill.origin, named)]
    project.add(chosen, wanted=asked, named=named, link=link, replace_edits=force)
    if as_json:
        print_json({"skills": [page.to_dict() for page in pages], "installed": [skill.name for skill in chosen]})
    else:
        for skill in chosen:
            print(f"Installed: {safe(str(project.skills_folder / skill.name))}")
        print(f"Locked:    {safe(str(project.lock_path))}")
        if scope == "project":
            print(f"Next:      SkillToolset.from_dirs([{SKILLS_FOLDER!r}]) gives them to an agent")
            if untrusted(open_registry(())):
                print("           adk-skills trust . lets adk-skills list, run and prepare find them here")
        for origin in origins:
            if repository := repository_of(origin):
                click.echo(f"note: a folder has no versions; its repository has: adk-skills add {repository}", err=True)


def agree(
    pages: Sequence[ConsentPage],
    *,
    yes: bool,
    accept: bool,
    quiet: bool,
    dry_run: bool = False,
    verb: str = "Install",
) -> None:
    """Show the page, and go on only with a person's word or a flag that stands for it.

    Raises ``SourceError`` when the scan found what stops, and that was not accepted, or ``ConfigError`` when nobody can
    be asked.
    """
    if not quiet:
        for page in pages:
            for line in page.lines():
                print(printable(line))
    grave = [page for page in pages if page.stops]
    if grave and not accept and not dry_run:
        said = [
            f"{page.skill.name}: {finding}" for page in grave for finding in page.findings if finding.weight == "stop"
        ]
        raise SourceError(
            f"The scan found what stops an installation: {safe('; '.join(said[:5]))}. "
            "Read the files, then install them with --accept-findings."
        )
    if yes or dry_run:
        return
    if quiet or not sys.stdin.isatty():
        why = "With --json nothing is asked" if quiet else "There is no terminal to ask on"
        raise ConfigError(f"{why}. Look with --dry-run first, then repeat with --yes.")
    if not click.confirm(f"{verb} {counted(len(pages), 'skill')}?"):
        print("Nothing was written.", file=sys.stderr)
        raise click.exceptions.Exit(1)


def _namer(root: Path | None) -> Callable[[Origin], Sequence[Origin] | None]:
    """Who named a source: the user, where ``root`` is None, else see :func:`~.sources.named.named_by`."""
    if root is None:
        return lambda _: None
    from adk_skills_agent.sources.named import named_by

    return lambda origin: named_by(origin, root)


def _finder(
    project: Project,
    origins: Sequence[Origin],
    by: Callable[[Origin], Sequence[Origin] | None],
    allow_private: bool,
    signatures: SignaturePolicy | None,
) -> Find:
    """Where needed skills are looked for.

    Their own source, else: where the user has them from, the source of who needs them, then what is locked. ``by`` says
    who named the sources of those who need them.
    """
    from adk_skills_agent.sources import fetch_skills
    from adk_skills_agent.sources.fetch import whole_source

    lock = project.read_lock()
    sources = list(dict.fromkeys(map(whole_source, origins)))
    wanted = project.wanted()
    by_user = [one for one in sources if by(one) is None]

    def find(requirement: Requirement) -> list[FetchedSkill]:
        places: list[tuple[Origin, Sequence[Origin] | None]] = [(one, by(one)) for one in sources]
        if requirement.source is not None:
            places = [(requirement.source, by_user)]
        locked = lock.skills.get(requirement.name)
        if requirement.source is None and locked is not None:
            origin = project.origin_of(locked)
            named = project.named_by(origin, allow_private=allow_private)
            places.insert(0 if locked.name in wanted else len(places), (origin, named))
        for place, who in places:
            single = bool(place.subpath) or requirement.source is not None
            try:
                names = () if place.subpath else (requirement.name,)
                return fetch_skills(place, names, allow_private=allow_private, signatures=signatures, named_by=who)
            except SourceError:
                if single and requirement.source is not None:
                    raise
        return []

    return find


_REMOVE_EXAMPLES = """\b
Examples:
  adk-skills remove pdf
  adk-skills remove pdf review --scope user
"""


@click.command("remove", epilog=_REMOVE_EXAMPLES)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_installed)
@scope_option
@click.option("--force", is_flag=True, help="Also with local edits, and when another skill needs it.")
@json_option
def remove_command(names: tuple[str, ...], scope: Literal["project", "user"], force: bool, as_json: bool) -> None:
    """Uninstall skills and take them out of the lock."""
    from adk_skills_agent.sources import open_project

    project = open_project(Path.cwd(), scope)
    before = _unneeded(project)
    removed = project.remove(names, force=force)
    unneeded = [name for name in _unneeded(project) if name not in before]
    if as_json:
        print_json({"removed": removed, "unneeded": unneeded})
    else:
        print(f"Removed: {safe(', '.join(removed))}")
    if unneeded:
        said = f"note: nothing needs {', '.join(unneeded)} any more. Remove too: adk-skills remove {' '.join(unneeded)}"
        click.echo(safe(said), err=True)


def _unneeded(project: Project) -> list[str]:
    try:
        return project.unneeded()
    except ConfigError:  # a manifest with a wrong entry, which may be the one to be removed
        return []


_SYNC_EXAMPLES = """\b
Examples:
  adk-skills sync
  adk-skills sync --frozen
  adk-skills sync --skills-lock
"""


@click.command("sync", epilog=_SYNC_EXAMPLES)
@click.option("--frozen", is_flag=True, help="For CI: change neither lock nor manifest, and fail on any difference.")
@scope_option
@link_option
@click.option("--force", is_flag=True, help="Replace skills with local edits; they are kept aside.")
@click.option("--skills-lock", is_flag=True, help="Also write skills-lock.json, for people who use npx skills.")
@signature_option
@private_option
@json_option
def sync_command(
    frozen: bool,
    scope: Literal["project", "user"],
    link: bool,
    force: bool,
    skills_lock: bool,
    require_signature: bool,
    allow_private: bool,
    as_json: bool,
) -> None:
    """Install exactly what adk-skills.lock says.

    From the store where it has the bytes, else from the sources. Bytes that differ from the lock are refused. Skills
    with local edits stay as they are. Exit code 1 when something differs.
    """
    from adk_skills_agent.sources import open_project

    if frozen and (force or skills_lock):
        raise ConfigError("--frozen writes nothing but skills that are missing. Leave out the other option.")
    project = open_project(Path.cwd(), scope)
    if not project.wanted():
        _require_lock(project)
    policy = project.signature_policy().demanding(require_signature)
    result = project.sync(frozen=frozen, link=link, force=force, allow_private=allow_private, signatures=policy)
    if skills_lock:
        from adk_skills_agent.sources.other_installers import OTHER_LOCK, other_lock_text
        from adk_skills_agent.sources.store import write_aside

        text, unknown = other_lock_text(project.read_lock(), project.root / OTHER_LOCK)
        write_aside(project.root / OTHER_LOCK, text.encode())
        if unknown:
            said = f"note: not in {OTHER_LOCK}, as npx skills does not know their sources: {', '.join(unknown)}"
            click.echo(safe(said), err=True)
    if as_json:
        print_json(
            {
                "installed": list(result.installed),
                "same": list(result.same),
                "edited": [state.name for state in result.kept],
                "unlocked": list(result.unlocked),
            }
        )
    else:
        kept = f", {len(result.kept)} kept" if result.kept else ""
        print(f"{counted(len(result.installed), 'skill')} installed, {len(result.same)} unchanged{kept}.")
        for state in result.kept:
            if state.problem:
                print(f"Kept: {safe(state.sentences()[0])}")
                continue
            print(f"Kept: {safe(state.name)} has local edits. Merge them: adk-skills update {safe(state.name)}")
        for sentence in result.unlocked:
            print(f"Differs: {safe(sentence)}")
    if result.kept or result.unlocked:
        raise click.exceptions.Exit(1)


_VERIFY_EXAMPLES = """\b
Examples:
  adk-skills verify
  adk-skills verify --json
"""


@click.command("verify", epilog=_VERIFY_EXAMPLES)
@scope_option
@signature_option
@json_option
def verify_command(scope: Literal["project", "user"], require_signature: bool, as_json: bool) -> None:
    """Compare every installed skill with adk-skills.lock, byte by byte.

    Prints each changed, added and missing file, and exits with 1 when there is one, or with 2 when there is no lock.
    Installed skills that are not in the lock are named on stderr.
    """
    from adk_skills_agent.sources import open_project

    project = open_project(Path.cwd(), scope)
    _require_lock(project)
    states = project.verify(project.signature_policy().demanding(require_signature), forks=True)
    locked = [state for state in states if not state.unlocked]
    different = [state for state in locked if not state.is_same]
    unlocked = [state.name for state in states if state.unlocked]
    if as_json:
        print_json(
            {
                "skills": [
                    {
                        "name": state.name,
                        "same": state.is_same,
                        "changed": list(state.changed),
                        "added": list(state.added),
                        "missing": list(state.missing),
                        "problem": state.problem,
                        "unsigned": state.unsigned,
                    }
                    for state in locked
                ],
                "unlocked": unlocked,
            }
        )
    else:
        for state in different:
            for sentence in state.sentences():
                print(safe(sentence))
        print(f"{len(locked) - len(different)} of {counted(len(locked), 'skill')} as locked.")
        if unlocked:
            click.echo(f"Not in the lock: {safe(', '.join(unlocked))}", err=True)
    if different:
        raise click.exceptions.Exit(1)


def _require_lock(project: Project) -> None:
    """A check in the wrong folder must not pass. Raises ``ConfigError`` when there is no lock."""
    if not project.lock_path.exists():
        raise ConfigError(
            f"There is no {safe(str(project.lock_path))}. Go to the folder of the project, or install a skill: "
            "adk-skills add SOURCE."
        )


_WHY_EXAMPLES = """\b
Examples:
  adk-skills why pdf
"""


@click.command("why", epilog=_WHY_EXAMPLES)
@click.argument("name", shell_complete=complete_installed)
@scope_option
@json_option
def why_command(name: str, scope: Literal["project", "user"], as_json: bool) -> None:
    """Say why a skill is installed: who wants it, which skills need it, where it came from."""
    from adk_skills_agent.sources import open_project
    from adk_skills_agent.sources.requires import required_name

    project = open_project(Path.cwd(), scope)
    lock = project.read_lock()
    locked = lock.skills.get(name)
    if locked is None:
        raise ConfigError(f"{name!r} is not installed here. See: adk-skills list --installed.")
    wanted = name in project.wanted()
    needed_by = [one.name for one in lock.skills.values() if name in map(required_name, one.requires)]
    if as_json:
        print_json({**locked.to_table(), "wanted": wanted, "needed_by": needed_by})
        return
    print(f"{name}: from {safe(str(locked.origin))}")
    print(f"  at       {safe(locked.commit or 'no version')}, locked {locked.time}")
    print(f"  tree     {locked.tree}{' (with local edits)' if locked.base else ''}")
    print(f"  wanted   {'in ' + safe(str(project.manifest)) if wanted else 'no'}")
    print(f"  needed   {'by ' + safe(', '.join(needed_by)) if needed_by else 'by no other skill'}")
    if locked.requires:
        print(f"  needs    {safe(', '.join(locked.requires))}")


_PACK_EXAMPLES = """\b
Examples:
  adk-skills pack ./skills/pdf
  adk-skills pack ./skills/pdf --output pdf.tar.gz
"""


@click.command("pack", epilog=_PACK_EXAMPLES)
@click.argument("folder", type=a_path)
@click.option("--output", "-o", type=a_path, help="The archive; without it NAME.skill here. .zip, .skill or .tar.gz.")
@json_option
def pack_command(folder: Path, output: Path | None, as_json: bool) -> None:
    """Pack a skill's folder into an archive.

    The same bytes for the same skill, whoever packs it and when: SKILL.md at the root, no times, no owners.
    """
    from adk_skills_agent.format import find_skill_md
    from adk_skills_agent.sources import read_tree
    from adk_skills_agent.sources.archives import pack_tar, pack_zip
    from adk_skills_agent.sources.store import write_aside

    if not folder.is_dir() or find_skill_md(folder) is None:
        raise ConfigError(no_skill_there(str(folder), folder))
    tree = read_tree(folder, f"The skill in {folder}")
    name = tree.parsed(folder.resolve().name).metadata.name or "skill"
    target = output or Path(f"{name}.skill")
    packed = pack_tar(tree) if target.name.endswith((".tar.gz", ".tgz")) else pack_zip(tree)
    if not target.name.endswith((".zip", ".skill", ".tar.gz", ".tgz")):
        raise ConfigError(f"{safe(target.name)} is no name of an archive. End it with .skill, .zip or .tar.gz.")
    write_aside(target, packed)
    if as_json:
        print_json({"name": name, "archive": str(target), "bytes": len(packed), "tree": tree.digest})
    else:
        print(f"Packed: {safe(str(target))}  {len(packed):,} bytes  {tree.digest}")


# What the sources have now, merged with local edits.

_OUTDATED_EXAMPLES = """\b
Examples:
  adk-skills outdated
  adk-skills outdated pdf --json
"""
_WORDS = {
    "current": "up to date",
    "edited": "local edits",
    "update": "its source has a newer version",
    "merge": "its source has a newer version, and local edits that can be merged",
    "conflict": "its source has a newer version, and local edits that conflict",
    "gone": "its source no longer has it",
    "unavailable": "cannot be fetched from its source",
    "unreadable": "what is installed cannot be read",
    "renamed": "its source calls it by another name",
}


@click.command("outdated", epilog=_OUTDATED_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_installed)
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

    project = open_project(Path.cwd(), scope)
    _require_lock(project)
    updates = plan_updates(project, names, allow_private=allow_private)
    if as_json:
        print_json({"skills": [_as_json(update) for update in updates]})
    else:
        print_columns((update.name, _WORDS[update.state]) for update in updates)
        _say_problems(updates)
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
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_installed)
@scope_option
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--diff", "show_diff", is_flag=True, help="Show what changes: instructions, scripts, other files.")
@click.option("--prefer", type=click.Choice(["ours", "theirs"]), help="Which side wins a conflict.")
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
    """Update installed skills from their sources.

    Local edits are kept and merged; where they conflict, that skill is not updated. Exit code 1 when a skill was not
    updated, or its source no longer has it.
    """
    from adk_skills_agent.sources import consent_page, open_project
    from adk_skills_agent.sources.update import apply_updates, plan_updates

    project = open_project(Path.cwd(), scope)
    _require_lock(project)
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
    _say_missing(project, done)
    if any(update.state in {"conflict", "gone", "unavailable", "unreadable", "renamed"} for update in planned):
        raise click.exceptions.Exit(1)


def _say_missing(project: Project, names: Sequence[str]) -> None:
    """Which skills these need that are not here: an update installs none."""
    from adk_skills_agent.sources.requires import required_name

    lock = project.read_lock()
    for skill in (lock.skills[name] for name in names if name in lock.skills):
        needed = filter(None, map(required_name, skill.requires))
        missing = [name for name in needed if name not in lock.skills and not (project.skills_folder / name).exists()]
        if missing:
            again = f"adk-skills add {shlex.quote(str(skill.origin))} --skill {skill.name}"
            said = f"note: {skill.name} needs {', '.join(missing)} now, which is not installed. Install it: {again}"
            click.echo(safe(said), err=True)


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
    _say_problems(planned)


def _say_problems(updates: Sequence[SkillUpdate]) -> None:
    """What is wrong with a source, once for all its skills."""
    for problem in dict.fromkeys(update.problem for update in updates if update.problem):
        print(f"adk-skills: {safe(problem)}", file=sys.stderr)


def _as_json(update: SkillUpdate, *, diff: bool = False) -> dict[str, object]:
    return {
        "name": update.name,
        "state": update.state.value,
        "commit": update.locked.commit,
        "newest": update.theirs.commit if update.theirs is not None else None,
        "theirs": list(update.changed),
        "ours": list(update.edited),
        "conflicts": list(update.conflicts),
        "problem": update.problem,
        **({"diff": list(update.diff())} if diff else {}),
    }
