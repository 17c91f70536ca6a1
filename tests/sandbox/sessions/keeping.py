"""What the tests of sessions share: a backend that hosts them, and sessions of it with a policy of its level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from adk_skills_agent.sandbox.contract import ExecutionResult, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.sessions.session import SessionHost, SessionRequest
from adk_skills_agent.sandbox.sessions.sessions import SessionLimits, Sessions


@dataclass(frozen=True)
class Host:
    """One backend. ``require`` skips or fails the test when it cannot run on this machine."""

    name: str
    level: IsolationLevel
    make: Callable[[], SessionHost]
    require: Callable[[], None]
    marks: tuple[pytest.MarkDecorator, ...] = ()


PATIENT = SessionLimits(restarts=1_000_000)
"""For attacks: how often a session may break is another test's business."""


class Kept:
    """Sessions of one host, with a policy of its level."""

    def __init__(self, host: Host, limits: SessionLimits = PATIENT) -> None:
        self.sessions = Sessions(host.make(), limits)
        # Containers take no other level than their own, and need no minimum.
        self.policy = SandboxPolicy(
            isolation=host.level.value, min_isolation=host.level.value, wall_seconds=20.0, term_grace_seconds=0.3
        )

    def request(self, code: str, **settings: Any) -> SessionRequest:
        """Settings that are fields of the policy go there, the others into the request."""
        own = {name: settings.pop(name) for name in list(settings) if name in SandboxPolicy.__dataclass_fields__}
        if isinstance(own.get("env"), dict):
            settings["env"] = own.pop("env")
        return SessionRequest(code, replace(self.policy, **own), **settings)

    async def run(self, code: str, *, id: str = "a", **settings: Any) -> ExecutionResult:  # noqa: A002
        return await self.sessions.execute(id, self.request(code, **settings))

    async def value(self, code: str, *, id: str = "a", **settings: Any) -> str:  # noqa: A002
        """What code that works prints."""
        result = await self.run(code, id=id, **settings)
        assert result.status == "ok", (result.status, result.stderr.decode(), result.notes)
        return result.stdout.decode().strip()
