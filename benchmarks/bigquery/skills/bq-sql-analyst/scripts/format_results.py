#!/usr/bin/env python3
"""Make a Markdown table of query results: a header, rows, a title."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


class Problem(Exception):
    """Something the caller can put right."""


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:,.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


def table(header: str, rows_text: str, title: str) -> str:
    names = [name.strip() for name in header.split(",")] if header else []
    try:
        rows = json.loads(rows_text)
    except ValueError as error:
        raise Problem(f"--rows is not JSON: {error}.") from None
    if not isinstance(rows, list) or not all(isinstance(row, list | dict) for row in rows):
        raise Problem("--rows must be a list of lists or of objects.")
    names = names or list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))
    if not names:
        raise Problem("Give the names of the columns with --header.")
    lines = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, dict):
            unknown = [name for name in names if name not in row]
            if unknown:
                raise Problem(f"Row {number} has no {', '.join(unknown)}; it has {', '.join(row)}.")
            row = [row[name] for name in names]  # noqa: PLW2901
        if len(row) != len(names):
            raise Problem(f"Row {number} has {len(row)} cells, the header {len(names)}.")
        lines.append(row)
    numeric = [
        bool(lines) and all(isinstance(line[n], int | float) or line[n] is None for line in lines)
        for n in range(len(names))
    ]
    body = [[cell(value) for value in line] for line in lines]
    out = [f"**{cell(title)}**", ""] if title else []
    out.append(f"| {' | '.join(map(cell, names))} |")
    out.append(f"|{'|'.join('---:' if right else '---' for right in numeric)}|")
    out += [f"| {' | '.join(line)} |" for line in body]
    out += ["", f"{len(lines)} row{'' if len(lines) == 1 else 's'}"]
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a Markdown table of query results.", allow_abbrev=False)
    parser.add_argument("--rows", required=True, metavar="JSON", help="a list of lists, or of objects")
    parser.add_argument("--header", default="", metavar="NAMES", help='"name,total"')
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    try:
        print(table(options.header, options.rows, options.title))
    except Problem as error:
        print(f"format_results.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
