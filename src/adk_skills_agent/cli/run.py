"""``adk-skills run``: run a skill's script in the sandbox, its output streamed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from adk_skills_agent.cli.files import write_files
from adk_skills_agent.cli.output import print_json
from adk_skills_agent.cli.sources import DIRS_OPTION, JSON_OPTION, TRUST_OPTION, open_skill
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import InputFile, IsolationLevel, SandboxPolicy

if TYPE_CHECKING:
    from adk_skills_agent.scripts import ScriptOutcome, ScriptPlan

NAME = "run"
HELP = "Run a script of a skill in the sandbox; files it writes are put into --output."
EPILOG = (
    "Examples: adk-skills run ./skills/csv-report report.py -- --input assets/sample.csv · "
    "adk-skills run csv-report scripts/report.py -d ./skills -i sales.csv --json -- --input sales.csv"
)


def command(
    skill: str = typer.Argument(help="A skill's name, or the path of its folder."),
    script: str = typer.Argument(help="The script: 'report.py' and 'scripts/report.py' are the same."),
    arguments: list[str] = typer.Argument(None, help="Arguments of the script, after --.", show_default=False),
    dirs: list[Path] = DIRS_OPTION,
    inputs: list[Path] = typer.Option(
        None, "--input", "-i", help="File to put into the working directory (repeatable).", show_default=False
    ),
    output: Path = typer.Option(Path("adk-skills-output"), "--output", "-o", help="Where files it writes are put."),
    timeout: float = typer.Option(30.0, "--timeout", min=0, help="Seconds until it is stopped."),
    memory: int = typer.Option(512, "--memory-mb", min=1, help="Memory limit in MiB."),
    env: list[str] = typer.Option(
        None, "--env", help="NAME=VALUE granted to the script (repeatable).", show_default=False
    ),
    min_isolation: IsolationLevel = typer.Option(
        IsolationLevel.LANDLOCK.value,
        "--min-isolation",
        envvar="ADK_SKILLS_MIN_ISOLATION",
        help="Refuse to run below this level. 'process' protects neither files nor network: for scripts you trust.",
    ),
    json: bool = JSON_OPTION,
    trust_project: bool = TRUST_OPTION,
) -> None:
    """Run one script to its end and report what it did."""
    import asyncio

    from adk_skills_agent.scripts import RunSettings, ScriptArguments, plan_script

    policy = SandboxPolicy(wall_seconds=timeout, memory_bytes=memory << 20, min_isolation=min_isolation.value)
    plan = plan_script(
        open_skill(skill, dirs, trust_project=trust_project),
        script,
        ScriptArguments(list(arguments or ())),
        settings=RunSettings(policy),
        env=_granted(env or ()),
        input_files=tuple(_input(path) for path in inputs or ()),
        on_output=None if json else _stream,
    )
    outcome = asyncio.run(_execute(plan))
    written = write_files(output, {file.path: file.content for file in outcome.result.files})
    if json:
        print_json(outcome.to_model() | {"written": written, "isolation": _isolation(outcome)})
    else:
        _report(outcome, written)
    if outcome.error is not None:
        raise typer.Exit(1)


async def _execute(plan: ScriptPlan) -> ScriptOutcome:
    from adk_skills_agent.sandbox.local import local_sandbox
    from adk_skills_agent.scripts import script_outcome

    sandbox = local_sandbox()
    try:
        return script_outcome(plan, await sandbox.run(plan.request), error_chars=None)
    finally:
        await sandbox.close()


def _stream(stream: str, chunk: bytes) -> None:
    target = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
    target.write(chunk)
    target.flush()


def _granted(pairs: list[str] | tuple[str, ...]) -> dict[str, str]:
    granted = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ConfigError(f"--env {pair.split('=')[0]!r} needs the form NAME=VALUE.")
        granted[name] = value
    return granted


def _input(path: Path) -> InputFile:
    if not path.is_file():
        raise ConfigError(f"No such input file: {path}.")
    return InputFile(path.name, path.read_bytes())


def _isolation(outcome: ScriptOutcome) -> dict[str, object]:
    report = outcome.result.isolation
    return {"level": report.level.value, "enforced": dict(report.enforced), "degraded": list(report.degraded)}


def _report(outcome: ScriptOutcome, written: list[str]) -> None:
    result = outcome.result
    for note in outcome.plan.notes:
        print(f"note: {note}", file=sys.stderr)
    for path in written:
        print(f"wrote {path}", file=sys.stderr)
    for name, reason in result.skipped_files:
        print(f"not kept: {name}: {reason}", file=sys.stderr)
    if outcome.error is not None:
        print(f"adk-skills: {outcome.error}", file=sys.stderr)
    print(
        f"{outcome.status.value}: return code {outcome.return_code}, {result.wall_ms:.0f} ms, "
        f"isolation {result.isolation.level.value}",
        file=sys.stderr,
    )
