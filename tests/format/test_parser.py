"""The lenient profile: everything real loads, and every deviation leaves exactly one diagnostic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format import ParsedSkill, Severity, parse_file, parse_head, parse_text

GOOD = "name: pdf\ndescription: Reads PDFs."


def parse(frontmatter: str, body: str = "# T\n\nThe first paragraph.\n\nMore.", folder: str = "pdf") -> ParsedSkill:
    return parse_text(f"---\n{frontmatter}\n---\n\n{body}\n", folder_name=folder)


def codes(skill: ParsedSkill) -> list[str]:
    return [d.code for d in skill.diagnostics]


@pytest.mark.requirement("C13", "S4-8")
def test_a_good_skill_has_every_field_and_no_diagnostic() -> None:
    skill = parse(
        "name: pdf\ndescription: >-\n  Reads\n  PDFs.\nlicense: Apache-2.0\ncompatibility: Needs git\n"
        "allowed-tools: Bash(git:*) Bash(jq:*) Read\nmetadata:\n  author: me\n  version: 1.10\n"
    )
    metadata = skill.metadata
    assert (metadata.name, metadata.description) == ("pdf", "Reads PDFs.")
    assert (metadata.license, metadata.compatibility) == ("Apache-2.0", "Needs git")
    assert metadata.allowed_tools == "Bash(git:*) Bash(jq:*) Read"
    assert metadata.metadata == {"author": "me", "version": "1.10"}
    assert (metadata.extra, metadata.original_name, metadata.repairs) == ({}, "pdf", ())
    assert skill.diagnostics == ()
    assert skill.body == "# T\n\nThe first paragraph.\n\nMore."
    assert skill.body_line == 15


# One row per error of the strict profile, and per deviation that only the loader knows.
ROWS: list[tuple[str, str, str, dict[str, object], str, int | None]] = [
    ("name 64", f"name: {'x' * 70}\ndescription: d", "x" * 70, {"name": "x" * 64}, "name-too-long", 2),
    ("name case", "name: PDF\ndescription: d", "PDF", {"name": "pdf"}, "name-not-lowercase", 2),
    ("name edge", "name: -pdf-\ndescription: d", "-pdf-", {"name": "pdf"}, "name-edge-hyphen", 2),
    ("name --", "name: a--b\ndescription: d", "a--b", {"name": "a-b"}, "name-double-hyphen", 2),
    ("name chars", "name: a_b c\ndescription: d", "a_b c", {"name": "a-b-c"}, "name-invalid-characters", 2),
    ("name path", "name: ../x\ndescription: d", "../x", {"name": "x"}, "name-invalid-characters", 2),
    ("name folder", "name: pdf\ndescription: d", "other", {"name": "pdf"}, "name-mismatch", 2),
    ("no name", "description: d", "My Folder", {"name": "my-folder"}, "name-derived", None),
    ("empty name", "name: ''\ndescription: d", "pdf", {"name": "pdf"}, "name-derived", 2),
    ("null name", "description: d\nname:", "pdf", {"name": "pdf"}, "name-derived", 3),
    ("no letters", "name: '!!'\ndescription: d", "!!", {"name": "unnamed-skill"}, "name-invalid-characters", 2),
    ("list name", "name:\n- pdf\ndescription: d", "pdf", {"name": "pdf"}, "name-not-string", 2),
    ("no description", "name: pdf", "pdf", {"description": "The first paragraph."}, "description-derived", None),
    ("blank", "name: pdf\ndescription: '  '", "pdf", {"description": "The first paragraph."}, "description-derived", 3),
    ("null", "name: pdf\ndescription: ~", "pdf", {"description": "The first paragraph."}, "description-derived", 3),
    ("long", f"name: pdf\ndescription: {'x' * 1025}", "pdf", {"description": "x" * 1025}, "description-too-long", 3),
    ("map", "name: pdf\ndescription:\n  Use: it", "pdf", {"description": "Use: it"}, "description-not-string", 3),
    ("list", "name: pdf\ndescription:\n- a\n- b", "pdf", {"description": "a, b"}, "description-not-string", 3),
    ("license", f"{GOOD}\nlicense:\n  a: b", "pdf", {"license": "a: b"}, "license-not-string", 4),
    (
        "compat",
        f"{GOOD}\ncompatibility:\n  a: 1.0",
        "pdf",
        {"compatibility": '{"a": "1.0"}'},
        "compatibility-not-string",
        4,
    ),
    (
        "compat list",
        f"{GOOD}\ncompatibility:\n- a\n- b",
        "pdf",
        {"compatibility": "a, b"},
        "compatibility-not-string",
        4,
    ),
    (
        "compat 500",
        f"{GOOD}\ncompatibility: {'x' * 501}",
        "pdf",
        {"compatibility": "x" * 501},
        "compatibility-too-long",
        4,
    ),
    ("compat empty", f"{GOOD}\ncompatibility: ''", "pdf", {"compatibility": None}, "compatibility-empty", 4),
    (
        "tools list",
        f"{GOOD}\nallowed-tools:\n- Read\n- Bash(git add:*)",
        "pdf",
        {"allowed_tools": "Read Bash(git add:*)"},
        "allowed-tools-list",
        4,
    ),
    (
        "tools map",
        f"{GOOD}\nallowed-tools:\n  Read: x\n  Write: y",
        "pdf",
        {"allowed_tools": "Read Write"},
        "allowed-tools-list",
        4,
    ),
    (
        "commas",
        f"{GOOD}\nallowed-tools: Read, Bash(a b, c),Write",
        "pdf",
        {"allowed_tools": "Read Bash(a b, c) Write"},
        "allowed-tools-commas",
        4,
    ),
    ("metadata null", f"{GOOD}\nmetadata: null", "pdf", {"metadata": {}, "extra": {}}, "metadata-not-mapping", 4),
    (
        "metadata list",
        f"{GOOD}\nmetadata:\n- a",
        "pdf",
        {"metadata": {}, "extra": {"metadata": ["a"]}},
        "metadata-not-mapping",
        4,
    ),
    (
        "nested",
        f"{GOOD}\nmetadata:\n  a:\n    b: 1.10",
        "pdf",
        {"metadata": {"a": {"b": "1.10"}}},
        "metadata-nested",
        4,
    ),
    (
        "unknown",
        f"{GOOD}\nversion: 1.10\nhooks:\n- a",
        "pdf",
        {"extra": {"version": "1.10", "hooks": ["a"]}},
        "unexpected-fields",
        5,
    ),
    ("spelling", "Name: pdf\ndescription: d", "pdf", {"name": "pdf", "extra": {}}, "field-spelling", 2),
    ("spelling 2", f"{GOOD}\nallowed_tools: Read", "pdf", {"allowed_tools": "Read"}, "field-spelling", 4),
    ("duplicate", f"license: a\n{GOOD}\nlicense: b", "pdf", {"license": "b"}, "duplicate-field", 5),
    ("flow", f"{GOOD}\nmetadata: {{a: b}}", "pdf", {"metadata": {"a": "b"}}, "flow-style", 4),
    ("tag", f"{GOOD}\nlicense: !x y", "pdf", {"license": "y"}, "yaml-tag", 4),
    ("alias", f"{GOOD}\nlicense: &x y", "pdf", {"license": "y"}, "yaml-alias", 4),
    ("dashes", "name: pdf\ndescription: one --- two", "pdf", {"description": "one --- two"}, "fence-inside-value", 3),
    ("comment", "name: pdf\ndescription: Does C #1", "pdf", {"description": "Does C"}, "comment-in-value", 3),
    ("bomb", f"{GOOD}\nlicense: {'[' * 99}", "pdf", {"description": "Reads PDFs."}, "yaml-too-complex", None),
]


@pytest.mark.parametrize(
    ("frontmatter", "folder", "values", "code", "line"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
@pytest.mark.requirement("S0-133", "C15", "C16")
def test_a_deviation_loads_with_one_diagnostic(frontmatter, folder, values, code, line) -> None:
    skill = parse(frontmatter, folder=folder)
    for field, value in values.items():
        assert getattr(skill.metadata, field) == value
    assert [(d.code, d.line) for d in skill.diagnostics if d.code != "name-mismatch" or code == d.code] == [
        (code, line)
    ]
    assert code in skill.metadata.repairs
    assert skill.diagnostics[0].message.endswith(".")


@pytest.mark.requirement("C15", "C16")
@pytest.mark.parametrize(
    ("name", "folder", "code"), [("pdf", "other", "name-mismatch"), ("x" * 65, "x" * 65, "name-too-long")]
)
def test_a_name_that_is_not_the_folders_or_too_long_is_a_warning(name: str, folder: str, code: str) -> None:
    skill = parse(f"name: {name}\ndescription: d", folder=folder)
    assert [(d.code, d.severity) for d in skill.diagnostics if d.code == code] == [(code, Severity.WARNING)]


def test_a_diagnostic_of_a_name_says_which_one_is_used() -> None:
    skill = parse("name: Word_Count\ndescription: d", folder="word-count")
    assert skill.metadata.name == "word-count"
    assert all("'word-count' is used." in diagnostic.message for diagnostic in skill.diagnostics)
    skill = parse("name: other\ndescription: d", folder="word-count")
    assert [diagnostic.message for diagnostic in skill.diagnostics] == [
        "The name 'other' is not the folder's name 'word-count'; 'other' is used."
    ]


@pytest.mark.parametrize("frontmatter", ["", "# c", "- a\n- b", "text"])
def test_frontmatter_that_is_no_mapping_is_derived_and_marked(frontmatter: str) -> None:
    skill = parse(frontmatter)
    assert (skill.metadata.name, skill.metadata.description) == ("pdf", "The first paragraph.")
    assert codes(skill) == ["frontmatter-not-mapping", "name-derived", "description-derived"]


def test_a_list_of_fields_is_read() -> None:
    skill = parse("- name: pdf\n- description: d")
    assert (skill.metadata.name, skill.metadata.description) == ("pdf", "d")
    assert codes(skill) == ["frontmatter-not-mapping"]


def test_without_frontmatter_everything_is_derived_and_marked() -> None:
    skill = parse_text("# My *title*\n\nDoes **this** with [that](x.md).\n", folder_name="My Tool")
    assert (skill.metadata.name, skill.metadata.original_name) == ("my-tool", None)
    assert skill.metadata.description == "Does this with that."
    assert skill.body == "# My *title*\n\nDoes **this** with [that](x.md)."
    assert codes(skill) == ["missing-frontmatter", "name-derived", "description-derived"]


def test_without_prose_the_description_names_the_folder() -> None:
    assert parse("name: pdf", body="# Only a title").metadata.description == "Skill from pdf"


def test_unclosed_frontmatter_is_read_up_to_the_body() -> None:
    skill = parse_text("---\nname: pdf\ndescription: d\n\n# Title\n\nBody: here\n", folder_name="pdf")
    assert (skill.metadata.name, skill.metadata.description, skill.body) == ("pdf", "d", "# Title\n\nBody: here")
    assert codes(skill) == ["unclosed-frontmatter"]


def test_a_rule_in_the_body_does_not_close_unclosed_frontmatter() -> None:
    skill = parse_text("---\nname: pdf\ndescription: d\n\n# Title\n\nText, here\n\n---\nmore\n", folder_name="pdf")
    assert (skill.metadata.description, skill.body) == ("d", "# Title\n\nText, here\n\n---\nmore")
    assert codes(skill) == ["unclosed-frontmatter"]
    assert skill.body_line == 5


@pytest.mark.parametrize("name", ["技能", "мой-навык", "café", "123"])
def test_names_valid_for_skills_ref_are_kept(name: str) -> None:
    skill = parse(f"name: {name}\ndescription: d", folder=name)
    assert (skill.metadata.name, skill.diagnostics) == (name, ())


def test_a_decomposed_folder_name_matches_a_composed_name() -> None:
    skill = parse("name: cafe\u0301\ndescription: d", folder="café")
    assert (skill.metadata.name, skill.metadata.original_name, skill.diagnostics) == ("café", "cafe\u0301", ())


def test_a_numeric_name_and_a_boolean_description_keep_their_spelling() -> None:
    skill = parse("name: 007\ndescription: yes", folder="007")
    assert (skill.metadata.name, skill.metadata.description, skill.diagnostics) == ("007", "yes", ())


def test_a_surrogate_and_nul_from_a_caller_are_marked() -> None:
    skill = parse("name: pdf\ndescription: a\ud800b\0")
    assert skill.metadata.description == "a\ufffdb"
    assert codes(skill) == ["nul-bytes", "invalid-utf8"]


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"])
def test_an_empty_text_is_an_error_with_a_sentence(text: str) -> None:
    with pytest.raises(ParseError, match="is empty; write frontmatter"):
        parse_text(text, folder_name="pdf")


class TestOnDisk:
    def test_head_and_file_agree_on_the_metadata(self, write_skill: Callable[..., Path]) -> None:
        path = write_skill(body="text\n" * 3000) / "SKILL.md"
        head, whole = parse_head(path), parse_file(path)
        assert head.metadata == whole.metadata
        assert head.body == ""
        assert whole.body.count("text") == 3000
        assert whole.metadata.location == path

    @pytest.mark.parametrize(
        "text",
        [
            "---\nname: pdf\n---\n" + "\n" * 5000 + "Derived text.\n" + "x\n" * 5000,
            "# T\n" + "\n" * 5000 + "Derived text.\n" + "x\n" * 5000,
            "---\nname: pdf\n\n# T\n" + "\n" * 5000 + "Derived text.\n" + "x\n" * 5000,
        ],
        ids=["no description", "no frontmatter", "unclosed"],
    )
    def test_the_head_reads_on_when_the_body_must_give_the_description(self, write_skill, text: str) -> None:
        path = write_skill(text=text) / "SKILL.md"
        head, whole = parse_head(path), parse_file(path)
        assert head.metadata == whole.metadata
        assert head.metadata.description.startswith("Derived text.")
        assert head.body == ""

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
    @pytest.mark.parametrize("opening", ["----", "---  # a", "<!-- a -->\n---", "```yaml\n---", "\0---", "---"])
    @pytest.mark.parametrize("cut", range(-5, 1))
    def test_row_454_a_head_has_no_other_name_than_the_file(
        self, write_skill, opening: str, encoding: str, cut: int
    ) -> None:
        """Seen: a page was read where the opening is an odd one, and its end can look like a fence in mid-line."""
        mark = "\ufeff" if encoding != "utf-8" else ""
        before = f"{mark}{opening}\nname: weather\ndescription: Use for CSV.\nnotes: >\n  "
        filling = "b" * (4096 // len("a".encode(encoding)) - len(before) + cut)
        text = f"{before}{filling}\n---x: y\nname: csv-tools\n---\nBody.\n"
        path = write_skill(text=text.encode(encoding)) / "SKILL.md"
        assert parse_head(path).metadata == parse_file(path).metadata
        assert parse_head(path).metadata.name == "csv-tools"

    def test_row_454_a_fence_beyond_what_is_read_of_a_head_counts(self, write_skill) -> None:
        """The bound is in bytes for a head, and in characters for a file."""
        text = (
            f"---\nname: weather\ndescription: d\nnotes: >\n  a\n  ...\n  {'€' * 30_000}\nname: csv-tools\n---\nBody."
        )
        path = write_skill(text=text) / "SKILL.md"
        assert parse_head(path).metadata == parse_file(path).metadata

    @pytest.mark.requirement("C20")
    def test_a_relative_path_gives_an_absolute_location_and_the_folder_name(self, write_skill, monkeypatch) -> None:
        monkeypatch.chdir(write_skill())
        for parsed in (parse_head(Path("SKILL.md")), parse_file(Path("SKILL.md"))):
            assert parsed.metadata.location == Path.cwd() / "SKILL.md"
            assert parsed.diagnostics == ()

    def test_a_diagnostic_names_file_and_line(self, write_skill) -> None:
        path = write_skill("name: pdf\ndescription: a: b") / "SKILL.md"
        (diagnostic,) = parse_head(path).diagnostics
        assert (diagnostic.file, diagnostic.line, diagnostic.severity) == (str(path), 3, Severity.WARNING)
        assert str(diagnostic).startswith(f"{path}:3: warning [unquoted-colon] ")

    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    def test_every_kind_of_line_end_gives_the_same(self, write_skill, newline: str) -> None:
        text = "---\nname: pdf\ndescription: |\n  a\n  b\n---\n\n# T\n\nbody\n"
        path = write_skill(text=text.replace("\n", newline).encode()) / "SKILL.md"
        parsed = parse_file(path)
        assert (parsed.metadata.description, parsed.body, parsed.body_line) == ("a\nb", "# T\n\nbody", 8)
        assert parsed.diagnostics == ()

    @pytest.mark.parametrize(("content", "code"), [(b"\xff", "invalid-utf8"), (b"\0", "nul-bytes")])
    def test_bytes_that_are_not_text_are_marked(self, write_skill, content: bytes, code: str) -> None:
        path = write_skill(text=b"---\nname: pdf\ndescription: d" + content + b"\n---\nbody") / "SKILL.md"
        assert codes(parse_head(path)) == [code]
        assert parse_file(path).metadata.repairs == (code,)

    def test_a_byte_order_mark_is_passed_over_and_reported(self, write_skill) -> None:
        path = write_skill(text=b"\xef\xbb\xbf---\nname: pdf\ndescription: d\n---\nbody") / "SKILL.md"
        assert codes(parse_head(path)) == codes(parse_file(path)) == ["byte-order-mark"]


@pytest.mark.parametrize(
    ("frontmatter", "line", "field"),
    [
        ("name: pdf\ndescription: Use when one\n  and issue #12 in", 4, "description"),
        ("  name: pdf\n  description: Use when a #b c", 3, "description"),
        ('name: pdf\n"description": Use when a # b c', 3, "description"),
        ("name: pdf\ndescription: Use C\t# foo", 3, "description"),
        ("name: pdf\ndescription: d\ncompatibility: Needs C #1 stuff", 4, "compatibility"),
    ],
)
def test_a_comment_that_cuts_a_value_is_said_wherever_it_is(frontmatter: str, line: int, field: str) -> None:
    found = [d for d in parse(frontmatter).diagnostics if d.code == "comment-in-value"]
    assert [d.line for d in found] == [line]
    assert field in found[0].message


@pytest.mark.parametrize(
    "frontmatter",
    [
        "name: pdf # own\ndescription: 'a # b' # c\nlicense: MIT # d",
        "name: pdf\n# c\ndescription: a#b\n  c\n  # d\n# e",
        "name: pdf\ndescription: |\n  a # b\ncompatibility: >- # c\n  d # e\nmetadata:\n  description: a # b",
    ],
)
def test_other_comments_are_nobodys_business(frontmatter: str) -> None:
    assert "comment-in-value" not in codes(parse(frontmatter))


def test_lines_that_no_field_takes_are_named_when_the_rest_is_salvaged() -> None:
    skill = parse("name: pdf\ndescription: Use for\n- a\n- b\nlicense: MIT")
    assert skill.metadata.description == "Use for"
    assert "2 of its lines" in skill.diagnostics[0].message
    assert "'- a'" in skill.diagnostics[0].message


def test_a_diagnostic_is_one_line_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    (folder / "SKILL.md").write_text("no frontmatter")
    diagnostics = parse_file(folder / "SKILL.md").diagnostics
    assert diagnostics
    assert not any("\n" in str(diagnostic) for diagnostic in diagnostics)
