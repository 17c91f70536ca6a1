"""Row 12: a gigabyte on standard output costs the agent nothing, whether it ends the run or is let through."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.local("containers: tests/container/test_large_output.py")

MIB = 1 << 20
GROWTH = 10 * MIB

AGENT = """
import asyncio, json, resource, sys, warnings
warnings.simplefilter("ignore")
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
box = local_sandbox()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

async def run(code, **settings):
    policy = SandboxPolicy(**json.loads(sys.argv[1]), wall_seconds=120, **settings)
    return await box.run(ExecutionRequest(("bash", "-c", code), policy))

async def main():
    await run("head -c 3M /dev/zero")  # what a run of a usual size needs
    before = peak()
    result = await run(sys.argv[2], **json.loads(sys.argv[3]))
    await box.close()
    print(json.dumps({"status": result.status, "total": result.stdout_total + result.stderr_total,
                      "kept": len(result.stdout), "grown": peak() - before}))

asyncio.run(main())
"""


def written(backend: Any, code: str, **settings: object) -> dict[str, object]:
    """What an agent of its own has to say about such a run; ``grown`` is the growth of its largest resident memory."""
    line = [sys.executable, "-c", backend.agent(AGENT), json.dumps(backend.policy), code, json.dumps(settings)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stderr, done.returncode) == ("", 0)
    told: dict[str, object] = json.loads(done.stdout)
    return told


@pytest.mark.slow
def test_row_12_a_gigabyte_of_output_ends_the_run_early_and_the_agent_stays_small(backend):
    told = written(backend, "head -c 1G /dev/zero")
    assert told["status"] == "output_limit"
    assert 64 * MIB < int(str(told["total"])) < 128 * MIB
    assert told["kept"] == 256 << 10
    assert int(str(told["grown"])) < GROWTH


@pytest.mark.slow
def test_row_12_a_gigabyte_that_is_allowed_goes_through_whole_and_the_agent_stays_small(backend):
    code = "head -c 512M /dev/zero & head -c 512M /dev/zero >&2; wait"
    told = written(backend, code, output_flood_bytes=None)
    assert (told["status"], told["total"]) == ("ok", 1 << 30)
    assert int(str(told["grown"])) < GROWTH
