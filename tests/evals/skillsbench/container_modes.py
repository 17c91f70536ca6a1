"""Container mode with the engine of a test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.skillsbench.container_mode import LABEL, ContainerMode, open_container_mode
from adk_skills_agent.evals.skillsbench.engine_options import read_engine_options


@contextlib.asynccontextmanager
async def opened_mode(store: Path, **options: Any) -> AsyncIterator[ContainerMode]:
    """With bases of packages. Docker of the tests has no bridge, so builds get no network; no container may be left."""
    import docker

    given = {"packages": store / "roots", "build_network": "none", **options}
    mode = open_container_mode(read_engine_options(**given))
    client = docker.from_env(timeout=300)
    try:
        yield mode
        assert not client.containers.list(all=True, filters={"label": LABEL})
    finally:
        client.close()
        await mode.close()
