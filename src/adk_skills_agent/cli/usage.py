"""``adk-skills usage``: what an audit log says about each skill (S4-30)."""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import click

from adk_skills_agent.cli.output import print_aligned, print_json, safe
from adk_skills_agent.cli.sources import a_path, json_option
from adk_skills_agent.errors import ConfigError

EXAMPLES = """\b
Examples:
  adk-skills usage audit.jsonl
  adk-skills usage audit.jsonl --since 7d
  adk-skills usage logs/agent-*.jsonl --since 2026-11-01 --json
  adk-skills usage audit.jsonl --html usage.html

\b
The log is written by the toolset:
  SkillToolset.from_dirs(["skills"], audit_log="audit.jsonl")

\b
What the columns say:
  act.      activations: how often its instructions came into force
  dropped   released again: unloaded, no room in the budget, expired
  reads     files of the skill the model read
  runs      scripts that were started, and how many of them failed
  median    wall time of the runs; 95 % of them took at most p95
  tokens    of its instructions (estimated), which every request pays for while it is active
  failures  of runs, reads and activations, by reason
"""
_AGE = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@click.command("usage", epilog=EXAMPLES)
@click.argument("logs", nargs=-1, required=True, type=a_path, metavar="LOG...")
@click.option("--since", metavar="WHEN", help="Only later events: 30m, 24h, 7d, 2w, or a date such as 2026-11-01.")
@click.option("--html", "page", type=a_path, metavar="FILE", help="Also write a page with charts, in one file.")
@json_option
def command(logs: tuple[Path, ...], since: str | None, page: Path | None, as_json: bool) -> None:
    """Show how skills are used: activations, failures, latency, tokens.

    Reads the audit logs LOG and what was rotated out of them (LOG.1, LOG.2...). Lines that are no events, such as a
    torn last one, are counted and named on stderr. Exit code 1 when the logs have no event.
    """
    start = _start(since)
    reading = Reading()
    kinds: Counter[str] = Counter()
    figures = figures_of(read_events(log_files(logs), reading, start), kinds)
    if page is not None:
        _write_page(page, figures, reading)
    if as_json:
        print_json(_summary(figures, reading, start, kinds))
    elif figures:
        _print_table(figures)
    _print_notes(reading)
    if page is not None:
        print(f"Written: {safe(str(page))}", file=sys.stderr)
    if not reading.events:
        print("There is no event in the log" + (" since then." if start else "."), file=sys.stderr)
        raise click.exceptions.Exit(1)


def _start(since: str | None) -> datetime | None:
    if since is None:
        return None
    age = _AGE.fullmatch(since.strip())
    try:
        if age:
            return datetime.now(UTC) - int(age[1]) * _UNITS[age[2]]
        start = datetime.fromisoformat(since.strip())
        return start.astimezone(UTC)  # a time without a zone is the user's own
    except (ValueError, OverflowError):
        raise ConfigError(f"--since {since!r} is no time. Write 30m, 24h, 7d, 2w, or a date: 2026-11-01.") from None


def _write_page(page: Path, figures: Sequence[SkillFigures], reading: Reading) -> None:
    from adk_skills_agent.cli.output import check_output_folder, write_files

    if page.is_dir():
        raise ConfigError(f"--html {safe(str(page))} is a folder. Give the name of a file in it.")
    check_output_folder(page.parent, "--html")
    if not write_files(page.parent, {page.name: usage_page(figures, reading).encode("utf-8", "replace")}):
        raise ConfigError(f"--html {safe(str(page))} was not written.")


def _summary(
    figures: Sequence[SkillFigures], reading: Reading, start: datetime | None, kinds: Counter[str]
) -> dict[str, object]:
    return {
        "logs": [str(path) for path in reading.files],
        "since": start.isoformat() if start else None,
        "first": reading.first.isoformat() if reading.first else None,
        "last": reading.last.isoformat() if reading.last else None,
        "events": reading.events,
        "by_event": dict(sorted(kinds.items())),
        "lost_events": reading.lost,
        "skipped_lines": reading.skipped,
        "skipped": reading.notes,
        "skills": [one.to_dict() for one in figures],
    }


def _print_table(figures: Sequence[SkillFigures]) -> None:

    heads = ("skill", "act.", "dropped", "reads", "runs", "failed", "median", "p95", "tokens", "failures")
    rows = [
        (
            safe(one.name),
            str(one.activations),
            str(one.drops.total()),
            str(one.reads),
            str(one.runs),
            str(one.failed_runs),
            duration(one.median_seconds),
            duration(one.p95_seconds),
            f"{one.tokens:,}",
            safe(", ".join(f"{reason} {count}" for reason, count in one.failures.most_common())),
        )
        for one in figures
    ]
    print_aligned([heads, *rows], range(1, len(heads) - 1))


def _print_notes(reading: Reading) -> None:
    for note in reading.notes:
        print(f"adk-skills: skipped: {safe(note)}", file=sys.stderr)
    if reading.skipped > len(reading.notes):
        print(f"adk-skills: skipped: {reading.skipped - len(reading.notes):,} more lines", file=sys.stderr)
    if reading.lost:
        print(
            f"adk-skills: {reading.lost:,} events are missing: the disk did not keep up when they came", file=sys.stderr
        )


# What the events of a log add up to, for each skill.


@dataclass(slots=True)
class SkillFigures:
    """What happened with one skill."""

    name: str
    activations: int = 0  # how often it came into force; loading it again while it is active does not count
    drops: Counter[str] = field(default_factory=Counter)  # how often it was released, by reason
    reads: int = 0
    runs: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # what failed (runs, reads, activations), by reason
    failed_runs: int = 0
    seconds: list[float] = field(default_factory=list)  # wall time of each run
    tokens: int = 0  # estimated tokens of its instructions at the last activation
    tokens_total: int = 0  # summed over its activations
    approvals: Counter[str] = field(default_factory=Counter)  # questions and decisions, by kind
    guard: int = 0  # misses that the retry guard counted
    sessions: set[tuple[str, str, str]] = field(default_factory=set)  # in how many sessions it was active

    @property
    def median_seconds(self) -> float | None:
        """Of the runs' wall time; None without runs."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def p95_seconds(self) -> float | None:
        """The wall time that 95 % of the runs stay within; None without runs."""
        if not self.seconds:
            return None
        return sorted(self.seconds)[math.ceil(0.95 * len(self.seconds)) - 1]

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "skill": self.name,
            "activations": self.activations,
            "sessions": len(self.sessions),
            "drops": dict(self.drops.most_common()),
            "reads": self.reads,
            "runs": self.runs,
            "failed_runs": self.failed_runs,
            "failures": dict(self.failures.most_common()),
            "median_seconds": _rounded(self.median_seconds),
            "p95_seconds": _rounded(self.p95_seconds),
            "tokens": self.tokens,
            "tokens_total": self.tokens_total,
            "approvals": dict(self.approvals.most_common()),
            "guard_trips": self.guard,
        }


UNKNOWN = "(unknown)"
"""The row for calls that name an unknown skill: a model may invent any number of names."""


def figures_of(events: Iterable[Mapping[str, Any]], kinds: Counter[str] | None = None) -> list[SkillFigures]:
    """One row for each skill, the most used first; what was asked of skills that do not exist is one row, the last.

    ``kinds`` counts the events by their names, also those that are about no skill.
    """
    skills: dict[str, SkillFigures] = {}
    for event in events:
        name = event.get("skill")
        if kinds is not None:
            kinds[event["event"]] += 1
        if event["event"] == "SkillDiscovered" or not isinstance(name, str):
            continue
        if not name and event["event"] in {"CommandStarted", "CommandFinished"}:
            continue  # a command that is no skill's
        missed_name = False
        if event["event"] == "GuardTripped":
            if not name:
                continue  # a call that names no skill
            missed_name = event.get("kind") in {"skill", "registry"}
        if not name or missed_name or event.get("error_code") == "SKILL_NOT_FOUND":
            name = UNKNOWN
        figures = skills.get(name)
        if figures is None:
            figures = skills[name] = SkillFigures(name)
        _add(figures, event)
    return sorted(skills.values(), key=lambda one: (one.name == UNKNOWN, -one.activations, -one.runs, one.name))


def duration(seconds: float | None) -> str:
    """Seconds for a person, such as ``85 ms`` or ``2.4 s``; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:,.0f} s"


def _add(figures: SkillFigures, event: Mapping[str, Any]) -> None:
    error = _text(event.get("error_code"))
    match event["event"]:
        case "SkillActivated":
            if error:
                figures.failures[error] += 1
                return
            figures.tokens = _count(event.get("tokens"))
            where = (_text(event.get("app")), _text(event.get("user")), _text(event.get("session")))
            figures.sessions.add(where)
            if not event.get("again"):
                figures.activations += 1
                figures.tokens_total += figures.tokens
        case "SkillDropped":
            figures.drops[_text(event.get("reason")) or "other"] += 1
        case "ResourceRead":
            if error:
                figures.failures[error] += 1
            else:
                figures.reads += 1
        case "ScriptFinished":
            _add_run(figures, event, error)
        case "HostRefused":
            figures.failures["host_refused"] += 1
        case "ApprovalRequested":
            figures.approvals["requested"] += 1
        case "ApprovalDecided":
            figures.approvals[_text(event.get("decision")) or "other"] += 1
        case "GuardTripped":
            figures.guard += 1


def _add_run(figures: SkillFigures, event: Mapping[str, Any], error: str) -> None:
    started = bool(event.get("run"))
    reason = _text(event.get("reason"))
    if event.get("status") == "error":
        # "exit_code" says more than EXECUTION_ERROR, and SCRIPT_NOT_FOUND more than "not_started"
        figures.failures[(reason if started else "") or error or reason or "other"] += 1
        figures.failed_runs += started
    if started:
        figures.runs += 1
        seconds = event.get("seconds")
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_NUMBER:
            figures.seconds.append(float(seconds))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# Reading audit logs back: every line that is an event, and a note of every line that is not.

_EVENT_NAMES = (
    "SkillDiscovered SkillActivated SkillDropped ResourceRead ScriptStarted ScriptFinished CommandStarted "
    "CommandFinished ScriptOutput HostRefused FileReceived WorkspaceStored ApprovalRequested ApprovalDecided "
    "GuardTripped"
)
EVENTS = frozenset(_EVENT_NAMES.split())
LOST = "EventsLost"
MAX_LINE_BYTES = 1 << 20
"""No event is longer; what is, is no log of ours, and is not read into memory."""
MAX_NUMBER = 1_000_000_000_000
"""No number of an event is larger; what is, was not written by us, and no sum of it could be printed."""
_NAMED_LINES = 20


@dataclass(slots=True)
class Reading:
    """The events read so far; filled by :func:`read_events`.

    Attributes:
        files: The files, oldest first.
        events: How many events were in them, within the time asked for.
        lost: How many events the log itself says are missing.
        notes: Place and reason of the first of these.
    """

    files: list[Path] = field(default_factory=list)
    events: int = 0
    lost: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    first: datetime | None = None
    last: datetime | None = None

    def skip(self, path: Path, line: int, why: str) -> None:
        """Note a line that is no event."""
        self.skipped += 1
        if len(self.notes) < _NAMED_LINES:
            self.notes.append(f"{path}, line {line}: {why}")


def log_files(logs: Sequence[Path]) -> list[Path]:
    """The logs and what was rotated out of them (``LOG.1``, ``LOG.2``...), each once, oldest first.

    Raises ``ConfigError`` when one does not exist.
    """
    found: dict[Path, None] = {}
    for log in logs:
        path = log.expanduser()
        rotated: dict[int, Path] = {}
        for sibling in path.parent.glob(f"{_literal(path.name)}.*"):
            suffix = sibling.name.removeprefix(f"{path.name}.")
            if suffix.isascii() and suffix.isdigit() and sibling.is_file():
                rotated[int(suffix)] = sibling
        if not path.is_file() and not rotated:
            what = "is no file" if path.exists() else "does not exist"
            raise ConfigError(f"The log {path} {what}. Name the file given as audit_log.")
        for number in sorted(rotated, reverse=True):
            found[rotated[number]] = None
        if path.is_file():
            found[path] = None
    return list(found)


def read_events(files: Sequence[Path], reading: Reading, since: datetime | None = None) -> Iterator[dict[str, Any]]:
    """The events of the files, in their order. Raises ``OSError`` when a file cannot be read."""
    for path in files:
        reading.files.append(path)
        for number, line in _lines(path):
            record = _record(line)
            if isinstance(record, str):
                reading.skip(path, number, record)
                continue
            time = _time(record.get("time"))
            if time is None:
                reading.skip(path, number, "it has no time")
                continue
            if since is not None and time < since:
                continue
            if record["event"] == LOST:
                count = record.get("count")
                reading.lost += count if isinstance(count, int) and 0 < count <= MAX_NUMBER else 0
                continue
            reading.events += 1
            reading.first = min(reading.first or time, time)
            reading.last = max(reading.last or time, time)
            yield record


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            yield number, line
            while not line.endswith(b"\n") and (line := stream.readline(MAX_LINE_BYTES)):
                pass  # the rest of a line that is too long


def _record(line: bytes) -> dict[str, Any] | str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "it is torn or no JSON"
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        return "it is no event"
    if record["event"] not in EVENTS and record["event"] != LOST:
        return f"there is no event {record['event'][:40]!r}"
    return record


def _time(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


def _literal(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


# The figures of a log as one HTML page: charts in inline SVG, nothing fetched, readable on a phone.

CHARTED = 15
"""Skills in each chart; the table has all of them."""
_Part = tuple[float, str]
"""A length and the class it is drawn in."""


def usage_page(figures: Sequence[SkillFigures], reading: Reading) -> str:
    """The whole page."""
    from adk_skills_agent.evals.report.sections import html_page

    charts = [
        _chart(
            "Activations",
            "How often a skill's instructions came into force.",
            figures,
            lambda one: ([(one.activations, "ok")], f"{one.activations:,}"),
        ),
        _chart(
            "Script runs",
            "Failed runs in the second colour.",
            figures,
            lambda one: (
                [(one.runs - one.failed_runs, "ok"), (one.failed_runs, "bad")],
                f"{one.runs:,}" + (f", {one.failed_runs:,} failed" if one.failed_runs else ""),
            ),
        ),
        _chart("Failures", "Of runs, reads and activations, by reason.", figures, _failures),
        _chart("Latency", "Median of the runs' wall time; pale: up to the 95th percentile.", figures, _latency),
        _chart(
            "Tokens of instructions",
            "What every request pays for while the skill is active (estimated).",
            figures,
            lambda one: ([(one.tokens, "ok")], f"{one.tokens:,}"),
        ),
    ]
    body = "".join(charts) if figures else "<p>There is no event in the log.</p>"
    return html_page(
        "Use of skills", f"<h1>Use of skills</h1>{_introduction(figures, reading)}\n{body}{_table(figures)}"
    )


def _introduction(figures: Sequence[SkillFigures], reading: Reading) -> str:
    period = ""
    if reading.first is not None and reading.last is not None:
        period = f", {reading.first:%Y-%m-%d %H:%M} to {reading.last:%Y-%m-%d %H:%M} UTC"
    sentences = [f"{reading.events:,} events of {len(figures):,} skills{period}."]
    if reading.skipped:
        sentences.append(f"{reading.skipped:,} lines were no events and are left out.")
    if reading.lost:
        sentences.append(f"{reading.lost:,} events are missing in the log.")
    logs = ", ".join(path.name for path in reading.files)
    return f'<p>{escape(" ".join(sentences))}</p><p class="note">{escape(safe(logs))}</p>'


def _chart(
    title: str,
    about: str,
    figures: Sequence[SkillFigures],
    bar: Callable[[SkillFigures], tuple[list[_Part], str]],
) -> str:
    bars = [(one.name, *bar(one)) for one in figures]
    bars = [(name, parts, label) for name, parts, label in bars if sum(length for length, _ in parts) > 0]
    if not bars:
        return ""
    bars.sort(key=lambda one: -sum(length for length, _ in one[1]))
    longest = sum(length for length, _ in bars[0][1])
    drawn = "\n".join(_bar(name, parts, label, longest) for name, parts, label in bars[:CHARTED])
    more = f'<p class="note">And {len(bars) - CHARTED:,} more; see the table.</p>' if len(bars) > CHARTED else ""
    return f'<section><h2>{title}</h2><p class="note">{about}</p>\n{drawn}{more}</section>\n'


def _bar(name: str, parts: Sequence[_Part], label: str, longest: float) -> str:
    rects, start = [], 0.0
    for length, kind in parts:
        width = 100 * length / longest
        if width > 0:
            rects.append(f'<rect class="{kind}" x="{start:.3f}" y="0" width="{width:.3f}" height="10"/>')
        start += width
    text = escape(safe(name))
    return (
        f'<div class="bar"><div><span>{text}</span><span>{escape(safe(label))}</span></div>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{text}: {escape(safe(label))}">'
        f"{''.join(rects)}</svg></div>"
    )


def _failures(one: SkillFigures) -> tuple[list[_Part], str]:
    count = one.failures.total()
    return [(count, "bad")], ", ".join(f"{reason} {times:,}" for reason, times in one.failures.most_common(4))


def _latency(one: SkillFigures) -> tuple[list[_Part], str]:
    median, p95 = one.median_seconds or 0.0, one.p95_seconds or 0.0
    return [(median, "ok"), (max(p95 - median, 0), "soft")], f"{duration(median)}, p95 {duration(p95)}"


def _table(figures: Sequence[SkillFigures]) -> str:
    if not figures:
        return ""
    heads = ("Skill", "Activations", "Sessions", "Dropped", "Reads", "Runs", "Failed", "Median", "p95", "Tokens")
    rows = []
    for one in figures:
        failures = ", ".join(f"{reason} {count:,}" for reason, count in one.failures.most_common())
        counts = (one.activations, len(one.sessions), one.drops.total(), one.reads, one.runs, one.failed_runs)
        cells = (
            one.name,
            *(f"{count:,}" for count in counts),
            duration(one.median_seconds),
            duration(one.p95_seconds),
            f"{one.tokens:,}",
            failures,
        )
        rows.append("<tr>" + "".join(f"<td>{escape(safe(cell))}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in (*heads, "Failures by reason"))
    return (
        f'<section><h2>All skills</h2><div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>'
        f"{''.join(rows)}</tbody></table></div></section>\n"
    )
