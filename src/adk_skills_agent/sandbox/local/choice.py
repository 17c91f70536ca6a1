"""Which isolation level a run gets: the strongest that works here and can do what its policy asks (S0-43)."""

from __future__ import annotations

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
    least = IsolationLevel(policy.min_isolation)
    demanded = None if policy.isolation == "auto" else IsolationLevel(policy.isolation)
    reasons: list[str] = []
    remedies: list[str] = []
    if demanded is not None and demanded.strength < least.strength:
        raise SandboxUnavailable(
            f"isolation={demanded.value!r} is weaker than min_isolation={least.value!r}. Change one of them.",
            (f"{demanded.value}: weaker than min_isolation",),
        )
    for level in levels():
        if level.level.strength < least.strength or demanded not in {None, level.level}:
            continue
        problem = level.problem()
        if problem is not None:
            remedies += [remedy] if (remedy := level.remedy()) else []
        else:
            problem = level.refusal(request, policy)
        if problem is None:
            _known.add((os.getpid(), policy.isolation, policy.min_isolation))
            return Choice(level, tuple(reasons))
        reasons.append(f"{level.level.value}: {problem}")
    _known.add((os.getpid(), policy.isolation, policy.min_isolation))
    if demanded is not None and not reasons:
        reasons.append(f"{demanded.value}: there is no such level on this system")
    raise SandboxUnavailable(_sentence(policy, reasons, remedies), tuple(reasons))


def is_known(policy: SandboxPolicy) -> bool:
    """Whether :func:`choose` has all it needs for such a policy, so that it does not block."""
    return (os.getpid(), policy.isolation, policy.min_isolation) in _known


def _sentence(policy: SandboxPolicy, reasons: list[str], remedies: list[str]) -> str:
    if policy.isolation == "auto":
        wanted = f"at least {policy.min_isolation!r} is required and nothing that strong works here"
    else:
        wanted = f"{policy.isolation!r} is required and does not work here"
    advice = f" To change that: {remedies[0]}." if remedies else ""
    return (
        f"Isolation {wanted} ({'; '.join(reasons)}).{advice} When you trust the skills you can choose "
        "min_isolation='process'; it does not protect the host's files and network."
    )
