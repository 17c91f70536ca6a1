"""What somebody else's service ran by itself, as a result: for services that run code and no command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adk_skills_agent.sandbox.contract import ExecutionResult, SandboxPolicy, Status
from adk_skills_agent.sandbox.files.collect import Collected, OutputFiles, readable_name
from adk_skills_agent.sandbox.output import Capture, OutputFilter, PathMapping, build_result
from adk_skills_agent.sandbox.process.supervise import Stream
from adk_skills_agent.sandbox.remote.remote import MAY_GO_ON, report_of

_ITS_OWN = ("memory", "pids", "cpu")  # what no supervisor of ours limits in such a service


def foreign_result(
    service: str,
    policy: SandboxPolicy,
    stdout: bytes,
    stderr: bytes,
    *,
    exit_code: int | None,
    files: Iterable[tuple[str, bytes, str | None]],
    seconds: float,
    given_up: bool,
) -> ExecutionResult:
    """The result of what somebody else's service ran, from all that it tells: texts, perhaps a code, files.

    Args:
        service: Its name, for the report.
        policy: The bounds of output and files.
        stdout: What came back, whole.
        stderr: The same.
        exit_code: None when the service does not say: then something on stderr means that it failed.
        files: Name, content and media type of each.
        seconds: How long it took.
        given_up: It did not answer in time; nothing came back.
    """
    streams = []
    for name, data in (("stdout", stdout), ("stderr", stderr)):
        streams.append(Stream(name, -1, Capture(policy.output_bytes), OutputFilter(PathMapping(()), None), None, 0))
        streams[-1].feed(data)
        streams[-1].close()
    failed = exit_code != 0 if exit_code is not None else bool(stderr)
    overdue = given_up or (failed and seconds >= (policy.wall_seconds or 0))
    report = report_of(service, policy)
    report = replace(report, enforced={**report.enforced, **dict.fromkeys(_ITS_OWN, f"remote ({service})")})
    return build_result(
        report,
        streams,
        None,
        exit_code=exit_code if exit_code is not None else int(failed),
        signal=None,
        cause=Status.TIMEOUT if overdue else Status.ERROR if failed else Status.OK,
        notes=(MAY_GO_ON,) if overdue else (),
        wall_ms=seconds * 1000,
        collected=_taken(files, policy),
    )


def _taken(given: Iterable[tuple[str, bytes, str | None]], policy: SandboxPolicy) -> Collected:
    """Output files inside the policy's bounds, under names that are safe to store, and what was left out."""
    outputs = OutputFiles(policy)
    collected = Collected(outputs.files)
    for told, content, kind in given:
        path = told.lstrip("/")
        if not path:
            collected.skipped.append((readable_name(told), "its name cannot be used"))
        elif (reason := outputs.refusal(path, len(content))) is not None:
            collected.skipped.append((readable_name(path), reason))
        else:
            outputs.add(path, content, str(kind or "application/octet-stream"))
    return collected
