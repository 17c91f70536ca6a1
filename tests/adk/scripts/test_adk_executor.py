"""Scripts in an executor of others: google-adk's program and answers, and more (S0-43 to S0-71, rows E1 to E9)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionResult, File
from script_skill import FILES, Recording, result_of, run
from tool_calls import agent_with, many_calls

from adk_skills_agent.adk.running import adk_executor, script_program
from adk_skills_agent.adk.running.adk_executor import SkillProgram
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.errors import ScriptError


@pytest.fixture
def tools(make_skill: Callable[..., Path]) -> Path:
    return make_skill("tools", files=FILES).parent


@pytest.mark.parametrize(
    ("path", "args", "stdout"),
    [
        ("hello.py", {"verbose": True, "count": 3}, "hello --verbose --count 3\n"),
        ("scripts/hello.py", ["a b", "$(id)"], "hello a b $(id)\n"),
        ("sibling.py", None, "from the sibling\n"),
        ("where.py", None, "['SKILL.md', 'assets', 'references', 'scripts', 'templates']\n"),
    ],
)
@pytest.mark.requirement("S0-1", "S0-5", "S0-37", "S0-38", "S0-39", "S0-40", "S0-42", "S0-43", "S0-46", "S0-63")
async def test_googles_own_executor_runs_python_scripts(
    tools: Path, rehearse: Any, ask: Any, path: str, args: Any, stdout: str
) -> None:
    """The files outside of the three folders are there too."""
    toolset = SkillToolset.from_dirs([tools], code_executor=GoogleExecutor(timeout_seconds=20))
    more = {} if args is None else {"args": args}
    result = await result_of(ask, rehearse(run(path, **more)), toolset)
    assert (result["status"], result["stdout"], result["file_path"]) == ("success", stdout, path)
    assert (result["skill_name"], result["stderr"]) == ("tools", "")


@pytest.mark.behaviour(
    "better", "What a shell script printed before its timeout", google="lost, with a traceback", ours="kept"
)
@pytest.mark.requirement("S0-6", "S0-53", "S0-54", "S0-55", "S0-57", "S0-62", "S0-64", "S0-65", "S0-118", "S0-75")
async def test_googles_own_executor_runs_shell_scripts_and_tells_both_streams(
    tools: Path, rehearse: Any, ask: Any
) -> None:
    """What was printed until the timeout is there, and stderr is apart from stdout."""
    toolset = SkillToolset.from_dirs([tools], code_executor=GoogleExecutor(timeout_seconds=20), script_timeout=3)
    calls = [("run_skill_script", {"skill_name": "tools", "file_path": path}) for path in ("hello.sh", "slow.sh")]
    answered = await ask(agent_with(rehearse(many_calls(*calls)), toolset), "go")
    good, late = (result for _, result in answered.results)
    assert (good["status"], good["stdout"], good["stderr"]) == ("warning", "hello \n", "careful\n")
    assert good["return_code"] == 0
    assert (late["status"], late["stdout"], late["timed_out"]) == ("error", "started\n", True)  # row 1b: lost there
    assert (late["stderr"], late["return_code"], late["reason"]) == ("Timed out after 3s", -1, "timeout")


@pytest.mark.requirement("S0-58", "S0-69")
async def test_a_foreign_script_that_fails_keeps_its_output(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-58, S0-69."""
    toolset = SkillToolset.from_dirs([tools], code_executor=GoogleExecutor(timeout_seconds=20))
    result = await result_of(ask, rehearse(run("fail.py")), toolset)
    assert (result["status"], result["stdout"], result["return_code"]) == ("error", "before\n", 3)


@pytest.mark.behaviour(
    "same", "Scripts but `.py`, `.sh`, `.bash` in an executor of others", ours="`UNSUPPORTED_SCRIPT_TYPE`"
)
@pytest.mark.parametrize("path", ["tool.rb", "noext"])
@pytest.mark.requirement("S0-7", "S0-8", "S0-31")
async def test_other_kinds_of_scripts_are_refused_by_a_foreign_executor(
    tools: Path, rehearse: Any, ask: Any, path: str
) -> None:
    """S0-7, S0-8, S0-31."""
    executor = Recording()
    toolset = SkillToolset.from_dirs([tools], code_executor=executor)
    result = await result_of(ask, rehearse(run(path)), toolset)
    assert result["error_code"] == "UNSUPPORTED_SCRIPT_TYPE"
    assert executor.inputs == []


@pytest.mark.requirement("S0-44", "S0-45", "S0-67", "S0-71")
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
    for text in ("'assets/empty.txt': ''", "'assets/logo.bin': _b64('AAEC')", "'templates/letter.txt': 'Dear'"):
        assert text in first.code


@pytest.mark.behaviour("same", "`save_output_artifacts`", ours="`saved_artifacts` and `skipped_artifacts`")
@pytest.mark.requirement("S0-66")
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


@pytest.mark.requirement("S0-20", "S0-34")
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
    assert any(record.exc_info for record in caplog.records if record.name.endswith(".adk_executor"))


@pytest.mark.parametrize(("code", "status"), [(0, "success"), (None, "success"), (3, "error")])
@pytest.mark.requirement("S0-68", "S0-69", "S0-70")
async def test_an_exit_inside_an_executor_never_ends_the_agent(
    tools: Path, rehearse: Any, ask: Any, code: int | None, status: str
) -> None:
    """S0-68 to S0-70."""

    def leave(_: Any) -> CodeExecutionResult:
        raise SystemExit(code)

    toolset = SkillToolset.from_dirs([tools], code_executor=Recording(does=leave))
    result = await result_of(ask, rehearse(run("hello.py")), toolset)
    assert result["status"] == status
    assert ("exited with status 3" in result.get("error", "")) is (code == 3)


async def test_a_foreign_executor_that_never_ends_is_not_waited_for(
    tools: Path, rehearse: Any, ask: Any, monkeypatch: Any
) -> None:
    """Row E1: there a Python script outlives ``script_timeout`` for ever."""
    monkeypatch.setattr("adk_skills_agent.adk.running.adk_executor._GRACE_SECONDS", 0.1)

    def hang(_: Any) -> CodeExecutionResult:
        time.sleep(5)
        return CodeExecutionResult()

    toolset = SkillToolset.from_dirs([tools], code_executor=Recording(does=hang), script_timeout=0.2)
    result = await result_of(ask, rehearse(run("slow.py")), toolset)
    assert (result["status"], result["reason"], result["return_code"]) == ("error", "timeout", -1)


@pytest.mark.requirement("S0-70")
async def test_an_interrupt_goes_through(tools: Path) -> None:
    """S0-70: KeyboardInterrupt and CancelledError are nobody's answer."""
    from adk_skills_agent.executors.threads import in_thread

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await in_thread(interrupt, 5)
    hanging = asyncio.create_task(in_thread(lambda: time.sleep(2), 10))
    await asyncio.sleep(0.05)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


@pytest.mark.requirement("S0-48")
async def test_a_large_skill_is_warned_of(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, caplog: Any
) -> None:
    """S0-48."""
    folder = make_skill("tools", files={"scripts/hello.py": "print(1)", "assets/big.txt": "x" * (17 << 20)}).parent
    toolset = SkillToolset.from_dirs([folder], code_executor=Recording())
    with caplog.at_level(logging.WARNING):
        await result_of(ask, rehearse(run("hello.py")), toolset)
    assert "exceeding the recommended limit" in caplog.text


async def test_row_478_a_skill_that_is_too_large_for_a_program_is_refused(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 241 MB of a skill's files took 2.7 GB of the agent's memory at each call."""
    folder = make_skill("tools", files={"scripts/hello.py": "print(1)", "assets/big.bin": "x" * 5_000}).parent
    toolset = SkillToolset.from_dirs([folder], code_executor=Recording())
    monkeypatch.setattr(adk_executor, "_MOST_PAYLOAD_BYTES", 4_000)
    answer = await result_of(ask, rehearse(run("hello.py")), toolset)
    assert "too much for the code executor of this agent" in answer["error"]


def test_row_478_artifacts_count_for_the_size_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 240 MiB of them took 1.3 GB of the agent's memory."""
    skill = SimpleNamespace(name="tools", in_memory=True, files=lambda: ["a.txt"], read_bytes=lambda _: b"x" * 3_000)
    call: Any = SimpleNamespace(skill=skill, check_version=lambda: None, inputs=())
    program = SkillProgram(path="a.txt", argv=(), commands=(), seconds=1.0)
    monkeypatch.setattr(adk_executor, "_MOST_PAYLOAD_BYTES", 4_000)
    assert "a.txt" in adk_executor._source(call, program)
    call.inputs = (SimpleNamespace(path="b.bin", content=b"y" * 2_000),)
    with pytest.raises(ScriptError, match="those in 'files' have more than"):
        adk_executor._source(call, program)


async def test_row_471_files_that_an_executor_returns_are_bounded(tools: Path, rehearse: Any, ask: Any) -> None:
    """Seen: 300,000 of them kept the event loop for 7 s, and all names went to the model."""

    class Many(Recording):
        def execute_code(self, *given: Any, **options: Any) -> CodeExecutionResult:
            files = [File(name=f"{number}.txt", content="x", mime_type="text/plain") for number in range(5_000)]
            return CodeExecutionResult(stdout="done", output_files=files)

    toolset = SkillToolset.from_dirs([tools], code_executor=Many())
    answer = await result_of(ask, rehearse(run("hello.py")), toolset)
    assert 0 < len(answer["output_files"]) <= 2 * script_program.MAX_FILES


def test_row_478_bytes_are_no_longer_than_they_must_be_in_a_program() -> None:
    files = {"a.txt": "text\n", "b.bin": b"\x00\x01\x02\xff" * 250_000}
    program = SkillProgram(path="a.txt", argv=(), commands=(), seconds=1.0)
    text = program.source(files)
    assert len(text) < 1_400_000
    found: dict[str, Any] = {}
    exec(text[text.index("from base64") : text.index("\nrun_skill_script")], found)
    assert found["_files"] == files


@pytest.mark.parametrize("left", ["files", "skipped_paths"])
def test_row_471_a_report_that_a_script_wrote_itself_is_bounded(left: str) -> None:
    """Seen: it named 1,300,000 files, the event loop stood still for 21 s, and all of them went to the model."""
    program = SkillProgram(path="scripts/run.py", argv=(), commands=(), seconds=1.0, watch=False, contents=False)
    named = {
        "files": [{"path": "x" * 9_000, "mime_type": "y" * 9_000, "size": 1}] * 500,
        "skipped_paths": ["x" * 9_000] * 500,
    }
    told = {"return_code": 0, "timed_out": False, "stderr": "", "files": [], "skipped_paths": []} | {left: named[left]}
    text, report = program.read(f"hello\n{program.marker}{json.dumps(told)}\n".encode())
    assert text == b"hello"
    assert report is not None
    assert len(report.files) + len(report.skipped) == script_program.MAX_FILES
    assert sum(len(file.path) + len(file.mime_type) for file in report.files) <= script_program.MAX_FILES * 8_192
    assert sum(map(len, report.skipped)) <= script_program.MAX_FILES * 4_096
    for broken in (f"[{'[],' * 600_000}1]", "[" * 100_000, f'"{"x" * (33 << 20)}"', "{}", "[]"):
        assert program.read(f"hello\n{program.marker}{broken}\n".encode()) == (b"hello", None)


def test_row_477_an_output_that_names_its_folder_a_million_times_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: the event loop stood still for 25 s."""
    program = SkillProgram(path="scripts/run.py", argv=(), commands=(), seconds=1.0, watch=False, contents=False)
    folder = f"/tmp/x/{program._folder}ab12".encode()
    assert program.as_seen(b"a %b b %b\n" % (folder, folder)) == b"a /skill b /skill\n"
    monkeypatch.setattr(adk_executor, "_MOST_NAMED", 10)
    seen = program.as_seen(folder + b" " + b"%b\n" % folder * 1_000)
    assert seen.count(b"/skill") == 10
    assert seen.endswith(b"[The rest is left out: it names the skill's folder too often.]\n")
    assert program._folder.encode() not in seen
