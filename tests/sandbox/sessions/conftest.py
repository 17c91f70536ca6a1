"""The conformance suite of sessions: whatever can host them is an entry of ``HOSTS`` and passes every row."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections.abc import AsyncIterator, Iterator

import pytest
from keeping import Host, Kept

import container_engines
import level_table
from adk_skills_agent.sandbox.contract import IsolationLevel, Sandbox
from adk_skills_agent.sandbox.sessions.session import SessionHost

SLOW = (pytest.mark.slow,)


def _local() -> SessionHost:
    from adk_skills_agent.sandbox.local.sessions import LocalSessions

    return LocalSessions()


_sandboxes: list[Sandbox] = []


@pytest.fixture(autouse=True)
def closed_sandboxes() -> Iterator[None]:
    """Containers that wait for more sessions are the sandbox's, and end with it."""
    yield
    while _sandboxes:
        asyncio.run(_sandboxes.pop().close())


def _in(engine: str) -> SessionHost:
    from adk_skills_agent.sandbox.container import ContainerSandbox

    found = container_engines.shared(engine)
    _sandboxes.append(ContainerSandbox(found.image, base_url=found.url))
    host = _sandboxes[-1].session_host()
    assert host is not None
    return host


def _on_nodes() -> SessionHost:
    from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
    from ray_nodes import shared_nodes

    sandbox = RaySandbox(shared_nodes().address, max_workers=1, runs_per_worker=64, cpus=0.1)
    _sandboxes.append(sandbox)
    return sandbox.session_host()


def _require_nodes() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray: the extra cluster")
    level_table.require("namespaces")


def _require(engine: str) -> None:
    container_engines.require(engine)


# What does not differ between levels is tested on one of them; the others, and every backend that needs an engine,
# belong to the slow tests. test_session_levels.py has a little of all for each level.
LOCAL_LEVELS = {"namespaces": (), "landlock": SLOW, level_table.UNGROUPED: SLOW, "process": SLOW}
HOSTS = (
    *(
        Host(name, IsolationLevel(level), _local, functools.partial(level_table.require, level), marks)
        for name, marks in LOCAL_LEVELS.items()
        for level in [name.partition("-")[0]]
    ),
    *(
        Host(name, IsolationLevel.CONTAINER, functools.partial(_in, name), functools.partial(_require, name), SLOW)
        for name in container_engines.ENGINES
    ),
    Host("ray", IsolationLevel.NAMESPACES, _on_nodes, _require_nodes, SLOW),
)


@pytest.fixture(params=[pytest.param(host, id=host.name, marks=host.marks) for host in HOSTS])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Host:
    chosen: Host = request.param
    if chosen.name == level_table.UNGROUPED:
        level_table.enter(chosen.name, monkeypatch)
    chosen.require()
    return chosen


# Minutes each: the levels that are left out run the very same program.
SOAKED = [host for host in HOSTS if host.name not in {level_table.UNGROUPED, "process"}]


@pytest.fixture(params=[pytest.param(host, id=host.name, marks=host.marks) for host in SOAKED])
def soaked(request: pytest.FixtureRequest) -> Host:
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
