"""What an isolation level of this machine is, and the ones there are, strongest first.

A level prepares, starts and ends runs in its own way; everything between (output, deadline, limits that are watched,
the result) is the same for all and in :mod:`.sandbox`.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.run import LocalRun
from adk_skills_agent.sandbox.process import seccomp
from adk_skills_agent.sandbox.process.supervise import EndReport, is_readable


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who enforces what for runs of one level under one policy.

    Attributes:
        enforced: See ``IsolationReport``.
        degraded: See ``IsolationReport``.
        hard: Concerns the kernel bounds for a run as a whole, so that the watchdog need not.
    """

    enforced: Mapping[str, str]
    degraded: tuple[str, ...] = ()
    hard: frozenset[str] = frozenset()


def cpu_enforced(policy: SandboxPolicy) -> str:
    """Who bounds the processor time of runs, at every level: each process has a limit of its own."""
    return "none" if policy.cpu_seconds is None and policy.wall_seconds is None else "rlimit"


def cpu_sentences(policy: SandboxPolicy) -> tuple[str, ...]:
    """What a limit for each process leaves open, for ``Enforcement.degraded``."""
    if policy.cpu_seconds is None:
        return ()
    return ("cpu: cpu_seconds holds for each process; all together are bounded only by the deadline.",)


class Level(Protocol):
    """One way to contain runs on this machine."""

    @property
    def level(self) -> IsolationLevel:
        """Which one."""

    def problem(self) -> str | None:
        """Why it does not work here, as a clause ("bubblewrap is not installed"); None when it does.

        Found by really running it once per process; blocking, for a worker thread.
        """

    def remedy(self) -> str | None:
        """The one command that would make it work here, or enforce more, when one is known.

        Only asked after ``problem()``.
        """

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:
        """Why it cannot run this request although it works here, as a clause; None when it can."""

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> LocalRun:
        """A run that is not started yet."""

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """What holds for runs under ``policy``."""


@functools.cache
def levels() -> tuple[Level, ...]:
    """The levels there are, strongest first; the modules of each are imported at the first use."""
    from adk_skills_agent.sandbox.local.levels.landlock import LandlockLevel
    from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
    from adk_skills_agent.sandbox.local.levels.process import ProcessLevel

    return (NamespacesLevel(), LandlockLevel(), ProcessLevel())


# Whether something works here, found once per process: of several that ask at once, one tries and all get its answer.
#
# A trial is a run, so without this the first runs of an agent, which like to come together, would each begin with
# one.

_answers: dict[str, str | None] = {}
_lock = threading.RLock()  # whether a level works may depend on whether a part of it does


def answered_once(what: str, attempt: Callable[[], str | None]) -> str | None:
    """Why it does not work here; None when it does. Blocks while it is being tried, and never afterwards.

    Args:
        what: A level, or what a level can do without.
        attempt: Finds out. What it raises is no answer, and the next one to ask tries again.
    """
    if what not in _answers:
        with _lock:
            if what not in _answers:
                _answers[what] = attempt()
    return _answers[what]


def _forget() -> None:
    global _lock  # noqa: PLW0603  # it may have been held when the process was forked
    _lock = threading.RLock()
    _answers.clear()  # a forked child may be another user, or in a world of its own


os.register_at_fork(after_in_child=_forget)


TRIAL_SECONDS = 20.0


def trial_run(run: LocalRun) -> EndReport | None:
    """Run something to find out whether a level works; None when it did not end in :data:`TRIAL_SECONDS`.

    Raises:
        SandboxError: It could not be run.
    """
    run.start()
    try:
        assert run.child.pidfd is not None  # noqa: S101  # at the levels that are tried it is a pipe or a socket
        in_time = is_readable(run.child.pidfd, TRIAL_SECONDS)
        if not in_time:
            run.kill()
    finally:
        report = run.finish(wanted=False)
    return report if in_time else None


# Where the levels that are made of Linux system calls can exist at all.


def unsupported() -> str | None:
    """Why neither Landlock nor a system call filter can be used in this process; None when they can be tried."""
    if sys.platform != "linux":
        return f"{platform.system()} has neither Landlock nor system call filters; they are Linux's"
    if not seccomp.supports(platform.machine()):
        return f"no system call filter is known for {platform.machine()}; there is one for x86_64 and aarch64"
    if sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return "system call filters are only known for 64-bit little-endian systems"
    if not sys.executable or not os.access(sys.executable, os.X_OK):
        return "this Python does not know its own interpreter (sys.executable), which has to start the sandbox"
    if not os.path.isdir(f"/proc/{os.getpid()}/task"):  # noqa: PTH112
        return "/proc is not mounted, so what a run leaves behind could not be found"
    return None


# Which isolation level a run gets: the strongest that works here and can do what its policy asks (S0-43).

_known: set[tuple[int, str, str]] = set()


@dataclass(frozen=True, slots=True)
class Choice:
    """A level, and why the stronger ones were not taken."""

    level: Level
    reasons: tuple[str, ...] = ()


def choose(request: ExecutionRequest, policy: SandboxPolicy) -> Choice:
    """Choose a level for one run. The first time it tries levels out: blocking, for a worker thread.

    Raises:
        SandboxUnavailable: None at or above ``min_isolation`` works here and fits, with the reason of each.
    """
    reasons: list[str] = []
    remedies: list[str] = []
    works = False  # one of those asked for does, if only for other policies
    for level in _asked_for(policy.isolation, policy.min_isolation):
        problem = level.problem()
        if problem is not None:
            remedies += [remedy] if (remedy := level.remedy()) else []
        else:
            works = True
            problem = level.refusal(request, policy)
        if problem is None:
            _known.add((os.getpid(), policy.isolation, policy.min_isolation))
            return Choice(level, tuple(reasons))
        reasons.append(f"{level.level.value}: {problem}")
    _known.add((os.getpid(), policy.isolation, policy.min_isolation))
    if policy.isolation != "auto" and not reasons:
        reasons.append(f"{policy.isolation}: there is no such level on this system")
    error = SandboxUnavailable(_sentence(policy, reasons, works=works), tuple(reasons))
    best = _strongest(request, policy)
    # Notes are for the developer: a model that is told how to switch protection off may pass that on.
    for remedy in remedies[:1]:
        error.add_note(f"To change that: {remedy}.")
    error.add_note(_advice(policy, best))
    raise error


@functools.lru_cache(maxsize=64)
def _asked_for(isolation: str, min_isolation: str) -> tuple[Level, ...]:
    least = IsolationLevel(min_isolation)
    demanded = None if isolation == "auto" else IsolationLevel(isolation)
    if demanded is not None and demanded.strength < least.strength:
        raise SandboxUnavailable(
            f"isolation={demanded.value!r} is weaker than min_isolation={least.value!r}. Change one of them.",
            (f"{demanded.value}: weaker than min_isolation",),
        )
    return tuple(
        level for level in levels() if level.level.strength >= least.strength and demanded in {None, level.level}
    )


def is_known(policy: SandboxPolicy) -> bool:
    """Whether :func:`choose` has all it needs for such a policy, so that it does not block."""
    return (os.getpid(), policy.isolation, policy.min_isolation) in _known


def _strongest(request: ExecutionRequest, policy: SandboxPolicy) -> IsolationLevel | None:
    for level in levels():
        if level.problem() is None and level.refusal(request, policy) is None:
            return level.level
    return None


def _sentence(policy: SandboxPolicy, reasons: list[str], *, works: bool) -> str:
    if policy.isolation == "auto":
        fits = "what works here does not fit the policy" if works else "nothing that strong works here"
        wanted = f"at least {policy.min_isolation!r} is required and {fits}"
    else:
        wanted = f"{policy.isolation!r} is required and does not {'fit the policy' if works else 'work here'}"
    return f"Isolation {wanted} ({'; '.join(reasons)})."


def _advice(policy: SandboxPolicy, best: IsolationLevel | None) -> str:
    if best is None:
        return "No level that works here fits the policy: change what the reasons name."
    if best.strength >= IsolationLevel(policy.min_isolation).strength:
        return f"The strongest level that works here and fits is {best.value!r}: isolation='auto' takes it."
    unprotected = "" if best is not IsolationLevel.PROCESS else ", which does not protect the host's files and network"
    return (
        f"The strongest level that works here and fits is {best.value!r}{unprotected}. When you trust the skills you "
        f"can choose min_isolation={best.value!r}."
    )
