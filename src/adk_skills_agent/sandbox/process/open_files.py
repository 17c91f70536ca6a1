"""What the processes of a run hold open, and what the kernel keeps or hides behind it.

Nothing of this is in their own memory: buffers of sockets, files without a name, descriptors on their way from one
process to another, watches. Each look goes through ``/proc/PID/fd``, so that the watchdog takes it only when the
machine has used more than before, or when its time allows (:meth:`.watchdog.Limits.dear`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import re
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from adk_skills_agent.sandbox.process.tree import (
    ADDING_SECONDS,
    EVERYTHING,
    LOOK_SECONDS,
    MAPS_BYTES,
    PROC,
    ZONES_BYTES,
    ProcessInfo,
    is_ending,
    kernel_setting,
    proportional,
    text_of,
)

SURE_PLACE = 1000
"""See :func:`hiding_places`."""
_BLOCK = 512
_SEMAPHORE = re.compile(rb"\S+ \S+ \S+ (\S+) \d+ +/dev/shm/sem\.")
_ON_THE_WAY = re.compile(rb"^scm_fds:\s+([1-9][0-9]*)", re.MULTILINE)
_MAPPING_BYTES, _USUAL_MAPPINGS = 256, 65_530  # what the kernel keeps of a mapping; how many a process may have
_LOCK_BYTES = 256  # also of a file that an epoll instance watches
_CHANGE_BYTES = 320  # one that an inotify instance was told of
_ENTRY_BYTES = 4 << 20  # what an open file of /proc keeps of its largest entry, which for an inotify instance is all
_MOST_OF_A_BYTE = 85  # seventeen pages for what is counted as 800 bytes
WATCHES_UNSEEN = 2048
"""That count for a process which does not show its open files."""
_LINE_CHARS, _MOST_TOLD = 100, 1 << 22  # characters of one watch or lock, and of all of one file
_EPOLL = "anon_inode:[eventpoll]"
_OUR_SOCKETS = 2  # of a process of ours, for the agent
_HIDDEN = "hidden"
_USER = re.compile(rb"^Uid:\s+([0-9]+)", re.MULTILINE)
_SOCK_DIAG, _BY_FAMILY, _DUMP, _WHAT, _FIELDS = 4, 20, 0x301, 0x50, (4, 7)
"""Names of <linux/unix_diag.h>: how much waits in each socket (4), and whose it is (7)."""
_TOO_LONG = "/ (too long)"
_NOTED_SECONDS = 10.0


def most_in_kernel(pids: Iterable[int], guarded: Collection[int] = (), *, pages: bool = False) -> int:
    """Bytes that the kernel may hold for these processes at most: buffers of their sockets, lists of their mappings, of
    their locks of files, and of what they watch. Of mappings and locks nothing is charged to a control group, nor of
    connections that nobody has accepted (row 136). It may be anything for a process that does not show its open files
    to the agent (row 177), unless it is one of the ``guarded``, which are ours, with sockets of their own. Without a
    control group (``pages``) the buffers of sockets may hold whole pages of which they count one byte (row 175).
    """
    held = _MOST_OF_A_BYTE if pages else 1
    pids = list(pids)
    until = time.thread_time() + ADDING_SECONDS
    sockets: set[str] = set()
    # Since Linux 6.16 a connection may receive 32 MiB that nobody takes.
    most_in_socket = max(kernel_setting(f"net/ipv4/tcp_{way}mem", 4 << 20) for way in "rw")
    found = _sockets_in_namespace(pids) * most_in_socket * held
    for pid in pids:
        own: list[str] = []
        for path, where in _open_files(pid):
            if where == _HIDDEN:
                if pid not in guarded:
                    return EVERYTHING
            elif where.startswith("socket:"):
                own.append(where)
            elif where.startswith("anon_inode:inotify"):
                found += kernel_setting("fs/inotify/max_queued_events", 16_384) * _CHANGE_BYTES
            elif where.startswith(f"{PROC}/") and "/fdinfo/" in where:
                found += _ENTRY_BYTES
            elif where.startswith(("/", _EPOLL)) and not path.endswith("/exe"):  # which has no list beside it (row 393)
                listed = text_of(path.replace("/fd/", "/fdinfo/"))
                entries = listed.count(b"lock:") + listed.count(b"tfd:")
                found += EVERYTHING if len(listed) == MAPS_BYTES else entries * _LOCK_BYTES
        sockets.update(own[_OUR_SOCKETS:] if pid in guarded else own)
        if len(text_of(f"{PROC}/{pid}/maps")) == MAPS_BYTES:
            found += kernel_setting("vm/max_map_count", _USUAL_MAPPINGS) * _MAPPING_BYTES
        if time.thread_time() > until:
            return EVERYTHING
    hidden = hidden_sockets(pids)
    return found + (len(sockets) + hidden) * 2 * kernel_setting("net/core/wmem_max", 212_992) * held


@dataclass(slots=True)
class Held:
    """What the processes of a run hold that everybody who comes to the same file has to go through.

    Attributes:
        watches: Files that their epoll instances watch, each for itself (row 363).
        locks: Locks of parts of files; the sandbox sees files that all of the machine use (row 369).
        hides: Whether there is a process that does not show what it has open.
    """

    watches: int = 0
    locks: int = 0
    hides: bool = False


def held(pids: Iterable[int], most_watches: int, most_locks: int, guarded: Collection[int] = ()) -> Held:
    """What they hold, no further than until there is more of one than there may be, nor longer than
    :data:`LOOK_SECONDS`: what is left is seen by the next looks. ``guarded`` processes are ours.
    """
    found, until = Held(), time.monotonic() + LOOK_SECONDS
    for pid in sorted(pids, key=lambda _: os.urandom(4)):
        for path, where in _open_files(pid):
            if where == _HIDDEN:
                if pid not in guarded:
                    found.hides = True
                    found.watches += WATCHES_UNSEEN
            elif where.startswith(("/", _EPOLL)) and not path.endswith("/exe"):
                lines = most_watches if where == _EPOLL else most_locks
                told = text_of(path.replace("/fd/", "/fdinfo/"), min(lines * _LINE_CHARS, _MOST_TOLD))
                found.watches += told.count(b"tfd:")
                found.locks += told.count(b"lock:")
            if found.watches > most_watches or found.locks > most_locks:
                return found
        if time.monotonic() > until:
            break
    return found


def machine_locks(most: int) -> int:
    """Locks of files on the whole machine, no further than ``most``. Whose they are not all of them say."""
    found = 0
    with contextlib.suppress(OSError), open(f"{PROC}/locks", "rb") as stream:
        while found < most and (told := stream.read(MAPS_BYTES)):
            found += told.count(b"\n")
    return found


def _sockets_in_namespace(pids: Iterable[int]) -> int:
    """Sockets in a network namespace of a run's own, with those that no process has accepted or that are closing."""
    for pid in pids:
        with contextlib.suppress(ValueError, IndexError):
            if _has_own_network(pid):
                return int(text_of(f"{PROC}/{pid}/net/sockstat").split()[2])
    return 0


def _has_own_network(pid: int) -> bool:
    """Whether a process is in another network namespace than this one."""
    with contextlib.suppress(OSError):  # it ended
        return os.readlink(f"{PROC}/{pid}/ns/net") != os.readlink(f"{PROC}/self/ns/net")  # noqa: PTH115
    return False


def memory_in_files(pids: Iterable[int]) -> int:
    """Bytes in nameless files these processes hold open, each file once."""
    return _bytes_open(pids, lambda where: where.startswith("/memfd:"))


def deleted_files(pids: Iterable[int], folder: str, *, too_deep: bool) -> int:
    """Bytes in files without a name any more that were below a host folder and that these processes hold open;
    ``too_deep`` says whether those count that may have been anywhere, because the kernel does not tell their path.
    """

    def is_below(where: str) -> bool:
        return (too_deep and where == _TOO_LONG) or (where.startswith(f"{folder}/") and where.endswith(" (deleted)"))

    return _bytes_open(pids, is_below)


def shared_memory(members: list[ProcessInfo]) -> int:
    """Bytes of shared memory that these processes show: nameless files they hold open, and what they have mapped,
    divided among those that share it. :data:`EVERYTHING` when that takes too long to add up.
    """
    until = time.thread_time() + ADDING_SECONDS
    used = memory_in_files(info.shown for info in members)
    for info in members:
        used += proportional(info, b"Pss_Shmem:")
        if time.thread_time() > until:
            return EVERYTHING
    return used


def hiding_places(pids: Iterable[int], guarded: Collection[int] = ()) -> int:
    """How many places these processes have where shared memory can be that nothing shows: :data:`SURE_PLACE` for each
    descriptor on its way through a socket, each connection that nobody has accepted, each mapping of a file without a
    name, and each socket that nobody shows; one for any other socket where the kernel does not tell what is on its way.
    ``guarded`` processes are ours, and scripts of a session run in one; another one that does not show what it has can
    have any number. Semaphores, of which every pool of workers has some, are in a small file system of their own.
    """
    found, until = 0, time.thread_time() + ADDING_SECONDS
    pids = list(pids)
    if (inside := next(filter(_has_own_network, pids), None)) is not None:
        found += SURE_PLACE * _sockets_inside(inside).count(b"0")
    found += SURE_PLACE * hidden_sockets(pids)
    for pid in pids:
        for path, where in _open_files(pid):
            if where == _HIDDEN:
                if pid not in guarded:
                    return EVERYTHING
            elif where.startswith("socket:"):
                told = _ON_THE_WAY.search(text_of(path.replace("/fd/", "/fdinfo/")))
                unsure = pid not in guarded and not _tells_what_is_on_the_way()
                found += SURE_PLACE * int(told[1]) if told is not None else unsure
        with contextlib.suppress(OSError), open(f"{PROC}/{pid}/maps", "rb") as stream:  # it ended
            found += SURE_PLACE * sum(line.endswith(b" (deleted)\n") and not _is_semaphore(line) for line in stream)
        if time.thread_time() > until:
            return EVERYTHING
    return found


def _is_semaphore(line: bytes) -> bool:
    """Whether a mapping is of a semaphore in another ``/dev/shm`` than the agent's, whose size is known and limited."""
    found = _SEMAPHORE.match(line)
    return found is not None and found[1] != _device_of_shm()


@functools.lru_cache(maxsize=1)
def _device_of_shm() -> bytes:
    with contextlib.suppress(OSError):
        device = os.stat("/dev/shm").st_dev  # noqa: PTH116, S108
        return b"%02x:%02x" % (os.major(device), os.minor(device))
    return b""


@functools.lru_cache(maxsize=1)
def _tells_what_is_on_the_way() -> bool:
    """Whether the kernel says of a socket how many descriptors are on their way through it (Linux since 5.6)."""
    here, there = socket.socketpair()
    with here, there:
        return b"scm_fds:" in text_of(f"{PROC}/self/fdinfo/{here.fileno()}")


def may_hide_files(pids: Iterable[int], folder: str, guarded: Collection[int] = ()) -> bool:
    """Whether these processes can have deleted files below a host folder that no open descriptor shows: mapped ones,
    those on their way through a socket, and those of a process that shows nothing, unless it is ``guarded``.
    """
    mapped, until = f" {folder}/".encode(), time.monotonic() + LOOK_SECONDS
    pids = list(pids)
    for pid in sorted(pids, key=lambda _: os.urandom(4)):  # whom time is left for is nobody's choice
        with contextlib.suppress(OSError), open(f"{PROC}/{pid}/maps", "rb") as stream:  # it ended
            if any(mapped in line and line.endswith(b" (deleted)\n") for line in stream):
                return True
        for path, where in _open_files(pid):
            if where == _HIDDEN:
                if pid not in guarded:
                    return True
            elif where.startswith("socket:") and _ON_THE_WAY.search(text_of(path.replace("/fd/", "/fdinfo/"))):
                return True
        if time.monotonic() > until:
            break  # so many mappings or open files that the next looks see the others
    return hidden_sockets(pids) > 0


# A call that waits for a socket keeps it when another thread has closed it, with the files that are on their way
# through it, and no list of open files has it (row 413).


def hidden_sockets(pids: Collection[int]) -> int:
    """How many UNIX sockets of these processes none of them shows. In a session one may belong to a process of ours.

    Where they share the machine's network, only sockets of the same user that have something to read count, less those
    of :func:`note_sockets`; if other runs are that user's, theirs count, too.
    """
    inside = next(filter(_has_own_network, pids), None)
    if inside is None:
        users = {user for pid in pids if (user := _user_of(pid)) is not None}
        look = functools.partial(_sockets_with_data, users)
    else:
        look = functools.partial(_sockets_shown_inside, inside)
    if not (left := look()):
        return 0
    until = time.thread_time() + 2 * ADDING_SECONDS
    names = os.listdir(PROC) if inside is None else ()  # noqa: PTH208
    others = (int(name) for name in names if name.isdigit())
    for pid in dict.fromkeys((*pids, *others)):  # nearly all are their own
        if not left or time.thread_time() > until:
            break
        left -= {int(where[8:-1]) for _, where in _open_files(pid) if where.startswith("socket:[")}
    return len(left & look()) if left else 0  # what was closed in the meantime is nobody's


def _sockets_inside(pid: int) -> list[bytes]:
    """The numbers of the UNIX sockets in the network namespace of a process; 0 for one that nobody has accepted."""
    lines = text_of(f"{PROC}/{pid}/net/unix", ZONES_BYTES).splitlines()[1:]
    return [fields[6] for line in lines if len(fields := line.split()) > 6]


def _sockets_shown_inside(pid: int) -> set[int]:
    return set(map(int, _sockets_inside(pid))) - {0}


def _user_of(pid: int) -> int | None:
    found = _USER.search(text_of(f"{PROC}/{pid}/status"))
    return None if found is None else int(found[1])


_noted: tuple[float, frozenset[int]] = -math.inf, frozenset()


def note_sockets() -> None:
    """Take note of the machine's sockets while there is no run, not more often than anybody feels: they are other
    programs', and those that hide themselves (``ssh-agent``, browsers) show nobody whose.
    """
    global _noted  # noqa: PLW0603  # one for the process, as its runs are
    now = time.monotonic()
    if now - _noted[0] > _NOTED_SECONDS:
        _noted = now, frozenset(map(_number_of, _sockets(0)))


def _sockets_with_data(users: Collection[int]) -> set[int]:
    """The numbers of the machine's UNIX sockets that belong to these users, have something to read, and were not there
    when there was no run.
    """
    found: set[int] = set()
    for told in _sockets(_WHAT):
        fields = dict(_netlink_parts(told[16:], "=HH", 4))
        waiting, user = (int.from_bytes(fields.get(name, b"")[:4], sys.byteorder) for name in _FIELDS)
        if waiting and user in users:
            found.add(_number_of(told))
    return found - _noted[1] - {0}  # one that nobody has accepted has no number


def _number_of(told: bytes) -> int:
    return int.from_bytes(told[4:8], sys.byteorder)


def _sockets(what: int) -> Iterator[bytes]:
    """What the kernel tells of each UNIX socket of the machine; nothing where it does not."""
    every = 0xFFFF_FFFF
    ask = struct.pack("=IHHIIBBHIIIII", 40, _BY_FAMILY, _DUMP, 1, 0, socket.AF_UNIX, 0, 0, every, 0, what, 0, 0)
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(LOOK_SECONDS)
        kernel.send(ask)
        while told := kernel.recv(1 << 17):
            for kind, body in _netlink_parts(told, "=IH", 16):
                if kind != _BY_FAMILY:  # the end, or an error
                    return
                yield body


def _netlink_parts(told: bytes, head: str, head_size: int) -> Iterator[tuple[int, bytes]]:
    """Messages, or attributes of one: kind and content."""
    while len(told) >= head_size:
        size, kind = struct.unpack_from(head, told)
        yield kind, told[head_size:size]
        told = told[max(head_size, -(-size // 4) * 4) :]


def _bytes_open(pids: Iterable[int], counts: Callable[[str], bool]) -> int:
    """Bytes of those nameless files these processes hold open, each file once."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        for path, where in _open_files(pid):
            if not counts(where):
                continue
            try:
                info = os.stat(path)  # noqa: PTH116
            except OSError:  # closed in the meantime
                continue
            if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                sizes[info.st_dev, info.st_ino] = info.st_blocks * _BLOCK
    return sum(sizes.values())


def _open_files(pid: int) -> Iterator[tuple[str, str]]:
    """The path of each open descriptor below ``/proc``, and where it leads. That is :data:`_HIDDEN` for a live process
    which an agent without privileges may not look into (PR_SET_DUMPABLE, a program without the right to be read), and
    :data:`_TOO_LONG` for a file that is so deep in folders that the kernel does not say where (row 271).
    """
    try:
        names = os.listdir(f"{PROC}/{pid}/fd")  # noqa: PTH208
    except PermissionError:
        if not is_ending(pid):
            yield f"{PROC}/{pid}/fd", _HIDDEN
        return
    except OSError:  # it ended
        return
    # The file of a program is held without a descriptor, and without a mapping when the program has left it.
    for path in (f"{PROC}/{pid}/exe", *(f"{PROC}/{pid}/fd/{name}" for name in names)):
        try:
            where = os.readlink(path)  # noqa: PTH115
        except PermissionError:  # a list of names is no sight of what they are (row 340)
            if not is_ending(pid):
                yield f"{PROC}/{pid}/fd", _HIDDEN
            return
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # closed in the meantime
                continue
            where = _TOO_LONG
        yield path, where
