"""A real Ray cluster of this machine for the tests of ``sandbox="ray"``."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import level_table
from adk_skills_agent.sandbox.contract import ExecutionRequest, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
from ray_nodes import Nodes, shared_nodes


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray: the extra cluster")
    level_table.require("namespaces")
    found = shared_nodes()
    yield found
    assert found.left() == []


@pytest.fixture
def on_nodes(nodes: Nodes) -> Iterator[Callable[..., RaySandbox]]:
    """Makes sandboxes on the cluster, which end with the test."""
    made: list[RaySandbox] = []

    def make(**options: Any) -> RaySandbox:
        made.append(RaySandbox(nodes.address, **{"cpus": 0.1, "max_workers": 1, **options}))
        return made[-1]

    yield make
    for sandbox in made:
        asyncio.run(sandbox.close())


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "skill"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: skill\ndescription: on nodes\n---\n")
    return folder


@pytest.fixture
def asked(skill: Path) -> Callable[..., ExecutionRequest]:
    """Requests to run Python code as a script of the skill."""

    def make(code: str, *arguments: str, **settings: Any) -> ExecutionRequest:
        script = skill / "scripts" / f"run_{abs(hash(code))}.py"
        if not script.exists():
            script.write_text(code)
        policy = {name: settings.pop(name) for name in list(settings) if name in SandboxPolicy.__dataclass_fields__}
        return ExecutionRequest(
            ("python3", f"/skill/scripts/{script.name}", *arguments),
            SandboxPolicy(**{"wall_seconds": 20.0, **policy}),
            mounts=(ReadOnlyMount(skill),),
            **settings,
        )

    return make
