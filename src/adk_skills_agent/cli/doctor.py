"""``adk-skills doctor``: which versions are here and what isolation really works, and why not more."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json
from adk_skills_agent.cli.sources import json_option
from adk_skills_agent.sandbox.contract import IsolationLevel, SandboxPolicy

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.contract import IsolationReport


EXAMPLES = """\b
Examples:
  adk-skills doctor
  adk-skills doctor --json
"""


@click.command("doctor", epilog=EXAMPLES)
@json_option
def command(as_json: bool) -> None:
    """Print versions and what isolation works.

    Found by really running it; exit code 1 when the default policy cannot hold on this machine.
    """
    import asyncio

    from adk_skills_agent.sandbox.local import local_sandbox

    report = asyncio.run(local_sandbox().probe())
    wanted = IsolationLevel(SandboxPolicy().min_isolation)
    holds = report.level.strength >= wanted.strength
    versions = _versions()
    if as_json:
        print_json({"versions": versions, "isolation": _isolation(report), "default_policy_holds": holds})
    else:
        _render(versions, report, wanted, holds)
    if not holds:
        raise click.exceptions.Exit(1)


def _versions() -> dict[str, str]:
    import importlib.metadata
    import platform
    import sqlite3

    import yaml

    from adk_skills_agent import __version__

    def installed(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return {
        "adk-skills-agent": __version__,
        "google-adk": installed("google-adk"),
        "google-genai": installed("google-genai"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "pyyaml": f"{installed('pyyaml')} ({'libyaml' if yaml.__with_libyaml__ else 'without libyaml: slower'})",
        "sqlite": f"{sqlite3.sqlite_version} ({'FTS5' if _has_fts5() else 'without FTS5'})",
        "bubblewrap": _bubblewrap(),
    }


def _has_fts5() -> bool:
    import contextlib
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        return bool(connection.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0])


def _bubblewrap() -> str:
    import shutil
    import subprocess

    program = shutil.which("bwrap")
    if program is None:
        return "not installed"
    run = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=10)
    return run.stdout.strip().removeprefix("bubblewrap ") or "does not run"


def _isolation(report: IsolationReport) -> dict[str, object]:
    return {
        "level": report.level.value,
        "enforced": dict(report.enforced),
        "degraded": list(report.degraded),
        "reasons": list(report.reasons),
    }


def _render(versions: dict[str, str], report: IsolationReport, wanted: IsolationLevel, holds: bool) -> None:
    for name, version in versions.items():
        print(f"{name:<18}{version}")
    print(f"\nisolation         {report.level.value}")
    for concern, mechanism in report.enforced.items():
        print(f"  {concern:<16}{mechanism}")
    for sentence in report.degraded:
        print(f"  - {sentence}")
    for reason in report.reasons:
        print(f"  why not more: {reason}")
    if not holds:
        print(
            f"\nThe default policy asks for '{wanted}' and refuses to run scripts here. "
            f"For scripts you trust, choose min_isolation='{report.level}' explicitly.",
            file=sys.stderr,
        )
