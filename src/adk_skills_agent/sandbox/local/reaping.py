"""Wait for what takes its time to die: a process that outlives the end of its run must not stay a zombie."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from adk_skills_agent.sandbox.local.processes import signal_group


def reap_late(pid: int) -> None:
    """Wait for a child without blocking; one that is still alive is killed first, with the group it leads.

    A thread waits for it, which next to no run needs: a killed process that is not dead yet hangs in the kernel, or the
    machine is too busy to let it die. No effect on a process that was waited for already, whoever did.

    Args:
        pid: The child.
    """
    try:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
    except ChildProcessError:
        return
    signal_group(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # bubblewrap leads no group
    with contextlib.suppress(RuntimeError):  # no thread to be had; the system reaps it after us
        threading.Thread(target=_wait, args=(pid,), name="adk-skills-reaper", daemon=True).start()


def _wait(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
