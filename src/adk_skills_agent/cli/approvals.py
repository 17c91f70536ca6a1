"""``adk-skills approvals``: which versions of which skills the owner approved (S4-21)."""

from __future__ import annotations

from pathlib import Path

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, dirs_option, json_option, open_skill, trust_option
from adk_skills_agent.errors import ConfigError

EXAMPLES = """\b
Examples:
  adk-skills approvals
  adk-skills approvals --approve deploy -d ./skills
  adk-skills approvals --revoke deploy
"""


@click.command("approvals", epilog=EXAMPLES)
@click.option("--approve", metavar="SKILL", help="Approve a skill as it is now: a name, or the path of its folder.")
@click.option("--revoke", metavar="NAME", help="Take everything of a skill off the list.")
@click.option("--file", "path", type=a_path, help="Another list than the one in your settings.")
@dirs_option
@json_option
@trust_option
def command(
    approve: str | None,
    revoke: str | None,
    path: Path | None,
    dirs: tuple[Path, ...],
    as_json: bool,
    trust_project: bool,
) -> None:
    """List, give or take back approvals of skills.

    An agent whose permissions say "ask" does not ask about a skill on this list. An approval is of the skill's exact
    bytes: when one changes, the agent asks again. Skills of a project also need its root on the list of trusted
    projects (adk-skills trust).
    """
    from adk_skills_agent.catalog.approved import Approval, ApprovedSkills

    if approve is not None and revoke is not None:
        raise ConfigError("Give --approve or --revoke, not both.")
    approved = ApprovedSkills(path)
    if approve is not None:
        from adk_skills_agent.adk.disk_skill import DiskSkill

        skill = open_skill(approve, dirs, trust_project=trust_project)
        version = DiskSkill(skill).version()
        approved.add([Approval(skill.name, "skill", version)])
        if as_json:
            print_json({"skill": skill.name, "approves": "skill", "version": version})
        else:
            print(f"Approved: {safe(skill.name)}, version {version[:12]}")
            if skill.metadata.allowed_tools:
                print(f"It may also use without asking: {safe(skill.metadata.allowed_tools)}")
        return
    if revoke is not None:
        count = approved.remove(revoke)
        if as_json:
            print_json({"skill": revoke, "revoked": count})
        elif count:
            print(f"No longer approved: {safe(revoke)}")
        if not count:
            raise ConfigError(
                f"No approval of {revoke!r} is on the list. Without options, the command prints the list."
            )
        return
    listed = sorted(approved.read())
    if as_json:
        print_json([{"skill": one.skill, "approves": one.subject, "version": one.version} for one in listed])
        return
    for one in listed:
        print(f"{safe(one.skill)}  {safe(one.subject)}  {one.version[:12]}")
    if not listed:
        print("No skill is approved.")
