"""The program that makes sandboxes by forking, once it has been started; see :mod:`.zygote`.

It is not imported: the host compiles this file together with :mod:`.zygote_root` and the programs of ``init/`` whose
functions it uses, and hands all to an interpreter through a descriptor. It does what bubblewrap does for a run, but
neither a program nor an interpreter has to be loaded for it: each sandbox is a fork that goes into namespaces of its
own, puts its file system together, gives up all rights and installs the filter; then it is the init program, as in any
other sandbox. This process itself never runs, reads or receives anything of a script.

It is in a user namespace of its own, in which it may mount, and outside of which it has no rights but its user's. A
sandbox's process 1 is a child of the agent (``CLONE_PARENT``) and ends with it.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from adk_skills_agent.sandbox.local.init.payload import (
        _CAPABILITY_HEADER,
        _LAST_CAPABILITY,
        _PR_CAP_AMBIENT,
        _PR_CAP_AMBIENT_RAISE,
        _PR_CAPBSET_DROP,
        _PR_SET_DUMPABLE,
        _PR_SET_NO_NEW_PRIVS,
        _PR_SET_PDEATHSIG,
        _Library,
        _limit,
        _one_word,
    )
    from adk_skills_agent.sandbox.local.init.program import _warm_up, run_init
    from adk_skills_agent.sandbox.local.namespaces.zygote_root import (
        _MS_NO_DEVICES,
        _MS_NO_SUID,
        _MS_RECURSIVE,
        _exists,
        _new_root,
        _place,
        _tree,
    )
    from adk_skills_agent.sandbox.supervisor.script_end import QuickEnd

_HOST_FD = 0  # a socket that keeps messages apart
_MESSAGE_BYTES, _MOST_DESCRIPTORS, _ALL_DESCRIPTORS = 16, 32, 0xFFFFFFFF
_NOT_ROOT = 65534
_GIVEN = 4  # its standard input, output and error output, and what it is to be

_CLOSE_RANGE = 436  # the same on every architecture
_MS_SLAVE = 1 << 19
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x20000
# UTS, IPC and network: made while nobody waits, each for one sandbox.
_NEW_BEFORE = 0x04000000 | 0x08000000 | 0x40000000
# Cgroup, PID and mounts; and the new process is the agent's child (CLONE_PARENT).
_NEW_WITH_FORK = 0x02000000 | 0x20000000 | _NEW_MOUNTS | 0x8000
_SIOCSIFFLAGS, _UP = 0x8914, 0x1 | 0x40
_PR_SET_SECUREBITS, _NO_SETUID_FIXUP = 28, 4  # capabilities stay with another user id, until the next namespace


# ---- the first stage: a user namespace, and the interpreter where scripts find it


def begin(spec: "dict[str, Any]") -> None:
    """Become root of a new user namespace, with a mount namespace of its own; then the second stage."""
    library = _Library()
    uid, gid = posix.geteuid(), posix.getegid()
    library.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
    if spec["maker"] is not None:
        # Watches and signals of its sandboxes count for who makes this namespace, too: that is nobody else (row 293).
        library._functions["prctl"](_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
        _share_signals()
        posix.seteuid(spec["maker"])
    library.call("unshare", _NEW_USER | _NEW_MOUNTS)
    if spec["mapped_by_host"]:
        posix.write(_HOST_FD, b"map")
        if not posix.read(_HOST_FD, 8):
            posix._exit(0)
        posix.setresuid(uid, uid, uid)
        library.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)  # that has forgotten it
    else:
        _write("/proc/self/setgroups", "deny")
        # No user 0 is in it: the files of process 1 in /proc would be that user's, who is the script's (row 82).
        # Rights that a program of user 0 keeps, one of another user keeps when they are ambient.
        _write("/proc/self/uid_map", f"{_NOT_ROOT} {uid} 1")
        _write("/proc/self/gid_map", f"{_NOT_ROOT} {gid} 1")
        library.call("capset", _CAPABILITY_HEADER, bytes([255]) * 24)
        for capability in range(_LAST_CAPABILITY + 1):
            if library._functions["prctl"](_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0):
                break  # the last one the kernel has
    library.call("mount", None, b"/", None, _MS_RECURSIVE | _MS_SLAVE, None)
    if spec["moved"]:
        trees = [(target, _tree(library, source)) for source, target in spec["moved"]]
        library.call("mount", b"tmpfs", spec["moved_to"], b"tmpfs", _MS_NO_SUID | _MS_NO_DEVICES, b"mode=0755")
        for target, tree in trees:
            _place(library, tree, target)
    posix.set_inheritable(spec["program"], True)
    posix.execve(spec["line"][0], [*spec["line"], str(spec["program"])], spec["env"])


def _share_signals() -> None:
    """All sandboxes together may have any number of pending signals; each has a limit of its own (row 396)."""
    import resource

    endless = resource.RLIM_INFINITY
    try:
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (endless, endless))
    except (ValueError, OSError):  # an agent without CAP_SYS_RESOURCE
        pass


# ---- the second stage: one fork for each sandbox


def serve(spec: "dict[str, Any]") -> tuple:  # type: ignore[type-arg]
    """Make sandboxes until the agent is gone; returns only in a script's process, as ``run_init``."""
    import _ctypes
    import _socket

    if sys.path[:1] == [""]:
        del sys.path[0]
    library = _Library()
    library.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # a terminal's, for the agent
    null = posix.open("/dev/null", posix.O_WRONLY)
    for number in (1, 2):
        posix.dup2(null, number)
    posix.close(null)
    known = {entry for entry in sys.path if _exists(entry)}
    end = QuickEnd()
    _warm_up()
    if len(posix.listdir("/proc/self/task")) > 1:
        posix.write(_HOST_FD, b"failed a_module_of_site_started_a_thread 0")
        posix._exit(1)
    functions = _fork_functions(_ctypes)
    host = _socket.socket(fileno=posix.dup(_HOST_FD))
    _prepare_next(library)
    host.send(b"ready")
    space = _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS)
    while True:
        message, passed, _, _ = host.recvmsg(_MESSAGE_BYTES, space)
        if not message:
            posix._exit(0)
        numbers = passed[0][2]
        descriptors = [int.from_bytes(numbers[at : at + 4], sys.byteorder) for at in range(0, len(numbers), 4)]
        given, task_files = descriptors[:_GIVEN], descriptors[_GIVEN:]
        lost = False
        try:
            for task_file in task_files[: len(task_files) // 2]:
                posix.write(task_file, b"0")
            pid = _fork(functions, spec["clone"])
            if pid == 0:
                host.detach()  # or its end would close what has its number then
                return _become_init(library, spec, given, known, end)
            said = f"started {pid}"
        except OSError as error:
            said = f"failed {_one_word(error.strerror)} {error.errno}"
        for task_file in task_files[len(task_files) // 2 :]:
            try:
                posix.write(task_file, b"0")
            except OSError:
                lost = True  # in a group of another's
        for descriptor in descriptors:
            posix.close(descriptor)
        host.send(said.encode())
        if lost:
            posix._exit(1)
        _prepare_next(library)


def _fork(functions: "dict[str, Any]", clone: int) -> int:
    """As ``fork()``, into new namespaces and as the agent's child; 0 in that."""
    functions["PyOS_BeforeFork"]()
    pid: int = functions["syscall"](clone, _NEW_WITH_FORK | _signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        functions["PyOS_AfterFork_Child"]()
        return 0
    number = functions["errno"]()
    functions["PyOS_AfterFork_Parent"]()
    if pid < 0:
        raise OSError(number, "make namespaces")
    return pid


def _become_init(
    library: "_Library", spec: "dict[str, Any]", given: "list[int]", known: "set[str]", end: "QuickEnd"
) -> tuple:  # type: ignore[type-arg]
    """Make the rest of a sandbox, in its process 1; returns only in a script's process.

    Only here it is read what the sandbox is to be, so that nothing of it is in the memory of those that come later.
    """
    import marshal

    for number, descriptor in enumerate(given[:3]):
        posix.dup2(descriptor, number)  # from here on it is this sandbox's own socket that it talks through
    step = "begin"
    try:
        library.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
        job = marshal.loads(posix.pread(given[3], posix.fstat(given[3]).st_size, 0))  # noqa: S302  # the agent's
        library.call("syscall", _CLOSE_RANGE, 3, _ALL_DESCRIPTORS, 0)
        posix.setsid()
        settings = posix.open("/proc", posix.O_PATH | posix.O_CLOEXEC)
        step = "make its file system"
        _new_root(library, spec["pivot_root"], job["steps"], job["identities"])
        step = "give up its rights"
        _give_up_rights(library, job["uid"], job["inside"], settings)
        _limit(library, [job["cores"]])
        library.install_filter(job["filter"])
        step = "begin"
        sys.executable = job["python"]
        sys._xoptions.clear()
        if job["utf8"]:
            sys._xoptions["utf8"] = True
        sys.path[:] = [entry for entry in sys.path if entry not in known or _exists(entry)]
    except OSError as error:
        posix.write(_HOST_FD, f"failed {_one_word(step)}_({_one_word(error.strerror)}) {error.errno}\n".encode())
        posix._exit(1)
    except Exception as error:  # noqa: BLE001  # whatever it is, the host makes the sandbox in another way
        posix.write(_HOST_FD, f"failed {_one_word(step)}:{type(error).__name__} 0\n".encode())
        posix._exit(1)
    job.update(uid=None, library=library, end=end, holds_output=True)
    return run_init(job)


def _prepare_next(library: "_Library") -> None:
    """Go into namespaces nobody was in, for the next sandbox; without them there is none."""
    import _socket
    import fcntl

    library.call("unshare", _NEW_BEFORE)
    _socket.sethostname("sandbox")
    any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    request = b"lo".ljust(16, b"\0") + _UP.to_bytes(2, sys.byteorder) + bytes(22)
    fcntl.ioctl(any_socket.fileno(), _SIOCSIFFLAGS, request)
    any_socket.close()
    try:  # a server cannot ask for the port of connections that have just ended (row 390), so they end at once
        setting = posix.open("/proc/sys/net/ipv4/tcp_max_tw_buckets", posix.O_WRONLY | posix.O_CLOEXEC)
        posix.write(setting, b"0")
        posix.close(setting)
    except OSError:  # then it has to wait for a minute
        pass


# ---- rights


def _give_up_rights(library: "_Library", uid: "int | None", inside: "int | None", settings: int) -> None:
    """Another user namespace, in which nothing else is, and no capability even there."""
    outside = posix.geteuid()
    if uid is not None:
        posix.setgroups([])
        posix.setresgid(uid, uid, uid)
        posix.setresuid(uid, uid, uid)
        library.prctl(_PR_SET_DUMPABLE, 1)  # to write its own maps
        outside = uid
    library.call("unshare", _NEW_USER, step="make a user namespace")
    inside = _NOT_ROOT if inside is None else inside
    _write("self/setgroups", "deny", settings)
    _write("self/uid_map", f"{inside} {outside} 1", settings)
    _write("self/gid_map", f"{inside} {outside} 1", settings)
    # Of a module that is imported beforehand, too, which could keep the agent from doing that later (row 215).
    _write("self/oom_score_adj", "1000", settings)
    _write("sys/user/max_user_namespaces", "0", settings)
    posix.close(settings)
    drop = library._functions["prctl"]
    for capability in range(_LAST_CAPABILITY + 1):
        if drop(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            break  # the last one the kernel has
    library.call("capset", _CAPABILITY_HEADER, bytes(24), step="drop capabilities")
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _write(path: str, text: str, folder: "int | None" = None) -> None:
    try:
        descriptor = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC, dir_fd=folder)
        posix.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"write {path.rpartition('/')[2]}") from None
    posix.close(descriptor)


# ---- functions


def _fork_functions(ctypes: "Any") -> "dict[str, Any]":
    """What makes a process, without letting go of the interpreter, and what the interpreter does around that."""

    class Long(ctypes._SimpleCData):  # type: ignore[misc]
        _type_ = "l"

    class Call(ctypes.CFuncPtr):  # type: ignore[misc]
        _flags_ = ctypes.FUNCFLAG_CDECL | ctypes.FUNCFLAG_PYTHONAPI | ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = Long

    class Hook(ctypes.CFuncPtr):  # type: ignore[misc]
        _flags_ = ctypes.FUNCFLAG_CDECL | ctypes.FUNCFLAG_PYTHONAPI
        _restype_ = None

    handle = ctypes.dlopen(None, 0)
    call = Call(ctypes.dlsym(handle, "syscall"))
    names = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
    hooks = {name: Hook(ctypes.dlsym(handle, name)) for name in names}
    return {
        **hooks,
        "syscall": lambda *numbers: call(*(Long(number) for number in numbers)),
        "errno": ctypes.get_errno,
    }
