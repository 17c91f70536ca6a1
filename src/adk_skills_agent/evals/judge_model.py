"""A model that is asked for verdicts: samples, further tries, a cache, and the tokens of it all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from adk_skills_agent.errors import ConfigError, JudgeUnavailable
from adk_skills_agent.evals.row_file import MAX_ROW_VALUES, lines_of
from adk_skills_agent.evals.trace import Usage, text_of, usage_of
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW
from adk_skills_agent.settings import parsed_json

if TYPE_CHECKING:
    from google.adk.models import BaseLlm


DEFAULT_JUDGE = "gemini-2.5-flash"
WAITS = (2.0, 4.0, 8.0, 16.0)
"""Seconds before each further try when the service is busy (S0-150)."""
_ASKED_AGAIN = 2  # when an answer lacks a verdict
_AT_ONCE = 8
_LONGEST_SECONDS = 120.0


class Question(Protocol):
    """A prompt and how to read what is answered to it."""

    @property
    def system(self) -> str:
        """The system instruction."""

    @property
    def text(self) -> str:
        """The user's message."""

    def read(self, answer: str) -> tuple[Any, str]:
        """What an answer says, as JSON values, and what is wrong with it (empty when nothing is)."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What is asked for."""

    identity: Sequence[Any]  # what tells it from other inquiries, as JSON values: the same is not paid twice
    # makes the prompt; each try gets one of its own, with a key that nobody could foresee
    question: Callable[[], Question]
    whole: Callable[[Any], bool] = lambda _: True  # whether an answer that was kept says everything that is asked


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered."""

    value: Any  # as :meth:`Question.read` gave it; from a file, tuples are lists
    usage: Usage
    cached: bool


class JudgeModel:
    """Asks a model; what is temporary is tried again, what cannot be read is asked again, what is known is not asked.

    Args:
        llm: Any google-adk model, or the name of one.
        samples: How often each question is asked; odd, so that there is a majority.
        cache: Keeps answers; None keeps them in memory.
        waits: Seconds before each further try on 429, 503 and a lost connection; empty tries once.
        temperature: Of the model; None leaves its default, which makes samples differ.
        sleep: Waits; for tests.

    Raises:
        ConfigError: ``samples`` is below 1, or the model cannot be used.
    """

    def __init__(
        self,
        llm: BaseLlm | str = DEFAULT_JUDGE,
        *,
        samples: int = 3,
        cache: JudgeCache | None = None,
        waits: Sequence[float] = WAITS,
        temperature: float | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if samples < 1:
            raise ConfigError(f"A judge needs at least 1 sample, not {samples}.")
        if isinstance(llm, str):
            from adk_skills_agent.evals.models import model_named

            llm = model_named(llm)
        self.llm = llm
        self.samples = samples
        self.cache = cache if cache is not None else JudgeCache()
        self.waits = tuple(waits)
        self.temperature = temperature
        self._sleep = sleep
        self._turnstiles: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    @property
    def name(self) -> str:
        """The model's name."""
        return self.llm.model

    async def ask(self, inquiries: Sequence[Inquiry], spend: Callable[[Usage], object]) -> list[Reply]:
        """Ask them side by side.

        ``spend`` is told the tokens of every answer, also of those that were no use. Raises ``JudgeUnavailable`` when
        the model cannot be reached, or one of the answers cannot be read.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._caught(one, spend)) for one in inquiries]
        replies = []
        for task in tasks:
            reply = task.result()
            if isinstance(reply, JudgeUnavailable):
                raise reply
            replies.append(reply)
        return replies

    async def _caught(self, inquiry: Inquiry, spend: Callable[[Usage], object]) -> Reply | JudgeUnavailable:
        # An exception would cancel the other questions, whose answers are already paid.
        try:
            return await self._ask(inquiry, spend)
        except JudgeUnavailable as error:
            return error

    async def _ask(self, inquiry: Inquiry, spend: Callable[[Usage], object]) -> Reply:
        key = question_key(self.name, {"temperature": self.temperature}, inquiry.identity)
        known = self.cache.get(key)
        if known is not None and inquiry.whole(known):
            return Reply(known, Usage(), cached=True)
        usage, problem = Usage(), ""
        for _ in range(1 + _ASKED_AGAIN):
            asked = inquiry.question()
            answer, used = await self._answer(asked)
            usage += used
            spend(used)
            value, problem = asked.read(answer)
            if not problem:
                self.cache.put(key, value)
                return Reply(value, usage, cached=False)
        raise JudgeUnavailable(
            f"The judge {self.name} was asked {1 + _ASKED_AGAIN} times and its last answer has {problem}. "
            "Choose another model with --judge."
        )

    async def _answer(self, asked: Question) -> tuple[str, Usage]:
        """One answer; what is temporary is tried again."""
        for wait in (*self.waits, None):
            try:
                async with self._turnstile(), asyncio.timeout(_LONGEST_SECONDS):
                    return await self._request(asked)
            except JudgeUnavailable:
                raise
            except Exception as error:
                if wait is None or not is_temporary(error):
                    raise JudgeUnavailable(f"The judge {self.name} gave no answer: {sentence_of(error)}") from error
            await self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _request(self, asked: Question) -> tuple[str, Usage]:
        from google.adk.models.llm_request import LlmRequest
        from google.genai import types

        request = LlmRequest(
            model=self.llm.model,
            contents=[types.Content(role="user", parts=[types.Part(text=asked.text)])],
            config=types.GenerateContentConfig(system_instruction=asked.system, temperature=self.temperature),
        )
        text, usage = "", Usage()
        async for response in self.llm.generate_content_async(request):
            if response.error_code:
                said = ": ".join(filter(None, [response.error_code, response.error_message]))
                raise JudgeUnavailable(f"The judge {self.name} gave no answer: {said}")
            if not response.partial:
                text += text_of(response.content)
            if response.usage_metadata is not None:
                usage += usage_of(response.usage_metadata)
        return text, usage

    def _turnstile(self) -> asyncio.Semaphore:
        """A semaphore of the running loop: a judge may serve one loop after another."""
        loop = asyncio.get_running_loop()
        for other in [one for one in self._turnstiles if one.is_closed()]:
            del self._turnstiles[other]
        return self._turnstiles.setdefault(loop, asyncio.Semaphore(_AT_ONCE))


# Answers of a judge that were already given, by content: the same question is not paid twice.


class JudgeCache:
    """Answers by the content of the question; JSON values.

    ``path`` is a JSON Lines file that keeps them; None keeps them in memory. A line that cannot be read is passed over:
    the judge is then asked again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.hits = 0
        self._answers: dict[str, Any] = {}
        if path is not None and path.is_file():
            for _, _, line in lines_of(path):
                try:
                    entry = parsed_json(line, MAX_ROW_VALUES)
                    self._answers[entry["key"]] = entry["votes"]
                except (ValueError, KeyError, TypeError):
                    continue

    def get(self, key: str) -> Any:
        """The answer given to a question, or None."""
        answer = self._answers.get(key)
        self.hits += answer is not None
        return answer

    def put(self, key: str, answer: Any) -> None:
        """Keep the answer given to a question."""
        self._answers[key] = answer
        if self.path is not None:
            line = json.dumps({"key": key, "votes": answer}) + "\n"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | O_CLOEXEC | O_NOFOLLOW  # as a RowFile (row 186)
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)


def question_key(model: str, settings: Mapping[str, Any], identity: Sequence[Any]) -> str:
    """What identifies a question: the model, and everything it would be told except the random key."""
    asked = [model, dict(settings), list(identity)]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()


# What a model's service raises, whichever google-adk model talks to it: temporary or not, and one sentence of it.

TEMPORARY = frozenset((408, 429, 500, 502, 503, 504, 529))
"""HTTP statuses after which the same request may succeed."""
_SERVICES = (
    "google.genai",
    "google.api_core",
    "google.auth",
    "httpx",
    "httpcore",
    "aiohttp",
    "litellm",
    "openai",
    "anthropic",
)
_MOST_CHARS = 500
_OBJECT = re.compile(r"\S{0,80}<[\w.]+ object at 0x[0-9a-f]+>")  # aiohttp shows its SSL context


def status_of(error: BaseException) -> int | None:
    """The HTTP status an error carries, if any."""
    for name in ("code", "status_code", "status"):
        value = getattr(error, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def is_temporary(error: BaseException) -> bool:
    """Whether the same request may succeed later: busy, overloaded, out of reach, too slow."""
    status = status_of(error)
    if status is not None:
        return status in TEMPORARY
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return _service(error) in ("httpx", "httpcore", "aiohttp") and "Invalid" not in type(error).__name__


def is_of_the_service(error: BaseException) -> bool:
    """Whether the model's service, or the way to it, is what failed; not the agent and not its tools."""
    return isinstance(error, ConnectionError) or bool(_service(error))


def sentence_of(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(_OBJECT.sub("", str(error)).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:_MOST_CHARS]


def _service(error: BaseException) -> str:
    # google-adk's own error for 429 is a subclass of google-genai's.
    modules = [kind.__module__ for kind in type(error).__mro__]
    return next(
        (name for name in _SERVICES for module in modules if module == name or module.startswith(f"{name}.")), ""
    )
