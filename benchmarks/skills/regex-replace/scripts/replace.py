#!/usr/bin/env python3
"""Search and replace with a regular expression, showing each change. JSON on stdout."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

MOST_SHOWN = 50
SHOWN_CHARS = 20_000


class Problem(Exception):
    """Something the caller can put right."""


def compiled(options: argparse.Namespace) -> re.Pattern[str]:
    flags = re.IGNORECASE * options.ignore_case | re.MULTILINE * options.multiline | re.DOTALL * options.dot_all
    try:
        return re.compile(re.escape(options.pattern) if options.literal else options.pattern, flags)
    except re.error as error:
        raise Problem(f"--pattern is no regular expression: {error}.") from None


def replace(text: str, options: argparse.Namespace) -> tuple[str, list[dict[str, object]]]:
    pattern = compiled(options)
    changes: list[dict[str, object]] = []
    line, counted = 1, 0

    def one(match: re.Match[str]) -> str:
        nonlocal line, counted
        try:
            after = options.replacement if options.literal else match.expand(options.replacement)
        except (re.error, IndexError) as error:
            raise Problem(f"--replacement does not fit the pattern: {error}.") from None
        line += text.count("\n", counted, match.start())
        counted = match.start()
        changes.append({"line": line, "before": match[0], "after": after})
        return after

    new = pattern.sub(one, text, count=options.count)
    if options.expect is not None and len(changes) != options.expect:
        raise Problem(f"--expect {options.expect}: the pattern matches {len(changes)} times. Nothing was written.")
    return new, changes


def main() -> int:
    parser = argparse.ArgumentParser(description="Search and replace.", allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="PATH", help="the text file")
    source.add_argument("--text", help="the text itself")
    parser.add_argument("--pattern", required=True)
    parser.add_argument("--replacement", required=True, help="may hold \\1 or \\g<name>")
    parser.add_argument("--ignore-case", action="store_true")
    parser.add_argument("--multiline", action="store_true")
    parser.add_argument("--dot-all", action="store_true")
    parser.add_argument("--literal", action="store_true", help="take pattern and replacement as they are")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="only the first N (0: all)")
    parser.add_argument("--expect", type=int, metavar="N", help="an error unless there are N changes")
    parser.add_argument("--dry-run", action="store_true", help="show the changes, write nothing")
    parser.add_argument("--output", metavar="PATH", help="write the new text here")
    options = parser.parse_args()
    try:
        text = options.text if options.text is not None else Path(options.input).read_text(encoding="utf-8")
        new, changes = replace(text, options)
    except (Problem, OSError, UnicodeDecodeError) as error:
        print(f"replace.py: {error}", file=sys.stderr)
        return 2
    result: dict[str, object] = {"replaced": len(changes), "changes": changes[:MOST_SHOWN]}
    if not options.dry_run and options.output:
        Path(options.output).write_text(new, encoding="utf-8")
        result["output"] = options.output
    elif not options.dry_run:
        result["text"], result["cut"] = new[:SHOWN_CHARS], len(new) > SHOWN_CHARS
    print(json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
