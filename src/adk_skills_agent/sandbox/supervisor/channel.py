"""The host's side of the framed channel: a sandbox that runs the supervisor, and what it says of one execution.

What comes from a sandbox is hostile: nothing is believed that is not the protocol (:mod:`.frames`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import IsolationReport, SandboxPolicy, Status
from adk_skills_agent.sandbox.process.supervise import Stream
from adk_skills_agent.sandbox.supervisor import frames

_FILE_FRAMES = frozenset({"file", "skip", "gone"})
_MOST_PIECES = 16  # changes from one stream to the other that are kept in what is passed on together
_MOST_AT_ONCE = 1 << 16
_MOST_REASON = 200
_MOST_NUMBER = 1e15  # JSON has numbers that no float holds, and infinity


@dataclass(frozen=True, slots=True)
class SandboxEnd:
    """How a sandbox was when it was closed: the limit that ended it, sentences, what it used, if known."""

    status: Status | None = None
    notes: tuple[str, ...] = ()
    cpu_ms: float | None = None
    max_rss_bytes: int | None = None


class Channel(Protocol):
    """A sandbox in which the program of :mod:`.program` runs, and the bytes to and from it."""

    @property
    def isolation(self) -> IsolationReport:
        """Who enforces what in it."""

    async def send(self, data: bytes) -> None:
        """Pass bytes to the program; without effect when it is gone, which ``receive`` will tell."""

    async def receive(self) -> bytes:
        """The next bytes from the program; none at its end. A cancelled call loses nothing."""

    def kill(self) -> None:
        """End the sandbox at once, from any thread; never blocks, and may be called twice. ``receive`` then ends."""

    async def close(self) -> SandboxEnd:
        """End it, wait for that, and leave nothing behind; the same answer when it is called again."""


def check_ready(frame: frames.Frame) -> None:
    """Refuse a program that is not ours, or of another version, by its first frame, with a SandboxError."""
    if frame["t"] == "failed":
        raise SandboxError(f"The program in the sandbox refused to work: {frames.text(frame, 'reason')[:_MOST_REASON]}")
    if frame["t"] != "ready" or frames.number(frame, "proto") != frames.PROTOCOL:
        raise SandboxError(
            f"The program in the sandbox speaks protocol {repr(frame.get('proto'))[:20]}, this agent "
            f"{frames.PROTOCOL}: it comes from another version of adk-skills-runtime."
        )


def bytes_of_each(found: Collection[frames.Frame], size: int) -> int:
    """The mean size of the frames of output in a read of ``size`` bytes; frames of files do not count."""
    return size // max(1, len([frame for frame in found if frame["t"] == "out"]))


class Answer:
    """What a sandbox says of one execution, frame by frame.

    Attributes:
        done: The last frame of the execution; None while it runs, and when the sandbox never said how it ended.
        flood: A sentence when more output came than the policy allows, though the sandbox should have ended it.
        failure: What the caller's ``on_output`` raised.
        is_ready: Whether the program in the sandbox has answered at all.
        broken: Why nothing more can be believed of what the sandbox says.
    """

    def __init__(
        self,
        number: int,
        policy: SandboxPolicy,
        streams: Mapping[int, Stream],
        take_file: Callable[[frames.Frame], None],
    ) -> None:
        self.done: frames.Frame | None = None
        self.flood: str | None = None
        self.failure: Exception | None = None
        self.is_ready = False
        self.broken: str | None = None
        self._number = number
        self._policy = policy
        self._streams = streams
        self._waiting: list[tuple[int, bytearray]] = []  # output that has come and was not passed on
        self._take_file = take_file

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.done is not None or bool(self.broken or self.flood) or self.failure is not None

    @property
    def notes(self) -> list[str]:
        """A sentence when the sandbox has not looked at all of its files."""
        cut = None if self.done is None else self.done.get("cut")
        if not isinstance(cut, int) or isinstance(cut, bool):
            return []
        return [
            f"Only {cut:,} files and folders of the working directory were looked at; what else of it changed was not "
            "collected."
        ]

    @property
    def cause(self) -> Status | None:
        """Which limit ended the execution, by what the sandbox says; None when none did."""
        done = self.done or {}
        if self.flood or done.get("flood"):
            return Status.OUTPUT_LIMIT
        for field, status in (
            ("disk", Status.DISK_LIMIT),
            ("oom", Status.OUT_OF_MEMORY),
            ("timed_out", Status.TIMEOUT),
        ):
            if done.get(field):
                return status
        return None

    @property
    def end(self) -> tuple[int | None, int | None]:
        """Exit code and signal, exactly one of which is set; what a sandbox says otherwise is a kill."""
        done = self.done or {}
        exit_code, number = done.get("exit"), done.get("signal")
        if isinstance(exit_code, int) and not isinstance(exit_code, bool) and number is None:
            return exit_code & 0xFF, None
        if isinstance(number, int) and 0 < number < signal.NSIG:
            return None, number
        return None, int(signal.SIGKILL)

    @property
    def interrupted(self) -> bool:
        """Whether SIGINT ended the code of a session."""
        return bool(self.done and self.done.get("interrupted"))

    def number(self, name: str) -> float | None:
        """A number of the last frame; None when it is missing or something else."""
        value = self.done.get(name) if self.done is not None else None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < _MOST_NUMBER:
            return None
        return float(value)

    def limit_notes(self, cause: Status | None) -> list[str]:
        """A sentence about the limit that ended the execution, where the sandbox has told which."""
        done, policy = self.done or {}, self._policy
        if self.flood:
            return [self.flood]
        if cause is Status.OUTPUT_LIMIT and done:
            name = "stderr" if done.get("flood") == 2 else "stdout"
            return [f"Stopped: it wrote more than {policy.output_flood_bytes or 0:,} bytes to {name}."]
        if cause is Status.OUT_OF_MEMORY and policy.memory_bytes is not None:
            if sockets := self.number("sockets"):
                return [
                    f"Stopped: it had more than {sockets:,.0f} sockets, or in those for TCP and UDP more memory than a "
                    f"part of memory_bytes, {policy.memory_bytes >> 20} MiB."
                ]
            return [
                "Stopped by the kernel: its processes together needed more memory than memory_bytes, "
                f"{policy.memory_bytes >> 20} MiB."
            ]
        if cause is Status.DISK_LIMIT and isinstance(done.get("disk"), str):
            return [f"Stopped: more than {policy.workspace_inodes or 0:,} files in {done['disk'][:100]}."]
        if cause is None and (terminals := self.number("terminals")):
            return [f"Stopped: it opened more terminals than are allowed, {terminals:.0f}."]
        if cause is None and (tasks := self.number("tasks")):
            return [f"Stopped: it had more processes and threads than pids, {tasks:.0f}."]
        if cause is None and (watches := self.number("watches")):
            return [f"Stopped: it watched (epoll) or locked more than {watches:,.0f} files or parts of them."]
        if cause is None and self.number("waits"):
            return ["Stopped: it kept what watches its limits waiting for a lock of the kernel that it held."]
        return []

    def take(self, frame: frames.Frame) -> bool:
        """The next frame; whether nothing more is to be waited for.

        A FrameError when it cannot come now, or is no good.
        """
        kind = frame["t"]
        if kind != "out":
            self.pass_on()
        if kind == "ready":
            check_ready(frame)
            self.is_ready = True
        elif kind == "failed":
            if frames.text(frame, "of") != "put":  # the reason of that is the reason of a "done", too
                raise frames.FrameError(frames.text(frame, "reason")[:_MOST_REASON])
        elif frames.number(frame, "id") != self._number:
            raise frames.FrameError(f"A frame of kind {kind!r} is about another execution.")
        elif kind == "out":
            self._take_output(frame)
        elif kind in _FILE_FRAMES:
            self._take_file(frame)
        elif kind == "done":
            self.done = frame
        else:
            raise frames.FrameError(f"A frame of kind {kind!r} cannot come now.")
        return self.over

    def close_streams(self) -> None:
        """There is no more output; what was held back comes out."""
        self.pass_on()
        for stream in self._streams.values():
            try:
                stream.close()
            except Exception as error:  # noqa: BLE001  # the caller's on_output; raised again when all is cleaned up
                self.failure = self.failure or error

    def pass_on(self) -> float:
        """Search all output that has come for secrets, and pass it on; for how many seconds no more should be read.

        In few pieces, for each search takes as long for a byte as for a thousand (row 415).
        """
        waiting, self._waiting = self._waiting, []
        rest = 0.0
        for number, data in waiting:
            try:
                rest = max(rest, self._streams[number].feed(bytes(data)))
            except Exception as error:  # noqa: BLE001  # as above
                self.failure = self.failure or error
        return rest

    def _take_output(self, frame: frames.Frame) -> None:
        number, data = frames.number(frame, "s"), frames.content(frame)
        if number not in self._streams:
            raise frames.FrameError("There are two streams.")
        stream = self._streams[number]
        own = [waiting for of, waiting in self._waiting if of == number]
        # Both streams come out in the order in which they came, unless they take turns all the time.
        if self._waiting and (self._waiting[-1][0] == number or (own and len(self._waiting) >= _MOST_PIECES)):
            own[-1].extend(data)
        else:
            self._waiting.append((number, bytearray(data)))
        size = sum(len(waiting) for of, waiting in self._waiting if of == number)
        most = self._policy.output_flood_bytes
        # The sandbox ends a flood itself, a piece later; one that does not is ended from here.
        if most is not None and stream.total + size > most + frames.MOST_BYTES:
            self.pass_on()
            self.flood = f"Stopped: it wrote more than {most:,} bytes to {stream.name}."
        elif size > _MOST_AT_ONCE:
            self.pass_on()
