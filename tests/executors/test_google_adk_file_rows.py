"""Rows of GOOGLE_ADK.md about files, languages and arguments; see test_executor_adk_rows.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executing import run_command, run_script, sandboxed
from google.adk.skills import load_skill_from_dir
from google.adk.tools.skill_toolset import SkillToolset

from adk_skills_agent import SandboxPolicy, SkillsRegistry, create_run_script_tool
from adk_skills_agent.executors import SandboxEnvironment

PROCESS = SandboxPolicy(min_isolation="process")
RUN = "run_skill_script"
LOOP = "import time\nprint('started', flush=True)\nwhile True: time.sleep(1)\n"
Tools = Callable[..., SkillToolset]


async def test_e8_a_script_with_a_shebang_line_can_be_started_by_name(call: Any, env_tools: Tools) -> None:
    tools = env_tools(
        {"scripts/run.py": "#!/usr/bin/env python3\nprint('by name')\n", "scripts/tool": "#!/bin/sh\necho t\n"}
    )
    answer = await run_command(call, tools, "cd skills/tools && ./scripts/run.py && scripts/tool")
    assert (answer["stdout"], answer["exit_code"]) == ("by name\nt\n", 0)


async def test_e8_our_own_tool_runs_other_languages(call: Any, make_skill: Callable[..., Path]) -> None:
    folder = make_skill("tools", files={"scripts/run.js": "console.log(1)"})
    registry = SkillsRegistry()
    registry.discover([folder.parent])
    tool = create_run_script_tool(registry, policy=PROCESS, interpreters={".js": ["cat"]})
    turn = await call([tool], "run_script", skill="tools", script="scripts/run.js")
    assert turn.response["stdout"] == "console.log(1)"


async def test_e7_our_own_tool_passes_arguments_as_they_are_meant(call: Any, make_skill: Callable[..., Path]) -> None:
    folder = make_skill("tools", files={"scripts/run.py": "import sys; print(sys.argv[1:])"})
    registry = SkillsRegistry()
    registry.discover([folder.parent])
    tool = create_run_script_tool(registry, policy=PROCESS)
    args = {"verbose": True, "quiet": False, "n": None, "items": ["a", "b"]}
    turn = await call([tool], "run_script", skill="tools", script="scripts/run.py", args=args)
    assert turn.response["stdout"] == "['--verbose', '--items', 'a', '--items', 'b']\n"


async def test_e10_files_are_kept_between_calls(call: Any, env_tools: Tools) -> None:
    tools = env_tools({"scripts/run.py": "open('kept.txt', 'w').write('kept')"})
    await run_command(call, tools, "python3 skills/tools/scripts/run.py")
    assert (await run_command(call, tools, "cat kept.txt"))["stdout"] == "kept"


async def test_e11_the_whole_skill_is_there_when_the_environment_is_given_it(
    call: Any, make_skill: Callable[..., Path]
) -> None:
    folder = make_skill("tools", files={"scripts/run.py": "", "templates/a.txt": "template", "root.txt": "root"})
    (folder / "leak").symlink_to("/etc/passwd")
    environment = SandboxEnvironment(min_isolation="process", skills=[folder])
    await environment.initialize()
    tools = SkillToolset(skills=[load_skill_from_dir(folder)], environment=environment)
    answer = await run_command(call, tools, "cd skills/tools && cat templates/a.txt root.txt && ls")
    assert answer["stdout"] == "templaterootSKILL.md\nroot.txt\nscripts\ntemplates\n"
    await environment.close()


async def test_e13_paths_relative_to_the_skill_work_in_the_executor(call: Any, skill_tools: Tools) -> None:
    files = {"scripts/run.py": "print(open('references/guide.md').read())", "references/guide.md": "the guide"}
    tools = skill_tools(files, code_executor=sandboxed())
    assert (await run_script(call, tools, "run.py"))["stdout"] == "the guide\n"


async def test_e15_and_22_files_of_a_script_become_artifacts_large_ones_too(call: Any, skill_tools: Tools) -> None:
    files = {
        "scripts/run.py": "print('x' * 300_000); open('report.bin', 'wb').write(bytes(range(256)) * 4000)",
        "scripts/run.sh": "echo done; head -c 1000000 /dev/zero > zeros\n",
    }
    tools = skill_tools(files, code_executor=sandboxed(), save_output_artifacts=True)
    turn = await call([tools], RUN, skill_name="tools", file_path="run.py")
    assert turn.response["saved_artifacts"] == ["report.bin"]
    assert await turn.artifact("report.bin") == bytes(range(256)) * 4000
    assert "bytes left out" in turn.response["stdout"]
    assert len(turn.response["stdout"]) < 25_000
    turn = await call([tools], RUN, skill_name="tools", file_path="run.sh")
    assert (turn.response["stdout"], turn.response["saved_artifacts"]) == ("done\n", ["zeros"])
    assert await turn.artifact("zeros") == bytes(1_000_000)


@pytest.mark.behaviour(
    "optional",
    "`on_output`: output while a script runs",
    google="only when it has ended",
    ours="followed as it is written",
)
async def test_e16_output_can_be_followed_while_it_is_written(call: Any, skill_tools: Tools) -> None:
    seen: list[bytes] = []
    executor = sandboxed(on_output=lambda _name, chunk: seen.append(chunk))
    code = "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.7)"
    await run_script(call, skill_tools({"scripts/run.py": code}, code_executor=executor), "run.py")
    assert b"".join(seen) == b"0\n1\n2\n"
    assert len(seen) > 1


@pytest.mark.behaviour(
    "better", "Scripts that hang", google="take the threads that name look-ups need", ours="take none"
)
async def test_19_hanging_commands_do_not_take_the_threads_others_need(env_tools: Tools) -> None:
    environments = [SandboxEnvironment(min_isolation="process") for _ in range(12)]
    for environment in environments:
        await environment.initialize()
    hanging = [asyncio.create_task(environment.execute("sleep 60", timeout=30)) for environment in environments]
    await asyncio.sleep(1)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 20) == "free"
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    for environment in environments:
        await environment.close()


@pytest.mark.slow
@pytest.mark.behaviour("better", "An asset of 10 MB", google="turned into source code for each run", ours="copied once")
async def test_a_ten_megabyte_asset_is_no_problem(call: Any, skill_tools: Tools) -> None:
    files = {
        "scripts/run.py": "import os; print(os.path.getsize('assets/big.bin'))",
        "assets/big.bin": os.urandom(10 << 20),
    }
    answer = await run_script(call, skill_tools(files, code_executor=sandboxed()), "run.py")
    assert answer["stdout"] == f"{10 << 20}\n"
