"""Bring what a run changed back into the session's workspace."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.collection import Collected
from adk_skills_agent.sandbox.local.output_names import readable
from adk_skills_agent.sandbox.local.removal import remove_tree
from adk_skills_agent.sandbox.local.tree import on_disk
from adk_skills_agent.sandbox.local.workspace import Workspace

_PERMISSIONS = 0o777  # set-user-id and the like stay behind
_UNBOUNDED = 1 << 62


def persist(workspace: Workspace, collected: Collected, target: Path, policy: SandboxPolicy) -> list[str]:
    """Move new and changed files into ``target``, inside ``workspace_bytes``; remove there what the run removed.

    Returns:
        One sentence per file that could not be brought back.

    Raises:
        OSError: ``target`` itself cannot be written.
    """
    notes: list[str] = []
    top = str(target)
    room = _UNBOUNDED if policy.workspace_bytes is None else policy.workspace_bytes
    changed = set(collected.changed)
    if collected.complete:
        _remove_missing(workspace, collected, top)
    room -= sum(workspace.given[path][1] for path in workspace.persistent & collected.present if path not in changed)
    for path in collected.folders:
        _make_folder(on_disk(top, path))
    for path in collected.changed:
        source, destination = on_disk(workspace.work, path), on_disk(top, path)
        info = os.lstat(source)
        room -= info.st_size
        if room < 0:
            room += info.st_size
            notes.append(f"{readable(path)!r} was not kept: the workspace would exceed workspace_bytes.")
            continue
        os.chmod(source, stat.S_IMODE(info.st_mode) & _PERMISSIONS | 0o600)  # noqa: PTH101
        try:
            _move(source, destination)
        except OSError as error:
            notes.append(f"{readable(path)!r} was not kept: {error.strerror}.")
    return notes


def _make_folder(path: bytes) -> None:
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108  # a file gave way to a folder of that name
            os.mkdir(path, 0o700)  # noqa: PTH102


def _move(source: bytes, destination: bytes) -> None:
    for attempt in (1, 2):
        try:
            os.replace(source, destination)  # noqa: PTH105
        except IsADirectoryError:
            if attempt == 2:
                raise
            remove_tree(os.fsdecode(destination))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(source, destination)
            return
        else:
            return


def _copy(source: bytes, destination: bytes) -> None:
    """To another file system: under a name of its own first, so that nobody sees half a file."""
    import shutil

    if os.path.isdir(destination):  # noqa: PTH112
        remove_tree(os.fsdecode(destination))
    partial = destination + f".{os.urandom(4).hex()}.part".encode()
    try:
        shutil.copy2(source, partial, follow_symlinks=False)
        os.replace(partial, destination)  # noqa: PTH105
    except OSError:
        Path(os.fsdecode(partial)).unlink(missing_ok=True)
        raise


def _remove_missing(workspace: Workspace, collected: Collected, top: str) -> None:
    there = collected.present.union(collected.folders)
    # Folders after what is in them.
    for path in sorted(workspace.persistent - there, reverse=True):
        try:
            if path in workspace.given_folders:
                os.rmdir(on_disk(top, path))  # noqa: PTH106
            else:
                os.unlink(on_disk(top, path))  # noqa: PTH108
        except OSError:
            continue  # somebody else put something there meanwhile; it is not ours to remove
