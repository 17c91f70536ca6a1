"""One container with our program as its main process, as a channel of frames (SANDBOX.md 4.5).

The program is process 1 of the container: nothing inside can end it, and when it ends, so does everything inside. It
ends when the attach stream does, so an agent that is killed takes its containers along. No ``exec`` of the engine is
used: that has no kill, no deadline, and takes no program of more than 128 KiB.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

from adk_skills_agent.errors import EngineUnavailable, ImageUnavailable, SandboxError
from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.box_program import program_text
from adk_skills_agent.sandbox.container.attach import STDERR, AttachStream, answers, attach
from adk_skills_agent.sandbox.container.engine import Engine, submit
from adk_skills_agent.sandbox.container.options import Plan
from adk_skills_agent.sandbox.container.removals import REMOVE_SECONDS, Removals
from adk_skills_agent.sandbox.contract import IsolationReport, Status
from adk_skills_agent.sandbox.session_channel import BoxEnd

READY_SECONDS = 30.0
"""How long a container that was started may take until our program in it answers."""
_LEAVE_SECONDS = 1.0
_BYE = frames.encode({"t": "bye"})
_END_SECONDS = 5
_STDERR_BYTES = 4000
_KILLED = 128 + 9
_EVENT_SECONDS = 1
_NO_PYTHON = ("executable file not found", "no such file or directory", "executable file `", "not found in $path")
_OLD_PYTHON = ("SyntaxError", "ImportError", "ModuleNotFoundError", "unknown option", "AttributeError")


class ContainerBox:
    """A container that runs; a :class:`~..session_channel.Channel` to its program.

    Attributes:
        name: The engine's id of it.
        isolation: Who enforces what in it.
        python: Version of the Python in it.
    """

    view = None  # it sees no path of the host

    def __init__(
        self, engine: Engine, name: str, stream: AttachStream, isolation: IsolationReport, removals: Removals
    ) -> None:
        self.name = name
        self.isolation = isolation
        self.python = ""
        self._engine = engine
        self._stream = stream
        self._removals = removals
        self._stderr = bytearray()
        self._tail = b""
        self._killed = False
        self._ended = False
        self._closed: BoxEnd | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing says that it has ended; never blocks."""
        return not (self._killed or self._ended or self._stream.ended)

    async def send(self, data: bytes) -> None:
        """Bytes for the program; without effect when it is gone, which :meth:`receive` tells."""
        with contextlib.suppress(OSError):
            await self._stream.send(data)

    async def receive(self) -> bytes:
        """Bytes of the program; none at its end. A cancelled call loses nothing.

        Raises:
            EngineUnavailable: The engine is gone.
        """
        broken: OSError | None = None
        try:
            while (found := await self._stream.receive()) is not None:
                number, piece = found
                if number != STDERR:
                    self._tail = (self._tail + piece[-len(_BYE) :])[-len(_BYE) :]
                    return piece
                self._stderr += piece
                del self._stderr[:-_STDERR_BYTES]
        except OSError as error:
            broken = error
        # The engine ends a stream with the container, and breaks it off when something is sent to it just then; both
        # look the same when it is the engine that has ended.
        if not (self._killed or self._ended or await answers(self._engine.url, _END_SECONDS)):
            said = "" if broken is None else f": {broken.strerror or type(broken).__name__}"
            raise EngineUnavailable(
                f"The connection to {self._engine.info.title} at {self._engine.url} broke{said}. The engine has ended: "
                "start it again."
            ) from broken
        self._ended = True
        return b""

    def kill(self) -> None:
        """End everything in it at once; never blocks, from any thread, safe to call twice."""
        self._killed = True
        self._stream.close()  # its program ends with it, and who waits for its bytes gets none
        self._removals.begin(self._engine, self.name)

    async def close(self) -> BoxEnd:
        """End it; everything in it has ended when this returns. The engine's record of it goes in the background."""
        if self._closed is None:
            status: Status | None = None
            notes: tuple[str, ...] = ()
            if self._ended and not self._killed:
                status, notes = await self._how_it_ended()
            elif not self._killed and not await self._leaves():
                self.kill()
            if self._killed:
                self._removals.begin(self._engine, self.name)
                notes = await self._gone()
            else:
                self._removals.begin_soon(self._engine, self.name, self._stream.close)
            self._closed = BoxEnd(status, notes)
        return self._closed

    def abandon(self) -> None:
        """The same without a loop to wait in."""
        self.kill()

    async def _leaves(self) -> bool:
        """Ask the program to end everything and itself; whether nothing else is left in the box."""
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                if self._tail != _BYE:
                    await self.send(frames.encode({"t": "close"}))
                # The engine tells the end of a container some time after it; the program tells it at once. No other
                # frame can end like that, whatever came before it and however little of it was read.
                while self._tail != _BYE and await self.receive():
                    pass
        except (TimeoutError, EngineUnavailable):
            return False
        return True

    async def _gone(self) -> tuple[str, ...]:
        """Wait until the engine has killed it; a sentence when that cannot be known."""
        await self._removals.wait(REMOVE_SECONDS, self.name)
        problem = self._removals.failed.get(self.name)
        if problem is None:
            return ()
        return (f"Cleanup failed: container {self.name[:12]} may still be running ({problem}).",)

    async def _how_it_ended(self) -> tuple[Status | None, tuple[str, ...]]:
        look = self._memory_in_state if self._engine.info.is_podman else self._memory_in_events
        try:
            lost = await self._engine.ask(look, "look at a container")
        except SandboxError:
            return None, ()  # the engine is gone, and says nothing about it
        if lost is not None:
            return Status.OUT_OF_MEMORY if lost else None, ()
        return None, (
            "Its program was killed from outside: by somebody, or because the container had no memory left, which "
            f"{self._engine.info.title} does not tell.",
        )

    def _memory_in_state(self, client: Any) -> bool | None:
        # Its stream ends a moment before the engine notes how.
        client.api.wait(self.name, timeout=REMOVE_SECONDS)
        state = client.api.inspect_container(self.name)["State"]
        return True if state.get("OOMKilled") else None if state.get("ExitCode") == _KILLED else False

    def _memory_in_events(self, client: Any) -> bool:
        # It removes itself, so there may be no state any more. What is just happening comes within a second.
        until = int(time.time()) + 1 + _EVENT_SECONDS
        wanted = {"container": [self.name], "event": ["oom"]}
        events = client.api.events(since=1, until=until, filters=wanted, decode=True)
        with contextlib.closing(events):
            return any(True for _ in events)

    async def hello(self, plan: Plan) -> None:
        """Wait until the program in it answers.

        Raises:
            SandboxError: It does not, or it is another version of it.
            ImageUnavailable: The image's Python cannot run it.
        """
        reader = frames.FrameReader()
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self.send(frames.encode({"t": "hello", "proto": frames.PROTOCOL, **plan.hello()}))
                while data := await self.receive():
                    for frame in reader.feed(data):
                        if frame["t"] == "ready":
                            self._check(frame)
                            return
                        if frame["t"] == "failed":
                            raise SandboxError(f"The container refused to begin: {frames.text(frame, 'reason')}")
        except TimeoutError:
            raise SandboxError(
                f"The container was started, but nothing in it answered within {READY_SECONDS:g} s{self._said()}. Is "
                "the machine overloaded, or does the image need another python?"
            ) from None
        except frames.FrameError as error:
            raise SandboxError(f"The container said what cannot be understood: {error}") from error
        said = self._stderr.decode("utf-8", "replace")
        if any(word in said for word in _OLD_PYTHON):
            raise ImageUnavailable(
                f"The image's Python cannot run the program of the sandbox{self._said()}. It must be 3.8 or newer."
            )
        raise SandboxError(f"The container ended before anything in it answered{self._said()}.")

    def _check(self, frame: frames.Frame) -> None:
        spoken = frames.number(frame, "proto")
        if spoken != frames.PROTOCOL:
            raise SandboxError(
                f"The program in the container speaks version {spoken} of the protocol, this package "
                f"{frames.PROTOCOL}. Use the same version of adk-skills-agent on both sides."
            )
        self.python = frames.text(frame, "python", "?")
        if frame.get("writable") is False:
            raise ImageUnavailable(
                f"The container's user cannot write to /work. The image has a folder of that name, whose rights "
                f"{self._engine.info.title} keeps: add RUN chmod 1777 /work to its Dockerfile, or use another user."
            )

    def _said(self) -> str:
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return f" (it said: {lines[-1][:200]})" if lines else ""


async def start_box(
    engine: Engine, plan: Plan, labels: dict[str, str], isolation: IsolationReport, removals: Removals
) -> ContainerBox:
    """Make a container, start it, and wait until our program in it answers. Leaves nothing when it fails.

    Raises:
        EngineUnavailable: The engine is gone.
        ImageUnavailable: The image is not there, or has no Python that can be used.
        SandboxError: The engine refuses, or nothing in the container answers.
    """
    creation = _Creation(engine, plan.settings(engine.info, program_text(), labels), removals)
    stream = None
    try:
        name = await asyncio.shield(submit(creation.make))
        if not engine.info.is_podman:  # which lets nobody attach before; elsewhere nothing that it says is lost
            stream = await attach(engine.url, name, engine.info.title)
        await asyncio.shield(submit(creation.start))
        if stream is None:
            stream = await attach(engine.url, name, engine.info.title)
    except BaseException as error:
        if stream is not None:
            stream.close()
        creation.abandon()
        if isinstance(error, SandboxError) and any(word in error.message.lower() for word in _NO_PYTHON):
            raise _no_python(plan, error) from error
        raise
    box = ContainerBox(engine, name, stream, isolation, removals)
    try:
        await box.hello(plan)
    except BaseException:
        box.abandon()
        raise
    return box


class _Creation:
    """A container that is being made, in a thread, while who wanted it may give up at any moment."""

    def __init__(self, engine: Engine, settings: dict[str, Any], removals: Removals) -> None:
        self._engine = engine
        self._settings = settings
        self._removals = removals
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._name: str | None = None
        self._abandoned = False
        removals.expect(self)

    def make(self) -> str:
        """Create it; its name. Blocking.

        Raises:
            SandboxError: See :meth:`Engine.ask`.
        """
        try:
            return self._engine.ask_now(self._make, "make a container")
        finally:
            self._removals.settle(self)

    def _make(self, client: Any) -> str:
        with self._lock:
            abandoned = self._abandoned
        if abandoned:
            raise SandboxError("Nobody wants the container any more.")
        name = str(client.containers.create(**self._settings).id)
        self._removals.made(self._engine, name, self._loop)
        with self._lock:
            self._name = name
            abandoned = self._abandoned
        if abandoned:
            self._removals.begin(self._engine, name)
        return name

    def start(self) -> None:
        """Let its program begin. Blocking.

        Raises:
            SandboxError: See :meth:`Engine.ask`.
        """
        with self._lock:
            name, abandoned = self._name, self._abandoned
        if name is not None and not abandoned:
            self._engine.ask_now(lambda client: client.api.start(name), "start a container")

    def abandon(self) -> None:
        """Remove it, now or when it is there; from any thread, also without a loop."""
        with self._lock:
            self._abandoned = True
            name = self._name
        if name is not None:
            self._removals.begin(self._engine, name)


def _no_python(plan: Plan, error: SandboxError) -> SandboxError:
    python = plan.options.python
    if python not in error.message:
        return error
    return ImageUnavailable(
        f"The image has no {python!r}: {error.message} Use an image with Python 3.8 or newer, such as the one in "
        "images/adk-code-executor, or name its interpreter in ContainerOptions(python=...)."
    )
