"""The groups of this agent: some made ahead, each used for one run and removed after it by a thread of their own.

A group's name tells whose it is, so that the groups of an agent that was killed are found and removed by the next one:
see :mod:`.abandoned`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterable

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.abandoned import is_gone, owner_name
from adk_skills_agent.sandbox.local.cgroup_group import Group, end_members, make_group, remove_folder
from adk_skills_agent.sandbox.local.cgroup_hierarchy import Hierarchy, find_hierarchy
from adk_skills_agent.sandbox.local.one_per_process import OnePerProcess

PREFIX = "adk-skills"
AHEAD = 4
"""Groups kept ready, from the second run on: an agent that runs one script makes one group."""

_FIRST_PAUSE_SECONDS = 0.005
_LAST_PAUSE_SECONDS = 1.0
_EXIT_SECONDS = 2.0


class GroupPool:
    """Makes and removes groups in one hierarchy.

    Args:
        hierarchy: Where.

    Raises:
        SandboxError: The system does not say which process this is and when it started.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._owner = _owner()
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._ready: list[Group] = []
        self._used: list[Group] = []
        self._taken = 0
        self._closed = False
        self._keeper: threading.Thread | None = None
        remove_stale(hierarchy)

    def take(self) -> Group:
        """A group nobody used before. Blocking for a moment when none is ready.

        Raises:
            OSError: None can be made.
        """
        with self._changed:
            self._taken += 1
            if self._taken > 1 and self._keeper is None and not self._closed:
                self._keeper = threading.Thread(target=self._keep, name="adk-skills-cgroups", daemon=True)
                self._keeper.start()
            found = self._ready.pop() if self._ready else None
            if len(self._ready) < AHEAD // 2:  # else it is told when one comes back: the run needs the processor now
                self._changed.notify()
        return found or self._make()

    def give_back(self, group: Group) -> None:
        """Have a group removed as soon as nothing is in it any more; never blocks for long."""
        group.close_counts()
        with self._changed:
            kept = self._keeper is not None and not self._closed
            if kept:
                self._used.append(group)
                self._changed.notify()
        if not kept:
            _remove_all([group])

    def close(self) -> None:
        """Remove every group but those of runs that are still going on: they are removed with their run."""
        with self._changed:
            self._closed = True
            groups = [*self._ready, *self._used]
            self._ready, self._used = [], []
            self._changed.notify()
            keeper = self._keeper
        _remove_all(groups)
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join(_EXIT_SECONDS)  # it may have one in its hands, and is not waited for at the end of the agent

    def _make(self) -> Group:
        return make_group(self._hierarchy, f"{PREFIX}.{self._owner}.{next(self._numbers)}")

    def _keep(self) -> None:
        """The thread's work: remove what was used, make what is lacking; slower and slower while that fails."""
        pause = _FIRST_PAUSE_SECONDS
        while (used := self._wait_for_work()) is not None:
            busy = [group for group in used if not _removed(group)]
            made = self._make_one() if len(self._ready) < AHEAD else []
            if not self._has_kept(busy, made):
                _remove_all([*busy, *made])
                return
            if busy or (not made and len(self._ready) < AHEAD):
                time.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE_SECONDS)
            else:
                pause = _FIRST_PAUSE_SECONDS

    def _wait_for_work(self) -> list[Group] | None:
        """The groups to remove, perhaps none; None when there is no more work."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._used or len(self._ready) < AHEAD)
            if self._closed:
                return None
            used, self._used = self._used, []
            return used

    def _has_kept(self, busy: list[Group], made: list[Group]) -> bool:
        """Whether they were taken over; not when all were to be removed meanwhile."""
        with self._changed:
            if not self._closed:
                self._used += busy
                self._ready += made
            return not self._closed

    def _make_one(self) -> list[Group]:
        try:
            return [self._make()]
        except OSError:  # a run that needs one will say so
            return []


def remove_stale(hierarchy: Hierarchy) -> None:
    """End and remove what agents left behind that were killed."""
    for parent in hierarchy.folders:
        try:
            names = os.listdir(parent)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{PREFIX}.") and _is_stale(name):
                end_members(f"{parent}/{name}")
                _remove_folder_soon(f"{parent}/{name}")


def _owner() -> str:
    owner = owner_name()
    if owner is None:
        raise SandboxError(
            "Control groups cannot be used: /proc does not say which process this is and when it started."
        )
    return owner.replace("-", ".")


def _is_stale(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 5 and all(part.isdigit() for part in parts[2:]) and is_gone(*parts[1:4])


def _removed(group: Group) -> bool:
    try:
        return group.remove()
    except OSError:
        return False


def _remove_all(groups: Iterable[Group]) -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    pause = _FIRST_PAUSE_SECONDS / 10
    left = list(groups)
    while (left := [group for group in left if not _removed(group)]) and time.monotonic() < deadline:
        time.sleep(pause)
        pause *= 2


def _remove_folder_soon(folder: str) -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    with contextlib.suppress(OSError):
        while not remove_folder(folder) and time.monotonic() < deadline:
            time.sleep(_FIRST_PAUSE_SECONDS)


group_pool = OnePerProcess(lambda: GroupPool(find_hierarchy()))
"""This process's groups; the first call raises what :class:`GroupPool` does, or ``NoControlGroups`` with the reason."""


def _close() -> None:
    if (pool := group_pool.made) is not None:
        pool.close()


atexit.register(_close)
