"""The cgroup level: namespaces, and a control group for each run that bounds its memory and processes as a whole.

Needs what the namespaces level needs, and control groups the agent may make: version 2 where its group was delegated to
it, version 1 where it is root.
"""

from __future__ import annotations

from types import MappingProxyType

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.cgroup_hierarchy import NoControlGroups
from adk_skills_agent.sandbox.local.cgroup_pool import group_pool
from adk_skills_agent.sandbox.local.cgroup_run import CgroupRun
from adk_skills_agent.sandbox.local.level_answers import answered_once
from adk_skills_agent.sandbox.local.levels import Enforcement
from adk_skills_agent.sandbox.local.namespaces_level import NamespacesLevel, missing
from adk_skills_agent.sandbox.local.namespaces_report import namespaces_report


class CgroupLevel(NamespacesLevel):
    """See :class:`~adk_skills_agent.sandbox.local.levels.Level`."""

    level = IsolationLevel.CGROUP

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, lambda: _no_groups() or missing() or self._try())

    def remedy(self) -> str | None:
        """What would permit control groups, or install what else is missing."""
        try:
            group_pool()
        except NoControlGroups as error:
            return error.fix
        except SandboxError:
            return None
        return super().remedy()

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> CgroupRun:
        """A run of its own; nothing happens before its ``start()``."""
        return CgroupRun(request, policy)

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        without = namespaces_report(policy)
        enforced = {**without.enforced, "memory": "cgroup", "pids": "cgroup"}
        degraded = tuple(sentence for sentence in without.degraded if not sentence.startswith(("memory:", "pids:")))
        return Enforcement(MappingProxyType(enforced), degraded, frozenset({"memory", "pids"}))


def _no_groups() -> str | None:
    try:
        group_pool()
    except NoControlGroups as error:
        return str(error)
    except SandboxError as error:
        return error.message.rstrip(".")
    return None
