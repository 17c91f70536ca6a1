#!/usr/bin/env python3
"""Group the rows of a CSV table and compute exact figures per group; JSON on stdout."""

from __future__ import annotations

import argparse
import csv
import io
import json
import operator
import re
import sys
from decimal import Decimal
from pathlib import Path

NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+", re.ASCII)
SIGNS = "$€£¥%\u00a0 "
CONDITION = re.compile(r"\s*(?P<column>.+?)\s*(?P<operator>!=|<=|>=|=|<|>)\s*(?P<value>.*?)\s*")
OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
DIGITS = Decimal("0.000001")
MOST_SKIPPED = 20


class Problem(Exception):
    """Something the caller can put right."""


def number(cell: str) -> Decimal | None:
    text = cell.strip(SIGNS)
    if text.startswith("(") and text.endswith(")"):
        text = "-" + text[1:-1].strip(SIGNS)
    return Decimal(text.replace(",", "")) if len(text) < 60 and NUMBER.fullmatch(text) else None


def rows_of(text: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    lines = text.lstrip("\ufeff").strip("\n")
    if not lines:
        raise Problem("There are no rows. Give a header line and at least one row.")
    header = lines.split("\n", 1)[0]
    delimiter = max(",;\t|", key=header.count)
    reader = csv.reader(io.StringIO(lines), delimiter=delimiter)
    columns = [name.strip() for name in next(reader)]
    if len(set(columns)) < len(columns):
        raise Problem(f"The header names a column twice: {', '.join(columns)}.")
    rows = []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(columns):
            raise Problem(f"Line {reader.line_num} has {len(cells)} cells, the header {len(columns)}.")
        rows.append((reader.line_num, dict(zip(columns, (cell.strip() for cell in cells), strict=True))))
    return columns, rows


def wanted(row: dict[str, str], conditions: list[tuple[str, str, str]]) -> bool:
    for column, sign, value in conditions:
        left, right = number(row[column]), number(value)
        pair = (left, right) if left is not None and right is not None else (row[column], value)
        if sign not in ("=", "!=") and pair[0] is not left:
            return False  # words have no order here
        if not OPERATORS[sign](*pair):
            return False
    return True


def plain(value: Decimal | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value == value.to_integral_value() else float(value)


def aggregate(text: str, options: argparse.Namespace) -> dict[str, object]:
    columns, rows = rows_of(text)
    conditions = []
    for condition in options.where:
        match = CONDITION.fullmatch(condition)
        if match is None:
            raise Problem(f"--where {condition!r}: write COLUMN=VALUE, or with !=, <, <=, > or >=.")
        conditions.append((match["column"], match["operator"], match["value"]))
    figures = [(kind, column) for kind in ("sum", "mean", "min", "max") for column in getattr(options, kind)]
    for column in (*options.group_by, *(c for _, c in figures), *(c for c, _, _ in conditions)):
        if column not in columns:
            raise Problem(f"There is no column {column!r}. The columns: {', '.join(columns)}.")
    numeric = list(dict.fromkeys(column for _, column in figures))
    groups: dict[tuple[str, ...], dict[str, list[Decimal]]] = {}
    counts: dict[tuple[str, ...], int] = {}
    skipped: list[dict[str, object]] = []
    kept = 0
    for line, row in rows:
        if not wanted(row, conditions):
            continue
        kept += 1
        key = tuple(row[column] for column in options.group_by)
        counts[key] = counts.get(key, 0) + 1
        values = groups.setdefault(key, {column: [] for column in numeric})
        for column in numeric:
            value = number(row[column])
            if value is not None:
                values[column].append(value)
            elif row[column]:
                skipped.append({"line": line, "column": column, "cell": row[column]})
    result = []
    for key, values in groups.items():
        one: dict[str, object] = dict(zip(options.group_by, key, strict=True))
        one["rows"] = counts[key]
        for kind, column in figures:
            one[f"{kind}_{column}"] = plain(figure(kind, values[column]))
        result.append(one)
    first = f"{figures[0][0]}_{figures[0][1]}" if figures else "rows"
    result.sort(key=lambda one: (one[first] is None, -(one[first] or 0), *map(str, one.values())))
    return {
        "rows": len(rows),
        "used": kept,
        "groups": result,
        "skipped": skipped[:MOST_SKIPPED],
        "skipped_cells": len(skipped),
    }


def figure(kind: str, values: list[Decimal]) -> Decimal | None:
    if not values:
        return None
    if kind == "mean":
        return (sum(values, Decimal()) / len(values)).quantize(DIGITS)
    return {"sum": lambda v: sum(v, Decimal()), "min": min, "max": max}[kind](values)


def main() -> int:
    parser = argparse.ArgumentParser(description="Figures per group of a CSV table.", allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="PATH", help="the CSV file")
    source.add_argument("--text", help="the rows themselves")
    for name in ("group-by", "sum", "mean", "min", "max"):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="COLUMN")
    parser.add_argument("--where", action="append", default=[], metavar="CONDITION", help='"column=value"')
    parser.add_argument("--output", metavar="PATH", help="write the groups as CSV, too")
    options = parser.parse_args()
    try:
        text = options.text if options.text is not None else Path(options.input).read_text(encoding="utf-8-sig")
        found = aggregate(text, options)
    except (Problem, OSError, UnicodeDecodeError, csv.Error) as error:
        print(f"aggregate.py: {error}", file=sys.stderr)
        return 2
    groups = found["groups"]
    if options.output and isinstance(groups, list) and groups:
        with Path(options.output).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(groups[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(groups)
    print(json.dumps(found, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
