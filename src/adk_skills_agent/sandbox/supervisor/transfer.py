"""What goes into a sandbox before a command and what comes out after it, by way of a private folder on the host.

The folder is the one a run on this machine has (:mod:`..files.workspace`): filled with the session's files and the
inputs, sent, brought up to date with what the sandbox says has changed, and then collected and persisted by the same
code, with the same bounds. What a sandbox sends is hostile: no link is followed, nothing leaves the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.files.collect import (
    Collected,
    Walk,
    collect,
    open_folder,
    parent_of,
    portable,
    readable_name,
)
from adk_skills_agent.sandbox.files.removal import remove_tree
from adk_skills_agent.sandbox.files.workspace import Workspace, create_workspace, fill_workspace, persist
from adk_skills_agent.sandbox.skill_store import Staged, stage
from adk_skills_agent.sandbox.supervisor import frames

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.secrets import SecretForms
    from adk_skills_agent.sandbox.supervisor.command import Layout

_FOLDER = os.O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC
_MOST_DEEP = 32  # folders inside folders, as everywhere output is collected
_MOST_SKIPPED = 100
_MOST_NOTES = 50
_MOST_ENTRIES = 100_000
_MOST_PATH_BYTES = 4096
_MOST_REASON_CHARS = 200
_MOST_OUTSIDE = 1_000  # each becomes a sentence, of which fifty are told
_MOST_SECONDS = 60.0
_UNBOUNDED = 1 << 62
_TWICE = 2
"""More than a session keeps may come back: what is kept of it is decided in one place, by size and not by name."""
_HARD_LINKS = "has several hard links"  # as files.py says it: one of them is not in the workspace


class RunFolder:
    """The files of one run, and a sentence for all that could not be sent or taken.

    Blocks: call it in a worker thread.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy, layout: Layout) -> None:
        self._request = request
        self._policy = policy
        self._layout = layout
        self._persistent = request.workspace
        self._open: tuple[int, str] | None = None
        self._top = -1
        self._left_out = 0
        self._skipped: list[tuple[str, str]] = []
        self._room = _UNBOUNDED if policy.workspace_bytes is None else _TWICE * policy.workspace_bytes
        # Of files and folders; a sandbox that is somebody else's by now could make any number of empty ones (row 152).
        self._places = _TWICE * (_MOST_ENTRIES if policy.workspace_inodes is None else policy.workspace_inodes)
        self._came: set[str] = set()  # names of files that are there in whole; no more than places
        self._replaced: dict[str, str] = {}
        self._outside: list[str] = []
        self.notes: list[str] = []
        self._workspace: Workspace | None = None
        self._staged: Staged | None = None

    def fill(self, run_id: str) -> None:
        """Make the folder with everything that is to be sent; :meth:`discard` removes it, whatever happens."""
        request = self._request
        self._staged = staged = stage(request)
        mounts = staged.request.mounts
        self._workspace = workspace = create_workspace(run_id)
        fill_workspace(
            workspace,
            self._policy,
            persistent=request.workspace,
            input_files=request.input_files,
            mounts=mounts,
            inside=True,
        )
        self.notes += [*staged.notes, *workspace.notes]
        self._top = os.open(workspace.work, _FOLDER)
        folder = request.cwd
        places = [
            Path(mount.source, folder.relative_to(mount.target))
            for mount in mounts
            if folder.is_relative_to(mount.target)
        ]
        if folder.is_relative_to(WORK_DIR):
            below = folder.relative_to(WORK_DIR)
            places.append(Path(workspace.work, below))
            if below.parts and below.parts[0] in workspace.links:
                places += [Path(mount.source, below) for mount in mounts if mount.linked]
        if not any(place.is_dir() for place in places):
            raise ValueError(f"cwd {str(folder)!r} does not exist in the sandbox.")

    @property
    def bounds(self) -> dict[str, int]:
        """The ``files`` of an ``exec``: a session keeps all of what changed, else only output files are wanted."""
        policy = self._policy
        if self._persistent is None:
            return {"count": policy.max_files, "each": policy.max_file_bytes, "total": policy.max_total_file_bytes}
        count = _MOST_ENTRIES if policy.workspace_inodes is None else policy.workspace_inodes
        most = _UNBOUNDED if policy.workspace_bytes is None else policy.workspace_bytes
        return {"count": count, "each": most, "total": _TWICE * most}

    def sent(self) -> Iterator[bytes]:
        """The ``put`` frames of everything, encoded, a part at a time; nothing is held in memory but that."""
        workspace, staged = self._workspace, self._staged
        assert workspace is not None  # noqa: S101  # until discard()
        assert staged is not None  # noqa: S101
        for mount in () if self._layout.mounted else staged.request.mounts:
            place = self._layout.place(mount.target)
            yield frames.encode({"t": "put", "path": place, "kind": "folder", "mode": 0o755})
            yield from self._tree(str(mount.source), f"{place}/")
        yield from self._tree(workspace.work, "", ours=workspace.links)

    def _tree(self, folder: str, prefix: str, ours: dict[str, int] | None = None) -> Iterator[bytes]:
        walk = Walk(_MOST_ENTRIES, max_seconds=_MOST_SECONDS)
        top = open_folder(folder)
        try:
            with contextlib.closing(walk.entries(top)) as entries:
                for entry in entries:
                    path = prefix + entry.path
                    mode = stat.S_IMODE(entry.info.st_mode) & 0o777
                    if entry.is_folder:
                        yield frames.encode({"t": "put", "path": path, "kind": "folder", "mode": mode | 0o700})
                    elif stat.S_ISLNK(entry.info.st_mode):
                        target = portable(os.readlink(entry.name, dir_fd=entry.folder))
                        if ours is not None and entry.path in ours:
                            target = f"{self._layout.root}{target}"
                        yield frames.encode({"t": "put", "path": path, "kind": "link", "target": target})
                    elif stat.S_ISREG(entry.info.st_mode):
                        yield from _content(entry.folder, entry.name, path, mode)
                    else:
                        self.notes.append(
                            f"{readable_name(path)!r} is not a regular file; it was not sent into the sandbox."
                        )
        finally:
            os.close(top)
        if walk.stopped:
            self.notes.append(f"Not everything below {prefix or '/work'!r} was sent into the sandbox: {walk.stopped}.")
        self.notes += [
            f"{readable_name(prefix + path)!r} was not sent: {why}." for path, why in walk.skipped[:_MOST_NOTES]
        ]

    def take(self, frame: frames.Frame) -> None:
        """A ``file``, ``skip`` or ``gone`` frame. What it asks for and may not is left out, with a reason."""
        kind, path = frame["t"], frames.text(frame, "path")
        reason = frames.text(frame, "reason")[:_MOST_REASON_CHARS] if kind == "skip" else None
        data = frames.content(frame) if kind == "file" else b""
        mode = frames.number(frame, "mode", 0o600)
        parts = path.split("/")
        if reason is not None and path == ".":
            self._skip(path, reason)
            if len(self.notes) < _MOST_NOTES:
                self.notes.append(f"Nothing of the working directory was kept: {readable_name(reason)}.")
            return
        odd = any(part in {"", ".", ".."} for part in parts) or "\0" in path or len(path) > _MOST_PATH_BYTES
        if odd or len(parts) > _MOST_DEEP:
            self._skip("?" if len(path) > _MOST_PATH_BYTES else path, "the sandbox gave it an impossible path")
            return
        try:
            if reason is not None:
                self._left(parts, path, reason)
            elif kind == "gone":
                self._remove(parts)
            elif "same" in frame:
                self._link(parts, path, frames.text(frame, "same"))
            else:
                self._write(parts, path, mode, data, more=frames.flag(frame, "more"))
        except (OSError, UnicodeEncodeError) as error:
            self._close_file()
            with contextlib.suppress(OSError, UnicodeEncodeError):
                self._remove(parts)  # half of it is not the file
            self._skip(path, f"cannot be stored: {getattr(error, 'strerror', None) or 'its name is not valid text'}")

    def leave_out(self, more: object) -> None:
        """How many files the sandbox has neither sent nor named, as it says."""
        if isinstance(more, int) and 0 < more < _UNBOUNDED:
            self._left_out += more

    def collect(self, secrets: SecretForms | None) -> Collected:
        """The output files; what changed is in the session's workspace afterwards."""
        workspace = self._workspace
        assert workspace is not None  # noqa: S101  # until discard()
        self._close_file()
        collected = collect(workspace, self._policy, secrets)
        collected.skipped[:0] = self._skipped
        collected.replaced |= self._replaced
        collected.outside += self._outside
        if self._left_out:
            collected.notes.append(f"{self._left_out:,} more files were not collected.")
        if self._persistent is not None:
            collected.notes += persist(workspace, collected, Path(self._persistent), self._policy)
        return collected

    def discard(self) -> str | None:
        """Remove the folder and let the copies of mounts go; a sentence when something is left. Safe to call twice."""
        self._close_file()
        workspace, self._workspace = self._workspace, None
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.release()
        if self._top >= 0:
            os.close(self._top)
            self._top = -1
        return None if workspace is None else workspace.remove()

    def _left(self, parts: list[str], path: str, reason: str) -> None:
        """Something in the sandbox that does not come: what a session had under that name must not come back for it."""
        self._skip(path, reason)
        workspace = self._workspace
        assert workspace is not None  # noqa: S101  # until discard()
        if reason == _HARD_LINKS:
            if len(self._outside) < _MOST_OUTSIDE:
                self._outside.append(path)
        elif reason.startswith("is ") and path not in workspace.links:
            self._remove(parts)
            if path in workspace.persistent:
                self._replaced[path] = reason
        elif self._persistent is not None and len(self.notes) < _MOST_NOTES:
            self.notes.append(f"{readable_name(path)!r} was not kept: {readable_name(reason)}.")

    def _link(self, parts: list[str], path: str, same: str) -> None:
        """Another name of a file that came before; any other name may lead out of the folder (row 329)."""
        if same not in self._came:
            raise OSError(0, "the file it is a hard link to has not come")
        folder = self._parent(parts)
        try:
            name = parts[-1].encode("utf-8", "surrogateescape")
            _clear(name, folder)
            self._make_place()
            with parent_of(self._top, same) as (other, known):
                os.link(known, name, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
            self._came.add(path)
        finally:
            os.close(folder)

    def _skip(self, path: str, reason: str) -> None:
        if len(self._skipped) < _MOST_SKIPPED:
            self._skipped.append((readable_name(path), readable_name(reason)))
        else:
            self._left_out += 1

    def _write(self, parts: list[str], path: str, mode: int, data: bytes, *, more: bool) -> None:
        if self._open is None or self._open[1] != path:
            self._close_file()
            folder = self._parent(parts)
            try:
                name = parts[-1].encode("utf-8", "surrogateescape")
                _clear(name, folder)
                self._make_place()
                self._open = (os.open(name, _CREATE, 0o600 | mode & 0o100, dir_fd=folder), path)
            finally:
                os.close(folder)
        self._room -= len(data)
        if self._room < 0:
            raise OSError(0, f"more than workspace_bytes={self._policy.workspace_bytes:,} came back")
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._open[0], rest) :]
        if not more:
            self._close_file()
            self._came.add(path)

    def _remove(self, parts: list[str]) -> None:
        name = "/".join(parts)
        try:
            with parent_of(self._top, name) as (folder, last):
                try:
                    _clear(last, folder)
                except OSError as error:
                    if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                        raise
                    remove_tree(os.fsdecode(last), folder)  # a folder that gave way to something else
        except (FileNotFoundError, NotADirectoryError):
            return

    def _parent(self, parts: list[str]) -> int:
        """A descriptor of the folder something is in, made where it is missing; what is no folder gives way."""
        folder = os.open(".", _FOLDER, dir_fd=self._top)
        try:
            for part in parts[:-1]:
                name = part.encode("utf-8", "surrogateescape")
                try:
                    below = os.open(name, _FOLDER, dir_fd=folder)
                except OSError:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                    self._make_place()
                    os.mkdir(name, 0o700, dir_fd=folder)
                    below = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _make_place(self) -> None:
        """Before a file or a folder is made."""
        self._places -= 1
        if self._places < 0:
            raise OSError(0, "more files came back than a workspace may have")

    def _close_file(self) -> None:
        if self._open is not None:
            os.close(self._open[0])
            self._open = None


def _clear(name: bytes, folder: int) -> None:
    """Make way for what the sandbox has under a name: a file or a link goes, a folder only when it is empty."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        os.rmdir(name, dir_fd=folder)


def _content(folder: int, name: str, path: str, mode: int) -> Iterator[bytes]:
    descriptor = os.open(name, os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=folder)
    try:
        for piece, more in frames.read_pieces(descriptor, _UNBOUNDED):
            frame = {"t": "put", "path": path, "kind": "file", "mode": mode, "b64": frames.base64(piece)}
            yield frames.encode({**frame, "more": more})
    finally:
        os.close(descriptor)
