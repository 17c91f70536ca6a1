"""``adk-skills trust``: say which projects may bring skills of their own (C11)."""

from __future__ import annotations

from pathlib import Path

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, json_option

EXAMPLES = """\b
Examples:
  adk-skills trust
  adk-skills trust ~/work/shop
  adk-skills trust ~/work/shop --remove
  adk-skills trust --list
"""


@click.command("trust", epilog=EXAMPLES)
@click.argument("folder", default=".", type=a_path)
@click.option("--remove", is_flag=True, help="Take the project off the list.")
@click.option("--list", "only_list", is_flag=True, help="Print the trusted projects.")
@json_option
def command(folder: Path, remove: bool, only_list: bool, as_json: bool) -> None:
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
