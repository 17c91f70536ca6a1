"""Row 31 for containers: those of an agent that is killed end with it, and the next start removes what is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.container.removals import DEADLINE_LABEL, OWNER_LABEL, is_orphan, labels, owner
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from container_engines import StartedEngine, client, owned

AGENT = """
import asyncio, sys
from pathlib import Path
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.container.removals import owner
from adk_skills_agent.sandbox.contract import ExecutionRequest, ReadOnlyMount, SandboxPolicy
url, image, skill = sys.argv[1:]
async def main():
    box = ContainerSandbox(image, base_url=url)
    mounts = (ReadOnlyMount(Path(skill)),)
    policy = SandboxPolicy(wall_seconds=600)
    for _ in range(2):
        await box.run(ExecutionRequest(("true",), policy, mounts=mounts))
    await asyncio.sleep(1.5)  # two wait now
    def told(stream, data):
        print(owner(), flush=True)
    await box.run(ExecutionRequest(("sh", "-c", "echo running; trap '' TERM; sleep 600"), policy, mounts=mounts,
                                   on_output=told))
asyncio.run(main())
"""


@pytest.mark.slow
def test_row_31_containers_of_an_agent_that_was_killed_are_gone_at_the_next_start(
    engine: StartedEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skill = tmp_path_factory.mktemp("skill")
    (skill / "SKILL.md").write_text("x")
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, engine.url, engine.image, str(skill)], stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    dead = agent.stdout.readline().strip()
    assert dead
    assert owned(engine, dead)
    os.kill(agent.pid, signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    # Their programs end with the agent's end of the stream, long before anybody looks for orphans.
    deadline = time.monotonic() + 60
    while running(engine, dead) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert running(engine, dead) == []

    async def next_agent() -> Status:
        box = ContainerSandbox(engine.image, base_url=engine.url)
        try:
            return (await box.run(ExecutionRequest(("true",), SandboxPolicy(warm_slots=0)))).status
        finally:
            await box.close()

    assert asyncio.run(next_agent()) is Status.OK
    assert owned(engine, dead) == []
    found = client(engine)
    try:
        left = found.api.volumes(filters={"label": f"{OWNER_LABEL}={dead}"}).get("Volumes") or []
    finally:
        found.close()
    assert left == []


def running(engine: StartedEngine, agent: str) -> list[str]:
    found = client(engine)
    try:
        return [str(item["Id"]) for item in found.api.containers(filters={"label": f"{OWNER_LABEL}={agent}"})]
    finally:
        found.close()


def test_what_is_ours_or_of_others_is_no_orphan() -> None:
    assert not is_orphan(labels(lasts=60))
    assert not is_orphan({})
    assert not is_orphan(None)
    assert not is_orphan({OWNER_LABEL: "ffffffff-1-1"})  # another world: nobody here can know


def test_what_is_of_an_agent_that_is_gone_or_long_past_its_time_is_an_orphan() -> None:
    world = owner().split("-")[0]
    assert is_orphan({OWNER_LABEL: f"{world}-{os.getpid()}-1"})  # a process of that number started at another time
    assert is_orphan({OWNER_LABEL: "ffffffff-1-1", DEADLINE_LABEL: str(int(time.time()) - 7200)})
