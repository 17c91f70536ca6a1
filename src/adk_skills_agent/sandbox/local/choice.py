"""Which isolation level a run gets: the strongest that works here and can do what its policy asks (S0-43)."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.levels import Level, levels

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
    # Notes are for the owner: a model that is told how to switch protection off may pass that on.
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
