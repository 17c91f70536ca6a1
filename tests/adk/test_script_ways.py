"""Which way a script is run, and what each way does (S0-1 to S0-11, S0-43 to S0-70, rows E1 to E16)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors import BaseCodeExecutor, BuiltInCodeExecutor
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from google.adk.skills import load_skill_from_dir
from pydantic import Field
from tool_calls import agent_with, many_calls, one_call

from adk_skills_agent.adk.events import ScriptFinished, ScriptStarted
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.executors import LocalSandboxCodeExecutor, UnsafeLocalCodeExecutor

FILES: dict[str, str | bytes] = {
    "scripts/hello.py": "import sys\nprint('hello', *sys.argv[1:])\n",
    "scripts/hello.sh": 'echo "hello $@"; echo careful >&2\n',
    "scripts/sibling.py": "from helper import word\nprint(word)\n",
    "scripts/helper.py": "word = 'from the sibling'\n",
    "scripts/tool.rb": "puts 1\n",
    "scripts/noext": "echo\n",
    "scripts/fail.py": "import sys; print('before'); sys.exit(3)\n",
    "scripts/slow.py": "import time; print('started', flush=True); time.sleep(30)\n",
    "scripts/slow.sh": "echo started; sleep 30\n",
    "scripts/flood.py": "print('x' * 100_000)\n",
    "scripts/note.txt": "text of a script\n",
    "scripts/where.py": "import os; print(sorted(os.listdir('.')))\n",
    "scripts/warn.sh": "echo failure >&2\n",
    "scripts/write.py": (
        "import pathlib\npathlib.Path('out').mkdir(exist_ok=True)\n"
        "pathlib.Path('out/report.csv').write_text('a,b')\npathlib.Path('big.bin').write_bytes(b'0' * (6 << 20))\n"
    ),
    "scripts/seen.py": "import pathlib\nprint(pathlib.Path('data.csv').read_text(), pathlib.Path('kept').exists())\n"
    "pathlib.Path('kept').touch()\n",
    "references/guide.md": "the guide",
    "assets/logo.bin": b"\0\1\2",
    "assets/empty.txt": "",
    "templates/letter.txt": "Dear",
}


@pytest.fixture
def tools(make_skill: Callable[..., Path]) -> Path:
    return make_skill("tools", files=FILES).parent


class Recording(BaseCodeExecutor):
    """Somebody's executor: it keeps what it was given and does as it is told."""

    inputs: list[Any] = Field(default_factory=list)
    does: Any = None

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        self.inputs.append(code_execution_input)
        found = self.does(invocation_context) if self.does else CodeExecutionResult(stdout="ran\n")
        assert isinstance(found, CodeExecutionResult)
        return found


def run(path: str, **more: Any) -> str:
    return one_call("run_skill_script", skill_name="tools", file_path=path, **more)


async def result_of(ask: Any, server: Any, toolset: Any, **more: Any) -> dict[str, Any]:
    answered = await ask(agent_with(server, toolset, **more), "go")
    return dict(answered.results[0][1])


@pytest.mark.behaviour("same", "Which executor runs a script", ours="the toolset's, then the agent's")
async def test_the_toolsets_executor_comes_before_the_agents(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-11, and the private attribute that agent_executor reads: this fails loudly when it goes away."""
    theirs, agents = Recording(), Recording()
    toolset = SkillToolset([load_skill_from_dir(tools / "tools")], code_executor=theirs)
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=agents)
    assert (result["stdout"], len(theirs.inputs), len(agents.inputs)) == ("ran\n", 1, 0)
    toolset = SkillToolset([load_skill_from_dir(tools / "tools")])
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=agents)
    assert (result["stdout"], len(agents.inputs)) == ("ran\n", 1)


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
    from adk_skills_agent.adk.script_runner import agent_executor

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
    "better", "`script_timeout` of a Python script", google="ignored", ours="holds, with the output until then"
)
async def test_the_script_timeout_holds_in_our_sandbox(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-13, S0-74: for Python too."""
    toolset = SkillToolset.from_dirs([tools], policy="trusted", script_timeout=1)
    result = await result_of(ask, rehearse(run("slow.py")), toolset)
    assert (result["status"], result["reason"], result["timed_out"], result["return_code"]) == (
        "error",
        "timeout",
        True,
        -1,
    )
    assert "started" in result["stdout"]


@pytest.mark.behaviour("better", "Other languages", google="refused", ours="run by our executors, with `interpreters=`")
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


async def test_stderr_alone_is_a_warning_on_our_backends_and_an_error_as_in_google_adk_where_its_executor_was(
    tools: Path, rehearse: Any, ask: Any, recwarn: Any
) -> None:
    """ARCHITECTURE; S0-118 for the executor that has google-adk's name."""
    for settings, status in (
        ({"policy": "trusted"}, "warning"),
        ({"code_executor": LocalSandboxCodeExecutor()}, "warning"),
        ({"code_executor": UnsafeLocalCodeExecutor()}, "error"),
        ({"code_executor": GoogleExecutor()}, "error"),
    ):
        toolset = SkillToolset.from_dirs([tools], **settings)  # type: ignore[arg-type]
        assert (await result_of(ask, rehearse(run("warn.sh")), toolset))["status"] == status


@pytest.mark.parametrize(
    ("path", "args", "stdout"),
    [
        ("hello.py", {"verbose": True, "count": 3}, "hello --verbose True --count 3\n"),
        ("scripts/hello.py", ["a b", "$(id)"], "hello a b $(id)\n"),
        ("sibling.py", None, "from the sibling\n"),
        ("where.py", None, "['SKILL.md', 'assets', 'references', 'scripts', 'templates']\n"),
    ],
)
async def test_googles_own_executor_runs_python_scripts(
    tools: Path, rehearse: Any, ask: Any, path: str, args: Any, stdout: str
) -> None:
    """S0-37 to S0-47, S0-49; the files outside of the three folders are there too (S0-43)."""
    toolset = SkillToolset.from_dirs([tools], code_executor=GoogleExecutor(timeout_seconds=20))
    more = {} if args is None else {"args": args}
    result = await result_of(ask, rehearse(run(path, **more)), toolset)
    assert (result["status"], result["stdout"], result["file_path"]) == ("success", stdout, path)


@pytest.mark.behaviour(
    "better", "What a shell script printed before its timeout", google="lost, with a traceback", ours="kept"
)
async def test_googles_own_executor_runs_shell_scripts_and_tells_both_streams(
    tools: Path, rehearse: Any, ask: Any
) -> None:
    """S0-53 to S0-57, S0-62, S0-64, S0-65, S0-118."""
    toolset = SkillToolset.from_dirs([tools], code_executor=GoogleExecutor(timeout_seconds=20), script_timeout=1)
    calls = [("run_skill_script", {"skill_name": "tools", "file_path": path}) for path in ("hello.sh", "slow.sh")]
    answered = await ask(agent_with(rehearse(many_calls(*calls)), toolset), "go")
    good, late = (result for _, result in answered.results)
    assert (good["status"], good["stdout"], good["stderr"]) == ("warning", "hello \n", "careful\n")
    assert good["return_code"] == 0
    assert (late["status"], late["stdout"], late["timed_out"]) == ("error", "started\n", True)  # row 1b: lost there
    assert (late["stderr"], late["return_code"], late["reason"]) == ("Timed out after 1s", -1, "timeout")


async def test_a_foreign_script_that_fails_keeps_its_output(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-58, S0-69."""
    toolset = SkillToolset.from_dirs([tools], code_executor=GoogleExecutor(timeout_seconds=20))
    result = await result_of(ask, rehearse(run("fail.py")), toolset)
    assert (result["status"], result["stdout"], result["return_code"]) == ("error", "before\n", 3)


@pytest.mark.behaviour(
    "same", "Scripts but `.py`, `.sh`, `.bash` in an executor of others", ours="`UNSUPPORTED_SCRIPT_TYPE`"
)
@pytest.mark.parametrize("path", ["tool.rb", "noext"])
async def test_other_kinds_of_scripts_are_refused_by_a_foreign_executor(
    tools: Path, rehearse: Any, ask: Any, path: str
) -> None:
    """S0-7, S0-8, S0-31."""
    executor = Recording()
    toolset = SkillToolset.from_dirs([tools], code_executor=executor)
    result = await result_of(ask, rehearse(run(path)), toolset)
    assert result["error_code"] == "UNSUPPORTED_SCRIPT_TYPE"
    assert executor.inputs == []


async def test_a_foreign_executor_gets_one_program_and_a_stable_id(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-44, S0-45, S0-67, S0-71."""
    executor = Recording()
    toolset = SkillToolset.from_dirs([tools], code_executor=executor, script_timeout=7)
    call = ("run_skill_script", {"skill_name": "tools", "file_path": "hello.py"})
    answered = await ask(agent_with(rehearse(many_calls(call, call)), toolset), "go")
    first, second = executor.inputs
    assert first.execution_id == second.execution_id == f"skill:tools:session:{answered.session_id}:agent:assistant"
    assert first.timeout_seconds == 7
    assert not first.input_files
    for text in ("'assets/empty.txt': ''", "'assets/logo.bin': b'\\x00\\x01\\x02'", "'templates/letter.txt': 'Dear'"):
        assert text in first.code


@pytest.mark.behaviour("same", "`save_output_artifacts`", ours="`saved_artifacts` and `skipped_artifacts`")
async def test_files_of_a_foreign_executor_become_artifacts_when_the_owner_wants_them(
    tools: Path, rehearse: Any, ask: Any
) -> None:
    """S0-66; google-adk's names for what was saved and skipped, and its bounds."""
    for wanted in (True, False):
        toolset = SkillToolset.from_dirs(
            [tools], code_executor=GoogleExecutor(timeout_seconds=20), save_output_artifacts=wanted
        )
        answered = await ask(agent_with(rehearse(run("write.py")), toolset), "go")
        result = answered.results[0][1]
        assert result["stdout"] == ""
        assert result.get("saved_artifacts") == (["out/report.csv"] if wanted else None)
        assert result.get("skipped_artifacts") == (["big.bin"] if wanted else None)
        assert await answered.artifact("out/report.csv") == (b"a,b" if wanted else None)


async def test_output_files_that_an_executor_returns_itself_become_artifacts(
    tools: Path, rehearse: Any, ask: Any
) -> None:
    def left(_: Any) -> CodeExecutionResult:
        files = [File("a.txt", b"1", "text/plain"), File("../b.txt", b"2"), File("user:c.txt", b"3")]
        return CodeExecutionResult(stdout="ok", output_files=files)

    toolset = SkillToolset.from_dirs([tools], code_executor=Recording(does=left), save_output_artifacts=True)
    result = await result_of(ask, rehearse(run("hello.py")), toolset)
    assert result["saved_artifacts"] == ["a.txt"]
    assert result["skipped_artifacts"] == ["../b.txt", "user:c.txt"]


@pytest.mark.behaviour(
    "better", "5 MB of output", google="all of it goes to the model", ours="20,000 characters; the whole is an artifact"
)
async def test_a_flood_from_a_foreign_executor_is_cut_and_kept_as_an_artifact(
    tools: Path, rehearse: Any, ask: Any
) -> None:
    """Row E4: there all of it goes to the model."""
    toolset = SkillToolset.from_dirs([tools], code_executor=GoogleExecutor(timeout_seconds=20))
    answered = await ask(agent_with(rehearse(run("flood.py")), toolset), "go")
    result = answered.results[0][1]
    assert len(result["stdout"]) < 21_000
    assert result["saved_artifacts"] == ["tools.flood.stdout.txt"]
    assert await answered.artifact("tools.flood.stdout.txt") == b"x" * 100_000 + b"\n"


async def test_what_an_executor_raises_is_an_answer_and_a_line_for_the_owner(
    tools: Path, rehearse: Any, ask: Any, caplog: Any
) -> None:
    """S0-20, S0-34."""

    def boom(_: Any) -> CodeExecutionResult:
        raise RuntimeError("x" * 1000)

    toolset = SkillToolset.from_dirs([tools], code_executor=Recording(does=boom))
    result = await result_of(ask, rehearse(run("hello.py")), toolset)
    assert result["error_code"] == "EXECUTION_ERROR"
    assert result["error"].startswith("Failed to execute script 'hello.py':")
    assert len(result["error"]) == 200
    assert any(record.exc_info for record in caplog.records if record.name.endswith("foreign_executor"))


@pytest.mark.parametrize(("code", "status"), [(0, "success"), (None, "success"), (3, "error")])
async def test_an_exit_inside_an_executor_never_ends_the_agent(
    tools: Path, rehearse: Any, ask: Any, code: int | None, status: str
) -> None:
    """S0-68 to S0-70."""

    def leave(_: Any) -> CodeExecutionResult:
        raise SystemExit(code)

    toolset = SkillToolset.from_dirs([tools], code_executor=Recording(does=leave))
    result = await result_of(ask, rehearse(run("hello.py")), toolset)
    assert result["status"] == status
    assert ("exited with code 3" in result.get("error", "")) is (code == 3)


async def test_a_foreign_executor_that_never_ends_is_not_waited_for(
    tools: Path, rehearse: Any, ask: Any, monkeypatch: Any
) -> None:
    """Row E1: there a Python script outlives ``script_timeout`` for ever."""
    monkeypatch.setattr("adk_skills_agent.adk.foreign_executor._GRACE_SECONDS", 0.1)

    def hang(_: Any) -> CodeExecutionResult:
        time.sleep(5)
        return CodeExecutionResult()

    toolset = SkillToolset.from_dirs([tools], code_executor=Recording(does=hang), script_timeout=0.2)
    result = await result_of(ask, rehearse(run("slow.py")), toolset)
    assert (result["status"], result["reason"], result["return_code"]) == ("error", "timeout", -1)


async def test_an_interrupt_goes_through(tools: Path) -> None:
    """S0-70: KeyboardInterrupt and CancelledError are nobody's answer."""
    from adk_skills_agent.adk.foreign_executor import in_thread

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await in_thread(interrupt, 5)
    hanging = asyncio.create_task(in_thread(lambda: time.sleep(2), 10))
    await asyncio.sleep(0.05)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_a_large_skill_is_warned_of(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, caplog: Any
) -> None:
    """S0-48."""
    folder = make_skill("tools", files={"scripts/hello.py": "print(1)", "assets/big.txt": "x" * (17 << 20)}).parent
    toolset = SkillToolset.from_dirs([folder], code_executor=Recording())
    with caplog.at_level(logging.WARNING):
        await result_of(ask, rehearse(run("hello.py")), toolset)
    assert "exceeding the recommended limit" in caplog.text


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


async def test_the_owner_is_told_when_an_agents_executor_comes_before_the_sandbox(
    tools: Path, rehearse: Any, ask: Any, caplog: Any
) -> None:
    toolset = SkillToolset.from_dirs([tools], policy="strict")
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=Recording())
    assert result["stdout"] == "ran\n"
    assert "the sandbox's policy does not hold there" in caplog.text
