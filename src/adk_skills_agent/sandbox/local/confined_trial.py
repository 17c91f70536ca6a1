"""Find out whether a level works here by running it once, with a program that tries what it must not be able to."""

from __future__ import annotations

import os
import select
import sys
import tempfile
from collections.abc import Callable

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.abandoned import own_prefix
from adk_skills_agent.sandbox.local.confined_run import ConfinedRun

MakeRun = Callable[[ExecutionRequest, SandboxPolicy], ConfinedRun]

_SECONDS = 20.0
# Says in one sentence the first thing that is not as it must be; "outside" is a file to keep out of reach.
_PROGRAM = """
import _socket, sys
with open("trial.txt", "w") as file:
    file.write("written")
try:
    _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    sys.exit("a socket could be made")
except PermissionError:
    pass
if outside:
    try:
        open(outside).close()
        sys.exit("a file outside of the sandbox could be read")
    except PermissionError:
        pass
"""


def trial(make: MakeRun, *, files: bool) -> str | None:
    """Run the level once; why it does not work here, as a clause, or None.

    Args:
        make: The level's ``new_run``.
        files: Whether the level keeps files outside out of reach.
    """
    policy = SandboxPolicy(wall_seconds=_SECONDS)
    try:
        with tempfile.NamedTemporaryFile(prefix=own_prefix("trial")) as secret:
            # In the program's text, because a path in an argument would be translated to the run's own /tmp.
            program = f"outside = {secret.name if files else ''!r}\n{_PROGRAM}"
            return _run(make(ExecutionRequest((sys.executable, "-I", "-c", program), policy), policy))
    except (SandboxError, OSError) as error:
        return str(getattr(error, "message", error)).rstrip(".")


def _run(run: ConfinedRun) -> str | None:
    run.start()
    try:
        assert run.child.pidfd is not None  # noqa: S101  # always has one: the pipe that closes
        poll = select.poll()
        poll.register(run.child.pidfd, select.POLLIN)
        in_time = bool(poll.poll(_SECONDS * 1000))
        if not in_time:
            run.kill()
    finally:
        aftermath = run.finish(wanted=False)
    if not in_time:
        return f"a trial run did not end in {_SECONDS:.0f} seconds"
    if aftermath.status is None:
        return "a trial run ended in an unknown way"
    code = os.waitstatus_to_exitcode(aftermath.status)
    if code != 0:
        said = aftermath.rest[1].decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"in a trial run, {said}" if code == 1 and said else f"a trial run ended with {code}: {said}"
    return None
