"""Files inside a sandbox: takes what the host sends, tells the host what an execution changed.

Part of the program in the sandbox (:mod:`.program`). Scripts may read whatever is read here anyway, so links and races
cannot reach anything; they must only not make the supervisor hang.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Callable, Dict, Iterator, Tuple

from adk_skills_agent.sandbox.supervisor import frames

_MOST_ENTRIES = 100_000
_MOST_DEPTH = 32  # as the host takes them
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_SKIPPED = 100

Parts = Dict[str, bytearray]
Stamp = Tuple[int, int, int, int]
Send = Callable[[Dict[str, Any]], None]


class Workspace:
    """The folder an execution works in, and how it looked when the last one ended.

    ``cut_at`` is how many entries the last look took in when there were more; None when it has seen everything.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._known: dict[str, Stamp] = {}
        self._open: tuple[str, str, int] | None = None  # path, name while it is written, fd
        self._number = 0
        self.cut_at: int | None = None
        self._opened: list[tuple[str, int]] = []  # what was closed to its own owner, and how

    def put(self, frame: frames.Frame) -> None:
        """Carry out a ``put`` frame."""
        path = os.path.join(self.root, frames.text(frame, "path"))
        kind, mode = frames.text(frame, "kind", "file"), frames.number(frame, "mode", 0o600)
        if self._open is None or self._open[0] != path:
            self.drop_unfinished()
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        if kind == "folder":
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)
        elif kind == "link":
            if not os.path.lexists(path):
                os.symlink(frames.text(frame, "target"), path)
                self._know(path, os.lstat(path))
        else:
            self._write(path, mode, frames.content(frame), frames.flag(frame, "more"))

    def _write(self, path: str, mode: int, data: bytes, more: bool) -> None:
        # Aside, then renamed: whatever lies at the path, a pipe perhaps, is replaced and never opened.
        if self._open is None:
            self._number += 1
            name = f"{os.path.dirname(path)}/.put-{os.getpid()}-{self._number}"
            self._open = (path, name, os.open(name, _WRITE, 0o600))
        _, name, descriptor = self._open
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if more:
                return
            os.fchmod(descriptor, mode)
            os.rename(name, path)
            self._know(path, os.fstat(descriptor))
        except OSError:
            self.drop_unfinished()
            raise
        os.close(descriptor)
        self._open = None

    def _know(self, path: str, info: os.stat_result) -> None:
        if path.startswith(self.root + "/"):
            self._known[path[len(self.root) + 1 :]] = _stamp(info)

    def drop_unfinished(self) -> None:
        """A file of which no further piece comes."""
        if self._open is not None:
            _, name, descriptor = self._open
            self._open = None
            os.close(descriptor)
            try:
                os.unlink(name)
            except OSError:
                pass

    def remember(self) -> None:
        """From here on only what changes now counts."""
        self._known = {path: _stamp(info) for path, info, _ in self._walk()}
        self._close_again()

    def tell_changes(self, number: int, limits: dict[str, int], send: Send) -> int:
        """Send ``file``, ``skip`` and ``gone`` frames for what is different since the last time; how many more are not
        named.
        """
        before, self._known = self._known, {}
        count = total = skipped = 0
        found = sorted(self._walk(), key=lambda one: one[0])
        names = {}  # type: dict[tuple[int, int], int]
        for _, info, _ in found:
            names[info.st_dev, info.st_ino] = names.get((info.st_dev, info.st_ino), 0) + 1
        sent_as = {}  # type: dict[tuple[int, int], str]
        for path, info, unseen in found:
            reason = unseen
            self._known[path] = mark = _stamp(info)
            if before.pop(path, None) == mark:
                continue
            if reason is None and stat.S_ISREG(info.st_mode):
                identity = (info.st_dev, info.st_ino)
                if names[identity] != info.st_nlink:
                    reason = "has several hard links"  # one of them elsewhere: the content may not be the run's
                elif identity in sent_as:
                    send({"t": "file", "id": number, "path": path, "same": sent_as[identity]})
                elif count >= limits["count"]:
                    reason = "more than max_files={} output files".format(limits["count"])
                elif info.st_size > limits["each"]:
                    reason = "larger than max_file_bytes={:,}".format(limits["each"])
                elif total + info.st_size > limits["total"]:
                    reason = "the output files together are larger than max_total_file_bytes={:,}".format(
                        limits["total"]
                    )
                else:
                    count += 1
                    sent, reason = self._send(number, path, info.st_mode, min(limits["each"], limits["total"]), send)
                    total += sent
                    if reason is None:
                        sent_as[identity] = path
            elif reason is None:
                reason = _kind(info.st_mode)
            if reason is not None:
                skipped += 1
                if skipped <= _MOST_SKIPPED:
                    send({"t": "skip", "id": number, "path": path or ".", "reason": reason})
        if self.cut_at is None:  # else what was not seen may be there
            unseen_below = tuple(path + "/" if path else "" for path, info, _ in found if stat.S_ISDIR(info.st_mode))
            for path in before:
                if not path.startswith(unseen_below):
                    send({"t": "gone", "id": number, "path": path})
        else:
            self._known.update(before)
        self._close_again()
        return max(0, skipped - _MOST_SKIPPED)

    def _send(self, number: int, path: str, mode: int, most: int, send: Send) -> tuple[int, str | None]:
        """The bytes sent, and why the file was not."""
        try:
            descriptor = self._open_for_reading(path)
        except OSError as error:
            return 0, f"cannot be read: {error.strerror}"
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return 0, "is not a regular file"
            sent = 0
            for piece, more in frames.read_pieces(descriptor, most):
                sent += len(piece)
                frame = {"t": "file", "id": number, "path": path, "mode": stat.S_IMODE(mode)}
                send({**frame, "b64": frames.base64(piece), "more": more})
        except OSError as error:
            return 0, f"cannot be read: {error.strerror}"
        else:
            return sent, None
        finally:
            os.close(descriptor)

    def _open_for_reading(self, path: str) -> int:
        place = os.path.join(self.root, path)
        try:
            return os.open(place, _READ)
        except PermissionError:
            mode = stat.S_IMODE(os.lstat(place).st_mode)
            os.chmod(place, mode | 0o400)
        descriptor = os.open(place, _READ)
        os.fchmod(descriptor, mode)
        self._known[path] = _stamp(os.fstat(descriptor))
        return descriptor

    def _entries(self, folder: str, mode: int) -> Any:
        """What is in a folder, also in one that its owner, who is the owner of this process, has closed."""
        place = os.path.join(self.root, folder) if folder else self.root
        if mode & 0o500 != 0o500:
            try:
                os.chmod(place, stat.S_IMODE(mode) | 0o500)
                self._opened.append((place, stat.S_IMODE(mode)))
            except OSError:
                pass  # somebody else's: scandir says whether it can be read
        return os.scandir(place)

    def _close_again(self) -> None:
        while self._opened:
            place, mode = self._opened.pop()
            try:
                os.chmod(place, mode)
            except OSError:
                pass  # gone meanwhile

    def _walk(self) -> Iterator[tuple[str, os.stat_result, str | None]]:
        """Everything but folders, with paths relative to the root; bounded. Folders only with why they are closed."""
        left = _MOST_ENTRIES
        self.cut_at = None
        try:
            top = os.lstat(self.root)
        except OSError:
            return  # the script removed it where it is no mount
        if not stat.S_ISDIR(top.st_mode):
            yield "", top, None
            return
        waiting = [("", 0, top)]
        while waiting:
            folder, depth, own = waiting.pop()
            try:
                entries = self._entries(folder, own.st_mode)
            except OSError as error:
                yield folder, own, "cannot be opened: " + str(error.strerror)
                continue
            with entries:
                for entry in entries:
                    path = folder + "/" + entry.name if folder else entry.name
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # gone meanwhile
                    left -= 1
                    if left < 0:
                        self.cut_at = _MOST_ENTRIES
                        return
                    if not stat.S_ISDIR(info.st_mode):
                        yield path, info, None
                    elif depth + 1 < _MOST_DEPTH:
                        waiting.append((path, depth + 1, info))
                    else:
                        yield path, info, f"nested deeper than {_MOST_DEPTH} folders"


class Inputs:
    """What the host sends ahead of an execution: files, and pieces of code or standard input that are long."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._parts: Parts = {}
        self._problem: str | None = None

    def put(self, frame: frames.Frame) -> str | None:
        """Carry out a ``put`` frame; why it could not be, for the first that could not."""
        try:
            self._workspace.put(frame)
        except OSError as error:
            if self._problem is None:
                name = frames.text(frame, "path")
                self._problem = f"{name!r} could not be put into the sandbox: {error.strerror}"
                return self._problem
        return None

    def keep(self, frame: frames.Frame) -> None:
        """Hold the bytes of a ``part`` frame."""
        if self._problem is not None:
            return
        try:
            self._parts.setdefault(frames.text(frame, "of"), bytearray()).extend(frames.content(frame))
        except MemoryError:
            self._parts.clear()
            self._problem = "its input does not fit into the memory of the sandbox"

    def take(self) -> tuple[Parts, str | None]:
        """The parts that were held, and why the execution cannot begin; nothing is left for the next one."""
        self._workspace.drop_unfinished()
        found = self._parts, self._problem
        self._parts, self._problem = {}, None
        return found


def _kind(mode: int) -> str:
    for test, kind in ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket")):
        if test(mode):
            return "is " + kind
    return "is a device" if stat.S_ISBLK(mode) or stat.S_ISCHR(mode) else "is not a regular file"


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
