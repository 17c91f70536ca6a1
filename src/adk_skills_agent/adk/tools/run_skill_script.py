"""``run_skill_script``: run a file of a skill (S0-1 to S0-11, S0-26 to S0-34, S0-157)."""

from __future__ import annotations

import functools
import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.events.events import (
    OutputEvents,
    ScriptFinished,
    ScriptOutput,
    ScriptStarted,
    origin_of,
)
from adk_skills_agent.adk.guard import call_key, turn_of
from adk_skills_agent.adk.hosts import HostsOfCall, hosts_of_call, tell_refused
from adk_skills_agent.adk.permissions import Decision, both, weigh
from adk_skills_agent.adk.rules import Verdict
from adk_skills_agent.adk.running.adk_environment import EnvironmentRunner
from adk_skills_agent.adk.running.call import (
    HELD_INPUTS,
    MAX_INPUT_BYTES,
    ScriptCall,
    ScriptRun,
    load_inputs,
    share_of_session,
)
from adk_skills_agent.adk.running.packages import approve_packages
from adk_skills_agent.adk.running.runner import ScriptBackend, agent_executor, before_run, script_backend_of
from adk_skills_agent.adk.tools.base import ToolsetTool, failure, is_broken_sandbox, required_texts, skill_name_schema
from adk_skills_agent.errors import (
    ErrorCode,
    IntegrityError,
    RegistryError,
    ResourceNotFound,
    SandboxUnavailable,
    ScriptNotFound,
    SkillNotFound,
    SkillsError,
    nearest,
)
from adk_skills_agent.sandbox import in_worker, log_exception, redact_error
from adk_skills_agent.scripts import ScriptArguments, list_scripts
from adk_skills_agent.scripts.plan import check_types, google_arguments, script_paths

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.running.runner import OwnSandbox
    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill


logger = logging.getLogger(__name__)

RUN_SKILL_SCRIPT = "run_skill_script"
_LISTED_SCRIPTS = 10
_NO_EXECUTOR = (
    "Neither Environment nor CodeExecutor is configured. An environment or code executor is required to run scripts."
)
_ARGS = (
    "Arguments. An object becomes long options, an array is the complete argument list; with an array, give no "
    "'short_options' and no 'positional_args'."
)


@dataclass(frozen=True, slots=True)
class _Found:
    """The facts about a call, collected in one visit to a thread."""

    path: str
    decision: Decision
    version: str = ""  # of the skill, for the events; empty when nobody wants to know


class RunSkillScriptTool(ToolsetTool):
    """Runs one script. A failing script is an answer with ``status: error``, never an exception."""

    skill_argument = "skill_name"
    path_argument = "file_path"
    free_repeats = 20  # a script may wait for something, or do a part of the work each time
    required: tuple[str, ...] = ("skill_name", "file_path")

    def __init__(self, runtime: SkillRuntime, name: str = RUN_SKILL_SCRIPT, description: str = "") -> None:
        super().__init__(runtime, name, description or "Executes a script of a skill.")
        self._environments = EnvironmentRunner()
        self._scripts_seen: tuple[int, bool] | None = None
        self._told_of_executor = False

    def properties(self) -> dict[str, dict[str, object]]:
        """Skill, script, its arguments, and artifacts it should find."""
        args: list[dict[str, object]] = [{"type": "object"}, {"type": "array", "items": {"type": "string"}}]
        if self.runtime.sandbox is not None:
            args.append({"type": "string"})
        properties: dict[str, dict[str, object]] = {
            self.skill_argument: skill_name_schema(self.runtime.listing.names),
            self.path_argument: {"type": "string", "description": "The script's path, such as 'scripts/setup.py'."},
            "args": {"anyOf": args, "description": _ARGS},
            "short_options": {"type": "object", "description": "Options with a single hyphen, as name and value."},
            "positional_args": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Arguments that come after all options.",
            },
            "files": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names of artifacts of this session to put into the working directory first.",
            },
        }
        return properties

    def offered(self, tool_context: ToolContext) -> bool:
        """With a backend and a script to run; what a registry has is not known (S0-14)."""
        runtime = self.runtime
        can_run = runtime.code_executor is not None or runtime.environment is not None or runtime.sandbox is not None
        if not can_run and agent_executor(tool_context) is None:
            return False
        return runtime.source.fetches or self._any_script()

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The outcome of the script, or why it was not run."""
        runtime = self.runtime
        key = call_key(RUN_SKILL_SCRIPT, args)
        guard = runtime.guard
        refused = (
            guard.refused(tool_context, "script")
            or guard.refused(tool_context, "executor")
            or guard.refused(tool_context, "run", key)
        )
        if refused is not None:
            return refused
        began = time.monotonic()
        started: list[str] = []
        try:
            return await self._answer(args, tool_context, key, started)
        except SkillsError as error:
            redact_error(error, runtime.grants.forms)
            if is_broken_sandbox(error):
                log_exception(logger, runtime.grants.forms, "the sandbox failed for %s", self.name)
            answer, named = failure(error), self.skill_of(args)
            if not started:
                self._tell_unstarted(args, tool_context, answer, time.monotonic() - began)
            if isinstance(error, SkillNotFound):
                return guard.miss(tool_context, "skill", answer, named, named)
            if isinstance(error, RegistryError):
                return guard.miss(tool_context, "registry", answer, named, named)
            if isinstance(error, ScriptNotFound):
                skill = runtime.source.local(str(args.get(self.skill_argument)))
                answer |= _listed(await in_worker(_scripts_of, skill)) if skill is not None else {}
                return guard.miss(tool_context, "script", answer, str(args.get(self.path_argument)), named)
            if isinstance(error, SandboxUnavailable):
                return guard.miss(tool_context, "executor", answer, str(args.get(self.path_argument)), named)
            return guard.miss(tool_context, "run", answer, key, named)

    async def _answer(self, args: dict[str, Any], tool_context: ToolContext, key: str, started: list[str]) -> Any:
        runtime = self.runtime
        name, asked = required_texts(args, self.skill_argument, self.path_argument)
        arguments = ScriptArguments(args.get("args"), args.get("short_options"), args.get("positional_args"))
        backend = script_backend_of(runtime, tool_context, self._environments)
        check_types(arguments)  # before the skill is looked for, as google-adk does; values where they are used
        if runtime.google_arguments:
            arguments = google_arguments(arguments)
        await runtime.source.fetch(name)
        skill = runtime.source.local(name)
        if skill is None:
            refused = runtime.guard.refused_name(tool_context)
            if refused is not None:
                return refused
            skill = await runtime.skill(tool_context, name)
        if backend is None:
            path = await in_worker(_find, skill, asked)
            answer = {"error": _NO_EXECUTOR, "error_code": ErrorCode.NO_CODE_EXECUTOR.value}
            self._tell_unstarted(args, tool_context, answer, 0.0)
            return runtime.guard.miss(tool_context, "executor", answer, path, skill.name)
        most = runtime.settings.policy.workspace_bytes
        most = MAX_INPUT_BYTES if most is None else most
        held = HELD_INPUTS.of_call(share_of_session(tool_context)[0], most)
        async with held as take, backend.claim(runtime, tool_context, skill.name) as claim:
            hosts = HostsOfCall()
            if runtime.permissions.hosts and backend.own is not None:
                hosts = await hosts_of_call(runtime, tool_context, skill)
            call = ScriptCall(
                skill, asked, asked, arguments, command=args.get("command"), claim=claim, hosts=hosts.rules
            )
            wants = runtime.events.heard
            found = await in_worker(self._look, call, wants_version=wants)
            if runtime.require_activation:
                runtime.active.check(tool_context, skill.name, runtime.tool_name("load_skill"))
            decision = both(found.decision, hosts.decision(found.path)) if hosts.pending else found.decision
            denied = decision.verdict is Verdict.DENY
            # Before the approval: what is approved must not wait for a service while somebody changes it.
            inputs = () if denied else await load_inputs(tool_context, args.get("files"), most, take)
            if inputs:
                opened = hosts.approved()  # the yes comes later, or never
                with_inputs = replace(call, path=found.path, inputs=inputs, hosts=opened)
                await in_worker(backend.check_inputs, runtime, with_inputs)
            weighed = await (hosts.weigh if hosts.pending else weigh)(tool_context, skill, decision, runtime)
            if weighed.refusal is not None:
                return weighed.refusal
            self._tell_of_executor(backend)
            call = replace(call, path=found.path, inputs=inputs, version=weighed.version)
            if hosts.pending:
                call = replace(call, hosts=hosts.approved())
            packages = runtime.settings.packages
            if backend.own is not None and packages is not None and packages.asks:
                answered = await self._with_packages(call, backend.own, tool_context)
                if isinstance(answered, dict):
                    return answered
                call = answered
            started.append(os.urandom(16).hex())
            run = await self._run(call, backend, tool_context, started[0], found.version)
        if run.status == "error":
            return self._failed(tool_context, run, key, skill.name)
        runtime.guard.success(tool_context, "run", key)
        return run.answer

    async def _with_packages(
        self, call: ScriptCall, own: OwnSandbox, tool_context: ToolContext
    ) -> ScriptCall | dict[str, Any]:
        """The call with what the user said about its packages, or the tool's answer when there is no yes (yet)."""
        try:
            await before_run(tool_context, call, own, own.ready, self.runtime, call)
        except SkillsError as error:
            from adk_skills_agent.packages import PackagesNotApproved  # few skills get here, and it imports much

            if isinstance(error, PackagesNotApproved):
                refusal = await approve_packages(self.runtime, tool_context, error)
                return refusal or replace(call, packages=(error.lock.digest,))
        return call  # with any other error the run ends

    def _look(self, call: ScriptCall, *, wants_version: bool) -> _Found:
        """Everything about a call that is on the disk. Blocking.

        Raises ``SkillsError`` when the skill or its script is gone.
        """
        path = _find(call.skill, call.asked)
        version = _version_of(call.skill) if wants_version else ""
        decision = self.runtime.permissions.decide(call.skill, "run", path)
        asked = os.path.normpath(call.asked)
        if path not in (names := (asked, f"scripts/{asked}")):  # it was found by a link, which a rule may name
            by_link = (self.runtime.permissions.decide(call.skill, "run", name) for name in names)
            ruled = (one for one in by_link if one.rule is not None and one.rule.kind == "scripts")
            decision = functools.reduce(both, ruled, decision)
        return _Found(path, decision, version)

    def _tell_of_executor(self, backend: ScriptBackend) -> None:
        """Tell the owner once that the toolset's sandbox is not what runs the scripts."""
        if self.runtime.sandbox is not None and backend.name != "sandbox" and not self._told_of_executor:
            self._told_of_executor = True
            logger.warning(
                "Scripts run in the agent's own code_executor (%s), which comes before the toolset's sandbox: the "
                "sandbox's policy does not hold there. Pass code_executor= to the toolset to choose.",
                backend.name,
            )

    async def _run(
        self, call: ScriptCall, backend: ScriptBackend, tool_context: ToolContext, run_id: str, version: str
    ) -> ScriptRun:
        runtime, origin = self.runtime, origin_of(tool_context)
        runtime.events.emit(
            ScriptStarted(
                origin=origin,
                skill=call.skill.name,
                script=call.path,
                version=version,
                run=run_id,
                executor=backend.name,
            )
        )
        printed: OutputEvents | None = None
        if runtime.events.output_heard:
            about = ScriptOutput(origin=origin, skill=call.skill.name, script=call.path, run=run_id)
            printed = OutputEvents(runtime.events, about)
            call = replace(call, on_output=printed)
        began = time.monotonic()
        status, reason, code, run = "error", "cancelled", "", ScriptRun({})
        try:
            run = await backend.run(runtime, tool_context, call)
            status, reason, code = run.status, run.reason, str(run.answer.get("error_code") or "")
        except SkillsError as error:
            broken = is_broken_sandbox(error)
            reason, code = "sandbox_error" if broken else "not_started", error.code.value
            raise
        finally:
            if printed is not None:
                printed.flush()
            runtime.events.emit(
                ScriptFinished(
                    origin=origin,
                    skill=call.skill.name,
                    script=call.path,
                    run=run_id,
                    status=status,
                    reason=reason,
                    error_code=code,
                    exit_code=run.exit_code,
                    seconds=time.monotonic() - began,
                    stdout_bytes=run.stdout_bytes,
                    stderr_bytes=run.stderr_bytes,
                    files=run.files,
                    level=run.level,
                    executor=backend.name,
                )
            )
        if run.refused:
            tell_refused(runtime, tool_context, call.skill.name, call.path, run_id, origin, run.refused, run.answer)
        return run

    def _failed(self, tool_context: ToolContext, run: ScriptRun, key: str, skill: str) -> dict[str, Any]:
        """Count the run when it failed as the last one of this very call did."""
        guard = self.runtime.guard
        call = f"{tool_context.agent_name}:{self.runtime.tool_name(self.base_name)}:{key}"
        last = f"temp:_adk_skill_last_failure_{turn_of(tool_context)}_{call}"
        told = str(run.answer.get("error") or run.answer.get("stderr") or "").strip()
        # Numbers are left out: a process id or a time does not make it another failure.
        failure_key = call_key(run.reason, run.exit_code, re.sub(r"0x[0-9a-f]+|\d+", "0", told))
        if tool_context.state.get(last) != failure_key:
            tool_context.state[last] = failure_key
            guard.success(tool_context, "run", key)
        counted = guard.miss(tool_context, "run", run.answer | {"error": told or "The script failed."}, key, skill)
        if not str(counted.get("error_code", "")).endswith("_FATAL"):
            return dict(run.answer)
        return counted

    def _tell_unstarted(
        self, args: dict[str, Any], tool_context: ToolContext, answer: dict[str, Any], seconds: float
    ) -> None:
        self.runtime.events.emit(
            ScriptFinished(
                origin=origin_of(tool_context),
                skill=str(args.get(self.skill_argument) or ""),
                script=str(args.get(self.path_argument) or ""),
                status="error",
                reason="not_started",
                error_code=str(answer.get("error_code") or ""),
                seconds=seconds,
                executor="",
            )
        )

    def _any_script(self) -> bool:
        version = self.runtime.source.version
        if self._scripts_seen is None or self._scripts_seen[0] != version:
            skills = self.runtime.source.listed()
            # A scripts folder is found without a look at each file.
            found = any(map(_has_scripts_folder, skills)) or any(map(_scripts_of, skills))
            self._scripts_seen = (version, found)
        return self._scripts_seen[1]

    def _detect_error_in_response(self, response: Any) -> str | None:
        """As every tool's, and for a script that failed."""
        found = super()._detect_error_in_response(response)
        if found is None and isinstance(response, dict) and response.get("status") == "error":
            return "SKILL_SCRIPT_EXECUTION_ERROR"
        return found


def _find(skill: KnownSkill, asked: str) -> str:
    """The path of a script."""
    *written, last = script_paths(asked)
    path = next(filter(skill.has_file, written), last)
    try:
        return skill.find(path, ())
    except (ScriptNotFound, ResourceNotFound) as error:
        suggestions: Sequence[str] = error.suggestions
    scripts = _scripts_of(skill)
    close = nearest(asked, scripts) or [one for one in suggestions if one in scripts]
    if scripts:
        raise ScriptNotFound(f"Script '{asked}' not found in skill '{skill.name}'.", close)
    sentence = f"Script '{asked}' not found: skill '{skill.name}' has no scripts. Follow its instructions instead."
    raise ScriptNotFound(sentence, close)


def _version_of(skill: KnownSkill) -> str:
    """For the events; a skill that cannot be read as a whole may still have a script that runs."""
    try:
        return skill.version()
    except Exception:  # an object in memory is the application's, and may raise anything
        logger.warning("the version of skill %s is not known", skill.name, exc_info=True)
        return ""


def _scripts_of(skill: KnownSkill) -> tuple[str, ...]:
    try:
        return skill.scripts if skill.in_memory else list_scripts(skill.local())
    except SkillsError:
        return ()  # the sentence about the script says enough


def _listed(scripts: tuple[str, ...]) -> dict[str, Any]:
    listed: dict[str, Any] = {"scripts": list(scripts[:_LISTED_SCRIPTS])} if scripts else {}
    if len(scripts) > _LISTED_SCRIPTS:
        listed["more_scripts"] = len(scripts) - _LISTED_SCRIPTS
    return listed


def _has_scripts_folder(skill: KnownSkill) -> bool:
    try:
        return not skill.in_memory and skill.local().has_scripts
    except IntegrityError:
        return True  # the tool that says why it does not run


# ``run_script``: ``run_skill_script`` under the name and arguments of ``with_skills`` (S4-6).

RUN_SCRIPT = "run_script"


class RunScriptTool(RunSkillScriptTool):
    """Runs one script of a skill. A failing script is an answer with ``status: error``, never an exception."""

    skill_argument = "skill"
    path_argument = "script"
    required = ("skill", "script")

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            description="Run a script of a skill and get its output. Load the skill first; its "
            "instructions say which script to run and how. The script starts in a working directory where the "
            "skill's files can be read by their relative paths; files it writes there are kept for the session. "
            "If a script is not found, do not guess other paths.",
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """Skill, script, its arguments, and artifacts it should find."""
        return {
            "skill": skill_name_schema(self.runtime.listing.names),
            "script": {"type": "string", "description": "The script's path, such as 'scripts/run.py'."},
            "args": {
                "anyOf": [
                    {"type": "object"},
                    {"type": "array", "items": {"type": "string"}},
                    {"type": "string"},
                ],
                "description": (
                    "Arguments. An object becomes long options ({'top': 3} is --top 3, true is a bare flag, "
                    "a list repeats the option, '_positional' lists positional arguments); an array is the "
                    "complete argument list; a string is split like a command line."
                ),
            },
            "files": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names of artifacts of this session to put into the working directory first.",
            },
        }
