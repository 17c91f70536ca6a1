"""Bring what a run changed back into the session's workspace.

The run is dead, but without namespaces another one of the same user may change its folders meanwhile (attack row 40):
so everything is reached through descriptors of folders, and only the very file that was found is kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.collection import Collected
from adk_skills_agent.sandbox.local.output_names import readable
from adk_skills_agent.sandbox.local.removal import remove_tree
from adk_skills_agent.sandbox.local.tree import open_own_file, open_own_folder, parent_of
from adk_skills_agent.sandbox.local.workspace import Workspace

_PERMISSIONS = 0o777  # set-user-id and the like stay behind
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES = 1 << 20
_UNBOUNDED = 1 << 62
_MAX_NOTES = 50


def persist(workspace: Workspace, collected: Collected, target: Path, policy: SandboxPolicy) -> list[str]:
    """Move new and changed files into ``target``, inside ``workspace_bytes``; remove there what the run removed.

    Returns:
        One sentence per file that could not be brought back, or is kept as it was before the run.

    Raises:
        OSError: ``target`` is not there.
    """
    top = os.open(target, _FOLDER)
    try:
        notes = _remove_gone(workspace, collected, top)
        for path in collected.folders:
            try:
                _make_folder(top, path)
            except OSError as error:
                notes.append(f"The folder {readable(path)!r} was not kept: {error.strerror or type(error).__name__}.")
        for path in collected.outside:
            notes.append(_not_kept(top, path, "it has a hard link outside of the workspace"))
        if collected.changed:
            notes += _bring_back(workspace, collected, top, policy)
    finally:
        os.close(top)
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"The same holds for {len(notes) - _MAX_NOTES:,} more files of the session's workspace."]
    return notes


def _bring_back(workspace: Workspace, collected: Collected, top: int, policy: SandboxPolicy) -> list[str]:
    notes: list[str] = []
    sizes = {path: info.st_size for path, info in collected.changed.items()}
    earlier = {path: _size(top, path) for path in sizes}
    room = _UNBOUNDED if policy.workspace_bytes is None else policy.workspace_bytes
    # What stays in the session also counts, or the next run could not copy it in any more: files the run left alone,
    # and the earlier version of each changed file until the new one has taken its place.
    left_alone = workspace.persistent.intersection(workspace.given).difference(earlier)
    if collected.complete:
        left_alone = {path for path in left_alone if path in collected.present or _below(path, collected.unseen)}
    room -= sum(workspace.given[path][1] for path in left_alone) + sum(earlier.values())
    work = open_own_folder(workspace.work)
    try:
        # What shrank goes first and what is new goes last: then everything is kept whenever all of it fits in the end.
        for path in sorted(sizes, key=lambda path: (not earlier[path], sizes[path] - earlier[path], path)):
            growth = sizes[path] - earlier[path]
            if growth > max(room, 0):
                notes.append(_not_kept(top, path, "the workspace would exceed workspace_bytes"))
                continue
            try:
                _keep(work, top, path, collected.changed[path])
            except OSError as error:
                notes.append(_not_kept(top, path, error.strerror or type(error).__name__))
            else:
                room -= growth
    finally:
        os.close(work)
    return notes


def _keep(work: int, top: int, path: str, found: os.stat_result) -> None:
    """Give the session the file that was found, and nothing else another run may have put in its place since."""
    identity = (found.st_dev, found.st_ino)
    with parent_of(work, path) as (folder, name), parent_of(top, path) as (kept_in, _):
        descriptor = open_own_file(name, folder, identity, _PERMISSIONS)
        try:
            # Under a name of its own first, so that nobody sees half a file, or what is not the file that was found.
            partial = f".{os.urandom(8).hex()}.part".encode()
            try:
                # With several names in the workspace they become files of their own, as they will in the next run.
                if found.st_nlink > 1 or not _moved(name, folder, partial, kept_in, identity):
                    _copy(descriptor, found.st_size, partial, kept_in)
                _put_in_place(partial, name, kept_in)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=kept_in)
                raise
        finally:
            os.close(descriptor)


def _moved(name: bytes, folder: int, partial: bytes, kept_in: int, identity: tuple[int, int]) -> bool:
    """Whether it could be moved; between two file systems it cannot."""
    try:
        os.rename(name, partial, src_dir_fd=folder, dst_dir_fd=kept_in)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    info = os.stat(partial, dir_fd=kept_in, follow_symlinks=False)
    if (info.st_dev, info.st_ino) != identity:
        if stat.S_ISDIR(info.st_mode):  # somebody else's by now; it goes back where it was
            os.rename(partial, name, src_dir_fd=kept_in, dst_dir_fd=folder)
        raise OSError(errno.ESTALE, "it is not the file any more that was found")
    return True


def _copy(source: int, size: int, partial: bytes, kept_in: int) -> None:
    info = os.fstat(source)
    if info.st_size > size:
        raise OSError(errno.ESTALE, "it grew after the end of the run")
    descriptor = os.open(partial, _CREATE, 0o600, dir_fd=kept_in)
    try:
        left = size
        while left > 0 and (chunk := os.read(source, min(left, _COPY_BYTES))):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            left -= len(chunk)
        os.fchmod(descriptor, stat.S_IMODE(info.st_mode) & _PERMISSIONS)
        os.utime(descriptor, ns=(info.st_atime_ns, info.st_mtime_ns))
    finally:
        os.close(descriptor)


def _put_in_place(partial: bytes, name: bytes, kept_in: int) -> None:
    for attempt in (1, 2):
        try:
            os.replace(partial, name, src_dir_fd=kept_in, dst_dir_fd=kept_in)
        except IsADirectoryError:
            if attempt == 2:
                raise
            remove_tree(os.fsdecode(name), kept_in)
        else:
            return


def _not_kept(top: int, path: str, why: str) -> str:
    if _info(top, path) is not None:
        return f"{readable(path)!r} was not kept: {why}; the session keeps the earlier version of it."
    return f"{readable(path)!r} was not kept: {why}."


def _size(top: int, path: str) -> int:
    """Bytes of a regular file; 0 when there is none."""
    info = _info(top, path)
    return info.st_size if info is not None and stat.S_ISREG(info.st_mode) else 0


def _info(top: int, path: str) -> os.stat_result | None:
    try:
        with parent_of(top, path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _below(path: str, folders: set[str] | dict[str, str]) -> bool:
    """Whether a path or a folder it is in is one of these."""
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False


def _make_folder(top: int, path: str) -> None:
    with parent_of(top, path) as (folder, name):
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)  # a file gave way to a folder of that name
                os.mkdir(name, 0o700, dir_fd=folder)


def _remove_gone(workspace: Workspace, collected: Collected, top: int) -> list[str]:
    """Remove what the run removed, or replaced by something a session cannot keep; a sentence for each of these."""
    if collected.complete:
        there = collected.present.union(collected.folders)
        gone = {path for path in workspace.persistent - there if not _below(path, collected.unseen)}
    else:
        gone = {path for path in workspace.persistent if _below(path, collected.replaced)}
    # Folders after what is in them.
    for path in sorted(gone, reverse=True):
        try:
            with parent_of(top, path) as (folder, name):
                if path in workspace.given_folders:
                    os.rmdir(name, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)
        except OSError:
            continue  # somebody else put something there meanwhile; it is not ours to remove
    notes = [
        f"{readable(path)!r} {reason} now, which a session cannot keep: it was removed from the session's workspace."
        for path, reason in collected.replaced.items()
    ]
    if not collected.complete and workspace.persistent:
        notes.append("What the script removed may still be in the session's workspace: not all of it was looked at.")
    return notes
