"""``tool_invocation_score`` and ``tool_args_score``: exact values, and what holds for any trace (S0-145 to S0-147)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import Written, names, tool_calls, trace, traces, turn

from adk_skills_agent.evals.metrics import tool_args, tool_invocation
from adk_skills_agent.evals.trace import ToolCall, Trace, Turn

relaxed = settings(max_examples=50)


@pytest.mark.parametrize(
    ("mode", "made", "expected", "value"),
    [
        ("multiset", "abc", "cab", 1.0),
        ("multiset", "a", "aa", 0.5),
        ("multiset", "aaab", "ab", 1.0),
        ("multiset", "xyz", "ab", 0.0),
        ("multiset", "", "abc", 0.0),
        ("multiset", "ab", "abcd", 0.5),
        ("set", "a", "aa", 1.0),
        ("set", "ab", "aabbc", 2 / 3),
        ("ordered", "abc", "abc", 1.0),
        ("ordered", "axbyc", "abc", 1.0),
        ("ordered", "cba", "abc", 1 / 3),
        ("ordered", "bca", "abc", 2 / 3),
        ("ordered", "a", "aa", 0.5),
    ],
)
@pytest.mark.requirement("S0-141", "S0-146")
def test_the_value_is_the_share_of_expected_calls(mode: str, made: str, expected: str, value: float) -> None:
    found = tool_invocation.score(trace(turn(*made)), trace(turn(*expected)), mode=mode)
    assert (found.value, found.passed) == (value, value == 1.0)
    assert bool(found.detail) is (value < 1.0)


def test_the_detail_names_what_was_not_called() -> None:
    found = tool_invocation.score(
        trace(turn("a"), turn("b", "a")), trace(turn("a", "c"), turn("a", "b")), mode="ordered"
    )
    assert found.detail == "Turn 1: Not called: c. Turn 2: Called in another order."


@pytest.mark.requirement("S0-146", "S0-147")
def test_no_expectation_is_one_and_passes() -> None:
    for score in (tool_invocation.score, tool_args.score):
        found = score(trace(turn("a"), turn()), trace(turn(), turn()))
        assert (found.value, found.passed, [t.value for t in found.per_turn]) == (1.0, True, [1.0, 1.0])


def test_a_turn_without_expectation_does_not_hide_a_failure_beside_it() -> None:
    found = tool_invocation.score(trace(turn(), turn("x"), turn()), trace(turn("a"), turn(), turn()))
    assert (found.value, found.passed, [t.value for t in found.per_turn]) == (0.0, False, [0.0, None, None])


def test_a_call_in_another_turn_is_not_the_expected_one() -> None:
    assert tool_invocation.score(trace(turn(), turn("a")), trace(turn("a"), turn())).value == 0.0


def test_a_simulated_user_leaves_nothing_to_compare_with() -> None:
    for score in (tool_invocation.score, tool_args.score):
        found = score(trace(turn("a"), turn("b")), None)
        assert (found.value, found.passed, [t.value for t in found.per_turn]) == (None, None, [None, None])
        assert "no expected calls" in found.detail


def test_a_conversation_that_broke_off_did_nothing_in_the_turns_that_follow() -> None:
    found = tool_invocation.score(trace(turn("a")), trace(turn("a"), turn("b")))
    assert (found.value, [t.value for t in found.per_turn]) == (0.5, [1.0, 0.0])


LOAD: Written = ("load_skill", {"skill_name": "csv"})


@pytest.mark.parametrize(
    ("made", "expected", "value"),
    [
        ([LOAD], [LOAD], 1.0),
        ([("load_skill", {"skill_name": "json"})], [LOAD], 0.0),
        ([("use_skill", {"skill_name": "csv"})], [LOAD], 0.0),
        ([LOAD], [LOAD, LOAD], 0.5),
        ([("run", {"file_path": "a", "args": [1]})], [("run", {"file_path": "a", "args": [2]})], 1.0),
        ([("query", {"query": "select 1"})], [("query", {"query": "select 2"})], 1.0),
        ([("run", {"skill_name": "s", "file_path": "b"})], [("run", {"skill_name": "s", "file_path": "a"})], 0.5),
        ([("info", {"project_id": "p", "table_id": "t"})], [("info", {"project_id": "p", "dataset_id": "d"})], 0.5),
        ([("run", {"path": 1.0})], [("run", {"path": 1})], 1.0),
        ([("run", {"path": True})], [("run", {"path": 1})], 0.0),
        ([("run", {"path": "1"})], [("run", {"path": 1})], 0.0),
        ([("run", {"path": {"a": 1, "b": [2.0]}})], [("run", {"path": {"b": [2], "a": 1}})], 1.0),
        ([], [LOAD], 0.0),
        ([], ["list_skills"], 1.0),
    ],
)
@pytest.mark.requirement("S0-147")
def test_the_value_is_the_share_of_expected_key_arguments(
    made: list[Written], expected: list[Written], value: float
) -> None:
    assert tool_args.score(trace(turn(*made)), trace(turn(*expected))).value == value


def test_the_key_arguments_are_the_owners_choice() -> None:
    made = trace(turn(("run", {"args": "x", "skill_name": "a"}), ("load_skill", {"skill_name": "a"})))
    wanted = trace(turn(("run", {"args": "y", "skill_name": "b"}), ("load_skill", {"skill_name": "a"})))
    assert tool_args.score(made, wanted, key_args=["args"]).value == 0.0
    assert tool_args.score(made, wanted, key_args={"run": ["args"], "*": ["skill_name"]}).value == 0.5
    assert tool_args.score(made, wanted, key_args={"load_skill": ["skill_name"]}).value == 1.0
    assert tool_args.score(made, wanted, key_args=[]).value == 1.0


def test_the_detail_shows_the_missing_argument_and_bounds_it() -> None:
    wanted = trace(turn(("run", {"file_path": "x" * 500})))
    detail = tool_args.score(trace(turn()), wanted).detail
    assert detail.startswith('Not called with: run(file_path="xxx')
    assert len(detail) < 150


@relaxed
@given(traces, traces, st.sampled_from(list(tool_invocation.Mode)), st.floats(0, 1))
def test_values_are_shares_and_passing_is_reaching_the_threshold(
    actual: Trace, expected: Trace, mode: tool_invocation.Mode, threshold: float
) -> None:
    for found in (
        tool_invocation.score(actual, expected, mode=mode, threshold=threshold),
        tool_args.score(actual, expected, threshold=threshold),
    ):
        assert found.value is not None
        assert 0 <= found.value <= 1
        assert found.passed is (found.value >= threshold)
        assert len(found.per_turn) == max(len(actual.turns), len(expected.turns))


@relaxed
@given(traces, st.sampled_from(list(tool_invocation.Mode)))
def test_what_was_expected_scores_one(expected: Trace, mode: tool_invocation.Mode) -> None:
    assert tool_invocation.score(expected, expected, mode=mode).value == 1.0
    assert tool_args.score(expected, expected).value == 1.0


@relaxed
@given(
    st.lists(tool_calls, max_size=6), st.lists(tool_calls, max_size=6), st.lists(tool_calls, max_size=3), st.randoms()
)
@pytest.mark.requirement("S0-146")
def test_order_and_further_calls_change_nothing_where_order_does_not_count(
    made: list[ToolCall], wanted: list[ToolCall], more: list[ToolCall], random: st.random_module
) -> None:
    expected = trace(Turn(calls=tuple(wanted)))
    before = trace(Turn(calls=tuple(made)))
    mixed = list(made)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    for score in (tool_invocation.score, tool_args.score):
        value = score(before, expected).value
        assert score(trace(Turn(calls=tuple(mixed))), expected).value == value
        assert score(trace(Turn(calls=tuple(made + more))), expected).value >= value  # type: ignore[operator]


@relaxed
@given(st.lists(names, max_size=7), st.lists(names, min_size=1, max_size=7))
def test_the_modes_are_ordered_below_multiset_below_set_coverage(made: list[str], wanted: list[str]) -> None:
    def value(mode: str) -> float:
        found = tool_invocation.score(trace(turn(*made)), trace(turn(*wanted)), mode=mode).value
        assert found is not None
        return found

    shared = sum((Counter(made) & Counter(wanted)).values())
    assert value("ordered") <= value("multiset") == shared / len(wanted)
    assert value("set") == len(set(made) & set(wanted)) / len(set(wanted))
