"""``adk-skills list``: which skills there are."""

from __future__ import annotations

from pathlib import Path

import click

from adk_skills_agent.cli.output import print_columns, print_diagnostics, print_json, printable
from adk_skills_agent.cli.sources import a_path, json_option, open_registry, trust_option

EXAMPLES = """\b
Examples:
  adk-skills list ./skills
  adk-skills list --json
  adk-skills list ./skills --diagnostics
"""


@click.command("list", epilog=EXAMPLES)
@click.argument("dirs", nargs=-1, type=a_path)
@json_option
@click.option("--xml", is_flag=True, help="Print the <available_skills> block a model gets, with locations.")
@click.option("--diagnostics", is_flag=True, help="Print everything that was repaired or refused.")
@trust_option
def command(dirs: tuple[Path, ...], as_json: bool, xml: bool, diagnostics: bool, trust_project: bool) -> None:
    """List the skills of folders or scopes.

    Without folders: the project, user, admin and package scopes.
    """
    registry = open_registry(dirs, trust_project=trust_project)
    skills = registry.list_metadata()
    if as_json:
        print_json(
            {
                "skills": [
                    {"name": item.name, "description": item.description, "location": item.file} for item in skills
                ],
                "diagnostics": [diagnostic.to_dict() for diagnostic in registry.diagnostics],
            }
        )
        return
    if xml:
        print(printable(registry.to_available_skills_xml(location=True)))
    else:
        print_columns((item.name, item.description) for item in skills)
        if not skills:
            import sys

            print("No skills found. Make one with: adk-skills new my-skill", file=sys.stderr)
    print_diagnostics(registry.diagnostics, all_of_them=diagnostics)
