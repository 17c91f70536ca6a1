"""Rubrics that are hard to judge are found before they cost money, each with what to write instead (S0-152, S0-155)."""

from __future__ import annotations

import pytest

from adk_skills_agent.evals.judge import Rubric, _rationale, lint_rubrics

BAD = {
    "The output is good.": "rubric-vague",
    "The agent handles errors properly.": "rubric-vague",
    "The agent understands the schema.": "rubric-unobservable",
    "The agent loads the skill and runs the script.": "rubric-compound",
    "The answer does not fail to name the region.": "rubric-double-negation",
    "Did the agent load the skill?": "rubric-question",
    "The answer says 'The total revenue of all regions in 2025 is $1,234,567.89'.": "rubric-exact-words",
    "The answer names " + "one region after the other " * 20: "rubric-long",
}
GOOD = (
    "The output includes a bar chart image file",
    "The chart shows exactly 3 months",
    "Both axes are labeled",
    "The agent calls load_skill with skill_name 'bq-sql-analyst' before any SQL tool.",
    "The report includes at least 3 recommendations",
    "The final answer states that the file does not exist.",
    "The answer names the region with the highest sales, and its total.",
)


@pytest.mark.parametrize("text", BAD)
@pytest.mark.requirement("S0-155")
def test_a_bad_rubric_is_named_with_what_to_do(text: str) -> None:
    found = lint_rubrics([Rubric("r", text), Rubric("other", "The answer names North.")], file="cases.yaml", line=3)
    assert [finding.code for finding in found] == [BAD[text]]
    assert "'r'" in found[0].message
    assert (found[0].file, found[0].line) == ("cases.yaml", 3)


@pytest.mark.parametrize("text", GOOD)
def test_a_good_rubric_is_left_alone(text: str) -> None:
    assert lint_rubrics([Rubric("r", text), Rubric("other", "The answer names North.")]) == []


def test_a_rubric_said_twice_is_named() -> None:
    twice = [Rubric("a", "It names North."), Rubric("b", "it  names north")]
    assert [f.code for f in lint_rubrics(twice)] == ["rubric-repeated"]
    assert lint_rubrics([]) == []


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["“", '"', "'", "“'", '"“x'])
def test_row_378_quotes_that_begin_and_never_end_do_not_take_the_square_of_their_number(begin: str) -> None:
    """Seen: 39 s for 20,000 characters, of the 8 MiB that a file of cases may have."""
    assert isinstance(lint_rubrics([Rubric("r", begin * 1_000_000)]), list)


def test_row_378_line_ends_in_a_judges_answer_do_not_take_the_square_of_their_number() -> None:
    assert _rationale("\n" * 1_000_000 + "\n** ID: p1\nbecause") == "because"
