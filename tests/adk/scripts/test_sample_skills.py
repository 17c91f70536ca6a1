"""The skills of ``skill_script_demo`` in one long session: 9 scenarios, 15 steps (S0-120 to S0-122)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from speaking import speaking
from tool_calls import agent_with

from adk_skills_agent import SkillToolset
from adk_skills_agent.testing import GeminiServer

SKILLS = Path(__file__).resolve().parents[3] / "examples" / "agents" / "skill_script_demo" / "skills"
HELPER, BUILDER = "python-helper", "tool-server-builder"
PLAN = json.dumps([{"name": "x"}])
Step = tuple[str, dict[str, Any], str]
"""A tool, its arguments, and what its answer holds."""


def script(skill: str, path: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "run_skill_script", {"skill_name": skill, "file_path": path, **more}


def resource(skill: str, path: str) -> tuple[str, dict[str, Any]]:
    return "load_skill_resource", {"skill_name": skill, "file_path": path}


STEPS: list[Step] = [
    # discovery, loading, reading a reference
    ("list_skills", {}, BUILDER),
    ("load_skill", {"skill_name": HELPER}, "scripts/fibonacci.py: --count COUNT"),
    (*resource(HELPER, "references/usage.md"), '"content"'),
    # the three scripts of one skill, in several turns
    (*script(HELPER, "fibonacci.py", args={"count": 10}), '\\"last\\": 34'),
    (*script(HELPER, "scripts/word_count.py", args={"text": "a b a"}), '\\"words\\": 3'),
    (*script(HELPER, "json_format.py", args={"text": "{", "sort-keys": True}), '\\"valid\\": false'),
    # over to the other skill, whose script reads a file of its skill, and back
    ("load_skill", {"skill_name": BUILDER}, "references/protocol.md"),
    (*resource(BUILDER, "references/protocol.md"), '"content"'),
    (
        *script(BUILDER, "check_evaluation.py", args={"file": "scripts/example_evaluation.xml", "at-least": 1}),
        "success",
    ),
    (*script(HELPER, "fibonacci.py", args={"count": 2}), '\\"last\\": 1'),
    # what goes wrong
    (*script(HELPER, "fibonacci.py", args={"count": 0}), "--count must be from 1 to 1000"),
    (*script(HELPER, "fibonaci.py"), "SCRIPT_NOT_FOUND"),
    (*script(BUILDER, "requirements.txt"), "UNSUPPORTED_SCRIPT_TYPE"),
    (*script(BUILDER, "example_evaluation.xml"), "UNSUPPORTED_SCRIPT_TYPE"),
    ("load_skill", {"skill_name": "data-analysis"}, "SKILL_NOT_FOUND"),
]


def model() -> GeminiServer:
    turns = [f"  - {{when: {{last_tool: {tool}}}, text: fine}}" for tool in sorted({tool for tool, _, _ in STEPS})]
    for number, (tool, args, _) in enumerate(STEPS):
        call = json.dumps({"name": tool, "args": args, "undeclared": True})
        turns.append(f'  - {{when: {{user_contains: "step {number:02d}"}}, call: {call}}}')
    return GeminiServer(speaking("\n".join(["turns:", *turns])))


@pytest.mark.slow
@pytest.mark.requirement("S0-120", "S0-121", "S0-122")
async def test_fifteen_steps_of_one_session(ask: Any) -> None:
    with model() as server:
        agent = agent_with(server, SkillToolset.from_dirs([SKILLS]))
        answered = None
        for number, (_, args, expected) in enumerate(STEPS):
            answered = await ask(agent, f"step {number:02d}", session_of=answered)
            result = json.dumps(answered.results[-1][1])
            assert expected in result, f"step {number} {args}: {result}"
            assert answered.text == "fine"
        assert not server.mismatches


@pytest.mark.requirement("S0-120")
async def test_every_reference_of_the_builder_is_read(ask: Any) -> None:
    """S0-120: four references, by their names alone too."""
    for path in ("evaluation.md", "references/good-tools.md", "protocol.md", "python.md"):
        text = (
            f"turns:\n  - {{when: {{last_tool: load_skill_resource}}, text: fine}}\n  - call: {json.dumps(of(path))}\n"
        )
        with GeminiServer(speaking(text)) as server:
            answered = await ask(agent_with(server, SkillToolset.from_dirs([SKILLS])), "go")
        name = path.rpartition("/")[2]
        assert answered.results[0][1]["content"] == (SKILLS / BUILDER / "references" / name).read_text()


def of(path: str) -> dict[str, Any]:
    tool, args = resource(BUILDER, path)
    return {"name": tool, "args": args}
