"""A loopback server that speaks Gemini's REST and SSE protocol and answers from rehearsed conversations or rules."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from adk_skills_agent.testing.chaos import ChaoticModel
from adk_skills_agent.testing.conversation import Answer, Conversation, Mismatch, Refusal
from adk_skills_agent.testing.gemini_http import Listener
from adk_skills_agent.testing.request import JsonObject, ModelRequest
from adk_skills_agent.testing.rules import RuleModel

if TYPE_CHECKING:
    from types import TracebackType

    from google.adk.models import BaseLlm
    from google.genai import Client

API_KEY = "rehearsed"
"""The key handed out; the server takes any."""
_POLL_SECONDS = 0.02  # how soon close() is noticed


@dataclass(frozen=True, slots=True)
class Refused:
    """A request the rehearsal does not expect, or that Gemini itself would refuse.

    Attributes:
        message: What was expected and what came.
        request: The request; None when it was not even a valid one.
    """

    message: str
    request: ModelRequest | None

    def __str__(self) -> str:
        return self.message


class GeminiServer:
    """Gemini on the loopback interface, with scripted answers; the real google-genai client talks to it.

        with GeminiServer(load_conversation("greeting.yaml")) as server:
            agent = LlmAgent(name="agent", model=server.model())
            ...
            server.assert_finished()

    A request that the conversation does not expect is answered with HTTP 400 and a sentence, and kept in
    ``mismatches``. Works as a context manager and as an asynchronous one; it leaves no thread and no socket behind.

    Args:
        conversation: What to rehearse; or a model that answers any number of conversations, by rules or in a chaotic
            way. Of several conversations, a request gets the first whose own ``when`` holds.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        remember: How many of the latest ``requests`` and ``mismatches`` are kept; None keeps every one.
    """

    def __init__(
        self,
        conversation: Conversation | Sequence[Conversation] | RuleModel | ChaoticModel,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        remember: int | None = None,
    ) -> None:
        self.scripted = conversation if isinstance(conversation, RuleModel | ChaoticModel) else None
        self.conversations: tuple[Conversation, ...] = ()
        if isinstance(conversation, Conversation):
            self.conversations = (conversation,)
        elif not isinstance(conversation, RuleModel | ChaoticModel):
            self.conversations = tuple(conversation)
        if not self.conversations and self.scripted is None:
            raise ValueError("GeminiServer needs at least one conversation")
        self._address = (host, port)
        self._lock = threading.Lock()
        self._requests: deque[ModelRequest] = deque(maxlen=remember)
        self._mismatches: deque[Refused] = deque(maxlen=remember)
        self._refusals: Counter[tuple[int, int, str]] = Counter()
        self._answered: Counter[tuple[int, int]] = Counter()
        self._responses = 0
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None

    # Life

    def start(self) -> Self:
        """Listen; ``with`` does it.

        Raises ``RuntimeError`` when it is already running, or ``OSError`` when the address cannot be used.
        """
        if self._listener is not None:
            raise RuntimeError(f"This GeminiServer already runs at {self.base_url}; use a second one.")
        self._listener = Listener(self._address, self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever,
            kwargs={"poll_interval": _POLL_SECONDS},
            name="GeminiServer",
            daemon=True,
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening, drop open connections, end every thread. Safe to call twice."""
        listener, thread = self._listener, self._thread
        self._listener = self._thread = None
        if listener is not None and thread is not None:
            listener.shutdown()
            thread.join()
            listener.drop_connections()
            listener.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # For the client

    @property
    def base_url(self) -> str:
        """Where it listens, for google-genai's ``HttpOptions(base_url=...)``.

        Raises ``RuntimeError`` when it is not running.
        """
        if self._listener is None:
            raise RuntimeError("This GeminiServer is not running. Use it in a `with` block, or call start().")
        host, port = self._listener.server_address[:2]
        name = str(host)
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def model(self, name: str = "gemini-2.5-flash", *, vertexai: bool = False) -> BaseLlm:
        """google-adk's own Gemini model, pointed at this server whatever the environment says. It does not retry.

        Args:
            name: The model's.
            vertexai: Talk as to Vertex AI; google-genai keeps ``finish_message`` only there.
        """
        from google.adk.models import Gemini

        arguments = {**self._client_arguments(), "vertexai": vertexai}
        return Gemini(model=name, base_url=self.base_url, client_kwargs=arguments)

    def client(self) -> Client:
        """A google-genai client, pointed at this server whatever the environment says. Close it after use."""
        from google.genai import Client
        from google.genai.types import HttpOptions

        arguments = self._client_arguments()
        options = HttpOptions.model_validate({**arguments.pop("http_options"), "base_url": self.base_url})
        return Client(**arguments, http_options=options)

    def environment(self) -> dict[str, str]:
        """Variables that point a google-genai client in another process at this server."""
        unproxied = [os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or "", str(self._address[0])]
        no_proxy = ",".join(filter(None, unproxied))
        return {
            "GOOGLE_GEMINI_BASE_URL": self.base_url,
            "GOOGLE_API_KEY": API_KEY,
            "GOOGLE_GENAI_USE_ENTERPRISE": "false",
            "GOOGLE_GENAI_USE_VERTEXAI": "false",
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
        }

    @staticmethod
    def _client_arguments() -> JsonObject:
        # trust_env: a proxy of the environment must not get requests to the loopback interface.
        direct = {"client_args": {"trust_env": False}, "async_client_args": {"trust_env": False}}
        return {"api_key": API_KEY, "vertexai": False, "http_options": direct}

    # For assertions

    @property
    def requests(self) -> list[ModelRequest]:
        """Every valid request so far (or the latest, see ``remember``), in the order of arrival, expected or not."""
        with self._lock:
            return list(self._requests)

    @property
    def mismatches(self) -> list[Refused]:
        """Every request that was not expected, or not valid."""
        with self._lock:
            return list(self._mismatches)

    def assert_finished(self) -> None:
        """Check that every turn of every conversation was answered, and that nothing else was asked.

        Raises:
            AssertionError: With a line for each thing that is not so.
        """
        with self._lock:
            problems = [f"Not expected: {mismatch}" for mismatch in self._mismatches]
            for c, conversation in enumerate(self.conversations):
                problems += [
                    f"Turn {t + 1} of conversation {conversation.name!r} ({conversation.source}:{turn.line}) "
                    "was never asked for."
                    for t, turn in enumerate(conversation.turns)
                    if not self._answered[c, t]
                ]
        if problems:
            raise AssertionError("\n".join(["The rehearsed conversation did not go as written.", *problems]))

    # For the handler

    def respond(self, request: ModelRequest) -> tuple[Answer | Refusal, str]:
        """The reply to a valid request, and its response id. Raises ``Mismatch`` when no conversation expects it."""
        with self._lock:
            self._requests.append(request)
            self._responses += 1
            response_id = f"rehearsed-{self._responses}"
        try:
            if self.scripted is not None:
                # Calls are named after it: the same conversation gets the same ids, whatever else is going on.
                return self.scripted.reply(request), f"scripted-{_digest(request)}"
            number, conversation = self._conversation_for(request)
            index, turn = conversation.turn_for(request)
            refusal = turn.refusal
            if refusal is not None and (
                refusal.times is None or self._take_refusal(number, index, request, refusal.times)
            ):
                if turn.answer is None:
                    self._count_answer(number, index)
                return refusal, response_id
            answer = conversation.filled(index, request)
        except Mismatch as mismatch:
            self.refuse(mismatch.message, request)
            raise
        self._count_answer(number, index)
        return answer, response_id

    def count(self, request: ModelRequest) -> None:
        """Record a ``countTokens`` request."""
        with self._lock:
            self._requests.append(request)

    def refuse(self, message: str, request: ModelRequest | None = None) -> None:
        """Record a request that was not expected, or not valid."""
        with self._lock:
            self._mismatches.append(Refused(message, request))

    def _conversation_for(self, request: ModelRequest) -> tuple[int, Conversation]:
        objections = []
        for number, conversation in enumerate(self.conversations):
            objection = conversation.when.objection(request)
            if objection is None:
                return number, conversation
            objections.append(f"{conversation.name!r} expected {objection}")
        raise Mismatch(f"No conversation is for this request: {'; '.join(objections)}")

    def _take_refusal(self, number: int, index: int, request: ModelRequest, times: int) -> bool:
        with self._lock:
            self._refusals[number, index, request.fingerprint] += 1
            return self._refusals[number, index, request.fingerprint] <= times

    def _count_answer(self, number: int, index: int) -> None:
        with self._lock:
            self._answered[number, index] += 1


def _digest(request: ModelRequest) -> str:
    return hashlib.sha256(request.fingerprint.encode()).hexdigest()[:16]
