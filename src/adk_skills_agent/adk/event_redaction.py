"""An event as listeners may see it: no secret in any of its texts, and none of any length."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from adk_skills_agent.sandbox.secrets import MIN_SECRET_CHARS

if TYPE_CHECKING:
    from adk_skills_agent.adk.events import Origin, SkillEvent

MAX_TEXT_CHARS = 2_000
"""Of any text in an event: a path or a query may come from a model and be of any length."""
_REMEMBERED = 512
_NAME_CHARS = 200

Redact = Callable[[str], str]


class EventRedaction:
    """Makes events that may be told.

    Args:
        redact: Takes the owner's secrets out of a text; None when there are none.
    """

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact
        # the names of sessions, skills and agents come again with every event
        self._redact_name = functools.lru_cache(maxsize=_REMEMBERED)(redact) if redact is not None else None
        self._last_origin: tuple[Origin, Origin] | None = None

    def cleaned(self, event: SkillEvent) -> SkillEvent:
        """The event, or another one when something in it must not be told."""
        changes = self._changes(event)
        origin = self._clean_origin(event.origin)
        if origin is not event.origin:
            changes["origin"] = origin
        return replace(event, **changes) if changes else event

    def _clean_origin(self, origin: Origin) -> Origin:
        last = self._last_origin
        if last is not None and last[0] is origin:  # a call's events come from one place
            return last[1]
        changes = self._changes(origin)
        clean = replace(origin, **changes) if changes else origin
        self._last_origin = origin, clean
        return clean

    def _changes(self, record: SkillEvent | Origin) -> dict[str, Any]:
        """The texts of a record that must not be as they are."""
        changes: dict[str, Any] = {}
        names, values_of = _fields_of(type(record))  # type: ignore[arg-type]  # a class can be a key
        for name, value in zip(names, values_of(record), strict=True):
            if not value or not isinstance(value, (str, tuple)):
                continue
            if isinstance(value, str) and len(value) < MIN_SECRET_CHARS:
                continue
            if (clean := self._clean(value)) is not value:
                changes[name] = clean
        return changes

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            text = self._without_secrets(value)  # before the cut: half a secret is one
            return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"
        if isinstance(value, tuple) and value:
            return tuple(self._clean(item) for item in value)
        return value

    def _without_secrets(self, text: str) -> str:
        if self._redact is None or self._redact_name is None or len(text) < MIN_SECRET_CHARS:
            return text
        return self._redact_name(text) if len(text) <= _NAME_CHARS else self._redact(text)


@functools.cache
def _fields_of(kind: type[SkillEvent | Origin]) -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]:
    """The names of a record's fields, and what gets all values at once."""
    names = tuple(own.name for own in fields(kind))
    return names, operator.attrgetter(*names)
