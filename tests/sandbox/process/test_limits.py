"""The shell prefix, in every shell that may be /bin/sh."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.process.command import NOT_STARTED_CODES, launcher

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
SHOW = """
import json, resource, sys
names = ("CORE", "CPU", "FSIZE", "DATA", "NOFILE")
print(json.dumps([{n: resource.getrlimit(getattr(resource, f"RLIMIT_{n}")) for n in names}, sys.argv[1:]]))
"""


def start(shell: str, line: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", *line[1:]], executable=shutil.which(shell), capture_output=True, check=False)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_has_every_limit_and_its_arguments_untouched(shell, tmp_path):
    policy = SandboxPolicy(cpu_seconds=7, file_bytes=1_000_001, memory_bytes=300 << 20, open_files=99)
    hostile = ["", "$(id)", "a\nb", "-c", '"; exit 9; "', "文\u0081", "*"]
    marker = tmp_path / "marker"
    done = start(shell, launcher(policy, str(marker), [sys.executable, "-c", SHOW, *hostile]))
    limits, arguments = json.loads(done.stdout)
    assert arguments == hostile
    assert limits["CORE"] == [0, 0]
    assert limits["CPU"] == [7, 8]
    assert limits["FSIZE"][0] == -(-1_000_001 // 512) * 512
    assert limits["DATA"] == [300 << 20] * 2
    assert limits["NOFILE"] == [99, 99]
    assert not marker.exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", ["/no/such/command", "/etc"])
def test_a_command_that_cannot_be_started_leaves_the_marker(shell, command, tmp_path):
    marker = tmp_path / "marker"
    done = start(shell, launcher(SandboxPolicy(), str(marker), [command]))
    assert done.returncode in NOT_STARTED_CODES
    assert marker.exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("code", [0, 2, 125, 126, 127])
def test_a_command_that_only_ends_like_that_does_not(shell, code, tmp_path):
    marker = tmp_path / "marker"
    done = start(shell, launcher(SandboxPolicy(), str(marker), ["/bin/sh", "-c", f"exit {code}"]))
    assert done.returncode == code
    assert not marker.exists()


def test_a_limit_that_cannot_be_set_stops_the_start(tmp_path):
    marker = tmp_path / "marker"
    line = launcher(SandboxPolicy(), str(marker), ["/bin/echo", "ran"])
    line[2] = line[2].replace("ulimit -c 0", "ulimit -c nonsense")
    done = subprocess.run(line, capture_output=True, check=False)
    assert b"ran" not in done.stdout
    assert marker.exists()


def test_unlimited_stays_unlimited(tmp_path):
    policy = SandboxPolicy(
        wall_seconds=None, cpu_seconds=None, memory_bytes=None, pids=None, open_files=None, file_bytes=None
    )
    done = start("sh", launcher(policy, str(tmp_path / "m"), [sys.executable, "-c", SHOW]))
    assert json.loads(done.stdout)[0]["CPU"] == [-1, -1]


def test_the_cpu_limit_follows_a_deadline_without_beating_it(tmp_path):
    for wall, expected in ((1.0, 2), (0.2, 1), (29.5, 30)):
        line = launcher(SandboxPolicy(wall_seconds=wall), str(tmp_path / "m"), ["/bin/true"])
        assert f"ulimit -S -t {expected} " in line[2]
