"""The private folder of one run, filled with what was given, which is remembered so that the rest is output."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import InputFile, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local.abandoned import folder_name, sweep_abandoned
from adk_skills_agent.sandbox.local.removal import remove_tree
from adk_skills_agent.sandbox.local.tree import Walk, on_disk, open_folder, portable

_COPY_BYTES = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A given file gets this much older a modification time than it has, so that a write within the clock's tick shows.
_AGE_NS = 1_000_000_007
_UNBOUNDED = 1 << 62
_DEFAULT_ENTRIES = 100_000

Stamp = tuple[int, int, int, int]


def stamp(info: os.stat_result) -> Stamp:
    """What changes when a file is written, replaced or changes its mode."""
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


@dataclass(slots=True)
class Workspace:
    """The folders of one run and what was in them at its start.

    Attributes:
        root: Host folder of mode 0700 that holds the others; deleted at the end.
        work: The script's ``/work``.
        tmp: The script's ``/tmp``.
        given: Files put in, by relative path, and their stamps.
        given_folders: Folders put in.
        links: Links to a mount's entries, by name, and their inodes.
        persistent: Relative paths of files and folders that came from the session's workspace.
        notes: What could not be put in, one sentence each.
    """

    root: str
    work: str
    tmp: str
    given: dict[str, Stamp] = field(default_factory=dict)
    given_folders: set[str] = field(default_factory=set)
    links: dict[str, int] = field(default_factory=dict)
    persistent: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def remove(self) -> str | None:
        """Delete everything; a sentence when something is left."""
        return remove_tree(self.root)

    def unlink(self) -> None:
        """Take the links away again, before a command has run.

        Raises:
            OSError: The file system refuses.
        """
        for name in self.links:
            os.unlink(on_disk(self.work, name))  # noqa: PTH108
        self.links.clear()

    def undo(self) -> str | None:
        """Delete everything before a command has run: without a descriptor, since there may be none left.

        Only then is it sure that a path leads to what was put there.
        """
        try:
            for path in (*self.links, *self.given):
                os.unlink(on_disk(self.work, path))  # noqa: PTH108
            for path in sorted(self.given_folders, reverse=True):
                os.rmdir(on_disk(self.work, path))  # noqa: PTH106
            for folder in (self.work, self.tmp, self.root):
                os.rmdir(folder)  # noqa: PTH106
        except OSError:
            return self.remove()
        return None


def create_workspace(run_id: str) -> Workspace:
    """Make the empty folders, private to this user.

    Raises:
        OSError: The disk is full, or the folder for temporary files cannot be written.
    """
    import tempfile

    place = os.path.realpath(tempfile.gettempdir())
    sweep_abandoned(place)
    root = os.path.join(place, folder_name(run_id))  # noqa: PTH118
    workspace = Workspace(root, f"{root}/work", f"{root}/tmp")  # noqa: S108  # inside the private root
    os.mkdir(root, 0o700)  # noqa: PTH102
    try:
        os.mkdir(workspace.work, 0o700)  # noqa: PTH102
        os.mkdir(workspace.tmp, 0o700)  # noqa: PTH102
    except OSError:
        workspace.undo()
        raise
    return workspace


def fill_workspace(
    workspace: Workspace,
    policy: SandboxPolicy,
    *,
    persistent: Path | None,
    input_files: Iterable[InputFile],
    mounts: Iterable[ReadOnlyMount],
    inside: bool = False,
) -> None:
    """Put in the session's files, then the input files, then links to the entries of linked mounts.

    Args:
        workspace: Where.
        policy: How large the session's files may be.
        persistent: The session's files.
        input_files: More files.
        mounts: Folders to link to.
        inside: The run sees its mounts at their targets, so that links lead there and not to the host's folders.

    Raises:
        SandboxError: The session's workspace is no folder, or larger than the policy allows; a mount is no folder.
        ValueError: An input file's path is absolute, leaves the workspace, or is used twice.
        OSError: The disk is full.
    """
    if persistent is not None:
        _copy_in(workspace, policy, persistent)
    seen: set[str] = set()
    for file in input_files:
        _put(workspace, file, seen)
    link_mounts(workspace, mounts, inside=inside)


def link_mounts(workspace: Workspace, mounts: Iterable[ReadOnlyMount], *, inside: bool) -> None:
    """The last part of :func:`fill_workspace`: links to the entries of linked mounts.

    Raises:
        SandboxError: A mount is no folder.
        OSError: The file system refuses.
    """
    for mount in mounts:
        if not mount.source.is_dir():
            raise about(SandboxError(f"The folder for {mount.target} is not there."), mount.source)
        if mount.linked:
            _link(workspace, mount, str(mount.target) if inside else None)


def about(error: SandboxError, path: object) -> SandboxError:
    """Add a host path for the owner's traceback; the sentence itself may reach a model, which gets no host paths."""
    error.add_note(f"On the host: {path}")
    return error


def _put(workspace: Workspace, file: InputFile, seen: set[str]) -> None:
    parts = file.path.split("/")
    if not file.path or "\0" in file.path or file.path.startswith("/") or any(p in {"", ".", ".."} for p in parts):
        raise ValueError(f"Input file path {file.path!r} must be relative, inside the workspace, with forward slashes.")
    if file.path in seen:
        raise ValueError(f"Input file {file.path!r} is given twice.")
    seen.add(file.path)
    mode = 0o700 if file.executable else 0o600
    try:
        _make_folders(workspace, parts[:-1])
        target = on_disk(workspace.work, file.path)
        if file.path in workspace.given:
            os.unlink(target)  # noqa: PTH108  # it replaces the session's file of that name
        descriptor = os.open(target, _CREATE, mode)
    except UnicodeEncodeError:
        raise ValueError(f"Input file path {file.path!r} is no valid text.") from None
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        raise ValueError(f"Input file {file.path!r} needs a folder where there is a file, or the reverse.") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise ValueError(f"Input file path {file.path[:40]!r}... is too long for a file system.") from None
    try:
        _write_all(descriptor, file.content)
        workspace.given[file.path] = _age(descriptor)
    finally:
        os.close(descriptor)


def _make_folders(workspace: Workspace, parts: list[str]) -> None:
    path = ""
    for part in parts:
        path = f"{path}/{part}" if path else part
        if path not in workspace.given_folders:
            os.mkdir(on_disk(workspace.work, path), 0o700)  # noqa: PTH102
            workspace.given_folders.add(path)


def _link(workspace: Workspace, mount: ReadOnlyMount, seen_at: str | None) -> None:
    source = os.path.abspath(mount.source)  # noqa: PTH100
    for name in sorted(os.listdir(source)):  # noqa: PTH208
        target = f"{workspace.work}/{name}"
        try:
            os.symlink(f"{seen_at or source}/{name}", target)  # noqa: PTH211
        except FileExistsError:
            continue  # the workspace's own file goes first
        workspace.links[portable(name)] = os.lstat(target).st_ino


def _copy_in(workspace: Workspace, policy: SandboxPolicy, source: Path) -> None:
    room = _UNBOUNDED if policy.workspace_bytes is None else policy.workspace_bytes
    most = _DEFAULT_ENTRIES if policy.workspace_inodes is None else policy.workspace_inodes
    walk = Walk(most, max_seconds=60.0)
    try:
        top = open_folder(str(source))
    except OSError as error:
        raise about(SandboxError(f"The session's workspace cannot be read: {error.strerror}."), source) from error
    try:
        with contextlib.closing(walk.entries(top)) as entries:
            for entry in entries:
                target = on_disk(workspace.work, entry.path)
                if entry.is_folder:
                    if entry.path not in workspace.given_folders:
                        os.mkdir(target, 0o700)  # noqa: PTH102
                        workspace.given_folders.add(entry.path)
                    workspace.persistent.add(entry.path)
                elif stat.S_ISREG(entry.info.st_mode):
                    room -= entry.info.st_size
                    if room < 0:
                        problem = f"holds more than workspace_bytes={policy.workspace_bytes:,}"
                        advice = "Delete files from it, or raise the limit."
                        raise about(SandboxError(f"The session's workspace {problem}. {advice}"), source)
                    workspace.given[entry.path] = _copy_file(entry.folder, entry.name, target, entry.info)
                    workspace.persistent.add(entry.path)
                else:
                    workspace.notes.append(f"{entry.path!r} in the workspace is no regular file; it was not copied in.")
    finally:
        os.close(top)
    if walk.stopped:
        problem = f"cannot be copied: {walk.stopped}"
        raise about(SandboxError(f"The session's workspace {problem}. Delete files from it."), source)
    workspace.notes.extend(f"{path!r} in the workspace was not copied in: {reason}." for path, reason in walk.skipped)


def _copy_file(folder: int, name: str, target: bytes, info: os.stat_result) -> Stamp:
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        descriptor = os.open(target, _CREATE, 0o700 if info.st_mode & 0o100 else 0o600)
        try:
            left = info.st_size
            while left > 0 and (chunk := os.read(source, min(left, _COPY_BYTES))):
                _write_all(descriptor, chunk)
                left -= len(chunk)
            return _age(descriptor, info.st_mtime_ns)
        finally:
            os.close(descriptor)
    finally:
        os.close(source)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _age(descriptor: int, modified_ns: int | None = None) -> Stamp:
    when = (os.fstat(descriptor).st_mtime_ns if modified_ns is None else modified_ns) - _AGE_NS
    os.utime(descriptor, ns=(when, when))
    return stamp(os.fstat(descriptor))
