"""``adk-skills info``: everything known about one skill."""

from __future__ import annotations

from pathlib import Path

import click

from adk_skills_agent.cli.output import print_json, printable, safe
from adk_skills_agent.cli.sources import dirs_option, json_option, open_skill, trust_option

EXAMPLES = """\b
Examples:
  adk-skills info ./skills/csv-report
  adk-skills info csv-report -d ./skills --json
"""


@click.command("info", epilog=EXAMPLES)
@click.argument("skill")
@dirs_option
@click.option("--body", is_flag=True, help="Print the instructions as well.")
@json_option
@trust_option
def command(skill: str, dirs: tuple[Path, ...], body: bool, as_json: bool, trust_project: bool) -> None:
    """Show everything about one skill.

    Its metadata, files, scripts and diagnostics. SKILL is a name, or the path of the skill's folder.
    """
    from adk_skills_agent.catalog.tokens import estimate_tokens
    from adk_skills_agent.scripts import list_scripts

    found = open_skill(skill, dirs, trust_project=trust_project)
    metadata = found.metadata
    diagnostics = [*found.diagnostics, *found.file_diagnostics()]
    facts: dict[str, object] = {
        "name": metadata.name,
        "description": metadata.description,
        "location": metadata.file,
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
    if as_json:
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
        print(f"\n{printable(found.instructions)}")
    for diagnostic in diagnostics:
        click.echo(safe(str(diagnostic)), err=True)
