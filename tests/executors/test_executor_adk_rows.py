"""Rows of GOOGLE_ADK.md: google-adk's own SkillToolset over our executor and environment, and what it does without.

Each test is named after its rows. What an executor cannot put right, because the toolset decides it (E7, E11 and E13 of
the code executor, languages), is shown with this package's own tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executing import gone, processes_with, run_command, run_script, sandboxed
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from google.adk.skills import load_skill_from_dir
from google.adk.tools.skill_toolset import SkillToolset

from adk_skills_agent import SandboxPolicy
from adk_skills_agent.executors import LocalSandboxCodeExecutor, SandboxEnvironment

PROCESS = SandboxPolicy(min_isolation="process")
RUN = "run_skill_script"
LOOP = "import time\nprint('started', flush=True)\nwhile True: time.sleep(1)\n"
Tools = Callable[..., SkillToolset]


# Timeouts


async def test_e1_and_1_a_python_script_ends_at_the_executors_timeout(call: Any, skill_tools: Tools) -> None:
    tools = skill_tools({"scripts/run.py": LOOP}, code_executor=sandboxed(timeout_seconds=3))
    answer = await run_script(call, tools, "run.py")
    assert answer["status"] == "error"
    assert answer["stdout"] == "started\n"
    assert answer["stderr"] == "timed out after 3 s"


async def test_e1_google_adks_own_executor_ignores_the_toolsets_timeout(call: Any, skill_tools: Tools) -> None:
    code = "import time; time.sleep(1.5); print('done')"
    tools = skill_tools({"scripts/run.py": code}, code_executor=GoogleExecutor(), script_timeout=1)
    assert (await run_script(call, tools, "run.py"))["stdout"] == "done\n"


async def test_e1_in_the_environment_the_toolsets_timeout_holds(call: Any, env_tools: Tools) -> None:
    tools = env_tools({"scripts/run.py": LOOP}, script_timeout=3)
    answer = await run_command(call, tools, "python3 skills/tools/scripts/run.py")
    assert answer["timed_out"] is True
    assert answer["stdout"] == "started\n"
    assert answer["exit_code"] == -1


SLOW_SHELL = "echo partial; sleep 41\n"


async def test_e2_and_1b_a_shell_script_that_printed_before_its_timeout_is_a_timeout(
    call: Any, skill_tools: Tools
) -> None:
    tools = skill_tools({"scripts/run.sh": SLOW_SHELL}, code_executor=sandboxed(), script_timeout=3)
    answer = await run_script(call, tools, "run.sh")
    assert answer["status"] == "error"
    assert answer["stdout"] == "partial\n"
    assert answer["stderr"] == "Timed out after 3s"


async def test_e2_google_adks_own_executor_crashes_there(call: Any, skill_tools: Tools) -> None:
    tools = skill_tools({"scripts/run.sh": SLOW_SHELL}, code_executor=GoogleExecutor(), script_timeout=1)
    answer = await run_script(call, tools, "run.sh")
    assert "TypeError: Object of type bytes is not JSON serializable" in answer["stderr"]


async def test_e2_the_executors_own_timeout_keeps_a_shell_scripts_output_too(call: Any, skill_tools: Tools) -> None:
    tools = skill_tools({"scripts/run.sh": SLOW_SHELL}, code_executor=sandboxed(timeout_seconds=3))
    answer = await run_script(call, tools, "run.sh")
    assert answer["status"] == "error"
    assert answer["stdout"] == "partial\n"
    assert "Timed out after 3 s" in answer["stderr"]


# Ends


@pytest.mark.behaviour(
    "better", "A turn that is cancelled", google="its script goes on", ours="script and children are ended", readme=14
)
@pytest.mark.parametrize("kind", ["executor", "environment"])
async def test_e3_and_18_cancelling_the_turn_ends_the_script_and_its_children(
    call: Any, skill_tools: Tools, environment: SandboxEnvironment, kind: str
) -> None:
    mark = f"rows-{os.getpid()}-{time.monotonic_ns()}"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', '{mark}'])\n"
    if kind == "executor":
        tools = skill_tools({"scripts/run.py": code}, code_executor=sandboxed())
        turn = asyncio.create_task(run_script(call, tools, "run.py"))
    else:
        await environment.initialize()
        tools = skill_tools({"scripts/run.py": code}, environment=environment)
        turn = asyncio.create_task(run_command(call, tools, "python3 skills/tools/scripts/run.py"))
    deadline = time.monotonic() + 30
    while not processes_with(mark):
        assert time.monotonic() < deadline
        assert not turn.done(), turn
        await asyncio.sleep(0.05)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert await asyncio.to_thread(gone, mark)
    await environment.close()


@pytest.mark.behaviour(
    "better",
    "A child that a script leaves in the background",
    google="holds the result back, or lives on",
    ours="half a second, then it is ended",
)
async def test_5_and_20_a_background_child_neither_delays_the_result_nor_survives(
    call: Any, skill_tools: Tools, environment: SandboxEnvironment
) -> None:
    seconds = f"43.{os.getpid()}{time.monotonic_ns()}"
    files = {
        "scripts/run.sh": f"sleep {seconds} & echo started; exit 0\n",
        "scripts/run.py": f"import subprocess\nsubprocess.Popen(['sleep', '{seconds}'])\nprint('started')\n",
    }
    tools = skill_tools(files, code_executor=sandboxed())
    for script in ("run.sh", "run.py"):
        answer = await run_script(call, tools, script)
        assert (answer["status"], answer["stdout"], answer["stderr"]) == ("success", "started\n", "")
    await environment.initialize()
    over_environment = SkillToolset(skills=tools.skills, environment=environment, script_timeout=20)
    answer = await run_command(call, over_environment, f"sleep {seconds} & echo started")
    assert (answer["stdout"], answer["exit_code"], answer["timed_out"]) == ("started\n", 0, False)
    await environment.close()
    assert await asyncio.to_thread(gone, seconds)


# Output


async def test_e4_and_6_a_flood_is_bounded(call: Any, skill_tools: Tools, env_tools: Tools) -> None:
    files = {"scripts/run.py": "print('x' * 5_000_000)\n", "scripts/run.sh": "yes | head -c 5000000\n"}
    tools = skill_tools(files, code_executor=sandboxed())
    for script in files:
        answer = await run_script(call, tools, script)
        assert answer["status"] == "success"
        assert len(answer["stdout"]) < 25_000
        assert "bytes left out" in answer["stdout"]


async def test_e4_and_21_64_mb_of_a_command_are_bounded(call: Any, env_tools: Tools) -> None:
    tools = env_tools({"scripts/run.py": ""})
    answer = await run_command(call, tools, "yes | head -c 60000000")
    assert answer["exit_code"] == 0
    assert len(answer["stdout"]) < 25_000


async def test_e6_and_8_stderr_of_a_script_that_worked_is_a_warning(call: Any, skill_tools: Tools) -> None:
    files = {
        "scripts/both.py": "import sys; print('out'); print('careful', file=sys.stderr)",
        "scripts/only.py": "import sys; print('careful', file=sys.stderr)",
        "scripts/both.sh": "echo out; echo careful >&2\n",
        "scripts/only.sh": "echo careful >&2\n",
    }
    tools = skill_tools(files, code_executor=sandboxed())
    for script in files:
        answer = await run_script(call, tools, script)
        if "both" in script:
            assert (answer["status"], answer["stdout"], answer["stderr"]) == ("warning", "out\n", "careful\n")
        else:
            assert (answer["status"], answer["stdout"]) == ("success", "[stderr]\ncareful\n")


async def test_e6_google_adks_own_executor_drops_it(call: Any, make_skill: Callable[..., Path]) -> None:
    folder = make_skill("tools", files={"scripts/run.py": "import sys; print('out'); print('lost', file=sys.stderr)"})
    tools = SkillToolset(skills=[load_skill_from_dir(folder)], code_executor=GoogleExecutor())
    assert (await run_script(call, tools, "run.py"))["stderr"] == ""


async def test_a_failing_scripts_status_and_output_stay(call: Any, skill_tools: Tools) -> None:
    files = {
        "scripts/three.py": "import sys; print('out'); sys.exit(3)",
        "scripts/three.sh": "echo out; exit 3\n",
        "scripts/zero.py": "import sys; print('out'); sys.exit(0)",
    }
    tools = skill_tools(files, code_executor=sandboxed())
    assert [(await run_script(call, tools, script))["status"] for script in files] == ["error", "error", "success"]


# Secrets, input


async def test_e5_2_and_21_host_secrets_are_not_seen(
    call: Any, skill_tools: Tools, environment: SandboxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2")
    files = {"scripts/run.py": "import os; print(dict(os.environ))", "scripts/run.sh": "env\n"}
    tools = skill_tools(files, code_executor=sandboxed())
    for script in files:
        answer = await run_script(call, tools, script)
        assert answer["status"] == "success"
        assert "hunter2" not in json.dumps(answer)
    await environment.initialize()
    answer = await run_command(call, SkillToolset(skills=tools.skills, environment=environment), "env")
    assert answer["exit_code"] == 0
    assert "hunter2" not in json.dumps(answer)
    await environment.close()


async def test_e5_google_adk_prints_them(
    call: Any, make_skill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2")
    folder = make_skill("tools", files={"scripts/run.sh": "env\n"})
    tools = SkillToolset(skills=[load_skill_from_dir(folder)], code_executor=GoogleExecutor())
    assert "hunter2" in (await run_script(call, tools, "run.sh"))["stdout"]


async def test_e14_standard_input_is_closed(call: Any, skill_tools: Tools, environment: SandboxEnvironment) -> None:
    files = {"scripts/run.py": "import sys; print(repr(sys.stdin.read()))", "scripts/run.sh": "cat; echo end\n"}
    tools = skill_tools(files, code_executor=sandboxed())
    assert (await run_script(call, tools, "run.py"))["stdout"] == "''\n"
    assert (await run_script(call, tools, "run.sh"))["stdout"] == "end\n"
    await environment.initialize()
    answer = await run_command(call, SkillToolset(skills=tools.skills, environment=environment), "cat; echo end")
    assert answer["stdout"] == "end\n"
    await environment.close()


# Memory, host files


@pytest.mark.behaviour("better", "A script that allocates without end", google="no limit", ours="ends at its limit")
async def test_3_a_large_allocation_is_a_failure(call: Any, skill_tools: Tools) -> None:
    code = "x = bytearray(2 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('got it')"
    answer = await run_script(call, skill_tools({"scripts/run.py": code}, code_executor=sandboxed()), "run.py")
    assert answer["status"] == "error"
    assert "got it" not in answer["stdout"]


@pytest.mark.parametrize("kind", ["executor", "environment"])
async def test_4_host_files_can_be_neither_read_nor_written_at_landlock(
    call: Any, skill_tools: Tools, tmp_path: Path, kind: str
) -> None:
    canary = tmp_path / "id_rsa"
    canary.write_text("canary")
    code = f"""
for mode, path in (('r', {str(canary)!r}), ('w', {str(tmp_path / "written")!r})):
    try:
        with open(path, mode) as file:
            print('BREACH', mode, file.read() if mode == 'r' else '')
    except OSError as error:
        print('contained', mode)
"""
    if kind == "executor":
        tools = skill_tools({"scripts/run.py": code}, code_executor=LocalSandboxCodeExecutor())
        answer = await run_script(call, tools, "run.py")
    else:
        environment = SandboxEnvironment()
        await environment.initialize()
        tools = skill_tools({"scripts/run.py": code}, environment=environment)
        answer = await run_command(call, tools, "python3 skills/tools/scripts/run.py")
        await environment.close()
    if "SandboxUnavailable" in answer.get("error", ""):
        pytest.skip("no level of landlock or above works here")
    assert answer["stdout"] == "contained r\ncontained w\n"
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("kind", ["executor", "environment"])
async def test_4_a_level_that_is_too_weak_is_refused_and_said(
    call: Any, skill_tools: Tools, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    demanding = SandboxPolicy(isolation="process", min_isolation="landlock")
    if kind == "executor":
        tools = skill_tools({"scripts/run.py": "print(1)"}, code_executor=LocalSandboxCodeExecutor(policy=demanding))
        answer = await run_script(call, tools, "run.py")
    else:
        environment = SandboxEnvironment(policy=demanding)
        await environment.initialize()
        tools = skill_tools({"scripts/run.py": "print(1)"}, environment=environment)
        answer = await run_command(call, tools, "echo ran")
        await environment.close()
    assert answer["error_code"] == "EXECUTION_ERROR"
    assert "SandboxUnavailable" in answer["error"]


async def test_e12_commands_cannot_remove_a_skills_files_at_landlock(call: Any, skill_tools: Tools) -> None:
    environment = SandboxEnvironment()
    await environment.initialize()
    tools = skill_tools({"scripts/run.py": "print('intact')"}, environment=environment)
    answer = await run_command(call, tools, "rm -rf skills/tools/scripts/run.py; echo x > skills/tools/scripts/run.py")
    if "SandboxUnavailable" in answer.get("error", ""):
        await environment.close()
        pytest.skip("no level of landlock or above works here")
    assert (await environment.execute("python3 skills/tools/scripts/run.py")).stdout == "intact\n"
    await environment.close()
