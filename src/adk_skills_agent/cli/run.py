"""``adk-skills run``: run a skill's script in the sandbox, its output streamed."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import (
    LiveOutput,
    check_output_folder,
    for_command_line,
    isolation_as_json,
    print_json,
    safe,
    write_files,
)
from adk_skills_agent.cli.sources import (
    a_path,
    complete_script,
    dirs_option,
    json_option,
    open_skill,
    skill_argument,
    trust_option,
)
from adk_skills_agent.cli.terminal import run_interruptible
from adk_skills_agent.errors import ConfigError, PackageError, SandboxError, nearest
from adk_skills_agent.sandbox import PRESETS, SANDBOX_NAMES, InputFile, IsolationLevel, SandboxPolicy, choose_sandbox

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill
    from adk_skills_agent.packages import Environment
    from adk_skills_agent.sandbox import EnvValue, Sandbox
    from adk_skills_agent.scripts import Interpreters, ScriptOutcome, ScriptPlan

_MOST_LINES = 20
_MOST_NOT_GIVEN = 3

EXAMPLES = """\b
Examples:
  adk-skills run ./skills/csv-report report.py -- --input assets/sample.csv
  adk-skills run csv-report report.py -d ./skills -i sales.csv --json -- --input sales.csv
  adk-skills run weather forecast.py --policy strict --secret OPENWEATHER_KEY -- --city Oslo
"""


class LevelName(click.Choice[str]):
    """The name of an isolation level; the refusal of one that earlier versions had says what to say instead."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See ``click.ParamType.convert``."""
        from adk_skills_agent.sandbox import FORMER_LEVELS

        if value in FORMER_LEVELS:
            self.fail(FORMER_LEVELS[value], param, ctx)
        return super().convert(value, param, ctx)


class _Run(click.Command):
    """Says where the script's own options go, because leaving out ``--`` is the likeliest mistake."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        separated = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if separated:
                raise
            ours = f"No such option {error.option_name!r}. If it is the script's, put -- before it."
            raise click.NoSuchOption(error.option_name, ours, error.possibilities, ctx) from None


@click.command("run", cls=_Run, epilog=EXAMPLES)
@skill_argument
@click.argument("script", shell_complete=complete_script)
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
    help="Where files it writes are put. pytest and editors run some by their names: put a stranger's elsewhere.",
)
@click.option(
    "--policy",
    default=None,
    type=click.Choice(list(PRESETS)),
    help="Limits to start from.  [default: default]",
)
@click.option(
    "--policy-file",
    default=None,
    type=a_path,
    help="Limits from a file instead: [tool.adk-skills.policy] of a .toml file, or .yaml. Read only when it is named.",
)
@click.option(
    "--timeout",
    default=None,
    type=click.FloatRange(0, min_open=True),
    help="Seconds until it is stopped.  [default: the policy's, 30]",
)
@click.option(
    "--memory-mb",
    "memory",
    default=None,
    type=click.IntRange(1),
    help="Memory limit in MiB.  [default: the policy's, 512]",
)
@click.option(
    "--interpreter",
    "interpreters",
    multiple=True,
    metavar="SUFFIX=COMMAND",
    help="What starts files of a suffix, such as .js=bun or '.py=python3 -I' (repeatable).",
)
@click.option(
    "--python",
    default=None,
    type=a_path,
    help="The Python that runs Python scripts, such as .venv/bin/python.  [default: the policy's, else this one]",
)
@click.option("--env", multiple=True, help="NAME=VALUE granted to the script (repeatable).")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    help="NAME of a variable of your environment granted to the script and kept out of its output (repeatable).",
)
@click.option(
    "--permissions",
    default=None,
    type=a_path,
    help="Hosts, variables and programs that the grants of a permissions file give the skill.",
)
@click.option(
    "--min-isolation",
    default=None,
    envvar="ADK_SKILLS_MIN_ISOLATION",
    show_envvar=True,
    type=LevelName([level.value for level in IsolationLevel]),
    help="Refuse to run below this level. A policy that you name overrides the variable. 'process' protects neither "
    "files nor network: for scripts you trust.  [default: the policy's, landlock]",
)
@click.option(
    "--sandbox",
    default=None,
    type=click.Choice(SANDBOX_NAMES),
    help="Where it runs. Without it: the variable ADK_SKILLS_SANDBOX, then [tool.adk-skills] of --policy-file or of "
    "the file ADK_SKILLS_CONFIG names.  [default: auto: this machine where it meets the policy, else a container]",
)
@click.option("--raw", is_flag=True, help="Write its output as it is to a terminal, too, with all escape sequences.")
@click.option("--quiet", "-q", is_flag=True, help="Print the script's output, and besides it only what went wrong.")
@json_option
@trust_option
def command(
    skill: str,
    script: str,
    arguments: tuple[str, ...],
    dirs: tuple[Path, ...],
    inputs: tuple[Path, ...],
    output: Path,
    policy: str | None,
    policy_file: Path | None,
    timeout: float | None,
    memory: int | None,
    interpreters: tuple[str, ...],
    python: Path | None,
    env: tuple[str, ...],
    secrets: tuple[str, ...],
    permissions: Path | None,
    min_isolation: str | None,
    sandbox: str | None,
    raw: bool,
    quiet: bool,
    as_json: bool,
    trust_project: bool,
) -> None:
    """Run a skill's script in the sandbox.

    SKILL is a name, or the path of the skill's folder; SCRIPT is a file of the skill, in its scripts folder or
    elsewhere; ARGUMENTS come after --. Output is printed as it comes. A terminal also gets a line that says what
    the script uses, and sees escape sequences as text (--raw passes them on). Files that the script writes are
    put into --output. Exit code 1 when the script fails.
    """
    from adk_skills_agent.scripts import RunSettings, ScriptArguments, plan_script

    check_output_folder(output)
    limits = _policy(policy, policy_file, timeout, memory, min_isolation, python)
    chosen = choose_sandbox(sandbox, file=policy_file)
    found = open_skill(skill, dirs, trust_project=trust_project)
    granted = _granted(env, secrets)
    if permissions is not None:
        limits, granted = _opened(permissions, skill, found, script, limits, granted)
    settings = RunSettings(limits, _interpreters(interpreters))
    if chosen.sandbox.runs_here:
        settings = settings.within(_environment(found, limits.python))
    plan = plan_script(
        found,
        script,
        ScriptArguments(list(arguments)),
        settings=settings,
        env=granted,
        input_files=tuple(_input(path) for path in inputs),
    )
    try:
        live = None if as_json else LiveOutput(status=not quiet, raw=raw)
        outcome = run_interruptible(_execute(chosen.sandbox, plan, live))
    except ValueError as error:  # the contract's word for a request that cannot be expressed
        raise ConfigError(str(error)) from error
    produced = outcome.result.files
    written = write_files(output, {file.path: file.content for file in produced})
    if as_json:
        print_json(
            outcome.to_model()
            | {
                "duration_ms": round(outcome.result.wall_ms),
                "written": written,
                "sandbox": chosen.name,
                "isolation": isolation_as_json(outcome.result.isolation),
            }
        )
    else:
        _report(outcome, written, quiet=quiet)
        if outcome.error is not None:
            _say_not_given(arguments, inputs)
    if outcome.error is not None or len(written) < len(produced):
        raise click.exceptions.Exit(1)


async def _execute(sandbox: Sandbox, plan: ScriptPlan, live: LiveOutput | None) -> ScriptOutcome:
    """Run it to its end."""
    from adk_skills_agent.sandbox import EndEvent, OutputEvent
    from adk_skills_agent.scripts import script_outcome

    try:
        if live is None:
            return script_outcome(plan, await sandbox.run(plan.request), error_chars=None)
        async with contextlib.aclosing(sandbox.stream(plan.request)) as events:
            async for event in events:
                if isinstance(event, EndEvent):
                    return script_outcome(plan, event.result, error_chars=None)
                if isinstance(event, OutputEvent):
                    live.output(event)
                else:
                    live.sample(event)
        raise SandboxError("The sandbox ended without a result.")
    finally:
        if live is not None:
            live.close()
        await sandbox.close()


def _policy(
    name: str | None,
    file: Path | None,
    timeout: float | None,
    memory: int | None,
    min_isolation: str | None,
    python: Path | None,
) -> SandboxPolicy:
    """The policy named, with the options given over it."""
    from click.core import ParameterSource

    from adk_skills_agent.sandbox import policy_of, resolve_policy

    if name is not None and file is not None:
        raise ConfigError("Give --policy or --policy-file, not both; a file can start from a preset (preset = ...).")
    if file is not None:
        from adk_skills_agent.sandbox import load_policy

        base = load_policy(file)
    else:
        base = policy_of(name)
    layer: dict[str, object] = {}
    if timeout is not None:
        layer["wall_seconds"] = timeout
    if memory is not None:
        layer["memory_bytes"] = memory << 20
    if python is not None:
        layer["python"] = os.path.abspath(python)  # noqa: PTH100  # its link is kept: it is what makes it a venv's
        if not os.access(python, os.X_OK) or python.is_dir():
            raise ConfigError(f"--python {safe(str(python))} is no program. Name a Python, such as .venv/bin/python.")
    # A variable set long ago must not weaken a policy somebody names now.
    typed = click.get_current_context().get_parameter_source("min_isolation") is ParameterSource.COMMANDLINE
    if min_isolation is not None and (typed or (name is None and file is None)):
        layer["min_isolation"] = min_isolation
    return resolve_policy(layer, default=base)


def _interpreters(given: tuple[str, ...]) -> Interpreters:
    from adk_skills_agent.scripts import Interpreters

    commands: dict[str, list[str]] = {}
    for option in given:
        suffix, separator, command = option.partition("=")
        try:
            words = shlex.split(command)
        except ValueError:
            words = []
        if not separator or not words:
            raise ConfigError(
                f"--interpreter {safe(repr(option))} needs the form SUFFIX=COMMAND with every quote closed, such as "
                ".js=bun or '.py=python3 -I'."
            )
        commands[suffix] = words
    return Interpreters(commands)


def _granted(pairs: tuple[str, ...], secrets: tuple[str, ...]) -> dict[str, EnvValue]:
    from adk_skills_agent.sandbox import Secret, check_env_name

    granted: dict[str, EnvValue] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ConfigError(f"--env {name!r} needs the form NAME=VALUE, with letters, digits and '_' in the name.")
        check_env_name(name)
        granted[name] = value
    for name in secrets:
        if "=" in name:
            shown = name.partition("=")[0]
            raise ConfigError(
                f"--secret takes only the name of a variable of your environment ({shown!r}), which the script sees "
                "under the same name: a value here could be seen in the process list."
            )
        check_env_name(name)
        granted[name] = Secret.from_env(name)
    return granted


def _opened(
    file: Path, asked: str, skill: Skill, script: str, policy: SandboxPolicy, env: dict[str, EnvValue]
) -> tuple[SandboxPolicy, dict[str, EnvValue]]:
    """What a permissions file grants the script, as an agent with ``permissions=`` gets it; ``env`` wins."""
    from adk_skills_agent.adk.hosts import host_rules
    from adk_skills_agent.adk.permissions import Permissions
    from adk_skills_agent.format import normalise_name
    from adk_skills_agent.platforms import typed_path
    from adk_skills_agent.scripts.grants import Grants

    rules = Permissions.from_file(file)
    files = {one.path for one in skill.files()}
    path = script if script in files else f"scripts/{script}"
    opened = Grants(also=rules.grants).opened(
        skill.name, path, policy, env, host_rules(rules, skill.name), files.__contains__
    )
    seen = {asked, *(normalise_name(place.name) for place in (skill.skill_dir, skill.skill_dir.resolve()))}
    if opened != (policy, env) and skill.name not in seen:
        # Who names a folder has read the folder's name; the other one is its author's word (row 460).
        raise ConfigError(
            f"The skill in {safe(asked)} calls itself {skill.name!r}, and {safe(str(file))} grants something to that "
            f"name. If that is meant, name it: adk-skills run {skill.name} -d {typed_path(skill.skill_dir.parent)} ..."
        )
    if opened == (policy, env):
        close = nearest(skill.name, {key.partition("/")[0] for key in rules.grants}, 1)
        hint = (
            f" Did you mean {skill.name!r} where it has {safe(close[0])!r}?" if close and close[0] != skill.name else ""
        )
        print(f"note: {safe(str(file))} grants nothing to {skill.name}/{safe(path)}.{hint}", file=sys.stderr)
    return opened


def _say_not_given(arguments: tuple[str, ...], inputs: tuple[Path, ...]) -> None:
    """Name the arguments that are files of the user's folder, which the script does not see."""
    given = {path.name for path in inputs}
    for name in [one for one in arguments if one not in given and Path(one).is_file()][:_MOST_NOT_GIVEN]:
        shown = safe(name)
        again = f" and as {safe(Path(name).name)}" if "/" in name else ""
        print(f"note: {shown} is in your folder, not in the script's: give it with -i {shown}{again}.", file=sys.stderr)


def _environment(skill: Skill, python: str | None) -> Environment | None:
    """The environment that ``adk-skills prepare`` made for the skill; prints a note if it is missing."""
    from adk_skills_agent.packages import Dependencies, SkillEnvironments

    try:
        return SkillEnvironments(Dependencies("locked")).environment_for(skill, python=python)
    except PackageError as error:
        print(f"note: {safe(for_command_line(' '.join([error.message, *error.__notes__])))}", file=sys.stderr)
        return None


def _input(path: Path) -> InputFile:
    if path.is_dir():
        raise ConfigError(f"--input {safe(str(path))} is a folder. Name its files, each with its own --input.")
    if not path.is_file():
        raise ConfigError(f"No such input file: {safe(str(path))}.")
    return InputFile(path.name, path.read_bytes())


def _report(outcome: ScriptOutcome, written: list[str], *, quiet: bool) -> None:
    from adk_skills_agent.scripts.outcome import refused_hosts

    result = outcome.result
    said = outcome.error or ""
    notes = [*outcome.plan.notes, *(note for note in result.notes if note not in said)]
    _say([f"note: {safe(for_command_line(note))}" for note in notes], "notes")
    if not quiet:
        _say([f"wrote {safe(path)}" for path in written], "files")
    _say([f"not kept: {safe(name)}: {safe(reason)}" for name, reason in result.skipped_files], "files not kept")
    if outcome.error is not None:
        print(f"adk-skills: {for_command_line(outcome.error)}", file=sys.stderr)
    missing = [thing.for_owner() for thing in outcome.missing]
    skill = outcome.plan.skill_name
    missing += [
        f'Skill \'{skill}\' needs the host {one.host}: grants={{"{skill}": Grant(hosts=["{one.host}"])}}.'
        for one in refused_hosts(outcome.plan.request.policy, result)
        if one.certain
    ]
    _say([f"note: {safe(for_command_line(sentence))}" for sentence in missing], "things missing")
    if not quiet:
        print(
            f"{outcome.status.value}: return code {outcome.return_code}, {result.wall_ms:.0f} ms, "
            f"isolation {result.isolation.level.value}",
            file=sys.stderr,
        )


def _say(lines: list[str], what: str) -> None:
    for line in lines[:_MOST_LINES]:
        print(line, file=sys.stderr)
    if len(lines) > _MOST_LINES:
        print(f"and {len(lines) - _MOST_LINES:,} more {what}", file=sys.stderr)
