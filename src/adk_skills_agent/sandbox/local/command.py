"""Find ``argv[0]`` and say early, in a sentence, why it cannot be started.

The shell prefix that sets the limits cannot report a failed exec the way ``execve`` does, and would run a text file
without a ``#!`` line as a shell script. So what can be known is checked before.
"""

from __future__ import annotations

import os
import stat

from adk_skills_agent.errors import SandboxError

_HEAD_BYTES = 256  # what the kernel reads to find a #! line


def find_command(name: bytes, *, path: bytes, cwd: bytes, shown: str) -> bytes:
    """The absolute path of an executable file.

    Args:
        name: ``argv[0]`` on the host: a path, or a name to look up.
        path: The run's PATH.
        cwd: The run's working directory on the host, for relative paths.
        shown: How the request spelled it, for the sentence.

    Raises:
        SandboxError: There is no such command, or it cannot be executed.
    """
    if b"/" in name:
        found = os.path.join(cwd, name)  # noqa: PTH118
        problem = _problem(found)
        if problem:
            raise SandboxError(f"The command {shown!r} cannot be started: {problem}.")
        return found
    refused = ""
    for folder in path.split(b":"):
        if not os.path.isabs(folder):  # noqa: PTH117
            continue  # an empty or relative entry would mean whatever the working directory holds
        candidate = os.path.join(folder, name)  # noqa: PTH118
        if not os.path.exists(candidate):  # noqa: PTH110
            continue
        problem = _problem(candidate)
        if not problem:
            return candidate
        refused = refused or f" that could be started: {problem}"
    raise SandboxError(
        f"There is no command {shown!r} on the PATH of scripts{refused}. Install it, or extend PATH in the policy's "
        "env."
    )


def _problem(path: bytes) -> str:
    try:
        info = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError) as error:
        return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(info.st_mode):
        return "it is not a file"
    if not os.access(path, os.X_OK):
        return "it is not executable"
    return _head_problem(path)


def _head_problem(path: bytes) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return ""  # executable without being readable: the kernel may still start it
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    try:
        head = os.read(descriptor, _HEAD_BYTES)
    finally:
        os.close(descriptor)
    if not head.startswith(b"#!"):
        return "" if b"\0" in head else "it is a text file without a #! line"
    # As the kernel reads it: only spaces and tabs separate, a carriage return is a part of the name.
    interpreter = head[2:].split(b"\n", 1)[0].replace(b"\t", b" ").strip(b" ").split(b" ", 1)[0]
    if not interpreter:
        return "its #! line names no interpreter"
    if not os.path.exists(interpreter):  # noqa: PTH110
        hint = " (the file has Windows line ends)" if head.split(b"\n", 1)[0].endswith(b"\r") else ""
        return f"its #! line names {interpreter.decode('utf-8', 'replace').strip()!r}, which does not exist{hint}"
    return ""
