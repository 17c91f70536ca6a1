"""Remove a tree a hostile script made: any depth, any names, folders without permission, in constant descriptors.

``shutil.rmtree`` recurses (a thousand nested folders break it) and holds a descriptor per level. Here every folder
found is first moved up to the top, so the tree is never deeper than one level while it is taken apart.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
import threading
import time
import weakref
from pathlib import Path

from adk_skills_agent.platforms import after_fork_in_child
from adk_skills_agent.sandbox.files.collect import make_accessible, open_own_folder
from adk_skills_agent.sandbox.process.tree import PROC, process_info

_MOVED = ".adk-skills-removing-"
# Other threads may hold every descriptor of the agent for a moment; a folder left behind is worse than waiting.
_ATTEMPTS = 20
_PAUSE_SECONDS = 0.025


def remove_tree(path: str, parent: int | None = None) -> str | None:
    """Delete a folder (of ``parent``, a descriptor) and everything in it; links are deleted, never followed.

    What is left behind is said in a sentence; None when it is nothing.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        problem = _remove_tree(path, parent)
        if problem is None or problem.errno not in {errno.EMFILE, errno.ENFILE}:
            break
    if problem is None:
        return None
    import logging

    # The path is for the operator; the sentence may reach a model, which gets no host paths.
    logging.getLogger(__name__).warning("%s could not be removed: %s", path, problem.strerror)
    return f"A temporary folder of the run could not be removed: {problem.strerror}."


def _remove_tree(path: str, parent: int | None) -> OSError | None:
    """The first failure; what failed is left where it is."""
    problems: list[OSError] = []
    try:
        if not stat.S_ISDIR(os.stat(path, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(path, dir_fd=parent)
            return None
        top = open_own_folder(path, parent)
        try:
            _empty(top, problems)
        finally:
            os.close(top)
        os.rmdir(path, dir_fd=parent)
    except FileNotFoundError:
        pass
    except OSError as error:
        problems.append(error)
        return problems[0]
    return None  # what failed on the way has not kept the folder from going


def _empty(top: int, problems: list[OSError]) -> None:
    counter = 0
    moved = f"{_MOVED}{os.urandom(8).hex()}-"  # a name that is there already is in the way, so none can be guessed
    pending: list[str] = []
    _unlink_files(top, pending, problems)
    while pending:
        name = pending.pop()
        found: list[str] = []
        try:
            descriptor = open_own_folder(name, top)
            try:
                _unlink_files(descriptor, found, problems)
                for child in found:
                    counter += 1
                    try:
                        _move_up(child, descriptor, f"{moved}{counter}", top)
                    except OSError as error:
                        problems[1:] = [error]
                    else:
                        pending.append(f"{moved}{counter}")
            finally:
                os.close(descriptor)
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            problems[1:] = [error]  # two at most, however many there are


def _unlink_files(folder: int, folders: list[str], problems: list[OSError]) -> None:
    """Delete what is in one folder, but for the folders in it, whose names are added to ``folders``."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    else:
                        os.unlink(entry.name, dir_fd=folder)
                except OSError as error:
                    problems[1:] = [error]
    except OSError as error:
        problems[1:] = [error]


def _move_up(name: str, parent: int, moved: str, top: int) -> None:
    try:
        os.rename(name, moved, src_dir_fd=parent, dst_dir_fd=top)
    except PermissionError:
        make_accessible(name, parent)  # moving a folder changes its "..": it has to be writable itself
        os.rename(name, moved, src_dir_fd=parent, dst_dir_fd=top)


# What agents that were killed could not remove, the next agent does (row 31). A name tells whose it is: the world in
# which the agent's process id means something (this boot, this namespace of process ids), that id, and when the process
# started. Of agents of other worlds nothing can be known, and theirs stay.

PREFIX = "adk-skills-run-"
# What it is for, whose it is, and what makes it unique: a run's id, or the letters of tempfile.
_OWNED = re.compile(r"(adk-skills-[a-z-]+-)([0-9a-f]{8})-([0-9]{1,10})-([0-9]{1,20})-([0-9a-z_]{8}|[0-9a-f]{16})")

_swept: set[str] = set()


def folder_name(run_id: str) -> str:
    """The name of a run's folder, with its agent in it where the system tells who that is."""
    owner = owner_name()
    return PREFIX + (run_id if owner is None else f"{owner}-{run_id}")


def temporary_prefix(kind: str) -> str:
    """How the names of this agent's temporary folders begin, for ``tempfile``'s ``prefix``; sweeps their place, too."""
    import tempfile

    sweep_abandoned(os.path.realpath(tempfile.gettempdir()))
    owner = owner_name()
    return f"adk-skills-{kind}-" + ("" if owner is None else f"{owner}-")


def sweep_abandoned(place: str) -> None:
    """Remove what agents of this user that are gone left; the first call for a place in a process does it.

    Looking costs as much as listing the place; removing is done in a thread, which logs each. Several agents may do it
    at once.
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
            threading.Thread(target=_remove_claimed, args=(claimed,), name="adk-skills-sweeper", daemon=True).start()


def _remove_claimed(claimed: list[tuple[str, str]]) -> None:
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


after_fork_in_child(_forget)


def temporary_folder(kind: str, holder: object) -> tuple[Path, weakref.finalize[..., object]]:
    """Make a private temporary folder, which goes with its holder, or with the next agent when this one is killed.

    Args:
        kind: What it is for, in small letters; a part of its name.
        holder: The folder is removed when this is garbage and when the interpreter ends, but never by a forked child.

    Returns:
        Its path, and what removes it earlier.
    """
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix=temporary_prefix(kind)))
    return folder, weakref.finalize(holder, _remove_own, folder, os.getpid())


def _remove_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not take its parent's files away
        remove_tree(str(folder))
