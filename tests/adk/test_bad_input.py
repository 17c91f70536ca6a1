"""Whatever a model passes: a code and a sentence of at most 200 characters, never an exception (issue 4, Bad input)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from google.adk.skills import load_skill_from_dir
from tool_calls import agent_with, many_calls

from adk_skills_agent.adk.skill_toolset import SkillToolset

HUGE = "x" * 200_000
WRONG: list[Any] = [None, "", 7, 1.5, True, False, [], ["a"], {}, {"a": 1}, "\0", "a\0b", HUGE, " ", "\n", "é" * 300]
PATHS: list[Any] = [
    *WRONG,
    "../../../etc/passwd",
    "scripts/../../../etc/passwd",
    "/etc/passwd",
    "~/.ssh/id_rsa",
    "scripts\\..\\..\\x",
    "C:\\Windows\\x",
    "scripts/",
    "references/",
    ".",
    "..",
    "scripts",
    "a/" * 5_000 + "b",
    "file:///etc/passwd",
    "%2e%2e/%2e%2e/etc/passwd",
    "/tmp/adk-skills-sessions-other/secret",
    "/proc/self/environ",
]
NAMES: list[Any] = [*WRONG, "nope", "../worker", "WORKER ", "skill:worker:session:other:agent:assistant"]
ARGS: list[Any] = [
    7,
    1.5,
    True,
    HUGE,
    "'open",
    ["a\0b"],
    [HUGE],
    ["x"] * 20_000,
    {"a": {"b": {"c": 1}}},
    {"": 1},
    {"a b": 1},
    {"a": "\0"},
    {"a\0": 1},
    [["nested"]],
    [None],
    {"x": HUGE * 10},
]
LISTS: list[Any] = [7, "a", {"a": 1}, True, ["\0"], [HUGE], [7], [None], ["../x"], [""]]
FILES: list[Any] = [*LISTS, ["other-session.txt"], ["user:theirs.txt"], ["../../etc/passwd"], ["x" * 5_000]]
NUMBERS: list[Any] = [-1, 1.5, "7", True, [], {}, 10**30, "NaN"]


def bad_calls() -> list[tuple[str, dict[str, Any]]]:
    run = {"skill_name": "worker", "file_path": "scripts/good.py"}
    read = {"skill_name": "worker", "file_path": "references/guide.md"}
    found: list[tuple[str, dict[str, Any]]] = []
    for tool, good in (("run_skill_script", run), ("load_skill_resource", read)):
        found += [(tool, good | {"skill_name": value}) for value in NAMES]
        found += [(tool, good | {"file_path": value}) for value in PATHS]
        found += [(tool, {}), (tool, {"skill_name": "worker"}), (tool, {"file_path": good["file_path"]})]
        found += [(tool, {"name": "worker", "path": "x"})]
    found += [("run_skill_script", run | {"args": value}) for value in ARGS]
    found += [("run_skill_script", run | {"short_options": value}) for value in (7, "a", [1], True, {"a": {"b": 1}})]
    found += [("run_skill_script", run | {"positional_args": value}) for value in (7, "a", {"a": 1}, ["a\0"], [HUGE])]
    found += [("run_skill_script", run | {"args": ["a"], "positional_args": ["b"]})]
    found += [("run_skill_script", run | {"files": value}) for value in FILES]
    for name in ("offset", "limit"):
        found += [("load_skill_resource", read | {name: value}) for value in NUMBERS]
    return [*found, ("load_skill_resource", read | {"limit": 0}), ("load_skill_resource", read | {"offset": 10**9})]


@pytest.fixture
def worker(make_skill: Callable[..., Path]) -> Path:
    files = {"scripts/good.py": "print('good')", "references/guide.md": "the guide"}
    return make_skill("worker", files=files).parent


@pytest.mark.behaviour(
    "better",
    "Arguments of a wrong type, with NUL, of any length",
    google="an exception, or a sentence of any length",
    ours="a code and at most 200 characters",
)
@pytest.mark.parametrize(
    "way", ["sandbox", *(pytest.param(way, marks=pytest.mark.slow) for way in ("executor", "memory"))]
)
async def test_every_wrong_argument_gets_a_code_and_a_short_sentence(
    worker: Path, rehearse: Any, ask: Any, caplog: Any, way: str
) -> None:
    if way == "sandbox":
        toolset = SkillToolset.from_dirs([worker], policy="trusted")
    elif way == "executor":
        toolset = SkillToolset.from_dirs([worker], code_executor=GoogleExecutor(timeout_seconds=20))
    else:
        toolset = SkillToolset(
            [load_skill_from_dir(worker / "worker")], code_executor=GoogleExecutor(timeout_seconds=20)
        )
    calls = bad_calls()
    # In one answer of the model: calls made together are counted, but not refused for their siblings.
    turn = json.dumps([{"name": tool, "args": args, "undeclared": True} for tool, args in calls])
    server = rehearse(f"turns:\n  - call: {turn}\n  - text: done\n")
    agent = agent_with(server, toolset)
    other = await ask(agent_with(rehearse("turns: [{text: hi}]"), toolset), "hi", artifacts={"other-session.txt": b"1"})
    answered = await ask(agent, "go")
    assert other.session_id != answered.session_id
    assert len(answered.results) == len(calls)
    accepted: list[str] = []
    for (tool, args), (name, result) in zip(calls, answered.results, strict=True):
        assert name == tool
        shown = f"{tool} {str(args)[:200]} -> {str(result)[:300]}"
        if "error_code" not in result or "stdout" in result:
            accepted.append(shown)
            continue
        assert result["error_code"] not in {"SANDBOX_ERROR", "REGISTRY_ERROR"}, shown
        assert "internal error" not in result["error"], shown
        assert 0 < len(result["error"]) <= 200, shown
        assert str(worker) not in json.dumps(result), shown
    # Every backend spells arguments our way; a catalog finds the name that was nearly right, objects have exact names.
    assert len(accepted) == {"sandbox": 4, "executor": 4, "memory": 0}[way], "\n".join(accepted)
    assert not [record for record in caplog.records if record.exc_info], caplog.text[:3000]


async def test_the_owner_gets_the_whole_sentence(worker: Path, rehearse: Any, ask: Any, caplog: Any) -> None:
    path = "/" + "deep/" * 60 + "x.py"
    server = rehearse(many_calls(("run_skill_script", {"skill_name": "worker", "file_path": path})))
    with caplog.at_level("INFO"):
        answered = await ask(agent_with(server, SkillToolset.from_dirs([worker], policy="trusted")), "go")
    assert len(answered.results[0][1]["error"]) == 200
    assert path in caplog.text
