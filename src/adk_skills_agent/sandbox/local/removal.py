"""Remove a tree a hostile script made: any depth, any names, folders without permission, in constant descriptors.

``shutil.rmtree`` recurses (a thousand nested folders break it) and holds a descriptor per level. Here every folder
found is first moved up to the top, so the tree is never deeper than one level while it is taken apart.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from adk_skills_agent.sandbox.local.tree import make_accessible, open_own_folder

_MOVED = ".adk-skills-removing-"
# Other threads may hold every descriptor of the agent for a moment; a folder left behind is worse than waiting.
_ATTEMPTS = 20
_PAUSE_SECONDS = 0.025


def remove_tree(path: str, parent: int | None = None) -> str | None:
    """Delete a folder and everything in it; symbolic links are deleted, never followed.

    Args:
        path: Its path, or its name in ``parent``.
        parent: A descriptor of the folder it is in.

    Returns:
        None, or one sentence on what is left behind and why.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        problem = _remove(path, parent)
        if problem is None or problem.errno not in {errno.EMFILE, errno.ENFILE}:
            break
    if problem is None:
        return None
    import logging

    # The path is for the owner; the sentence may reach a model, which gets no host paths.
    logging.getLogger(__name__).warning("%s could not be removed: %s", path, problem.strerror)
    return f"A temporary folder of the run could not be removed: {problem.strerror}."


def _remove(path: str, parent: int | None) -> OSError | None:
    problem: OSError | None = None
    try:
        if not stat.S_ISDIR(os.stat(path, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(path, dir_fd=parent)
            return None
        top = open_own_folder(path, parent)
        try:
            problem = _empty(top)
        finally:
            os.close(top)
        os.rmdir(path, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        return problem or error
    return None


def _empty(top: int) -> OSError | None:
    """Delete what is in a folder. Returns the first failure; what failed is left where it is."""
    problem: OSError | None = None
    counter = 0
    pending: list[str] = []
    try:
        with os.scandir(top) as entries:
            for entry in entries:
                error_ = _unlink(entry, top, pending)
                problem = problem or error_
    except OSError as error:
        return error
    while pending:
        name = pending.pop()
        found: list[str] = []
        try:
            descriptor = open_own_folder(name, top)
        except OSError as error:
            problem = problem or error
            continue
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    error_ = _unlink(entry, descriptor, found)
                    problem = problem or error_
            for child in found:
                counter += 1
                moved = f"{_MOVED}{counter}"
                error_ = _move_up(child, descriptor, moved, top)
                if error_ is None:
                    pending.append(moved)
                problem = problem or error_
        except OSError as error:
            problem = problem or error
        finally:
            os.close(descriptor)
        try:
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            problem = problem or error
    return problem


def _unlink(entry: os.DirEntry[str], parent: int, folders: list[str]) -> OSError | None:
    try:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            os.unlink(entry.name, dir_fd=parent)
    except OSError as error:
        return error
    return None


def _move_up(name: str, parent: int, moved: str, top: int) -> OSError | None:
    for attempt in (1, 2):
        try:
            os.rename(name, moved, src_dir_fd=parent, dst_dir_fd=top)
        except OSError as error:
            if attempt == 2 or error.errno not in {errno.EACCES, errno.EPERM}:
                return error
            # Moving a folder changes its "..": it has to be writable itself.
            try:
                make_accessible(name, parent)
            except OSError as denied:
                return denied
        else:
            return None
    return None
