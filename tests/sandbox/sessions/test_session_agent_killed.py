"""An agent that is killed takes its sessions with it, at every local level."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

import level_table

AGENT = """
import asyncio, json, sys, warnings
import psutil
warnings.simplefilter("ignore")
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.sessions import LocalSessions
from adk_skills_agent.sandbox.sessions.session import SessionRequest
from adk_skills_agent.sandbox.sessions.sessions import Sessions

async def main():
    sessions = Sessions(LocalSessions())
    policy = SandboxPolicy(isolation=sys.argv[1], min_isolation=sys.argv[1])
    code = "import subprocess\\nchild = subprocess.Popen(['sleep', '300'])"
    assert (await sessions.execute("a", SessionRequest(code, policy))).status == "ok"
    print(json.dumps([[one.pid, one.create_time()] for one in psutil.Process().children(recursive=True)]), flush=True)
    await sessions.execute("a", SessionRequest("import time; time.sleep(300)", policy))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", level_table.UNGROUPED, "landlock", "process"])
def test_an_agent_that_is_killed_leaves_no_process_of_a_session(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    program = level_table.WITHOUT_GROUPS + AGENT if level == level_table.UNGROUPED else AGENT
    level = level_table.enter(level, monkeypatch)
    with subprocess.Popen([sys.executable, "-c", program, level], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        known = json.loads(agent.stdout.readline())
        assert len(known) >= 3  # the supervisor, the kernel and what code started, at least
        agent.kill()
    running = [psutil.Process(pid) for pid, born in known if _is(pid, born)]
    _, alive = psutil.wait_procs(running, 20)
    assert [process.cmdline()[:2] for process in alive] == []


def _is(pid: int, born: float) -> bool:
    try:
        return psutil.Process(pid).create_time() == born
    except psutil.NoSuchProcess:
        return False
