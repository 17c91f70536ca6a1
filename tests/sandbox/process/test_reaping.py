"""A process that outlives the end of its run is killed and waited for; one that somebody else waited for is left."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from adk_skills_agent.sandbox.process.supervise import reap_late

SECONDS = 20.0


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def is_group(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("line", ["exec sleep 100", "sleep 100 & trap '' TERM; wait", "exit 3", "kill -STOP $$"])
def test_a_child_is_killed_with_its_group_and_waited_for(line):
    child = subprocess.Popen(["sh", "-c", line], start_new_session=True)
    child.returncode = 0  # Popen must neither wait nor complain
    began = time.monotonic()
    reap_late(child.pid)
    while is_there(child.pid) and time.monotonic() < began + SECONDS:
        time.sleep(0.01)
    assert not is_there(child.pid)
    while is_group(child.pid) and time.monotonic() < began + SECONDS:
        time.sleep(0.01)  # those of the group that were not its children are waited for by whoever adopts them
    assert not is_group(child.pid)
    reap_late(child.pid)  # a second time: nothing is left to do


def test_what_is_no_child_is_left_alone():
    shell = subprocess.Popen(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    grandchild = int(shell.stdout.readline())
    try:
        reap_late(grandchild)
        time.sleep(0.05)
        assert is_there(grandchild)
    finally:
        os.kill(grandchild, 9)
        shell.wait()
        shell.stdout.close()
