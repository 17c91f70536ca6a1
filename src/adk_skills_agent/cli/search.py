"""``adk-skills search``: find a skill by what it is for."""

from __future__ import annotations

from pathlib import Path

import click

from adk_skills_agent.cli.output import print_columns, print_json
from adk_skills_agent.cli.sources import dirs_option, json_option, open_registry, trust_option

EXAMPLES = """\b
Examples:
  adk-skills search 'fill a pdf form' -d ./skills
  adk-skills search kubernetes --limit 3 --json
"""


@click.command("search", epilog=EXAMPLES)
@click.argument("query")
@dirs_option
@click.option("--limit", "-n", default=10, show_default=True, type=click.IntRange(1, 100), help="Most results.")
@json_option
@trust_option
def command(query: str, dirs: tuple[Path, ...], limit: int, as_json: bool, trust_project: bool) -> None:
    """Find skills by what they are for.

    Searches names, descriptions and headings, best match first; exit code 1 when nothing matches.
    """
    hits = open_registry(dirs, trust_project=trust_project).search(query, limit)
    if as_json:
        print_json([{"name": hit.name, "description": hit.description, "score": round(hit.score, 4)} for hit in hits])
    else:
        print_columns((hit.name, hit.description) for hit in hits)
    if not hits:
        click.echo(f"No skill matches {query!r}. Try other words, or adk-skills list.", err=True)
        raise click.exceptions.Exit(1)
