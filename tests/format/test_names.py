"""Names: the nearest valid one, and skills-ref's opinion of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref.validator import _validate_name

from adk_skills_agent.format import normalise_name
from adk_skills_agent.format.models import is_plain_name


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("pdf", "pdf"),
        ("PDF Reader_2", "pdf-reader-2"),
        ("  a  ", "a"),
        ("--a--b--", "a-b"),
        ("../../etc/passwd", "etc-passwd"),
        ("/", ""),
        ("..", ""),
        ("", ""),
        ("!!!", ""),
        ("a\nb", "a-b"),
        ("技能", "技能"),
        ("Мой Навык", "мой-навык"),
        ("cafe\u0301", "café"),
        ("ﬁle", "file"),
        ("İstanbul", "istanbul"),
        ("x" * 70, "x" * 64),
        ("x" * 63 + "-y", "x" * 63),
        ("a\u200bb", "a-b"),
    ],
)
def test_the_nearest_valid_name(raw: str, name: str) -> None:
    assert normalise_name(raw) == name


@given(st.text(max_size=80))
def test_a_normalised_name_is_empty_or_valid_for_skills_ref_and_stable(raw: str) -> None:
    name = normalise_name(raw)
    assert normalise_name(name) == name
    if name:
        assert _validate_name(name, None) == []


@given(st.text(alphabet="abz09-A_ ", max_size=70))
def test_a_plain_name_is_valid_for_skills_ref(raw: str) -> None:
    assert not is_plain_name(raw) or _validate_name(raw, None) == []
