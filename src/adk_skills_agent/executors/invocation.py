"""Whose turn a run belongs to, for executors of others that keep something in the agent's session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_invocation: ContextVar[Any] = ContextVar("adk_skills_invocation", default=None)


@contextmanager
def on_behalf_of(invocation_context: object) -> Iterator[None]:
    """Runs inside the block know the invocation, also those that go on in another thread or loop."""
    before = _invocation.set(invocation_context)
    try:
        yield
    finally:
        _invocation.reset(before)


def current_invocation() -> Any:
    """google-adk's ``InvocationContext`` of the turn; None outside of one."""
    return _invocation.get()
