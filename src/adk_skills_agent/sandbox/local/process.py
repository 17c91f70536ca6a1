"""The process level: a child process with a clean environment, limits and a sure end, but the host's files and network.

It is for trusted skills and for machines where nothing stronger works, and only ever by explicit choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import warnings
from typing import TypeVar

from adk_skills_agent.errors import SandboxError, SandboxUnavailable, SecurityWarning
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
from adk_skills_agent.sandbox.local.output import Capture, SpillFile, check_spill_folder
from adk_skills_agent.sandbox.local.report import NO_STRONGER_LEVEL, process_report
from adk_skills_agent.sandbox.local.run import Aftermath, LocalRun
from adk_skills_agent.sandbox.local.supervision import Stream, Supervision
from adk_skills_agent.sandbox.local.turns import RUNNING
from adk_skills_agent.sandbox.local.watchdog import INTERVAL_SECONDS, Watched, watchdog, works_here
from adk_skills_agent.sandbox.policy import check_policy

_Result = TypeVar("_Result")

_warned = False
_probed: dict[int, IsolationReport] = {}


class ProcessSandbox(Sandbox):
    """Runs commands as child processes of the agent; see :class:`Sandbox` for the contract.

    One object serves any number of event loops and threads; it holds nothing of its own. A run is refused unless its
    policy says ``min_isolation="process"`` and does not demand another level with ``isolation``.
    """

    name = "process"

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`."""
        policy = check_policy(request.policy)
        _refuse_if_too_weak(policy)
        _warn_once()
        waited_since = time.monotonic()
        async with RUNNING.place():
            return await _run(request, policy, waited_since)

    async def probe(self) -> IsolationReport:
        """Run a command that does nothing and report what held; cached per process.

        Raises:
            SandboxError: Not even that works; the sentence says why.
        """
        if os.getpid() not in _probed:
            policy = SandboxPolicy(min_isolation=IsolationLevel.PROCESS.value, wall_seconds=10.0)
            async with RUNNING.place():
                result = await _run(ExecutionRequest(("sh", "-c", ":"), policy), policy, time.monotonic())
            if result.status is not Status.OK:
                raise SandboxError(
                    f"A trial run of 'sh' did not end well: {result.status.value}, exit code {result.exit_code}."
                )
            _probed[os.getpid()] = result.isolation
        return _probed[os.getpid()]


def _refuse_if_too_weak(policy: SandboxPolicy) -> None:
    process = IsolationLevel.PROCESS.value
    if policy.min_isolation == process and policy.isolation in {"auto", process}:
        return
    wanted = policy.isolation if policy.min_isolation == process else policy.min_isolation
    raise SandboxUnavailable(
        f"Isolation {wanted!r} is required and does not work here: only the process level exists in this version. "
        "Choose it with min_isolation='process' when you trust the skills; it does not protect the host's files and "
        "network.",
        NO_STRONGER_LEVEL,
    )


def _warn_once() -> None:
    global _warned  # noqa: PLW0603  # once per process is the point
    if not _warned:
        warnings.warn(
            "Scripts run at isolation level 'process': they can read and write the files of this user and use the "
            "network. Use it only for skills you trust.",
            SecurityWarning,
            stacklevel=4,
        )
        _warned = True


async def _run(request: ExecutionRequest, policy: SandboxPolicy, waited_since: float) -> ExecutionResult:
    loop = asyncio.get_running_loop()
    run = LocalRun(request, policy)
    captures = _captures(request, policy, run.run_id)
    try:
        try:
            await _uninterrupted(workers.submit(loop, run.start))
        except asyncio.CancelledError:
            # start() has ended by now; whether it got as far as a process is known to abandon().
            with contextlib.suppress(SandboxError):
                await _uninterrupted(workers.submit(loop, run.abandon))
            raise
        except GeneratorExit:
            run.abandon()
            raise
        return await _supervise(request, policy, run, captures, waited_since)
    except BaseException:
        for capture in captures:
            capture.discard()
        raise


async def _supervise(
    request: ExecutionRequest,
    policy: SandboxPolicy,
    run: LocalRun,
    captures: tuple[Capture, Capture],
    waited_since: float,
) -> ExecutionResult:
    loop = asyncio.get_running_loop()
    child = run.child
    streams = (
        Stream("stdout", child.stdout, captures[0], run.view.stream(), request.on_output, policy.output_bytes),
        Stream("stderr", child.stderr, captures[1], run.view.stream(), request.on_output, policy.output_bytes),
    )
    supervision = Supervision(loop, child, policy, streams)
    watched = _watched(loop, run, policy, supervision)
    watch = loop.call_later(INTERVAL_SECONDS, watchdog().add, watched) if watched is not None else None
    wanted = False
    ended = child.started
    thrown_away = False
    try:
        supervision.start()
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
        if watch is not None and watched is not None:
            watch.cancel()
            if time.monotonic() - child.started >= INTERVAL_SECONDS:
                watchdog().remove(watched)
        if thrown_away:
            run.abandon()
        else:
            aftermath = await _finish(loop, run, wanted=wanted)
    if supervision.failure is not None:
        raise supervision.failure
    for stream, rest in zip(streams, aftermath.rest, strict=True):
        if not stream.ended:
            stream.feed(rest)
        stream.close()
    if aftermath.not_started and supervision.cause is None:
        said = captures[1].kept().decode("utf-8", "replace").strip().rpartition(": ")[2]
        raise SandboxError(f"The command {run.shown!r} could not be started: {said or 'the system refused it'}.")
    return _result(policy, supervision, streams, aftermath, watched, (waited_since, child.started, ended))


async def _finish(loop: asyncio.AbstractEventLoop, run: LocalRun, *, wanted: bool) -> Aftermath:
    """Let a worker end the run; when there is none any more, end it here, whatever it costs."""
    try:
        finishing = workers.submit(loop, lambda: run.finish(wanted=wanted))
    except SandboxError:
        return run.finish(wanted=wanted)
    return await _uninterrupted(finishing)


async def _uninterrupted(work: asyncio.Future[_Result]) -> _Result:
    """Wait for work that must not be left half done; a cancellation comes out after it.

    Raises:
        CancelledError: The wait was cancelled; the work has ended nevertheless.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        work.exception()  # taken, so that it is not reported as lost
        raise cancelled
    return work.result()


def _captures(request: ExecutionRequest, policy: SandboxPolicy, run_id: str) -> tuple[Capture, Capture]:
    folder = request.spill_dir
    if folder is None:
        return Capture(policy.output_bytes), Capture(policy.output_bytes)
    check_spill_folder(folder)
    out, err = (
        Capture(policy.output_bytes, SpillFile(folder, f"{run_id}.{name}.txt", policy.output_flood_bytes))
        for name in ("stdout", "stderr")
    )
    return out, err


def _watched(
    loop: asyncio.AbstractEventLoop, run: LocalRun, policy: SandboxPolicy, supervision: Supervision
) -> Watched | None:
    if not works_here():
        return None
    work, tmp = run.folders

    def breach(status: Status, sentence: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the run
            loop.call_soon_threadsafe(supervision.stop, status, sentence)

    disk = ((work, policy.workspace_bytes, policy.workspace_inodes), (tmp, policy.tmp_bytes, policy.workspace_inodes))
    return Watched(run.marks, policy.memory_bytes, policy.pids, disk, breach)


def _result(
    policy: SandboxPolicy,
    supervision: Supervision,
    streams: tuple[Stream, Stream],
    aftermath: Aftermath,
    watched: Watched | None,
    times: tuple[float, float, float],
) -> ExecutionResult:
    waited_since, started, ended = times
    exit_code = number = None
    if aftermath.status is not None:
        code = os.waitstatus_to_exitcode(aftermath.status)
        exit_code, number = (code, None) if code >= 0 else (None, -code)
    elif supervision.cause is not None:
        number = int(signal.SIGKILL)
    status = supervision.cause or (Status.OK if exit_code == 0 else Status.ERROR)
    collected = aftermath.collected
    out, err = (stream.capture for stream in streams)
    spills = (out.finish(), err.finish())
    peaks = [peak for peak in (aftermath.max_rss, watched.peak_rss if watched else None) if peak]
    notes = [*supervision.notes, *aftermath.notes, *(collected.notes if collected else [])]
    notes += [f"{stream.name}: {stream.capture.problem}." for stream in streams if stream.capture.problem]
    if aftermath.survivors:
        notes.append(f"{aftermath.survivors} processes of the run could not be killed and are still there.")
    return ExecutionResult(
        status=status,
        exit_code=exit_code,
        isolation=process_report(policy),
        signal=number,
        timed_out=supervision.timed_out,
        oom_killed=status is Status.OUT_OF_MEMORY,
        stdout=out.kept(),
        stderr=err.kept(),
        stdout_total=streams[0].total,
        stderr_total=streams[1].total,
        stdout_truncated=out.truncated,
        stderr_truncated=err.truncated,
        stdout_spill=spills[0],
        stderr_spill=spills[1],
        wall_ms=(ended - started) * 1000,
        setup_ms=(started - waited_since) * 1000,
        cpu_ms=None if aftermath.cpu_seconds is None else aftermath.cpu_seconds * 1000,
        max_rss_bytes=max(peaks) if peaks else None,
        processes_killed=aftermath.killed,
        survivors=aftermath.survivors,
        files=tuple(collected.files) if collected else (),
        skipped_files=tuple(collected.skipped) if collected else (),
        stdout_cut_at=out.cut_at,
        stderr_cut_at=err.cut_at,
        notes=tuple(notes),
    )
