"""``SandboxPolicy(maker=...)``: who trusts only the audited program gets no sandbox from anything else."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

import level_table
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.policy import check_policy

pytestmark = pytest.mark.warm_pool

# Scripts of both kinds, more than a zygote needs to be started for; then one that stays, beside those that wait.
AGENT = """
import asyncio, sys
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.warm_pool import warm_pool
from adk_skills_agent.sandbox.local.namespaces.zygote import zygote_life
policy = SandboxPolicy(isolation="namespaces", min_isolation="namespaces", maker=sys.argv[1], wall_seconds=60)
box = local_sandbox()
def run(*argv):
    return box.run(ExecutionRequest(argv, policy))
async def main():
    makers = set()
    for _ in range(4):
        for argv in (("python3", "-c", "print(1)"), ("bash", "-c", "echo 1"), ("sleep", "0")):
            result = await run(*argv)
            assert result.status == "ok", result
            makers.add(result.isolation.maker)
        zygote_life().wait(20)
    staying = asyncio.create_task(run("sleep", "60"))
    for _ in range(1000):
        await asyncio.sleep(0.02)
        if warm_pool().idle() >= 2:
            break
    print(sorted(makers), zygote_life().wait(0), warm_pool().idle() >= 2, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    staying.cancel()
asyncio.run(main())
"""


def world(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def started_by(maker: str) -> tuple[str, list[str], set[str]]:
    """What an agent says, the parents of its sandboxes' first processes, and its own children that are no sandbox."""
    level_table.require("namespaces")
    line = [sys.executable, "-W", "ignore", "-c", AGENT, maker]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        said = agent.stdout.readline().strip()
        below = psutil.Process(agent.pid).children(recursive=True)
        outside = {one.pid: one for one in below if world(one.pid) == world(agent.pid)}
        inside = [one for one in below if one.pid not in outside]
        first = [one for one in inside if world(one.ppid()) != world(one.pid)]
        parents = ["agent" if one.ppid() == agent.pid else outside[one.ppid()].name() for one in first]
        others = {one.name() for one in outside.values()}
        agent.communicate("", timeout=30)
    assert agent.returncode == 0
    return said, parents, others


def test_with_bubblewrap_no_zygote_exists_and_every_sandbox_is_a_child_of_it() -> None:
    said, parents, others = started_by("bubblewrap")
    assert said == "['bubblewrap'] False True"
    assert len(parents) >= 3  # the one that runs and two that wait
    assert set(parents) == {"bwrap"}
    assert not any(name.startswith("python") for name in others), others


def test_without_it_the_zygote_forks_them_and_the_result_says_so() -> None:
    said, parents, _ = started_by("auto")
    assert said == "['bubblewrap', 'zygote'] True True"
    assert "agent" in parents


@pytest.mark.parametrize("maker", ["zygote", "", None, ["bubblewrap"]])
def test_another_maker_is_refused_in_a_sentence(maker: object) -> None:
    with pytest.raises(ConfigError, match=r"^maker must be 'auto' \(.*\) or 'bubblewrap' \(.*\), not .*\.$"):
        check_policy(SandboxPolicy(maker=maker))  # type: ignore[arg-type]
