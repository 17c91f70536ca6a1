"""``adk-skills info``: everything known about one skill."""

from __future__ import annotations

from pathlib import Path

import typer

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import DIRS_OPTION, JSON_OPTION, TRUST_OPTION, open_skill

NAME = "info"
HELP = "Show one skill: its metadata, files, scripts and diagnostics."
EPILOG = "Examples: adk-skills info ./skills/csv-report · adk-skills info csv-report -d ./skills --json"


def command(
    skill: str = typer.Argument(help="A skill's name, or the path of its folder."),
    dirs: list[Path] = DIRS_OPTION,
    body: bool = typer.Option(False, "--body", help="Print the instructions as well."),
    json: bool = JSON_OPTION,
    trust_project: bool = TRUST_OPTION,
) -> None:
    """Show what is known about one skill."""
    from adk_skills_agent.catalog.tokens import estimate_tokens
    from adk_skills_agent.scripts import list_scripts

    found = open_skill(skill, dirs, trust_project=trust_project)
    metadata = found.metadata
    diagnostics = [*found.diagnostics, *found.file_diagnostics()]
    facts: dict[str, object] = {
        "name": metadata.name,
        "description": metadata.description,
        "location": str(metadata.location),
        "license": metadata.license,
        "compatibility": metadata.compatibility,
        "allowed_tools": metadata.allowed_tools,
        "metadata": dict(metadata.metadata),
        "extra": dict(metadata.extra),
        "tokens": estimate_tokens(found.instructions),
        "scripts": list(list_scripts(found)),
        "files": [{"path": file.path, "size": file.size} for file in found.files()],
        "diagnostics": [diagnostic.to_dict() for diagnostic in diagnostics],
    }
    if json:
        print_json(facts | ({"instructions": found.instructions} if body else {}))
        return
    for key in ("name", "description", "location", "license", "compatibility", "allowed_tools", "metadata", "extra"):
        if facts[key]:
            print(f"{key + ':':<15}{safe(str(facts[key]))}")
    print(f"{'tokens:':<15}about {facts['tokens']} when activated")
    print(f"{'files:':<15}{len(found.files())}")
    for file in found.files():
        print(f"  {safe(file.path)}  {file.size:,} bytes")
    if body:
        print(f"\n{found.instructions}")
    for diagnostic in diagnostics:
        typer.echo(safe(str(diagnostic)), err=True)
