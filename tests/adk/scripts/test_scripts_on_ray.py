"""An agent whose scripts run on a Ray cluster: nothing is different, and one that is lost is told."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from script_skill import FILES, result_of, run

import level_table
from adk_skills_agent.adk.skill_toolset import SkillToolset
from ray_nodes import Nodes, shared_nodes

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray: the extra cluster")
    level_table.require("namespaces")
    found = shared_nodes()
    monkeypatch.setenv("RAY_ADDRESS", found.address)
    return found


async def test_a_script_runs_there_and_a_lost_one_is_an_answer_of_its_own(
    nodes: Nodes, make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    files = {**FILES, "scripts/slow.py": "import time\ntime.sleep(60)\n"}
    toolset = SkillToolset.from_dirs([make_skill("tools", files=files).parent], sandbox="ray")
    try:
        server = rehearse(run("hello.py", args={"top": 3}, positional_args=["x y"]))
        result = await result_of(ask, server, toolset)
        assert (result["stdout"], result["return_code"]) == ("hello --top 3 x y\n", 0), result
        asking = asyncio.ensure_future(result_of(ask, rehearse(run("slow.py")), toolset))
        await asyncio.sleep(4.0)
        assert not asking.done()
        for worker in nodes.workers():
            worker.kill()
        lost = await asyncio.wait_for(asking, 60)
        assert lost["error_code"] == "RUN_LOST", lost
        assert "was not run again" in str(lost["error"])
    finally:
        await toolset.close()
