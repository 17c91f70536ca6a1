"""From what a box said and how it ended to the result of the run."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Protocol

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.box_answer import BoxAnswer
from adk_skills_agent.sandbox.box_folder import BoxFolder
from adk_skills_agent.sandbox.contract import ExecutionResult, IsolationReport, SandboxPolicy, Status
from adk_skills_agent.sandbox.local.collection import Collected
from adk_skills_agent.sandbox.local.output import Capture
from adk_skills_agent.sandbox.local.supervision import Stream
from adk_skills_agent.sandbox.secret_forms import SecretForms

_LOST = (
    "The sandbox was ended before it had sent back the files of the run: what the script wrote is lost, the session's "
    "workspace is as it was before."
)


class BoxEnd(Protocol):
    """How a box was when it was closed; see :class:`~.session.BoxEnd`."""

    @property
    def status(self) -> Status | None:
        """The limit that ended the box itself, if one did."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the result."""

    @property
    def cpu_ms(self) -> float | None:
        """Used by everything in it."""

    @property
    def max_rss_bytes(self) -> int | None:
        """Its peak."""


@dataclass(frozen=True, slots=True)
class Timing:
    """``time.monotonic()`` when the run was asked for, when all was sent and when the box had answered.

    ``overdue``: it had not, and was ended.
    """

    asked: float
    sent: float
    ended: float
    overdue: bool = False


def box_result(
    answer: BoxAnswer,
    files: BoxFolder,
    captures: tuple[Capture, Capture],
    streams: dict[int, Stream],
    policy: SandboxPolicy,
    isolation: IsolationReport,
    end: BoxEnd,
    timing: Timing,
    secrets: SecretForms | None,
    shown: str,
) -> ExecutionResult:
    """Collect the files and put the result together. Blocking.

    Raises:
        SandboxError: The command could not be started, or the box did not work.
    """
    done = answer.done
    if done is not None and done.get("started") is False:
        raise SandboxError(
            f"The command {shown!r} could not be started: {str(done.get('reason') or 'no reason given')[:300]}."
        )
    cause = end.status or answer.cause
    notes = [*files.notes, *answer.notes, *end.notes]
    timed_out = cause is Status.TIMEOUT
    if done is None and cause is None:
        if not timing.overdue:
            raise SandboxError(" ".join((_why_no_answer(answer), *end.notes)))
        cause, timed_out = Status.TIMEOUT, True
        notes.append("The sandbox did not answer in time after the deadline and was ended.")
    exit_code, number = _end_of(done)
    status = cause or (Status.OK if exit_code == 0 else Status.ERROR)
    flooded = answer.flood
    if flooded is None and status is Status.OUTPUT_LIMIT and done is not None:
        which = streams[2 if done.get("flood") == 2 else 1].name
        flooded = f"Stopped: it wrote more than {policy.output_flood_bytes or 0:,} bytes to {which}."
    notes += [flooded] if flooded else []
    if status is Status.OUT_OF_MEMORY and policy.memory_bytes is not None:
        notes.append(
            f"Stopped by the kernel: its processes together needed more memory than memory_bytes, "
            f"{policy.memory_bytes >> 20} MiB."
        )
    if status is Status.DISK_LIMIT and done is not None and isinstance(done.get("disk"), str):
        notes.append(f"Stopped: more than {policy.workspace_inodes or 0:,} files in {done['disk'][:100]}.")
    if done is None:
        notes.append(_LOST)
    collected: Collected = files.collect(secrets)
    notes += collected.notes
    notes += [f"{stream.name}: {stream.capture.problem}." for stream in streams.values() if stream.capture.problem]
    out, err = captures
    spills = (out.finish(), err.finish())
    wall = _number(done, "ms")
    return ExecutionResult(
        status=status,
        exit_code=exit_code,
        isolation=isolation,
        signal=number,
        timed_out=timed_out,
        oom_killed=status is Status.OUT_OF_MEMORY,
        interrupted=bool(done and done.get("interrupted")),
        stdout=out.kept(),
        stderr=err.kept(),
        stdout_total=streams[1].total,
        stderr_total=streams[2].total,
        stdout_truncated=out.truncated,
        stderr_truncated=err.truncated,
        stdout_spill=spills[0],
        stderr_spill=spills[1],
        wall_ms=wall if wall is not None else (timing.ended - timing.sent) * 1000,
        setup_ms=(timing.ended - timing.asked) * 1000 - wall
        if wall is not None
        else (timing.sent - timing.asked) * 1000,
        cpu_ms=end.cpu_ms if end.cpu_ms is not None else _number(done, "cpu_ms"),
        max_rss_bytes=_peak(end, done),
        processes_killed=int(_number(done, "killed") or 0),
        files=tuple(collected.files),
        skipped_files=tuple(collected.skipped),
        stdout_cut_at=out.cut_at,
        stderr_cut_at=err.cut_at,
        notes=tuple(dict.fromkeys(notes)),
    )


def _end_of(done: dict[str, Any] | None) -> tuple[int | None, int | None]:
    """Exit code and signal, exactly one of which is set; what a box says otherwise is a kill."""
    exit_code, number = (done.get("exit"), done.get("signal")) if done is not None else (None, None)
    if isinstance(exit_code, int) and not isinstance(exit_code, bool) and number is None:
        return exit_code & 0xFF, None
    if isinstance(number, int) and 0 < number < signal.NSIG:
        return None, number
    return None, int(signal.SIGKILL)


def _why_no_answer(answer: BoxAnswer) -> str:
    if answer.broken:
        return f"The sandbox said what cannot be understood, and was closed: {answer.broken}"
    if not answer.is_ready:
        return "The sandbox ended before its program had started. It needs python3 3.8 or newer on its PATH."
    return "The sandbox ended without saying how the command did: something in it may have ended its supervisor."


def _number(done: dict[str, Any] | None, name: str) -> float | None:
    value = done.get(name) if done is not None else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


def _peak(end: BoxEnd, done: dict[str, Any] | None) -> int | None:
    told = _number(done, "rss")
    return end.max_rss_bytes if end.max_rss_bytes is not None else None if told is None else int(told)
