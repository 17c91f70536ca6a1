"""What waits between a run and a listener: bounded, in order. How a stream behaves is in the conformance suite."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.streaming import EndEvent, OutputEvent, ResourceSample

RESULT = ExecutionResult(Status.OK, 0, IsolationReport(IsolationLevel.PROCESS, {}))
PIECES = 200_000


def sample(seconds: float) -> ResourceSample:
    return ResourceSample(seconds, memory_bytes=1, cpu_seconds=0.0, processes=1, workspace_bytes=None)


class Talker(Sandbox):
    """Says everything before anybody can listen."""

    name = "talker"

    def __init__(self, *said: tuple[str, bytes] | ResourceSample) -> None:
        self.said = said

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        assert request.on_output is not None
        assert request.on_sample is not None
        for what in self.said:
            if isinstance(what, ResourceSample):
                request.on_sample(what)
            else:
                request.on_output(*what)
        return RESULT

    async def probe(self) -> IsolationReport:
        return RESULT.isolation


async def heard(sandbox: Sandbox) -> list[object]:
    return [event async for event in sandbox.stream(ExecutionRequest(("true",)))]


async def test_pieces_of_one_stream_that_wait_become_one_event() -> None:
    assert await heard(Talker(("stdout", b"a"), ("stdout", b"b"), ("stderr", b"c"), ("stdout", b"d"))) == [
        OutputEvent("stdout", b"ab"),
        OutputEvent("stderr", b"c"),
        OutputEvent("stdout", b"d"),
        EndEvent(RESULT),
    ]


async def test_only_the_newest_sample_waits() -> None:
    talker = Talker(("stdout", b"a"), sample(1), ("stdout", b"b"), sample(2), sample(3), ("stderr", b"c"))
    assert await heard(talker) == [
        OutputEvent("stdout", b"a"),
        OutputEvent("stdout", b"b"),
        sample(3),
        OutputEvent("stderr", b"c"),
        EndEvent(RESULT),
    ]


async def test_single_bytes_to_both_streams_in_turn_cost_no_more_memory_than_a_few_long_pieces() -> None:
    talker = Talker(*[("stdout", b"o"), ("stderr", b"e")] * (PIECES // 2))
    tracemalloc.start()
    events = await heard(talker)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for stream, byte in (("stdout", b"o"), ("stderr", b"e")):
        text = b"".join(event.data for event in events if isinstance(event, OutputEvent) and event.stream == stream)
        assert text == byte * (PIECES // 2)
    assert len(events) < 2_000
    assert peak < 40 * PIECES  # of an event for each it would be more than a hundred; other threads have some, too


async def test_a_backend_that_is_stopped_and_fails_then_is_reported_and_hides_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailsAtTheEnd(Talker):
        async def run(self, request: ExecutionRequest) -> ExecutionResult:
            await super().run(request)
            try:
                await asyncio.sleep(60)
            finally:
                raise LookupError("clean-up")

    stream = FailsAtTheEnd(("stdout", b"a")).stream(ExecutionRequest(("true",)))
    assert await anext(stream) == OutputEvent("stdout", b"a")
    await stream.aclose()
    del stream
    await asyncio.sleep(0)
    assert "clean-up" in caplog.text


async def test_two_cancellations_still_wait_for_the_end_of_the_run() -> None:
    ended = []

    class EndsSlowly(Talker):
        async def run(self, request: ExecutionRequest) -> ExecutionResult:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.1)
                ended.append(True)
            return RESULT

    task = asyncio.create_task(heard(EndsSlowly()))
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


def test_a_program_that_ends_right_after_a_break_leaves_nothing(nothing_left: None) -> None:
    from adk_skills_agent.sandbox.local import local_sandbox

    policy = SandboxPolicy(isolation="process", min_isolation="process")

    async def main() -> None:
        async for event in local_sandbox().stream(ExecutionRequest(("sh", "-c", "echo up; sleep 60"), policy)):
            assert event == OutputEvent("stdout", b"up\n")
            break

    asyncio.run(main())
