"""Many sessions on one toolset at once: no session sees another's files, counts or skills, and nothing stays."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from tool_calls import agent_with, many_calls

from adk_skills_agent.adk.permissions import Decision
from adk_skills_agent.adk.rules import Verdict
from adk_skills_agent.adk.shell import command_approval, commands
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.packages import SkillEnvironments, skill_environments

SEES = (
    "import pathlib\n"
    "me = pathlib.Path('me.txt').read_text()\n"
    "print(me, sorted(path.name for path in pathlib.Path('.').glob('mine-*')))\n"
    "pathlib.Path('mine-' + me).touch()\n"
)
TURNS = """
turns:
  - call: {name: load_skill, args: {skill_name: worker}}
  - call: {name: run_skill_script, args: {skill_name: worker, file_path: sees.py, files: [me.txt]}}
  - call: {name: run_skill_script, args: {skill_name: worker, file_path: wrong.py}}
  - call: {name: run_skill_script, args: {skill_name: worker, file_path: sees.py, files: [me.txt]}}
  - text: done
"""


@pytest.fixture
def worker(make_skill: Callable[..., Path]) -> Path:
    return make_skill("worker", files={"scripts/sees.py": SEES}).parent


@pytest.mark.parametrize("sessions", [8, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.requirement("S0-52", "S0-123")
async def test_sessions_on_one_toolset_share_nothing(worker: Path, rehearse: Any, ask: Any, sessions: int) -> None:
    """S0-52, S0-123: a workspace, activations and counts of its own for each."""
    toolset = SkillToolset.from_dirs([worker])
    agent = agent_with(rehearse(TURNS), toolset)
    names = [f"session{number}" for number in range(sessions)]
    answers = await asyncio.gather(*(ask(agent, "go", artifacts={"me.txt": name.encode()}) for name in names))
    for name, answered in zip(names, answers, strict=True):
        loaded, first, missed, second = (result for _, result in answered.results)
        assert loaded["skill_name"] == "worker"
        assert "instructions" in loaded  # not "loaded before": that was another session
        assert first["stdout"] == f"{name} []\n"
        assert missed["error_code"] == "SCRIPT_NOT_FOUND"
        assert second["stdout"] == f"{name} ['mine-{name}']\n"
    await toolset.close()


@pytest.mark.slow
async def test_the_memory_of_a_toolset_does_not_grow_with_its_sessions(worker: Path, rehearse: Any, ask: Any) -> None:
    """Objects are counted, not bytes: the allocator keeps what it likes."""
    toolset = SkillToolset.from_dirs([worker])
    agent = agent_with(rehearse(TURNS), toolset)

    async def talk(count: int) -> int:
        for _ in range(count):
            await ask(agent, "go", artifacts={"me.txt": b"x"})
        gc.collect()
        ours = [one for one in gc.get_objects() if str(type(one).__module__).startswith("adk_skills_agent.adk")]
        return len(ours)

    before = await talk(4)
    assert await talk(8) <= before + 24  # a workspace and its upload each, at most; of 256 sessions, whatever comes
    await toolset.close()


@pytest.mark.slow
async def test_scripts_that_hang_leave_the_loops_threads_free(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    """Rows 19, (iii): there six hung scripts keep the agent's own name look-ups waiting."""
    folder = make_skill("worker", files={"scripts/slow.py": "import time; time.sleep(6)"}).parent
    call = "call: {name: run_skill_script, args: {skill_name: worker, file_path: slow.py}}"
    for settings in ({"policy": "trusted"}, {"code_executor": GoogleExecutor(timeout_seconds=60)}):
        toolset = SkillToolset.from_dirs([folder], **settings)  # type: ignore[arg-type]
        agent = agent_with(rehearse(f"turns:\n  - {call}\n  - text: done\n"), toolset)
        # More than the loop's pool has threads: were they used for scripts, this thread's work would wait for one.
        running = [asyncio.create_task(ask(agent, "go")) for _ in range((os.cpu_count() or 1) + 5)]
        await asyncio.sleep(2)
        await asyncio.to_thread(threading.get_ident)
        assert not any(task.done() for task in running)
        await asyncio.gather(*running)


@pytest.mark.parametrize("tool", ["run_skill_script", "execute"])
async def test_row_244_packages_that_are_looked_for_leave_the_loops_threads_free(
    tool: str, worker: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve scripts of one user whose index did not answer kept every tool of all users waiting for 80 s."""
    go_on, began = threading.Event(), threading.Semaphore(0)

    def waits(*_: Any, **__: Any) -> Any:
        began.release()
        go_on.wait()
        return None

    monkeypatch.setattr(SkillEnvironments, "environment_for", waits)
    monkeypatch.setattr(SkillEnvironments, "_environment", waits)
    args = "skill_name: worker, file_path: sees.py" if tool == "run_skill_script" else "command: pwd"
    turns = [
        "call: {name: load_skill, args: {skill_name: worker}}",
        f"call: {{name: {tool}, args: {{{args}}}}}",
        "text: done",
    ]
    toolset = SkillToolset.from_dirs([worker], policy="trusted", shell=True, dependencies="install")
    agent = agent_with(rehearse("turns:\n" + "".join(f"  - {turn}\n" for turn in turns)), toolset)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    running = [asyncio.create_task(ask(agent, "go")) for _ in range(3)]
    try:
        async with asyncio.timeout(20):
            for _ in running:
                while not began.acquire(blocking=False):
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(threading.get_ident)
        running.pop().cancel()  # nobody waits for it any more; it ends by itself
    finally:
        go_on.set()
    await asyncio.gather(*running)
    await toolset.close()


@pytest.mark.parametrize("tool", ["run_skill_script", "execute"])
async def test_row_375_many_files_of_a_skill_or_workspace_leave_the_loops_threads_free(
    tool: str, worker: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 calls of a skill with 18,000 files, or commands with as many: each tool of all users waited for 50 s."""
    go_on, began = threading.Event(), threading.Semaphore(0)

    def waits(of: Callable[..., Any], *args: Any) -> Any:
        began.release()
        go_on.wait()
        return of(*args)

    monkeypatch.setattr(SkillEnvironments, "is_settled", lambda *_: True)
    place, name = (skill_environments, "stamp_of_skill") if tool == "run_skill_script" else (commands, "usage_of")
    monkeypatch.setattr(place, name, functools.partial(waits, getattr(place, name)))
    args = "skill_name: worker, file_path: sees.py" if tool == "run_skill_script" else "command: pwd"
    turns = [f"call: {{name: {tool}, args: {{{args}}}, undeclared: true}}", "text: done"]
    toolset = SkillToolset.from_dirs([worker], policy="trusted", shell=True)
    agent = agent_with(rehearse("turns:\n" + "".join(f"  - {turn}\n" for turn in turns)), toolset)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    running = [asyncio.create_task(ask(agent, "go")) for _ in range(2)]
    try:
        async with asyncio.timeout(20):
            for _ in running:
                while not began.acquire(blocking=False):
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(threading.get_ident)
    finally:
        go_on.set()
    await asyncio.gather(*running)
    await toolset.close()


async def test_row_323_long_lines_of_one_user_keep_no_other_user_waiting(
    worker: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 lines of 99 KB in one answer took 4 s each of the loop's threads, which all tools of all users share."""
    go_on, began = threading.Event(), threading.Semaphore(0)

    def waits(*_: Any) -> Any:
        began.release()
        go_on.wait()
        return Decision(Verdict.DENY, "execute", "a", "seen")

    monkeypatch.setattr(command_approval, "decide_command", waits)
    toolset = SkillToolset.from_dirs([worker], policy="trusted", shell=True, permissions={"commands": {"b": "deny"}})
    agent = agent_with(rehearse(many_calls(("execute", {"command": "echo"}))), toolset)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    running = [asyncio.create_task(ask(agent, "go")) for _ in range(12)]
    try:
        async with asyncio.timeout(20):
            while not began.acquire(blocking=False):
                await asyncio.sleep(0.01)
            writing = agent_with(rehearse(many_calls(("write_file", {"path": "a", "content": "x"}))), toolset)
            other = await ask(writing, "go", user="other")
    finally:
        go_on.set()
    assert [result["status"] for _, result in other.results] == ["ok"]
    assert not began.acquire(blocking=False)  # one line of a user at a time
    answered = await asyncio.gather(*running)
    assert [one.results[0][1]["error_code"] for one in answered] == ["PERMISSION_DENIED"] * 12
    await toolset.close()
