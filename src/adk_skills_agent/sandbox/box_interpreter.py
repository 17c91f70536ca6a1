"""Commands for which no interpreter has to be started, because the supervisor is one: a fork of it runs them.

Part of the program in a box (:mod:`.box_program`). Python code without a session is a command like any other, ``python
-I -c`` with :mod:`.python_program`; to start that takes longer in a container than all the rest of a run. The
supervisor runs with the same switches and holds that program, too. Its fork has neither the channel nor anything of
another run, and is what the command would have been in everything but its command line in ``/proc`` and modules that
are imported already.
"""

from __future__ import annotations

import io
import os
import stat
import sys

from adk_skills_agent.sandbox.python_program import program_text

# What an interpreter or its C library reads when it starts; PYTHON* it ignores with -I.
_READ_AT_START = ("LANG", "LC_", "LD_", "GLIBC_", "MALLOC_", "TZ")
_ENVIRONMENT = slice(47, 49)  # its begin and end in /proc/PID/stat, after the name in brackets
_OTHER_SWITCHES = (
    "debug",
    "inspect",
    "optimize",
    "dont_write_bytecode",
    "no_site",
    "verbose",
    "bytes_warning",
    "dev_mode",
    "utf8_mode",
)


class Child(BaseException):
    """Raised in the fork: from here on its process is the command's, and :func:`.python_program.main` is to run."""


def is_own(argv: list[str], environment: dict[str, str]) -> bool:
    """Whether a command is the program for Python code, under the very interpreter that runs here.

    Args:
        argv: The command.
        environment: All of its environment.
    """
    if argv[1:3] != ["-I", "-c"] or argv[3:4] != [program_text()] or not _has_only_our_switches():
        return False
    for name in {*environment, *os.environ}:
        if name.startswith(_READ_AT_START) and environment.get(name) != os.environ.get(name):
            return False
    return _found(argv[0], environment.get("PATH", os.defpath)) == sys.executable


def become(argv: list[str], environment: dict[str, str]) -> None:
    """Make this process, which has the command's descriptors, look like a new interpreter to the code it will run."""
    os.environ.clear()
    os.environ.update(environment)
    _replace_first_environment(environment)
    sys.argv[:] = ["-c", *argv[4:]]
    if hasattr(sys, "orig_argv"):  # since Python 3.10
        sys.orig_argv[:] = argv
    # As the interpreter makes them at its start; the ones made then are for descriptors that are no more.
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old = getattr(sys, name)
        buffer = io.open(number, mode + "b", closefd=False)  # noqa: SIM115, UP020
        buffer.raw.name = f"<{name}>"  # type: ignore[attr-defined]
        made = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", line_buffering=old.line_buffering)
        made.mode = mode  # type: ignore[misc]
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _replace_first_environment(environment: dict[str, str]) -> None:
    """What ``/proc/self/environ`` shows: the one this process started with, which is the box's and not for the code."""
    try:
        import ctypes

        with open("/proc/self/stat", "rb") as file:
            begin, end = (int(field) for field in file.read().rpartition(b")")[2].split()[_ENVIRONMENT])
    except (ImportError, OSError, ValueError):
        return
    shown = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    if 0 < begin < end:  # where the kernel tells; nothing is shown of one that needs more room
        ctypes.memmove(begin, (shown if len(shown) <= end - begin else b"").ljust(end - begin, b"\0"), end - begin)


def _has_only_our_switches() -> bool:
    flags = sys.flags
    others = [name for name in _OTHER_SWITCHES if getattr(flags, name, 0)]
    return bool(flags.isolated) and not (others or sys.warnoptions or sys._xoptions)


def _found(command: str, path: str) -> str | None:
    """What ``execvpe`` would start."""
    if "/" in command:
        return command
    for folder in path.split(os.pathsep):
        place = os.path.join(folder, command)
        try:
            if stat.S_ISREG(os.stat(place).st_mode) and os.access(place, os.X_OK):
                return place
        except OSError:
            continue
    return None
