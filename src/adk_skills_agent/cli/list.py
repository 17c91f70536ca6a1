"""``adk-skills list``: which skills there are."""

from __future__ import annotations

from pathlib import Path

import typer

from adk_skills_agent.cli.output import print_columns, print_diagnostics, print_json
from adk_skills_agent.cli.sources import JSON_OPTION, TRUST_OPTION, open_registry

NAME = "list"
HELP = "List the skills in folders, or in the scopes of this directory."
EPILOG = "Examples: adk-skills list ./skills · adk-skills list --json · adk-skills list ./skills --diagnostics"


def command(
    dirs: list[Path] = typer.Argument(None, help="Folders to search; without any, the scopes.", show_default=False),
    json: bool = JSON_OPTION,
    xml: bool = typer.Option(False, "--xml", help="Print the <available_skills> block a model gets, with locations."),
    diagnostics: bool = typer.Option(False, "--diagnostics", help="Print everything that was repaired or refused."),
    trust_project: bool = TRUST_OPTION,
) -> None:
    """List skills, one a line."""
    registry = open_registry(dirs, trust_project=trust_project)
    skills = registry.list_metadata()
    if json:
        print_json(
            {
                "skills": [
                    {"name": item.name, "description": item.description, "location": str(item.location)}
                    for item in skills
                ],
                "diagnostics": [diagnostic.to_dict() for diagnostic in registry.diagnostics],
            }
        )
        return
    if xml:
        print(registry.to_available_skills_xml(location=True))
    else:
        print_columns((item.name, item.description) for item in skills)
        if not skills:
            import sys

            print("No skills found. Make one with: adk-skills new my-skill", file=sys.stderr)
    print_diagnostics(registry.diagnostics, all_of_them=diagnostics)
