"""Printing for people and for programs."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from adk_skills_agent.cli.terminal import VisibleBytes, unprotected, visible
from adk_skills_agent.errors import ConfigError, in_one_line
from adk_skills_agent.format.models import Diagnostic, Severity
from adk_skills_agent.platforms import make_folder_below, write_whole

if TYPE_CHECKING:
    from adk_skills_agent.sandbox import IsolationReport, OutputEvent, ResourceSample


def print_json(value: object) -> None:
    """One JSON document on stdout, in ASCII: valid in every locale, and without a character a terminal obeys."""
    import json

    print(json.dumps(value, indent=2))


def isolation_as_json(report: IsolationReport) -> dict[str, object]:
    """The isolation of a run, for programs."""
    return {
        "level": report.level.value,
        "enforced": dict(report.enforced),
        "degraded": list(report.degraded),
        "reasons": list(report.reasons),
        **({"node": report.node} if report.node else {}),
    }


def has_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and nobody said not to (NO_COLOR, --no-color)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _columns() -> int:
    """The width of the terminal."""
    from shutil import get_terminal_size

    return get_terminal_size().columns


def print_columns(rows: Iterable[Sequence[str]]) -> None:
    """Two columns: names aligned, descriptions cut to the terminal's width (whole when stdout is no terminal)."""
    table = [tuple(safe(cell) for cell in row) for row in rows]
    width = max((len(row[0]) for row in table), default=0)
    room = _columns() - width - 2 if sys.stdout.isatty() else None
    bold = has_colour(sys.stdout)
    lines = []
    for name, text in table:
        shown = text if room is None or len(text) <= room else text[: max(room - 1, 20)] + "…"
        lines.append(f"{_styled(f'{name:<{width}}', _BOLD, bold)}  {shown}".rstrip())
    _print_lines(lines, styled=bold)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], below: Sequence[Sequence[str]] = ()) -> None:
    """A table with headings, columns aligned, numbers to the right; nothing is cut.

    ``below`` has lines of text for below each row: wrapped on a terminal, whole elsewhere.
    """
    table = [tuple(safe(cell) for cell in row) for row in rows]
    numbers = [at for at in range(len(headings)) if all(row[at].replace(",", "").isdigit() for row in table)]
    heading, *aligned = _aligned([headings, *table], numbers)
    width = max(len(row[0]) for row in (headings, *table))
    styled = has_colour(sys.stdout)
    lines = [_styled(heading, _DIM, styled)] if table else []
    for at, line in enumerate(aligned):
        lines.append(_styled(line[:width], _BOLD, styled) + line[width:])
        for text in below[at] if below else ():
            lines += [f"    {part}" for part in _wrapped(safe(text))]
    _print_lines(lines, styled=styled)


def print_aligned(rows: Sequence[Sequence[str]], right: range = range(0)) -> None:
    """A plain table of cells that are safe already, the columns of ``right`` to the right; nothing is cut."""
    print("\n".join(_aligned(rows, right)))


def _aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{wide}}" if at in right else f"{cell:<{wide}}"
            for at, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def share(value: float | None) -> str:
    """A share in percent, or a dash."""
    return "-" if value is None else f"{value:.1%}"


def _wrapped(text: str) -> list[str]:
    if not sys.stdout.isatty():
        return [text]
    import textwrap

    return textwrap.wrap(text, max(20, _columns() - 4)) or [""]


_BOLD, _DIM, _RED, _GREEN = "1", "2", "31", "32"


def _styled(text: str, code: str, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on and text else text


def say_state(text: str, *, good: bool) -> None:
    """One line on stderr, in green or red where the terminal has colours. The text is shown without what it obeys."""
    styled = has_colour(sys.stderr)
    line = _styled(visible(text), _GREEN if good else _RED, styled)
    stream = unprotected(sys.stderr) if styled else sys.stderr
    print(line, file=stream, flush=True)


def _print_lines(lines: Sequence[str], *, styled: bool) -> None:
    """Print lines; with styles past the protection of the terminal, so the cells must be safe already."""
    if not lines:
        return
    sys.stdout.flush()
    stream = unprotected(sys.stdout) if styled else sys.stdout
    print("\n".join(lines), file=stream, flush=styled)


class Progress:
    """How far a piece of work is, on one line of a terminal's stderr, from its first second on; gone at the end."""

    def __init__(self, doing: str, total: int | None = None) -> None:
        self._doing = doing
        self._total = total
        self._done = 0
        self._start = time.monotonic()
        self._next = self._start + _PROGRESS_AFTER_SECONDS
        self._drawn = False
        self._possible = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._drawn:
            print(_ERASE, end="", file=unprotected(sys.stderr), flush=True)

    def step(self, name: str) -> None:
        """The next thing is begun."""
        now = time.monotonic()
        if self._possible and now >= self._next:
            self._next = now + _PROGRESS_EVERY_SECONDS
            rate = self._done / (now - self._start)
            of = f" of {self._total:,}" if self._total is not None else ""
            line = f"{self._doing} {self._done:,}{of} ({rate:,.0f}/s): {safe(name)}"
            room = max(0, _columns() - 1)
            print(_ERASE + line[:room], end="", file=unprotected(sys.stderr), flush=True)
            self._drawn = True
        self._done += 1


_ERASE = "\r\x1b[K"
_PROGRESS_AFTER_SECONDS = 1.0
_PROGRESS_EVERY_SECONDS = 0.1


def print_diagnostics(diagnostics: Sequence[Diagnostic], *, all_of_them: bool) -> None:
    """Diagnostics on stderr: all, or a count of what an owner should look at."""
    if all_of_them:
        for diagnostic in diagnostics:
            print(safe(str(diagnostic)), file=sys.stderr)
        return
    counts = {
        severity: sum(diagnostic.severity is severity for diagnostic in diagnostics)
        for severity in (Severity.ERROR, Severity.WARNING)
    }
    found = ", ".join(f"{count} {severity}{'s' if count != 1 else ''}" for severity, count in counts.items() if count)
    if found:
        them = "it" if sum(counts.values()) == 1 else "them"
        print(f"{found} (--diagnostics shows {them})", file=sys.stderr)


# Sentences are written for a model or for a developer in Python; here options take the place of arguments.
_FOR_COMMAND_LINE = (
    (r" (?:Do it without them, or tell the user|Tell the user)\.", ""),
    (r": do it another way, or tell the user that the owner has to add it\.", "."),
    (
        r"Do the work another way, or tell the user that the owner has to install it\.",
        "Install it, or name another program with --interpreter SUFFIX=COMMAND.",
    ),
    (
        r"Do not retry; do it without the network, or tell the user\.",
        'A policy file opens hosts: --policy-file FILE, with network = {mode = "allow", hosts = ["..."]}; not in '
        "containers.",
    ),
    (
        r"What it printed until then is in stdout\. Give it less work, or tell the user\.",
        "Give it more time with --timeout SECONDS, or less work.",
    ),
    (r"Give it less data\.", "Give it more with --memory-mb MIB, or less data."),
    (r"min_isolation='(\w+)'", r"--min-isolation \1"),
    (r"sandbox='(\w+)'", r"--sandbox \1"),
    (r"SandboxPolicy\(python=\.\.\.\)", "--python PATH"),
    (r"grants=\{\"[^\"]+\": Grant\(env=\{\"(\w+)\": Secret\(\.\.\.\)\}\)\}", r"add --secret \1 to adk-skills run"),
    (
        r"grants=\{\"([^\"]+)\": Grant\((hosts|programs)=\[([^\]]*)\]\)\}",
        r"add --permissions FILE to adk-skills run, a YAML file with grants: {\1: {\2: [\3]}}",
    ),
)


def for_command_line(sentence: str) -> str:
    """A message with hints for whoever reads it at a shell: options where it names arguments of Python."""
    for pattern, replacement in _FOR_COMMAND_LINE:
        sentence = re.sub(pattern, replacement, sentence)
    return sentence


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 package``, ``2 packages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Several lines of a stranger's text for a terminal: line breaks stay, control characters become blanks."""
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def safe(text: str) -> str:
    """Text of a stranger's file for a terminal: on one line and without control characters (escape sequences)."""
    return in_one_line(text)


# Putting files that a script produced onto the user's disk.


def check_output_folder(folder: Path, option: str = "--output") -> None:
    """Find out before anything runs whether files can be put there. Raises ``ConfigError`` when they cannot."""
    refuse_links(folder, option)
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ConfigError(f"{option} {safe(str(folder))}: {safe(str(nearest))} is not a folder. Give another one.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"{option} {safe(str(folder))} cannot be written. Give a folder that you may write to.")


def refuse_links(folder: Path, option: str) -> None:
    """Refuse a link on the relative way to a folder for results.

    A cloned repository may bring one that leads to ``.git`` or the home folder, under the name of the default (row
    186). Raises ``ConfigError`` when there is one.
    """
    meant = os.path.normpath(os.path.join(os.path.realpath(os.curdir), folder))  # noqa: PTH118 - ".." of the name
    if not folder.is_absolute() and os.path.realpath(folder) != meant:
        raise ConfigError(
            f"{option} {safe(str(folder))}: a link leads to {safe(os.path.realpath(folder))}, so nothing is put there. "
            "Remove the link, or name that folder itself."
        )


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write each file below ``folder``, aside first and then renamed; never through a link that leads out of it.

    A file that cannot be written is said on stderr and left out of the result, and so is one called HEAD: git may take
    its folder for a repository, whose settings run programs (row 420). Returns the paths written, in order.
    """
    written = []
    for name, content in files.items():
        target = folder / name
        try:
            if target.name.casefold() == "head":
                raise OSError(errno.EPERM, "with other files git would take its folder for a repository")
            make_folder_below(folder, Path(name).parent)
            write_whole(target, content)
        except OSError as error:
            print(f"adk-skills: not written: {safe(str(target))}: {safe(error.strerror or '')}", file=sys.stderr)
        else:
            written.append(str(target))
    return written


# A running script on a terminal: its output as it arrives, and one line that says what it uses, gone at the end.


class LiveOutput:
    """Writes a script's output, on a terminal so that it cannot command it; below it, there, what the script uses.

    The line is on stderr, is never drawn over an unfinished line of the script, and is erased before anything else is
    written. ``raw`` writes the script's bytes as they are to a terminal, too.
    """

    def __init__(self, *, status: bool, raw: bool = False) -> None:
        self._shown = {
            name: VisibleBytes(stream.encoding or "ascii")
            for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr))
            if stream.isatty() and not raw
        }
        self._possible = status and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._own = unprotected(sys.stderr) if self._possible else sys.stderr
        self._drawn = False
        self._unfinished = False

    def output(self, event: OutputEvent) -> None:
        """The next piece of the script's output, to the stream it wrote to."""
        self.clear()
        if event.left_out:
            newline = "\n" if self._unfinished else ""
            self._write(f"{newline}adk-skills: ... {event.left_out:,} bytes of {event.stream} not shown ...\n")
        target = sys.stdout if event.stream == "stdout" else sys.stderr
        shown = self._shown.get(event.stream)
        target.buffer.write(event.data if shown is None else shown.feed(event.data))
        target.buffer.flush()
        if self._possible and target.isatty():
            self._unfinished = not event.data.endswith(b"\n")

    def sample(self, sample: ResourceSample) -> None:
        """The resources that the script uses now."""
        if not self._possible or self._unfinished:
            return
        count = f"{sample.processes} process{'es' if sample.processes != 1 else ''}"
        line = f"running {sample.seconds:.1f} s, {sample.memory_bytes / (1 << 20):.0f} MiB, {count}"
        # A line that wraps could not be erased.
        self._write(_ERASE + line[: max(0, _columns() - 1)])
        self._drawn = True

    def clear(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._drawn = False
            self._write(_ERASE)

    def close(self) -> None:
        """Erase the line, and write what was held back of a cut character."""
        self.clear()
        for name, shown in self._shown.items():
            target = sys.stdout if name == "stdout" else sys.stderr
            target.buffer.write(shown.feed(b"", final=True))
            target.buffer.flush()

    def _write(self, text: str) -> None:
        self._own.write(text)
        self._own.flush()
