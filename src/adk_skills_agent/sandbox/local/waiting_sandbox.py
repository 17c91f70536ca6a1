"""Take a sandbox that waits for a run, with a guest or a bash in it, and hand a command over to what waits."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from adk_skills_agent.sandbox.contract import ExecutionRequest
from adk_skills_agent.sandbox.local.bash_ahead import Bash, is_called_again
from adk_skills_agent.sandbox.local.guest_control import GuestControl, Job
from adk_skills_agent.sandbox.local.newborn import Newborn
from adk_skills_agent.sandbox.local.run import stdin_file
from adk_skills_agent.sandbox.local.slots import SlotKey, slot_pool


@dataclass(frozen=True, slots=True)
class Command:
    """What is handed over.

    Attributes:
        argv: The command, as the sandbox sees it.
        environment: Its variables.
        limits: Resource, soft and hard limit.
        script: Where in it a script is that a guest runs itself; None when the guest becomes the command.
        bash: The bash that may wait for it; None when only a guest can take it.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    limits: tuple[tuple[int, int, int], ...]
    script: int | None
    bash: Bash | None


def take_waiting(key: SlotKey, command: Command, wanted: int, run_id: str, *, patient: bool) -> Newborn | None:
    """A warm sandbox for a run: with a bash that waits for it, where it can have one, or with a guest; or None.

    Args:
        key: What a sandbox with a guest must match.
        command: What is to run.
        wanted: How many are to be kept ready from now on.
        run_id: Which run asks.
        patient: Whether one that is nearly there is waited for.
    """
    pool = slot_pool()
    if command.bash is None:
        return pool.take(key, wanted, patient=patient)
    own = _with_bash(key, command.bash)
    if not is_called_again(own, run_id):
        return pool.take(key, wanted, patient=patient)
    return pool.take(own, wanted, patient=patient) or pool.spare(key)


@functools.lru_cache(maxsize=64)
def _with_bash(key: SlotKey, bash: Bash) -> SlotKey:
    """One object for all runs of a script: it is found sooner."""
    return replace(key, bash=bash)


def hand_over(newborn: Newborn, control: GuestControl, command: Command, request: ExecutionRequest) -> None:
    """Let the command begin in a sandbox that waits.

    Args:
        newborn: The sandbox.
        control: How its guest is told.
        command: What is to run.
        request: Its working directory and standard input are used.

    Raises:
        SandboxError: The sandbox is gone.
        OSError: No descriptor or memory is left.
    """
    if newborn.feed is not None and command.bash is not None:
        newborn.feed.give(command.bash, command.argv, command.environment)
        return
    stdin = None if request.stdin is None else stdin_file(request.stdin, "")
    try:
        environment = {**command.environment, "PWD": str(request.cwd)}  # as a shell would set it
        control.give(Job(command.argv, environment, str(request.cwd), command.script, command.limits, stdin))
    finally:
        if stdin is not None:
            os.close(stdin)
