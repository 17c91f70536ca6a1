"""The system call filter of a run, as a classic BPF program in bytes; nothing is installed or imported here.

It is a deny list, so that ordinary programs keep working: what lets a process out of its sandbox, into another
process, or at rarely used kernel code is refused, everything else passes (attack rows 17, 25, 26, 56 to 63). A call
newer than the filter is answered with ENOSYS, as an older kernel would. Attack row 62: another architecture's calls
(i386, x32) kill the process, because their numbers mean something else.
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType

NAMESPACES, LANDLOCK = "namespaces", "landlock"
PROFILES = (NAMESPACES, LANDLOCK)
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

_AND = 0x54
_LOAD, _IF_EQUAL, _IF_NOT_LESS, _IF_MORE, _IF_BITS, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_PASS, _KILL, _ANSWER = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSE = _ANSWER | errno.EPERM
_UNKNOWN = _ANSWER | errno.ENOSYS
_UNSUPPORTED = _ANSWER | errno.EOPNOTSUPP  # as on a file system without it, which every program expects
_PRETEND = _ANSWER  # errno 0: the caller is told that it worked
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# In struct seccomp_data; the low half of an argument comes first on both (little-endian) architectures.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET

_ALWAYS = (
    "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd "
    "mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr "
    "setns unshare open_by_handle_at name_to_handle_at add_key request_key keyctl bpf userfaultfd perf_event_open "
    "io_uring_setup io_uring_enter io_uring_register fanotify_init memfd_secret swapon swapoff reboot sethostname "
    "setdomainname init_module finit_module delete_module kexec_load kexec_file_load acct syslog quotactl quotactl_fd "
    "lookup_dcookie iopl ioperm settimeofday clock_settime clock_adjtime adjtimex vhangup nfsservctl uselib ustat "
    "sysfs _sysctl modify_ldt mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node"
)

# Without an IPC namespace these objects are shared with the host, and outlive the run (rows 7, 61). Watching files
# for changes is not a matter of Landlock.
_SHARED_WITH_HOST = (
    "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink inotify_add_watch"
)

# Landlock does not cover them, and they work on any file of the same user. The forms that take a descriptor are among
# them: one opened for reading is enough for fchmod.
_METADATA = (
    "chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes futimesat utimensat setxattr lsetxattr "
    "fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr"
)

# Nor does it cover reading these by path. Through a descriptor they are those of a file that may be read.
_ATTRIBUTES = "getxattr lgetxattr getxattrat listxattr llistxattr listxattrat"

# The process itself is 0; another process may be the agent's, or process 1 of the sandbox, which has the same user id.
_OTHERS = ("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")

# Stream and sequenced packets: such a pair stays what it is. With datagrams, and "raw" is another word for them, each
# end can be connected anew and send to any socket there is a path or an abstract name of.
_SOCKET_KIND, _LASTING_PAIRS = 0xF, (1, 5)

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# Also file attributes, changed through a descriptor opened for reading: SETFLAGS in both sizes, FSSETXATTR,
# ENABLE_VERITY, SETVERSION.
_FILE_ATTRIBUTES = (0x40086602, 0x40046602, 0x401C5820, 0x40806685, 0x40087602)
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE = 8, 10, 15, 1024
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
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
    system_v_memory: bool = True,
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
        system_v_memory: Permit ``shmget()`` with namespaces. Such a segment belongs to no process, so that only a
            cgroup can count it.

    Raises:
        ValueError: There is no table for ``arch``, or no such profile.
    """
    if arch not in NUMBERS:
        raise ValueError(f"No system call numbers are known for {arch!r}; known: {', '.join(NUMBERS)}.")
    if profile not in PROFILES:
        raise ValueError(f"There is no filter profile {profile!r}; known: {', '.join(PROFILES)}.")
    alone = profile == NAMESPACES
    families = ((AF_UNIX, AF_INET, AF_INET6) if alone else ()) if sockets is None else sockets
    pretend = not alone if pretend_metadata is None else pretend_metadata
    build = _Program(arch)
    build.answer(_ALWAYS.split(), _REFUSE)
    build.answer(["clone3"], _UNKNOWN)  # glibc then uses clone, whose flags a filter can see
    build.unless_argument("personality", 0, _PERSONALITIES)
    build.if_bits("clone", 0, _NEW_NAMESPACES)
    build.if_argument("ioctl", 1, (_TIOCSTI, _TIOCLINUX, *(() if alone else _FILE_ATTRIBUTES)))
    build.unless_argument("socket", 0, families)
    build.unless_argument("socketpair", 0, (AF_UNIX,) if allow_unix_socketpair else ())
    if AF_UNIX not in families:
        build.unless_argument("socketpair", 1, _LASTING_PAIRS, mask=_SOCKET_KIND)
    build.unless_argument("prlimit64", 0, (0,))
    for name in _OTHERS:
        _spare_others(build, name, 0, alone=alone)
    for name in ("setpriority", "ioprio_set"):
        _spare_others(build, name, 1, alone=alone)
        # 2 and 3 are "all processes of the user" here and there; ioprio counts from 1.
        build.if_argument(name, 0, (2,) if name == "setpriority" else (3,))
    if not alone:
        build.answer(_SHARED_WITH_HOST.split(), _REFUSE)
        build.if_argument("fcntl", 1, (_F_SETLEASE,))
        build.answer(_ATTRIBUTES.split(), _UNSUPPORTED)
    elif not system_v_memory:
        build.answer(["shmget"], _UNKNOWN)
    if pretend:
        build.answer(_METADATA.split(), _PRETEND)
    if refuse_truncate:
        build.answer(["truncate"], _REFUSE)
    if guarded is not None:
        _guard_signals(build, guarded)
    return build.finish()


def _spare_others(build: _Program, name: str, position: int, *, alone: bool) -> None:
    if alone:  # its other processes, and the threads that libraries pin to a processor, are its own
        build.if_argument(name, position, (1,))
    else:
        build.unless_argument(name, position, (0,))


def _guard_signals(build: _Program, guarded: Iterable[int]) -> None:
    # As the kernel reads the argument: a process id, or a group by its negative, or -1 for all.
    targets = [value & 0xFFFFFFFF for pid in guarded for value in (pid, -pid)]
    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        build.if_argument(name, 0, (0xFFFFFFFF, *targets))
    build.if_argument("tgkill", 1, targets)
    build.answer(["pidfd_send_signal"], _REFUSE)
    # A descriptor's owner gets a signal when there is something to read.
    build.if_argument("fcntl", 1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX))
    build.if_argument("ioctl", 1, (_FIOSETOWN, _SIOCSPGRP))


class _Program:
    """The program as it grows. Each rule starts and ends with the call's number in the accumulator."""

    def __init__(self, arch: str) -> None:
        self._numbers = NUMBERS[arch]
        self._code: list[bytes] = []
        self._put(_LOAD, _ARCH)
        self._put(_IF_EQUAL, _AUDIT_ARCH[arch], skip_true=1)
        self._put(_RETURN, _KILL)
        self._put(_LOAD, _NUMBER)
        if arch == "x86_64":
            self._put(_IF_NOT_LESS, _X32_BIT, skip_false=1)
            self._put(_RETURN, _KILL)
        self._put(_IF_MORE, LAST_KNOWN, skip_false=1)
        self._put(_RETURN, _UNKNOWN)

    def answer(self, names: Iterable[str], result: int) -> None:
        """Answer these calls with ``result``."""
        for name in names:
            if name in self._numbers:  # aarch64 never had some of them
                self._put(_IF_EQUAL, self._numbers[name], skip_false=1)
                self._put(_RETURN, result)

    def if_argument(self, name: str, position: int, values: Iterable[int]) -> None:
        """Refuse the call when this argument is one of ``values``."""
        listed = tuple(values)
        if not listed:
            return
        tests = [(_IF_EQUAL, value, len(listed) - 1 - at, 0) for at, value in enumerate(listed)]
        # The last test skips the refusal when it fails too.
        tests[-1] = (_IF_EQUAL, listed[-1], 0, 1)
        self._with_argument(name, position, [*tests, (_RETURN, _REFUSE, 0, 0)])

    def unless_argument(self, name: str, position: int, values: Iterable[int], mask: int | None = None) -> None:
        """Refuse the call unless this argument, or what of it is in ``mask``, is one of ``values``."""
        listed = tuple(values)
        if not listed:
            self.answer([name], _REFUSE)
            return
        tests = [(_IF_EQUAL, value, len(listed) - at, 0) for at, value in enumerate(listed)]
        masked = [] if mask is None else [(_AND, mask, 0, 0)]
        self._with_argument(name, position, [*masked, *tests, (_RETURN, _REFUSE, 0, 0)])

    def if_bits(self, name: str, position: int, bits: int) -> None:
        """Refuse the call when this argument has one of ``bits`` set."""
        self._with_argument(name, position, [(_IF_BITS, bits, 0, 1), (_RETURN, _REFUSE, 0, 0)])

    def finish(self) -> bytes:
        """The whole program; what no rule refused passes."""
        self._put(_RETURN, _PASS)
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


# System call numbers of the two architectures the local sandbox knows, for what its filter names.
#
# A name that an architecture does not have is left out (aarch64 has only the ``*at`` forms of the old calls). From
# Linux: ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h``.

LAST_KNOWN = 469
"""Numbers above this are calls newer than the filter (Linux 6.17); the same on both architectures."""

# Since Linux 5.1 new calls have the same number everywhere.
_COMMON = """
    pidfd_send_signal 424, io_uring_setup 425, io_uring_enter 426, io_uring_register 427, open_tree 428,
    move_mount 429, fsopen 430, fsconfig 431, fsmount 432, fspick 433, clone3 435, pidfd_getfd 438,
    process_madvise 440, mount_setattr 442, quotactl_fd 443, memfd_secret 447, process_mrelease 448,
    set_mempolicy_home_node 450, fchmodat2 452, setxattrat 463, getxattrat 464, listxattrat 465, removexattrat 466,
    open_tree_attr 467, file_setattr 469
"""

_X86_64 = """
    ioctl 16, shmget 29, shmat 30, shmctl 31, socket 41, socketpair 53, clone 56, kill 62, semget 64, semop 65,
    semctl 66, msgget 68, msgsnd 69, msgrcv 70, msgctl 71, fcntl 72, truncate 76, chmod 90, fchmod 91, chown 92,
    fchown 93, lchown 94, ptrace 101, syslog 103, rt_sigqueueinfo 129, utime 132, uselib 134, personality 135,
    ustat 136, sysfs 139, setpriority 141, sched_setparam 142, sched_setscheduler 144, vhangup 153, modify_ldt 154,
    pivot_root 155, _sysctl 156, adjtimex 159, chroot 161, acct 163, settimeofday 164, mount 165, umount2 166,
    swapon 167, swapoff 168, reboot 169, sethostname 170, setdomainname 171, iopl 172, ioperm 173, init_module 175,
    delete_module 176, quotactl 179, nfsservctl 180, setxattr 188, lsetxattr 189, fsetxattr 190, getxattr 191,
    lgetxattr 192, listxattr 194, llistxattr 195, removexattr 197, lremovexattr 198, fremovexattr 199, tkill 200,
    sched_setaffinity 203, lookup_dcookie 212, semtimedop 220, clock_settime 227, tgkill 234, utimes 235, mbind 237,
    set_mempolicy 238, mq_open 240, mq_unlink 241, kexec_load 246, add_key 248, request_key 249, keyctl 250,
    ioprio_set 251, inotify_add_watch 254, migrate_pages 256, fchownat 260, futimesat 261, fchmodat 268, unshare 272,
    move_pages 279, utimensat 280, rt_tgsigqueueinfo 297, perf_event_open 298, fanotify_init 300, prlimit64 302,
    name_to_handle_at 303, open_by_handle_at 304, clock_adjtime 305, setns 308, process_vm_readv 310,
    process_vm_writev 311, kcmp 312, finit_module 313, sched_setattr 314, kexec_file_load 320, bpf 321,
    userfaultfd 323
"""

_AARCH64 = """
    setxattr 5, lsetxattr 6, fsetxattr 7, getxattr 8, lgetxattr 9, listxattr 11, llistxattr 12, removexattr 14,
    lremovexattr 15, fremovexattr 16, lookup_dcookie 18, fcntl 25, inotify_add_watch 27, ioctl 29, ioprio_set 30,
    umount2 39, mount 40, pivot_root 41, nfsservctl 42, truncate 45, chroot 51, fchmod 52, fchmodat 53, fchownat 54,
    fchown 55, vhangup 58, quotactl 60, utimensat 88, acct 89, personality 92, unshare 97, kexec_load 104,
    init_module 105, delete_module 106, clock_settime 112, syslog 116, ptrace 117, sched_setparam 118,
    sched_setscheduler 119, sched_setaffinity 122, kill 129, tkill 130, tgkill 131, rt_sigqueueinfo 138,
    setpriority 140, reboot 142, sethostname 161, setdomainname 162, settimeofday 170, adjtimex 171, mq_open 180,
    mq_unlink 181, msgget 186, msgctl 187, msgrcv 188, msgsnd 189, semget 190, semctl 191, semtimedop 192, semop 193,
    shmget 194, shmctl 195, shmat 196, socket 198, socketpair 199, add_key 217, request_key 218, keyctl 219,
    clone 220, swapon 224, swapoff 225, mbind 235, set_mempolicy 237, migrate_pages 238, move_pages 239,
    rt_tgsigqueueinfo 240, perf_event_open 241, prlimit64 261, fanotify_init 262, name_to_handle_at 264,
    open_by_handle_at 265, clock_adjtime 266, setns 268, process_vm_readv 270, process_vm_writev 271, kcmp 272,
    finit_module 273, sched_setattr 274, bpf 280, userfaultfd 282, kexec_file_load 294
"""


def _table(*texts: str) -> Mapping[str, int]:
    pairs = (pair.split() for text in texts for pair in text.split(","))
    return MappingProxyType({name: int(number) for name, number in pairs})


NUMBERS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"x86_64": _table(_X86_64, _COMMON), "aarch64": _table(_AARCH64, _COMMON)}
)
"""Architecture, as ``platform.machine()`` names it, to the numbers of the calls by name."""
