"""The sandbox of this machine: the strongest level that works, and the course every run takes whatever its level.

A run is prepared and started in a worker thread, watched in the event loop, and ended in a worker thread. Where a
sandbox is ready and nothing has to be copied, the thread is spared: changing over to it and back takes longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError, SkillsError
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local import workers
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.agent_keeper import end_keeper
from adk_skills_agent.sandbox.local.choice import Choice, choose, is_known
from adk_skills_agent.sandbox.local.interpreter_check import check_interpreter
from adk_skills_agent.sandbox.local.late_close import wait_for_late
from adk_skills_agent.sandbox.local.levels import Enforcement, LevelRun
from adk_skills_agent.sandbox.local.loop_life import keeps_slots
from adk_skills_agent.sandbox.local.loop_watch import Dependent, loop_watch
from adk_skills_agent.sandbox.local.outcome import Times, outcome
from adk_skills_agent.sandbox.local.output_filter import OutputFilter, secrets_of_run
from adk_skills_agent.sandbox.local.preparation import Preparation
from adk_skills_agent.sandbox.local.slots import close_slots
from adk_skills_agent.sandbox.local.step import Step
from adk_skills_agent.sandbox.local.supervision import Stream, Supervision
from adk_skills_agent.sandbox.local.turns import RUNNING
from adk_skills_agent.sandbox.local.watchdog import INTERVAL_SECONDS, Watched, watchdog, works_here
from adk_skills_agent.sandbox.local.zygote_life import end_zygote
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.redaction import redact_error, redacted
from adk_skills_agent.sandbox.security_warning import warn_insecure
from adk_skills_agent.sandbox.streaming import ResourceSample
from adk_skills_agent.sandbox.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.session_channel import SessionHost


# What the two weakest levels leave open; said once per process and level (S0-44).
_WARNINGS = {
    IsolationLevel.PROCESS: "can read and write the files of this user and use the network",
    IsolationLevel.SECCOMP: "can read files of this machine that are not theirs",
}

_CLOSE_SECONDS = 5.0

_warned: set[IsolationLevel] = set()
_probed: dict[int, IsolationReport] = {}


class LocalSandbox(Sandbox):
    """Runs commands on this machine; see :class:`Sandbox` for the contract.

    One object serves any number of event loops and threads; it holds nothing of its own. Each run gets the strongest
    level that works here and fits its policy, and is refused when that is weaker than ``min_isolation``.
    """

    name = "local"

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`."""
        policy = check_policy(request.policy)
        check_interpreter(policy)
        waited_since = time.monotonic()
        with Step("choose an isolation level", ValueError):
            # A refusal need not wait for its turn.
            known = choose(request, policy) if is_known(policy) else None
            secrets = secrets_of_run(request, policy)
        try:
            # The turn comes first: whoever asked before the levels were tried out would else be overtaken by all later.
            async with RUNNING.place():
                with Step("choose an isolation level"):
                    choice = known or await choose_level(request, policy)
                warn_of_level(choice.level.level)
                return redacted(await _run(request, policy, choice, waited_since), secrets)
        except SkillsError as error:
            redact_error(error, secrets)
            raise

    def session_host(self) -> SessionHost:
        """Sessions at the strongest level that works here and fits their policy."""
        from adk_skills_agent.sandbox.local.session_host import LocalSessions

        return LocalSessions()

    async def close(self) -> None:
        """End the sandboxes that wait for runs; those of other objects of this process, too, which start new ones.

        Afterwards nothing of any run that is over is left either.
        """
        await uninterrupted(workers.submit(asyncio.get_running_loop(), _close))

    async def probe(self) -> IsolationReport:
        """Run a command that does nothing at the strongest level and report what held; cached per process.

        Raises:
            SandboxError: Not even that works; the sentence says why.
        """
        if os.getpid() not in _probed:
            policy = SandboxPolicy(min_isolation=IsolationLevel.PROCESS.value, wall_seconds=10.0)
            request = ExecutionRequest(("sh", "-c", ":"), policy)
            choice = await choose_level(request, policy)
            async with RUNNING.place():
                result = await _run(request, policy, choice, time.monotonic())
            if result.status is not Status.OK:
                raise SandboxError(
                    f"A trial run of 'sh' did not end well: {result.status.value}, exit code {result.exit_code}."
                )
            _probed[os.getpid()] = result.isolation
        return _probed[os.getpid()]


def _close() -> None:
    close_slots()
    end_zygote()
    end_keeper()
    wait_for_late(_CLOSE_SECONDS)


async def choose_level(request: ExecutionRequest, policy: SandboxPolicy) -> Choice:
    """:func:`choose`, in a worker thread while it may block."""
    if is_known(policy):
        return choose(request, policy)
    loop = asyncio.get_running_loop()
    return await uninterrupted(workers.submit(loop, lambda: choose(request, policy)))


def warn_of_level(level: IsolationLevel) -> None:
    """Say once per process what a weak level leaves open (S0-44)."""
    if level in _WARNINGS and level not in _warned:
        _warned.add(level)
        warn_insecure(
            f"Scripts run at isolation level {level.value!r}: they {_WARNINGS[level]}. Use it only for skills you "
            "trust."
        )


async def _run(
    request: ExecutionRequest, policy: SandboxPolicy, choice: Choice, waited_since: float
) -> ExecutionResult:
    loop = asyncio.get_running_loop()
    if policy.warm_slots and not await keeps_slots():
        policy = replace(policy, warm_slots=0)
    prepared = Preparation(request, policy, choice.level)
    dependent = _dependent(loop, prepared)
    loop_watch().add(dependent)
    try:
        try:
            with Step("prepare the run", ValueError):
                if prepared.start_at_once():
                    _set_deadline(prepared.run, policy, dependent)
                else:
                    await uninterrupted(workers.submit(loop, lambda: _start(prepared, policy, dependent)))
        except asyncio.CancelledError:
            # start() has ended by now; whether it got as far as a process is known to abandon().
            with contextlib.suppress(SandboxError):
                await uninterrupted(workers.submit(loop, prepared.abandon))
            raise
        except GeneratorExit:
            prepared.abandon()
            raise
        try:
            with Step("watch the command", ValueError):
                result = await _supervise(prepared, policy, choice, waited_since, dependent)
            if isinstance(result, Exception):  # what the caller's on_output or on_sample raised
                raise result
        except BaseException:
            for capture in prepared.captures:
                capture.discard()
            with contextlib.suppress(SandboxError):
                prepared.abandon()  # no effect but after an error nobody foresaw, which ended nothing
            raise
    finally:
        loop_watch().remove(dependent)
        prepared.release()
    return result


async def _supervise(
    prepared: Preparation, policy: SandboxPolicy, choice: Choice, waited_since: float, dependent: Dependent
) -> ExecutionResult | Exception:
    loop = asyncio.get_running_loop()
    request, run, captures = prepared.request, prepared.run, prepared.captures
    child = run.child
    secrets = secrets_of_run(request, policy)
    filters = (OutputFilter(run.view, secrets), OutputFilter(run.view, secrets))
    streams = (
        Stream("stdout", child.stdout, captures[0], filters[0], request.on_output, policy.output_bytes),
        Stream("stderr", child.stderr, captures[1], filters[1], request.on_output, policy.output_bytes),
    )
    supervision = Supervision(loop, run, policy, streams, request.on_sample)
    enforcement = choice.level.report(policy)
    watched: Watched | None = None

    def begin_to_watch() -> None:
        nonlocal watched
        watched = _watched(loop, run, request, policy, enforcement, supervision)
        watchdog().add(watched)

    watch = loop.call_later(INTERVAL_SECONDS, begin_to_watch) if works_here() else None
    wanted = False
    ended = child.started
    thrown_away = False
    try:
        supervision.start()

        def overdue() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(supervision.overdue)  # first: so it learns why before it sees the end
            run.kill()

        dependent.overdue = overdue
        if dependent.is_overdue:
            supervision.overdue()
        await supervision.done
        ended = time.monotonic()
        wanted = supervision.failure is None
    except OSError as error:
        raise SandboxError(f"The event loop cannot watch the command: {error.strerror or error}.") from error
    except GeneratorExit:
        thrown_away = True  # the loop is gone: nothing can be waited for any more
        raise
    finally:
        if not thrown_away:
            supervision.stop(Status.CANCELLED)  # no effect when the command has ended
        supervision.close()
        loop_watch().remove(dependent)  # from here on others end the run
        if watch is not None:
            watch.cancel()
        if watched is not None:
            watchdog().remove(watched)
        if thrown_away:
            run.abandon()
        else:
            with Step("end the run", ValueError):  # arguments the system refused inside
                aftermath = await _finish(loop, run, wanted=wanted)
    if supervision.failure is not None:
        return supervision.failure
    for stream, rest in zip(streams, aftermath.rest, strict=True):
        if not stream.ended:
            stream.feed(rest)
        stream.close()
    if aftermath.not_started and supervision.cause is None:
        said = captures[1].kept().decode("utf-8", "replace").strip().rpartition(": ")[2]
        shown = getattr(run, "shown", request.argv[0])
        raise SandboxError(f"The command {shown!r} could not be started: {said or 'the system refused it'}.")
    report = IsolationReport(choice.level.level, enforcement.enforced, enforcement.degraded, choice.reasons)
    if "memory" in enforcement.hard:
        watched = None  # its sums count what processes share more than once; the level knows exactly
    times = Times(waited_since, child.started, ended)
    return outcome(
        report, supervision, streams, aftermath, watched, times, noted=prepared.notes, warm=prepared.run.warm
    )


async def _finish(loop: asyncio.AbstractEventLoop, run: LevelRun, *, wanted: bool) -> Aftermath:
    """Let a worker end the run if that takes time; when there is none any more, end it here, whatever it costs."""
    if run.finishes_at_once():
        return run.finish(wanted=wanted)
    try:
        finishing = workers.submit(loop, lambda: run.finish(wanted=wanted))
    except SandboxError:
        return run.finish(wanted=wanted)
    return await uninterrupted(finishing)


def _dependent(loop: asyncio.AbstractEventLoop, prepared: Preparation) -> Dependent:
    def lost() -> None:
        try:
            prepared.abandon()
        finally:
            for capture in getattr(prepared, "captures", ()):
                capture.discard()
            prepared.release()

    return Dependent(loop.is_closed, lost)


def _start(prepared: Preparation, policy: SandboxPolicy, dependent: Dependent) -> None:
    prepared.start()
    _set_deadline(prepared.run, policy, dependent)
    if dependent.is_lost:
        prepared.release()


def _set_deadline(run: LevelRun, policy: SandboxPolicy, dependent: Dependent) -> None:
    """At once, in whatever thread started the command: the loop may be blocked already."""
    if policy.wall_seconds is not None:
        dependent.overdue = run.kill
        dependent.deadline = run.child.started + policy.wall_seconds + policy.term_grace_seconds


def _watched(
    loop: asyncio.AbstractEventLoop,
    run: LevelRun,
    request: ExecutionRequest,
    policy: SandboxPolicy,
    enforcement: Enforcement,
    supervision: Supervision,
) -> Watched:
    def breach(status: Status, sentence: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the run
            loop.call_soon_threadsafe(supervision.stop, status, sentence)

    def look(sample: ResourceSample) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(supervision.sampled, sample)

    wanted = request.on_sample is not None
    memory = None if "memory" in enforcement.hard else policy.memory_bytes
    pids = None if "pids" in enforcement.hard else policy.pids
    return Watched(run.marks, memory, pids, run.disk, breach, run.beyond, look if wanted else None)
