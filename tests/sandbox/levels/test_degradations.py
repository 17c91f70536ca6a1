"""Attack row 72: a machine that lacks something gets the next level and says why, or refuses; never silently."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).with_name("degradations.py")

# An agent that runs the strongest level it can get and tells which that was, and whether it held.
AGENT = """
import asyncio, json, os, sys, tempfile, warnings
from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
warnings.simplefilter("ignore")
policy = SandboxPolicy(min_isolation=sys.argv[1])
secret = tempfile.NamedTemporaryFile(dir=os.getcwd())
code = f"import socket\\ntry: socket.socket().connect(('127.0.0.1', 1))\\nexcept OSError as e: print(e.errno)\\n" + (
    f"try: open({secret.name!r})\\nexcept OSError as e: print(e.errno)\\nelse: print(0)")
try:
    result = asyncio.run(local_sandbox().run(ExecutionRequest((sys.executable, "-c", code), policy)))
except SandboxUnavailable as error:
    print(json.dumps({"refused": str(error), "reasons": error.reasons}))
else:
    isolation = result.isolation
    print(json.dumps({"level": isolation.level, "reasons": isolation.reasons, "degraded": isolation.degraded,
                      "enforced": dict(isolation.enforced), "said": result.stdout.decode().split()}))
"""


def agent(folder: Path, degradation: str, minimum: str = "process") -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), degradation, sys.executable, "-c", AGENT, minimum],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_without_namespaces_landlock_is_next_and_says_why(tmp_path):
    told = agent(tmp_path, "docker-default", "landlock")
    assert told["level"] == "landlock"
    assert told["said"] == ["1", "13"]  # no socket, and the agent's file refused
    assert any(str(reason).startswith("namespaces:") for reason in told["reasons"])


def test_without_landlock_and_namespaces_only_process_is_left_and_says_what_it_leaves_open(tmp_path):
    told = agent(tmp_path, "gvisor")
    assert told["level"] == "process"
    assert any("landlock" in str(reason) and "no Landlock" in str(reason) for reason in told["reasons"])
    assert any(str(sentence).startswith("files:") for sentence in told["degraded"])
    assert told["enforced"]["files"] == told["enforced"]["syscalls"] == "none"


def test_that_is_refused_by_default(tmp_path):
    told = agent(tmp_path, "gvisor", "landlock")
    assert "landlock" in str(told["refused"])
    assert any("no Landlock" in str(reason) for reason in told["reasons"])


def test_landlock_without_a_filter_is_not_enough_so_that_only_process_is_left(tmp_path):
    told = agent(tmp_path, "no-seccomp")
    assert told["level"] == "process"
    assert any("install the system call filter" in str(reason) for reason in told["reasons"])


@pytest.mark.parametrize("degradation", ["docker-default", "gvisor", "no-seccomp"])
def test_a_demanded_level_that_is_missing_is_refused(tmp_path, degradation):
    assert "refused" in agent(tmp_path, degradation, "namespaces")
