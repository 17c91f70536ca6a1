"""Scripts in an environment of google-adk's: our command, one copy for each version (rows A6, E7, E12, E13)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionResult
from google.adk.environment import ExecutionResult, LocalEnvironment
from tool_calls import agent_with, many_calls, one_call

from adk_skills_agent.adk.running.adk_environment import note_user
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.sandbox.process.tree import machine_memory
from adk_skills_agent.sandbox.secrets import Secret, SecretForms
from own_process import give_back_free_memory
from remote_services import ElsewhereEnvironment

FILES: dict[str, str | bytes] = {
    "scripts/hello.py": "import os, sys\nprint('hello', *sys.argv[1:])\n"
    "print(os.path.exists('templates/letter.txt'))\n",
    "scripts/hello.sh": 'echo "$1"; echo careful >&2\n',
    "scripts/fail.sh": "exit 4\n",
    "scripts/slow.sh": "echo started; sleep 30\n",
    "scripts/spoil.sh": "echo 'echo spoiled' > scripts/hello.sh\n",
    "scripts/tool.rb": "puts 1",
    "assets/logo.bin": b"\0\1",
    "templates/letter.txt": "Dear",
}


class Counting(LocalEnvironment):
    """google-adk's own environment, which tells what was asked of it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.written: list[str] = []
        self.commands: list[str] = []

    async def write_file(self, path: Path, content: str | bytes) -> None:
        self.written.append(str(path))
        await super().write_file(path, content)

    async def execute(self, command: str, *, timeout: float | None = None) -> Any:
        self.commands.append(command)
        return await super().execute(command, timeout=timeout)


@pytest.fixture
def tools(make_skill: Callable[..., Path]) -> Path:
    return make_skill("tools", files=FILES).parent


@pytest.fixture
def environment(tmp_path: Path) -> Counting:
    folder = tmp_path / "env"
    folder.mkdir()
    return Counting(working_dir=folder)


def call(path: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "run_skill_script", {"skill_name": "tools", "file_path": path, **more}


@pytest.mark.requirement("C40")
async def test_a_script_runs_from_the_skills_root_with_its_arguments(
    tools: Path, environment: Counting, rehearse: Any, ask: Any
) -> None:
    """C40: all files are there; arguments are never the shell's."""
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    server = rehearse(many_calls(call("hello.py", args=["a b", "$(id)", "; ls"]), call("hello.sh", args={"x": 1})))
    answered = await ask(agent_with(server, toolset), "go")
    first, second = (result for _, result in answered.results)
    assert first["stdout"] == "hello a b $(id) ; ls\nTrue\n"
    assert (first["status"], first["exit_code"], first["return_code"], first["timed_out"]) == ("success", 0, 0, False)
    assert (second["status"], second["stdout"], second["stderr"]) == ("warning", "--x\n", "careful\n")
    assert any(path.endswith("skills/tools/SKILL.md") for path in environment.written)


def test_row_157_the_owner_hears_that_two_users_share_an_environment(
    environment: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: one user's ``read_file`` gave what another one's had written, and nothing said so."""
    told = []
    for user in ("ann", "ann", "bob", "cy", "ann"):
        session = SimpleNamespace(app_name="app", user_id=user)
        note_user(environment, cast("Any", SimpleNamespace(session=session)))
        told.append(len(caplog.messages))
    assert told == [0, 0, 1, 1, 1]
    assert caplog.messages[0].startswith("Counting is one workspace for all users")


async def test_a_skill_is_written_once_for_each_version(
    tools: Path, environment: Counting, rehearse: Any, ask: Any
) -> None:
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    agent = agent_with(rehearse(many_calls(call("hello.py"), call("hello.sh"), call("fail.sh"))), toolset)
    await ask(agent, "go")
    assert len(environment.written) == len(set(environment.written)) == len(FILES) + 1
    (tools / "tools" / "scripts" / "hello.sh").write_text("echo changed\n")
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    answered = await ask(agent_with(rehearse(many_calls(call("hello.sh"))), toolset), "go")
    assert answered.results[0][1]["stdout"] == "changed\n"


async def test_row_300_a_script_without_end_in_the_place_of_itself_is_put_back(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with E2B: the agent read it before the next call, with 7 GB of its memory for 2 GB."""
    few = replace(machine_memory(), available=256 << 20)
    monkeypatch.setattr("adk_skills_agent.sandbox.remote.remote.machine_memory", lambda: few)
    (tools / "tools" / "scripts" / "grow.sh").write_text('echo fine; truncate -s 900M "$0"; exit\n')
    there = ElsewhereEnvironment(tmp_path / "there")
    toolset = SkillToolset.from_dirs([tools], environment=there)
    for _ in range(2):
        answered = await ask(agent_with(rehearse(many_calls(call("grow.sh"))), toolset), "go")
        assert answered.results[0][1]["stdout"] == "fine\n"
    assert 0 < there.read_bytes < 800 << 20


async def test_row_300_output_without_end_is_given_up(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(machine_memory(), available=256 << 20)
    monkeypatch.setattr("adk_skills_agent.sandbox.remote.remote.machine_memory", lambda: few)
    (tools / "tools" / "scripts" / "yes.sh").write_text("head -c 200000000 /dev/zero; sleep 20\n")
    give_back_free_memory()
    toolset = SkillToolset.from_dirs([tools], environment=ElsewhereEnvironment(tmp_path / "there"))
    answered = await ask(agent_with(rehearse(many_calls(call("yes.sh"))), toolset), "go")
    assert "ElsewhereEnvironment was given up" in answered.results[0][1]["error"]


@pytest.mark.behaviour(
    "better",
    "A script that rewrites its skill in an environment",
    google="the change stays",
    ours="put back before the next run",
)
async def test_a_script_that_was_changed_in_the_environment_is_put_back(
    tools: Path, environment: Counting, rehearse: Any, ask: Any
) -> None:
    """Row E12: there a script may rewrite the skill for all later runs."""
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    server = rehearse(many_calls(call("spoil.sh"), call("hello.sh", args=["fine"])))
    answered = await ask(agent_with(server, toolset), "go")
    assert answered.results[1][1]["stdout"] == "fine\n"


@pytest.mark.behaviour(
    "better",
    "A shell `command` of the model in an environment",
    google="any command runs",
    ours="only the named script, with literal arguments",
)
@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/hostname; echo arbitrary",
        "cat /etc/hostname",
        "python3 scripts/hello.py && rm -rf /",
        "python3 scripts/hello.py | sh",
        "python3 scripts/hello.py > out",
        "python3 scripts/hello.py $(id)",
        "python3 scripts/hello.py `id`",
        "python3 -c 'print(1)' scripts/hello.py",
        "python3 -m http.server scripts/hello.py",
        "env X=1 scripts/hello.py",
        "python3 scripts/hello.sh",
        "python3 ../../other.py scripts/hello.py",
        "python3 scripts/hello.py 'open",
        "python3 scripts/hello.py\nls",
        "",
        7,
        ["ls"],
    ],
)
async def test_a_command_that_does_anything_else_is_refused(
    tools: Path, environment: Counting, rehearse: Any, ask: Any, command: object
) -> None:
    """Row A6: there any shell command of the model runs."""
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    server = rehearse(one_call("run_skill_script", skill_name="tools", file_path="hello.py", command=command))
    result = dict((await ask(agent_with(server, toolset), "go")).results[0][1])
    if command == "":
        assert result["status"] == "success"  # nothing was asked for but the script
        return
    assert result["error_code"] == "INVALID_ARGUMENTS"
    assert len(result["error"]) <= 200
    assert environment.commands == []


@pytest.mark.parametrize(
    "command",
    [
        "python3 scripts/hello.py 'a b'",
        "python scripts/hello.py 'a b'",
        "python3 -u ./scripts/hello.py 'a b'",
        "python3 skills/tools/scripts/hello.py 'a b'",
        'python3 {root}/skills/tools/scripts/hello.py "a b"',
    ],
)
async def test_a_command_as_google_adk_asks_for_it_runs_the_script(
    tools: Path, environment: Counting, rehearse: Any, ask: Any, command: str
) -> None:
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    text = command.format(root=environment.working_dir)
    server = rehearse(one_call("run_skill_script", skill_name="tools", file_path="hello.py", command=text))
    result = dict((await ask(agent_with(server, toolset), "go")).results[0][1])
    assert result["stdout"] == "hello a b\nTrue\n"


async def test_failures_timeouts_and_other_languages_in_an_environment(
    tools: Path, environment: Counting, rehearse: Any, ask: Any
) -> None:
    toolset = SkillToolset.from_dirs([tools], environment=environment, script_timeout=3)
    server = rehearse(many_calls(call("fail.sh"), call("slow.sh"), call("tool.rb")))
    failed, late, ruby = (result for _, result in (await ask(agent_with(server, toolset), "go")).results)
    assert (failed["status"], failed["exit_code"], failed["reason"]) == ("error", 4, "exit_code")
    assert (late["timed_out"], late["reason"], late["stdout"]) == (True, "timeout", "started\n")
    assert ruby["error_code"] == "UNSUPPORTED_SCRIPT_TYPE"


async def test_limits_of_an_environment_are_not_called_those_of_the_policy(
    make_skill: Callable[..., Path], environment: Counting, rehearse: Any, ask: Any
) -> None:
    """Seen: "It may use 512 MiB of memory here", of an environment that has its own memory."""
    root = make_skill("tools", files={"scripts/m.py": "raise MemoryError\n"}).parent
    toolset = SkillToolset.from_dirs([root], environment=environment)
    (_, answer), *_ = (await ask(agent_with(rehearse(many_calls(call("m.py"))), toolset), "go")).results
    assert answer["error"].endswith("MemoryError (at scripts/m.py, line 1: raise MemoryError)")


async def test_what_an_environment_raises_is_an_answer(
    tools: Path, environment: Counting, rehearse: Any, ask: Any
) -> None:
    async def broken(path: Path) -> bytes:
        raise OSError("the machine is gone " * 20)

    environment.read_file = broken  # type: ignore[method-assign]
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    server = rehearse(many_calls(call("hello.py"), call("hello.py")))
    result = dict((await ask(agent_with(server, toolset), "go")).results[1][1])
    assert result["error_code"] == "EXECUTION_ERROR"
    assert result["error"].startswith("Failed to execute script 'hello.py' in environment")
    assert len(result["error"]) <= 200


async def test_the_folder_of_the_skills_is_the_owners(
    tools: Path, environment: Counting, rehearse: Any, ask: Any
) -> None:
    folder = Path(environment.working_dir) / "elsewhere"
    toolset = SkillToolset.from_dirs([tools], environment=environment, skills_folder=folder)
    server = rehearse(many_calls(call("hello.sh", args=["x"])))
    await ask(agent_with(server, toolset), "go")
    assert (folder / "tools" / "scripts" / "hello.sh").is_file()


async def test_artifacts_come_in_by_name(tools: Path, environment: Counting, rehearse: Any, ask: Any) -> None:
    (tools / "tools" / "scripts" / "cat.sh").write_text("cat data.csv\n")
    toolset = SkillToolset.from_dirs([tools], environment=environment)
    server = rehearse(many_calls(call("cat.sh", files=["data.csv"])))
    answered = await ask(agent_with(server, toolset), "go", artifacts={"data.csv": b"1,2"})
    assert answered.results[0][1]["stdout"] == "1,2"


@pytest.mark.parametrize("where", ["environment", "shell", "executor"])
async def test_row_346_what_others_hand_over_is_redacted_beside_the_event_loop(
    tools: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """Seen: looking for secrets in 40 MiB of the answer of an environment or executor stopped the agent for 17 s."""
    threads: list[int] = []
    redact_all = SecretForms.redact_all

    def noted(self: SecretForms, data: bytes, *, references: bool = True) -> bytes:
        if len(data) > 1 << 19:
            threads.append(threading.get_ident())
        return redact_all(self, data, references=references)

    class Large(Counting):
        async def execute(self, command: str, *, timeout: float | None = None) -> Any:
            return ExecutionResult(exit_code=0, stdout="hunter2-correct " + "." * (1 << 20))

    class LargeExecutor(BaseCodeExecutor):
        def execute_code(self, invocation_context: Any, code_execution_input: Any) -> CodeExecutionResult:
            return CodeExecutionResult(stdout="hunter2-correct " + "." * (1 << 20))

    monkeypatch.setattr(SecretForms, "redact_all", noted)
    grants = {"tools": {"KEY": Secret("hunter2-correct")}}
    if where == "executor":
        toolset = SkillToolset.from_dirs([tools], code_executor=LargeExecutor(), grants=grants)
    else:
        large = Large(working_dir=tmp_path)
        toolset = SkillToolset.from_dirs([tools], environment=large, shell=where == "shell", grants=grants)
    asked = ("execute", {"command": "yes"}) if where == "shell" else call("hello.sh")
    answered = await ask(agent_with(rehearse(many_calls(asked)), toolset), "go")
    assert answered.results[0][1]["stdout"].startswith("[secret KEY] ....")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
