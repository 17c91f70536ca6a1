"""Reading audit logs back: every line that is an event, and a note of every line that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError

EVENTS = frozenset(
    {
        "SkillDiscovered",
        "SkillActivated",
        "SkillDropped",
        "ResourceRead",
        "ScriptStarted",
        "ScriptFinished",
        "ApprovalRequested",
        "ApprovalDecided",
        "GuardTripped",
    }
)
LOST = "EventsLost"
MAX_LINE_BYTES = 1 << 20
"""No event is longer; what is, is no log of ours, and is not read into memory."""
MAX_NUMBER = 1_000_000_000_000
"""No number of an event is larger; what is, was not written by us, and no sum of it could be printed."""
_NAMED_LINES = 20


@dataclass(slots=True)
class Reading:
    """What was read, filled in while :func:`read_events` goes on.

    Attributes:
        files: The files, oldest first.
        events: How many events were in them, within the time asked for.
        lost: How many events the log itself says are missing.
        skipped: How many lines were no events.
        notes: Place and reason of the first of these.
        first: The earliest event's time, or None.
        last: The latest event's time, or None.
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

    Raises:
        ConfigError: One does not exist.
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
    """The events of the files, in their order.

    Args:
        files: As :func:`log_files` gives them.
        reading: Filled in on the way.
        since: Earlier events are passed over.

    Raises:
        OSError: A file cannot be read.
    """
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
