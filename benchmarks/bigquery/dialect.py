"""BigQuery's SQL as DuckDB reads it: names in backticks, strings in double quotes, comments with #."""

from __future__ import annotations

import re

PROJECT = "bigquery-public-data"

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|\#[^\n]*|/\*.*?\*/)
    | (?P<text>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | `(?P<name>[^`]+)`
    | (?P<project>\bbigquery-public-data\b)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def to_duckdb(sql: str) -> str:
    """The same statement for DuckDB. Functions that only BigQuery has are not translated."""
    return _TOKEN.sub(_translated, sql)


def _translated(match: re.Match[str]) -> str:
    if match["comment"] is not None:
        return " "
    if (text := match["text"]) is not None:
        plain = _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])
        return "'" + plain.replace("'", "''") + "'"
    name = match["name"] if match["name"] is not None else match["project"]
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
