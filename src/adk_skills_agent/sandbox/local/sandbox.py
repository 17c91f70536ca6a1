"""The sandbox of this machine: the strongest level that works, and the course every run takes whatever its level.

A run is prepared and started in a worker thread, watched in the event loop, and ended in a worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import weakref
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError, SkillsError
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local.levels.base import Choice, Enforcement, LocalRun, choose, is_known
from adk_skills_agent.sandbox.local.namespaces.zygote import end_zygote
from adk_skills_agent.sandbox.local.warm_pool import close_warm_pool
from adk_skills_agent.sandbox.output import build_result, secrets_of_run
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.process.command import check_interpreter
from adk_skills_agent.sandbox.process.supervise import Supervision, is_readable, streams_of
from adk_skills_agent.sandbox.process.tree import bound_running
from adk_skills_agent.sandbox.process.watchdog import Limits, Watched, watchdog, works_here
from adk_skills_agent.sandbox.secrets import SecretForms, redact_error
from adk_skills_agent.sandbox.streaming import ResourceSample
from adk_skills_agent.sandbox.threads import RUNNING, Step, warn_insecure_once

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.sessions.session import SessionHost


_CLOSE_SECONDS = 5.0

_probed: dict[int, IsolationReport] = {}


class LocalSandbox(Sandbox):
    """Runs commands on this machine; see :class:`Sandbox` for the contract.

    One object serves any number of event loops and threads. What waits for runs is shared by all objects of a process,
    until the last one that has run something is closed. Each run gets the strongest level that works here and fits its
    policy, and is refused when that is weaker than ``min_isolation``.
    """

    name = "local"
    filters_secrets = True
    keeps_tmp = True
    runs_here = True

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`."""
        _in_use.add(self)
        policy = check_policy(request.policy)
        check_interpreter(policy)
        waited_since = time.monotonic()
        with Step("choose an isolation level", ValueError):
            # A refusal need not wait for a place.
            known = choose(request, policy) if is_known(policy) else None
            secrets = secrets_of_run(request, policy)
        bound_running(policy.pids)
        try:
            # The place comes first: whoever asked before the levels were tried would else be overtaken by all later.
            async with RUNNING.turn(request.share):
                with Step("choose an isolation level"):
                    choice = known or await choose_level(request, policy)
                warn_of_level(choice.level.level)
                return await _run(request, policy, choice, secrets, waited_since)
        except SkillsError as error:
            redact_error(error, secrets)
            raise

    def session_host(self) -> SessionHost:
        """Sessions at the strongest level that works here and fits their policy."""
        from adk_skills_agent.sandbox.local.sessions import LocalSessions

        _in_use.add(self)
        return LocalSessions()

    async def close(self) -> None:
        """End the sandboxes that wait for runs, unless other objects of this process are in use, which share them.

        Afterwards nothing of any run that is over is left either. An object that runs something again is in use again.
        """
        _in_use.discard(self)
        if not _in_use:
            await threads.in_worker(_end_what_waits)
        await threads.finished(_CLOSE_SECONDS)

    async def probe(self) -> IsolationReport:
        """Run a command that does nothing at the strongest level and report what held; cached per process."""
        if os.getpid() not in _probed:
            policy = SandboxPolicy(min_isolation=IsolationLevel.PROCESS.value, wall_seconds=10.0, warm_slots=0)
            request = ExecutionRequest(("sh", "-c", ":"), policy)
            choice = await choose_level(request, policy)
            async with RUNNING:
                result = await _run(request, policy, choice, None, time.monotonic())
            if result.status is not Status.OK:
                raise SandboxError(
                    f"A trial run of 'sh' did not end well: {result.status.value}, exit code {result.exit_code}."
                )
            _probed[os.getpid()] = result.isolation
        return _probed[os.getpid()]


_in_use: weakref.WeakSet[LocalSandbox] = weakref.WeakSet()
"""The objects that have run something and are not closed."""


def _end_what_waits() -> None:
    close_warm_pool()
    end_zygote()


async def choose_level(request: ExecutionRequest, policy: SandboxPolicy) -> Choice:
    """:func:`choose`, in a worker thread while it may block."""
    if is_known(policy):
        return choose(request, policy)
    return await threads.in_worker(lambda: choose(request, policy))


PROCESS_WARNING = (
    "Scripts run at isolation level 'process': they can read and write the files of this user and use the network, and "
    "for root the number of their processes is watched and not limited. Use it only for skills you trust."
)


def warn_of_level(level: IsolationLevel) -> None:
    """Say once per process what the weakest level leaves open (S0-44)."""
    if level is IsolationLevel.PROCESS:
        warn_insecure_once(PROCESS_WARNING)


async def _run(
    request: ExecutionRequest, policy: SandboxPolicy, choice: Choice, secrets: SecretForms | None, waited_since: float
) -> ExecutionResult:
    loop = asyncio.get_running_loop()
    run = choice.level.new_run(request, policy)
    watched = Watched(loop.is_closed, run.abandon, user="".join(request.share[:1]))
    watchdog().add(watched)
    try:
        with Step("prepare the run", ValueError):
            await threads.in_worker(lambda: _start(run, policy, watched))
        with Step("watch the command", ValueError):
            result = await _supervise(run, request, policy, choice, secrets, waited_since, watched)
        if isinstance(result, Exception):  # what the caller's on_output or on_sample raised
            raise result
    except asyncio.CancelledError:
        with contextlib.suppress(SandboxError):
            await threads.in_worker_or_here(run.abandon)
        raise
    except BaseException:  # also the GeneratorExit of a loop that is gone: nothing can be waited for any more
        with contextlib.suppress(SandboxError):
            run.abandon()
        raise
    finally:
        watchdog().remove(watched)
    return result


async def _supervise(
    run: LocalRun,
    request: ExecutionRequest,
    policy: SandboxPolicy,
    choice: Choice,
    secrets: SecretForms | None,
    waited_since: float,
    watched: Watched,
) -> ExecutionResult | Exception:
    loop = asyncio.get_running_loop()
    child = run.child
    streams = streams_of(request, policy, run.captures, run.view, secrets, (child.stdout, child.stderr))
    supervision = Supervision(loop, run, policy, streams, request.on_sample)
    enforcement = choice.level.report(policy)
    limits = _limits(loop, run, request, enforcement, supervision) if works_here() else None
    watched.limits = limits
    watched.thread, watched.descriptors = threading.get_native_id(), (child.stdout, child.stderr)
    problem: OSError | asyncio.CancelledError | None = None
    ended = child.started
    try:
        supervision.start()
        await supervision.done
        ended = time.monotonic()
    except (OSError, asyncio.CancelledError) as error:
        problem = error
        supervision.stop(Status.CANCELLED)
    finally:
        supervision.close()
        watchdog().remove(watched)  # from here on others end the run
    wanted = problem is None and supervision.failure is None
    try:
        with Step("end the run", ValueError):  # arguments the system refused inside
            end = await threads.in_worker_or_here(lambda: run.finish(wanted=wanted))
    except (SandboxError, ValueError):
        if problem is None:
            raise
    if isinstance(problem, OSError):
        reason = problem.strerror or problem
        raise SandboxError(f"The event loop cannot watch the command: {reason}.") from problem
    if problem is not None:
        raise problem
    if supervision.failure is not None:
        return supervision.failure
    if watched.is_overdue:
        supervision.timed_out = True
        supervision.cause = supervision.cause or Status.TIMEOUT
    for stream, rest in zip(streams, end.rest, strict=True):
        if not stream.ended:
            stream.feed(rest)
        stream.close()
    if end.not_started and supervision.cause is None:
        said = run.captures[1].kept().decode("utf-8", "replace").strip().rpartition(": ")[2]
        shown = run.shown
        raise SandboxError(f"The command {shown!r} could not be started: {said or 'the system refused it'}.")
    report = IsolationReport(choice.level.level, enforcement.enforced, enforcement.degraded, choice.reasons, run.maker)
    code = None if end.status is None else os.waitstatus_to_exitcode(end.status)
    if code is None:  # unknown: only that it was killed is sure, when a limit did it
        number = int(signal.SIGKILL) if supervision.cause is not None else None
    else:
        code, number = (code, None) if code >= 0 else (None, -code)
    peaks = [end.max_rss or 0]
    if limits is not None and "memory" not in enforcement.hard:
        # Its sums count what processes share more than once; a level that limits memory itself knows exactly.
        peaks.append(limits.peak_rss or 0)
    return build_result(
        report,
        streams,
        secrets,
        exit_code=code,
        signal=number,
        cause=supervision.cause or end.cause,
        limit_note=supervision.limit_note if supervision.cause is not None else end.limit_note,
        timed_out=supervision.timed_out,
        collected=end.collected,
        notes=(*run.notes, *supervision.notes, *end.notes),
        wall_ms=(ended - child.started) * 1000,
        setup_ms=(child.started - waited_since) * 1000,
        cpu_ms=None if end.cpu_seconds is None else end.cpu_seconds * 1000,
        max_rss_bytes=max(peaks) or None,
        processes_killed=end.killed,
        survivors=end.survivors,
        network=end.network,
        warm=run.warm,
    )


def _start(run: LocalRun, policy: SandboxPolicy, watched: Watched) -> None:
    run.start()

    def kill() -> bool:
        pidfd = run.child.pidfd
        if pidfd is not None and is_readable(pidfd, 0):
            return False  # it has ended, and the loop has only not heard of it
        run.kill()
        return True

    # In this thread: the loop may be blocked already.
    watched.kill = kill
    if policy.wall_seconds is not None:
        watched.deadline = run.child.started + policy.wall_seconds + policy.term_grace_seconds


def _limits(
    loop: asyncio.AbstractEventLoop,
    run: LocalRun,
    request: ExecutionRequest,
    enforcement: Enforcement,
    supervision: Supervision,
) -> Limits:
    def breach(status: Status, sentence: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the run
            loop.call_soon_threadsafe(supervision.stop, status, sentence)

    def look(sample: ResourceSample) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(supervision.sampled, sample)

    return run.limits(enforcement.hard, breach, None if request.on_sample is None else look)
