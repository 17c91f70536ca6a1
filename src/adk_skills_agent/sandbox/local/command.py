"""Find ``argv[0]`` and say early, in a sentence, why it cannot be started.

The shell prefix that sets the limits cannot report a failed exec the way ``execve`` does, and would run a text file
without a ``#!`` line as a shell script. So what can be known is checked before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.workspace import about

_HEAD_BYTES = 256  # what the kernel reads to find a #! line
_MOST_PROGRAMS = 64
_programs: dict[bytes, tuple[int, ...]] = {}
"""Programs that could be started, as they were then; what changes has another time stamp. Scripts are looked at anew,
because what their ``#!`` line names may go."""


def spelling(requested: str, on_host: str) -> str:
    """A command as a sentence may show it: of a command of the host only its name, for a model gets no host paths.

    Args:
        requested: ``argv[0]`` as the request has it.
        on_host: The same after paths of the sandbox became paths of the host.
    """
    return requested.rpartition("/")[2] if _is_hosts(requested, on_host) else requested


def find_command(requested: str, on_host: str, *, path: bytes, cwd: bytes) -> bytes:
    """The absolute path of an executable file.

    Args:
        requested: ``argv[0]`` as the request has it.
        on_host: The same on the host: a path, or a name to look up.
        path: The run's PATH.
        cwd: The run's working directory on the host, for relative paths.

    Raises:
        SandboxError: There is no such command, or it cannot be executed.
        ValueError: The name is no valid text.
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
    """Text as the bytes a process gets, the same in every locale (row 54).

    Raises:
        ValueError: It contains a lone surrogate that stands for no byte.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise ValueError(f"{shown!r} is no valid text: it contains a lone surrogate.") from None


def encoded(pairs: Mapping[str, str]) -> dict[bytes, bytes]:
    """:func:`encode` for the names and values of an environment."""
    try:
        return {
            name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
            for name, value in pairs.items()
        }
    except UnicodeEncodeError:
        return {encode(name): encode(value) for name, value in pairs.items()}  # for its sentence


def check_argv(argv: tuple[str, ...]) -> None:
    """Refuse what no process can be given as its arguments.

    Raises:
        ValueError: There is none, one is no text, or has a NUL byte or a lone surrogate; says which.
    """
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
    looked_at = (os.geteuid(), info.st_dev, info.st_ino, info.st_mode, info.st_ctime_ns)
    if _programs.get(path) == looked_at:
        return ""
    if not os.access(path, os.X_OK):
        return "it is not executable"
    try:
        head = _head(path)
    except PermissionError:
        return ""  # executable without being readable: the kernel may still start it
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    problem = _head_problem(head, hosts=hosts)
    if not problem and not head.startswith(b"#!"):
        if len(_programs) >= _MOST_PROGRAMS:
            _programs.clear()
        _programs[path] = looked_at
    return problem


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
