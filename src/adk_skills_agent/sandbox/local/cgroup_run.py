"""One run with namespaces and a control group of its own: the kernel bounds memory and processes of it as a whole."""

from __future__ import annotations

import contextlib
import signal

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import cgroup_files
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.cgroup_group import Group, Usage
from adk_skills_agent.sandbox.local.cgroup_hierarchy import NoControlGroups
from adk_skills_agent.sandbox.local.cgroup_pool import GroupPool, group_pool
from adk_skills_agent.sandbox.local.exact_end import children_of
from adk_skills_agent.sandbox.local.namespaces_run import NamespacesRun
from adk_skills_agent.sandbox.local.spawner import BIRTHPLACE

_FIRST_TO_END = "1000"  # the highest oom_score_adj


class CgroupRun(NamespacesRun):
    """A run in a sandbox made by bubblewrap, inside a group of its own.

    Args:
        request: What to run.
        policy: Its checked policy.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy) -> None:
        super().__init__(request, policy, self._confine)
        self._pool: GroupPool | None = None
        self._group: Group | None = None
        self._before = Usage(None, None, 0)

    def _prepare_and_spawn(self) -> None:
        try:
            self._pool = group_pool()
            self._group = self._pool.take()
        except (NoControlGroups, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SandboxError(f"No control group could be made for the run: {reason}.") from error
        birthplace = BIRTHPLACE.set(self._group.birthplace)
        try:
            super()._prepare_and_spawn()
        except BaseException:
            self._give_back()
            raise
        finally:
            BIRTHPLACE.reset(birthplace)

    def _confine(self, first: int) -> None:
        """Put the limits on, before anything of the command has run.

        What is there already, the sandbox's own processes and their memory, does not count against the policy.
        """
        group = self._group
        assert group is not None  # noqa: S101  # taken before the sandbox was started
        group.take_in(first)
        memory, pids = self._policy.memory_bytes, self._policy.pids
        group.limit(
            None if memory is None else memory + group.used_memory(),
            None if pids is None else pids + group.tasks() - len(children_of(first)),
        )
        # When memory runs out the kernel ends the process with the most, and a run is to end as a whole: with process
        # 1 all others end. Version 2 can be told so; there this changes nothing.
        with contextlib.suppress(OSError):  # an agent without the right to; then only one process ends at a time
            cgroup_files.put(f"/proc/{first}/oom_score_adj", _FIRST_TO_END)
        self._before = group.usage()

    def _end_processes(self, result: Aftermath) -> None:
        group = self._group
        try:
            super()._end_processes(result)
            if group is not None:
                group.end_all()
                self._account(group, result)
        except OSError as error:
            raise SandboxError(f"The run's control group could not be read: {error.strerror}.") from error
        finally:
            self._give_back()

    def _account(self, group: Group, result: Aftermath) -> None:
        used, before = group.usage(), self._before
        if used.cpu_seconds is not None:
            result.cpu_seconds = max(0.0, used.cpu_seconds - (before.cpu_seconds or 0.0))
        if used.peak_bytes is not None:
            result.max_rss = used.peak_bytes
        ended = used.ended - before.ended
        if ended > 0:
            result.cause = Status.OUT_OF_MEMORY
            result.notes.append(self._out_of_memory(used))
            if result.status is None:
                result.status = int(signal.SIGKILL)

    def _out_of_memory(self, used: Usage) -> str:
        most = self._policy.memory_bytes
        if most is None or (used.peak_bytes is not None and used.peak_bytes < most):
            return "Stopped by the kernel: the memory of the machine, or of what the agent itself may use, ran out."
        return (
            f"Stopped by the kernel: its processes together needed more memory than memory_bytes, {most >> 20} MiB, "
            "files in memory included."
        )

    def _give_back(self) -> None:
        group, self._group = self._group, None
        if group is not None and self._pool is not None:
            self._pool.give_back(group)
