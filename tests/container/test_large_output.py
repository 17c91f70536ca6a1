"""Row 12 for containers: a gigabyte of output costs the agent nothing, whether it ends the run or is let through."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from container_engines import StartedEngine

pytestmark = pytest.mark.slow

MIB = 1 << 20
GROWTH = 16 * MIB
"""A frame of the largest size, its text and its bytes, a few at a time."""

AGENT = """
import asyncio, json, resource, sys
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
url, image, code, settings = sys.argv[1:]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

async def main():
    box = ContainerSandbox(image, base_url=url)

    async def run(code, **settings):
        policy = SandboxPolicy(wall_seconds=500, warm_slots=0, **settings)
        return await box.run(ExecutionRequest(("bash", "-c", code), policy))

    await run("head -c 20M /dev/zero")  # what a run of a usual size needs
    before = peak()
    result = await run(code, **json.loads(settings))
    await box.close()
    print(json.dumps({"status": result.status, "total": result.stdout_total + result.stderr_total,
                      "kept": len(result.stdout), "grown": peak() - before}))

asyncio.run(main())
"""


def written(engine: StartedEngine, code: str, **settings: object) -> dict[str, object]:
    """What an agent of its own has to say about such a run; ``grown`` is the growth of its largest resident memory."""
    line = [sys.executable, "-c", AGENT, engine.url, engine.image, code, json.dumps(settings)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=600)
    assert (done.stderr, done.returncode) == ("", 0)
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_row_12_a_gigabyte_in_a_container_ends_the_run_early_and_the_agent_stays_small(engine: StartedEngine) -> None:
    told = written(engine, "head -c 1G /dev/zero")
    assert told["status"] == "output_limit"
    assert 64 * MIB < int(str(told["total"])) < 128 * MIB
    assert told["kept"] == 256 << 10
    assert int(str(told["grown"])) < GROWTH


def test_row_12_a_gigabyte_of_a_container_that_is_allowed_goes_through_whole(engine: StartedEngine) -> None:
    code = "head -c 512M /dev/zero & head -c 512M /dev/zero >&2; wait"
    told = written(engine, code, output_flood_bytes=None)
    assert (told["status"], told["total"]) == ("ok", 1 << 30)
    assert int(str(told["grown"])) < GROWTH
