"""``adk-skills new``: start a skill that is valid from its first minute."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from adk_skills_agent.cli.sources import a_path

EXAMPLES = """\b
Examples:
  adk-skills new csv-report
  adk-skills new deploy-check -o ./skills --script bash
"""


@click.command("new", epilog=EXAMPLES)
@click.argument("name")
@click.option("--output", "-o", default=".", type=a_path, help="Folder to make it in.")
@click.option("--description", help="What it does and when to use it.")
@click.option(
    "--script",
    default="python",
    show_default=True,
    type=click.Choice(["python", "bash", "none"]),
    help="The script to start with.",
)
def command(name: str, output: Path, description: str | None, script: Literal["python", "bash", "none"]) -> None:
    """Make a new skill to start from.

    A folder with a SKILL.md, a script and a reference. NAME has lower-case letters, digits and single hyphens.
    """
    from adk_skills_agent.format import create_skill_template

    folder = create_skill_template(output, name, description=description, script=None if script == "none" else script)
    print(f"Made {folder}")
    print(f"Next: edit {folder / 'SKILL.md'}, then: adk-skills validate {folder}")
