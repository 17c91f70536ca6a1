"""Our strict profile and skills-ref 0.1.1 say the same: about the corpus, and about text made to be difficult."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import skills_ref.parser
import skills_ref.prompt
import skills_ref.validator
from hypothesis import given
from hypothesis import strategies as st
from strictyaml.ruamel.comments import TaggedScalar

from adk_skills_agent.errors import FormatError, ParseError
from adk_skills_agent.format import (
    parse_file,
    parse_text,
    read_properties,
    to_prompt,
    validate_metadata,
    validate_skill,
)
from adk_skills_agent.format.frontmatter import parse_strict

INVALID = "Invalid YAML in frontmatter:"
"""What follows is each parser's own wording."""


def shortened(errors: list[str]) -> list[str]:
    return [INVALID if error.startswith(INVALID) else error for error in errors]


@pytest.mark.parametrize("share", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.requirement("S4-32")
def test_every_file_of_the_corpus_gets_the_same_messages(corpus_files: list[Path], share: int) -> None:
    """Each seventh in `make test`, all in `make test-slow`."""
    differing = []
    for path in corpus_files[::share]:
        reference = skills_ref.validator.validate(path.parent)
        ours = validate_skill(path.parent)
        if shortened(ours.errors) != shortened(reference):
            differing.append((path, reference, ours.errors))
        if reference:
            assert ours.diagnostics, f"{path}: {reference} left no diagnostic when it was loaded"
    assert differing == []


@pytest.mark.requirement("S4-32")
def test_properties_and_prompt_of_the_corpus_are_the_same(corpus_files: list[Path]) -> None:
    refused = []
    for path in corpus_files[::7]:
        try:
            reference = skills_ref.parser.read_properties(path.parent)
        except skills_ref.parser.ParseError as error:
            refused.append((path, str(error)))
            continue
        assert _without_nested(read_properties(path.parent).to_dict()) == _without_nested(reference.to_dict())
        assert to_prompt([path.parent]) == skills_ref.prompt.to_prompt([path.parent])
    for path, message in refused:
        with pytest.raises(FormatError) as caught:
            read_properties(path.parent)
        assert shortened([caught.value.message]) == shortened([message])


def _without_nested(fields: dict[str, object]) -> dict[str, object]:
    # Nested metadata is the repr of a parser's own classes in skills-ref.
    own = fields.get("metadata")
    if isinstance(own, dict):
        fields = {**fields, "metadata": {key: value for key, value in own.items() if value[:1] not in "{[O"}}
    return fields


KEYS = [
    "name",
    "description",
    "license",
    "metadata",
    "allowed-tools",
    "compatibility",
    "a",
    "1.0",
    "null",
    '"q"',
    "k k",
]
VALUES = [
    *("x", "a b", "1.10", "null", "~", "", '"q: x"', "'it''s'", "a: b", "a:b", "a #c", "#c", "[a, b]", "{a: b}", "x:"),
    *(
        "&a x",
        "*a",
        "!t x",
        "|\n  t\n  u",
        ">\n  t\n\n  u",
        ">-\n  t",
        "\n- a\n- b",
        "\n  - a\n  - b",
        "\n  k: v\n  l: w",
    ),
    *(
        "\n  k:\n    m: n\n  l:\n      o: p",
        "x\n  y z",
        "x\n y: z",
        "@x",
        "`x`",
        "%x",
        '"open',
        "'open",
        "x --- y",
        "---",
    ),
    *("\t x", "x\t", "\u00a0x", "x\u2029y", "=", "<<", "2001-01-01", "|", '"\\q"', "- a", "-", "\n  # c\n  k: v"),
    *("x\n\n  y", "# c\n  x", "\n  a: 1\n  a: 2", "技能", "\U0001f600", "x" * 70, "y " * 600, "X_y", "-x", "x--y"),
]
LINES = st.tuples(
    st.sampled_from(["", "", "", "", " ", "  "]),
    st.sampled_from(KEYS),
    st.sampled_from([": ", ": ", ": ", ":", " : "]),
    st.sampled_from(VALUES),
).map("".join)
EXTRA = st.sampled_from(["", "  ", "# c", "   # c", "...", "- x", "x", "--- "])
TEXTS = st.tuples(
    st.sampled_from(["---\n", "---\n", "---\n", "--- \n", "---", "\n---\n", "\ufeff---\n", ""]),
    st.lists(LINES | LINES | LINES | EXTRA, max_size=5).map("\n".join),
    st.sampled_from(["\n---\n", "\n---\n", "\n---", "---\n", "\n ---\n", "\n--- x\n", "\n"]),
    st.sampled_from(["", "body", "# T\n\n---\nx"]),
).map("".join)


@given(TEXTS)
def test_difficult_text_gets_the_same_fields_and_messages(text: str) -> None:
    try:
        reference: object = _plain(skills_ref.parser.parse_frontmatter(text))
    except skills_ref.parser.ParseError as error:
        reference = shortened([str(error)])
    except Exception:
        return  # skills-ref itself failed; any sentence of ours is better
    if "\u2029" in text and "|" in text:
        return  # in a block scalar libyaml ends the line there, as YAML 1.1 says, and strictyaml does not
    try:
        ours: object = parse_strict(text)
    except ParseError as error:
        ours = shortened([error.message])
    assert ours == reference
    if isinstance(ours, tuple):
        assert validate_metadata(ours[0], Path("x")) == skills_ref.validator.validate_metadata(ours[0], Path("x"))


@given(TEXTS)
def test_what_the_strict_profile_refuses_leaves_a_diagnostic_when_it_is_loaded(text: str) -> None:
    try:
        errors = validate_metadata(parse_strict(text)[0], Path("x"))
    except ParseError as error:
        errors = [error.message]
    try:
        skill = parse_text(text, folder_name="x")
    except ParseError:
        return  # an empty text
    assert bool(skill.diagnostics) or not errors


def _plain(value: object) -> object:
    if isinstance(value, TaggedScalar):  # what strictyaml makes of a plain = or <<
        return None
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


@pytest.mark.requirement("S4-32")
def test_the_shim_offers_what_the_tests_of_skills_ref_import() -> None:
    """With it, the 40 tests of skills-ref run against this package: ``PYTHONPATH=<shim> pytest skills-ref/tests``."""
    shim = Path(__file__).parent / "skills_ref_shim"
    code = (
        "import skills_ref, skills_ref.models, skills_ref.errors\n"
        "from skills_ref.parser import find_skill_md, parse_frontmatter, read_properties, ParseError, ValidationError\n"
        "from skills_ref.prompt import to_prompt\n"
        "from skills_ref.validator import validate, validate_metadata\n"
        "assert to_prompt([]) and validate('nowhere') == ['Path does not exist: nowhere']\n"
        "print(skills_ref.__file__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(shim)}, capture_output=True, text=True)
    assert done.stderr == ""
    assert Path(done.stdout.strip()).parent.parent == shim


def test_nothing_of_the_package_imports_skills_ref_or_strictyaml() -> None:
    package = Path(importlib.import_module("adk_skills_agent").__file__ or "").parent
    for path in package.rglob("*.py"):
        assert not any(f"import {name}" in path.read_text("utf-8") for name in ("skills_ref", "strictyaml")), path


@pytest.mark.requirement("S4-31")
def test_every_file_of_the_corpus_loads(corpus_files: list[Path]) -> None:
    """No exception, and at least 99.5 % load; it is all of them."""
    from collections import Counter

    counts: Counter[str] = Counter()
    for path in corpus_files:
        skill = parse_file(path)
        assert skill.metadata.name
        assert skill.metadata.description
        assert set(skill.metadata.repairs) == {d.code for d in skill.diagnostics}
        assert all(d.file == str(path) for d in skill.diagnostics)
        counts.update(d.code for d in skill.diagnostics)
    print(f"{len(corpus_files)} loaded; diagnostics: {dict(counts.most_common())}")
