"""``adk-skills validate``: the specification's rules, with the reference library's messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, json_option

if TYPE_CHECKING:
    from adk_skills_agent.format import Diagnostic, ValidationResult


EXAMPLES = """\b
Examples:
  adk-skills validate ./skills/csv-report
  adk-skills validate ./skills --lint --json
"""


@click.command("validate", epilog=EXAMPLES)
@click.argument("paths", nargs=-1, required=True, type=a_path)
@json_option
@click.option("--lint", is_flag=True, help="Also print advice that is no rule (length, deep references).")
def command(paths: tuple[Path, ...], as_json: bool, lint: bool) -> None:
    """Check skills against the specification.

    Strict, with the messages of the reference library; exit code 1 when one is not valid. PATHS are skill
    folders, SKILL.md files, or folders full of skills.
    """
    import sys

    from adk_skills_agent.format import validate_skill

    unread: list[Diagnostic] = []
    results = [validate_skill(skill) for path in paths for skill in _skills_at(path, unread)]
    failed = [result for result in results if result.errors]
    if as_json:
        print_json(
            [_as_json(result) for result in results]
            + [{"path": found.file, "valid": False, "errors": [found.message]} for found in unread]
        )
    else:
        for result in results:
            if result.errors:
                print(f"Validation failed for {safe(str(result.path))}:", file=sys.stderr)
                for error in result.errors:
                    print(f"  - {safe(error)}", file=sys.stderr)
            else:
                print(f"Valid skill: {safe(str(result.path))}")
            for advice in result.lints if lint else ():
                print(f"  {safe(str(advice))}", file=sys.stderr)
        for found in unread:
            print(f"Not read: {safe(found.message)}", file=sys.stderr)
        if len(results) > 1:
            print(f"{len(results) - len(failed)} of {len(results)} skills are valid.", file=sys.stderr)
    if failed or unread:
        raise click.exceptions.Exit(1)


def _skills_at(path: Path, unread: list[Diagnostic]) -> list[Path]:
    """The path itself when it is, or may be meant as, one skill; else every skill below it.

    What could not even be looked at is added to ``unread``.
    """
    from adk_skills_agent.catalog.folder_skills import skills_below
    from adk_skills_agent.format import find_skill_md

    if not path.is_dir() or find_skill_md(path) is not None:
        return [path]
    below = skills_below(path)
    unread += below.unread
    return list(below.skills) or ([] if below.unread else [path])


def _as_json(result: ValidationResult) -> dict[str, object]:
    return {
        "path": str(result.path),
        "valid": not result.errors,
        "errors": list(result.errors),
        "diagnostics": [diagnostic.to_dict() for diagnostic in result.diagnostics],
        "lints": [advice.to_dict() for advice in result.lints],
    }
