"""How a kind of script is started (S0-5 to S0-8, S0-31, S0-37, S0-38; attack rows 50 to 52)."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from adk_skills_agent.errors import ConfigError, UnsupportedScriptType

PYTHON_SUFFIXES = (".py",)
SHELL_SUFFIXES = (".sh", ".bash")

# -s: no user site-packages (HOME is the workspace, which a script may fill). The script's own folder is on sys.path, as
# Python does it, so sibling modules import; the working directory never is. -B and UTF-8 mode do not depend on the
# environment a caller grants.
PYTHON_FLAGS = ("-s", "-B", "-X", "utf8")
# A fresh bash reads no start-up files when it runs a script; the flags say so even if a caller grants BASH_ENV.
SHELL = ("bash", "--noprofile", "--norc")

MAX_INLINE_SHELL_BYTES = 100_000
"""A shell script with Windows line ends is passed as one argument, which Linux bounds at 128 KiB."""


class Interpreters:
    """Which command starts which suffix.

    Args:
        extra: More suffixes, such as ``{".js": ("node",)}``; the script's path is appended. A suffix given here wins
            over the built-in ones.

    Raises:
        ConfigError: A suffix or a command is malformed.
    """

    def __init__(self, extra: Mapping[str, Sequence[str]] | None = None) -> None:
        self._extra: dict[str, tuple[str, ...]] = {}
        for suffix, command in (extra or {}).items():
            if not suffix.startswith(".") or len(suffix) < 2 or "/" in suffix:
                raise ConfigError(f"interpreters: {suffix!r} is no file suffix. Write it like '.js'.")
            if isinstance(command, str) or not command or not all(isinstance(part, str) and part for part in command):
                raise ConfigError(
                    f"interpreters: the command for {suffix!r} must be a list of strings, such as ['node'], "
                    f"not {command!r}."
                )
            self._extra[suffix.lower()] = tuple(command)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Every suffix that can be run, lower case."""
        return tuple(dict.fromkeys([*PYTHON_SUFFIXES, *SHELL_SUFFIXES, *self._extra]))

    def command(
        self, script: PurePosixPath, source: Path, *, python: str | None = None, by_itself: bool = True
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The command that runs a script, without its arguments, and notes on what had to be adapted.

        Args:
            script: The script as the sandbox sees it, such as ``/skill/scripts/run.py``.
            source: The same file on the host, for what depends on its bytes.
            python: The Python to use for ``.py``; None takes the one that runs the agent.
            by_itself: Whether an executable file of another kind may be started by its ``#!`` line; False where the
                executable bit is lost on the way.

        Raises:
            UnsupportedScriptType: Nothing runs that suffix, or it has none, and the file does not start by itself.
        """
        suffix = script.suffix.lower()
        if suffix in self._extra:
            return (*self._extra[suffix], str(script)), ()
        if suffix in PYTHON_SUFFIXES:
            return (python or sys.executable, *PYTHON_FLAGS, str(script)), ()
        if suffix in SHELL_SUFFIXES:
            return _shell_command(script, source)
        if by_itself and _starts_by_itself(source):
            return (str(script),), ()
        kind = f"'{suffix}'" if suffix else "(no extension)"
        raise UnsupportedScriptType(
            f"Scripts of type {kind} cannot be run. Supported types: {', '.join(self.suffixes)}. "
            "Read the script and do the work another way, or ask the owner to configure an interpreter for it."
        )


def _starts_by_itself(source: Path) -> bool:
    """Whether the file is executable and names its interpreter in its first line (GOOGLE_ADK rows 10 and 15)."""
    try:
        with source.open("rb") as stream:
            return bool(os.fstat(stream.fileno()).st_mode & stat.S_IXUSR) and stream.read(2) == b"#!"
    except OSError:
        return False


def _shell_command(script: PurePosixPath, source: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Run a shell script; one saved with Windows line ends or a byte-order mark is passed in repaired (row 50)."""
    try:
        with source.open("rb") as stream:
            text = stream.read(MAX_INLINE_SHELL_BYTES + 1)
    except OSError:
        return (*SHELL, str(script)), ()  # the run itself will say why it cannot be read
    if len(text) > MAX_INLINE_SHELL_BYTES or not (text.startswith(b"\xef\xbb\xbf") or b"\r\n" in text):
        return (*SHELL, str(script)), ()
    repaired = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if b"\0" in repaired:
        return (*SHELL, str(script)), ()
    try:
        program = repaired.decode("utf-8")
    except UnicodeDecodeError:
        return (*SHELL, str(script)), ()
    note = "The script has Windows line ends or a byte-order mark; it was run with Unix line ends."
    return (*SHELL, "-c", program, str(script)), (note,)
