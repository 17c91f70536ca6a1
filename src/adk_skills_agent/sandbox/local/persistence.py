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
_MAX_NOTES = 50


def persist(workspace: Workspace, collected: Collected, target: Path, policy: SandboxPolicy) -> list[str]:
    """Move new and changed files into ``target``, inside ``workspace_bytes``; remove there what the run removed.

    Returns:
        One sentence per file that could not be brought back, or is kept as it was before the run.

    Raises:
        OSError: ``target`` is not there.
    """
    top = str(target)
    os.stat(top)  # noqa: PTH116
    notes = _remove_gone(workspace, collected, top)
    for path in collected.folders:
        try:
            _make_folder(on_disk(top, path))
        except OSError as error:
            notes.append(f"The folder {readable(path)!r} was not kept: {error.strerror or type(error).__name__}.")
    for path in collected.outside:
        notes.append(_not_kept(top, path, "it has a hard link outside of the workspace"))
    notes += _bring_back(workspace, collected, top, policy)
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"The same holds for {len(notes) - _MAX_NOTES:,} more files of the session's workspace."]
    return notes


def _bring_back(workspace: Workspace, collected: Collected, top: str, policy: SandboxPolicy) -> list[str]:
    notes: list[str] = []
    sizes = collected.changed
    earlier = {path: _size(on_disk(top, path)) for path in sizes}
    room = _UNBOUNDED if policy.workspace_bytes is None else policy.workspace_bytes
    # What stays in the session also counts, or the next run could not copy it in any more: files the run left alone,
    # and the earlier version of each changed file until the new one has taken its place.
    left_alone = workspace.persistent.intersection(workspace.given).difference(earlier)
    if collected.complete:
        left_alone = {path for path in left_alone if path in collected.present or _below(path, collected.unseen)}
    room -= sum(workspace.given[path][1] for path in left_alone) + sum(earlier.values())
    # What shrank goes first and what is new goes last: then everything is kept whenever all of it fits in the end.
    for path in sorted(sizes, key=lambda path: (not earlier[path], sizes[path] - earlier[path], path)):
        growth = sizes[path] - earlier[path]
        if growth > max(room, 0):
            notes.append(_not_kept(top, path, "the workspace would exceed workspace_bytes"))
            continue
        source = on_disk(workspace.work, path)
        try:
            info = os.lstat(source)
            os.chmod(source, stat.S_IMODE(info.st_mode) & _PERMISSIONS | 0o600)  # noqa: PTH101
            if info.st_nlink > 1:
                _copy(source, on_disk(top, path))  # its names become files of their own, as they will in the next run
            else:
                _move(source, on_disk(top, path))
        except OSError as error:
            notes.append(_not_kept(top, path, error.strerror or type(error).__name__))
        else:
            room -= growth
    return notes


def _not_kept(top: str, path: str, why: str) -> str:
    if os.path.lexists(on_disk(top, path)):
        return f"{readable(path)!r} was not kept: {why}; the session keeps the earlier version of it."
    return f"{readable(path)!r} was not kept: {why}."


def _size(path: bytes) -> int:
    """Bytes of a regular file; 0 when there is none."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    return info.st_size if stat.S_ISREG(info.st_mode) else 0


def _below(path: str, folders: set[str] | dict[str, str]) -> bool:
    """Whether a path or a folder it is in is one of these."""
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False


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
    """Under a name of its own first, so that nobody sees half a file."""
    import shutil

    if os.path.isdir(destination):  # noqa: PTH112
        remove_tree(os.fsdecode(destination))
    partial = os.path.dirname(destination) + f"/.{os.urandom(8).hex()}.part".encode()  # noqa: PTH120
    try:
        shutil.copy2(source, partial, follow_symlinks=False)
        os.replace(partial, destination)  # noqa: PTH105
    except OSError:
        Path(os.fsdecode(partial)).unlink(missing_ok=True)
        raise


def _remove_gone(workspace: Workspace, collected: Collected, top: str) -> list[str]:
    """Remove what the run removed, or replaced by something a session cannot keep; a sentence for each of these."""
    if collected.complete:
        there = collected.present.union(collected.folders)
        gone = {path for path in workspace.persistent - there if not _below(path, collected.unseen)}
    else:
        gone = {path for path in workspace.persistent if _below(path, collected.replaced)}
    # Folders after what is in them.
    for path in sorted(gone, reverse=True):
        try:
            if path in workspace.given_folders:
                os.rmdir(on_disk(top, path))  # noqa: PTH106
            else:
                os.unlink(on_disk(top, path))  # noqa: PTH108
        except OSError:
            continue  # somebody else put something there meanwhile; it is not ours to remove
    notes = [
        f"{readable(path)!r} {reason} now, which a session cannot keep: it was removed from the session's workspace."
        for path, reason in collected.replaced.items()
    ]
    if not collected.complete and workspace.persistent:
        notes.append("What the script removed may still be in the session's workspace: not all of it was looked at.")
    return notes
