"""The one way from what is known about a run that is over to its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from adk_skills_agent.sandbox.contract import ExecutionResult, IsolationReport, NetworkDecision, Status
from adk_skills_agent.sandbox.files.collect import Collected
from adk_skills_agent.sandbox.secrets import SecretForms

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.process.supervise import Stream


def build_result(
    isolation: IsolationReport,
    streams: Sequence[Stream],
    secrets: SecretForms | None,
    *,
    exit_code: int | None,
    signal: int | None,
    cause: Status | None,
    notes: Iterable[str],
    wall_ms: float,
    setup_ms: float = 0.0,
    cpu_ms: float | None = None,
    max_rss_bytes: int | None = None,
    collected: Collected | None = None,
    timed_out: bool = False,
    signal_inferred: bool = False,
    interrupted: bool = False,
    processes_killed: int = 0,
    survivors: int = 0,
    network: tuple[NetworkDecision, ...] = (),
    warm: bool = False,
    session_id: str | None = None,
) -> ExecutionResult:
    """Builds the result of every backend and takes the secrets out of what has not been filtered on its way.

    Streams, spill files, collected files and the proxy's decisions were filtered as they came; sentences and the names
    of files that were left out are filtered here.

    ``streams`` are standard output and error output, closed; their captures are finished here. ``cause`` is the limit
    that ended the run, None when it ended by itself. Equal sentences come once.
    """
    collected = collected or Collected()
    problems = [f"{stream.name}: {stream.capture.problem}." for stream in streams if stream.capture.problem]
    if survivors:
        problems.append(f"{survivors} processes of the run could not be killed and are still there.")
    sentences = list(dict.fromkeys([*notes, *collected.notes, *problems]))
    skipped = collected.skipped
    if secrets is not None:
        sentences = [secrets.text(sentence) for sentence in sentences]
        skipped = [(secrets.text(name), secrets.text(reason)) for name, reason in skipped]
    status = cause or (Status.OK if exit_code == 0 else Status.ERROR)
    out, err = (stream.capture for stream in streams)
    return ExecutionResult(
        status=status,
        exit_code=exit_code,
        isolation=isolation,
        signal=signal,
        signal_inferred=signal_inferred,
        timed_out=timed_out or status is Status.TIMEOUT,
        oom_killed=status is Status.OUT_OF_MEMORY,
        interrupted=interrupted,
        stdout=out.kept(),
        stderr=err.kept(),
        stdout_total=streams[0].total,
        stderr_total=streams[1].total,
        stdout_truncated=out.truncated,
        stderr_truncated=err.truncated,
        stdout_spill=out.finish(),
        stderr_spill=err.finish(),
        wall_ms=wall_ms,
        setup_ms=setup_ms,
        cpu_ms=cpu_ms,
        max_rss_bytes=max_rss_bytes,
        processes_killed=processes_killed,
        survivors=survivors,
        files=tuple(collected.files),
        skipped_files=tuple(skipped),
        session_id=session_id,
        stdout_cut_at=out.cut_at,
        stderr_cut_at=err.cut_at,
        notes=tuple(sentences),
        network=network,
        warm=warm,
    )
