"""One run with namespaces and a control group of its own: the kernel bounds memory and processes of it as a whole."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import cgroup_files
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.cgroup_group import Group
from adk_skills_agent.sandbox.local.cgroup_hierarchy import NoControlGroups
from adk_skills_agent.sandbox.local.cgroup_pool import group_pool
from adk_skills_agent.sandbox.local.exact_end import children_of
from adk_skills_agent.sandbox.local.late_close import when_idle
from adk_skills_agent.sandbox.local.namespaces_run import NamespacesRun
from adk_skills_agent.sandbox.local.newborn import Newborn
from adk_skills_agent.sandbox.local.sandbox_start import Started
from adk_skills_agent.sandbox.local.spawner import BIRTHPLACE, DOORS

_FIRST_TO_END = "1000"  # the highest oom_score_adj


class CgroupRun(NamespacesRun):
    """A run in a sandbox made by bubblewrap, inside a group of its own.

    Args:
        request: What to run.
        policy: Its checked policy.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy) -> None:
        super().__init__(request, policy)
        self.birth = BornInAGroup(policy.memory_bytes, policy.pids)
        self._group: Group | None = None
        self._cpu_before = 0.0

    def adopt(self, newborn: Newborn) -> None:
        """Take over the group the sandbox was born in."""
        self._group, self._cpu_before = newborn.group, newborn.cpu_before

    def beyond(self) -> tuple[Status, str] | None:
        """Memory ran out, and the kernel ended one process: the run is to end as a whole."""
        group = self._group
        try:
            if group is None or not group.ended():
                return None
            return Status.OUT_OF_MEMORY, self._out_of_memory(group.peak_bytes())
        except OSError:  # the run is over, and its group is gone
            return None

    def _end_processes(self, result: Aftermath) -> None:
        group = self._group
        try:
            alone = self._is_alone()
            if group is not None and not alone and group.ended():
                self._ordered = True  # the kernel did it, for the limit we set; it is no accident of the sandbox
            super()._end_processes(result)
            if group is not None:
                if not alone:
                    group.end_all()
                self._account(group, result)
        except OSError as error:
            raise SandboxError(f"The run's control group could not be read: {error.strerror}.") from error
        finally:
            self._give_back()

    def _account(self, group: Group, result: Aftermath) -> None:
        counts = group.counts()
        peak = counts.peak_bytes
        if counts.cpu_seconds is not None:
            result.cpu_seconds = max(0.0, counts.cpu_seconds - self._cpu_before)
        if peak is not None:
            result.max_rss = peak
        if counts.ended:
            result.cause = Status.OUT_OF_MEMORY
            result.notes.append(self._out_of_memory(peak))
            if result.status is None:
                result.status = int(signal.SIGKILL)

    def _out_of_memory(self, peak: int | None) -> str:
        most = self._policy.memory_bytes
        if most is None or (peak is not None and peak < most):
            return "Stopped by the kernel: the memory of the machine, or of what the agent itself may use, ran out."
        return (
            f"Stopped by the kernel: its processes together needed more memory than memory_bytes, {most >> 20} MiB, "
            "files in memory included."
        )

    def _give_back(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close_counts()
            when_idle(functools.partial(group_pool().give_back, group))


@dataclass(frozen=True, slots=True)
class BornInAGroup:
    """Makes a group, starts a sandbox in it, and puts the limits on before anything of a command is there.

    What is there then, the sandbox's own processes and their memory, does not count against the policy.

    Attributes:
        memory_bytes: What the command and all it starts may use together; None for no limit.
        pids: Processes and threads of them; None for no limit.
    """

    memory_bytes: int | None
    pids: int | None

    def __call__(self, start: Callable[[], Started]) -> Newborn:
        """See the class.

        Raises:
            SandboxError: There is no group to be had, the sandbox did not start, or cannot be limited.
        """
        try:
            pool = group_pool()
            group = pool.take()
        except (NoControlGroups, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SandboxError(f"No control group could be made for the run: {reason}.") from error
        birthplace, doors = BIRTHPLACE.set(group.birthplace), DOORS.set(group.doors())
        try:
            made = Newborn(start(), group, pool.give_back)
        except BaseException:
            pool.give_back(group)
            raise
        finally:
            BIRTHPLACE.reset(birthplace)
            DOORS.reset(doors)
        try:
            return replace(made, cpu_before=self._confine(group, made.started.first_pid))
        except BaseException:
            made.discard()
            raise

    def _confine(self, group: Group, first: int) -> float:
        """Put the limits on; the processor time that was used until then."""
        group.take_in(first)
        memory, pids = self.memory_bytes, self.pids
        group.limit(
            None if memory is None else memory + group.used_memory(),
            None if pids is None else pids + group.tasks() - len(children_of(first)),
        )
        # When memory runs out the kernel ends one process, and a run is to end as a whole: if it is process 1, all
        # others end with it. Version 2 can be told so; for version 1 this makes it likely, and beyond() sure.
        with contextlib.suppress(OSError):  # an agent without the right to
            cgroup_files.put(f"/proc/{first}/oom_score_adj", _FIRST_TO_END)
        return group.cpu_seconds() or 0.0
