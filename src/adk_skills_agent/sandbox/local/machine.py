"""What this machine offers for isolation, for a person to read: kernel, Landlock, user namespaces, cgroups, programs.

Facts beside the levels' own trial runs, which alone decide what is used: they say why a trial run failed. Nothing here
raises; what cannot be found out is said to be unknown.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.platforms import own_groups
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.kernel import landlock
from adk_skills_agent.sandbox.local.kernel.user_namespaces import UserNamespaces, user_namespaces
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
from adk_skills_agent.sandbox.process.command import PROGRAMS
from adk_skills_agent.sandbox.process.tree import EVERYTHING, kernel_setting, places_for, tasks_left

_SECONDS = 10
_CONTROLLERS = ("memory", "pids", "cpu")


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """The cgroup hierarchies that are mounted, and the controllers in whose group this process may make another."""

    version: str
    writable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything ``adk-skills doctor`` says about the machine itself.

    ``landlock_abi`` is 0 when Landlock cannot be used. A bubblewrap that does not run has a path and no version.
    """

    system: str
    user: int
    landlock_abi: int
    landlock_problem: str | None
    seccomp: bool
    bubblewrap: str | None
    bubblewrap_path: str | None
    user_namespaces: UserNamespaces
    control_groups: ControlGroups
    python: str
    python_path: str
    bash: str | None
    user_watches: int  # that each user may have with epoll; 0 when that is not known
    most_tasks: int | None  # processes and threads of the groups around this process; None where nothing limits them
    most_runs: int  # that go on at a time, with the default number of processes for each


def this_machine() -> Machine:
    """Look at everything; takes a few hundredths of a second."""
    version = _landlock()
    program = _bubblewrap()
    most = tasks_left()[1]
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        user=os.geteuid(),
        landlock_abi=version,
        landlock_problem=None if version else _landlock_problem(),
        seccomp="Seccomp:" in _text("/proc/self/status"),
        bubblewrap=program[1],
        bubblewrap_path=program[0],
        user_namespaces=user_namespaces(),
        control_groups=control_groups(),
        python=platform.python_version(),
        python_path=sys.executable or "unknown",
        bash=shutil.which("bash", path=PROGRAMS),
        user_watches=kernel_setting("fs/epoll/max_user_watches", 0),
        most_tasks=None if most == EVERYTHING else most,
        most_runs=places_for(most, SandboxPolicy().pids or 0),
    )


def control_groups() -> ControlGroups:
    """Which are mounted, and where this process may make a group below its own."""
    try:
        own = own_groups(_text("/proc/self/cgroup"), _text("/proc/self/mountinfo"))
    except ValueError:  # a line this does not understand
        own = {}
    first = [name for name in _CONTROLLERS if name in own]
    if first:
        writable = tuple(name for name in first if os.access(own[name], os.W_OK))
        return ControlGroups("v1 with an empty v2" if "" in own else "v1", writable)
    if "" not in own:
        return ControlGroups("none", ())
    offered = _text(f"{own['']}/cgroup.controllers").split() if os.access(own[""], os.W_OK) else []
    return ControlGroups("v2", tuple(name for name in _CONTROLLERS if name in offered))


def _bubblewrap() -> tuple[str | None, str | None]:
    """Its path and version; the one the namespaces level uses, whatever ``PATH`` says."""
    import subprocess

    try:
        found = bubblewrap.features()
        if found is None:
            return None, None
        line = [found.path, "--version"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_SECONDS, env={}, cwd="/")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None, None
    return found.path, done.stdout.strip().removeprefix("bubblewrap ") or None


def _landlock() -> int:
    if sys.platform != "linux":
        return 0
    try:
        return landlock.abi()
    except (ImportError, OSError, AttributeError):  # an interpreter without ctypes, a C library without syscall()
        return 0


def _landlock_problem() -> str:
    if sys.platform != "linux":
        return "Landlock is a feature of Linux"
    try:
        return landlock.absence()
    except (ImportError, OSError, AttributeError) as error:
        return f"it could not be asked for ({error})"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
