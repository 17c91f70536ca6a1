"""Start a sandbox whose process 1 is a guest, up to the point at which it waits for a job."""

from __future__ import annotations

from adk_skills_agent.sandbox.contract import WORK_DIR
from adk_skills_agent.sandbox.local.environment import search_path
from adk_skills_agent.sandbox.local.guest_control import GuestControl, guest_line, guest_program
from adk_skills_agent.sandbox.local.own_interpreter import BASE
from adk_skills_agent.sandbox.local.run import TMP_DIR
from adk_skills_agent.sandbox.local.sandbox_start import FirstProcess, SandboxSpec, Started, start_sandbox
from adk_skills_agent.sandbox.local.zygote_life import zygote_life


def start_guest(
    spec: SandboxSpec, python: str, flags: tuple[str, ...], preload: tuple[str, ...] = (), *, ahead: bool = False
) -> Started:
    """Make the sandbox. Blocking, for a worker thread.

    Args:
        spec: What it is made from.
        python: The interpreter that runs the agent, as the sandbox sees it.
        flags: The switches a script is to find set.
        preload: Modules to import first.
        ahead: Whether its job will not come at once.

    Raises:
        SandboxError: It could not be made, or a module could not be imported.
        OSError: No descriptor or memory is left.
    """
    # Only what an interpreter reads at its start. Everything else comes with the job.
    environment = {"PATH": search_path(None), "HOME": str(WORK_DIR), "TMPDIR": str(TMP_DIR), **BASE}
    first = FirstProcess(
        guest_line(python, flags), environment, GuestControl, program=guest_program(spec.uid, preload, ahead=ahead)
    )
    return zygote_life().start(spec, python, flags, preload, lambda: start_sandbox(spec, first), ahead=ahead)
