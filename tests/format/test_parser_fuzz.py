"""Whatever the text or the bytes: a skill or a ParseError, quickly, and the same from every entry point."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format import (
    ParsedSkill,
    parse_file,
    parse_head,
    parse_text,
    to_available_skills_xml,
    validate_skill,
)
from adk_skills_agent.format.yaml_fields import YamlProblem, load_fields, parsed_fields

YAMLISH = st.text(alphabet="ab:- \n\t\"'|>[]{}&*!#%@`,.?~\\0\r\ufeff\u2028\x85\x07é技", max_size=200)
PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "---",
                "\n",
                "\n",
                "name",
                "description",
                "metadata",
                ": ",
                ":",
                " ",
                "  ",
                "- ",
                "x",
                '"',
                "'",
                "[",
                "]",
            ),
            *("{", "}", "&a", "*a", "!t", "|", ">", "#", "\t", "...", "\r\n", "\r", "\ufeff", "```", "<!--", "-->"),
            *("# T", "é", "\0"),
        ]
    ),
    max_size=60,
).map("".join)
FILES = st.one_of(
    st.text(max_size=300),
    PIECES,
    st.builds(lambda count, rest: "\r\n" * count + rest, st.integers(20, 3000), PIECES),
    st.builds(lambda head, body: f"---\n{head}\n---\n{body}", st.one_of(YAMLISH, PIECES), st.text(max_size=50)),
)
BYTE_ORDER_MARK = re.compile("(^\ufeff|[\r\n\x85\u2028\u2029])\ufeff")
"""A second one at the start, or one where a later line starts: libyaml passes over it, PyYAML's own takes it for text.
"""

LONG = st.builds(  # around a border of what is read of a head (row 454)
    lambda before, border, by, after: (before + "b" * max(border + by - len(before.encode()), 0) + after).encode(),
    st.builds(
        lambda fence, head: f"{fence}\nname: a\ndescription: d\nx: >\n  {head}",
        st.sampled_from(["---", "----", "--- # a", "<!-- a -->\n---", "\0---", "\n---"]),
        st.one_of(st.just(""), PIECES),
    ),
    st.sampled_from([4_096, 65_536]),
    st.integers(-6, 1),
    st.builds(lambda end, rest: f"\n---{end}\nname: b\n---\n{rest}", st.sampled_from(["", "-", "x: y"]), PIECES),
)
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(skill: ParsedSkill) -> None:
    metadata = skill.metadata
    assert metadata.name.strip() == metadata.name != ""
    assert metadata.description.strip() != ""
    assert "/" not in metadata.name
    assert ".." not in metadata.name
    assert set(metadata.repairs) == {d.code for d in skill.diagnostics}
    assert skill.body_line >= 1
    for diagnostic in skill.diagnostics:
        assert diagnostic.line is None or diagnostic.line >= 1
    json.dumps([metadata.extra or None, dict(metadata.metadata), skill.body]).encode()
    to_available_skills_xml([metadata]).encode()


@MANY
@given(FILES, st.text(max_size=20))
@example("---\na: &a [*a]\n---\n", "x")
@example("---\na: \ud800\n---\n", "x")
@example("---\n? ---\n---\n", "")
def test_text_gives_a_skill_or_a_parse_error(text: str, folder: str) -> None:
    try:
        skill = parse_text(text, folder_name=folder)
    except ParseError:
        assert not text.replace("\0", "").strip("\ufeff \t\r\n")
        return
    check(skill)


@MANY
@given(st.one_of(st.binary(max_size=300), FILES.map(lambda text: text.encode("utf-8", "replace")), LONG))
@example(b"\xff\xfe-\x00-\x00-\x00\n\x00")
@example(b"---\r")
def test_bytes_on_disk_give_the_same_head_and_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "SKILL.md"
    path.write_bytes(data)
    try:
        whole = parse_file(path)
    except ParseError:
        with pytest.raises(ParseError):
            parse_head(path)
        assert validate_skill(tmp_path).errors
        return
    check(whole)
    head = parse_head(path)
    body_only = {"invalid-utf8", "nul-bytes"}  # found in the body, which the head has not read
    assert [d for d in head.diagnostics if d.code not in body_only] == [
        d for d in whole.diagnostics if d.code not in body_only
    ]
    assert (head.metadata.name, head.metadata.extra) == (whole.metadata.name, whole.metadata.extra)
    assert head.metadata.description == whole.metadata.description
    validate_skill(tmp_path)


@MANY
@given(st.one_of(YAMLISH, PIECES))
@example("a: b\n\n# c\n- d")
@example("\ufeff0:")
def test_libyaml_and_python_agree_where_both_accept(text: str) -> None:
    assume(not BYTE_ORDER_MARK.search(text))
    results = []
    for libyaml in (True, False):
        try:
            results.append(parsed_fields(text, libyaml=libyaml).values)
        except YamlProblem:
            return
    assert results[0] == results[1]


@MANY
@given(st.one_of(YAMLISH, PIECES))
@example("name: x\ndescription: a 'b' \"c\" [d]\nmetadata:\n  v: 1.10\n")
def test_the_shortest_way_reads_what_the_yaml_parser_reads(text: str) -> None:
    try:
        parsed = parsed_fields(text)
    except YamlProblem:
        with pytest.raises(YamlProblem):
            load_fields(text)
        return
    assert load_fields(text) == parsed
