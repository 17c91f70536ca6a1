"""A bash that was started before there is a run for it, and has done all that comes before its script's first line.

It was told a script, and a file to read before that (``BASH_ENV``), which reads on from a pipe, at whose other end the
agent is. What is written there when a run comes sets the run's variables and arguments and removes the traces of having
waited; then bash opens the script as ever. Starting it only then takes 2 ms more. When nothing is written, because the
sandbox is not needed any more or the agent was killed, bash ends and the script is not run.

A script finds what it finds in a bash that was started for it, but for the command line and the first environment that
``/proc`` shows of its process, and for ``BASH_ARGV``, ``BASH_ARGC`` and ``PIPESTATUS`` before its first command. One
that names any of these, and whatever could make another difference, is left to such a bash: see :func:`bash_of`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.environment import RUN_ID_VARIABLE
from adk_skills_agent.sandbox.local.guest_control import GuestControl, Job
from adk_skills_agent.sandbox.local.own_interpreter import BASE
from adk_skills_agent.sandbox.local.population import is_ending
from adk_skills_agent.sandbox.local.run import TMP_DIR
from adk_skills_agent.sandbox.local.sandbox_start import Started

_SWITCHES = ("--noprofile", "--norc")
_AT_START = frozenset({"PATH", "HOME", "TMPDIR", *BASE})
"""Of each run, and the same for all of a policy."""

# Names that mean something to bash or its libraries; whatever else is set later is as if it had been there.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MEANING = (
    *("BASH", "COMP", "DIRSTACK", "EPOCH", "FUNC", "GROUPS", "HIST", "HOST", "LANG", "LC_", "LINES", "MAIL", "OPT"),
    *("PIPESTATUS", "POSIX", "PROMPT", "PS", "RANDOM", "READLINE", "SECONDS", "SHELL", "SHLVL", "SRANDOM"),
    *("COLUMNS", "COPROC", "CHILD_MAX", "EXECIGNORE", "FIGNORE", "FCEDIT", "INPUTRC", "INSIDE_EMACS", "LINENO"),
    *("MACHTYPE", "MAPFILE", "OLDPWD", "OSTYPE", "PPID", "PWD", "REPLY", "TERM", "TEXTDOMAIN", "TIMEFORMAT", "TMOUT"),
    *("UID", "EUID", "IGNOREEOF", "IFS", "CDPATH", "GLOB", "ENV", "TZ", "auto_resume", "histchars"),
    *("GLIBC_", "MALLOC_", "LD_"),
)
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")  # to bash's parser some of them are marks of its own
_MOST_BYTES = 32 << 10  # a pipe takes more without anybody reading
_SECONDS = 5.0
_PAUSE_SECONDS = 0.001
_NOT_GIVEN = 125
_LEAST_BYTES = 64 << 10  # of /tmp
_MOST_SEEN = 256
_MOST_SCRIPT_BYTES = 1 << 20
_DIFFERS = re.compile(rb"/proc\b|BASH_ARG[CV]\b|PIPESTATUS")


@dataclass(frozen=True, slots=True)
class Bash:
    """What a bash that waits was started with; only a run that wants the same can have it.

    Attributes:
        command: Itself, its switches and the script, as the sandbox sees them.
        environment: Names and values.
        limits: Resource, soft and hard limit.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    limits: tuple[tuple[int, int, int], ...]


def bash_of(
    request: ExecutionRequest,
    policy: SandboxPolicy,
    command: Sequence[str],
    environment: Mapping[str, str],
    limits: tuple[tuple[int, int, int], ...],
) -> Bash | None:
    """What the bash of a run is started with; None when it has to be started for the run.

    That is: for another command than bash with a script, with standard input, in another folder, without room in
    ``/tmp``, with a variable that bash heeds, or with characters or an amount of text that it might not take as it is;
    for a script of a folder that is no copy, or that names what would tell it.

    Args:
        request: What to run.
        policy: Its checked policy.
        command: The command as the sandbox sees it.
        environment: Its variables.
        limits: Its limits.
    """
    position = 1 + len(_SWITCHES)
    if _broken:
        return None
    if tuple(command[1:position]) != _SWITCHES or len(command) <= position or not command[0].endswith("/bash"):
        return None
    if not command[position].startswith("/") or request.stdin is not None or request.cwd != WORK_DIR:
        return None
    if policy.tmp_bytes is not None and policy.tmp_bytes < _LEAST_BYTES:
        return None
    if _tells(request, command[position]):
        return None
    granted = {*policy.env, *request.env, *policy.inherit_env}
    if not granted.isdisjoint(_AT_START):
        return None
    size = 0
    for name, value in environment.items():
        if name in _AT_START:
            continue
        # The shell sets _ itself, but a script finds the one it was given until its first command.
        if _NAME.fullmatch(name) is None or name == "_" or name.startswith(_MEANING) or _STRANGE.search(value):
            return None
        size += len(name) + len(value) + 1
    for argument in command[position + 1 :]:
        if _STRANGE.search(argument):
            return None
        size += len(argument) + 1
    if size > _MOST_BYTES // 8:  # four bytes a character, quoted or not, and three a word
        return None
    at_start = tuple((name, value) for name, value in environment.items() if name in _AT_START)
    return Bash(tuple(command[: position + 1]), at_start, limits)


class Feed:
    """The agent's end of the pipe from which a waiting bash reads.

    Args:
        uid: Whose rights bash has when the agent is root: it opens the pipe by a name.

    Raises:
        OSError: No descriptor is left, or the system does not know the user.
    """

    def __init__(self, uid: int | None) -> None:
        with _forking:
            self.inside, self._descriptor = os.pipe()
            _feeds.add(self)
        if uid is not None:
            try:
                os.fchown(self.inside, uid, uid)
            except OSError:
                self.close()
                raise

    def let_go(self) -> None:
        """Bash has its end."""
        inside, self.inside = self.inside, -1
        if inside >= 0:
            os.close(inside)

    def give(self, bash: Bash, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Let the script begin.

        Args:
            bash: What it was started with.
            command: The run's command.
            environment: The run's variables.

        Raises:
            SandboxError: The sandbox is gone.
        """
        given = dict(bash.environment)
        # Last, because it tells the other text that this one is whole.
        names = sorted((name for name in environment if name not in given), key=RUN_ID_VARIABLE.__eq__)
        later = [f"{name}={_quoted(environment[name])}" for name in names]
        arguments = map(_quoted, command[len(bash.command) :])
        lines = ("exec </dev/null", "unset BASH_ENV", f"set -- {' '.join(arguments)}", f"export {' '.join(later)}")
        left = memoryview("\n".join(lines).encode() + b"\n")
        try:
            while left:  # a signal may cut a write short
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            reason = error.strerror or error
            raise SandboxError(f"The sandbox ended before its command began: {reason}.") from error
        finally:
            self.close()

    def close(self) -> None:
        """There is no more; safe to call twice."""
        with _forking:
            _feeds.discard(self)
            self.let_go()
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


def check_can_wait() -> None:
    """Refuse where a bash did not wait before.

    Raises:
        SandboxError: There is to be none in this process.
    """
    if _broken:
        raise SandboxError("a bash that was started ahead did not wait.")


def start_bash(bash: Bash, started: Started, feed: Feed) -> None:
    """Have a sandbox's guest become the bash that waits. Blocking, a few milliseconds.

    Raises:
        SandboxError: It did not, and no further one is started in this process.
    """
    control = started.control
    assert isinstance(control, GuestControl)  # noqa: S101  # as all that are started ahead
    pipe = os.readlink(f"/proc/self/fd/{feed.inside}")  # noqa: PTH115
    name = f".bash-{os.urandom(8).hex()}"
    first = f"{started.folders.tmp}/{name}"
    # It is sure to end here when it got nothing, or not all. The last word becomes $_.
    text = f"""\
. /dev/fd/0
if [[ -z ${{{RUN_ID_VARIABLE}-}} ]]; then exit {_NOT_GIVEN}; fi
SECONDS=0
: {_quoted(bash.command[0])}
"""
    descriptor = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    with open(descriptor, "wb") as stream:
        os.fchmod(descriptor, 0o444)  # whatever the agent's umask is: bash passes over what it cannot read
        stream.write(text.encode())
    environment = {**dict(bash.environment), "PWD": str(WORK_DIR), "BASH_ENV": f"{TMP_DIR}/{name}"}
    control.give(Job(bash.command, environment, str(WORK_DIR), None, bash.limits, feed.inside))
    feed.let_go()
    deadline = time.monotonic() + _SECONDS
    while (found := _open_files(started.command)).count(pipe) < 2:  # its standard input, and what it reads first
        if bash.command[-1] in found or time.monotonic() > deadline or is_ending(started.command):
            _broken.append(True)
            check_can_wait()
        time.sleep(_PAUSE_SECONDS)
    os.unlink(first)  # noqa: PTH108  # it was read as a whole


def is_called_again(key: Hashable, run_id: str) -> bool:
    """Whether another run wanted the same slot: for a script that runs once no bash is started ahead."""
    with _forking:
        first = _seen.setdefault(key, run_id)
        _seen.move_to_end(key)
        while len(_seen) > _MOST_SEEN:
            _seen.popitem(last=False)
    return first != run_id


def _tells(request: ExecutionRequest, script: str) -> bool:
    """Whether a script names what differs, or it is not known whether it does."""
    if "/../" in script:
        return True
    for mount in request.mounts:
        inside = f"{mount.target}/"
        if mount.copied and script.startswith(inside):
            return _names_what_differs(f"{os.fspath(mount.source)}/{script[len(inside) :]}")
    return True


@functools.lru_cache(maxsize=256)
def _names_what_differs(path: str) -> bool:
    """Looked at once: a copy is named after its content."""
    try:
        with open(path, "rb") as stream:
            text = stream.read(_MOST_SCRIPT_BYTES + 1)
    except OSError:
        return True
    return len(text) > _MOST_SCRIPT_BYTES or _DIFFERS.search(text) is not None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _open_files(pid: int) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115
    return found


_broken: list[bool] = []  # no further one is started in this process
_seen: OrderedDict[Hashable, str] = OrderedDict()
_feeds: set[Feed] = set()
_forking = threading.RLock()
"""Held while a pipe is made or closed and what was seen changes, and while the agent forks: a child knows all pipes."""


def _forget() -> None:
    """In a forked child: its copies would keep a pipe open, and bash reads until it is closed."""
    for feed in tuple(_feeds):
        with contextlib.suppress(OSError):
            feed.close()
    _seen.clear()
    _forking.release()


os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_forget)
