"""The init program of a sandbox with namespaces: its process 1, and what becomes the command; see :mod:`.control`.

It is not imported: :mod:`.payload` says why.

*Process 1* gives up root, starts the *payload*, waits for it and everything it leaves behind, and tells the host how it
ended. It does not end before all of them have, so that the last process of a pipeline may still write (row 22); nothing
inside can signal or trace it. The payload says ``ready`` and waits for its job; until then nothing of a script is in
the sandbox. It reads the job from the host's socket, lets go of that, takes on the limits, and the command begins: a
Python script runs in the interpreter that is there, anything else replaces it.

What the host is told, one line each: ``ready``, ``failed STEP ERRNO``, ``ended STATUS``, and ``used MICROSECONDS KIB``
of all processes besides process 1, right before that ends.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from adk_skills_agent.sandbox.local.init.payload import (
        _NOT_STARTED,
        _PR_SET_DUMPABLE,
        _PR_SET_PDEATHSIG,
        _exec,
        _give_up_root,
        _Library,
        _limit,
        _one_word,
        _script,
    )
    from adk_skills_agent.sandbox.supervisor.script_end import QuickEnd

_HOST = 0  # the socket is standard input until there is a job
_LENGTH_BYTES = 8
_UMASK = 0o077
_CHILDREN = -1
_USAGE_BYTES = 144
_USUAL = b"""
import os, sys
class A(list):
    def f(self, *a, k=1, **b):
        for x in a:
            try:
                yield {str(x): [k for k in b if k]}
            except (ValueError, OSError) as error:
                raise TypeError(f"{x} {error!r}") from error
with open("/dev/null") as file:
    print(*A().f(1, 2.5, "x"), file.read(), sep="", end="", file=None if not A else open("/dev/null", "w"))
"""


def run_init(spec: dict) -> tuple:  # type: ignore[type-arg]
    """Start the payload; returns only there, with the code of a script, its names, and what to call at its end."""
    if sys.path[:1] == [""]:
        del sys.path[0]  # the working directory is not on a script's path
    step = "prepare"
    try:
        library = spec.get("library") or _Library()
        if spec["uid"] is not None:
            _give_up_root(library, spec["uid"], search=False)
        library.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)  # a change of the user id forgets it
        library.prctl(_PR_SET_DUMPABLE, 0)
        # Without a handler of its own, process 1 of a namespace gets no signal from inside.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        step = "preload"
        if spec["preload"]:
            _limit(library, spec["limits"])
            if spec.get("site"):  # it says where the modules are
                _start_packages(spec)
            _preload(spec["preload"])
        spec["end"] = spec.get("end") or QuickEnd()
        step = "fork"
        payload = posix.fork()
        if payload:
            _wait(library, payload, holds_output=spec.get("holds_output", False))
        library.prctl(_PR_SET_DUMPABLE, 1)  # a run may look at itself
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        posix.umask(_UMASK)
        _tell("ready")
        step = "receive"
        _warm_up()
        job = _receive()
        step = "begin"
        return (*_begin(library, job, spec), spec["end"].ended)
    except OSError as error:
        _tell(f"failed {_one_word(error.strerror if step == 'prepare' else step)} {error.errno}")
    except _NotLoaded as error:
        _tell("failed preload:{}:{} 0".format(*error.args))
    except Exception as error:  # noqa: BLE001  # whatever it is, it must not become the script's own failure
        _tell(f"failed {step}:{type(error).__name__} 0")
    posix._exit(_NOT_STARTED)


def _start_packages(spec: dict) -> None:  # type: ignore[type-arg]
    """What the interpreter of an environment does at its start: find its packages, whose code may run."""
    python = spec["site"]
    spec["site"] = ""
    sys.executable = python
    sys.prefix = sys.exec_prefix = python.rpartition("/")[0].rpartition("/")[0]
    import site  # after that, because it looks at these when it is imported

    site.main()


class _NotLoaded(Exception):
    """A module to be imported first cannot be: its name, and the class of what it raised."""


def _preload(names: "list[str]") -> None:
    """Import modules before there is a job. What they print belongs to no run."""
    null = posix.open("/dev/null", posix.O_WRONLY)
    kept = [(number, posix.dup(number)) for number in (1, 2)]
    for number, _ in kept:
        posix.dup2(null, number)
    for name in names:
        try:
            __import__(name)
        except BaseException as error:  # whatever the module raises, the developer wants its name
            raise _NotLoaded(name, type(error).__name__) from error
    if len(sys._current_frames()) > 1:
        raise RuntimeError("a module started a thread")  # which would be missing in the payload
    try:
        posix.waitpid(_CHILDREN, posix.WNOHANG)
    except ChildProcessError:
        pass
    else:
        raise RuntimeError("a module started a process")  # which would be there when the job comes
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number, copy in kept:
        posix.dup2(copy, number)
        posix.close(copy)
    posix.close(null)


# ---- process 1


def _wait(library: "_Library", payload: int, *, holds_output: bool) -> None:
    """Tell how the payload ended, wait for everything it left behind, tell what all used, and end."""
    if not holds_output:  # bubblewrap does: the end of the pipes is the end of the run
        null = posix.open("/dev/null", posix.O_RDWR)
        for number in (1, 2):
            posix.dup2(null, number)
    while True:
        try:
            pid, status = posix.waitpid(_CHILDREN, 0)
        except ChildProcessError:
            _tell("used {} {}".format(*_used_by_children(library)))
            posix._exit(0)
        if pid == payload:
            _tell(f"ended {status}")


def _used_by_children(library: "_Library") -> "tuple[int, int]":
    """Processor time in microseconds of all children waited for, and the largest of them in KiB."""
    usage = (library._char * _USAGE_BYTES)()
    library.call("getrusage", _CHILDREN, usage)
    user, user_us, system, system_us, largest = (
        int.from_bytes(usage.raw[at : at + 8], sys.byteorder) for at in range(0, 40, 8)
    )
    return (user + system) * 1_000_000 + user_us + system_us, largest


def _tell(line: str) -> None:
    try:
        posix.write(_HOST, f"{line}\n".encode())
    except OSError:
        posix._exit(_NOT_STARTED)  # the host is gone


# ---- the payload


def _warm_up() -> None:
    """Do once, in the zygote and while a sandbox waits, what every script needs: the first time takes a millisecond.

    A job sets again, from nothing, all that is changed here.
    """
    import gc

    exec(compile(_USUAL, "/dev/null", "exec", dont_inherit=True), {"__name__": "warm_up"})  # noqa: S102  # a constant
    main_module, here, line = sys.modules["__main__"], sys.path[:], sys.orig_argv[:]
    exec(*_script({"argv": [b"/dev/null"], "script": 0, "env": {b"PATH": b"/"}}))  # noqa: S102  # nothing
    sys.modules["__main__"], sys.path[:], sys.orig_argv[:] = main_module, here, line
    sys.stdout.flush()
    gc.collect()
    gc.freeze()


def _receive() -> "dict[str, Any]":
    import marshal

    length = int.from_bytes(_read(_LENGTH_BYTES), sys.byteorder)
    job: dict[str, Any] = marshal.loads(_read(length))  # noqa: S302  # from the host, never from a script
    return job


def _read(length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = posix.read(_HOST, length - len(data))
        if not piece:
            posix._exit(0)  # there will be no job
        data += piece
    return data


def _begin(library: "_Library", job: "dict[str, Any]", spec: "dict[str, Any]") -> tuple:  # type: ignore[type-arg]
    stdin = _received_stdin() if job["stdin"] else posix.open("/dev/null", posix.O_RDONLY)
    host = posix.dup(_HOST)  # closed by a successful exec
    posix.dup2(stdin, 0)
    posix.close(stdin)
    step = "enter the working directory"
    try:
        posix.chdir(job["cwd"])
        step = "set its limits"
        _limit(library, job["limits"])
        if job["script"] is None:
            step = "exec"
            _exec(job)
        step = "begin"
        _new_stdin()
        if spec.get("site"):
            _start_packages(spec)
        begun = _script(job)
    except OSError as error:
        posix.write(host, f"failed {_one_word(step)} {error.errno}\n".encode())
        posix._exit(_NOT_STARTED)
    except Exception:
        posix.dup2(host, _HOST)  # to be told there
        raise
    posix.close(host)
    return begun


def _received_stdin() -> int:
    import _socket

    host = _socket.socket(fileno=posix.dup(_HOST))
    _, passed, _, _ = host.recvmsg(1, _socket.CMSG_SPACE(4))
    host.close()
    return int.from_bytes(passed[0][2][:4], sys.byteorder)


def _new_stdin() -> None:
    """The interpreter looked at its standard input when that was the host's socket."""
    import io

    old = sys.stdin
    buffer = io.open(0, "rb", closefd=False)  # noqa: SIM115, UP020
    buffer.raw.name = "<stdin>"  # type: ignore[attr-defined]
    sys.stdin = sys.__stdin__ = text = io.TextIOWrapper(buffer, old.encoding, old.errors)  # type: ignore[misc]
    text.mode = "r"  # type: ignore[misc]
