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
TITLES = {"better": "Different", "optional": "Only if you ask for it", "same": "The same"}
THEMES = {
    "Skills": (
        "One bad skill in a folder",
        "Files of skills",
        "The catalogue of 500 skills in every request",
    ),
    "Conversation": (
        "Instructions of an active skill after compaction",
        "A model that keeps guessing paths",
    ),
    "Scripts": (
        "What a script sees beside it",
        "`script_timeout` of a Python script",
        "A turn that is cancelled",
        "Files between two runs of a session",
    ),
    "Safety": (
        "Secrets in the agent's environment",
        "Files of the host",
        "The network of a script",
        "`permissions=`: asking before a skill, script or tool is used",
    ),
}
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
    """For the reference: every row, a section for each kind."""
    lines = []
    for kind, title in TITLES.items():
        of_kind = [row for row in rows if row.kind == kind]
        if kind == "same":
            lines += [f"## {title}", "| behaviour | in both |", "|---|---|"]
            lines += [f"| {row.what} | {row.ours} |" for row in of_kind]
        else:
            lines += [f"## {title}", "| behaviour | google-adk 2.13 | adk-skills-runtime |", "|---|---|---|"]
            lines += [f"| {row.what} | {row.google} | {row.ours} |" for row in of_kind]
        lines.append("")
    return "\n".join(lines)


def themes_table(rows: list[Behaviour]) -> str:
    """For the page about migrating: the few rows that matter most, by theme."""
    known = {row.what: row for row in rows}
    lines = ["| | | google-adk 2.13 | adk-skills-runtime |", "|---|---|---|---|"]
    for theme, whats in THEMES.items():
        for number, what in enumerate(whats):
            row = known[what]
            lines.append(f"| {'' if number else f'**{theme}**'} | {row.what} | {row.google} | {row.ours} |")
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
