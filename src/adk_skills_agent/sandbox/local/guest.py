"""The program that is process 1 of a sandbox whose command is Python, or is not known yet; see :mod:`.guest_control`.

It is not imported: the host compiles this file once, after :mod:`.guest_end` and together with :mod:`.stub`, whose
functions it uses, and hands both to an interpreter through a descriptor. Like the stub it imports only what is built in
or small.

*Process 1* gives up root, starts the *payload*, waits for it and everything it leaves behind, and tells the host how it
ended. It does not end before all of them have, so that the last process of a pipeline may still write (row 22); nothing
inside can signal or trace it. The payload says ``ready`` and waits for its job; until then nothing of a script is in
the sandbox. It reads the job from the host's socket, lets go of that, takes on the limits, and the command begins: a
Python script runs in the interpreter that is there, anything else replaces it.

What the host is told, one line each: ``ready``, ``failed STEP ERRNO``, ``ended STATUS``, and ``alone MICROSECONDS KIB``
with what all processes besides process 1 have used.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from adk_skills_agent.sandbox.local.guest_end import _ABOUT_TO_END, _AWAITED, _Ending, _QuickEnd
    from adk_skills_agent.sandbox.local.script_begin import _script
    from adk_skills_agent.sandbox.local.stub import (
        _PR_SET_DUMPABLE,
        _PR_SET_PDEATHSIG,
        _give_up_root,
        _Library,
        _one_word,
    )

_HOST = 0  # the socket is standard input until there is a job
_LENGTH_BYTES = 8
_NOT_STARTED = 127
_UMASK = 0o077
_CHILDREN = -1
_USAGE_BYTES = 144
_empty_stdin: "list[Any]" = []  # what a script has as sys.stdin when there is nothing to be read, once it is made
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
if __name__ == "__main__":
    sys.exit(0)
"""


def main(spec: dict) -> tuple:  # type: ignore[type-arg]
    """Start the payload; returns only there, with the code of a Python script, its names, and what to call at its end.

    Args:
        spec: See ``guest_control.guest_spec``.
    """
    if sys.path[:1] == [""]:
        del sys.path[0]  # the working directory is none of a script's folders
    step = "prepare"
    try:
        library = spec.get("library") or _Library()
        if spec["uid"] is not None:
            _give_up_root(library, spec["uid"], False)
        library.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)  # a change of the user id forgets it
        library.prctl(_PR_SET_DUMPABLE, 0)
        # Without a handler of its own, process 1 of a namespace gets no signal from inside.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        step = "preload"
        _preload(spec["preload"])
        spec["end"] = spec.get("end") or _QuickEnd()
        step = "fork"
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _AWAITED)
        payload = posix.fork()
        if payload:
            _wait(library, payload, holds_output=spec.get("holds_output", False))
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        spec["end"].belongs_to(posix.getpid(), posix.getppid(), (library, spec))
        library.prctl(_PR_SET_DUMPABLE, 1)  # a run may look at itself
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        posix.umask(_UMASK)
        if spec["ahead"]:
            step = "warm up"
            _warm_up()
            spec["end"].rehearse()
        _tell("ready")
        step = "receive"
        job = _receive()
        step = "begin"
        return (*_begin(library, job), spec["end"].ended)
    except OSError as error:
        _tell(f"failed {_one_word(error.strerror if step == 'prepare' else step)} {error.errno}")
    except _NotLoaded as error:
        _tell("failed preload:{}:{} 0".format(*error.args))
    except Exception as error:  # noqa: BLE001  # whatever it is, it must not become the script's own failure
        _tell(f"failed {step}:{type(error).__name__} 0")
    posix._exit(_NOT_STARTED)


class _NotLoaded(Exception):
    """A module to be imported first cannot be: its name, and the class of what it raised."""


def _preload(names: "list[str]") -> None:
    """Import modules before there is a job. What they print belongs to no run."""
    if not names:
        return
    null = posix.open("/dev/null", posix.O_WRONLY)
    kept = [(number, posix.dup(number)) for number in (1, 2)]
    for number, _ in kept:
        posix.dup2(null, number)
    for name in names:
        try:
            __import__(name)
        except Exception as error:  # whatever the module raises, the owner wants its name
            raise _NotLoaded(name, type(error).__name__) from error
    if len(sys._current_frames()) > 1:
        raise RuntimeError("a module started a thread")  # which would be missing in the payload
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number, copy in kept:
        posix.dup2(copy, number)
        posix.close(copy)
    posix.close(null)


# ---- process 1


def _wait(library: "_Library", payload: int, *, holds_output: bool) -> None:
    """Tell how the payload ended, and when nobody is left and what all used; then end."""
    try:
        ending: _Ending | None = _Ending(payload)
    except OSError:
        ending = None  # it is only told later
    if not holds_output:  # bubblewrap does: the end of the pipes is the end of the run
        null = posix.open("/dev/null", posix.O_RDWR)
        for number in (1, 2):
            posix.dup2(null, number)
    _rehearse_the_end(library, ending)
    said = ""
    while True:
        try:
            pid, status = posix.waitpid(_CHILDREN, posix.WNOHANG)
        except ChildProcessError:
            _tell(_last_words(library, said))
            posix._exit(0)
        if pid == payload:
            said = f"ended {status}\n"
        elif pid == 0:
            if said:
                _tell(said[:-1])
                said = ""
            if _signal.sigwaitinfo(_AWAITED).si_signo == _ABOUT_TO_END and ending is not None:
                seen, ending = ending.look(), None  # once: whoever else says so is not believed again
                if seen is not None:
                    _tell(_last_words(library, f"ended {seen[0]}\n", *seen[1:]))
                    posix.waitpid(payload, 0)  # and leave the processor to the host meanwhile
                    posix._exit(0)


def _rehearse_the_end(library: "_Library", ending: "_Ending | None") -> None:
    """Do once what the host will wait for, while it does not: a fork pays for each page it touches first."""
    try:
        posix.waitpid(posix.getpid(), posix.WNOHANG)
    except ChildProcessError:
        _last_words(library, f"ended {0}\n").encode()
    if ending is not None:
        ending.look(1)


def _last_words(library: "_Library", said: str, seconds: float = 0.0, largest: int = 0) -> str:
    """What the host is told when nobody is left; with what somebody used who was not waited for yet."""
    used, most = _used_by_children(library)
    return f"{said}alone {used + int(seconds * 1e6)} {max(most, largest)}"


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
    """Do once what every script needs, while there is no job: a new process pays for each page it touches first.

    A job sets again, from nothing, all that is changed here.
    """
    import gc

    names: dict[str, Any] = {"__name__": "warm_up"}
    with open("/dev/null", "rb") as stream:
        source = stream.read() + _USUAL
    exec(compile(source, "/dev/null", "exec", dont_inherit=True), names)  # noqa: S102  # a constant
    main_module, here, line = sys.modules["__main__"], sys.path[:], sys.orig_argv[:]
    exec(*_script({"argv": [b"/dev/null"], "script": 0, "env": {b"PATH": b"/"}}))  # noqa: S102  # nothing
    sys.modules["__main__"], sys.path[:], sys.orig_argv[:] = main_module, here, line
    host = posix.dup(_HOST)  # out of the way for a moment: most scripts find nothing on their standard input
    null = posix.open("/dev/null", posix.O_RDONLY)
    posix.dup2(null, 0)
    _new_stdin()
    posix.dup2(host, _HOST)
    posix.close(null)
    posix.close(host)
    _empty_stdin[:] = [sys.stdin]
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


def _begin(library: "_Library", job: "dict[str, Any]") -> tuple:  # type: ignore[type-arg]
    stdin = _received_stdin() if job["stdin"] else posix.open("/dev/null", posix.O_RDONLY)
    host = posix.dup(_HOST)  # closed by a successful exec
    posix.dup2(stdin, 0)
    posix.close(stdin)
    step = "enter the working directory"
    try:
        posix.chdir(job["cwd"])
        for which, soft, hard in job["limits"]:
            pair = soft.to_bytes(8, sys.byteorder) + hard.to_bytes(8, sys.byteorder)
            step = "set its limits"
            library.call("setrlimit", which, pair)
        if job["script"] is None:
            step = "exec"
            for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them; other programs must not
                _signal.signal(number, _signal.SIG_DFL)
            posix.execve(job["argv"][0], job["argv"], job["env"])
        step = "begin"
        if job["stdin"] or [sys.stdin] != _empty_stdin:
            _new_stdin()
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
