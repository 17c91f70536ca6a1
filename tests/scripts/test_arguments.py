from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.errors import ErrorCode, InvalidArguments
from adk_skills_agent.scripts.plan import MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, ScriptArguments, build_argv


def argv(args: object = None, **more: object) -> tuple[str, ...]:
    return build_argv(ScriptArguments(args, **more))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (None, ()),
        ({}, ()),
        ({"name": "John Doe", "n": 3, "ratio": 0.5}, ("--name", "John Doe", "--n", "3", "--ratio", "0.5")),
        ({"verbose": True, "quiet": False, "limit": None}, ("--verbose",)),
        ({"item": ["a", 2, True]}, ("--item", "a", "--item", "2", "--item")),
        ({"_positional": ["in.csv", 7], "top": 3}, ("--top", "3", "in.csv", "7")),
        ({"--already": "x", "-s": "y"}, ("--already", "x", "-s", "y")),
        ({"dry_run": True, "a.b": 1, "ключ": "з"}, ("--dry_run", "--a.b", "1", "--ключ", "з")),
        (["--x", "a b", "$(id)", ";id", "", "-rf", "--", "-c"], ("--x", "a b", "$(id)", ";id", "", "-rf", "--", "-c")),
        (["line\nbreak", 3, 1.5], ("line\nbreak", "3", "1.5")),
        ('--name "John Doe" --path a\\ b', ("--name", "John Doe", "--path", "a b")),
        ("", ()),
    ],
)
@pytest.mark.requirement("S0-35", "S0-38", "S0-39", "S0-40", "S0-42")
def test_each_form_becomes_one_literal_argv(args: object, expected: tuple[str, ...]) -> None:
    """S0-35, S0-38 to S0-40, S0-42, attack row 48."""
    assert argv(args) == expected


def test_options_come_before_positional_arguments_whatever_form_they_have() -> None:
    assert argv(
        {"long": 1, "_positional": ["first"]}, short_options={"v": True, "o": "f"}, positional_args=["last"]
    ) == ("--long", "1", "-v", "-o", "f", "first", "last")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"cfg": {"a": 1}}, "args.cfg is a nested object"),
        ({"cfg": [[1]]}, "nested object or list"),
        ({"x y": 1}, "holds a space"),
        ({"a=b": 1}, "holds a space, a quote or '='"),
        ({"": 1}, "without a name"),
        ({"--": 1}, "without a name"),
        ({"x": float("nan")}, "not a finite number"),
        ({"x": float("inf")}, "not a finite number"),
        ({"x": 10**5000}, "too many digits"),
        ({"x": "a\0b"}, "NUL byte"),
        ({"a\0b": "x"}, "NUL byte"),
        (["\ud800"], "not valid Unicode"),
        ([None], "null"),
        ([True], "a boolean"),
        ([{"a": 1}], "nested object"),
        (7, "'args' must be a JSON object (dict), a list of strings or a string, got int"),
        (True, "got bool"),
        ('--name "John', "no closing quotation"),
        (["x" * (1 << 20)], "Argument 1 has 1,048,576 bytes"),
        (["x"] * 100_000, "100,000 arguments"),
        (["y" * 100_000] * 12, "bytes together"),
        ("\\x" * (1 << 18), "at most 262,144 are split"),
        ({"_positional": [{}]}, "args._positional[0]"),
    ],
)
@pytest.mark.requirement("S0-32", "S0-33", "S0-36", "S0-40")
def test_what_cannot_be_passed_is_refused_with_its_place(args: object, says: str) -> None:
    """S0-32, S0-33, S0-36, S0-40, attack rows 48, 49 and 237."""
    with pytest.raises(InvalidArguments) as caught:
        argv(args)
    assert says in caught.value.message
    assert caught.value.code is ErrorCode.INVALID_ARGUMENTS


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"short_options": ["v"]}, "'short_options' must be a JSON object (dict), got list."),
        ({"positional_args": "x"}, "'positional_args' must be a list of strings, got str."),
    ],
)
def test_the_other_forms_are_checked_as_well(more: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidArguments, match=says.replace("(", r"\(").replace(")", r"\)")):
        argv(None, **more)


def test_a_list_is_the_complete_argv_so_other_forms_beside_it_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="when 'args' is a list"):
        argv(["a"], positional_args=["b"])


def test_the_largest_argument_the_kernel_takes_is_passed() -> None:
    assert len(argv(["x" * MAX_ARGUMENT_BYTES])[0]) == MAX_ARGUMENT_BYTES
    assert len(argv(["x"] * MAX_ARGUMENTS)) == MAX_ARGUMENTS


_scalars = st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.booleans(), st.none())
_json = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)


@given(_json, _json, _json)
def test_any_json_is_either_an_argv_of_plain_strings_or_refused(
    args: object, short: object, positional: object
) -> None:
    try:
        result = build_argv(ScriptArguments(args, short, positional))
    except InvalidArguments:
        return
    assert all(isinstance(element, str) and "\0" not in element for element in result)
    for element in result:
        element.encode("utf-8")
