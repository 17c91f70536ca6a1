"""Control groups of version 2: the agent's own group hands its controllers on, or says why it cannot.

Needs a system where version 2 has the controllers and root; on hybrid systems these rows are skipped with that reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
USER = 61_234


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "needs root to make groups for agents"
    try:
        controllers = (ROOT / "cgroup.controllers").read_text().split()
    except OSError:
        return "control groups of version 2 are not mounted at /sys/fs/cgroup"
    if not {"memory", "pids"}.issubset(controllers):
        return "version 2 has no memory and pids controllers here"
    return None


pytestmark = pytest.mark.skipif(_lacking() is not None, reason=str(_lacking()))

AGENT = """
import asyncio, os, sys
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
bomb = "import mmap\\nm = mmap.mmap(-1, 200 << 20)\\nfor o in range(0, len(m), 4096): m[o] = 1"
policy = SandboxPolicy(memory_bytes=64 << 20, wall_seconds=120.0)
result = asyncio.run(local_sandbox().run(ExecutionRequest(("python3", "-I", "-S", "-c", bomb), policy)))
print(result.isolation.enforced["memory"], result.status.value, [s for s in result.isolation.degraded if "group" in s])
print(open("/proc/self/cgroup").read().strip())
"""


@pytest.fixture
def group() -> Iterator[Path]:
    (ROOT / "cgroup.subtree_control").write_text("+memory +pids")
    made = Path(tempfile.mkdtemp(prefix="adk-test-", dir=ROOT))
    yield made
    deadline = time.monotonic() + 10
    for folder in sorted((path for path in made.rglob("*") if path.is_dir()), reverse=True):
        remove(folder, deadline)
    remove(made, deadline)


def remove(folder: Path, deadline: float) -> None:
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def agent_in(group: Path, *, user: int | None = None) -> tuple[str, str]:
    """What an agent says about its run, and where it is afterwards."""
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    change = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    python = sys.executable if user is None else shutil.which("python3", path="/usr/bin:/usr/local/bin")
    line = ["sh", "-c", enter, "sh", *change, str(python), "-W", "ignore", "-c", AGENT]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)} | ({} if user is None else {"HOME": "/"})
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=200, cwd="/", env=environment)
    assert done.returncode == 0, done.stderr
    said, where = done.stdout.splitlines()
    return said, where


def test_an_agent_alone_in_its_group_steps_aside_and_hands_its_controllers_on(group):
    said, where = agent_in(group)
    assert said == "cgroup v2 oom []"
    assert where == f"0::/{group.name}/adk-skills-runtime"
    assert [path.name for path in group.iterdir() if path.is_dir()] == ["adk-skills-runtime"]


def test_the_next_agent_in_the_leaf_uses_the_same_group(group):
    agent_in(group)
    said, where = agent_in(group / "adk-skills-runtime")
    assert (said, where) == ("cgroup v2 oom []", f"0::/{group.name}/adk-skills-runtime")


def test_an_agent_with_others_in_its_group_moves_nobody_and_says_so(group):
    with subprocess.Popen(["sleep", "300"]) as other:
        (group / "cgroup.procs").write_text(str(other.pid))
        said, where = agent_in(group)
        other.kill()
    assert said.startswith("rlimit+watchdog ")
    assert "other processes (1), so its controllers cannot be handed on" in said
    assert where == f"0::/{group.name}"


def test_a_group_without_the_controllers_is_said_to_lack_them(group):
    below = group / "below"
    below.mkdir()
    said, _ = agent_in(below)
    assert said.startswith("rlimit+watchdog ")
    assert "has no memory and no pids controller" in said


def test_a_plain_user_whose_group_was_delegated_gets_groups(group):
    for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(group / name, USER, USER)
    said, where = agent_in(group, user=USER)
    assert said == "cgroup v2 oom []"
    assert where == f"0::/{group.name}/adk-skills-runtime"


def test_a_plain_user_whose_group_was_not_delegated_does_not(group):
    said, _ = agent_in(group, user=USER)
    assert said.startswith("rlimit+watchdog ")
    assert "not writable here" in said
    assert "Permission denied" in said
