"""What a model's service raises, whichever google-adk model talks to it: temporary or not, and one sentence of it."""

from __future__ import annotations

import re

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
_OBJECT = re.compile(r"\S*<[\w.]+ object at 0x[0-9a-f]+>")  # aiohttp shows its SSL context


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
