"""Names: the nearest valid one, and skills-ref's opinion of it."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref.validator import _validate_name

from adk_skills_agent.catalog.search import indexed_text
from adk_skills_agent.format import normalise_name, parse_text
from adk_skills_agent.format.models import is_plain_name, nfkc


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


def test_row_145_a_letter_with_very_many_accents_takes_no_minutes():
    """Seen: ``unicodedata`` sorts them with the square of their number, and lets no other thread run meanwhile."""
    accents = "a" + "\u0301" * 60_000 + "\u0316" * 60_000
    began = time.process_time()
    parsed = parse_text(f"---\nname: {accents}\ndescription: {accents}\n---\n{accents}\n", folder_name="x")
    assert indexed_text(accents)
    assert parsed.metadata.name
    assert time.process_time() - began < 10


def test_the_form_of_a_long_text_is_the_same_where_its_lines_are_not_longer_than_a_piece():
    text = "\n".join(["e\u0301 \ufb01 \u212b"] * 2_000)
    assert nfkc(text) == unicodedata.normalize("NFKC", text)
