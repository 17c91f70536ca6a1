"""Python sessions in containers: a container for each session (issue 5, S0-109 to S0-114)."""

from __future__ import annotations

from dataclasses import replace

from adk_skills_agent.sandbox.container.box import ContainerBox
from adk_skills_agent.sandbox.container.sandbox import ContainerSandbox
from adk_skills_agent.sandbox.contract import SandboxPolicy


class ContainerSessions:
    """Starts sessions in containers of a sandbox; see :class:`~..session_channel.SessionHost`.

    Args:
        sandbox: Whose engine, image and options they get, and whose waiting containers.
    """

    def __init__(self, sandbox: ContainerSandbox) -> None:
        self._sandbox = sandbox

    async def start(self, policy: SandboxPolicy) -> ContainerBox:
        """A container whose program answers; see ``SessionHost``."""
        self._sandbox.check_usable(policy)
        # What is one execution's is enforced by the program in it; here it would be the session's.
        box, _ = await self._sandbox.take_box(replace(policy, wall_seconds=None, cpu_seconds=None))
        return box
