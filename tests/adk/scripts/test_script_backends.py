"""Which way a script is run, and what each way does (S0-1 to S0-11, S0-43 to S0-70, rows E1 to E16)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.code_executors import BuiltInCodeExecutor
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from google.adk.skills import load_skill_from_dir
from script_skill import FILES, Recording, result_of, run
from tool_calls import agent_with, many_calls

from adk_skills_agent.adk.events.events import ScriptFinished, ScriptStarted
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.executors import LocalSandboxCodeExecutor, UnsafeLocalCodeExecutor


@pytest.fixture
def tools(make_skill: Callable[..., Path]) -> Path:
    return make_skill("tools", files=FILES).parent


@pytest.mark.behaviour("same", "Which executor runs a script", ours="the toolset's, then the agent's")
@pytest.mark.requirement("S0-11")
async def test_the_toolsets_executor_comes_before_the_agents(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-11, and the private attribute that agent_executor reads: this fails loudly when it goes away."""
    theirs, agents = Recording(), Recording()
    toolset = SkillToolset([load_skill_from_dir(tools / "tools")], code_executor=theirs)
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=agents)
    assert (result["stdout"], len(theirs.inputs), len(agents.inputs)) == ("ran\n", 1, 0)
    toolset = SkillToolset([load_skill_from_dir(tools / "tools")])
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=agents)
    assert (result["stdout"], len(agents.inputs)) == ("ran\n", 1)


class BareExecutor:
    """Not of google-adk's class, and without any of its settings; its results have the one field they need."""

    def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
        return SimpleNamespace(stdout="ran\n")


class BareEnvironment:
    """Likewise for environments: no flag, nothing to begin or to close."""

    def __init__(self, folder: Path) -> None:
        self.working_dir = folder

    async def execute(self, command: str, *, timeout: float | None = None) -> Any:
        return SimpleNamespace(stdout="ran\n")

    async def read_file(self, path: Path) -> bytes:
        return Path(path).read_bytes()

    async def write_file(self, path: Path, content: str | bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content.encode() if isinstance(content, str) else content)


async def test_an_executor_that_lacks_google_adks_attributes_runs_scripts(tools: Path, rehearse: Any, ask: Any) -> None:
    for more in ({}, {"save_output_artifacts": True}):
        toolset = SkillToolset([load_skill_from_dir(tools / "tools")], code_executor=BareExecutor(), **more)
        result = await result_of(ask, rehearse(run("hello.py")), toolset)
        assert (result["stdout"], result["stderr"], result["status"]) == ("ran\n", "", "success")
        assert "return_code" not in result


async def test_an_environment_that_lacks_google_adks_attributes_runs_scripts(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any
) -> None:
    environment = BareEnvironment(tmp_path)
    toolset = SkillToolset([load_skill_from_dir(tools / "tools")], environment=environment)  # type: ignore[arg-type]
    result = await result_of(ask, rehearse(run("hello.py")), toolset)
    assert (result["stdout"], result["stderr"], result["status"]) == ("ran\n", "", "success")
    assert (result["return_code"], result["timed_out"]) == (0, False)
    await toolset.close()


@pytest.mark.requirement("S0-30")
async def test_the_built_in_executor_runs_nothing_here(tools: Path, rehearse: Any, ask: Any) -> None:
    """google/adk-python #5524: there it ends in an error of Python."""
    toolset = SkillToolset([load_skill_from_dir(tools / "tools")])
    server = rehearse(run("hello.py"))
    agent = agent_with(server, toolset)
    agent.code_executor = None
    result = dict((await ask(agent, "go")).results[0][1])
    assert result["error_code"] == "NO_CODE_EXECUTOR"
    context = type("Context", (), {"_invocation_context": type("I", (), {"agent": type("A", (), {})()})()})()
    context._invocation_context.agent.code_executor = BuiltInCodeExecutor()
    from adk_skills_agent.adk.running.runner import agent_executor

    assert agent_executor(context) is None


async def test_the_lazy_way_runs_scripts_in_our_sandbox(tools: Path, rehearse: Any, ask: Any) -> None:
    seen: list[Any] = []
    toolset = SkillToolset.from_dirs([tools], policy="trusted", on_event=seen.append)
    server = rehearse(run("hello.py", args={"top": 3, "verbose": True}, positional_args=["x y"]))
    result = await result_of(ask, server, toolset)
    assert result["stdout"] == "hello --top 3 --verbose x y\n"
    assert result["return_code"] == 0
    assert result["timed_out"] is False
    started = next(event for event in seen if isinstance(event, ScriptStarted))
    finished = next(event for event in seen if isinstance(event, ScriptFinished))
    assert started.run == finished.run
    assert started.version
    assert (finished.status, finished.exit_code, finished.executor) == ("success", 0, "sandbox")
    assert finished.level
    assert sum(isinstance(event, ScriptFinished) for event in seen) == 1


@pytest.mark.behaviour(
    "better", "Files between two runs of a session", google="gone", ours="in the workspace; artifacts come in by name"
)
@pytest.mark.requirement("S0-66")
async def test_files_come_in_by_name_and_the_workspace_lasts(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-66, issue item 6."""
    call = ("run_skill_script", {"skill_name": "tools", "file_path": "seen.py", "files": ["data.csv"]})
    server = rehearse(many_calls(call, call))
    agent = agent_with(server, SkillToolset.from_dirs([tools], policy="trusted"))
    answered = await ask(agent, "go", artifacts={"data.csv": b"1,2"})
    assert [result["stdout"] for _, result in answered.results] == ["1,2 False\n", "1,2 True\n"]


@pytest.mark.behaviour(
    "better",
    "Files a script leaves",
    google="lost unless `save_output_artifacts`",
    ours="artifacts; what was skipped and why is said",
)
async def test_what_a_script_leaves_becomes_artifacts_and_what_does_not_fit_is_said(
    tools: Path, rehearse: Any, ask: Any
) -> None:
    answered = await ask(agent_with(rehearse(run("write.py")), SkillToolset.from_dirs([tools])), "go")
    result = answered.results[0][1]
    assert result["saved_artifacts"] == ["out/report.csv"]
    assert result["skipped_artifacts"] == ["big.bin"]
    assert result["skipped_files"][0]["reason"]
    assert await answered.artifact("out/report.csv") == b"a,b"


@pytest.mark.behaviour(
    "better",
    "`script_timeout` of a Python script",
    google="ignored",
    ours="holds, with the output until then",
    readme=13,
)
@pytest.mark.requirement("S0-13", "S0-74")
async def test_the_script_timeout_holds_in_our_sandbox(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-13, S0-74: for Python too."""
    toolset = SkillToolset.from_dirs([tools], policy="trusted", script_timeout=3)
    result = await result_of(ask, rehearse(run("slow.py")), toolset)
    assert (result["status"], result["reason"], result["timed_out"], result["return_code"]) == (
        "error",
        "timeout",
        True,
        -1,
    )
    assert "started" in result["stdout"]


@pytest.mark.parametrize("make", [UnsafeLocalCodeExecutor, LocalSandboxCodeExecutor])
async def test_our_executors_run_the_script_itself(
    tools: Path, rehearse: Any, ask: Any, make: Any, recwarn: Any
) -> None:
    """All languages, no program around the script; skills in memory and on disk."""
    for skills in ([load_skill_from_dir(tools / "tools")], None):
        executor = make(timeout_seconds=20)
        settings: dict[str, Any] = {"code_executor": executor, "interpreters": {".txt": ["cat"]}}
        toolset = SkillToolset(skills, **settings) if skills else SkillToolset.from_dirs([tools], **settings)
        calls = [("run_skill_script", {"skill_name": "tools", "file_path": path}) for path in ("note.txt", "hello.sh")]
        answered = await ask(agent_with(rehearse(many_calls(*calls)), toolset), "go")
        first, second = (result for _, result in answered.results)
        assert first["stdout"] == "text of a script\n"
        assert (second["status"], second["stderr"]) == ("warning", "careful\n")


@pytest.mark.requirement("S0-61", "S0-62", "S0-118")
async def test_stderr_alone_is_a_warning_whatever_runs_the_script(
    tools: Path, rehearse: Any, ask: Any, recwarn: Any
) -> None:
    """S0-61, S0-62: the exit code decides; ARCHITECTURE wins over S0-118."""
    for settings in (
        {"policy": "trusted"},
        {"code_executor": LocalSandboxCodeExecutor()},
        {"code_executor": UnsafeLocalCodeExecutor()},
        {"code_executor": GoogleExecutor()},
    ):
        toolset = SkillToolset.from_dirs([tools], **settings)  # type: ignore[arg-type]
        assert (await result_of(ask, rehearse(run("warn.sh")), toolset))["status"] == "warning"


@pytest.mark.parametrize("foreign", [False, True])
async def test_a_cancelled_turn_ends_the_script_and_the_owner_is_told(
    tools: Path, rehearse: Any, ask: Any, foreign: bool
) -> None:
    """Rows E3, 18: there the script lives on. An executor of others cannot be stopped; it is no longer waited for."""
    seen: list[Any] = []
    settings: dict[str, Any] = {"code_executor": Recording(does=lambda _: time.sleep(3))} if foreign else {}
    toolset = SkillToolset.from_dirs([tools], on_event=seen.append, **settings)
    task = asyncio.create_task(ask(agent_with(rehearse(run("slow.py")), toolset), "go"))
    while not any(isinstance(event, ScriptStarted) for event in seen):
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    finished = [event for event in seen if isinstance(event, ScriptFinished)]
    assert [(event.status, event.reason) for event in finished] == [("error", "cancelled")]


@pytest.mark.requirement("S0-2", "S0-16")
async def test_the_tool_has_its_old_name_and_a_prefix_when_asked(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-2, S0-16."""
    toolset = SkillToolset.from_dirs(
        [tools], policy="trusted", script_tool_name="execute_skill_script", tool_name_prefix="my"
    )
    server = rehearse(
        many_calls(
            ("my_execute_skill_script", {"skill_name": "tools", "file_path": "hello.py"}),
            ("my_load_skill_resource", {"skill_name": "tools", "file_path": "guide.md"}),
            ("my_execute_skill_script", {"skill_name": "tools", "file_path": "nope.py"}),
        )
    )
    answered = await ask(agent_with(server, toolset), "go")
    server.assert_finished()
    assert "my_execute_skill_script" in server.requests[0].tool_names
    assert answered.results[0][1]["stdout"] == "hello\n"
    assert answered.results[1][1]["content"] == "the guide"


async def test_the_owner_is_told_when_an_agents_executor_comes_before_the_sandbox_nobody_asked_for(
    tools: Path, rehearse: Any, ask: Any, caplog: Any
) -> None:
    toolset = SkillToolset.from_dirs([tools])
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=Recording())
    assert result["stdout"] == "ran\n"
    assert "the sandbox's policy does not hold there" in caplog.text
