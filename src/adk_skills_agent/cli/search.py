"""``adk-skills search``: find a skill by what it is for."""

from __future__ import annotations

from pathlib import Path

import typer

from adk_skills_agent.cli.output import print_columns, print_json
from adk_skills_agent.cli.sources import DIRS_OPTION, JSON_OPTION, TRUST_OPTION, open_registry

NAME = "search"
HELP = "Search names, descriptions and headings, best match first (exit code 1 when nothing matches)."
EPILOG = "Examples: adk-skills search 'fill a pdf form' -d ./skills · adk-skills search kubernetes --limit 3 --json"


def command(
    query: str = typer.Argument(help="A few words about the task."),
    dirs: list[Path] = DIRS_OPTION,
    limit: int = typer.Option(10, "--limit", "-n", min=1, max=100, help="Most results."),
    json: bool = JSON_OPTION,
    trust_project: bool = TRUST_OPTION,
) -> None:
    """Print the best matches."""
    hits = open_registry(dirs, trust_project=trust_project).search(query, limit)
    if json:
        print_json([{"name": hit.name, "description": hit.description, "score": round(hit.score, 4)} for hit in hits])
    else:
        print_columns((hit.name, hit.description) for hit in hits)
    if not hits:
        typer.echo(f"No skill matches {query!r}. Try other words, or adk-skills list.", err=True)
        raise typer.Exit(1)
