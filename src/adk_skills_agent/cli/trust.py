"""``adk-skills trust``: say which projects may bring skills of their own (C11)."""

from __future__ import annotations

from pathlib import Path

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, complete_skill, dirs_option, json_option, open_skill, trust_option
from adk_skills_agent.errors import ConfigError

_TRUST_EXAMPLES = """\b
Examples:
  adk-skills trust
  adk-skills trust ~/work/shop
  adk-skills trust ~/work/shop --remove
  adk-skills trust --list
"""


@click.command("trust", epilog=_TRUST_EXAMPLES)
@click.argument("folder", default=".", type=a_path)
@click.option("--remove", is_flag=True, help="Take the project off the list.")
@click.option("--list", "only_list", is_flag=True, help="Print the trusted projects.")
@json_option
def trust_command(folder: Path, remove: bool, only_list: bool, as_json: bool) -> None:
    """Trust a project's skills.

    The skills of a project (its .adk/skills, .agents/skills and .claude/skills) load only when its root is on your
    list. FOLDER is in the project; the default is the current one.
    """
    from adk_skills_agent.catalog.scopes import project_root
    from adk_skills_agent.catalog.trust import read_trusted_projects, trust_project, untrust_project
    from adk_skills_agent.errors import ConfigError

    if only_list:
        trusted = read_trusted_projects()
        if trusted.problem is not None:
            raise ConfigError(trusted.problem.message)
        roots = sorted(root.decode("utf-8", "replace") for root in trusted.roots)
        if as_json:
            print_json(roots)
        else:
            print("\n".join(map(safe, roots)) or "No project is trusted.")
        return
    if not folder.expanduser().is_dir():
        raise ConfigError(f"No such folder: {safe(str(folder))}.")
    root = Path(project_root(str(folder.expanduser().resolve())))
    (untrust_project if remove else trust_project)(root)
    if as_json:
        print_json({"project": str(root), "trusted": not remove})
    else:
        print(f"{'No longer trusted' if remove else 'Trusted'}: {safe(str(root))}")


# ``adk-skills approvals``: which versions of which skills the owner approved (S4-21).

_APPROVALS_EXAMPLES = """\b
Examples:
  adk-skills approvals
  adk-skills approvals --approve deploy -d ./skills
  adk-skills approvals --revoke deploy
"""


@click.command("approvals", epilog=_APPROVALS_EXAMPLES)
@click.option(
    "--approve",
    metavar="SKILL",
    shell_complete=complete_skill,
    help="Approve a skill as it is now: a name, or the path of its folder.",
)
@click.option("--revoke", metavar="NAME", help="Take back all approvals of a skill.")
@click.option("--file", "path", type=a_path, help="Another list than the one in your settings.")
@dirs_option
@json_option
@trust_option
def approvals_command(
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
    from adk_skills_agent.catalog.trust import Approval, ApprovedSkills

    if approve is not None and revoke is not None:
        raise ConfigError("Give --approve or --revoke, not both.")
    approved = ApprovedSkills(path)
    if approve is not None:
        from adk_skills_agent.adk.skills.source import DiskSkill

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
