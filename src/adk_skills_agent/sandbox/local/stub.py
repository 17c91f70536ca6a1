"""The program that confines a run at the landlock and seccomp levels, from inside; see :mod:`.confined_run`.

It is not imported: the host compiles this file once, after :mod:`.script_begin`, and hands the code to ``python -I``
through a descriptor. So it imports only what is built into the interpreter or a small extension module; ``os``,
``signal`` and ``ctypes`` would cost several milliseconds a run.

Two processes run it. The *supervisor* is the child of the agent: it adopts every orphan of the run, ends all of them
at the end or when the agent dies, and reports how the command ended into a descriptor the command never has. It
never confines itself, so the command can neither signal nor trace it. The *payload* is its child: it takes on the
limits, gives up the user id, Landlock and the filter, and becomes the command.

What it writes into the report, one line each: ``ended STATUS USER SYSTEM MAXRSS`` (seconds, kibibytes),
``failed STEP ERRNO``, ``swept COUNT`` and ``others USER SYSTEM MAXRSS``, of the orphans it adopted.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from adk_skills_agent.sandbox.local.script_begin import _script

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_CAPBSET_DROP = 1, 4, 8, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAP_AMBIENT = 36, 38, 22, 47
_SECCOMP_MODE_FILTER, _PR_CAP_AMBIENT_RAISE = 2, 2
_CAP_DAC_READ_SEARCH, _LAST_CAPABILITY = 2, 63
_CAPABILITY_VERSION = 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
_RULE_PATH_BENEATH = 1
_O_PATH = 0o10000000
_ENOENT, _EPERM, _EINVAL, _ESRCH = 2, 1, 22, 3
_TERM, _KILL, _STOP, _CONT, _CHLD = _signal.SIGTERM, _signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCONT, _signal.SIGCHLD
_END = _signal.SIGUSR1  # from the agent, or from the kernel when the agent is dead: end everything now
_WAITED_FOR = (_CHLD, _TERM, _END)
_BLOCKED = (*_WAITED_FOR, _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR2, _signal.SIGPIPE)
_ROUND_SECONDS = 0.004
_others = [0.0, 0.0, 0]  # what orphans used: user and system seconds, the largest in kibibytes
_NOT_STARTED = 127


class _Library:
    """The C library, as far as it is needed. ``ctypes`` itself would cost four milliseconds; this costs one."""

    def __init__(self) -> None:
        import _ctypes

        class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
            _type_ = "l"

        class Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
            _type_ = "c"

        class Function(_ctypes.CFuncPtr):
            _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
            _restype_ = Long

        self._errno = _ctypes.get_errno
        self._address = _ctypes.addressof
        self._long = Long
        self._char: Any = Char
        handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        names = ("syscall", "prctl", "capset", "setrlimit", "getrusage")
        self._functions = {name: Function(_ctypes.dlsym(handle, name)) for name in names}

    def call(self, name: str, *arguments: "int | bytes | None", step: str = "") -> int:
        """Call a function; whole numbers are passed as long.

        Raises:
            OSError: It gave -1; ``strerror`` is the step.
        """
        passed = [self._long(value) if isinstance(value, int) else value for value in arguments]
        # What the C library's functions give is an int, and only its low half is defined.
        result = self._functions[name](*passed)
        if result & 0xFFFFFFFF == 0xFFFFFFFF:
            raise OSError(self._errno(), step or name)
        return int(result)

    def prctl(self, option: int, value: int = 0, more: int = 0, step: str = "") -> None:
        self.call("prctl", option, value, more, 0, 0, step=step or f"prctl({option})")

    def install_filter(self, program: bytes) -> None:
        buffer = (self._char * len(program))()
        buffer.raw = program
        length = (len(program) // 8).to_bytes(2, sys.byteorder)
        pointer = self._address(buffer).to_bytes(8, sys.byteorder)
        packed = (self._char * 16)()
        packed.raw = length + bytes(6) + pointer
        self.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._address(packed), "install the system call filter")


def main(report: int, job: dict) -> tuple:  # type: ignore[type-arg]
    """Start the run; returns only in the payload, with the code of a Python script and its names.

    Args:
        report: Descriptor of the job, which becomes the report.
        job: See ``confined_run.Job``.
    """
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _BLOCKED)
    posix.ftruncate(report, 0)
    library = _Library()
    try:
        library.prctl(_PR_SET_PDEATHSIG, _END)
        library.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        library.prctl(_PR_SET_DUMPABLE, 0)
    except OSError as error:
        _report(report, f"failed {_one_word(error.strerror)} {error.errno}")
        posix._exit(_NOT_STARTED)
    supervisor = posix.getpid()
    job["filter"] = _name_supervisor(job["filter"], job["placeholder"], supervisor)
    if posix.getppid() != job["agent"]:
        posix._exit(_NOT_STARTED)  # the agent died before its death would have been told
    problem_read, problem_write = posix.pipe2(posix.O_CLOEXEC)
    payload = posix.fork()
    if payload:
        posix.close(problem_write)
        _supervise(report, job["ended"], problem_read, payload)
    step = "prepare"
    try:
        for descriptor in (report, job["ended"], problem_read):
            posix.close(descriptor)
        posix.setsid()
        step = _confine(library, job, supervisor)
        if job["script"] is None:
            step = "exec"
            for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them; other programs must not
                _signal.signal(number, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _BLOCKED)
            posix.execve(job["argv"][0], job["argv"], job["env"])
    except OSError as error:
        text = f"{step if step == 'exec' else _one_word(error.strerror)} {error.errno}"
        posix.write(problem_write, text.encode())
        posix._exit(_NOT_STARTED)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it must not become the script's own failure
        posix.write(problem_write, f"{step}-{type(error).__name__} 0".encode())
        posix._exit(_NOT_STARTED)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _BLOCKED)
    posix.close(problem_write)
    return _script(job)


# ---- the payload


def _name_supervisor(program: bytes, placeholder: int, supervisor: int) -> bytes:
    """The filter was built before this process had a number; it may name it, or its group."""
    for sign in (1, -1):
        old, new = ((sign * pid & 0xFFFFFFFF).to_bytes(4, sys.byteorder) for pid in (placeholder, supervisor))
        program = program.replace(old, new)
    return program


def _confine(library: _Library, job: dict, supervisor: int) -> str:  # type: ignore[type-arg]
    for which, soft, hard in job["limits"]:
        pair = soft.to_bytes(8, sys.byteorder) + hard.to_bytes(8, sys.byteorder)
        library.call("setrlimit", which, pair, step="set its limits")
    rules = _landlock_rules(library, job["landlock"])
    if job["uid"] is not None:
        _give_up_root(library, job["uid"], job["search"])
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    # Both are reset by a change of the user id. The run may look at itself again; it holds nothing of the agent's.
    library.prctl(_PR_SET_DUMPABLE, 1)
    library.prctl(_PR_SET_PDEATHSIG, _KILL)
    if posix.getppid() != supervisor:
        posix._exit(_NOT_STARTED)
    if rules is not None:
        library.call("syscall", _LANDLOCK_RESTRICT, rules, 0, step="apply Landlock")
        posix.close(rules)
    library.install_filter(job["filter"])
    return "start"


def _landlock_rules(library: _Library, wanted: "tuple[bytes, list[tuple[bytes, int]]] | None") -> "int | None":
    if wanted is None:
        return None
    attributes, paths = wanted
    rules = library.call("syscall", _LANDLOCK_CREATE, attributes, len(attributes), 0, step="create Landlock rules")
    for path, access in paths:
        try:
            folder = posix.open(path, _O_PATH | posix.O_CLOEXEC)
        except OSError as error:
            if error.errno == _ENOENT:  # a file of the system that is gone; there is nothing to permit
                continue
            raise OSError(error.errno, "open a permitted folder") from None
        rule = access.to_bytes(8, sys.byteorder) + folder.to_bytes(4, sys.byteorder)
        library.call("syscall", _LANDLOCK_ADD_RULE, rules, _RULE_PATH_BENEATH, rule, 0, step="add a Landlock rule")
        posix.close(folder)
    return rules


def _give_up_root(library: _Library, uid: int, search: bool) -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            if not (search and capability == _CAP_DAC_READ_SEARCH):
                library.prctl(_PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == _EPERM:
                break  # nothing to drop with; no_new_privs already makes the bounding set irrelevant
            if error.errno == _EINVAL:
                break  # the last one the kernel has
            raise
    if search:
        library.prctl(_PR_SET_KEEPCAPS, 1)
    try:
        posix.setgroups([])
        posix.setresgid(uid, uid, uid)
        posix.setresuid(uid, uid, uid)
    except OSError as error:
        raise OSError(error.errno, "give up root") from None
    kept = (1 << _CAP_DAC_READ_SEARCH) if search else 0
    header = _CAPABILITY_VERSION.to_bytes(4, sys.byteorder) + bytes(4)
    one = kept.to_bytes(4, sys.byteorder)
    library.call("capset", header, one * 3 + bytes(12), step="drop capabilities")
    if search:  # ambient, so that what the script starts can still read the interpreter
        library.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, "keep the search capability")


# ---- the supervisor


def _supervise(report: int, ended: int, problem: int, payload: int) -> None:
    """Wait for the command, tell how it ended, wait for the end of the rest or for the order to end it."""
    null = posix.open("/dev/null", posix.O_RDWR)
    for descriptor in (0, 1, 2):
        posix.dup2(null, descriptor)
    posix.chdir("/")
    running = True
    while True:
        number = _signal.sigwaitinfo(_WAITED_FOR).si_signo
        if number == _END:
            break
        if number == _TERM:
            if running:
                _signal_group(payload, _TERM)
                _signal_group(payload, _CONT)  # a stopped process could not answer
            continue
        children, status = _reap(payload)
        if status is not None:
            running = False
            _tell(report, problem, status)
            posix.close(ended)
        if not children:
            break
    if number == _END:
        _end_all(report, problem, payload)
    if any(_others):
        _report(report, "others {} {} {}".format(*_others))
    posix._exit(0)


def _end_all(report: int, problem: int, payload: int) -> None:
    met = set()
    children = True
    while children:
        tree = _descendants(posix.getpid())
        for number in (_STOP, _KILL):  # first all stop, so that none can start another meanwhile
            for pid in tree:
                if number == _STOP and pid not in met and pid != payload and _alive(pid):
                    met.add(pid)
                try:
                    posix.kill(pid, number)
                except OSError:  # it ended by itself
                    continue
        _signal.sigtimedwait((_CHLD,), _ROUND_SECONDS)
        children, status = _reap(payload)
        if status is not None:
            _tell(report, problem, status)
    _report(report, f"swept {len(met)}")


def _reap(payload: int) -> tuple:  # type: ignore[type-arg]
    """Take every child that has ended: whether there are others, and the payload's status and usage if it was one."""
    found = None
    while True:
        try:
            pid, status, usage = posix.wait4(-1, posix.WNOHANG)
        except ChildProcessError:
            return False, found
        if pid == 0:
            return True, found
        if pid == payload:
            found = (status, usage)
        else:
            _others[:] = (
                _others[0] + usage.ru_utime,
                _others[1] + usage.ru_stime,
                max(_others[2], usage.ru_maxrss),
            )


def _tell(report: int, problem: int, ended: tuple) -> None:  # type: ignore[type-arg]
    failure = posix.read(problem, 4096)
    if failure:
        _report(report, f"failed {failure.decode()}")
    status, usage = ended
    _report(report, f"ended {status} {usage.ru_utime} {usage.ru_stime} {usage.ru_maxrss}")


def _descendants(top: int) -> list:  # type: ignore[type-arg]
    found = []
    waiting = [top]
    while waiting:
        pid = waiting.pop()
        try:
            threads = posix.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            children = _children(pid, thread)
            found += children
            waiting += children
    return found


def _children(pid: int, thread: str) -> list:  # type: ignore[type-arg]
    try:
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as stream:
            return [int(child) for child in stream.read().split()]
    except OSError:
        return []


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            line = stream.read()
    except OSError:
        return False
    return line[line.rfind(b")") + 2 :][:1] not in b"ZX"


def _signal_group(pid: int, number: int) -> None:
    try:
        posix.killpg(pid, number)
    except OSError as error:
        if error.errno != _ESRCH:
            raise
        try:
            posix.kill(pid, number)  # it has not made its group yet
        except OSError:
            return


def _report(descriptor: int, line: str) -> None:
    posix.write(descriptor, f"{line}\n".encode())


def _one_word(text: "str | None") -> str:
    return (text or "?").replace(" ", "_")
