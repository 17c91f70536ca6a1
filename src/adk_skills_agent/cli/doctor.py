"""``adk-skills doctor``: what isolation really works on this machine, why not more, and what would change that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import json_option

if TYPE_CHECKING:
    from adk_skills_agent.cli.diagnosis import Diagnosis, LevelCheck

EXAMPLES = """\b
Exit codes:
  0  the default policy holds: scripts run, isolated at least as it asks
  1  it does not, and scripts are refused until something is changed
  2  wrong usage
\b
Examples:
  adk-skills doctor
  adk-skills doctor --json
"""
_NAME_WIDTH = 18


@click.command("doctor", epilog=EXAMPLES)
@json_option
def command(as_json: bool) -> None:
    """Print versions and what isolation works.

    Found by really running each level: which work and why others do not, who enforces what, and one command for each
    thing that can be fixed.
    """
    from adk_skills_agent.cli.diagnosis import diagnose

    found = diagnose()
    if as_json:
        print_json(found.as_json())
    else:
        _render(found)
    if not found.default_policy_holds:
        raise click.exceptions.Exit(1)


def _render(found: Diagnosis) -> None:
    for name, version in found.versions.items():
        _line(name, version)
    print("\nThis machine")
    for name, text in found.machine_lines():
        _line(name, text)
    print("\nIsolation levels, strongest first")
    for check in found.levels:
        _line(check.level, _verdict(check, found))
        if check.fix is not None:
            _line("", f"fix: {check.fix}")
    if found.chosen is not None:
        print(f"\nWhat holds for a script under the default policy, at level {found.chosen.level}")
        _render_enforcement(found.chosen)
    if found.default_policy_holds:
        return
    if found.trial_problem is not None:
        print(f"\nA trial run failed: {safe(found.trial_problem)}", file=sys.stderr)
    print(
        f"\nThe default policy asks for '{found.least}' and refuses to run scripts here. For scripts you trust, choose "
        f"min_isolation='{found.best}' explicitly.",
        file=sys.stderr,
    )


def _verdict(check: LevelCheck, found: Diagnosis) -> str:
    if check.reason is not None:
        return f"no: {check.reason}"
    if check is found.chosen:
        return "works; scripts get this one"
    return "works; only by explicit choice" if check.level == "process" else "works"


def _render_enforcement(check: LevelCheck) -> None:
    left = list(check.degraded)
    for concern, mechanism in check.enforced.items():
        _line(concern, mechanism)
        for sentence in check.degraded:
            if sentence.startswith(f"{concern}: "):
                left.remove(sentence)
                _line("", f"- {sentence.removeprefix(f'{concern}: ')}")
    for sentence in left:
        _line("", f"- {sentence}")


def _line(name: str, text: str) -> None:
    print(f"  {name:<{_NAME_WIDTH}}{safe(text)}".rstrip())
