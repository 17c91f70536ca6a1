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

from adk_skills_agent.errors import EngineUnavailable, ImageUnavailable, SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.container.engine import ANSWER_SECONDS, Engine, EngineInfo, submit
from adk_skills_agent.sandbox.container.options import Plan
from adk_skills_agent.sandbox.container.options import create as create_container
from adk_skills_agent.sandbox.container.removals import REMOVE_SECONDS, Removals
from adk_skills_agent.sandbox.container.streams import STDERR, AttachStream, answers, attach
from adk_skills_agent.sandbox.contract import IsolationReport, Status
from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.channel import SandboxEnd, check_ready
from adk_skills_agent.sandbox.supervisor.program import program_text
from adk_skills_agent.sandbox.threads import uninterrupted

MAX_RUNNING = 16
"""Containers of runs at the same time in one agent process; more runs wait for their turn."""
READY_SECONDS = 30.0
"""How long a container that was started may take until our program in it answers."""
_LEAVE_SECONDS = 1.0
_BYE = frames.encode({"t": "bye"})
_END_SECONDS = 5
_MOST_WAITING = 2 * MAX_RUNNING  # for their removal; then who ends another one waits until it is gone
_STDERR_BYTES = 4000
_KILLED = 128 + 9
_EVENT_SECONDS = 1
_NO_PYTHON = ("executable file not found", "no such file or directory", "executable file `", "not found in $path")
_OLD_PYTHON = ("SyntaxError", "ImportError", "ModuleNotFoundError", "unknown option", "AttributeError")


class ContainerChannel:
    """A container that runs; a :class:`~..sessions.session.SessionChannel` to its program."""

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
        self._closed: SandboxEnd | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing says that it has ended; never blocks."""
        return not (self._killed or self._ended or self._stream.ended)

    async def keeps_limits(self, cpu_seconds: float | None) -> bool:  # noqa: ARG002
        """Always: its file systems are full at their limits, and its program looks at what is left running."""
        return True

    async def send(self, data: bytes) -> None:
        """Bytes for the program; without effect when it is gone, which :meth:`receive` tells."""
        with contextlib.suppress(OSError):
            await self._stream.send(data)

    async def receive(self) -> bytes:
        """Bytes of the program; none at its end.

        A cancelled call loses nothing. EngineUnavailable says that the engine is gone.
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

    async def close(self) -> SandboxEnd:
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
                self._removals.begin(self._engine, self.name, self._stream.close)
                if self._removals.waiting > _MOST_WAITING:  # the engine is slower than the runs that come (row 433)
                    await self._removals.wait(REMOVE_SECONDS, self.name)
            self._closed = SandboxEnd(status, notes)
        return self._closed

    async def _leaves(self) -> bool:
        """Ask the program to end everything and itself; whether nothing else is left in the sandbox."""
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
        """Wait until the program in it answers."""
        reader = frames.FrameReader()
        try:
            async with asyncio.timeout(READY_SECONDS):
                hello = {"t": "hello", "proto": frames.PROTOCOL, **plan.hello(self._engine.info)}
                await self.send(frames.encode(hello))
                while data := await self.receive():
                    for frame in reader.feed(data):
                        check_ready(frame)
                        self.python = frames.text(frame, "python", "?")[:40]
                        if frame.get("writable") is False:
                            raise ImageUnavailable(
                                "The container's user cannot write to /work. The image has a folder of that name, "
                                f"whose rights {self._engine.info.title} keeps: add RUN chmod 1777 /work to its "
                                "Dockerfile, or use another user."
                            )
                        return
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

    def _said(self) -> str:
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return f" (it said: {lines[-1][:200]})" if lines else ""


def check_runtime(client: Any, info: EngineInfo, name: str, wanted: str) -> None:
    """Refuse a container that another runtime than the one asked for would run, with a SandboxUnavailable.

    Podman takes every name over Docker's protocol and uses its own (row 182). What it has taken only its own one tells.
    """
    if info.is_podman:
        where = f"{client.api.base_url}/v{info.version}/libpod/containers/{name}/json"
        found = client.api.get(where, timeout=ANSWER_SECONDS).json().get("OCIRuntime")
    else:
        found = client.api.inspect_container(name)["HostConfig"].get("Runtime")
    if found != wanted:
        raise SandboxUnavailable(
            f"{info.title} would run the container with {str(found)[:50]!r} and not with {wanted!r}, as was asked for. "
            "Podman takes no runtime over this protocol: make it its own (runtime = in containers.conf).",
            ("the engine takes another runtime",),
        )


async def start_container(
    engine: Engine, plan: Plan, labels: dict[str, str], isolation: IsolationReport, removals: Removals
) -> ContainerChannel:
    """Make a container, start it, and wait until our program in it answers. Leaves nothing when it fails.

    Raises:
        EngineUnavailable: The engine is gone.
        ImageUnavailable: The image is not there, or has no Python that can be used.
        SandboxError: The engine refuses, or nothing in the container answers.
    """
    settings = plan.settings(engine.info, program_text(), labels)
    loop = asyncio.get_running_loop()
    made: list[str] = []
    abandoned = threading.Event()  # who wanted it may give up at any moment, while a thread makes it
    removals.expect(made_of := object())

    def make() -> None:
        try:
            engine.ask_now(create, "make a container")
        finally:
            removals.settle(made_of)

    def create(client: Any) -> None:
        if abandoned.is_set():
            raise SandboxError("Nobody wants the container any more.")
        made.append(create_container(client, settings))
        removals.made(engine, made[0], loop)
        if plan.options.runtime is not None:
            check_runtime(client, engine.info, made[0], plan.options.runtime)
        if abandoned.is_set():
            removals.begin(engine, made[0])

    def start() -> None:
        if not abandoned.is_set():
            engine.ask_now(lambda client: client.api.start(made[0]), "start a container")

    stream = None
    try:
        await asyncio.shield(submit(make))
        if not engine.info.is_podman:  # which lets nobody attach before; elsewhere nothing that it says is lost
            stream = await attach(engine.url, made[0], engine.info.title)
        await asyncio.shield(submit(start))
        if stream is None:
            stream = await attach(engine.url, made[0], engine.info.title)
    except BaseException as error:
        if stream is not None:
            stream.close()
        abandoned.set()
        for name in made:
            removals.begin(engine, name)
        if not isinstance(error, GeneratorExit):  # with which the loop is gone
            # A container counts until it is gone: else who comes and leaves has any number of them (row 433).
            await uninterrupted(_removed(removals, made_of, made))
        if (
            isinstance(error, SandboxError)
            and plan.options.python in error.message
            and any(word in error.message.lower() for word in _NO_PYTHON)
        ):
            raise ImageUnavailable(
                f"The image has no {plan.options.python!r}: {error.message} Use an image with Python 3.8 or newer, "
                "such as the one in images/adk-code-executor, or name its interpreter in ContainerOptions(python=...)."
            ) from error
        raise
    channel = ContainerChannel(engine, made[0], stream, isolation, removals)
    try:
        await channel.hello(plan)
    except BaseException as error:
        channel.kill()
        if not isinstance(error, GeneratorExit):
            await uninterrupted(channel.close())
        raise
    return channel


async def _removed(removals: Removals, made_of: object, made: list[str]) -> None:
    """Wait until a container that is being made is made, and removed."""
    await removals.wait(REMOVE_SECONDS, made_of)
    for name in made:
        await removals.wait(REMOVE_SECONDS, name)
