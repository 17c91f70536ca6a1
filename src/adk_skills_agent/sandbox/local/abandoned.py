"""Temporary folders and files of agents that were killed: they could not remove them, so the next agent does (row 31).

A name tells whose it is: the world in which the agent's process id means something (this boot, this namespace of
process ids), that id, and when the process started. Of agents of other worlds nothing can be known, and theirs stay.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import threading

from adk_skills_agent.sandbox.local.processes import PROC, process_info
from adk_skills_agent.sandbox.local.removal import remove_tree

PREFIX = "adk-skills-run-"
# What it is for, whose it is, and what makes it unique: a run's id, or the letters of tempfile.
_OWNED = re.compile(r"(adk-skills-[a-z-]+-)([0-9a-f]{8})-([0-9]{1,10})-([0-9]{1,20})-([0-9a-z_]{8}|[0-9a-f]{16})")

_swept: set[str] = set()
_named: dict[str, str] = {}  # places, and where they really are


def folder_name(run_id: str) -> str:
    """The name of a run's folder, with its agent in it where the system tells who that is.

    Args:
        run_id: 16 hexadecimal digits nobody can guess.
    """
    owner = owner_name()
    return PREFIX + (run_id if owner is None else f"{owner}-{run_id}")


def own_prefix(kind: str) -> str:
    """How the names of this agent's temporary folders begin, for ``tempfile``'s ``prefix``; sweeps their place, too.

    Args:
        kind: What they are for, in small letters.
    """
    import tempfile

    place = tempfile.gettempdir()
    if place not in _named:  # following its links takes longer than all the rest, and executions ask each time
        _named[place] = os.path.realpath(place)
    sweep_abandoned(_named[place])
    owner = owner_name()
    return f"adk-skills-{kind}-" + ("" if owner is None else f"{owner}-")


def sweep_abandoned(place: str) -> None:
    """Remove what agents of this user that are gone left; the first call for a place in a process does it.

    Looking costs as much as listing the place; removing is done in a thread, which logs each. Several agents may do it
    at once.

    Args:
        place: The folder for temporary files.
    """
    if place in _swept:
        return
    _swept.add(place)
    owner = owner_name()
    if owner is None:
        return
    claimed = []
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            found = _OWNED.fullmatch(entry.name)
            if found is None or not is_gone(*found.group(2, 3, 4)) or not _is_own(entry):
                continue
            # A new name makes it ours: of several agents one succeeds, and when that is killed, too, the next goes on.
            mine = f"{place}/{found[1]}{owner}-{found[5]}"
            with contextlib.suppress(OSError):
                os.rename(entry.path, mine)  # noqa: PTH104
                claimed.append((entry.name, mine))
    if claimed:
        with contextlib.suppress(RuntimeError):  # the interpreter is ending; the next agent finds them
            threading.Thread(target=_remove, args=(claimed,), name="adk-skills-sweeper", daemon=True).start()


def _remove(claimed: list[tuple[str, str]]) -> None:
    import logging

    logger = logging.getLogger(__name__)
    for name, path in claimed:
        if remove_tree(path) is None:
            logger.info("Removed %s, which an agent that is gone had left in the folder for temporary files.", name)


def _is_own(entry: os.DirEntry[str]) -> bool:
    info = entry.stat(follow_symlinks=False)
    return (stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)) and info.st_uid == os.geteuid()


def is_gone(world: str, pid: str, start: str) -> bool:
    """Whether the agent of :func:`owner_name`, in its parts, surely does not run any more."""
    if world != _world():
        return False
    info = process_info(int(pid))
    return info is None or not info.alive or info.start != int(start)


@functools.lru_cache(maxsize=1)
def owner_name() -> str | None:
    """This agent, as ``world-pid-start``; None where the system does not say enough."""
    world, info = _world(), process_info(os.getpid())
    return None if world is None or info is None else f"{world}-{info.pid}-{info.start}"


@functools.lru_cache(maxsize=1)
def _world() -> str | None:
    """Where process ids and starts can be compared; None where the system does not say."""
    import zlib

    try:
        if os.readlink(f"{PROC}/self") != str(os.getpid()):  # noqa: PTH115
            return None  # it shows the processes of another namespace, under numbers of their own
        with open(f"{PROC}/sys/kernel/random/boot_id", "rb") as stream:
            boot = stream.read()
        namespace = os.stat(f"{PROC}/self/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return None
    return f"{zlib.crc32(boot + str(namespace).encode()):08x}"


def _forget() -> None:
    owner_name.cache_clear()
    _world.cache_clear()


os.register_at_fork(after_in_child=_forget)
