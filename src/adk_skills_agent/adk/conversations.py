"""``run()``: one question to an agent, without ``async``, for notebooks and the interactive prompt.

Each conversation has an event loop of its own in a thread of its own. So it works where a loop runs already, as in
Jupyter, and what an agent's tools hold (sandboxes, workspaces, connections) lasts from one question to the next.
"""

from __future__ import annotations

import asyncio
import mimetypes
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adk_skills_agent.errors import ConfigError, InvalidArguments

if TYPE_CHECKING:
    from types import TracebackType

    from google.adk.agents import BaseAgent
    from google.adk.events import Event
    from google.adk.plugins.base_plugin import BasePlugin

_APP = "notebook"
_USER = "user"
_CLOSING_SECONDS = 30.0

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Answer:
    """The result of one question. It keeps the conversation open: ``run(agent, "...", after=answer)`` continues it.

    Attributes:
        text: What the agent said, the thoughts of the model left out.
        events: All events of google-adk, in order.
        files: The files it saved as artifacts, by name, in their last version.
        errors: Codes and messages of answers that failed, as google-adk's events have them.
    """

    text: str
    events: Sequence[Event] = field(repr=False)
    files: dict[str, bytes] = field(repr=False)
    errors: tuple[str, ...] = ()
    _conversation: _Conversation | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation: its tools are closed, its workspace is deleted. Else that happens with the object."""
        if self._conversation is not None:
            self._conversation.close()


def run(
    agent: BaseAgent,
    message: str,
    *,
    files: Sequence[str | Path] = (),
    after: Answer | None = None,
    on_event: Callable[[Event], object] | None = None,
    plugins: Sequence[BasePlugin] = (),
) -> Answer:
    """Ask an agent one question and wait for its answer; also where an event loop is running.

    Everything is kept in memory. For an application use google-adk's ``Runner``.

    Args:
        agent: Any google-adk agent.
        message: The question.
        files: Files of this machine that go with it, as uploads.
        after: An earlier answer of the same agent, whose conversation goes on; None begins one.
        on_event: Called with each event as it arrives, in the thread of the conversation.
        plugins: google-adk plugins; of a conversation that goes on they are given already.

    Returns:
        What it led to.

    Raises:
        ConfigError: ``after`` is of another agent, or its conversation was closed.
        InvalidArguments: A file cannot be read.
        Exception: What google-adk or the model's client raises, as it is.
    """
    uploads = [_read(Path(path)) for path in files]
    if after is not None:
        held = after._conversation
        if held is None or held.closed:
            raise ConfigError("after: that conversation was closed. Leave after= out to begin a new one.")
        if held.agent is not agent:
            raise ConfigError("after: that is an answer of another agent. Give the agent it came from.")
        return held.ask(message, uploads, on_event)
    conversation = _Conversation(agent, plugins)
    try:
        return conversation.ask(message, uploads, on_event)
    except BaseException:
        conversation.close()  # nobody has an answer that could
        raise


def _read(path: Path) -> tuple[str, str, bytes]:
    """Name, kind and content of a file to upload."""
    try:
        content = path.expanduser().read_bytes()
    except OSError as error:
        raise InvalidArguments(f"The file {path} cannot be read: {error.strerror}.") from error
    return path.name, mimetypes.guess_type(path.name)[0] or "application/octet-stream", content


class _Conversation:
    """A session, its runner, and the loop in which all of it lives."""

    def __init__(self, agent: BaseAgent, plugins: Sequence[BasePlugin]) -> None:
        from google.adk.apps import App
        from google.adk.runners import InMemoryRunner

        self.agent = agent
        self._runner = InMemoryRunner(app=App(name=_APP, root_agent=agent, plugins=list(plugins)))
        self._session = ""
        self._loop = _LoopThread()
        # Also at the end of the process, before the threads of the interpreter are gone.
        self._close = weakref.finalize(self, _closed, self._loop, self._runner)

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def close(self) -> None:
        self._close()

    def ask(
        self, message: str, files: Sequence[tuple[str, str, bytes]], on_event: Callable[[Event], object] | None
    ) -> Answer:
        return self._loop.wait(lambda: self._ask(message, files, on_event))

    async def _ask(
        self, message: str, files: Sequence[tuple[str, str, bytes]], on_event: Callable[[Event], object] | None
    ) -> Answer:
        from google.genai import types

        if not self._session:
            made = await self._runner.session_service.create_session(app_name=_APP, user_id=_USER)
            self._session = made.id
        parts = [types.Part(text=message)]
        for name, kind, content in files:
            parts.append(types.Part(inline_data=types.Blob(data=content, mime_type=kind, display_name=name)))
        events: list[Event] = []
        saved: dict[str, int] = {}  # by name; the version is not needed, the last one is loaded
        async for event in self._runner.run_async(
            user_id=_USER, session_id=self._session, new_message=types.Content(role="user", parts=parts)
        ):
            events.append(event)
            saved.update(event.actions.artifact_delta)
            if on_event is not None:
                on_event(event)
        return Answer(_text(events), tuple(events), await self._artifacts(saved), _errors(events), self)

    async def _artifacts(self, saved: dict[str, int]) -> dict[str, bytes]:
        service = self._runner.artifact_service
        found: dict[str, bytes] = {}
        for name in saved if service is not None else ():
            assert service is not None  # noqa: S101 - as the line above says
            part = await service.load_artifact(app_name=_APP, user_id=_USER, session_id=self._session, filename=name)
            if part is not None and part.inline_data is not None and part.inline_data.data is not None:
                found[name] = part.inline_data.data
        return found


def _text(events: Sequence[Event]) -> str:
    """The events with whole texts: pieces of a stream are repeated in the event that ends them."""
    said = [
        part.text
        for event in events
        if not event.partial and event.content is not None
        for part in event.content.parts or ()
        if part.text and not part.thought
    ]
    return "\n".join(said)


def _errors(events: Sequence[Event]) -> tuple[str, ...]:
    return tuple(
        ": ".join(filter(None, [event.error_code, event.error_message])) for event in events if event.error_code
    )


class _LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a conversation that nobody closed must not keep the process.
        self._thread = threading.Thread(target=self._loop.run_forever, name="adk-skills-conversation", daemon=True)
        self._thread.start()

    def wait(self, start: Callable[[], Coroutine[Any, Any, _Result]], seconds: float | None = None) -> _Result:
        """Wait for a coroutine that runs in the loop; when the wait is interrupted, so is the coroutine."""
        from adk_skills_agent.executors.threads import BackgroundCall

        return BackgroundCall(start, self._loop).result(seconds)

    def end_with(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what runs in the loop, run a last coroutine, for so long at most, and end the loop and its thread."""
        if threading.current_thread() is self._thread:  # the garbage collector may run anywhere
            self._loop.create_task(self._last_of_all(last))
            return
        try:
            self.wait(lambda: self._last(last), _CLOSING_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSING_SECONDS)
            if not self._thread.is_alive():
                self._loop.close()

    async def _last_of_all(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await asyncio.wait_for(self._last(last), _CLOSING_SECONDS)
        finally:
            self._loop.stop()

    async def _last(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # A task that still waits when the interpreter ends is collected there, and its cleaning up then hangs.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await last()
        await self._loop.shutdown_asyncgens()


def _closed(loop: _LoopThread, runner: Any) -> None:
    """Close the tools of a conversation in their loop, then the loop."""
    loop.end_with(runner.close)
