#!/usr/bin/env python3
"""Summarise a log: levels, statuses, commonest messages, slow requests, time range. JSON on stdout."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ACCESS = re.compile(
    r'(?P<host>\S+) \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>\d{3}) (?P<size>\d+|-)'
    r'(?: "[^"]*" "[^"]*")?(?: (?P<seconds>\d+\.\d+))?\s*'
)
LEVEL = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[-+]\d\d:?\d\d)?)\s+"
    r"\[?(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?:?\s+(?P<message>.*)",
    re.IGNORECASE,
)
ORDER = {"TRACE": 0, "DEBUG": 0, "INFO": 1, "NOTICE": 1, "WARN": 2, "WARNING": 2, "ERROR": 3, "CRITICAL": 4, "FATAL": 4}
NAMES = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
CHANGING = re.compile(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{12,}\b|\d+(?:[.:]\d+)*", re.IGNORECASE)
EXAMPLE_CHARS = 300


class Problem(Exception):
    """Something the caller can put right."""


@dataclass
class Entry:
    """A line that was understood."""

    format: str
    time: datetime | None
    message: str
    line: str
    level: str = ""
    status: int = 0
    seconds: float | None = None


def moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def entry(line: str) -> Entry | None:
    if line.startswith("{"):
        try:
            data = json.loads(line)
        except ValueError:
            return None
        text = str(data.get("message", data.get("msg", "")))
        level = str(data.get("level", data.get("severity", ""))).upper()
        time = moment(str(data.get("time", data.get("timestamp", data.get("ts", "")))))
        status = data.get("status")
        known = NAMES[ORDER[level]] if level in ORDER else ""
        return Entry("json", time, text, line, known, status if isinstance(status, int) else 0)
    if match := ACCESS.fullmatch(line):
        words = match["request"].split()
        path = words[1].partition("?")[0] if len(words) > 1 else match["request"]
        message = f"{words[0] if words else '-'} {path} {match['status']}"
        seconds = float(match["seconds"]) if match["seconds"] else None
        return Entry("access", moment(match["time"]), message, line, "", int(match["status"]), seconds)
    if match := LEVEL.fullmatch(line):
        level = NAMES[ORDER[match["level"].upper()]]
        return Entry("level", moment(match["time"]), match["message"], line, level)
    return None


def wanted(one: Entry, options: argparse.Namespace, since: datetime | None, until: datetime | None) -> bool:
    if options.level and (not one.level or ORDER[one.level] < ORDER[options.level]):
        return False
    if options.status and not re.fullmatch(options.status.lower().replace("x", r"\d"), str(one.status)):
        return False
    if (since or until) and one.time is None:
        return False
    if one.time is not None and ((since and one.time < since) or (until and one.time > until)):
        return False
    return not options.contains or options.contains.lower() in one.line.lower()


def boundary(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    found = moment(text)
    if found is None:
        raise Problem(f"{option} {text!r}: write a time as 2025-03-01T10:00.")
    return found


def parse(lines: Iterator[str], options: argparse.Namespace) -> dict[str, object]:
    since, until = boundary(options.since, "--since"), boundary(options.until, "--until")
    if options.status and not re.fullmatch(r"[1-5][\dxX]{2}", options.status):
        raise Problem(f"--status {options.status!r}: write 404 or 5xx.")
    formats, levels, statuses, messages = Counter(), Counter(), Counter(), Counter()
    examples: dict[str, str] = {}
    slow: list[tuple[float, str]] = []
    first = last = None
    total = unparsed = continued = matched = 0
    for raw in lines:
        line = raw.rstrip("\r\n")
        if not line.strip():
            continue
        total += 1
        if line[0] in " \t":
            continued += 1
            continue
        one = entry(line)
        if one is None:
            unparsed += 1
            continue
        formats[one.format] += 1
        if not wanted(one, options, since, until):
            continue
        matched += 1
        if one.level:
            levels[one.level] += 1
        if one.status:
            statuses[str(one.status)] += 1
        # A path or a status is what tells requests apart; elsewhere numbers are noise.
        shape = one.message if one.format == "access" else CHANGING.sub("#", one.message)
        messages[shape] += 1
        examples.setdefault(shape, line[:EXAMPLE_CHARS])
        if one.seconds is not None:
            slow = sorted([*slow, (one.seconds, line[:EXAMPLE_CHARS])], reverse=True)[: options.top]
        if one.time is not None:
            first = min(first, one.time) if first else one.time
            last = max(last, one.time) if last else one.time
    failed = sum(count for status, count in statuses.items() if status >= "500")
    return {
        "lines": total,
        "matched": matched,
        "unparsed": unparsed,
        "continued": continued,
        "formats": dict(formats),
        "levels": {name: levels[name] for name in NAMES if levels[name]},
        "statuses": dict(sorted(statuses.items())),
        "server_error_rate": round(failed / statuses.total(), 4) if statuses else None,
        "first": first.isoformat() if first else None,
        "last": last.isoformat() if last else None,
        "top": [
            {"count": count, "message": shape, "example": examples[shape]}
            for shape, count in sorted(messages.items(), key=lambda one: (-one[1], one[0]))[: options.top]
        ],
        "slowest": [{"seconds": seconds, "line": line} for seconds, line in slow],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Summarise a log.", allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="PATH", help="the log file")
    source.add_argument("--text", help="the lines themselves")
    parser.add_argument("--level", choices=NAMES, type=str.upper, help="this level and worse")
    parser.add_argument("--status", metavar="CODE", help="404, or 5xx")
    parser.add_argument("--since", metavar="TIME")
    parser.add_argument("--until", metavar="TIME")
    parser.add_argument("--contains", metavar="TEXT")
    parser.add_argument("--top", type=int, default=5, metavar="N")
    options = parser.parse_args()
    try:
        if options.text is not None:
            found = parse(iter(options.text.splitlines()), options)
        else:
            with Path(options.input).open(encoding="utf-8", errors="replace") as file:
                found = parse(iter(file), options)
    except (Problem, OSError) as error:
        print(f"parse_log.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
