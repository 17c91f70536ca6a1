"""The table of behaviours against google-adk, read out of the tests that prove each row.

A test says it with ``@pytest.mark.behaviour("better", "a deadline", google="ignored for Python", ours="holds")``.
The kinds are ``same`` (as google-adk), ``better`` (it does otherwise, measured) and ``optional`` (off until asked for).
``readme=3`` puts a row into the README too, as its third.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KINDS = ("better", "optional", "same")
BEGIN, END = "<!-- behaviours: begin (generated) -->", "<!-- behaviours: end -->"


@dataclass(frozen=True)
class Behaviour:
    """One row."""

    kind: str
    what: str
    google: str
    ours: str
    test: str
    readme: int = 0

    @property
    def order(self) -> tuple[int, str]:
        return KINDS.index(self.kind), self.what


def behaviours(folder: Path = REPOSITORY / "tests") -> list[Behaviour]:
    """All rows, better first, in the order of their words."""
    found = [row for path in sorted(folder.rglob("test_*.py")) for row in _rows(path)]
    return sorted(found, key=lambda row: row.order)


def _rows(path: Path) -> list[Behaviour]:
    text = path.read_text(encoding="utf-8")
    if "mark.behaviour" not in text:
        return []
    rows = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.behaviour":
                kind, what = (ast.literal_eval(argument) for argument in mark.args)
                said = {keyword.arg: ast.literal_eval(keyword.value) for keyword in mark.keywords}
                test = f"{path.relative_to(REPOSITORY)}::{node.name}"
                readme = said.get("readme", 0)
                rows.append(Behaviour(kind, what, said.get("google", ""), said["ours"], test, readme))
    return rows


def full_table(rows: list[Behaviour]) -> str:
    """For the page about migrating: every row with its test."""
    lines = ["| | behaviour | google-adk 2.13 | adk-skills-runtime | proved by |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.kind} | {row.what} | {row.google or 'the same'} | {row.ours} | `{row.test.rpartition('/')[2]}` |"
        for row in rows
    ]
    return "\n".join(lines)


def short_table(rows: list[Behaviour]) -> str:
    """For the README: what counts most."""
    lines = ["| | google-adk 2.13 | adk-skills-runtime |", "|---|---|---|"]
    chosen = sorted((row for row in rows if row.readme), key=lambda row: row.readme)
    lines += [f"| {row.what} | {row.google} | {row.ours} |" for row in chosen]
    return "\n".join(lines)


def with_table(page: str, table: str) -> str:
    """The page with its table between the two comments replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The page lacks the lines {BEGIN} and {END}.")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"
