"""Whose a container or volume is: its labels, and whether that agent is still there (issue 5: orphans)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from adk_skills_agent.sandbox.local.abandoned import is_gone, owner_name

OWNER_LABEL = "adk-skills.owner"
SESSION_LABEL = "adk-skills.session"
SANDBOX_LABEL = "adk-skills.sandbox"
DEADLINE_LABEL = "adk-skills.deadline"
_SLACK_SECONDS = 3600


def labels(*, lasts: float | None = None, session: str = "") -> dict[str, str]:
    """The labels of what this process makes.

    Args:
        lasts: Seconds after which it is surely not needed any more; None for no such time.
        session: Whose session it serves, if one.
    """
    made = {OWNER_LABEL: owner()}
    if lasts is not None:
        made[DEADLINE_LABEL] = str(int(time.time() + lasts))
    if session:
        made[SESSION_LABEL] = session
    return made


def is_orphan(found: Mapping[str, str] | None) -> bool:
    """Whether something with these labels is of an agent that is gone.

    Of an agent in another world (another machine, boot or process namespace) nobody here can know; its deadline tells,
    an hour late.
    """
    found = found or {}
    owner = found.get(OWNER_LABEL)
    if owner is None:
        return False
    world, _, rest = owner.partition("-")
    pid, _, start = rest.partition("-")
    if pid.isdigit() and start.isdigit() and is_gone(world, pid, start):
        return True
    deadline = found.get(DEADLINE_LABEL, "")
    return deadline.isdigit() and time.time() > int(deadline) + _SLACK_SECONDS


def owner() -> str:
    """This agent, as names on the engine may have it."""
    return owner_name() or f"unknown-{os.getpid()}"
