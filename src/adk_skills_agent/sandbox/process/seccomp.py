"""The system call filter of a run, as a classic BPF program in bytes; nothing is installed or imported here.

It is an allow-list: what container engines allow by default (:data:`~.system_calls.ALLOWED`), less what lets a process
out of its sandbox, into another process, at things of the whole machine or at rarely used kernel code (attack rows 17,
25, 26, 56 to 63, 75 to 85). A known call that is not on the list gets EPERM, an unknown one of a newer kernel ENOSYS,
as an older kernel would answer. Attack row 62: another architecture's calls (i386, x32), whose numbers mean something
else, are unknown, too. They do not kill the process: the kernel logs that in the machine's audit log (row 401).
"""

from __future__ import annotations

import errno
import functools
import os
import re
import struct
import sys
from collections.abc import Iterable, Mapping

from adk_skills_agent.sandbox.process.system_calls import (
    ALLOWED,
    COMMANDS,
    INTERFACE_REQUESTS,
    LAST_KNOWN,
    NUMBERS,
    PROCESS_OPTIONS,
    REQUESTS,
    SOCKET_OPTIONS,
)

NAMESPACES, LANDLOCK = "namespaces", "landlock"
PROFILES = (NAMESPACES, LANDLOCK)
WITHOUT_TIMERS = {"GHCRTS": "-V0"}
"""Variables that tell programs to do without what the filter answers for: the run-time system of Haskell takes its
clock from a timerfd and ends when there is none (pandoc)."""
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

_AND = 0x54
_LOAD, _IF_EQUAL, _IF_NOT_LESS, _IF_MORE, _IF_BITS, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_PASS, _ANSWER = 0x7FFF0000, 0x00050000
_REFUSE = _ANSWER | errno.EPERM
_UNKNOWN = _ANSWER | errno.ENOSYS
_UNSUPPORTED = _ANSWER | errno.EOPNOTSUPP  # as on a file system without it, which every program expects
_PROTOCOL = _ANSWER | errno.EPROTONOSUPPORT
_PRETEND = _ANSWER  # errno 0: the caller is told that it worked
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# In struct seccomp_data; the low half of an argument comes first on both (little-endian) architectures.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
# A thread with open files of its own hides them: /proc shows those of the process' first thread (row 176).
_CLONE_FILES, _CLONE_THREAD, _CLOSE_RANGE_UNSHARE = 0x400, 0x10000, 0x2

# Programs take these for a kernel that was built without them, and do the work another way (rows 75, 79, 122).
_ABSENT = (
    "clone3 io_setup io_submit io_destroy io_getevents io_cancel io_pgetevents shmget shmat shmctl shmdt semget semop "
    "semtimedop semctl msgget msgsnd msgrcv msgctl "
    # Each rule of it is memory of the kernel that nobody counts without a control group (row 122).
    "landlock_create_ruleset landlock_add_rule landlock_restrict_self "
    # When a timer expires, its interrupt wakes all who watch, of which a script can have a million (row 352).
    "timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4 "
    # Instances are counted for the agent's user (row 76); a run watches the host's folders that it sees, and whoever
    # opens a file there works for it, and waits for room in its control group (row 351).
    "inotify_init inotify_init1 inotify_add_watch "
    # Queues are counted for the user who made the sandbox's namespace, whose are all runs (row 396), and without an IPC
    # namespace they are shared with the host, and outlive the run (rows 7, 61).
    "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr"
)

# Landlock does not cover them, and they work on any file of the same user. The forms that take a descriptor are among
# them: one opened for reading is enough for fchmod.
_METADATA = (
    "chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes futimesat utimensat setxattr lsetxattr "
    "fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr"
)

# Nor does it cover reading these by path. Through a descriptor they are those of a file that may be read.
_ATTRIBUTES = "getxattr lgetxattr getxattrat listxattr llistxattr listxattrat"

# Memory of the kernel that only a control group counts (row 174): an attribute of a file in memory is as large as its
# caller likes, and there may be any number. An access list is counted by nobody, and each new folder gets a copy of the
# one above it (row 245). Programs take the answer for that of a file system without attributes.
_SET_ATTRIBUTES = "setxattr lsetxattr fsetxattr setxattrat"

# One byte of a file that is in a pipe or socket keeps the page it is in, of up to 2 MiB where the file system has such
# large ones, also when the file is gone, and nobody counts that (row 249): with namespaces, those of the host's files
# that a run sees (row 275). Programs then read and write.
_BY_REFERENCE = "splice tee vmsplice sendfile"

# What ordinary scripts do without; every call left out is kernel code that nobody reaches.
_SELDOM = (
    "seccomp mlock mlock2 mlockall pkey_alloc pkey_free pkey_mprotect pidfd_open pidfd_send_signal sync syncfs mknod "
    "mknodat splice tee map_shadow_stack mseal execveat"
)

# Who holds a lock of the kernel and gets no processor time keeps everybody waiting who needs it (row 310). Programs ask
# to be nice, and go on as they are. Who takes from itself the processor it is on is moved to another by a thread of the
# kernel that goes before everybody and that no limit counts: 60 processes had 44 % of two processors so (row 391).
# Programs ask to stay on one, and go on where they are put.
_PRIORITIES = "sched_setattr sched_setparam sched_setscheduler sched_setaffinity setpriority ioprio_set"

# Stream and sequenced packets: such a pair stays what it is. With datagrams, and "raw" is another word for them, each
# end can be connected anew and send to any socket there is a path or an abstract name of.
_SOCKET_KIND, _LASTING_PAIRS = 0xF, (1, 5)

# Others can make the kernel load a module: MPTCP, UDPLITE, SCTP, DCCP, L2TP (row 85). By address family: the kinds, and
# for each the protocols.
_STREAM, _DATAGRAM, _RAW, _SEQUENCED = 1, 2, 3, 5
_INTERNET = {_STREAM: (0, 6), _DATAGRAM: (0, 17, 1, 58)}
_PROTOCOLS: Mapping[int, Mapping[int, tuple[int, ...]]] = {
    AF_UNIX: {_STREAM: (0, 1), _DATAGRAM: (0, 1), _SEQUENCED: (0, 1)},
    AF_INET: _INTERNET,
    AF_INET6: _INTERNET,
    AF_NETLINK: {_DATAGRAM: (0, 9), _RAW: (0, 9)},
}
# Each membership in a group of IP is looked for in a list of all when it ends, with a lock of the machine: a run with
# 200,000 of them in its empty network was there for ten seconds after it was killed (row 219). Who joins or leaves one
# has the lock of all networks while its argument is read (row 310). So no device is in groups. By level:
_GROUPS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (0, (35, 36, 39, 40, 42, 45, 46, 47)),
    (41, (20, 21, 42, 45, 46, 47)),
)
_NO_DEVICE = _ANSWER | errno.ENODEV
# A datagram to all (127.255.255.255, 224.0.0.1) is given to each socket of its port in one go, cut into 128 for each,
# and wakes all who wait for any of them: one call took a processor from everybody for 35 s (row 390). Without these
# options a port has one socket. A server asks for the port of connections that have just ended, and goes on.
_SOL_SOCKET, _SO_REUSEADDR, _SO_REUSEPORT = 1, 2, 15
# The last close of a connection waits as long as this option says, and the kernel's one worker that closes what nobody
# has open (a cycle of sockets with each other in their queues) waits, too: all that runs leave in such cycles stays,
# when they are over, for as long as a script has said (row 417).
_SO_LINGER = 13

# Filters of a run's own are programs, too: they take the same memory, and the kernel removes freed ones by a queue on
# which a few thousand at once block each other, and with them every new sandbox, for ever (row 117).
_SET_FILTER, _PR_SET_SECCOMP, _MODE_FILTER = 1, 22, 2
_WITHOUT_FILTERS = _ANSWER | errno.EINVAL
# One call with MADV_GUARD_INSTALL (102, Linux 6.13) fills page tables for all that it names, and no signal ends it: the
# machine has no memory left in seconds (row 221). MADV_COLLAPSE (25) and all that is newer is refused with it.
_LAST_ADVICE = 24
# What is swapped out is no resident memory, and the machine's swap is everybody's (row 251).
_MADV_PAGEOUT = 21
# A page fault waits for a hole that is punched into its file, and whoever waits in the middle of a call holds other
# locks, of folders of the host for example (row 295). Programs take a file without holes where they are unsupported.
_MADV_REMOVE, _KEEP_SIZE = 9, 1
# The same where the page has to come from the disk again, of a file whose pages a run put out of memory (row 397).
_FADV_DONTNEED = 4
# The limit of a process' own memory (RLIMIT_DATA) does not hold for what is mapped as a stack (row 222).
_MAP_GROWSDOWN = 0x100
# Large pages come from one pool of the machine, which no limit of a run counts (row 120).
_MAP_HUGETLB, _MFD_HUGETLB = 0x40000, 0x4
# Bits that no kernel knows. Chromium asks with all at once and ends unless the answer is "invalid".
_MFD_UNKNOWN = 0x03FFFFE0
_POOL_IS_EMPTY = _ANSWER | errno.ENOMEM

_NO_REQUEST = _ANSWER | errno.ENOTTY  # as what has no such request answers
_NO_OPTION = _ANSWER | errno.ENOPROTOOPT
_INVALID = _ANSWER | errno.EINVAL
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
# Where crashes are collected (a core_pattern with a pipe), each starts a program of root outside of the sandbox, unless
# the limit is 1 (row 178). So it stays what it was set to before.
_RLIMIT_CORE = 4
# Only asks, or the default: what a C library or a debugger's check does.
_PERSONALITIES = (0x0, 0xFFFFFFFF)


def supports(arch: str) -> bool:
    """Whether there is a table for this architecture (``platform.machine()``)."""
    return arch in NUMBERS


@functools.lru_cache(maxsize=64)
def program(
    arch: str,
    profile: str,
    *,
    sockets: tuple[int, ...] | None = None,
    allow_unix_socketpair: bool = True,
    pretend_metadata: bool | None = None,
    guarded: tuple[int, ...] | None = None,
    refuse_truncate: bool = False,
    strict: bool = False,
) -> bytes:
    """The filter, as the array of ``struct sock_filter`` the kernel and bubblewrap's ``--seccomp`` take.

    Args:
        arch: ``x86_64`` or ``aarch64``.
        profile: ``namespaces`` for a run with namespaces of its own, ``landlock`` without them.
        sockets: Address families ``socket()`` may use; None takes UNIX, INET and INET6 with namespaces, none without.
        allow_unix_socketpair: Permit connected pairs (asyncio and multiprocessing need them); where ``socket()`` may
            not make UNIX sockets only those that reach nothing outside, which datagrams would.
        pretend_metadata: Answer changes of mode, owner, times and attributes of files with success and do nothing;
            None does so without namespaces. Needed where the run has the user id of files it must not change.
        guarded: Process ids the run must not signal, nor everything at once; for kernels whose Landlock has no signal
            scope (before ABI 6). None checks no signals.
        refuse_truncate: Refuse ``truncate()``, which Landlock covers only from ABI 3.
        strict: Refuse what few scripts need, too: filters of its own, locked memory, descriptors of
            processes.
    """
    if arch not in NUMBERS:
        raise ValueError(f"No system call numbers are known for {arch!r}; known: {', '.join(NUMBERS)}.")
    if profile not in PROFILES:
        raise ValueError(f"There is no filter profile {profile!r}; known: {', '.join(PROFILES)}.")
    alone = profile == NAMESPACES
    families = ((AF_UNIX, AF_INET, AF_INET6) if alone else ()) if sockets is None else sockets
    pretend = not alone if pretend_metadata is None else pretend_metadata
    build = _Program(arch)
    build.answer(_ABSENT.split(), _UNKNOWN)  # without clone3 glibc uses clone, whose flags a filter can see
    build.unless_argument("personality", 0, _PERSONALITIES)
    build.if_bits("clone", 0, _NEW_NAMESPACES)
    build.if_argument("clone", 0, (_CLONE_THREAD,), mask=_CLONE_THREAD | _CLONE_FILES)
    build.if_bits("close_range", 2, _CLOSE_RANGE_UNSHARE, _INVALID)
    requests = [*REQUESTS.values(), *(INTERFACE_REQUESTS.values() if alone or families else ())]
    build.unless_argument("ioctl", 1, requests, result=_NO_REQUEST)
    build.unless_argument("fcntl", 1, COMMANDS.values(), result=_INVALID)
    build.unless_argument("prctl", 0, PROCESS_OPTIONS.values(), result=_INVALID)
    build.sockets(families)
    for level, options in _GROUPS:
        build.if_both("setsockopt", (1, level), (2, options), _NO_DEVICE)
    build.if_both("setsockopt", (1, _SOL_SOCKET), (2, (_SO_REUSEADDR, _SO_REUSEPORT, _SO_LINGER)), _PRETEND)
    for name in ("setsockopt", "getsockopt"):
        build.unless_both(name, 1, 2, SOCKET_OPTIONS, _NO_OPTION)
    build.if_argument("seccomp", 0, (_SET_FILTER,), _WITHOUT_FILTERS)
    build.if_both("prctl", (0, _PR_SET_SECCOMP), (1, (_MODE_FILTER,)), _WITHOUT_FILTERS)
    build.if_more("madvise", 2, _LAST_ADVICE, _INVALID)
    build.if_argument("madvise", 2, (_MADV_PAGEOUT, _MADV_REMOVE), _INVALID)
    build.if_argument("fadvise64", 3, (_FADV_DONTNEED,), _PRETEND)
    build.if_bits("fallocate", 1, 0xFFFFFFFF ^ _KEEP_SIZE, _UNSUPPORTED)
    build.if_bits("mmap", 3, _MAP_GROWSDOWN, _INVALID)
    build.if_bits("mmap", 3, _MAP_HUGETLB, _POOL_IS_EMPTY)
    build.if_bits("memfd_create", 1, _MFD_UNKNOWN, _INVALID)
    build.if_bits("memfd_create", 1, _MFD_HUGETLB, _POOL_IS_EMPTY)
    build.unless_argument("socketpair", 0, (AF_UNIX,) if allow_unix_socketpair else ())
    if not families:  # pairs have no use for these, and could take the names of sockets of the whole machine (row 312)
        build.answer(["bind", "listen"], _REFUSE)
    if AF_UNIX not in families:
        build.unless_argument("socketpair", 1, _LASTING_PAIRS, mask=_SOCKET_KIND)
    build.unless_argument("prlimit64", 0, (0,))
    build.if_argument("setrlimit", 0, (_RLIMIT_CORE,), _PRETEND)
    build.if_given("prlimit64", (1, _RLIMIT_CORE), 2, _PRETEND)
    build.answer(_BY_REFERENCE.split(), _INVALID)
    if not alone:
        build.answer(_ATTRIBUTES.split(), _UNSUPPORTED)
        # The workspace is on the host's disk, and nothing counts before the watchdog looks (row 80). The C library's
        # posix_fallocate() then writes.
        build.answer(["fallocate"], _UNSUPPORTED)
    if strict:
        build.answer(_SELDOM.split(), _REFUSE)
    build.answer(_PRIORITIES.split(), _PRETEND)
    if pretend:
        build.answer(_METADATA.split(), _PRETEND)
    else:
        build.answer(_SET_ATTRIBUTES.split(), _UNSUPPORTED)
    if refuse_truncate:
        build.answer(["truncate"], _REFUSE)
    if guarded is not None:
        _guard_signals(build, guarded)
    return build.finish()


def _guard_signals(build: _Program, guarded: Iterable[int]) -> None:
    # As the kernel reads the argument: a process id, or a group by its negative, or -1 for all.
    targets = [value & 0xFFFFFFFF for pid in guarded for value in (pid, -pid)]
    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        build.if_argument(name, 0, (0xFFFFFFFF, *targets))
    build.if_argument("tgkill", 1, targets)
    build.answer(["pidfd_send_signal"], _REFUSE)
    # A descriptor's owner gets a signal when there is something to read.
    build.if_argument("fcntl", 1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX))


class _Program:
    """The program as it grows. Each rule starts and ends with the call's number in the accumulator."""

    def __init__(self, arch: str) -> None:
        self._numbers = NUMBERS[arch]
        self._code: list[bytes] = []
        self._put(_LOAD, _ARCH)
        self._put(_IF_EQUAL, _AUDIT_ARCH[arch], skip_true=1)
        self._put(_RETURN, _UNKNOWN)
        self._put(_LOAD, _NUMBER)
        if arch == "x86_64":
            self._put(_IF_NOT_LESS, _X32_BIT, skip_false=1)
            self._put(_RETURN, _UNKNOWN)
        self._put(_IF_MORE, LAST_KNOWN, skip_false=1)
        self._put(_RETURN, _UNKNOWN)

    def answer(self, names: Iterable[str], result: int) -> None:
        """Answer these calls with ``result``."""
        for name in names:
            if name in self._numbers:  # aarch64 never had some of them
                self._put(_IF_EQUAL, self._numbers[name], skip_false=1)
                self._put(_RETURN, result)

    def if_argument(
        self, name: str, position: int, values: Iterable[int], result: int = _REFUSE, mask: int | None = None
    ) -> None:
        """Answer the call with ``result`` when this argument, or what of it is in ``mask``, is one of ``values``."""
        listed = tuple(values)
        if not listed:
            return
        tests = [(_IF_EQUAL, value, len(listed) - 1 - at, 0) for at, value in enumerate(listed)]
        # The last test skips the refusal when it fails too.
        tests[-1] = (_IF_EQUAL, listed[-1], 0, 1)
        masked = [] if mask is None else [(_AND, mask, 0, 0)]
        self._with_argument(name, position, [*masked, *tests, (_RETURN, result, 0, 0)])

    def unless_argument(
        self, name: str, position: int, values: Iterable[int], result: int = _REFUSE, mask: int | None = None
    ) -> None:
        """Answer the call with ``result`` unless this argument, or what of it is in ``mask``, is one of ``values``."""
        listed = tuple(values)
        if not listed:
            self.answer([name], result)
            return
        masked = [] if mask is None else [(_AND, mask, 0, 0)]
        self._with_argument(name, position, [*masked, *_among(listed, 1), (_RETURN, result, 0, 0)])

    def if_bits(self, name: str, position: int, bits: int, result: int = _REFUSE) -> None:
        """Answer the call with ``result`` when this argument has one of ``bits`` set."""
        self._with_argument(name, position, [(_IF_BITS, bits, 0, 1), (_RETURN, result, 0, 0)])

    def if_more(self, name: str, position: int, most: int, result: int) -> None:
        """Answer the call with ``result`` when this argument, a number of 32 bits, is higher than ``most``."""
        self._with_argument(name, position, [(_IF_MORE, most, 0, 1), (_RETURN, result, 0, 0)])

    def if_both(
        self, name: str, first: tuple[int, int], second: tuple[int, tuple[int, ...]], result: int = _REFUSE
    ) -> None:
        """Answer the call so when two arguments each have one of some values: each a position and what it holds."""
        values = second[1]
        tests = [(_IF_EQUAL, value, len(values) - 1 - at, 0) for at, value in enumerate(values)]
        tests[-1] = (_IF_EQUAL, values[-1], 0, 1)
        rest = [(_LOAD, _ARGUMENTS + 8 * second[0], 0, 0), *tests, (_RETURN, result, 0, 0)]
        self._with_argument(name, first[0], [(_IF_EQUAL, first[1], 0, len(rest)), *rest])

    def unless_both(
        self, name: str, first: int, second: int, values: Mapping[int, Mapping[str, int]], result: int
    ) -> None:
        """Answer the call with ``result`` unless two arguments, by their positions, are a key and one of its values."""
        rule: list[tuple[int, int, int, int]] = []
        for key in reversed(tuple(values)):
            # What is listed goes on behind the rule, whose last instruction answers all that is not.
            tests = _among(values[key].values(), len(rule) + 2)
            block = [(_LOAD, _ARGUMENTS + 8 * second, 0, 0), *tests, (_RETURN, result, 0, 0)]
            rule = [(_IF_EQUAL, key, 0, len(block)), *block, *rule]
        self._with_argument(name, first, [*rule, (_RETURN, result, 0, 0)])

    def if_given(self, name: str, first: tuple[int, int], pointer: int, result: int) -> None:
        """Answer the call with ``result`` when one argument, a position and what it holds, is so and another is not
        null.
        """
        low = _ARGUMENTS + 8 * pointer
        rest = [
            (_LOAD, low, 0, 0),
            (_IF_EQUAL, 0, 0, 2),
            (_LOAD, low + 4, 0, 0),
            (_IF_EQUAL, 0, 1, 0),
            (_RETURN, result, 0, 0),
        ]
        self._with_argument(name, first[0], [(_IF_EQUAL, first[1], 0, len(rest)), *rest])

    def sockets(self, families: Iterable[int]) -> None:
        """Refuse ``socket()`` but of these address families, with the kinds and protocols they are used with."""
        rule: list[tuple[int, int, int, int]] = []
        for family in families:
            kinds = []
            for kind, protocols in _PROTOCOLS[family].items():
                tests = [(_IF_EQUAL, protocol, len(protocols) - at, 0) for at, protocol in enumerate(protocols)]
                one = [(_LOAD, _ARGUMENTS + 16, 0, 0), *tests, (_RETURN, _PROTOCOL, 0, 0), (_RETURN, _PASS, 0, 0)]
                kinds += [(_IF_EQUAL, kind, 0, len(one)), *one]
            of_family = [(_LOAD, _ARGUMENTS + 8, 0, 0), (_AND, _SOCKET_KIND, 0, 0), *kinds, (_RETURN, _REFUSE, 0, 0)]
            rule += [(_IF_EQUAL, family, 0, len(of_family)), *of_family]
        # ZeroMQ (Jupyter) asks which interfaces there are, and ends unless the answer is one of a few errors.
        rule += [(_IF_EQUAL, AF_NETLINK, 0, 1), (_RETURN, _UNSUPPORTED, 0, 0)]
        self._with_argument("socket", 0, [*rule, (_RETURN, _REFUSE, 0, 0)])

    def finish(self) -> bytes:
        """The whole program; what no rule answered passes when it is on the list, and is unknown without a name."""
        unnamed = set(range(LAST_KNOWN)).difference(self._numbers.values())
        for numbers, result in (
            ({self._numbers[name] for name in ALLOWED if name in self._numbers}, _PASS),
            (unnamed, _UNKNOWN),
        ):
            for first, last in _ranges(numbers):
                self._put(_IF_NOT_LESS, first, skip_false=2)
                self._put(_IF_MORE, last, skip_true=1)
                self._put(_RETURN, result)
        self._put(_RETURN, _REFUSE)
        return b"".join(self._code)

    def _with_argument(self, name: str, position: int, rule: list[tuple[int, int, int, int]]) -> None:
        if name not in self._numbers:
            return
        self._put(_IF_EQUAL, self._numbers[name], skip_false=len(rule) + 2)
        self._put(_LOAD, _ARGUMENTS + 8 * position)
        for code, value, skip_true, skip_false in rule:
            self._put(code, value, skip_true, skip_false)
        self._put(_LOAD, _NUMBER)

    def _put(self, code: int, value: int, skip_true: int = 0, skip_false: int = 0) -> None:
        self._code.append(struct.pack("=HBBI", code, skip_true, skip_false, value & 0xFFFFFFFF))


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each row of numbers without a gap."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _among(values: Iterable[int], skip: int) -> list[tuple[int, int, int, int]]:
    """Tests that skip so many instructions behind them when the accumulator holds one of these values."""
    tests: list[tuple[int, int, int, int]] = []
    for first, last in reversed(_ranges(values)):
        if first == last:
            tests = [(_IF_EQUAL, first, skip + len(tests), 0), *tests]
        else:
            tests = [(_IF_NOT_LESS, first, 0, 1), (_IF_MORE, last, 0, skip + len(tests)), *tests]
    return tests


# What no filter can see.

STARTS_MODPROBE = (
    "syscalls: when a script executes a file that is not a program, this kernel runs modprobe as root, outside of "
    "every limit. A kernel from 6.14 on does not, nor does one with kernel.modprobe set to nothing or with "
    "kernel.modules_disabled=1."
)
_FIRST_WITHOUT = (6, 14)


@functools.cache
def kernel_sentences(release: str | None = None, settings: str = "/proc/sys/kernel") -> tuple[str, ...]:
    """What the filter of system calls cannot see on an older kernel, for ``Enforcement.degraded`` (row 370)."""
    number = re.match(r"(\d+)\.(\d+)", os.uname().release if release is None else release)
    if sys.platform != "linux" or number is None or (int(number[1]), int(number[2])) >= _FIRST_WITHOUT:
        return ()
    try:
        with open(f"{settings}/modprobe") as program, open(f"{settings}/modules_disabled") as disabled:
            starts = bool(program.read().strip()) and disabled.read().strip() == "0"
    except OSError:  # a kernel without modules, or one that does not tell
        starts = not os.path.isdir(settings)  # noqa: PTH112
    return (STARTS_MODPROBE,) if starts else ()
