"""``adk-skills needs``: what a skill needs to run, whether this machine has it, and what would supply it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, dirs_option, json_option, open_skill, trust_option

if TYPE_CHECKING:
    from adk_skills_agent.packages import Need, Needs

_EXAMPLES = """\b
Examples:
  adk-skills needs ./skills/csv-report
  adk-skills needs csv-report -d ./skills --all
  adk-skills needs ./skills/csv-report --json

\b
Declared is what the author wrote for programs: PEP 723 blocks, requirements*.txt, pyproject.toml, package.json,
metadata.*.requires, install lines. Inferred is what the code does: imports, programs it calls, URLs, environment keys.
"""

_TITLES = {
    "interpreter": "Interpreters",
    "python-package": "Python packages",
    "python-module": "Python modules of unknown distributions",
    "node-package": "Node packages",
    "program": "Programs",
    "host": "Hosts",
    "environment-key": "Environment keys",
}


@click.command("needs", epilog=_EXAMPLES)
@click.argument("skill")
@dirs_option
@click.option(
    "--all", "all_of_them", is_flag=True, help="Also show what the system has: programs such as cat and grep."
)
@click.option("--python", type=a_path, help="The Python that scripts get; without it the one that runs this.")
@json_option
@trust_option
def command(
    skill: str, dirs: tuple[Path, ...], all_of_them: bool, python: Path | None, as_json: bool, trust_project: bool
) -> None:
    """Show what a skill needs to run.

    Interpreters, packages, programs, hosts and environment keys, each declared or inferred, present or missing, with
    the command or grant that would supply it. Nothing of the skill is run. SKILL is a name, or the path of the skill's
    folder. Exit code 1 when something is missing that the skill cannot do without.
    """
    from adk_skills_agent.packages import read_needs

    found = open_skill(skill, dirs, trust_project=trust_project)
    needs = read_needs(found, python=str(python) if python is not None else None)
    if as_json:
        print_json(
            {
                "skill": needs.skill,
                "needs": [need.to_dict() for need in needs.needs],
                "missing": [need.name for need in needs.missing],
                "diagnostics": [problem.to_dict() for problem in needs.problems],
            }
        )
    else:
        _print(needs, all_of_them=all_of_them)
    if needs.missing:
        raise click.exceptions.Exit(1)


def _print(needs: Needs, *, all_of_them: bool) -> None:
    shown = [need for need in needs.needs if all_of_them or not _is_ordinary(need)]
    print(f"{safe(needs.skill)}: {safe(needs.summary())}")
    for kind, title in _TITLES.items():
        listed = [need for need in shown if need.kind == kind]
        if not listed:
            continue
        print(f"\n{title}")
        width = max(len(_name(need)) for need in listed)
        for need in listed:
            state = "ok      " if need.present else "optional" if need.optional else _state(need)
            origin = "declared" if need.declared else "inferred"
            print(f"  {state}  {_name(need):<{width}}  {origin}  {safe(', '.join(need.places[:2]))}")
            if need.supply and not need.present:
                print(f"            {'':<{width}}  -> {safe(need.supply)}")
    hidden = len(needs.needs) - len(shown)
    if hidden:
        click.echo(f"{hidden} programs that the system has are not shown (--all shows them).", err=True)
    for problem in needs.problems:
        click.echo(safe(str(problem)), err=True)


def _state(need: Need) -> str:
    return "MISSING " if need.present is False else "grant?  "


def _name(need: Need) -> str:
    either = "".join(f" or {other}" for other in need.alternatives)
    return safe(f"{need.name}{' ' if need.spec else ''}{need.spec}{either}")


def _is_ordinary(need: Need) -> bool:
    """A program that was inferred and is here says nothing new."""
    return need.kind == "program" and bool(need.present) and not need.declared
