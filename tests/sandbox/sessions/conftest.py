"""The conformance suite of sessions: whatever can host them is an entry of ``HOSTS`` and passes every row."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import pytest
from keeping import Host, Kept

import level_table
from adk_skills_agent.sandbox.contract import IsolationLevel
from adk_skills_agent.sandbox.session_channel import SessionHost

SLOW = (pytest.mark.slow,)


def _local() -> SessionHost:
    from adk_skills_agent.sandbox.local.session_host import LocalSessions

    return LocalSessions()


# What does not differ between them is tested on one with a file system of its own and one without; the others, and
# every backend that needs an engine, belong to the slow tests. test_session_levels.py has a little of all for each.
LOCAL_LEVELS = {"namespaces": (), "landlock": (), "cgroup": SLOW, "seccomp": SLOW, "process": SLOW}
HOSTS = tuple(
    Host(name, IsolationLevel(name), _local, functools.partial(level_table.require, name), marks)
    for name, marks in LOCAL_LEVELS.items()
)


@pytest.fixture(params=[pytest.param(host, id=host.name, marks=host.marks) for host in HOSTS])
def host(request: pytest.FixtureRequest) -> Host:
    chosen: Host = request.param
    chosen.require()
    return chosen


@pytest.fixture
async def kept(host: Host, nothing_left: None) -> AsyncIterator[Kept]:
    found = Kept(host)
    try:
        yield found
    finally:
        await found.sessions.close()
