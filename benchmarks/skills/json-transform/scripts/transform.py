#!/usr/bin/env python3
"""Reshape JSON: pick, rename, filter, sort, flatten; JSON, JSON Lines or CSV out."""

from __future__ import annotations

import argparse
import csv
import io
import json
import operator
import re
import sys
from pathlib import Path
from typing import Any

STEP = re.compile(r'"([^"]*)"|([^."]+)')
CONDITION = re.compile(r"\s*(?P<path>.+?)\s*(?P<operator>!=|<=|>=|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
MISSING = object()


class Problem(Exception):
    """Something the caller can put right."""


def steps(path: str) -> list[str]:
    return [] if path.strip() in ("", ".") else [quoted or bare for quoted, bare in STEP.findall(path.strip())]


def look_up(value: Any, path: list[str]) -> Any:
    for number, step in enumerate(path):
        if step == "*" and isinstance(value, list):
            found = [look_up(item, path[number + 1 :]) for item in value]
            return [item for item in found if item is not MISSING]
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and re.fullmatch(r"-?\d+", step) and -len(value) <= int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


def literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "constant"
    return "number" if isinstance(value, int | float) else type(value).__name__


def holds(item: Any, conditions: list[tuple[list[str], str, Any]]) -> bool:
    for path, sign, right in conditions:
        left = look_up(item, path)
        left = None if left is MISSING else left
        same = kind(left) == kind(right) and left == right
        if sign in ("=", "!="):
            if same is not (sign == "="):
                return False
        elif kind(left) != kind(right) or kind(left) not in ("number", "str") or not ORDER[sign](left, right):
            return False
    return True


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        pairs = [(str(number), item) for number, item in enumerate(value)]
    else:
        return {prefix or "value": value}
    flat: dict[str, Any] = {}
    for key, item in pairs:
        flat |= flatten(item, f"{prefix}.{key}" if prefix else key)
    return flat


def read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise Problem(f"It is neither JSON nor JSON Lines: {error}.") from None
        if not lines:
            raise Problem("There is no JSON.") from None
        return lines


def transform(document: Any, options: argparse.Namespace) -> tuple[Any, int]:
    at = look_up(document, steps(options.each)) if options.each else document
    if at is MISSING:
        keys = ", ".join(map(repr, document)) if isinstance(document, dict) else type(document).__name__
        raise Problem(f"--each {options.each!r}: there is nothing at that path. At the top: {keys}.")
    single = not isinstance(at, list)
    items = [at] if single else at
    conditions = []
    for text in options.where:
        match = CONDITION.fullmatch(text)
        if match is None:
            raise Problem(f"--where {text!r}: write PATH=VALUE, or with !=, <, <=, > or >=.")
        conditions.append((steps(match["path"]), match["operator"], literal(match["value"])))
    items = [item for item in items if holds(item, conditions)]
    missing = 0
    if options.select:
        fields = []
        for part in csv.reader([options.select], skipinitialspace=True, quotechar="\0").__next__():
            name, equals, path = part.partition("=")
            fields.append((name.strip() if equals else steps(part)[-1], steps(path if equals else part)))
        picked = []
        for item in items:
            found = {name: look_up(item, path) for name, path in fields}
            missing += sum(value is MISSING for value in found.values())
            picked.append({name: None if value is MISSING else value for name, value in found.items()})
        items = picked
    if options.flatten:
        items = [flatten(item) for item in items]
    if options.sort:
        path = steps(options.sort.removeprefix("-"))

        def key(item: Any) -> tuple[str, Any]:
            value = look_up(item, path)
            known = kind(value) in ("number", "str") and value is not MISSING
            return (kind(value), value) if known else ("~", "")

        items = sorted(items, key=key, reverse=options.sort.startswith("-"))
    return (items[0] if single and items else items), missing


def rendered(result: Any, form: str) -> str:
    if form == "json":
        return json.dumps(result, ensure_ascii=False, indent=2)
    items = result if isinstance(result, list) else [result]
    if form == "jsonl":
        return "\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    rows = [flatten(item) for item in items]
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Reshape JSON.", allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="PATH", help="a JSON or JSON Lines file")
    source.add_argument("--text", help="the JSON itself")
    parser.add_argument("--each", default="", metavar="PATH", help="the list to work on")
    parser.add_argument("--select", default="", metavar="FIELDS", help='"name=path,name=path"')
    parser.add_argument("--where", action="append", default=[], metavar="CONDITION")
    parser.add_argument("--sort", default="", metavar="[-]PATH")
    parser.add_argument("--flatten", action="store_true", help="nesting becomes a.b keys")
    parser.add_argument("--to", choices=("json", "jsonl", "csv"), default="json")
    parser.add_argument("--output", metavar="PATH", help="write it here and print a summary")
    options = parser.parse_args()
    try:
        text = options.text if options.text is not None else Path(options.input).read_text(encoding="utf-8-sig")
        result, missing = transform(read(text), options)
    except (Problem, OSError, UnicodeDecodeError, RecursionError) as error:
        print(f"transform.py: {error}", file=sys.stderr)
        return 2
    if missing:
        print(f"missing: {missing} values were not there and are null", file=sys.stderr)
    shown = rendered(result, options.to)
    if options.output:
        Path(options.output).write_text(shown + "\n", encoding="utf-8")
        count = len(result) if isinstance(result, list) else 1
        shown = json.dumps({"items": count, "missing": missing, "output": options.output})
    print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
