"""``reference_match_score`` and ``output_files_score``: what came out (S0-141; issue 6, item 1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import output_files as drawn_files
from traces import trace, turn

from adk_skills_agent.evals.cases import ExpectedFile
from adk_skills_agent.evals.metrics import output_files, reference_match
from adk_skills_agent.evals.trace import OutputFile, Trace


@pytest.mark.parametrize(
    ("says", "reference", "value"),
    [
        ("The total is 7.", "the TOTAL is 7.", 1.0),
        ("North: 3\n\nSouth: 4\n", "South: 4\n\n  North:   3  \n", 1.0),
        ("North: 3", "North: 3\nSouth: 4", 0.0),
        ("Straße", "STRASSE", 1.0),
        ("", "7", 0.0),
    ],
)
@pytest.mark.requirement("S0-141")
def test_the_answer_holds_every_line_of_the_reference(says: str, reference: str, value: float) -> None:
    found = reference_match.score(trace(turn(says=says)), trace(turn(says=reference)))
    assert (found.value, found.passed, bool(found.detail)) == (value, value == 1.0, value == 0.0)


@pytest.mark.requirement("S0-141")
def test_without_a_reference_nothing_is_compared() -> None:
    for expected in (None, trace(turn(says=" \n"))):
        found = reference_match.score(trace(turn(says="x")), expected)
        assert (found.value, found.passed) == (None, None)


def test_only_turns_with_a_reference_count() -> None:
    found = reference_match.score(trace(turn(says="a"), turn(says="b")), trace(turn(says="a"), turn()))
    assert (found.value, [t.value for t in found.per_turn]) == (1.0, [1.0, None])


def test_the_first_missing_lines_are_named() -> None:
    reference = "\n".join(f"line {n}" for n in range(9))
    found = reference_match.score(trace(turn(says="line 0")), trace(turn(says=reference)))
    assert found.detail == "Not in the answer: 'line 1', 'line 2', 'line 3', 'line 4', 'line 5' and 3 more."


@settings(max_examples=50)
@given(st.lists(st.text(max_size=12), max_size=5))
def test_an_answer_that_is_its_reference_matches(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert reference_match.score(trace(turn(says=text)), trace(turn(says=text))).value in {1.0, None}


FILES = {"report.csv": OutputFile.of(b"region,total\nNorth,7\n"), "out/plot.png": OutputFile(50_000_000)}


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ([ExpectedFile("report.csv")], 1.0),
        ([ExpectedFile("*.csv", ("North", "total"))], 1.0),
        ([ExpectedFile("report.csv", ("South",))], 0.0),
        ([ExpectedFile("report.csv"), ExpectedFile("report.json")], 0.5),
        ([ExpectedFile("out/*.png")], 1.0),
        ([ExpectedFile("out/plot.png", ("x",))], 0.0),
        ([ExpectedFile("REPORT.csv")], 0.0),
        ([ExpectedFile("*", ("North",))], 1.0),
    ],
)
def test_the_value_is_the_share_of_files_that_are_there_and_hold_what_they_should(
    wanted: list[ExpectedFile], value: float
) -> None:
    found = output_files.score(Trace((turn(),), FILES), wanted)
    assert (found.value, bool(found.detail)) == (value, value < 1.0)


def test_the_detail_says_what_is_there_instead() -> None:
    found = output_files.score(Trace((turn(),), FILES), [ExpectedFile("a.txt"), ExpectedFile("out/*", ("x",))])
    assert found.detail == (
        "No file 'a.txt'; what is there: out/plot.png, report.csv. "
        "'out/plot.png' (50,000,000 bytes) was not kept, so what is in it is not known."
    )


def test_without_expected_files_nothing_is_compared() -> None:
    assert output_files.score(Trace((turn(),), FILES), []).value is None


@settings(max_examples=50)
@given(drawn_files)
def test_the_files_that_are_there_are_found(files: dict[str, OutputFile]) -> None:
    wanted = [ExpectedFile(name) for name in files]
    assert output_files.score(Trace((turn(),), files), wanted).value in {1.0, None}
