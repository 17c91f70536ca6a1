"""YAML with the spelling kept, the lines known and bombs refused; the same with and without libyaml."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adk_skills_agent.format.yaml_fields import YamlProblem, as_text, parsed_fields

both = pytest.mark.parametrize("libyaml", [True, False], ids=["libyaml", "python"])


@both
def test_scalars_keep_their_spelling(libyaml: bool) -> None:
    text = "a: 1.10\nb: yes\nc: 0x1F\nd: 2024-01-01\ne: '1.0'\nf: 1_000\ng: .5\nh: 'null'\n"
    values = parsed_fields(text, libyaml=libyaml).values
    assert values == dict(
        zip("abcdefgh", ["1.10", "yes", "0x1F", "2024-01-01", "1.0", "1_000", ".5", "null"], strict=True)
    )


@both
@pytest.mark.parametrize("null", ["", "~", "null", "Null", "NULL"])
def test_only_a_plain_null_is_none(libyaml: bool, null: str) -> None:
    fields = parsed_fields(f"a: {null}\nb: '{null}'\nc:\n  d: {null}\n  e: \"{null}\"", libyaml=libyaml)
    assert fields.values == {"a": None, "b": null, "c": {"d": None, "e": null}}


@both
def test_nested_values_stay_nested_and_lines_are_known(libyaml: bool) -> None:
    fields = parsed_fields("a:\n  - b: 1\n    c: [2, {d: 3}]\n  - x\n\nz: |\n  l1\n  l2\n", libyaml=libyaml)
    assert fields.values == {"a": [{"b": "1", "c": ["2", {"d": "3"}]}, "x"], "z": "l1\nl2\n"}
    assert fields.lines == {"a": 0, "z": 5}
    assert fields.features == {"flow-style": 2}


@both
def test_the_last_of_duplicate_keys_counts_at_every_depth(libyaml: bool) -> None:
    fields = parsed_fields("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n", libyaml=libyaml)
    assert fields.values == {"a": "3", "b": {"c": "2"}}
    assert sorted(fields.duplicates) == [("a", 4), ("c", 3)]


@both
@pytest.mark.parametrize(
    ("text", "feature", "line"),
    [
        ("a: b\nc: [d]", "flow-style", 1),
        ("a: {b: c}", "flow-style", 0),
        ("a: !t b", "yaml-tag", 0),
        ("a: b\nc: !!python/object/apply:os.system ['id']", "yaml-tag", 1),
        ("a: &x b", "yaml-alias", 0),
        ("a: b\nc: &x d\ne: *x", "yaml-alias", 1),
        ("? [a, b]\n: c", "complex-key", 0),
        ("a: b\nc: =", "special-scalar", 1),
        ("a:\n- <<", "special-scalar", 1),
        ("a:\n  b: c\nd:\n    e: f", "uneven-mappings", 3),
    ],
)
def test_what_skills_ref_refuses_is_noted(libyaml: bool, text: str, feature: str, line: int) -> None:
    assert parsed_fields(text, libyaml=libyaml).features[feature] == line


@both
@pytest.mark.parametrize("value", ["Q&A", "a & b", "'&a'", "x &y"])
def test_an_ampersand_in_prose_is_no_anchor(libyaml: bool, value: str) -> None:
    assert parsed_fields(f"a: {value}", libyaml=libyaml).features == {}


@both
@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("a: b: c", "invalid-yaml", 0),
        ("a: b\nc: 'd", "invalid-yaml", None),
        ("a: \x07", "invalid-yaml", None),
        ("a: *x", "invalid-yaml", 0),
        ("a: b\n...\nc: d", "invalid-yaml", None),
        ("", "frontmatter-not-mapping", None),
        ("# c", "frontmatter-not-mapping", None),
        ("- a", "frontmatter-not-mapping", 0),
        ("text", "frontmatter-not-mapping", 0),
    ],
)
def test_a_problem_has_a_code_and_where_known_a_line(libyaml: bool, text: str, code: str, line: int | None) -> None:
    with pytest.raises(YamlProblem) as caught:
        parsed_fields(text, libyaml=libyaml)
    assert caught.value.code == code
    if line is not None:
        assert caught.value.line == line


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
)


@both
@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &a [*a]",
        "a: &a {b: *a}",
        "a: " + "[" * 60_000,
        "a: " + "[" * 100 + "]" * 100,
        "{" * 60_000,
        "- " * 30_000,
        "? " * 30_000,
        "\n".join("  " * i + f"k{i}:" for i in range(60)),
        "a:\n" + "- x\n" * 10_001,
        "a: &a x\nb: [" + "*a, " * 10_001 + "]",
    ],
    ids=["billion laughs", "self", "self mapping", "[", "[]", "{", "-", "?", "deep block", "long list", "aliases"],
)
def test_a_bomb_is_refused(libyaml: bool, text: str) -> None:
    with pytest.raises(YamlProblem) as caught:
        parsed_fields(text, libyaml=libyaml)
    assert caught.value.code in ("yaml-too-complex", "invalid-yaml")


def test_nesting_cannot_end_the_process() -> None:
    """libyaml's composer is recursive C: unbounded, `[` repeated overflows the stack with a segmentation fault."""
    code = (
        "from adk_skills_agent.format import parse_text\n"
        "for opening in ('[', '{', '- ', '? ', '[{'):\n"
        "    skill = parse_text('---\\na: ' + opening * 20000 + '\\n---\\nbody', folder_name='x')\n"
        "    assert skill.diagnostics\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_value_as_text() -> None:
    assert as_text(["a", {"b": "c", "d": None}, None]) == "a, b: c; d, "
    assert as_text(None) == ""


@both
@pytest.mark.parametrize("use", ["description: [{}]", "x:\n  k: [{}]", "? [{}]\n: x"])
def test_aliases_of_a_long_value_are_too_complex(libyaml: bool, use: str) -> None:
    """Few values, but some kilobytes would become some hundred megabytes."""
    with pytest.raises(YamlProblem, match="characters") as caught:
        parsed_fields(f"a: &a {'x' * 16_000}\n" + use.format(", ".join(["*a"] * 2000)), libyaml=libyaml)
    assert caught.value.code == "yaml-too-complex"
