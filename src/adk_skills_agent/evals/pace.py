"""How fast the models of a run may be asked: requests and tokens a minute, and one back-off for everybody who asks.

One :class:`Pace` counts for a whole run. On a cluster it is an actor of Ray that all nodes ask; on one machine it is
asked directly. A model is told to ask it by :func:`keep_pace`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from adk_skills_agent.evals.judge_model import is_temporary
from adk_skills_agent.evals.trace import usage_of

if TYPE_CHECKING:
    from google.adk.models import BaseLlm
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse

_MINUTE = 60.0
_TRIES = 5
_FIRST_WAIT, _LONGEST_WAIT = 2.0, 60.0
_LOST_SECONDS = 600.0
"""A request of which nothing was heard for so long is over: its node is gone."""
_LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the models' services allow."""

    requests: int | None = None  # a minute; None for any number
    tokens: int | None = None  # a minute, of prompts and answers together; None for any number


class Pace:
    """Lets requests through so that no minute has more of them, or of tokens, than the limits.

    A request counts from when it may start until a minute after its answer, wherever in between its service saw it.
    What an answer will take is not known before; the mean of the earlier ones is expected.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._tickets = itertools.count(1)
        self._under_way: dict[int, float] = {}
        self._over: deque[tuple[float, int]] = deque()
        self._tokens = 0
        self._mean = 0.0
        self._failures = 0
        self._closed_until = 0.0

    def ask(self) -> tuple[int, float]:
        """Ask to make one request.

        Returns a ticket for :meth:`told` and 0; or 0 and the seconds after which to ask again.
        """
        now = self._clock()
        while self._over and self._over[0][0] <= now - _MINUTE:
            self._tokens -= self._over.popleft()[1]
        for ticket in [one for one, begun in self._under_way.items() if begun <= now - _LOST_SECONDS]:
            self.told(ticket, 0)
        if now < self._closed_until:
            return 0, self._closed_until - now
        active = len(self._under_way) + len(self._over)
        expected = self._tokens + self._mean * (len(self._under_way) + 1)
        limits = self._limits
        too_many = limits.requests is not None and active >= limits.requests
        too_long = limits.tokens is not None and active > 0 and expected > limits.tokens
        if too_many or too_long:
            return 0, max(self._over[0][0] + _MINUTE - now, 0.0) + 0.001 if self._over else _LOOK_AGAIN
        ticket = next(self._tickets)
        self._under_way[ticket] = now
        return ticket, 0.0

    def told(self, ticket: int, tokens: int, *, busy: bool = False) -> None:
        """Say how a request ended.

        ``busy``: the service wants to be left alone. Everybody then waits 2 s, and each time twice as long up to a
        minute.
        """
        if self._under_way.pop(ticket, None) is None:
            return
        now = self._clock()
        self._over.append((now, tokens))
        self._tokens += tokens
        if tokens:
            self._mean = tokens if not self._mean else 0.9 * self._mean + 0.1 * tokens
        if not busy:
            self._failures = 0
        elif now >= self._closed_until:  # those that were under way with it say nothing new
            self._closed_until = now + min(_FIRST_WAIT * 2**self._failures, _LONGEST_WAIT)
            self._failures += 1


class Counter(Protocol):
    """A :class:`Pace`, wherever it is."""

    async def ask(self) -> tuple[int, float]:
        """As :meth:`Pace.ask`."""

    async def told(self, ticket: int, tokens: int, *, busy: bool = False) -> None:
        """As :meth:`Pace.told`."""


class Here:
    """A :class:`Pace` of this process."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def ask(self) -> tuple[int, float]:
        """As :meth:`Pace.ask`."""
        return self._pace.ask()

    async def told(self, ticket: int, tokens: int, *, busy: bool = False) -> None:
        """As :meth:`Pace.told`."""
        self._pace.told(ticket, tokens, busy=busy)


def keep_pace(model: BaseLlm, counter: Counter) -> BaseLlm:
    """Let a model ask before each request, and try again what its service was too busy for, five times in all.

    The model itself is changed: google-adk looks at its class, so it stays what it is. Returns the model.
    """
    inner = model.generate_content_async

    async def once(request: LlmRequest, stream: bool, last: bool) -> AsyncGenerator[LlmResponse | None, None]:
        """The answers; None where the service was busy and may be asked again."""
        ticket, tokens, busy, begun = await _turn(counter), 0, False, False
        try:
            async for response in inner(request, stream):
                begun = True
                if response.usage_metadata is not None:
                    tokens = usage_of(response.usage_metadata).total
                yield response
        except Exception as error:
            busy = is_temporary(error)
            if last or begun or not busy:
                raise
        finally:
            await counter.told(ticket, tokens, busy=busy)
        if busy:
            yield None

    async def generate(llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        for number in range(1, _TRIES + 1):
            async for response in once(llm_request, stream, number == _TRIES):
                if response is None:
                    break
                yield response
            else:
                return

    object.__setattr__(model, "generate_content_async", generate)  # pydantic refuses what is no field
    return model


async def _turn(counter: Counter) -> int:
    """Wait until a request may start; its ticket."""
    while True:
        ticket, wait = await counter.ask()
        if ticket:
            return ticket
        await asyncio.sleep(wait)
