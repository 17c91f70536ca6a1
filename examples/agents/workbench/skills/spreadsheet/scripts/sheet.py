#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["openpyxl>=3.1"]
# ///
"""Show what is in a spreadsheet, or add up a column by the values of another one."""

import argparse
import csv
import json
import sys
from pathlib import Path


def read_rows(path, sheet):
    """The names of the sheets, and the rows of one as lists of values."""
    if path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [path.stem], [row for row in csv.reader(file) if any(row)]
    from openpyxl import load_workbook

    book = load_workbook(path, read_only=True, data_only=True)
    if sheet and sheet not in book.sheetnames:
        sys.exit(f"There is no sheet {sheet!r}. Sheets: {', '.join(book.sheetnames)}")
    found = book[sheet] if sheet else book[book.sheetnames[0]]
    rows = [list(row) for row in found.iter_rows(values_only=True)]
    return book.sheetnames, [row for row in rows if any(value is not None for value in row)]


def number(value):
    """A cell as a number, or None."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        return float(str(value).replace(",", ""))
    except ValueError:
        return None


def column(head, name):
    """Where a column is."""
    if name not in head:
        sys.exit(f"There is no column {name!r}. Columns: {', '.join(map(str, head))}")
    return head.index(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sheet", help="which one; the first by default")
    parser.add_argument("--group-by", help="one line for each value of this column")
    parser.add_argument("--value", help="the column that is added up")
    parser.add_argument("--output", type=Path, default=Path("totals.csv"))
    given = parser.parse_args()
    if not given.file.is_file():
        sys.exit(f"There is no file {given.file}.")
    sheets, rows = read_rows(given.file, given.sheet)
    if not rows:
        sys.exit("The sheet is empty.")
    head, body = [str(name) for name in rows[0]], rows[1:]
    if not (given.group_by and given.value):
        first = [[str(value) for value in row] for row in body[:5]]
        print(json.dumps({"sheets": sheets, "columns": head, "rows": len(body), "first": first}, indent=1))
        return
    by, value = column(head, given.group_by), column(head, given.value)
    sums, left_out = {}, 0
    for row in body:
        amount = number(row[value]) if len(row) > max(by, value) else None
        if amount is None:
            left_out += 1
            continue
        sums[str(row[by])] = sums.get(str(row[by]), 0.0) + amount
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    with given.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([given.group_by, given.value])
        writer.writerows(ordered)
    print(
        json.dumps(
            {"groups": len(ordered), "total": sum(sums.values()), "rows_left_out": left_out, "top": ordered[:10]}
        )
    )


if __name__ == "__main__":
    main()
