"""Our side of the measurements of Python sessions: code in a session that is there, and the start of one.

Options: ``level`` (``auto`` or a level's name).
"""

from __future__ import annotations

import time

from answering import Sample, answer

from adk_skills_agent import SandboxPolicy
from adk_skills_agent.sandbox import SessionLimits, SessionRequest, Sessions
from adk_skills_agent.sandbox.local.sessions import LocalSessions

CODE = "print('hello')"


def _kept(options: dict[str, object]) -> tuple[Sessions, SessionRequest]:
    level = str(options.get("level", "auto"))
    policy = SandboxPolicy(isolation=level, min_isolation="landlock" if level == "auto" else level)
    return Sessions(LocalSessions(), SessionLimits(executions=1_000_000)), SessionRequest(CODE, policy)


async def in_a_session(options: dict[str, object]) -> Sample:
    """One execution; the session is there already."""
    sessions, request = _kept(options)
    level = (await sessions.execute("a", request)).isolation.level.value

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        result = await sessions.execute("a", request)
        seconds = time.perf_counter() - start
        assert result.stdout == b"hello\n"
        assert not result.session_reset
        return {"seconds": seconds, "level": level}

    return sample


async def in_a_new_session(options: dict[str, object]) -> Sample:
    """The first execution of a session, its start included."""
    sessions, request = _kept(options)
    level = (await sessions.execute("first", request)).isolation.level.value
    number = 0

    async def sample() -> dict[str, object]:
        nonlocal number
        number += 1
        start = time.perf_counter()
        result = await sessions.execute(f"session {number}", request)
        seconds = time.perf_counter() - start
        assert result.stdout == b"hello\n"
        await sessions.reset_state()
        return {"seconds": seconds, "level": level}

    return sample


if __name__ == "__main__":
    answer({"in-a-session": in_a_session, "in-a-new-session": in_a_new_session})
