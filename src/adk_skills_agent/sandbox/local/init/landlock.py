"""The init program of the landlock level, which confines a run from inside; see :mod:`..levels.landlock`.

It is not imported: :mod:`.payload` says why. Two processes run it. The *supervisor* is the agent's child: it adopts
every orphan of the run, ends all of them at the end or when the agent dies, and tells how the command ended through a
socket the command never has. It never confines itself, so the command can neither signal nor trace it. The
*payload* is its child: it takes on the limits, gives up the user id, Landlock and the filter, and becomes the command.

What the host is told, one line each: ``failed STEP ERRNO``, ``ended STATUS``, ``swept COUNT``, and ``used MICROSECONDS
KIB`` of all processes, right before the supervisor ends.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from adk_skills_agent.sandbox.local.init.payload import (
        _NOT_STARTED,
        _PR_SET_CHILD_SUBREAPER,
        _PR_SET_DUMPABLE,
        _PR_SET_NO_NEW_PRIVS,
        _PR_SET_PDEATHSIG,
        _exec,
        _give_up_root,
        _Library,
        _limit,
        _one_word,
        _script,
    )

_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
_RULE_PATH_BENEATH = 1
_O_PATH = 0o10000000
_ENOENT, _ESRCH = 2, 3
_TERM, _KILL, _STOP, _CONT, _CHLD = _signal.SIGTERM, _signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCONT, _signal.SIGCHLD
_END = _signal.SIGUSR1  # from the agent, or from the kernel when the agent is dead: end everything now
_WAITED_FOR = (_CHLD, _TERM, _END)
_BLOCKED = (*_WAITED_FOR, _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR2, _signal.SIGPIPE)
_ROUND_SECONDS = 0.004
_used = [0, 0]  # by all that have ended: microseconds of processor time, the largest in kibibytes


def main(job: dict) -> tuple:  # type: ignore[type-arg]
    """Start the run; returns only in the payload, with the code of a Python script and its names."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _BLOCKED)
    host = job["host"]
    library = _Library()
    try:
        library.prctl(_PR_SET_PDEATHSIG, _END)
        library.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        library.prctl(_PR_SET_DUMPABLE, 0)
    except OSError as error:
        _tell(host, f"failed {_one_word(error.strerror)} {error.errno}")
        posix._exit(_NOT_STARTED)
    supervisor = posix.getpid()
    job["filter"] = _name_supervisor(job["filter"], job["placeholder"], supervisor)
    if posix.getppid() != job["agent"]:
        posix._exit(_NOT_STARTED)  # the agent died before its death would have been told
    problem_read, problem_write = posix.pipe2(posix.O_CLOEXEC)
    payload = posix.fork()
    if payload:
        posix.close(problem_write)
        _supervise(host, problem_read, payload)
    step = "prepare"
    try:
        for descriptor in (host, problem_read):
            posix.close(descriptor)
        posix.setsid()
        step = _confine(library, job, supervisor)
        if job["script"] is None:
            step = "exec"
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _BLOCKED)
            _exec(job)
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
    _limit(library, job["limits"])
    rules = _landlock_rules(library, job["landlock"])
    if job["uid"] is not None:
        _give_up_root(library, job["uid"], search=True)
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    # Both are reset by a change of the user id. The run may look at itself again; it holds nothing of the agent's.
    library.prctl(_PR_SET_DUMPABLE, 1)
    _first_to_end()
    library.prctl(_PR_SET_PDEATHSIG, _KILL)
    if posix.getppid() != supervisor:
        posix._exit(_NOT_STARTED)
    library.call("syscall", _LANDLOCK_RESTRICT, rules, job["landlock"][2], step="apply Landlock")
    posix.close(rules)
    library.install_filter(job["filter"])
    return "start"


def _first_to_end() -> None:
    """When memory runs out, the kernel takes the run and not the agent (row 79). Then it has no /proc to undo that."""
    try:
        score = posix.open("/proc/self/oom_score_adj", posix.O_WRONLY)
        posix.write(score, b"1000")
        posix.close(score)
    except OSError:
        pass  # the report of the level says what it enforces of memory


def _landlock_rules(library: _Library, wanted: "tuple[bytes, list[tuple[bytes, int]], int]") -> int:
    attributes, paths, _ = wanted
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


# ---- the supervisor


def _supervise(host: int, problem: int, payload: int) -> None:
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
            _tell_end(host, problem, status)
        if not children:
            break
    if number == _END:
        _end_all(host, problem, payload)
    _tell(host, "used {} {}".format(*_used))
    posix._exit(0)


def _end_all(host: int, problem: int, payload: int) -> None:
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
            _tell_end(host, problem, status)
    _tell(host, f"swept {len(met)}")


def _reap(payload: int) -> tuple:  # type: ignore[type-arg]
    """Take every child that has ended: whether there are others, and the payload's status if it was one."""
    found = None
    while True:
        try:
            pid, status, usage = posix.wait4(-1, posix.WNOHANG)
        except ChildProcessError:
            return False, found
        if pid == 0:
            return True, found
        _used[:] = _used[0] + int((usage.ru_utime + usage.ru_stime) * 1e6), max(_used[1], usage.ru_maxrss)
        if pid == payload:
            found = status


def _tell_end(host: int, problem: int, status: int) -> None:
    failure = posix.read(problem, 4096)
    if failure:
        _tell(host, f"failed {failure.decode()}")
    _tell(host, f"ended {status}")


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


def _tell(host: int, line: str) -> None:
    try:
        posix.write(host, f"{line}\n".encode())
    except OSError:  # the agent is gone; the run is ended all the same
        pass
