#!/usr/bin/env python3
"""Turn a CSV file into a report: totals per group, as Markdown or HTML, with a JSON summary on stdout.

Standard library only. Reads the file once, row by row; memory grows with the number of groups, not of rows.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import html
import json
import os
import re
import sys
from decimal import Decimal
from pathlib import Path

DELIMITERS = {",": ",", ";": ";", "|": "|", "tab": "\t", "\\t": "\t", "\t": "\t"}
NUMERIC_SHARE = Decimal("0.9")  # a column is numeric when at least this share of its filled cells are numbers
DISTINCT_LIMIT = 1_000  # different values counted per column; beyond it, "more than"
GROUP_LIMIT = 100_000  # more groups than this are no report, and would fill the memory
EXAMPLES = 3
NUMBER = re.compile(r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?", re.ASCII)
MARKS = "$€£¥ \u00a0"
OTHER = "(other)"
EMPTY = "(empty)"


class Problem(Exception):
    """Something the caller can put right; the message says how."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="report.py", description="Turn a CSV file into a report with totals per group.", allow_abbrev=False
    )
    parser.add_argument("--input", required=True, metavar="PATH", help="the CSV file")
    parser.add_argument("--output", default="report.md", metavar="PATH", help="report to write: .md or .html")
    parser.add_argument("--group-by", action="append", default=[], metavar="COLUMN", help="one group per value")
    parser.add_argument("--value", action="append", default=[], metavar="COLUMN", help="numeric column to add up")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="groups to show, the rest is one line")
    parser.add_argument("--delimiter", choices=list(DELIMITERS), metavar="C", help="one of: , ; | tab")
    parser.add_argument("--encoding", default="utf-8", metavar="NAME", help="the file's encoding (default utf-8)")
    parser.add_argument("--title", metavar="TEXT", help="heading of the report")
    arguments = parser.parse_args(argv)
    if arguments.top < 1:
        parser.error("--top must be at least 1")
    return arguments


def number(cell: str) -> Decimal | None:
    """The cell as a number, or None: thousands separators, a currency sign and a percent sign are taken off."""
    text = cell.strip(MARKS).removesuffix("%").rstrip(MARKS)
    if text.startswith("(") and text.endswith(")"):  # accountants' negative
        text = "-" + text[1:-1].strip(MARKS)
    sign, rest = (text[0], text[1:].strip(MARKS)) if text[:1] in {"-", "+"} else ("", text)
    if len(rest) > 64 or not NUMBER.fullmatch(rest):
        return None
    return Decimal(sign + rest.replace(",", ""))


class Column:
    """What is known of a column after all rows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.filled = 0
        self.numbers = 0
        self.distinct: set[str] = set()
        self.examples: list[str] = []

    def see(self, cell: str, value: Decimal | None) -> None:
        self.filled += 1
        self.numbers += value is not None
        if len(self.distinct) <= DISTINCT_LIMIT:
            self.distinct.add(cell)
        if len(self.examples) < EXAMPLES and cell not in self.examples:
            self.examples.append(cell[:60])

    @property
    def numeric(self) -> bool:
        return self.filled > 0 and Decimal(self.numbers) >= NUMERIC_SHARE * self.filled

    @property
    def is_id(self) -> bool:
        name = self.name.lower().replace(" ", "_")
        return name == "id" or name.endswith("_id")

    def summary(self) -> dict[str, object]:
        capped = len(self.distinct) > DISTINCT_LIMIT
        return {
            "name": self.name,
            "kind": "number" if self.numeric else "text",
            "filled": self.filled,
            "distinct": f"more than {DISTINCT_LIMIT}" if capped else len(self.distinct),
            "examples": self.examples,
        }


class Sum:
    """Count, total, smallest and largest of the numbers seen."""

    __slots__ = ("count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = Decimal(0)
        self.smallest: Decimal | None = None
        self.largest: Decimal | None = None

    def add(self, value: Decimal) -> None:
        self.count += 1
        self.total += value
        self.smallest = value if self.smallest is None else min(self.smallest, value)
        self.largest = value if self.largest is None else max(self.largest, value)

    def merge(self, other: Sum) -> None:
        self.count += other.count
        self.total += other.total
        for value in (other.smallest, other.largest):
            if value is not None:
                self.smallest = value if self.smallest is None else min(self.smallest, value)
                self.largest = value if self.largest is None else max(self.largest, value)

    def summary(self) -> dict[str, object]:
        mean = self.total / self.count if self.count else None
        return {
            "sum": plain(self.total),
            "mean": plain(mean),
            "min": plain(self.smallest),
            "max": plain(self.largest),
        }


class Group:
    """The rows of one group: how many, and a Sum for each numeric column."""

    def __init__(self, columns: int) -> None:
        self.rows = 0
        self.sums = [Sum() for _ in range(columns)]

    def merge(self, other: Group) -> None:
        self.rows += other.rows
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine.merge(theirs)


def plain(value: Decimal | None) -> int | float | None:
    """A number for JSON, with at most six decimals."""
    if value is None:
        return None
    return int(value) if value == value.to_integral_value() else round(float(value), 6)


class Table:
    """Everything read from the file."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path = path
        self.columns = [Column(name) for name in names]
        self.total = Group(len(names))
        self.groups: dict[tuple[str, ...], Group] = {}
        self.warnings: list[str] = []

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def find(self, wanted: str, option: str) -> int:
        names = self.names
        if wanted in names:
            return names.index(wanted)
        lower = {name.lower(): name for name in names}
        near = [lower[n] for n in difflib.get_close_matches(wanted.strip().lower(), lower, n=1)]
        hint = f' Did you mean "{near[0]}"?' if near else ""
        raise Problem(f'{option}: there is no column "{wanted}" in {self.path}.{hint} Columns: {", ".join(names)}.')


def open_input(arguments: argparse.Namespace) -> Path:
    path = Path(arguments.input)
    if path.is_dir():
        raise Problem(f"--input: {path} is a folder. Give the CSV file in it.")
    if not path.exists():
        near = sorted(p.as_posix() for p in [*Path().glob("*.csv"), *Path().glob("*/*.csv")])[:10]
        there = f" CSV files here: {', '.join(near)}." if near else " There are no CSV files here."
        raise Problem(f"--input: there is no file {path}.{there}")
    return path


def find_delimiter(header: str, wanted: str | None) -> str:
    if wanted:
        return DELIMITERS[wanted]
    counts = {c: header.count(c) for c in (",", ";", "\t", "|")}
    best = max(counts, key=lambda c: counts[c])
    return best if counts[best] else ","


def unique_names(header: list[str], warnings: list[str]) -> list[str]:
    names: list[str] = []
    for position, cell in enumerate(header, 1):
        name = " ".join(cell.split()) or f"column_{position}"
        if name in names:
            plain_name, count = name, 2
            while name in names or name in header:
                name, count = f"{plain_name}_{count}", count + 1
            warnings.append(f'Column {position} is a second "{plain_name}"; it is called "{name}" here.')
        names.append(name)
    return names


def read_table(arguments: argparse.Namespace) -> Table:
    path = open_input(arguments)
    csv.field_size_limit(1 << 24)
    encoding = "utf-8-sig" if arguments.encoding.lower().replace("_", "-") in {"utf-8", "utf8"} else arguments.encoding
    try:
        with path.open(encoding=encoding, newline="") as file:
            return fill_table(file, path, arguments)
    except UnicodeError as error:
        problem = f"{path} is not valid {arguments.encoding} ({error})"
        raise Problem(f"--encoding: {problem}. Try --encoding cp1252.") from None
    except LookupError:
        problem = f"Python knows no encoding {arguments.encoding!r}"
        raise Problem(f"--encoding: {problem}. Try utf-8, cp1252 or utf-16.") from None
    except csv.Error as error:
        raise Problem(f"--input: {path} is not a CSV file that can be read: {error}.") from None
    except OSError as error:
        raise Problem(f"--input: {path} cannot be read: {error.strerror}.") from None


def fill_table(file: object, path: Path, arguments: argparse.Namespace) -> Table:
    header_line = next((line for line in file if line.strip()), "")
    if not header_line:
        raise Problem(f"--input: {path} is empty. It needs a header line with the column names.")
    delimiter = find_delimiter(header_line, arguments.delimiter)
    # The header line was read to look at it; give it to the reader again.
    rows = csv.reader((line for part in ([header_line], file) for line in part), delimiter=delimiter)
    warnings: list[str] = []
    table = Table(path, unique_names(next(rows), warnings))
    table.warnings = warnings
    keys = [table.find(name, "--group-by") for name in arguments.group_by]
    for name in arguments.value:
        table.find(name, "--value")
    width = len(table.columns)
    if width == 1 and not arguments.delimiter:
        warnings.append(f"{path} has only one column. If that is wrong, give --delimiter.")
    short = long = 0
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        short += len(row) < width
        long += len(row) > width
        cells = [cell.strip() for cell in row[:width]] + [""] * (width - len(row))
        key = tuple(cells[k] or EMPTY for k in keys)
        group = table.groups.get(key)
        if group is None:
            if len(table.groups) >= GROUP_LIMIT:
                raise Problem(
                    f"--group-by: more than {GROUP_LIMIT} groups. Group by a column with fewer different values."
                )
            group = table.groups[key] = Group(width)
        group.rows += 1
        table.total.rows += 1
        for index, cell in enumerate(cells):
            if cell:
                value = number(cell)
                table.columns[index].see(cell, value)
                if value is not None:
                    group.sums[index].add(value)
                    table.total.sums[index].add(value)
    if short:
        warnings.append(f"{short} rows have fewer cells than the header; the missing ones count as empty.")
    if long:
        warnings.append(f"{long} rows have more cells than the header; what is beyond it was left out.")
    if not table.total.rows:
        warnings.append(f"{path} has a header and no rows.")
    return table


def choose_values(table: Table, arguments: argparse.Namespace) -> list[int]:
    """The columns to add up, with a warning for the cells of them that are not numbers."""
    if arguments.value:
        values = [table.find(name, "--value") for name in arguments.value]
        for index in values:
            column = table.columns[index]
            if column.filled and not column.numeric:
                raise Problem(
                    f'--value: "{column.name}" is not numeric: {column.filled - column.numbers} of {column.filled} '
                    f"cells are not numbers, for example {json.dumps(column.examples, ensure_ascii=False)}."
                )
    else:
        grouped = {table.find(name, "--group-by") for name in arguments.group_by}
        values = [
            i for i, column in enumerate(table.columns) if column.numeric and not column.is_id and i not in grouped
        ]
    for index in values:
        column = table.columns[index]
        if column.numbers < column.filled:
            table.warnings.append(
                f'"{column.name}": {column.filled - column.numbers} of {column.filled} cells are not numbers '
                "and were left out of the sums."
            )
    return values


def ranked(table: Table, values: list[int], top: int) -> tuple[list[tuple[tuple[str, ...], Group]], int]:
    """The groups to show, largest first by the first value column (by rows when there is none), and how many more."""

    def size(item: tuple[tuple[str, ...], Group]) -> tuple[Decimal, tuple[str, ...]]:
        key, group = item
        return (-(group.sums[values[0]].total if values else Decimal(group.rows)), key)

    groups = sorted(table.groups.items(), key=size)
    shown, rest = groups[:top], groups[top:]
    if rest:
        other = Group(len(table.columns))
        for _, group in rest:
            other.merge(group)
        width = len(rest[0][0])
        shown.append(((OTHER,) + ("",) * (width - 1), other))
    return shown, len(rest)


def share(group: Group, table: Table, values: list[int]) -> Decimal | None:
    """The group's part of the total, in percent; None when parts of it make no sense."""
    if not values:
        return Decimal(group.rows) * 100 / table.total.rows if table.total.rows else None
    column = values[0]
    total = table.total.sums[column]
    if total.total <= 0 or (total.smallest is not None and total.smallest < 0):
        return None
    return group.sums[column].total * 100 / total.total


def summarise(table: Table, arguments: argparse.Namespace) -> dict[str, object]:
    values = choose_values(table, arguments)
    names = table.names
    groups = []
    shown, left = ranked(table, values, arguments.top) if arguments.group_by else ([], 0)
    for key, group in shown:
        part = share(group, table, values)
        groups.append(
            {
                "group": dict(zip(arguments.group_by, key, strict=True)),
                "rows": group.rows,
                "share_percent": None if part is None else round(float(part), 1),
                "values": {names[i]: group.sums[i].summary() for i in values},
            }
        )
    return {
        "report": arguments.output,
        "input": arguments.input,
        "rows": table.total.rows,
        "columns": [column.summary() for column in table.columns],
        "group_by": arguments.group_by,
        "ranked_by": names[values[0]] if values else "rows",
        "totals": {names[i]: table.total.sums[i].summary() for i in values},
        "groups": groups,
        "groups_not_shown": left,
        "warnings": table.warnings,
    }


# Writing


def shown_number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def sections(summary: dict) -> list[tuple[str, list[str], list[list[str]]]]:
    """The report as titled tables."""
    totals = summary["totals"]
    tables = []
    if totals:
        tables.append(
            (
                "Totals",
                ["Column", "Sum", "Mean", "Smallest", "Largest"],
                [[name, *(shown_number(t[k]) for k in ("sum", "mean", "min", "max"))] for name, t in totals.items()],
            )
        )
    if summary["group_by"]:
        head = [*summary["group_by"], "Rows", *totals, f"Share of {summary['ranked_by']}"]
        rows = []
        for group in summary["groups"]:
            part = group["share_percent"]
            sums = [shown_number(group["values"][name]["sum"]) for name in totals]
            shown = "-" if part is None else f"{part:.1f} %"
            rows.append([*group["group"].values(), shown_number(group["rows"]), *sums, shown])
        tables.append((f"By {' and '.join(summary['group_by'])}", head, rows))
    tables.append(
        (
            "Columns",
            ["Column", "Kind", "Filled", "Different values", "Examples"],
            [
                [c["name"], c["kind"], shown_number(c["filled"]), str(c["distinct"]), ", ".join(c["examples"])]
                for c in summary["columns"]
            ],
        )
    )
    return tables


def markdown(summary: dict, title: str) -> str:
    def safe(text: str) -> str:
        return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split()) or " "

    lines = [f"# {safe(title)}", "", f"{shown_number(summary['rows'])} rows from `{summary['input']}`.", ""]
    for heading, head, rows in sections(summary):
        lines += [f"## {safe(heading)}", "", f"| {' | '.join(map(safe, head))} |", f"|{'---|' * len(head)}"]
        lines += [f"| {' | '.join(map(safe, row))} |" for row in rows] + [""]
    if summary["warnings"]:
        lines += ["## Notes on the data", "", *(f"- {safe(w)}" for w in summary["warnings"]), ""]
    return "\n".join(lines)


def web_page(summary: dict, title: str) -> str:
    def row(cells: list[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    style = (
        "body{font:16px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #ccc;padding:4px 8px}"
    )
    lines = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{style}</style></head><body><h1>{html.escape(title)}</h1>",
        f"<p>{shown_number(summary['rows'])} rows from {html.escape(summary['input'])}.</p>",
    ]
    for heading, head, rows in sections(summary):
        lines += [f"<h2>{html.escape(heading)}</h2><table>", row(head, "th"), *(row(r, "td") for r in rows), "</table>"]
    if summary["warnings"]:
        notes = "".join(f"<li>{html.escape(w)}</li>" for w in summary["warnings"])
        lines.append(f"<h2>Notes on the data</h2><ul>{notes}</ul>")
    return "\n".join([*lines, "</body></html>", ""])


def write_report(summary: dict, arguments: argparse.Namespace) -> None:
    output = Path(arguments.output)
    title = arguments.title or f"Report on {Path(arguments.input).name}"
    page = output.suffix.lower() in {".html", ".htm"}
    text = web_page(summary, title) if page else markdown(summary, title)
    try:
        if output.exists() and os.path.samefile(output, arguments.input):
            raise Problem("--output: this is the input file, and it would be overwritten. Choose another name.")
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Problem(f"--output: {output} cannot be written: {error.strerror}. Try --output report.md.") from None


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    try:
        summary = summarise(read_table(arguments), arguments)
        write_report(summary, arguments)
    except Problem as problem:
        print(f"report.py: {problem}", file=sys.stderr)
        return 2
    # One line a field: short for a model, still readable for a person.
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in summary.items())
    print(f"{{\n{lines}\n}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
