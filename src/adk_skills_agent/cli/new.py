"""``adk-skills new``: start a skill that is valid from its first minute."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal

import typer

NAME = "new"
HELP = "Make a new skill: a folder with a SKILL.md, a script and a reference to start from."
EPILOG = "Examples: adk-skills new csv-report · adk-skills new deploy-check -o ./skills --script bash"


class Script(StrEnum):
    """Which script the new skill starts with."""

    PYTHON = "python"
    BASH = "bash"
    NONE = "none"


def command(
    name: str = typer.Argument(help="Name of the skill: lower-case letters, digits and single hyphens."),
    output: Path = typer.Option(Path(), "--output", "-o", help="Folder to make it in."),
    description: str = typer.Option(None, "--description", help="What it does and when to use it.", show_default=False),
    script: Script = typer.Option(Script.PYTHON, "--script", help="The script to start with."),
) -> None:
    """Create the skill and say what to do next."""
    from adk_skills_agent.format import create_skill_template

    kinds: dict[Script, Literal["python", "bash"] | None] = {
        Script.PYTHON: "python",
        Script.BASH: "bash",
        Script.NONE: None,
    }
    folder = create_skill_template(output, name, description=description, script=kinds[script])
    print(f"Made {folder}")
    print(f"Next: edit {folder / 'SKILL.md'}, then: adk-skills validate {folder}")
