"""An agent whose executor is stateful: its code keeps a state, and so do the scripts of each of its skills (S0-110)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.skills import load_skill_from_dir
from tool_calls import agent_with, many_calls

import level_table
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.executors import LocalSandboxCodeExecutor

# A script's own names are not a session's; its modules and files are.
COUNT = """
import os, sys
sys.modules.setdefault("kept_by_the_session", type(sys)("kept_by_the_session"))
module = sys.modules["kept_by_the_session"]
module.count = getattr(module, "count", 0) + 1
print("run", module.count)
"""


@pytest.fixture
def executor() -> Iterator[LocalSandboxCodeExecutor]:
    level_table.require("namespaces")
    made = LocalSandboxCodeExecutor(stateful=True)
    yield made
    made.close()


async def test_scripts_of_one_skill_share_a_state_and_skills_do_not(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, executor: LocalSandboxCodeExecutor
) -> None:
    files = {"scripts/count.py": COUNT, "scripts/made.py": "open('report.csv', 'w').write('a,b')\n"}
    skills = [load_skill_from_dir(make_skill(name, files=files)) for name in ("tools", "other")]
    toolset = SkillToolset(skills, code_executor=executor, save_output_artifacts=True)

    def call(skill: str, path: str = "scripts/count.py") -> tuple[str, dict[str, Any]]:
        return "run_skill_script", {"skill_name": skill, "file_path": path}

    server = rehearse(many_calls(call("tools"), call("tools"), call("other"), call("tools", "scripts/made.py")))
    answered = await ask(agent_with(server, toolset), "go")
    results = [dict(result) for _, result in answered.results]
    assert [result["stdout"] for result in results[:3]] == ["run 1\n", "run 2\n", "run 1\n"]
    # What a script leaves comes back as with any executor.
    assert results[3]["status"] == "success", results[3]
    assert "report.csv" in str(results[3])
    other, tools = sorted(health.session_id for health in executor.session_health())
    assert (":skill:other:session:" in other, ":skill:tools:session:" in tools) == (True, True)


async def test_the_code_of_an_agent_and_its_scripts_have_different_states(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, executor: LocalSandboxCodeExecutor
) -> None:
    """An agent with a code executor runs the code its model writes, and keeps its state over the turns."""
    server = rehearse(
        "turns:\n"
        "  - text: |\n      ```tool_code\n      x = 20\n      print('one', x)\n      ```\n"
        "  - text: |\n      ```tool_code\n      print('two', x + 22)\n      ```\n"
        "  - text: done\n"
    )
    agent = LlmAgent(name="assistant", model=server.model(), instruction="Compute.", code_executor=executor)
    await ask(agent, "go")
    shown = str([request.body for request in server.requests])
    assert "one 20" in shown
    assert "two 42" in shown
