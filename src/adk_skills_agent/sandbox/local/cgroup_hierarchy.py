"""Where this process may make control groups: below its own group, so that the limits of that one hold as well.

Version 1 (and "hybrid" systems, where version 2 has no controllers) has a tree of groups for each controller. Version 2
has one tree, and a group that hands its controllers on must not have processes itself.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from adk_skills_agent.sandbox.local import cgroup_files

AGENT_GROUP = "adk-skills-agent"
"""Version 2: where an agent that was alone in its group goes, so that the group can hand its controllers on."""

_FIX = "start the agent with systemd-run --user --scope -p Delegate=yes, followed by its command"

_NEEDED = ("memory", "pids")
_PROC = "/proc"
_MOST_ANCESTORS = 100


class NoControlGroups(Exception):
    """None can be made here; the message is the reason as a clause.

    Args:
        reason: The clause.
        fix: The command that would change it, when there is one.
    """

    def __init__(self, reason: str, fix: str | None = None) -> None:
        super().__init__(reason)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Folders of this process's own groups, in which groups for runs can be made.

    Attributes:
        version: 1 or 2.
        memory: Of the memory controller.
        pids: Of the pids controller.
        cpu: Of what counts processor time; None where nothing does.
    """

    version: int
    memory: str
    pids: str
    cpu: str | None

    @property
    def folders(self) -> tuple[str, ...]:
        """All of them, each once; controllers of version 1 may be mounted together."""
        return tuple(dict.fromkeys(folder for folder in (self.memory, self.pids, self.cpu) if folder is not None))


def find_hierarchy() -> Hierarchy:
    """Where groups can be made. On version 2 this may hand controllers on, and move the agent into a group below.

    Raises:
        NoControlGroups: Nowhere, with the reason as a clause.
    """
    try:
        own = own_groups(cgroup_files.get(f"{_PROC}/self/cgroup"), cgroup_files.get(f"{_PROC}/self/mountinfo"))
    except OSError as error:
        raise NoControlGroups(f"this system shows no control groups ({error.strerror})") from error
    if all(name in own for name in _NEEDED):
        return _version_1(own)
    if "" in own:
        return _version_2(own[""])
    raise NoControlGroups("the agent's memory and pids groups are not mounted where it could see them")


def own_groups(groups: str, mounts: str) -> dict[str, str]:
    """The folder of this process's group by controller; that of version 2 has an empty name.

    Args:
        groups: Content of ``/proc/self/cgroup``.
        mounts: Content of ``/proc/self/mountinfo``.
    """
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found: dict[str, str] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind not in {"cgroup", "cgroup2"}:
            continue
        root, point = (_plain(field) for field in fields[3:5])
        for name in [""] if kind == "cgroup2" else options.split(","):
            folder = _below(paths.get(name), root, point)
            if folder is not None:
                found.setdefault(name, folder)
    return found


def _plain(field: str) -> str:
    """Without the octal escapes of mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _below(path: str | None, root: str, point: str) -> str | None:
    """Where a group is found when ``root`` of its tree is mounted at ``point``; None when it is outside of that."""
    if path is None or "/.." in path or "/.." in root:
        return None
    inside = os.path.relpath(path, root)
    if inside.startswith(".."):
        return None
    return os.path.normpath(f"{point}/{inside}")


def _version_1(own: Mapping[str, str]) -> Hierarchy:
    found = Hierarchy(1, own["memory"], own["pids"], own.get("cpuacct"))
    for folder in found.folders:
        _check_writable(folder, "tasks")
    return found


def _version_2(own: str) -> Hierarchy:
    # An agent that stepped aside, or a child of it, finds the groups where it came from.
    folder = os.path.dirname(own) if os.path.basename(own) == AGENT_GROUP else own  # noqa: PTH119, PTH120
    _check_writable(folder, "cgroup.procs")
    _check_writable(folder, "cgroup.subtree_control")
    available = cgroup_files.get(f"{folder}/cgroup.controllers").split()
    lacking = [name for name in _NEEDED if name not in available]
    if lacking:
        raise NoControlGroups(
            f"the agent's group has no {' and no '.join(lacking)} controller; it needs a group of its own", _FIX
        )
    given = cgroup_files.get(f"{folder}/cgroup.subtree_control").split()
    if not set(_NEEDED).issubset(given):
        _hand_on(folder)
    return Hierarchy(2, folder, folder, folder)


def _check_writable(folder: str, name: str) -> None:
    """Tried out, because a mode says nothing about a read-only mount or a namespace."""
    try:
        os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        # Without the folder: the reason may reach a model.
        reason = f"control groups are not writable here: {name}: {error.strerror}"
        raise NoControlGroups(reason, _FIX if name == "cgroup.procs" and _has_systemd() else None) from error


def _has_systemd() -> bool:
    return os.path.isdir("/run/systemd/system")  # noqa: PTH112


def _hand_on(folder: str) -> None:
    text = " ".join(f"+{name}" for name in _NEEDED)  # every group counts processor time, without a controller
    try:
        cgroup_files.put(f"{folder}/cgroup.subtree_control", text)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise NoControlGroups(f"the agent's group cannot hand its controllers on ({error.strerror})") from error
    else:
        return
    moved = _step_aside(folder)
    try:
        cgroup_files.put(f"{folder}/cgroup.subtree_control", text)
    except OSError as error:
        for pid in moved:
            _move(pid, folder)
        raise NoControlGroups(f"the agent's group cannot hand its controllers on ({error.strerror})") from error


def _step_aside(folder: str) -> list[int]:
    """Move the agent and its children into a group below; only when nobody else is in its group.

    Raises:
        NoControlGroups: Somebody is, or it may not.
    """
    present = cgroup_files.processes(folder)
    if strangers := [pid for pid in present if not _descends(pid, os.getpid())]:
        raise NoControlGroups(
            f"the agent's group has {len(strangers)} other processes, so its controllers cannot be handed on; it needs "
            "a group of its own",
            _FIX,
        )
    leaf = f"{folder}/{AGENT_GROUP}"
    try:
        os.makedirs(leaf, exist_ok=True)  # noqa: PTH103
    except OSError as error:
        raise NoControlGroups(f"no group can be made below the agent's ({error.strerror})") from error
    return [pid for pid in present if _move(pid, leaf)]


def _move(pid: int, folder: str) -> bool:
    try:
        cgroup_files.put(f"{folder}/cgroup.procs", str(pid))
    except OSError:  # it ended meanwhile; if not, handing on fails and says so
        return False
    return True


def _descends(pid: int, ancestor: int) -> bool:
    for _ in range(_MOST_ANCESTORS):
        if pid in {0, 1, ancestor}:
            break
        try:
            stat = cgroup_files.get(f"{_PROC}/{pid}/stat")
        except OSError:
            return True  # it ended, and is in nobody's way
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == ancestor
