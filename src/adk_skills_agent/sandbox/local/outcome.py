"""From what is known about a run that is over to its result."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from adk_skills_agent.sandbox.contract import ExecutionResult, IsolationReport, Status
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.supervision import Stream, Supervision
from adk_skills_agent.sandbox.local.watchdog import Watched


@dataclass(frozen=True, slots=True)
class Times:
    """``time.monotonic()`` when the run was asked for, when its command started and when it ended."""

    asked: float
    started: float
    ended: float


def outcome(
    report: IsolationReport,
    supervision: Supervision,
    streams: tuple[Stream, Stream],
    aftermath: Aftermath,
    watched: Watched | None,
    times: Times,
    *,
    noted: tuple[str, ...] = (),
    warm: bool = False,
) -> ExecutionResult:
    """The result of a run that is over; ends the streams' captures. ``noted`` was noted before it."""
    exit_code = number = None
    if aftermath.status is not None:
        code = os.waitstatus_to_exitcode(aftermath.status)
        exit_code, number = (code, None) if code >= 0 else (None, -code)
    elif supervision.cause is not None:
        number = int(signal.SIGKILL)
    cause = supervision.cause or aftermath.cause
    status = cause or (Status.OK if exit_code == 0 else Status.ERROR)
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
        isolation=report,
        signal=number,
        signal_inferred=aftermath.inferred,
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
        wall_ms=(times.ended - times.started) * 1000,
        setup_ms=(times.started - times.asked) * 1000,
        cpu_ms=None if aftermath.cpu_seconds is None else aftermath.cpu_seconds * 1000,
        max_rss_bytes=max(peaks) if peaks else None,
        processes_killed=aftermath.killed,
        survivors=aftermath.survivors,
        files=tuple(collected.files) if collected else (),
        skipped_files=tuple(collected.skipped) if collected else (),
        stdout_cut_at=out.cut_at,
        stderr_cut_at=err.cut_at,
        notes=(*noted, *dict.fromkeys(notes)),  # the watchdog and the level may say the same
        network=aftermath.network,
        warm=warm,
    )
