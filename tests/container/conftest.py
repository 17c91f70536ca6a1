"""Fixtures of the tests against real engines; see ``tests/container_engines.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import container_engines
from adk_skills_agent.sandbox.container import ContainerSandbox
from container_engines import StartedEngine


@pytest.fixture(params=container_engines.ENGINES)
def engine(request: pytest.FixtureRequest) -> StartedEngine:
    """A shared engine, each in turn."""
    return container_engines.require(request.param)


@pytest.fixture
def docker_engine() -> StartedEngine:
    """Docker alone: where google-adk's class is the other side, which does not start on Podman without a bridge."""
    return container_engines.require("docker")


@pytest.fixture
def sandbox(engine: StartedEngine) -> Iterator[ContainerSandbox]:
    """A sandbox on it; nothing of it is left afterwards."""
    box = ContainerSandbox(engine.image, base_url=engine.url)
    yield box
    asyncio.run(box.close())
