"""A run as a stream of events: the same for every backend."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import Status
from adk_skills_agent.sandbox.streaming import EndEvent, OutputEvent, ResourceSample

pytestmark = pytest.mark.host_side


def written(events: list[object], stream: str) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, OutputEvent) and event.stream == stream)


async def test_the_events_are_the_output_as_it_arrived_and_the_result_at_last(box):
    script = box.script("echo one; read -t 1 <> <(:); echo two >&2; read -t 1 <> <(:); echo three; exit 3", ".sh")
    events = [event async for event in box.sandbox.stream(box.request("bash", script))]
    output = [event for event in events if isinstance(event, OutputEvent)]
    assert output == [
        OutputEvent("stdout", b"one\n"),
        OutputEvent("stderr", b"two\n"),
        OutputEvent("stdout", b"three\n"),
    ]
    assert [isinstance(event, EndEvent) for event in events].index(True) == len(events) - 1
    assert isinstance(events[-1], EndEvent)
    result = events[-1].result
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"one\nthree\n", b"two\n")


async def test_output_that_comes_at_the_end_only_and_what_the_place_decides_is_in_the_report(box, backend):
    told = [sentence.partition(":")[0] for sentence in (await box.bash("echo x")).isolation.degraded]
    assert ("output" in told) == backend.is_elsewhere
    if backend.is_elsewhere:
        assert {"memory", "disk", "processes", "output"} <= set(told)


async def test_output_is_there_while_the_script_still_runs(box):
    script = box.script("echo one; sleep 60", ".sh")
    async with asyncio.timeout(20), contextlib.aclosing(box.sandbox.stream(box.request("bash", script))) as events:
        async for event in events:
            if isinstance(event, OutputEvent):
                break
    assert event == OutputEvent("stdout", b"one\n")


@pytest.mark.local("only they tell what a run uses while it lasts")
async def test_a_run_that_lasts_tells_what_it_uses(box):
    code = """
block = bytearray(40 << 20)
open("file", "wb").write(bytes(1 << 20))
while True:
    pass
"""
    samples: list[ResourceSample] = []
    # How often a busy machine comes to look is its own affair, so the run lasts until enough was seen.
    async with contextlib.aclosing(box.sandbox.stream(box.request("python3", box.script(code)))) as events:
        async for event in events:
            assert not isinstance(event, EndEvent), samples
            if isinstance(event, ResourceSample):
                samples.append(event)
                if len(samples) >= 3 and event.memory_bytes > 40 << 20 and (event.workspace_bytes or 0) >= 1 << 20:
                    break
    assert [sample.seconds for sample in samples] == sorted(sample.seconds for sample in samples)
    assert [sample.cpu_seconds for sample in samples] == sorted(sample.cpu_seconds for sample in samples)
    assert max(sample.memory_bytes for sample in samples) < 200 << 20
    last = samples[-1]
    assert 0 < last.cpu_seconds < last.seconds * 4
    assert 1 <= last.processes <= 8
    assert last.workspace_bytes is not None
    assert last.workspace_bytes < 2 << 20


@pytest.mark.parametrize("how", ["break", "aclose", "cancel", "timeout", "error"])
async def test_row_33_whoever_stops_listening_ends_the_run(box, how):
    request = box.request("bash", box.script("sleep 60 & echo started; sleep 60", ".sh"))

    async def listen() -> None:
        stream = box.sandbox.stream(request)
        async for event in stream:
            if not isinstance(event, OutputEvent):
                continue
            if how == "break":
                break
            if how == "aclose":
                await stream.aclose()
                return
            if how == "error":
                raise LookupError(event.data)
            heard.set()

    heard = asyncio.Event()
    async with asyncio.timeout(20):
        if how == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(listen(), 0.7)
        elif how == "cancel":
            task = asyncio.create_task(listen())
            await heard.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "error":
            with pytest.raises(LookupError, match="started"):
                await listen()
        else:
            await listen()
        if how in {"break", "error"}:  # the event loop ends what was left as soon as it gets to it
            while asyncio.all_tasks() != {asyncio.current_task()}:
                await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_of_the_sandbox_comes_out_of_the_iteration(box):
    events = box.sandbox.stream(box.request("no-such-command"))
    with pytest.raises(SandboxError, match="no-such-command"):
        await anext(events)
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_stream_nobody_listens_to_starts_nothing(box):
    await box.sandbox.stream(box.request("no-such-command")).aclose()


@pytest.mark.local("only they tell what a run uses while it lasts")
async def test_the_callbacks_of_the_request_are_called_too(box):
    chunks: list[tuple[str, bytes]] = []
    samples: list[ResourceSample] = []
    request = box.request(
        "bash",
        box.script("echo one; sleep 60", ".sh"),
        on_output=lambda *chunk: chunks.append(chunk),
        on_sample=samples.append,
    )
    heard: list[object] = []
    async with contextlib.aclosing(box.sandbox.stream(request)) as events:
        async for event in events:
            assert not isinstance(event, EndEvent), heard
            heard.append(event)
            if {type(event) for event in heard} == {OutputEvent, ResourceSample}:
                break
    assert chunks == [("stdout", b"one\n")]
    told = [event for event in heard if isinstance(event, ResourceSample)]
    assert samples[: len(told)] == told  # the callback may have got another one before the run was ended


@pytest.mark.parametrize(
    "callback",
    ["on_output", pytest.param("on_sample", marks=pytest.mark.local("only they tell what a run uses while it lasts"))],
)
async def test_a_callback_that_fails_ends_the_run_and_comes_out(box, callback):
    def fail(*_: object) -> None:
        raise LookupError(callback)

    request = box.request("bash", box.script("echo one; sleep 60", ".sh"), **{callback: fail})
    with pytest.raises(LookupError, match=callback):
        async for _ in box.sandbox.stream(request):
            pass


async def test_a_listener_that_never_comes_back_in_time_gets_the_first_part_in_order_and_the_result(box):
    code = "import os\nfor n in range(60000):\n os.write(1 + n % 2, b'%d\\n' % n)\n"
    request = box.request("python3", box.script(code), output_bytes=100_000)
    events: list[object] = []
    async for event in box.sandbox.stream(request):
        events.append(event)
        if len(events) < 4:
            await asyncio.sleep(0.5)
    numbers = b"".join(b"%d\n" % n for n in range(0, 60000, 2))
    assert written(events, "stdout") == numbers[:100_000] + numbers[-25_000:]
    missing = [event.left_out for event in events if isinstance(event, OutputEvent) and event.left_out]
    assert missing == [len(numbers) - 125_000] * 2
    assert len(written(events, "stderr")) == 125_000
    assert isinstance(events[-1], EndEvent)
    assert events[-1].result.status is Status.OK
    assert events[-1].result.stdout_truncated


@pytest.mark.parametrize(("written", "left_out", "end"), [(1000, 0, 0), (1100, 0, 100), (2000, 750, 250)])
async def test_the_kept_end_of_a_long_stream_comes_last_with_what_is_missing(box, written, left_out, end):
    code = f"import os; os.write(1, bytes(n % 251 for n in range({written})))"
    request = box.request("python3", box.script(code), output_bytes=1000)
    events = [event async for event in box.sandbox.stream(request) if isinstance(event, OutputEvent)]
    whole = bytes(n % 251 for n in range(written))
    assert sum(event.left_out for event in events) == left_out
    assert b"".join(event.data for event in events) == whole[:1000] + (whole[-end:] if end else b"")
