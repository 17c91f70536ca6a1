"""A run as a stream of events, over any backend's ``run()``.

What arrives while nobody takes it waits in bounded memory: at most ``output_bytes`` of each output stream (which is all
that ``on_output`` gets), in at most so many pieces, and one resource sample, the newest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from adk_skills_agent.sandbox.threads import uninterrupted

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, Sandbox

StreamName: TypeAlias = Literal["stdout", "stderr"]

_PIECES = 1024
"""Pieces that wait as they arrived. From there on a piece joins the last one of its own stream, so that a script that
writes single bytes to both in turn costs no more memory than any other; the order within each stream always holds."""


@dataclass(frozen=True, slots=True)
class OutputEvent:
    """A piece of what the command wrote, secrets replaced.

    The first ``output_bytes`` of each stream come as they arrive. Of one that is longer, the end that was kept comes
    once the run is over, with ``left_out``; nothing more of it comes in between.

    Attributes:
        stream: Which one.
        data: The piece.
        left_out: Bytes of the stream right before the piece that come as no event.
    """

    stream: StreamName
    data: bytes
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """The resources that a run uses at one moment; sent about ten times a second by backends that can measure.

    Attributes:
        seconds: Since the start of the command.
        memory_bytes: Resident memory of its processes; what they share counts once for each of them.
        cpu_seconds: Used so far, of all processors together. A process that ended unseen is not in it.
        processes: Alive now, those that contain the run included.
        workspace_bytes: In the workspace at the last look at it; None when it is not measured (no limit, or not yet).
    """

    seconds: float
    memory_bytes: int
    cpu_seconds: float
    processes: int
    workspace_bytes: int | None


@dataclass(frozen=True, slots=True)
class EndEvent:
    """The run is over; always the last event."""

    result: ExecutionResult


StreamEvent: TypeAlias = OutputEvent | ResourceSample | EndEvent


class _Waiting:
    """What has arrived and was not taken yet."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[str, bytearray] | ResourceSample] = deque()
        self._last: dict[str, bytearray] = {}
        self._sample: ResourceSample | None = None
        self._arrived = asyncio.Event()

    def add_output(self, stream: str, data: bytes) -> None:
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, tuple) and last[0] == stream:
            last[1].extend(data)
        elif len(self._pieces) >= _PIECES and stream in self._last:
            self._last[stream].extend(data)
        else:
            self._last[stream] = bytearray(data)
            self._pieces.append((stream, self._last[stream]))
        self.wake()

    def add_sample(self, sample: ResourceSample) -> None:
        if self._sample is not None:
            self._pieces.remove(self._sample)
        self._sample = sample
        self._pieces.append(sample)
        self.wake()

    def take(self) -> OutputEvent | ResourceSample | None:
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        if isinstance(piece, ResourceSample):
            self._sample = None
            return piece
        stream, data = piece
        if self._last.get(stream) is data:
            del self._last[stream]
        return OutputEvent(cast("StreamName", stream), bytes(data))

    def wake(self) -> None:
        self._arrived.set()

    async def more(self) -> None:
        await self._arrived.wait()
        self._arrived.clear()


async def stream(sandbox: Sandbox, request: ExecutionRequest) -> AsyncGenerator[StreamEvent, None]:
    """Run one command and give what happens as it happens; see :meth:`Sandbox.stream`."""
    waiting = _Waiting()
    on_output, on_sample = request.on_output, request.on_sample

    passed_on = {"stdout": 0, "stderr": 0}

    def output(name: str, data: bytes) -> None:
        passed_on[name] += len(data)
        if on_output is not None:
            on_output(name, data)
        waiting.add_output(name, data)

    def sample(seen: ResourceSample) -> None:
        if on_sample is not None:
            on_sample(seen)
        waiting.add_sample(seen)

    run = asyncio.ensure_future(sandbox.run(replace(request, on_output=output, on_sample=sample)))
    run.add_done_callback(lambda _: waiting.wake())
    try:
        while True:
            while (event := waiting.take()) is not None:
                yield event
            if run.done():
                break
            await waiting.more()
        result = run.result()
        for rest in _rest(result, passed_on):
            yield rest
        yield EndEvent(result)
    finally:
        await _end(run)


def _rest(result: ExecutionResult, passed_on: dict[str, int]) -> Iterator[OutputEvent]:
    """The kept ends of streams that were longer than what came as events."""
    for name, kept, total, at in (
        ("stdout", result.stdout, result.stdout_total, result.stdout_cut_at),
        ("stderr", result.stderr, result.stderr_total, result.stderr_cut_at),
    ):
        if at is None:
            continue
        left_out = total - (len(kept) - at) - passed_on[name]
        end = kept[at + max(0, -left_out) :]  # the kept end may reach back into what was passed on
        if end or left_out > 0:
            yield OutputEvent(cast("StreamName", name), end, max(0, left_out))


async def _end(run: asyncio.Future[ExecutionResult]) -> None:
    """Cancel a run that nobody listens to any more, and wait until nothing of it is left.

    What fails in it then is reported by asyncio, like the failure of any task that nobody waits for.
    """
    run.cancel()
    await uninterrupted(asyncio.wait([run]))
