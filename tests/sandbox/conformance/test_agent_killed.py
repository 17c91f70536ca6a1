"""Row 31: an agent that is killed takes every process of its runs along, within a second, at whatever moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.local("containers: tests/container/test_agent_gone.py")

# Adopts whatever an agent leaves behind when it is killed, so that nothing can hide, and tells what is left when.
KEEPER = """
import ctypes, json, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
SECONDS = 1.0

def children(pid):
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += [int(child) for child in file.read().split()]
        except OSError:  # this one has ended, the others have children all the same
            pass
    return found

def descendants(pid):
    found = []
    waiting = [pid]
    while waiting:
        below = children(waiting.pop())
        found += below
        waiting += below
    return found

def described(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as line, open(f"/proc/{pid}/syscall") as call:
            return line.read().replace("\\0", " ")[:100] + " | " + call.read()
    except OSError:
        return "gone"

def one(delay):
    agent = subprocess.Popen([sys.executable, *sys.argv[2:]], stdout=subprocess.PIPE)
    said = agent.stdout.readline()
    time.sleep(delay)
    seen = len(descendants(agent.pid))
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return said.decode().strip(), seen, []
        if time.monotonic() > deadline:
            left = [described(pid) for pid in descendants(os.getpid())]
            for pid in children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
            return said.decode().strip(), seen, left
        time.sleep(0.005)

print(json.dumps([one(delay) for delay in json.loads(sys.argv[1])]))
"""

AGENT = """
import asyncio, json, os, sys, warnings
warnings.simplefilter("ignore")
import tempfile
tempfile.tempdir = sys.argv[2]
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
policy = SandboxPolicy(**json.loads(sys.argv[1]))
box = local_sandbox()
def request(code, **settings):
    return ExecutionRequest(("bash", "-c", code), policy, **settings)
"""

# One run that does all it can to outlive its agent: sessions of its own, daemons without pipes, signals ignored.
STUBBORN = """
code = '''
trap "" TERM HUP INT PIPE
setsid sleep 60 &
(setsid sh -c 'exec >/dev/null 2>&1 </dev/null; cd /; sleep 60; sleep 60' &)
python3 -c "import os, signal, time
for number in (1, 2, 13, 15): signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100); time.sleep(60)
    os._exit(0)
os.wait(); print('up', flush=True); time.sleep(60)" &
wait; wait; sleep 60
'''
def tell(name, data):
    print("up", flush=True)
asyncio.run(box.run(request(code, on_output=tell)))
"""

# Runs that start and end all the time, some of which leave something behind.
BUSY = """
async def again(n):
    while True:
        await box.run(request(("true", "setsid sleep 60 & true", "yes | head -c 100000", "sleep 0.02")[n % 4]))
async def main():
    await box.run(request("true"))
    print("up", flush=True)
    await asyncio.gather(*(again(n) for n in range(8)))
asyncio.run(main())
"""


def killed(backend: Any, folder: Path, program: str, delays: list[float]) -> list[tuple[str, int, list[str]]]:
    """For each delay: what the agent said, its descendants when it was killed, and those alive a second later."""
    line = [sys.executable, "-c", KEEPER, json.dumps(delays), "-c"]
    line += [backend.agent(AGENT + program), json.dumps(backend.policy), str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=600)
    assert (done.stderr, done.returncode) == ("", 0)
    told: list[tuple[str, int, list[str]]] = [tuple(one) for one in json.loads(done.stdout)]
    return told


@pytest.mark.level("landlock")
def test_row_31_daemons_and_stubborn_children_die_with_the_agent(backend, private_tmp):
    for said, seen, left in killed(backend, private_tmp, STUBBORN, [0.0, 0.3]):
        assert said == "up"
        assert seen >= 5
        assert left == []


@pytest.mark.slow
@pytest.mark.level("landlock")
def test_row_31_an_agent_that_is_killed_at_any_moment_of_many_runs_leaves_nothing(backend, private_tmp):
    delays = [0.005 * n for n in range(20)]
    told = killed(backend, private_tmp, BUSY, delays)
    assert [process for _, _, processes in told for process in processes] == []
    assert sum(seen for _, seen, _ in told) > len(delays)
