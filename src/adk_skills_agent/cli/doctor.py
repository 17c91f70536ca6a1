"""``adk-skills doctor``: what isolation really works on this machine, why not more, and what would change that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import json_option
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.choose import NAMES

if TYPE_CHECKING:
    from adk_skills_agent.cli.diagnosis import Diagnosis, LevelCheck
    from adk_skills_agent.sandbox.contract import IsolationReport

EXAMPLES = """\b
Exit codes:
  0  the default policy holds where scripts are sent: they run, isolated at least as it asks
  1  it does not, and scripts are refused until something is changed
  2  wrong usage
\b
Examples:
  adk-skills doctor
  adk-skills doctor --json
  adk-skills doctor --container
"""
_NAME_WIDTH = 18


@click.command("doctor", epilog=EXAMPLES)
@click.option(
    "--container",
    is_flag=True,
    help="Look at the container engine instead: which one there is, and what holds in a container of it.",
)
@click.option(
    "--sandbox",
    default=None,
    type=click.Choice(NAMES),
    help="Try this sandbox out and print what holds in it.",
)
@json_option
def command(container: bool, sandbox: str | None, as_json: bool) -> None:
    """Print versions and what isolation works.

    Found by really running each level: which work and why others do not, who enforces what, and one command for each
    thing that can be fixed.
    """
    if container and sandbox not in {None, "container"}:
        raise ConfigError(f"--container is --sandbox container; it does not go with --sandbox {sandbox}.")
    if container or sandbox is not None:
        _try_sandbox("container" if container else str(sandbox), as_json)
        return
    from adk_skills_agent.cli.diagnosis import diagnose

    found = diagnose()
    if as_json:
        print_json(found.as_json())
    else:
        _render(found)
    if not found.scripts_run:
        raise click.exceptions.Exit(1)


def _try_sandbox(name: str, as_json: bool) -> None:
    """One sandbox by name: a trial run, and what the report says of it."""
    from adk_skills_agent.cli.sandbox_check import check_sandbox

    found = check_sandbox(name)
    if as_json:
        print_json(found.as_json())
    else:
        print(f"Sandbox {found.name}")
        for fact, text in found.facts:
            _line(fact, text)
        if found.report is not None:
            print(f"\nWhat holds in it, at level {found.report.level.value}")
            _render_enforcement(found.report)
            for reason in found.report.reasons:
                _line("", f"because {reason}")
    if found.problem is not None:
        if not as_json:
            print(f"\nIt cannot be used: {safe(found.problem)}", file=sys.stderr)
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
        here = "" if found.elsewhere is None else " on this machine"
        print(f"\nWhat holds for a script{here} under the default policy, at level {found.chosen.level}")
        _render_enforcement(found.chosen)
    print("\nScripts run in")
    _line("sandbox", f"{found.sandbox.name} ({found.sandbox.source})")
    elsewhere = found.elsewhere
    if elsewhere is not None and elsewhere.report is not None:
        _line("level", elsewhere.report.level.value)
    if found.sandbox.name in {"auto", "local"} and not found.default_policy_holds:
        _render_refusal(found)
    if elsewhere is not None and elsewhere.problem is not None:
        print(f"\nSandbox {elsewhere.name} cannot be used: {safe(elsewhere.problem)}", file=sys.stderr)


def _render_refusal(found: Diagnosis) -> None:
    """Why this machine does not run scripts under the default policy."""
    if found.trial_problem is not None:
        print(f"\nA trial run failed: {safe(found.trial_problem)}", file=sys.stderr)
    here = (
        "They run in a container instead."
        if found.scripts_run
        else (f"For scripts you trust, choose min_isolation='{found.best}' explicitly.")
    )
    print(f"\nThe default policy asks for '{found.least}' and refuses to run scripts here. {here}", file=sys.stderr)


def _verdict(check: LevelCheck, found: Diagnosis) -> str:
    if check.reason is not None:
        return f"no: {check.reason}"
    if check is found.chosen:
        return "works; scripts get this one"
    return "works; only by explicit choice" if check.level == "process" else "works"


def _render_enforcement(check: LevelCheck | IsolationReport) -> None:
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
