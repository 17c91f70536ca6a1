"""Running a skill's script in an environment of google-adk's, by a command that we write (rows A6, E7, E12, E13).

google-adk lets the model write any shell command. Here the command is built from the script's path and arguments; one
that the model writes, as google-adk's own declaration asks it to, is taken only when it runs that script and nothing
else, and is then built anew from its words.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from adk_skills_agent.adk.running.adk_executor import KEPT_BYTES, Ended, executor_answer, failed, told_result
from adk_skills_agent.adk.running.call import ScriptCall, ScriptRun
from adk_skills_agent.adk.running.script_program import placed
from adk_skills_agent.adk.skills.known import SKILL_FILE
from adk_skills_agent.catalog.skill import name_in_rules
from adk_skills_agent.errors import InvalidArguments, SandboxError, SkillChanged
from adk_skills_agent.executors.code_values import on_behalf_of
from adk_skills_agent.sandbox import (
    SKILL_DIR,
    SKILL_VARIABLES,
    ExecutionRequest,
    SandboxPolicy,
    in_worker,
    log_exception,
    within_memory,
)
from adk_skills_agent.scripts import ScriptArguments, ScriptPlan, build_argv, user_key
from adk_skills_agent.scripts.interpreters import BASH, PYTHON, PYTHON_FLAGS, SHELL
from adk_skills_agent.scripts.plan import MAX_SPLIT_CHARS, check_text

if TYPE_CHECKING:
    from google.adk.environment import BaseEnvironment
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill

logger = logging.getLogger(__name__)

_PARALLEL_WRITES = 16
_SHELL_MEANING = frozenset("$`\n\r\0")
_OPERATORS = frozenset(";&|<>()")
_INTERPRETERS = frozenset({"python", "python3", "bash", "sh", "uv", "run", "node", "ruby", "perl"})


_first_users: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
"""The user of each environment, until another one comes; then nothing."""


def note_user(environment: BaseEnvironment, context: ToolContext) -> None:
    """Tell the owner, once, that users share the files of an environment, which has one workspace (row 157)."""
    user = user_key(context.session.app_name, context.session.user_id)
    if _first_users.setdefault(environment, user) not in {user, ""}:
        _first_users[environment] = ""
        logger.warning(
            "%s is one workspace for all users of its agents: each finds what the scripts of the others left there. "
            "Give each user an environment, or none: in our sandbox each session has a workspace of its own.",
            type(environment).__name__,
        )


@dataclass(slots=True)
class _Placed:
    """The skills that were put into one environment."""

    versions: dict[str, str] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class EnvironmentRunner:
    """Runs scripts in environments and remembers which version of a skill is in which of them."""

    def __init__(self) -> None:
        self._placed: weakref.WeakKeyDictionary[object, _Placed] = weakref.WeakKeyDictionary()

    async def run(self, runtime: SkillRuntime, tool_context: ToolContext, call: ScriptCall) -> ScriptRun:
        """Put the skill where the environment can see it, then run the script from the skill's root.

        Raises ``InvalidArguments`` when the arguments or the command cannot be used, or ``UnsupportedScriptType`` when
        no interpreter for that suffix.
        """
        environment = runtime.environment
        assert environment is not None  # noqa: S101 - the caller looked
        note_user(environment, tool_context)
        folder = runtime.skills_folder or environment.working_dir / "skills"
        root = PurePosixPath(folder.as_posix()) / name_in_rules(call.skill.name)
        argv = _arguments(call, root)
        commands = await in_worker(_commands, runtime, call)
        seconds, began = runtime.adk_executor_timeout, time.monotonic()
        try:
            if not getattr(environment, "is_initialized", True):  # one that does not know needs no beginning
                await environment.initialize()
            await self._place(environment, call, root)
            words = [call.path, *(placed(word, str(SKILL_DIR), str(root)) for word in argv)]
            variables = " ".join(f'{name}="$PWD"' for name in SKILL_VARIABLES)
            command = f"cd {shlex.quote(str(root))} && export {variables} && {_first_there(commands, words)}"
            if runtime.shell is not None:
                words[0] = f"{root}/{call.path}"
                command = _in_the_workspace(str(environment.working_dir), str(root), _first_there(commands, words))
            with on_behalf_of(tool_context.get_invocation_context()):
                asked = environment.execute(command, timeout=seconds)
                result = await within_memory(type(environment).__name__, asked)
            if not isinstance(getattr(result, "stdout", None), str):
                raise TypeError(f"the environment answered with a {type(result).__name__} instead of a result")
        except SkillChanged:
            raise
        except Exception as error:  # noqa: BLE001 - each environment has its own; the model gets one code for all
            what = f"script '{call.path}' from skill '{call.skill.name}'"
            log_exception(logger, runtime.grants.forms, "Error executing %s in environment", what)
            return ScriptRun(failed(call, runtime, f" in environment:\n{type(error).__name__}: {error}"))
        took = time.monotonic() - began
        plan = ScriptPlan(
            call.skill.name,
            call.path,
            ExecutionRequest(argv=tuple(argv), policy=SandboxPolicy(wall_seconds=seconds, output_bytes=KEPT_BYTES)),
        )
        code = getattr(result, "exit_code", 0)
        timed_out = bool(getattr(result, "timed_out", False))
        told = told_result(
            environment,
            plan,
            result.stdout.encode("utf-8", "replace"),
            str(getattr(result, "stderr", None) or "").replace(f"{root}/", "/skill/").encode("utf-8", "replace"),
            code if isinstance(code, int) else 1,
            took,
            timed_out=timed_out,
        )
        run = await executor_answer(runtime, tool_context, call, plan, Ended(told))
        return replace(run, answer=run.answer | {"exit_code": run.exit_code})

    async def _place(self, environment: BaseEnvironment, call: ScriptCall, root: PurePosixPath) -> None:
        """Write the skill's files, once for each version, and again when the script is not there as it should be."""
        placed = self._placed.setdefault(environment, _Placed())
        async with placed.turn:
            version = await in_worker(call.skill.version)
            key = str(root)
            await in_worker(call.check_version)
            if placed.versions.get(key) != version or not await _is_there(environment, call, root):
                placed.versions.pop(key, None)
                await _write_all(environment, call.skill, root)
                await in_worker(call.check_version)
                placed.versions[key] = version
        for file in call.inputs:
            await environment.write_file(_path(root / file.path), file.content)


async def _is_there(environment: BaseEnvironment, call: ScriptCall, root: PurePosixPath) -> bool:
    """Whether the environment has the script with its own bytes; an earlier script may have changed it (row E12)."""
    try:
        found = await within_memory(type(environment).__name__, environment.read_file(_path(root / call.path)))
    except (FileNotFoundError, SandboxError):  # it is gone, or has no end (row 300)
        return False
    return found == await in_worker(call.skill.read_bytes, call.path)


async def _write_all(environment: BaseEnvironment, skill: KnownSkill, root: PurePosixPath) -> None:
    paths = await in_worker(skill.files)
    logger.info("putting skill %s into the environment: %d files", skill.name, len(paths))
    slots = asyncio.Semaphore(_PARALLEL_WRITES)

    async def write(path: str) -> None:
        async with slots:
            content = await in_worker(skill.read_bytes, path)
            await environment.write_file(_path(root / path), content)

    wanted = paths if skill.in_memory else (SKILL_FILE, *paths)
    async with asyncio.TaskGroup() as group:
        for path in wanted:
            group.create_task(write(path))


def _commands(runtime: SkillRuntime, call: ScriptCall) -> tuple[tuple[str, ...], ...]:
    """The interpreters that may run the script there, best first, with the flags they get in the sandbox."""
    found = runtime.settings.interpreters.elsewhere(call.path, call.skill.read_bytes(call.path))
    flags: dict[tuple[str, ...], tuple[str, ...]] = {PYTHON: (*PYTHON, *PYTHON_FLAGS), BASH: SHELL}
    return tuple((*flags.get(command[:1], command[:1]), *command[1:]) for command in found)


def _first_there(commands: Sequence[Sequence[str]], script: Sequence[str]) -> str:
    """A shell command that runs the script by the first of the commands whose program is there."""
    *others, last = [(command[0], shlex.join([*command, *script])) for command in commands]
    chosen = last[1]
    for program, line in reversed(others):
        chosen = f"if command -v {shlex.quote(program)} >/dev/null 2>&1; then {line}; else {chosen}; fi"
    return chosen


# The script starts where the shell's commands do, and finds the skill's files by their relative paths all the same:
# as links for the time of the run, where the workspace has nothing of that name (as our own sandbox has them, C40).
_IN_THE_WORKSPACE = """\
cd {work} || exit
adk_skill={root}
for n in {variables}; do export "$n=$adk_skill"; done
trap 'for f in "$adk_skill"/*; do n=${{f##*/}}; [ "$(readlink "$n")" != "$f" ] || rm -f "$n"; done' EXIT
for f in "$adk_skill"/*; do n=${{f##*/}}; [ -e "$n" ] || [ -L "$n" ] || ln -s "$f" "$n"; done
{script}"""


def _in_the_workspace(work: str, root: str, script: str) -> str:
    """A command that runs a script of the skill at ``root`` in the environment's working directory."""
    names = " ".join(SKILL_VARIABLES)
    return _IN_THE_WORKSPACE.format(work=shlex.quote(work), root=shlex.quote(root), variables=names, script=script)


def _arguments(call: ScriptCall, root: PurePosixPath) -> tuple[str, ...]:
    """The script's arguments, from ``args`` and its like, or out of a command of the model."""
    if call.command is None or call.command == "":
        return build_argv(call.arguments)
    if not isinstance(call.command, str):
        raise InvalidArguments(f"Argument 'command' must be a string, got {type(call.command).__name__}.")
    return build_argv(ScriptArguments(list(_after_script(check_text(call.command, "'command'"), call, root))))


def _after_script(command: str, call: ScriptCall, root: PurePosixPath) -> Sequence[str]:
    """The words of a command behind the script, when it runs the script and does nothing else."""
    refusal = InvalidArguments(
        f"'command' must run '{call.path[:60]}' of this skill and nothing else. Leave it out and give 'args'."
    )
    if len(command) > MAX_SPLIT_CHARS or _SHELL_MEANING & set(command):
        raise refusal
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
        plain = shlex.split(command)
    except ValueError:
        raise refusal from None
    # An unquoted ; & | < > ( or ) is a word of its own for a shell, whether it stands alone or not.
    if words != plain or any(word and set(word) <= _OPERATORS for word in words):
        raise refusal
    names = {call.path, f"./{call.path}", str(root / call.path), f"{root.parent.name}/{root.name}/{call.path}"}
    names |= {f"{root.name}/{call.path}"}
    for position, word in enumerate(words):
        if word in names:
            return words[position + 1 :]
        if word not in _INTERPRETERS and not word.startswith("-"):
            break
        if word in {"-c", "-m", "-e"} or word.startswith("--eval"):
            break
    raise refusal


def _path(path: PurePosixPath) -> Path:
    """As google-adk does it: the environment may be of another system than this one."""
    return cast(Path, path)
