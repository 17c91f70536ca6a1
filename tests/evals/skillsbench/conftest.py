from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import container_engines
from adk_skills_agent.evals.skillsbench.local_mode import LocalMode, open_local_mode


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where roots and layers are kept; another folder can be named, so that the root is not made each time."""
    named = os.environ.get("ADK_SKILLS_TEST_STORE")
    return Path(named) if named else tmp_path_factory.mktemp("skillsbench-store")


@pytest.fixture
async def local(store: Path) -> AsyncIterator[LocalMode]:
    mode = open_local_mode(store)
    try:
        yield mode
    finally:
        await mode.close()


@pytest.fixture(params=container_engines.ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> container_engines.StartedEngine:
    pytest.importorskip("docker")
    found = container_engines.require(request.param)
    monkeypatch.setenv("DOCKER_HOST", found.url)
    return found
