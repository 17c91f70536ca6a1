"""What a script call costs around the sandbox: visits to threads, hashes, folders, memory. No time is measured."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from script_skill import FILES, Recording, result_of, run
from tool_calls import agent_with, many_calls

from adk_skills_agent.adk.events.events import ScriptStarted
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.adk.skills.source import DiskSkill
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import SandboxPolicy

FLOODS = {
    "scripts/flood.py": "print('x' * 100_000)\n",
    "scripts/torrent.py": "import sys\nblock = b'0123456789abcde\\n' * 65536\n"
    "for _ in range(int(sys.argv[1])):\n    sys.stdout.buffer.write(block)\nprint('the end')\n",
}
GROWTH = 10 << 20


@pytest.fixture
def tools(make_skill: Callable[..., Path]) -> Path:
    return make_skill("tools", files=FILES | FLOODS).parent


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What runs in threads for our tools."""
    seen: list[str] = []

    def counting(real: Any, position: int) -> Any:
        def counted(*args: Any, **named: Any) -> Any:
            inner = getattr(args[position], "func", args[position])
            if str(getattr(inner, "__module__", "")).startswith(("adk_skills_agent.adk", "adk_skills_agent.scripts")):
                seen.append(inner.__qualname__)
            return real(*args, **named)

        return counted

    monkeypatch.setattr(asyncio, "to_thread", counting(asyncio.to_thread, 0))
    monkeypatch.setattr(threads, "submit", counting(threads.submit, 1))
    return seen


async def test_a_call_visits_a_thread_at_most_once_and_makes_nothing_it_does_not_need(
    tools: Path, rehearse: Any, ask: Any, visits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toolset = SkillToolset.from_dirs([tools], policy="trusted")
    calls = [("run_skill_script", {"skill_name": "tools", "file_path": "hello.py", "args": [word]}) for word in "ab"]
    made: list[Any] = []
    real = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *args, **named: made.append(named) or real(*args, **named))
    answered = await ask(agent_with(rehearse(many_calls(*calls)), toolset), "go")
    assert [result["stdout"] for _, result in answered.results] == ["hello a\n", "hello b\n"]
    ours = [visit for visit in visits if "Script" in visit or "Workspace" in visit]
    # The second call looks in the event loop when the first look took no time.
    assert ours in (["RunSkillScriptTool._look"], ["RunSkillScriptTool._look"] * 2)
    assert not [named for named in made if "spill" in str(named)]


async def test_the_skill_is_hashed_for_a_call_only_when_somebody_listens(
    tools: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = DiskSkill.version
    monkeypatch.setattr(DiskSkill, "version", lambda self: asked.append(self.name) or real(self))
    await result_of(ask, rehearse(run("hello.py")), SkillToolset.from_dirs([tools], policy="trusted"))
    assert asked == []
    seen: list[Any] = []
    toolset = SkillToolset.from_dirs([tools], policy="trusted", on_event=seen.append)
    await result_of(ask, rehearse(run("hello.py")), toolset)
    assert asked == ["tools"]
    assert [len(event.version) for event in seen if isinstance(event, ScriptStarted)] == [64]


async def test_long_output_spills_into_a_folder_that_goes_with_the_call(
    tools: Path, rehearse: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    policy = SandboxPolicy(output_bytes=10_000)
    toolset = SkillToolset.from_dirs([tools], policy=policy)
    monkeypatch.setattr("adk_skills_agent.scripts.workspaces.SHARED_WORKSPACES._root", room)
    answered = await ask(agent_with(rehearse(run("flood.py")), toolset), "go")
    result = answered.results[0][1]
    assert "the full text is the artifact 'tools.flood.stdout.txt'" in result["stdout"]
    assert await answered.artifact("tools.flood.stdout.txt") == b"x" * 100_000 + b"\n"
    assert not [path for path in room.iterdir() if path.name.startswith("spill-")]


@pytest.mark.parametrize("output_bytes", [10_000, 200_000])
@pytest.mark.requirement("C45")
async def test_of_a_stream_too_large_for_a_file_the_beginning_is_kept_and_the_model_is_told(
    tools: Path, rehearse: Any, ask: Any, output_bytes: int
) -> None:
    """C45: a flood must not fill the agent's memory, nor the application's artifacts; spilled or not."""
    policy = SandboxPolicy(output_bytes=output_bytes, max_file_bytes=50_000)
    answered = await ask(agent_with(rehearse(run("flood.py")), SkillToolset.from_dirs([tools], policy=policy)), "go")
    result = answered.results[0][1]
    assert "; the first 50,000 bytes are the artifact 'tools.flood.stdout.txt' ...]" in result["stdout"]
    assert result["notes"] == ["The artifact 'tools.flood.stdout.txt' has only the first 50,000 bytes of stdout."]
    assert await answered.artifact("tools.flood.stdout.txt") == b"x" * 50_000
    assert result["saved_artifacts"] == ["tools.flood.stdout.txt"]


async def test_a_policy_without_files_keeps_no_stream_and_says_so(tools: Path, rehearse: Any, ask: Any) -> None:
    toolset = SkillToolset.from_dirs([tools], policy=SandboxPolicy(max_file_bytes=0))
    result = await result_of(ask, rehearse(run("flood.py")), toolset)
    assert "bytes left out ...]" in result["stdout"]
    assert result["notes"] == ["The full text of stdout is not kept: the policy allows no files."]
    assert "saved_artifacts" not in result


@pytest.mark.slow
@pytest.mark.parametrize("bound", [64 << 20, None], ids=["stopped", "to-its-end"])
@pytest.mark.requirement("C45")
async def test_a_gigabyte_of_output_costs_the_agent_little_memory(
    tools: Path, rehearse: Any, ask: Any, bound: int | None
) -> None:
    """C45, attack row of floods, through the tool and its artifact."""
    policy = replace(SandboxPolicy(), output_flood_bytes=bound, wall_seconds=300)
    toolset = SkillToolset.from_dirs([tools], policy=policy)
    await ask(agent_with(rehearse(run("torrent.py", args=["1"])), toolset), "go")
    server = rehearse(run("torrent.py", args=["1024"]))
    agent = agent_with(server, toolset)
    gc.collect()
    before = _peak(reset=True)
    answered = await ask(agent, "go")
    grown = _peak() - before
    result = answered.results[0][1]
    assert result["status"] == ("success" if bound is None else "error")
    assert "the first 5,242,880 bytes are the artifact" in result["stdout"]
    assert len(await answered.artifact("tools.torrent.stdout.txt")) == 5 << 20
    assert grown < GROWTH, f"{grown:,} bytes"


@pytest.mark.parametrize("settings", [{"policy": "trusted"}, {"sandbox": True}])
async def test_a_policy_or_sandbox_of_the_toolset_comes_before_the_agents_executor(
    tools: Path, rehearse: Any, ask: Any, settings: dict[str, Any]
) -> None:
    """Limits that the owner asked for are never dropped; what the toolset is given itself still comes first."""
    from adk_skills_agent.sandbox.local import local_sandbox

    settings = {"sandbox": local_sandbox()} if "sandbox" in settings else settings
    agents, toolsets = Recording(), Recording()
    toolset = SkillToolset.from_dirs([tools], **settings)
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=agents)
    assert (result["stdout"], agents.inputs) == ("hello\n", [])
    toolset = SkillToolset.from_dirs([tools], code_executor=toolsets, **settings)
    result = await result_of(ask, rehearse(run("hello.py")), toolset, code_executor=agents)
    assert (result["stdout"], len(toolsets.inputs)) == ("ran\n", 1)


def _peak(*, reset: bool = False) -> int:
    """The most memory this process ever had resident, in bytes; counted from now on with ``reset``."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
