"""The page of attacks: each has one row, and the tests that it names are there and are about it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reference" / "attacks.md").read_text()
ROWS = [
    (int(number), re.findall(r"`([\w/]+\.py)`", tests))
    for number, tests in re.findall(r"^\| (\d+) \| .* \| (.*) \|$", PAGE, re.MULTILINE)
]


def named(text: str) -> set[int]:
    """The rows that a file's text names: ``row 7``, ``rows 75 and 79``, ``test_rows_117_and_120_to_122_filters``."""
    found: set[int] = set()
    for words in re.findall(r"rows?[ _]((?:\d+|and|to|[ _,])+)", text, re.IGNORECASE):
        numbers = [int(number) for number in re.findall(r"\d+", words)]
        found |= set(numbers)
        for first, last in re.findall(r"(\d+)[ _]to[ _](\d+)", words):
            found |= set(range(int(first), int(last) + 1))
    return found


def test_each_attack_has_one_row() -> None:
    numbers = [number for number, _ in ROWS]
    assert len(numbers) > 200
    assert sorted(set(numbers)) == sorted(numbers)
    assert PAGE.count("\n| ") == len(numbers) + PAGE.count("\n| no. |")


def test_the_tests_that_an_attack_names_are_there_and_name_it() -> None:
    rows_of = {path: named((TESTS / path).read_text()) for _, tests in ROWS for path in tests}
    assert [number for number, tests in ROWS if not tests] == []
    assert [(number, path) for number, tests in ROWS for path in tests if number not in rows_of[path]] == []
