"""What a box says about one command, frame by frame: output to the streams, files to the folder, the end as facts."""

from __future__ import annotations

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.box_folder import BoxFolder
from adk_skills_agent.sandbox.contract import SandboxPolicy, Status
from adk_skills_agent.sandbox.local.supervision import Stream

_FILE_FRAMES = frozenset({"file", "skip", "gone"})
_MOST_FAILED = 20


class BoxAnswer:
    """Takes the bytes of a box in order.

    Args:
        streams: By the protocol's number.
        files: Where changed files go.
        policy: Its bound of output.
        exec_id: Of the command; what is about another one is not taken.

    Attributes:
        done: The last frame of the command; None while it runs, and when the box never said how it ended.
        broken: Why nothing more can be believed of what the box says.
        flood: A sentence when more output came than the policy allows, though the box should have ended it.
        failure: What the caller's ``on_output`` raised.
        notes: What of the inputs could not be put there.
        is_ready: Whether the program in the box has answered at all.
    """

    def __init__(self, streams: dict[int, Stream], files: BoxFolder, policy: SandboxPolicy, exec_id: int) -> None:
        self.done: frames.Frame | None = None
        self.broken: str | None = None
        self.flood: str | None = None
        self.failure: Exception | None = None
        self.notes: list[str] = []
        self.is_ready = False
        self._streams = streams
        self._files = files
        self._policy = policy
        self._id = exec_id
        self._reader = frames.FrameReader()
        self._failed = 0

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.done is not None or bool(self.broken or self.flood) or self.failure is not None

    def feed_streams(self, data: bytes) -> list[frames.Frame]:
        """Output goes to its streams at once; what is about files, and has to be written, is given back.

        Raises:
            SandboxError: The box speaks another version of the protocol.
        """
        left = []
        try:
            for frame in self._reader.feed(data):
                kind = frame["t"]
                if kind == "ready":
                    self._ready(frame)
                elif kind == "failed":
                    self._note_failure(frame)
                elif frame.get("id") != self._id:
                    continue
                elif kind == "out":
                    self._output(frame)
                elif kind in _FILE_FRAMES:
                    left.append(frame)
                elif kind == "done":
                    self.done = frame
                    self._files.leave_out(frame.get("unlisted"))
                    if (note := cut_note(frame)) is not None:
                        self.notes.append(note)
                if self.over:
                    break
        except frames.FrameError as error:
            self.broken = str(error)
        return left

    def take_files(self, found: list[frames.Frame]) -> None:
        """What :meth:`feed_streams` gave back. Blocking."""
        try:
            for frame in found:
                self._files.take(frame)
        except frames.FrameError as error:
            self.broken = str(error)
            self.done = None

    @property
    def cause(self) -> Status | None:
        """Which limit ended the command, by what the box says; None when none did."""
        done = self.done
        if self.flood or (done is not None and done.get("flood")):
            return Status.OUTPUT_LIMIT
        if done is None:
            return None
        for field, status in (
            ("disk", Status.DISK_LIMIT),
            ("oom", Status.OUT_OF_MEMORY),
            ("timed_out", Status.TIMEOUT),
        ):
            if done.get(field):
                return status
        return None

    def _ready(self, frame: frames.Frame) -> None:
        spoken = frames.number(frame, "proto")
        if spoken != frames.PROTOCOL:
            raise SandboxError(
                f"The program in the sandbox speaks version {spoken} of the protocol, this package "
                f"{frames.PROTOCOL}. Rebuild the image, or remove the program from it."
            )
        self.is_ready = True

    def _note_failure(self, frame: frames.Frame) -> None:
        reason = frames.text(frame, "reason")
        if frames.text(frame, "of") != "put":
            self.broken = f"it could not carry out {frame['of'][:20]!r}: {reason[:200]}"
            return
        self._failed += 1
        if self._failed <= _MOST_FAILED:
            self.notes.append(f"A file could not be put into the sandbox: {reason[:200]}.")

    def _output(self, frame: frames.Frame) -> None:
        stream = self._streams.get(frames.number(frame, "s"))
        if stream is None or stream.ended:
            return
        data = frames.content(frame)
        try:
            stream.feed(data)
        except Exception as error:  # noqa: BLE001  # the caller's on_output; raised again when all is cleaned up
            self.failure = error
            return
        most = self._policy.output_flood_bytes
        # The box ends a flood itself, a piece later; one that does not is ended from here.
        if most is not None and stream.total > most + frames.MOST_BYTES:
            self.flood = f"Stopped: it wrote more than {most:,} bytes to {stream.name}."

    def close_streams(self) -> None:
        """There is no more output; what was held back comes out."""
        for stream in self._streams.values():
            try:
                stream.close()
            except Exception as error:  # noqa: BLE001  # as above
                self.failure = self.failure or error


def cut_note(done: frames.Frame) -> str | None:
    """A sentence when a box has not looked at all of its files, by what its ``done`` frame says."""
    cut = done.get("cut")
    if not isinstance(cut, int) or isinstance(cut, bool):
        return None
    return (
        f"Only {cut:,} files and folders of the working directory were looked at; what else of it changed was not "
        "collected."
    )
