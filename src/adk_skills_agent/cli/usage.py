"""``adk-skills usage``: what an audit log says about each skill (S4-30)."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, json_option
from adk_skills_agent.errors import ConfigError

if TYPE_CHECKING:
    from adk_skills_agent.cli.usage_figures import SkillFigures
    from adk_skills_agent.cli.usage_log import Reading

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
    from adk_skills_agent.cli.usage_figures import figures_of
    from adk_skills_agent.cli.usage_log import Reading, log_files, read_events

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
    from adk_skills_agent.cli.files import check_output_folder, write_files
    from adk_skills_agent.cli.usage_page import usage_page

    if page.is_dir():
        raise ConfigError(f"--html {safe(str(page))} is a folder. Give the name of a file in it.")
    check_output_folder(page.parent)
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
    from adk_skills_agent.cli.usage_figures import duration

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
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        print("  ".join([*cells, row[-1]]).rstrip())


def _print_notes(reading: Reading) -> None:
    for note in reading.notes:
        print(f"adk-skills: skipped: {safe(note)}", file=sys.stderr)
    if reading.skipped > len(reading.notes):
        print(f"adk-skills: skipped: {reading.skipped - len(reading.notes):,} more lines", file=sys.stderr)
    if reading.lost:
        print(
            f"adk-skills: {reading.lost:,} events are missing: the disk did not keep up when they came", file=sys.stderr
        )
