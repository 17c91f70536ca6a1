"""Where a skill's script is run: an executor, an environment or our own sandbox (S0-11, issue item 1).

The order is google-adk's: the toolset's executor, its environment, the agent's executor; then our sandbox, where the
toolset has one. A sandbox or a policy that the owner gave the toolset comes before the agent's executor: limits that
were asked for must not be dropped without a word. An executor of ours runs the script itself in its sandbox, in every
language; any other gets a program as google-adk makes it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from google.adk.code_executors import BaseCodeExecutor, BuiltInCodeExecutor

from adk_skills_agent.adk.running.adk_executor import run_in_executor
from adk_skills_agent.adk.running.call import (
    ScriptCall,
    ScriptRun,
    check_input_names,
    save_outputs,
    share_of_session,
)
from adk_skills_agent.adk.running.skill_copies import in_copy, writable_copy
from adk_skills_agent.adk.shell.skills import SKILLS_DIR, skill_folder
from adk_skills_agent.errors import InvalidArguments, SandboxError, SandboxUnavailable
from adk_skills_agent.executors.code_values import on_behalf_of
from adk_skills_agent.executors.sandboxed_code import SandboxedCodeExecutor
from adk_skills_agent.sandbox import (
    SKILL_DIR,
    IsolationLevel,
    check_policy,
    in_worker,
    is_scratch,
    local_sandbox,
    redacted_aside,
    scratch_note,
)
from adk_skills_agent.scripts import (
    RunSettings,
    ScriptOutcome,
    ScriptPlan,
    outcome_aside,
    plan_script,
    workspace_key,
)
from adk_skills_agent.scripts.error_text import shorten
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS, PATH_CHARS, refused_hosts
from adk_skills_agent.scripts.plan import ScriptLocation, heavy_imports, open_for
from adk_skills_agent.scripts.workspaces import SHARED_WORKSPACES, WorkspaceClaim

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.running.adk_environment import EnvironmentRunner
    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.packages.skill_environments import Ready
    from adk_skills_agent.sandbox import EnvValue, ExecutionResult, Sandbox, SandboxPolicy
    from adk_skills_agent.scripts.workspaces import SessionWorkspace


logger = logging.getLogger(__name__)

_LOGGED_BYTES = 8_192
"""Of a failing script's stderr: the model gets the exception, the owner the traceback (S0-20)."""

Run = Callable[["SkillRuntime", "ToolContext", ScriptCall], Awaitable[ScriptRun]]


@dataclass(frozen=True, slots=True)
class ScriptBackend:
    """One place and manner to run scripts: our sandbox, an executor, an environment."""

    name: str  # for the events: ``sandbox``, or the class of the executor or environment
    run: Run
    own: OwnSandbox | None = None  # our sandbox, when this is it

    def claim(
        self, runtime: SkillRuntime, tool_context: ToolContext, skill: str
    ) -> contextlib.AbstractAsyncContextManager[WorkspaceClaim | None]:
        """For the length of one call of a skill: the claim to its workspace where this backend has one."""
        return workspace_claim(runtime, tool_context, skill) if self.own is not None else contextlib.nullcontext()

    def check_inputs(self, runtime: SkillRuntime, call: ScriptCall) -> None:
        """Refuse what a run with keys, hosts or programs may not find beside the skill's own files. Blocks.

        Before anybody is asked; ``call.hosts`` are those of a yes. Raises ``SkillsError``.
        """
        settings, env = (runtime.settings, {}) if self.own is None else (self.own.settings, self.own.env)
        skill, grants = call.skill, runtime.grants
        if call.inputs and open_for(skill.name, call.path, settings.policy, env, grants, call.hosts, skill.has_file)[2]:
            check_input_names(call.inputs, skill)


_Result = TypeVar("_Result")


async def before_run(
    tool_context: ToolContext,
    call: ScriptCall,
    own: OwnSandbox | None,
    work: Callable[..., _Result],
    /,
    *args: Any,
    **named: Any,
) -> _Result:
    """Do in a thread what comes before a run: in one of its own when it may have to wait for packages."""
    packages = None if own is None else own.settings.packages
    if packages is None or packages.is_settled(call.skill.name, call.path):
        return await in_worker(work, *args, **named)
    from adk_skills_agent.adk.running.packages import in_own_thread  # most calls pass without

    return await in_own_thread(tool_context, work, *args, **named)


@dataclass(frozen=True, slots=True)
class OwnSandbox:
    """A sandbox of ours with its settings."""

    sandbox: Sandbox
    settings: RunSettings
    env: Mapping[str, EnvValue] = field(default_factory=dict)  # variables the executor grants, over the toolset's
    on_output: Callable[[str, bytes], None] | None = None  # called with output as it arrives

    async def run(self, runtime: SkillRuntime, tool_context: ToolContext, call: ScriptCall) -> ScriptRun:
        """Run a script in the session's workspace; what it leaves there becomes artifacts.

        Raises ``SkillsError`` when it cannot be started; the sandbox's own failure is a :class:`SandboxError`.
        """
        skill = call.skill.name
        claimed = contextlib.nullcontext(call.claim) if call.claim else workspace_claim(runtime, tool_context, skill)
        async with claimed as claim:
            plan, workspace = await before_run(tool_context, call, self, self.prepare, runtime, call, claim)
            if call.inputs and plan.has_grants:  # whoever called, and whatever was known then
                await in_worker(check_input_names, call.inputs, call.skill)
            share = share_of_session(tool_context)
            heard = both_hear(plan.request.on_output, call.on_output)
            request = replace(plan.request, share=share, input_files=call.inputs, on_output=heard)
            if runtime.shell is not None:  # the same /tmp, and the skill where its text says
                own = replace(request.mounts[0], target=SKILLS_DIR / skill_folder(skill), linked=False)
                request = replace(request, tmp=workspace.tmp, mounts=(*request.mounts, own))
            plan = replace(plan, request=request)
            copy: contextlib.AbstractAsyncContextManager[Sequence[str]] = contextlib.nullcontext(())
            if runtime.shell is not None and runtime.shell.copies_skills:
                copy = writable_copy(self.sandbox, request, workspace, call.skill.local(), SKILL_DIR)
                plan = in_copy(plan)
            async with claim.turn(call=f"{call.path} of the skill {skill}"):
                with on_behalf_of_turn(self.sandbox, tool_context):
                    async with copy as told:
                        outcome = await self._execute(plan, runtime)
                # In the turn: the files of one run of the session are in memory while a service takes them (row 266).
                saved = await save_outputs(tool_context, outcome, MODEL_STREAM_CHARS)
        notes = [*([workspace.note] if workspace.note else []), *told, *claim.notes, *saved.notes]
        answer = saved.answer_of(outcome, notes)
        result = outcome.result
        if result.skipped_files:
            answer["skipped_artifacts"] = [shorten(name, PATH_CHARS) for name, _ in result.skipped_files[:20]]
        return ScriptRun(
            answer=answer,
            exit_code=outcome.return_code,
            stdout_bytes=result.stdout_total,
            stderr_bytes=result.stderr_total,
            files=len(result.files),
            level=result.isolation.level.value,
            refused=refused_hosts(outcome.plan.request.policy, result),
        )

    def prepare(
        self, runtime: SkillRuntime, call: ScriptCall, claim: WorkspaceClaim
    ) -> tuple[ScriptPlan, SessionWorkspace]:
        """Open the workspace and check the call. Blocks; nothing is executed.

        Raises ``SkillsError`` when it cannot be expressed, or something of it is not there.
        """
        workspace = claim.open()
        skill = call.skill.local()
        version = call.version or call.skill.pinned()
        ready = self.ready(runtime, call)
        if ready is not None and ready.problem is not None:
            logger.warning("%s %s", ready.problem.message, " ".join(getattr(ready.problem, "__notes__", ())))
        plan = plan_script(
            skill,
            # What is in memory has just been put on the disk, where it is looked up for the first time.
            call.path if call.skill.in_memory else ScriptLocation(call.path, skill.skill_dir / call.path),
            call.arguments,
            settings=self.settings.within(ready.environment) if ready is not None else self.settings,
            env=self.env,
            grants=runtime.grants,
            workspace=workspace.path,
            spill_dir=workspace.spill,
            on_output=self.on_output,
            digest=call.skill.copy_digest(version) if version else "",
            hosts=call.hosts,
        )
        policy = plan.request.policy
        if policy.warm_slots and not policy.preload and self.sandbox.runs_here and call.path.endswith(".py"):
            modules = heavy_imports(skill.skill_dir / call.path, policy.python)
            if modules:
                plan = replace(plan, request=replace(plan.request, policy=replace(policy, preload=modules)))
        if ready is not None and ready.notes:
            plan = replace(plan, notes=(*plan.notes, *ready.notes))
        return plan, workspace

    def ready(self, runtime: SkillRuntime, call: ScriptCall) -> Ready | None:
        """The environment of the skill and what is not here. Blocks; what was found out is remembered.

        Raises ``PackagesNotApproved`` when the user has to be asked.
        """
        packages = self.settings.packages
        if packages is None or not self.sandbox.runs_here:
            return None
        policy = self.settings.policy
        granted = None
        if not runtime.grants.empty:
            granted = runtime.grants.with_programs(call.skill.name, call.path, policy, {}).get("PATH")
        return packages.ready_for(
            call.skill.local(),
            call.path,
            python=policy.python,
            approved=call.packages,
            path=granted if isinstance(granted, str) else None,
        )

    def _warn_without_proxy(self, runtime: SkillRuntime) -> None:
        if not runtime.told_without_proxy:
            runtime.told_without_proxy = True
            logger.warning(
                "The permissions ask about hosts, and this sandbox has no proxy that would say which host a script "
                "tried: scripts run without network, and nobody is asked. Use the local sandbox at level 'namespaces', "
                "or grant the hosts."
            )

    async def run_plan(self, plan: ScriptPlan, runtime: SkillRuntime) -> ExecutionResult:
        """The result without secrets and without files that nobody wants.

        Raises ``SandboxError`` when the sandbox failed, or ``InvalidArguments`` when the request cannot be expressed.
        """
        try:
            result = await self.sandbox.run(plan.request)
        except ValueError as error:  # the contract's word for a request that cannot be expressed
            raise InvalidArguments(str(error)) from error
        if not getattr(self.sandbox, "filters_secrets", False):
            result = await redacted_aside(result, runtime.grants.forms)
        return without_scratch(result)

    async def _execute(self, plan: ScriptPlan, runtime: SkillRuntime) -> ScriptOutcome:
        try:
            result = await self.run_plan(plan, runtime)
        except SandboxUnavailable:
            # Nothing was started. Without a proxy nobody learns the names of hosts, and nothing is open either.
            policy = self.settings.policy
            if plan.request.policy.network.hosts or plan.request.policy.network == policy.network:
                raise
            self._warn_without_proxy(runtime)
            plan = replace(
                plan, request=replace(plan.request, policy=replace(plan.request.policy, network=policy.network))
            )
            result = await self.run_plan(plan, runtime)
        outcome = await outcome_aside(plan, result, runtime.limits.error_chars)
        for thing in outcome.missing:
            logger.warning("%s", thing.for_owner())
        if outcome.error is not None:
            logger.info(
                "stderr of %s:\n%s", plan.request.label, result.stderr[-_LOGGED_BYTES:].decode("utf-8", "replace")
            )
        logger.info(
            "script %s of skill %s: %s%s, return code %d, %.0f ms, isolation %s%s",
            plan.path,
            plan.skill_name,
            outcome.status.value,
            f" ({outcome.reason})" if outcome.reason else "",
            outcome.return_code,
            result.wall_ms,
            result.isolation.level.value,
            f" on node {result.isolation.node}" if result.isolation.node else "",
        )
        return outcome


def on_behalf_of_turn(sandbox: Sandbox, context: ToolContext) -> contextlib.AbstractContextManager[None]:
    """Runs inside the block know the invocation, where the sandbox wants that."""
    wants = getattr(sandbox, "wants_invocation", False)
    return on_behalf_of(context.get_invocation_context()) if wants else contextlib.nullcontext()


def both_hear(
    one: Callable[[str, bytes], None] | None, other: Callable[[str, bytes], None] | None
) -> Callable[[str, bytes], None] | None:
    """Who hears what is printed: both, or the one there is."""
    if one is None or other is None:
        return one or other

    def hear(stream: str, chunk: bytes) -> None:
        one(stream, chunk)
        other(stream, chunk)

    return hear


def without_scratch(result: ExecutionResult) -> ExecutionResult:
    """The result without hidden files and caches, for sandboxes that hand over all there is."""
    files = tuple(file for file in result.files if not is_scratch(file.path))
    skipped = tuple(one for one in result.skipped_files if not is_scratch(one[0]))
    count = len(result.files) - len(files) + len(result.skipped_files) - len(skipped)
    if not count:
        return result
    return replace(result, files=files, skipped_files=skipped, notes=(*result.notes, scratch_note(count)))


def workspace_claim(
    runtime: SkillRuntime, tool_context: ToolContext, skill: str
) -> contextlib.AbstractAsyncContextManager[WorkspaceClaim]:
    """The claim of one call of a skill to the workspace of its session, or to its own there."""
    session = tool_context.session
    own = skill if runtime.workspace == "skill" and skill else None
    key = workspace_key(session.app_name, session.user_id, session.id, own)
    kept_in = runtime.shell.keep_in if runtime.shell is not None else None
    stores = runtime.workspace_stores
    return SHARED_WORKSPACES.claim(key, runtime.owner, kept_in, stores.of(runtime, tool_context) if stores else None)


def script_backend_of(
    runtime: SkillRuntime, context: ReadonlyContext, environments: EnvironmentRunner
) -> ScriptBackend | None:
    """The backend of this agent's scripts now; None when there is none."""
    if runtime.code_executor is not None:
        return _by_executor(runtime, runtime.code_executor)
    if runtime.environment is not None:
        return ScriptBackend(type(runtime.environment).__name__, environments.run)
    executor = agent_executor(context)
    if executor is not None and not (runtime.prefers_sandbox and runtime.sandbox is not None):
        return _by_executor(runtime, executor)
    if runtime.sandbox is not None:
        settings, seconds = runtime.settings, runtime.script_timeout
        if seconds is not None:
            settings = replace(settings, policy=replace(settings.policy, wall_seconds=seconds))
        own = OwnSandbox(runtime.sandbox, settings)
        return ScriptBackend("sandbox", own.run, own=own)
    return None


def own_sandbox_runs(runtime: SkillRuntime, context: ReadonlyContext) -> bool:
    """Whether scripts of this agent run in a sandbox of ours, in the workspace of the session."""
    if runtime.environment is not None:
        return False
    executor = runtime.code_executor
    if executor is None and not (runtime.prefers_sandbox and runtime.sandbox is not None):
        executor = agent_executor(context)
    return isinstance(executor, SandboxedCodeExecutor) if executor is not None else runtime.sandbox is not None


def agent_executor(context: ReadonlyContext) -> BaseCodeExecutor | None:
    """The executor of the agent that calls, when it can run code that is handed to it."""
    # The public get_invocation_context() makes a copy of a whole model for one attribute, and the doubles of
    # google-adk's own tests, which a drop-in has to work with, know only this attribute. test_script_backends.py
    # fails loudly when it goes away.
    invocation = getattr(context, "_invocation_context", None)
    executor = getattr(getattr(invocation, "agent", None), "code_executor", None)
    if executor is None or isinstance(executor, BuiltInCodeExecutor):
        return None  # the built-in one is a tool of the model's service; it executes nothing here
    return executor  # type: ignore[no-any-return]


def _by_executor(runtime: SkillRuntime, executor: BaseCodeExecutor) -> ScriptBackend:
    # A stateful one runs the script in the Python state of its skill, session and agent (S0-110).
    given_code = getattr(executor, "in_process", False) or getattr(executor, "stateful", False)
    if not isinstance(executor, SandboxedCodeExecutor) or given_code:

        async def run(shared: SkillRuntime, tool_context: ToolContext, call: ScriptCall) -> ScriptRun:
            return await run_in_executor(shared, tool_context, call, executor)

        return ScriptBackend(type(executor).__name__, run)
    settings = replace(runtime.settings, policy=executor.effective_policy(runtime.script_timeout))
    own = OwnSandbox(
        executor.sandbox if executor.sandbox is not None else local_sandbox(),
        settings,
        executor.env,
        executor.on_output,
    )
    return ScriptBackend(type(executor).__name__, own.run, own=own)


# Whether our own sandbox can run scripts here, so that a tool that cannot work is not offered (S0-14).


class ScriptReadiness:
    """Asks a sandbox at what level it isolates, and tells the owner once when that is not enough.

    Raises ``ConfigError`` when the policy has an impossible value.
    """

    def __init__(self, sandbox: Sandbox, policy: SandboxPolicy, tool: str) -> None:
        self._sandbox = sandbox
        self._wanted = IsolationLevel(check_policy(policy).min_isolation)
        self._tool = tool
        self._warned = False

    async def __call__(self) -> bool:
        """Whether scripts can run now."""
        try:
            report = await self._sandbox.probe()
        except SandboxError as error:  # the other tools still work; the next request asks again
            self._warn("%s is not offered: %s", self._tool, error.message)
            return False
        if report.level.strength >= self._wanted.strength:
            return True
        self._warn(
            "%s is not offered: this machine isolates scripts at level '%s', the policy asks for '%s' (%s). "
            "See: adk-skills doctor",
            self._tool,
            report.level.value,
            self._wanted.value,
            "; ".join(report.reasons),
        )
        return False

    def _warn(self, message: str, *values: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(message, *values)
