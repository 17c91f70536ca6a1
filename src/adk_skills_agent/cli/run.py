"""``adk-skills run``: run a skill's script in the sandbox, its output streamed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.files import check_output_folder, write_files
from adk_skills_agent.cli.interruption import run_interruptible
from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, dirs_option, json_option, open_skill, trust_option
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import InputFile, IsolationLevel, SandboxPolicy

if TYPE_CHECKING:
    from adk_skills_agent.scripts import ScriptOutcome, ScriptPlan


EXAMPLES = """\b
Examples:
  adk-skills run ./skills/csv-report report.py -- --input assets/sample.csv
  adk-skills run csv-report report.py -d ./skills -i sales.csv --json -- --input sales.csv
"""


@click.command("run", epilog=EXAMPLES)
@click.argument("skill")
@click.argument("script")
@click.argument("arguments", nargs=-1)
@dirs_option
@click.option(
    "--input", "-i", "inputs", multiple=True, type=a_path, help="File to put into the working directory (repeatable)."
)
@click.option(
    "--output",
    "-o",
    default="adk-skills-output",
    show_default=True,
    type=a_path,
    help="Where files it writes are put.",
)
@click.option(
    "--timeout", default=30.0, show_default=True, type=click.FloatRange(0), help="Seconds until it is stopped."
)
@click.option(
    "--memory-mb", "memory", default=512, show_default=True, type=click.IntRange(1), help="Memory limit in MiB."
)
@click.option("--env", multiple=True, help="NAME=VALUE granted to the script (repeatable).")
@click.option(
    "--min-isolation",
    default=IsolationLevel.LANDLOCK.value,
    show_default=True,
    envvar="ADK_SKILLS_MIN_ISOLATION",
    show_envvar=True,
    type=click.Choice([level.value for level in IsolationLevel]),
    help="Refuse to run below this level. 'process' protects neither files nor network: for scripts you trust.",
)
@json_option
@trust_option
def command(
    skill: str,
    script: str,
    arguments: tuple[str, ...],
    dirs: tuple[Path, ...],
    inputs: tuple[Path, ...],
    output: Path,
    timeout: float,
    memory: int,
    env: tuple[str, ...],
    min_isolation: str,
    as_json: bool,
    trust_project: bool,
) -> None:
    """Run a skill's script in the sandbox.

    SKILL is a name, or the path of the skill's folder; SCRIPT is a file of its scripts folder; ARGUMENTS come
    after --. Output is streamed; files the script writes are put into --output. Exit code 1 when the script
    fails.
    """
    from adk_skills_agent.scripts import RunSettings, ScriptArguments, plan_script

    check_output_folder(output)
    policy = SandboxPolicy(wall_seconds=timeout, memory_bytes=memory << 20, min_isolation=min_isolation)
    plan = plan_script(
        open_skill(skill, dirs, trust_project=trust_project),
        script,
        ScriptArguments(list(arguments)),
        settings=RunSettings(policy),
        env=_granted(env),
        input_files=tuple(_input(path) for path in inputs),
        on_output=None if as_json else _stream,
    )
    outcome = run_interruptible(_execute(plan))
    produced = outcome.result.files
    written = write_files(output, {file.path: file.content for file in produced})
    if as_json:
        print_json(outcome.to_model() | {"written": written, "isolation": _isolation(outcome)})
    else:
        _report(outcome, written)
    if outcome.error is not None or len(written) < len(produced):
        raise click.exceptions.Exit(1)


async def _execute(plan: ScriptPlan) -> ScriptOutcome:
    from adk_skills_agent.sandbox.local import local_sandbox
    from adk_skills_agent.scripts import script_outcome

    sandbox = local_sandbox()
    try:
        return script_outcome(plan, await sandbox.run(plan.request), error_chars=None)
    finally:
        await sandbox.close()


def _stream(stream: str, chunk: bytes) -> None:
    target = (sys.stdout if stream == "stdout" else sys.stderr).buffer
    target.write(chunk)
    target.flush()


def _granted(pairs: tuple[str, ...]) -> dict[str, str]:
    granted = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f"--env {name!r} needs the form NAME=VALUE, with letters, digits and '_' in the name.")
        granted[name] = value
    return granted


def _input(path: Path) -> InputFile:
    if not path.is_file():
        raise ConfigError(f"No such input file: {safe(str(path))}.")
    return InputFile(path.name, path.read_bytes())


def _isolation(outcome: ScriptOutcome) -> dict[str, object]:
    report = outcome.result.isolation
    return {"level": report.level.value, "enforced": dict(report.enforced), "degraded": list(report.degraded)}


def _report(outcome: ScriptOutcome, written: list[str]) -> None:
    result = outcome.result
    for note in outcome.plan.notes:
        print(f"note: {note}", file=sys.stderr)
    for path in written:
        print(f"wrote {safe(path)}", file=sys.stderr)
    for name, reason in result.skipped_files:
        print(f"not kept: {safe(name)}: {safe(reason)}", file=sys.stderr)
    if outcome.error is not None:
        print(f"adk-skills: {outcome.error}", file=sys.stderr)
    print(
        f"{outcome.status.value}: return code {outcome.return_code}, {result.wall_ms:.0f} ms, "
        f"isolation {result.isolation.level.value}",
        file=sys.stderr,
    )
