"""Names of output files."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.sandbox.files.collect import distinct_name, mime_type, readable_name, safe_name

PARTS = st.binary(min_size=1, max_size=40).filter(lambda b: b not in {b".", b".."} and b"\0" not in b and b"/" not in b)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_any_path_of_a_file_system_gets_a_safe_name(parts):
    path = b"/".join(parts).decode("utf-8", "surrogateescape")
    assert readable_name(path).isprintable()
    name = safe_name(path)
    assert name is not None
    name.encode("utf-8")
    assert name.isprintable()
    assert not os.path.isabs(name)
    for part in name.split("/"):
        assert part not in {"", ".", ".."}
        assert not set('<>:"|?*\\') & set(part)
        assert not part.endswith((" ", "."))


def test_names_that_are_fine_stay_as_they_are():
    for name in ("report.csv", "a b/ü.txt", "技能.md", ".hidden", "x.tar.gz", "-rf"):
        assert safe_name(name) == name


def test_equal_names_become_distinct_also_without_regard_to_case():
    taken: set[str] = set()
    assert [distinct_name(name, taken) for name in ("a.txt", "A.txt", "a.txt", "d/.x", "d/.x", "b", "B")] == [
        *("a.txt", "A~2.txt", "a~3.txt", "d/.x", "d/.x~2", "b", "B~2")
    ]


def test_the_type_of_a_file_is_found_by_its_suffix_and_never_guessed():
    assert mime_type("a/b.CSV") == "text/csv"
    assert mime_type("x.html.png") == "image/png"
    for name in ("noext", ".csv.", "x." + "a" * 10_000, "x.unknown", "a.csv/b"):
        assert mime_type(name) == "application/octet-stream"
