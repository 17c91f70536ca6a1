"""Whether our own sandbox can run scripts here, so that a tool that cannot work is not offered (S0-14)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import IsolationLevel

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.contract import Sandbox, SandboxPolicy

logger = logging.getLogger(__name__)


class ScriptReadiness:
    """Asks a sandbox at what level it isolates, and tells the owner once when that is not enough.

    Args:
        sandbox: The sandbox.
        policy: Its ``min_isolation`` is what is enough.
        tool: The tool that is not offered otherwise.
    """

    def __init__(self, sandbox: Sandbox, policy: SandboxPolicy, tool: str) -> None:
        self._sandbox = sandbox
        self._wanted = IsolationLevel(policy.min_isolation)
        self._tool = tool
        self._warned = False

    async def __call__(self) -> bool:
        """Whether scripts can run now."""
        try:
            report = await self._sandbox.probe()
        except SandboxError as error:  # the other tools still work; the next request asks again
            self._warn("%s is not offered: %s", self._tool, error.message)
            return False
        if report.level.strength >= self._wanted.strength:
            return True
        self._warn(
            "%s is not offered: this machine isolates scripts at level '%s', the policy asks for '%s'. %s",
            self._tool,
            report.level.value,
            self._wanted.value,
            " ".join(report.reasons),
        )
        return False

    def _warn(self, message: str, *values: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(message, *values)
