"""``skill_discovery_score``, ``skill_trigger_score`` and the confusion between skills (S0-141; issue 6, item 1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import Written, trace, turn

from adk_skills_agent.evals.metrics import skill_discovery, skill_trigger
from adk_skills_agent.evals.metrics.confusion import NONE, SkillCounts, Triggering, confusion
from adk_skills_agent.evals.trace import ToolCall, Trace, Turn

LOAD: Written = ("load_skill", {"skill_name": "csv"})
skills = st.sets(st.sampled_from(["csv", "json", "log", "sql"]))


def loading(*names: str) -> Trace:
    return trace(turn(*[("load_skill", {"skill_name": name}) for name in names]))


@pytest.mark.parametrize(
    ("made", "listing", "value", "detail"),
    [
        (["list_skills", LOAD], True, 1.0, ""),
        (["search_skills", LOAD], True, 1.0, ""),
        ([LOAD, "list_skills"], True, 1.0, ""),
        ([LOAD], True, 0.0, "Neither list_skills nor search_skills was called."),
        ([LOAD], False, 1.0, ""),
        (["list_skills"], True, 0.0, "No skill was loaded."),
        ([], True, 0.0, "Neither list_skills nor search_skills was called and no skill was loaded."),
    ],
)
@pytest.mark.requirement("S0-141")
def test_discovery_is_to_look_for_a_skill_and_to_take_one(
    made: list[Written], listing: bool, value: float, detail: str
) -> None:
    found = skill_discovery.score(trace(turn(*made)), listing=listing)
    assert (found.value, found.passed, found.detail) == (value, value == 1.0, detail)


@pytest.mark.requirement("S0-141")
def test_a_skill_that_could_not_be_loaded_is_not_discovered() -> None:
    failed = ToolCall("load_skill", {"skill_name": "cvs"}, {"error": "not found", "error_code": "SKILL_NOT_FOUND"})
    found = skill_discovery.score(Trace((Turn(calls=(ToolCall("list_skills"), failed)),)))
    assert (found.value, found.detail) == (0.0, "No skill could be loaded.")


def test_discovery_may_take_several_turns_and_stands_at_the_last() -> None:
    found = skill_discovery.score(trace(turn("list_skills"), turn(), turn(LOAD)))
    assert (found.value, [t.value for t in found.per_turn]) == (1.0, [None, None, 1.0])


@pytest.mark.parametrize(
    ("loaded", "expected", "value", "precision", "recall"),
    [
        (["csv"], ["csv"], 1.0, 1.0, 1.0),
        ([], [], 1.0, 1.0, 1.0),
        (["csv"], [], 0.0, 0.0, 0.0),
        ([], ["csv"], 0.0, 0.0, 0.0),
        (["json"], ["csv"], 0.0, 0.0, 0.0),
        (["csv", "json"], ["csv"], 2 / 3, 0.5, 1.0),
        (["csv"], ["csv", "json"], 2 / 3, 1.0, 0.5),
    ],
)
def test_triggering_is_the_harmonic_mean_of_precision_and_recall(
    loaded: list[str], expected: list[str], value: float, precision: float, recall: float
) -> None:
    found = skill_trigger.score(loading(*loaded), expected)
    assert found.value == pytest.approx(value)
    assert found.figures == {"precision": precision, "recall": recall}
    assert found.passed is (value == 1.0)


def test_a_query_about_one_skill_says_nothing_about_the_others() -> None:
    assert skill_trigger.score(loading("json"), [], watched=["csv"]).value == 1.0
    assert skill_trigger.score(loading("csv", "json"), [], watched=["csv"]).value == 0.0
    assert skill_trigger.score(loading("csv", "json"), ["csv"], watched=["csv"]).value == 1.0


def test_triggering_names_what_is_missing_and_what_is_too_much() -> None:
    assert skill_trigger.score(loading("json"), ["csv"]).detail == "Not loaded: csv. Loaded without need: json."
    assert skill_trigger.score(loading("json"), None).value is None


@settings(max_examples=50)
@given(skills, skills)
def test_triggering_is_one_exactly_where_the_sets_are_equal(loaded: set[str], expected: set[str]) -> None:
    found = skill_trigger.score(loading(*sorted(loaded)), expected)
    assert found.value is not None
    assert (found.value == 1.0) is (loaded == expected)
    assert (found.value == 0.0) is (not loaded & expected and loaded != expected)
    precision, recall = found.figures["precision"], found.figures["recall"]
    if precision + recall:
        assert found.value == pytest.approx(2 * precision * recall / (precision + recall))


def test_the_confusion_of_skills_is_counted_cell_by_cell() -> None:
    found = confusion(
        [
            Triggering(("csv",), ("csv",)),
            Triggering(("csv",), ("json",)),
            Triggering(("csv",), ()),
            Triggering(("csv",), ("csv", "log")),
            Triggering((), ("log",)),
            Triggering((), ()),
            Triggering((), ("json",), watched=("csv",)),
        ]
    )
    assert found.matrix == {
        ("csv", "csv"): 2,
        ("csv", "json"): 1,
        ("csv", NONE): 1,
        (NONE, "log"): 2,
        (NONE, NONE): 2,
    }
    assert found.skills["csv"] == SkillCounts(hits=2, misses=2)
    assert found.skills["csv"].precision == 1.0
    assert found.skills["csv"].recall == 0.5
    assert found.skills["log"].precision == 0.0
    assert found.skills["log"].recall is None
    assert found.total == SkillCounts(hits=2, false_alarms=3, misses=2)
    assert found.names == ["csv", "json", "log", NONE]
    assert found.to_json()["matrix"] == [[2, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 2, 2]]


@settings(max_examples=50)
@given(st.lists(st.tuples(skills, skills), max_size=8))
def test_the_confusions_margins_are_its_counts(pairs: list[tuple[set[str], set[str]]]) -> None:
    found = confusion(Triggering(tuple(expected), tuple(loaded)) for expected, loaded in pairs)
    for name, counts in found.skills.items():
        assert counts.hits == found.matrix.get((name, name), 0)
        assert counts.hits + counts.misses == sum(name in expected for expected, _ in pairs)
        assert counts.hits + counts.false_alarms == sum(name in loaded for _, loaded in pairs)
    assert found.matrix.get((NONE, NONE), 0) == sum(not expected and not loaded for expected, loaded in pairs)
    assert found.total.hits == sum(counts.hits for counts in found.skills.values())
