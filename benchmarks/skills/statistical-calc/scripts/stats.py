#!/usr/bin/env python3
"""Descriptive statistics of a list of numbers, and how two lists are related. JSON on stdout."""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import statistics
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

NORMAL_95 = statistics.NormalDist().inv_cdf(0.975)
FEW = 30


class Problem(Exception):
    """Something the caller can put right."""


def number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise Problem(f"{text!r} in {where} is no number.") from None
    if not math.isfinite(value):
        raise Problem(f"{text!r} in {where} is not finite.")
    return value


def listed(text: str, where: str) -> list[float]:
    return [number(one, where) for one in re.split(r"[\s,;]+", text.strip()) if one]


def from_file(path: str, column: str | None) -> list[float]:
    text = Path(path).read_text(encoding="utf-8-sig")
    if column is None:
        return listed(text, path)
    rows = csv.DictReader(text.splitlines())
    if column not in (rows.fieldnames or ()):
        raise Problem(f"There is no column {column!r}. The columns: {', '.join(rows.fieldnames or ())}.")
    return [number(row[column], f"line {rows.line_num}") for row in rows if (row[column] or "").strip()]


def short(value: float | Fraction | None) -> float | int | None:
    if value is None:
        return None
    rounded = float(f"{float(value):.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def describe(values: list[float]) -> dict[str, object]:
    mean = statistics.fmean(values)
    stdev = statistics.stdev(values) if len(values) > 1 else None
    q1, q2, q3 = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    far = 1.5 * (q3 - q1)
    times = Counter(values)
    most = max(times.values())
    found: dict[str, object] = {
        "n": len(values),
        "sum": short(sum(map(Fraction, values))),
        "mean": short(mean),
        "median": short(q2),
        "mode": [short(value) for value, count in times.items() if count == most] if most > 1 else [],
        "min": short(min(values)),
        "max": short(max(values)),
        "range": short(max(values) - min(values)),
        "stdev": short(stdev),
        "variance": short(statistics.variance(values) if len(values) > 1 else None),
        "pstdev": short(statistics.pstdev(values)),
        "quartiles": [short(q1), short(q2), short(q3)],
        "outliers": [short(value) for value in values if value < q1 - far or value > q3 + far],
    }
    if stdev is not None:
        half = NORMAL_95 * stdev / math.sqrt(len(values))
        found["ci95"] = [short(mean - half), short(mean + half)]
        if len(values) < FEW:
            found["ci95_note"] = f"normal approximation; with {len(values)} numbers it is too narrow"
    return found


def relation(left: list[float], right: list[float]) -> dict[str, object]:
    if len(left) != len(right):
        raise Problem(f"The lists have {len(left)} and {len(right)} numbers; they are paired by position.")
    if len(left) < 2 or len(set(left)) < 2:
        raise Problem("The first list needs two different numbers at least.")
    line = statistics.linear_regression(left, right)
    r = statistics.correlation(left, right) if len(set(right)) > 1 else None
    return {
        "correlation": short(r),
        "slope": short(line.slope),
        "intercept": short(line.intercept),
        "r_squared": short(r * r if r is not None else None),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Statistics of numbers.", allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--values", metavar="NUMBERS", help='"3, 5, 8"')
    source.add_argument("--file", metavar="PATH", help="numbers, or a CSV file with --column")
    parser.add_argument("--column", metavar="NAME")
    parser.add_argument("--against", metavar="NUMBERS", help="a second list, paired by position")
    options = parser.parse_args()
    try:
        values = (
            listed(options.values, "--values")
            if options.values is not None
            else from_file(options.file, options.column)
        )
        if not values:
            raise Problem("There are no numbers.")
        result = describe(values)
        if options.against is not None:
            result["relation"] = relation(values, listed(options.against, "--against"))
    except (Problem, OSError, UnicodeDecodeError, csv.Error, OverflowError) as error:
        print(f"stats.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
