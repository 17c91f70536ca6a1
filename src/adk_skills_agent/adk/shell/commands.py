"""Running a shell command where a toolset's scripts run: in our own sandbox, or in a google-adk environment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.running.adk_executor import KEPT_BYTES, told_result
from adk_skills_agent.adk.running.call import save_outputs, share_of_session
from adk_skills_agent.adk.running.runner import (
    OwnSandbox,
    both_hear,
    on_behalf_of_turn,
    workspace_claim,
)
from adk_skills_agent.adk.running.skill_copies import copy_place, writable_copy
from adk_skills_agent.adk.shell.files import EnvironmentFiles, ShellFiles, WorkspaceFiles
from adk_skills_agent.adk.shell.skills import SKILLS_DIR, MountedSkill, skill_folder, skill_mounts
from adk_skills_agent.errors import ConfigError, InvalidArguments, SandboxError, SkillsError
from adk_skills_agent.executors.code_values import on_behalf_of
from adk_skills_agent.sandbox import (
    SKILL_VARIABLES,
    TMP_DIR,
    WORK_DIR,
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    SandboxPolicy,
    in_worker,
    redacted_aside,
)
from adk_skills_agent.scripts import ScriptOutcome, ScriptPlan, outcome_aside
from adk_skills_agent.scripts.grants import NO_HOST_RULES, HostRules
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS, NO_NETWORK, refused_hosts
from adk_skills_agent.scripts.plan import MAX_ARGUMENT_BYTES, check_text, within
from adk_skills_agent.scripts.workspaces import usage_of

if TYPE_CHECKING:
    from google.adk.environment import BaseEnvironment
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.packages import Environment
    from adk_skills_agent.scripts.outcome import RefusedHost
    from adk_skills_agent.scripts.workspaces import SessionWorkspace

logger = logging.getLogger(__name__)

MAX_COMMAND_BYTES = 100_000
"""Of one command: it travels as one argument, which Linux bounds at 128 KiB."""
COMMAND = "command"
"""The placeholder of a script's path in a plan."""

_OWN_FILES = frozenset({IsolationLevel.NAMESPACES, IsolationLevel.CONTAINER})
"""Levels at which /work, /tmp and /skills are where they say; elsewhere the command's text is put right."""
_WITH_PLACES = (
    'command=$1 mark=$2; shift 2; number=0; for place; do command=${command//"$mark$number@"/"$place"}; '
    'number=$((number+1)); done; exec bash -c "$command"'
)


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """The shell of a toolset.

    Attributes:
        seconds: Longest a command may take; None takes the time that scripts have.
        job_seconds: Longest a background job may take; None for no limit but the session's end.
        jobs: How many jobs of one session may run at once; 0 offers none.
        job_output_bytes: How much of a job's output is kept for the model to read, in bytes.
        read_chars: Most characters that ``read_file`` returns at once.
        keep_in: A folder of this machine for the sessions' files: they stay when the agent ends, and a session that
            goes on afterwards finds them. Nothing deletes them; None deletes them with the agent.
        skill_writes: ``session`` gives the runs of a skill a folder of it that they may write, as long as the session
            lasts; no other skill's runs see it. ``never``: a skill's folder is read-only.
    """

    seconds: float | None = None
    job_seconds: float | None = 3_600.0
    jobs: int = 4
    job_output_bytes: int = 1 << 20
    read_chars: int = MODEL_STREAM_CHARS
    keep_in: Path | None = None
    skill_writes: str = "never"

    def __post_init__(self) -> None:
        for name in ("seconds", "job_seconds"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise ConfigError(f"ShellSettings: {name} must be a number of seconds above 0, or None, not {value!r}.")
        for name, least in (("jobs", 0), ("job_output_bytes", 1_000), ("read_chars", 100)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"ShellSettings: {name} must be a whole number from {least:,} on, not {value!r}.")
        if self.skill_writes not in ("never", "session"):
            raise ConfigError(f"ShellSettings: skill_writes must be 'never' or 'session', not {self.skill_writes!r}.")
        if self.keep_in is not None:
            if not isinstance(self.keep_in, (str, Path)):
                raise ConfigError(f"ShellSettings: keep_in must be a folder, not {type(self.keep_in).__name__}.")
            object.__setattr__(self, "keep_in", Path(self.keep_in).absolute())

    @property
    def copies_skills(self) -> bool:
        """Whether the runs of a skill may write a copy of its folder."""
        return self.skill_writes == "session"


def shell_of(value: object) -> ShellSettings | None:
    """The setting ``shell`` of a toolset: True, False, or settings.

    Raises ``ConfigError`` when it is something else.
    """
    if value is None or value is False:
        return None
    if value is True:
        return ShellSettings()
    if isinstance(value, ShellSettings):
        return value
    raise ConfigError(f"shell must be True, False or ShellSettings(...), not {type(value).__name__}.")


@dataclass(frozen=True, slots=True)
class ShellCall:
    """A command that is to be run."""

    command: str
    seconds: float | None  # its time; None for no limit
    skill: str = ""  # the skill whose variables it gets; empty for those of everybody only
    skills: Sequence[MountedSkill] = ()  # the active skills, mounted at ``/skills``
    versions: dict[str, str] | None = None  # of those the user had to approve, what was approved
    environment: Environment | None = None  # the packages of ``skill``; None for those of the agent's Python
    notes: tuple[str, ...] = ()  # what the model has to know of packages that are not there
    hosts: HostRules = NO_HOST_RULES  # what the owner's rules and the user's answers say of hosts
    on_output: Callable[[str, bytes], None] | None = None  # called with output as it arrives, besides the toolset's


def checked_command(command: str) -> str:
    """A command that bash can be given.

    Raises ``InvalidArguments`` when it is empty, too long, or has a character no process can receive.
    """
    check_text(command, "'command'")
    if not command.strip():
        raise InvalidArguments("'command' is empty. Give a command for bash.")
    size = len(command.encode())
    if size > MAX_COMMAND_BYTES:
        raise InvalidArguments(
            f"The command has {size:,} bytes; at most {MAX_COMMAND_BYTES:,} are possible. Write long text with "
            "write_file and use the file."
        )
    return command


@dataclass(frozen=True, slots=True)
class SandboxShell:
    """Commands in our own sandbox."""

    runtime: SkillRuntime
    own: OwnSandbox

    @property
    def name(self) -> str:
        """For events."""
        return "sandbox"

    def seconds(self, wanted: float | None) -> float | None:
        """The time of a command, in seconds: what the model wants, at most what the owner allows."""
        shell = self.runtime.shell
        most = (
            shell.seconds if shell is not None and shell.seconds is not None else self.own.settings.policy.wall_seconds
        )
        return wanted if most is None or (wanted is not None and wanted < most) else most

    def files(self, context: ToolContext, skill: str) -> ShellFiles:
        """The files of the call's session."""
        return WorkspaceFiles(self.runtime, context, self.own.settings.policy, skill)

    async def run(
        self, context: ToolContext, call: ShellCall
    ) -> tuple[dict[str, object], ExecutionResult, Sequence[RefusedHost]]:
        """Run a command in the session's workspace; the answer for the model, what happened, and hosts it wanted.

        Raises ``SkillsError`` when it cannot be started; the sandbox's own failure is a :class:`SandboxError`.
        """
        async with workspace_claim(self.runtime, context, call.skill) as claim:
            workspace = await asyncio.to_thread(claim.open)
            plan = await self.plan(context, call, workspace)
            async with claim.turn(call="a shell command"):
                async with self._copy_of(call, plan, workspace) as told:
                    outcome = await self.execute(context, plan)
                saved = await save_outputs(context, outcome, MODEL_STREAM_CHARS)  # in the turn: row 266
        notes = [*([workspace.note] if workspace.note else []), *told, *claim.notes, *saved.notes]
        notes += told_missing(call, outcome)
        answer = command_answer(saved.answer_of(outcome, notes))
        return answer, outcome.result, refused_hosts(outcome.plan.request.policy, outcome.result)

    async def plan(
        self,
        context: ToolContext,
        call: ShellCall,
        workspace: SessionWorkspace,
        *,
        job: SandboxPolicy | None = None,
    ) -> ScriptPlan:
        """The request for the sandbox; nothing is executed."""
        runtime, settings = self.runtime, self.own.settings
        mounts = await in_worker(skill_mounts, list(call.skills), call.versions or {})
        places = (WORK_DIR, TMP_DIR, *(mount.target for mount in mounts))
        policy = job or replace(settings.policy, wall_seconds=call.seconds)
        policy = await in_worker(_with_a_way_out, policy, workspace)
        policy, env = runtime.grants.opened(call.skill, "", policy, self.own.env, call.hosts)
        if call.skill:
            place = SKILLS_DIR / skill_folder(call.skill)
            if job is None and runtime.shell is not None and runtime.shell.copies_skills:
                place = copy_place(call.skill)
                places = (*places, place)
            env = {**dict.fromkeys(SKILL_VARIABLES, str(place)), **env}
        request = ExecutionRequest(
            argv=shell_argv(call.command, () if await self._has_own_files() else places),
            policy=within(policy, call.environment) if call.environment is not None else policy,
            env=env,
            mounts=mounts,
            workspace=workspace.path,
            tmp=workspace.tmp,
            spill_dir=workspace.spill,
            on_output=both_hear(self.own.on_output, call.on_output),
            label=f"command of {call.skill or 'the agent'}",
            redact=runtime.grants.secrets,
            share=share_of_session(context),
        )
        own = SKILLS_DIR / skill_folder(call.skill) if call.skill else None
        folder = next((mount.source for mount in mounts if mount.target == own), None)
        return ScriptPlan("shell", COMMAND, request, call.notes, subject="The command", folder=folder)

    def _copy_of(
        self, call: ShellCall, plan: ScriptPlan, workspace: SessionWorkspace
    ) -> contextlib.AbstractAsyncContextManager[Sequence[str]]:
        shell = self.runtime.shell
        if shell is None or not shell.copies_skills:
            return contextlib.nullcontext(())
        skill = next((mounted.skill.local() for mounted in call.skills if mounted.skill.name == call.skill), None)
        return writable_copy(self.own.sandbox, plan.request, workspace, skill, SKILLS_DIR / skill_folder(call.skill))

    async def execute(self, context: ToolContext, plan: ScriptPlan) -> ScriptOutcome:
        """Run what was planned.

        Raises ``SandboxError`` when the sandbox failed, or ``InvalidArguments`` when the command cannot be expressed.
        """
        with on_behalf_of_turn(self.own.sandbox, context):
            result = await self.own.run_plan(plan, self.runtime)
        return await outcome_aside(plan, result, self.runtime.limits.error_chars)

    async def _has_own_files(self) -> bool:
        """Whether the command will find the paths it names."""
        policy = self.own.settings.policy
        if policy.isolation != "auto":
            return policy.isolation in {level.value for level in _OWN_FILES}
        return (await self.own.sandbox.probe()).level in _OWN_FILES


@dataclass(frozen=True, slots=True)
class EnvironmentShell:
    """Commands in a google-adk environment, where the toolset's scripts run, too."""

    runtime: SkillRuntime
    environment: BaseEnvironment

    @property
    def name(self) -> str:
        """For events."""
        return type(self.environment).__name__

    def seconds(self, wanted: float | None) -> float | None:
        """The time of a command, in seconds: what the model wants, at most what the owner allows."""
        shell = self.runtime.shell
        most = shell.seconds if shell is not None and shell.seconds is not None else self.runtime.adk_executor_timeout
        return wanted if wanted is not None and wanted < most else most

    def files(self, context: ToolContext, skill: str) -> ShellFiles:  # an environment is one workspace
        """The environment's files."""
        return EnvironmentFiles(self.environment, self.runtime.settings.policy.file_bytes)

    async def run(
        self, context: ToolContext, call: ShellCall
    ) -> tuple[dict[str, object], ExecutionResult, Sequence[RefusedHost]]:
        """Run a command in the environment's working directory. Raises ``SandboxError`` when the environment fails."""
        began = time.monotonic()
        try:
            if not getattr(self.environment, "is_initialized", True):
                await self.environment.initialize()
            command = call.command
            if self.runtime.permissions.commands:  # they read bash, and '/bin/sh' may be another shell (row 328)
                command = f"exec bash -c {shlex.quote(command)}"
            with on_behalf_of(context.get_invocation_context()):
                found = await self.environment.execute(command, timeout=call.seconds)
            stdout, stderr = found.stdout.encode("utf-8", "replace"), found.stderr.encode("utf-8", "replace")
            code, timed_out = getattr(found, "exit_code", 0), bool(getattr(found, "timed_out", False))
        except SkillsError:
            raise
        except Exception as error:  # each environment has its own exceptions; the model gets one code for all
            raise SandboxError(f"The environment could not run the command: {error}") from error  # cut after redaction
        policy = SandboxPolicy(wall_seconds=call.seconds, output_bytes=KEPT_BYTES)
        plan = ScriptPlan(
            "shell", COMMAND, ExecutionRequest(("bash", "-c", call.command), policy), subject="The command"
        )
        took = time.monotonic() - began
        result = told_result(self.environment, plan, stdout, stderr, code, took, timed_out=timed_out)
        result = await redacted_aside(result, self.runtime.grants.forms)
        outcome = await outcome_aside(plan, result, self.runtime.limits.error_chars)
        return command_answer(outcome.to_model()), result, ()


Shell = SandboxShell | EnvironmentShell


def told_missing(call: ShellCall, outcome: ScriptOutcome) -> list[str]:
    """The sentences for the model about what a failed command did not find, and limits it met; the log has the fix.

    Without a skill that it belongs to, a command is the model's own, and nothing for the owner.
    """
    if call.skill:
        for thing in outcome.missing:
            logger.warning("%s", replace(thing, skill=call.skill).for_owner())
    # Of a command that succeeded they are in the answer already, and of one that a limit ended in its error.
    told = outcome.told_beside() if outcome.reason == "exit_code" else []
    if NO_NETWORK in told and refused_hosts(outcome.plan.request.policy, outcome.result):
        told.remove(NO_NETWORK)  # what is said of these hosts may be how to reach them
    return told


def command_answer(told: dict[str, object]) -> dict[str, object]:
    """A script's answer as one of ``execute``: without what only a script has, and without what is empty."""
    told = {key: value for key, value in told.items() if key not in {"skill_name", "file_path"}}
    answer: dict[str, object] = {"status": "error" if told["status"] == "error" else "ok"}
    answer["exit_code"] = told.pop("return_code")
    if told.get("reason") == "exit_code":  # the code and stderr say it all; a search that finds nothing is no failure
        for key in ("reason", "error", "error_code"):
            told.pop(key, None)
        if told.get("stderr") == f"Exit code {answer['exit_code']}":
            told.pop("stderr")
    return answer | {key: value for key, value in told.items() if key != "status" and value not in ("", False, None)}


_ROOM_BYTES, _ROOM_ENTRIES = 256 << 10, 64


def _with_a_way_out(policy: SandboxPolicy, workspace: SessionWorkspace) -> SandboxPolicy:
    """The policy with room for what is in a full workspace already: else no command could delete anything. Blocks.

    The room is there once: what a command leaves in it stays, and must not give the next one more (row 342).
    """
    work, tmp = usage_of(workspace.path), usage_of(workspace.tmp)
    used = {
        "workspace_bytes": (work.size, _ROOM_BYTES),
        "tmp_bytes": (tmp.size, _ROOM_BYTES),
        "workspace_inodes": (max(work.entries, tmp.entries), _ROOM_ENTRIES),
    }
    wider: dict[str, Any] = {}
    for name, (there, room) in used.items():
        limit = getattr(policy, name)
        if limit is not None and there + room > limit:
            wider[name] = max(there, min(there, limit) + room)
    return replace(policy, **wider) if wider else policy


def shell_argv(command: str, places: Sequence[PurePosixPath] = ()) -> tuple[str, ...]:
    """``bash -c``, with the places in the command's text put right by the shell inside where they are elsewhere.

    ``places`` are folders that the command may name and the sandbox has elsewhere; levels translate whole arguments
    only.
    """
    used: list[str] = []
    marked = command
    for place in sorted(map(str, places), key=len, reverse=True):
        pattern = re.compile(rf"(?<![\w./-]){re.escape(place)}(?![\w.-])")
        replaced = pattern.sub(f"@adk-place-{len(used)}@", marked)
        if replaced != marked:
            marked = replaced
            used.append(place)
    if not used or len(marked.encode()) > MAX_ARGUMENT_BYTES:
        return ("bash", "-c", command)
    return ("bash", "-c", _WITH_PLACES, "bash", marked, "@adk-place-", *used)


def shell_instruction(tool_name: Callable[[str], str], *, keeps_tmp: bool, jobs: bool, in_environment: str = "") -> str:
    """The instruction about the shell, in a few lines."""
    execute, read, write = (tool_name(name) for name in ("execute", "read_file", "write_file"))
    if in_environment:
        where = f"`{execute}` runs bash commands in the environment; the working directory is {in_environment}."
    else:
        where = (
            f"`{execute}` runs bash in a sandbox. The working directory is {WORK_DIR}: its files last for the session, "
            "scripts work there, too. An active skill's files are at "
            f"{SKILLS_DIR}/<name>, read-only. {TMP_DIR} {'lasts for the session' if keeps_tmp else 'is new each time'}"
            "; processes end with their command."
        )
    long = f" For long work set `background` and read `{tool_name('job_output')}`." if jobs else ""
    return f"{where} Use `{read}` and `{write}` for text files.{long}"
