"""From the fields of a frontmatter to a SkillMetadata. To add a repair: write a function, name it in REPAIRS.

A repair looks at one matter in the draft, changes it, and says so with ``draft.note``. Order matters: a repair may rely
on what those before it left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.format.models import (
    MAX_NAME_LENGTH,
    Diagnostic,
    Severity,
    SkillMetadata,
    YamlValue,
    is_plain_name,
    nfkc,
    normalise_name,
)
from adk_skills_agent.format.yaml_fields import as_text

MAX_DESCRIPTION_LENGTH = 1024
"""Characters (S9)."""
MAX_COMPATIBILITY_LENGTH = 500
"""Characters (S11)."""
FIELDS = ("name", "description", "license", "allowed-tools", "metadata", "compatibility")
"""The fields of the specification."""
_FIELD_SET = frozenset(FIELDS)
_NAMELESS = "unnamed-skill"


@dataclass(slots=True, eq=False)
class Draft:
    """A skill's level 1 while it is being made."""

    fields: dict[str, YamlValue]  # what the frontmatter says and no repair has taken yet
    lines: Mapping[str, int]
    folder_name: str  # name of the folder the file is in
    file: str | None
    body: Callable[[], str]  # gives the body; reading it may cost a second look at the file
    diagnostics: list[Diagnostic]
    name: str = ""
    original_name: str | None = None
    description: str = ""
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: str | None = None
    metadata: Mapping[str, YamlValue] | None = None

    def note(self, code: str, severity: Severity, message: str, field: str | None = None) -> None:
        """Leave a diagnostic; ``field`` gives the line."""
        line = self.lines.get(field) if field is not None else None
        self.diagnostics.append(Diagnostic(code, severity, message, self.file, line))

    def finish(self, location: Path | None) -> SkillMetadata:
        """The value. Fields nobody took are kept in ``extra``."""
        optional: dict[str, Mapping[str, YamlValue]] = {}
        if self.metadata:
            optional["metadata"] = self.metadata
        if self.fields:
            optional["extra"] = self.fields
        return SkillMetadata(
            self.name,
            self.description,
            str(location) if location is not None else None,
            self.license,
            self.compatibility,
            self.allowed_tools,
            original_name=self.original_name,
            repairs=tuple(dict.fromkeys(d.code for d in self.diagnostics)) if self.diagnostics else (),
            **optional,
        )


def recognise_field_spellings(draft: Draft) -> None:
    """``Name``, ``allowed_tools`` or ``allowedTools`` are the field of the specification, when that one is absent."""
    for key in [key for key in draft.fields if key not in _FIELD_SET]:
        meant = key.strip().lower().replace("_", "-").replace(" ", "-")
        meant = "allowed-tools" if meant == "allowedtools" else meant
        if meant in _FIELD_SET and meant not in draft.fields:
            draft.fields[meant] = draft.fields.pop(key)
            if key in draft.lines:
                draft.lines = {**draft.lines, meant: draft.lines[key]}
            draft.note("field-spelling", Severity.WARNING, f"Field {key!r} was read as {meant!r}; write it so.", meant)


def report_unknown_fields(draft: Draft) -> None:
    """Fields outside the specification are kept, and named."""
    unknown = sorted(key for key in draft.fields if key not in _FIELD_SET)
    if unknown:
        draft.note(
            "unexpected-fields",
            Severity.INFO,
            f"Fields outside the specification: {', '.join(unknown)}; kept. Own fields belong under `metadata`.",
            unknown[0],
        )


def take_name(draft: Draft) -> None:
    """The name as written when it is valid, else the nearest valid one; the folder's when there is none (S4-S7)."""
    value = draft.fields.pop("name", None)
    if isinstance(value, str) and value == draft.folder_name and is_plain_name(value):
        draft.name = draft.original_name = value
        return
    written = as_text(value).strip()
    if not written:
        draft.name = normalise_name(draft.folder_name) or _NAMELESS
        state = "empty" if "name" in draft.lines else "missing"
        draft.note(
            "name-derived",
            Severity.WARNING,
            f"The name is {state}; {draft.name!r} was taken from the folder. Add `name: {draft.name}`.",
            "name",
        )
        return
    draft.original_name = written
    if not isinstance(value, str):
        draft.note("name-not-string", Severity.WARNING, "The name is not a string; its text was taken.", "name")
    name = nfkc(written)
    draft.name = name
    if not is_plain_name(name):
        valid = normalise_name(name) or normalise_name(draft.folder_name) or _NAMELESS
        if _report_name(draft, name, valid):
            draft.name = valid
    if draft.folder_name and nfkc(draft.folder_name) != name:
        draft.note(
            "name-mismatch",
            Severity.WARNING,
            f"The name {written!r} is not the folder's name {draft.folder_name!r}; {draft.name!r} is used.",
            "name",
        )


def _report_name(draft: Draft, name: str, valid: str) -> bool:
    """One diagnostic for each rule the name breaks, with the name that is used. Returns whether it breaks any."""
    faults = (
        (len(name) > MAX_NAME_LENGTH, "name-too-long", f"has {len(name)} characters, {MAX_NAME_LENGTH} are allowed"),
        (name != name.lower(), "name-not-lowercase", "is not lower case"),
        (name.startswith("-") or name.endswith("-"), "name-edge-hyphen", "starts or ends with a hyphen"),
        ("--" in name, "name-double-hyphen", "has two hyphens in a row"),
        (
            not all(char.isalnum() or char == "-" for char in name),
            "name-invalid-characters",
            "has characters other than letters, digits and hyphens",
        ),
    )
    found = False
    for broken, code, what in faults:
        if broken:
            found = True
            shown = name if len(name) <= 100 else name[:100] + "..."
            draft.note(code, Severity.WARNING, f"The name {shown!r} {what}; {valid!r} is used.", "name")
    return found


def take_description(draft: Draft) -> None:
    """The description as written; without one, the first paragraph of the body (S9, S0-133)."""
    value = draft.fields.pop("description", None)
    if isinstance(value, str):
        draft.description = value.strip()
    elif value is not None:
        draft.description = as_text(value).strip()
        if draft.description:
            message = "The description is not a string; its text was taken. Put it in quotes."
            draft.note("description-not-string", Severity.WARNING, message, "description")
    if not draft.description:
        state = "empty" if "description" in draft.lines else "missing"

        derived = first_paragraph(draft.body())
        draft.description = derived or f"Skill from {draft.folder_name or draft.name}"
        source = "the first paragraph of the body" if derived else "the folder's name"
        message = f"The description is {state}; {source} was taken. Say what the skill does and when to use it."
        draft.note("description-derived", Severity.WARNING, message, "description")
    elif isinstance(value, str) and len(value) > MAX_DESCRIPTION_LENGTH:
        message = f"The description has {len(value)} characters, {MAX_DESCRIPTION_LENGTH} are allowed; kept whole."
        draft.note("description-too-long", Severity.WARNING, message, "description")


def take_license(draft: Draft) -> None:
    """The license as text (S10)."""
    value = draft.fields.pop("license", None)
    if value is None:
        return
    if not isinstance(value, str):
        draft.note("license-not-string", Severity.INFO, "The license is not a string; its text was taken.", "license")
    draft.license = as_text(value).strip() or None


def take_compatibility(draft: Draft) -> None:
    """The compatibility as text, a mapping as JSON (S11, S0-133)."""
    value = draft.fields.pop("compatibility", None)
    if value is None:
        return
    if isinstance(value, dict):
        import json

        draft.compatibility = json.dumps(value, ensure_ascii=False)
    else:
        draft.compatibility = as_text(value).strip() or None
    if not isinstance(value, str):
        message = "The compatibility is not a string; it was written as one."
        draft.note("compatibility-not-string", Severity.INFO, message, "compatibility")
    elif not value.strip():
        draft.note("compatibility-empty", Severity.INFO, "The compatibility is empty; leave it out.", "compatibility")
    elif len(value) > MAX_COMPATIBILITY_LENGTH:
        message = f"The compatibility has {len(value)} characters, {MAX_COMPATIBILITY_LENGTH} are allowed; kept whole."
        draft.note("compatibility-too-long", Severity.INFO, message, "compatibility")


def take_allowed_tools(draft: Draft) -> None:
    """The tools as the specification has them: separated by spaces (S13). Lists and commas are common in practice."""
    value = draft.fields.pop("allowed-tools", None)
    if value is None:
        return
    if isinstance(value, str):
        if "," in value:
            tools = split_tools(value)
            text = " ".join(tools)
            if text != " ".join(value.split()):
                message = "The allowed tools are separated by commas; write them with spaces between."
                draft.note("allowed-tools-commas", Severity.INFO, message, "allowed-tools")
            draft.allowed_tools = text or None
        else:
            draft.allowed_tools = value.strip() or None
        return
    items = value if isinstance(value, list) else list(value)
    draft.allowed_tools = " ".join(filter(None, (as_text(item).strip() for item in items))) or None
    kind = "list" if isinstance(value, list) else "mapping"
    message = f"The allowed tools are a {kind}; write them as one string with spaces between."
    draft.note("allowed-tools-list", Severity.INFO, message, "allowed-tools")


def split_tools(text: str) -> list[str]:
    """The tools in a string, at commas and spaces outside parentheses: ``Bash(git add:*), Read`` has two."""
    tools: list[str] = []
    current: list[str] = []
    depth = 0
    for char in text:
        depth = max(0, depth + (char == "(") - (char == ")"))
        if depth == 0 and (char == "," or char.isspace()):
            tools.append("".join(current))
            current = []
        else:
            current.append(char)
    tools.append("".join(current))
    return [tool for tool in tools if tool]


def take_metadata(draft: Draft) -> None:
    """The author's own keys (S12). Nested values stay as they are; what is not a mapping is kept in ``extra``."""
    if "metadata" not in draft.fields:
        return
    value = draft.fields["metadata"]
    if isinstance(value, dict):
        del draft.fields["metadata"]
        draft.metadata = value
        nested = [key for key, item in value.items() if item is not None and not isinstance(item, str)]
        if nested:
            message = f"Values under `metadata` should be strings; {', '.join(nested)} is kept as it is."
            draft.note("metadata-nested", Severity.INFO, message, "metadata")
        return
    if value is None:
        del draft.fields["metadata"]
        message = "The metadata is empty; leave it out."
    else:
        message = "The metadata is not a mapping; it is kept as an unknown field."
    draft.note("metadata-not-mapping", Severity.INFO, message, "metadata")


Repair = Callable[[Draft], None]

REPAIRS: tuple[Repair, ...] = (
    recognise_field_spellings,
    report_unknown_fields,
    take_name,
    take_description,
    take_license,
    take_compatibility,
    take_allowed_tools,
    take_metadata,
)
"""Every field repair, in the order in which they run."""


# A description from the body, for skills that have none (S0-133).

MAX_DERIVED_LENGTH = 300
"""Characters; a derived description is cut here, at the end of a word: it serves to find the skill."""
_SEARCHED = 20_000  # characters of body looked at; a skill says what it is near its start
_FENCED = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOT_PROSE = re.compile(
    r"[ \t]*(?:#|\||>|[-*+][ \t]|\d+[.)][ \t]|!\[|\[!|<|[-=*_]{3,}[ \t]*$|\*\*[^*\n]+\*\*[ \t]*:|\*\*[^*\n]+:\*\*)"
)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_EMPHASIS = re.compile(r"(\*\*|__|\*|`)(?=\S)(.+?)(?<=\S)\1")


def first_paragraph(body: str) -> str | None:
    """The first paragraph of prose, on one line and without Markdown, at most ``MAX_DERIVED_LENGTH`` characters.

    Returns the text, or None when the body has no prose. Headings, lists, tables, code, comments, badges and
    ``**Label**: value`` lines are not prose.
    """
    text = _COMMENT.sub("", _FENCED.sub("", body[:_SEARCHED]))
    paragraph: list[str] = []
    for line in text.split("\n"):
        if not line.strip() or _NOT_PROSE.match(line):
            if paragraph:
                break
            continue
        paragraph.append(line.strip())
    # Cut before the patterns see it: on a long paragraph of unpaired asterisks they take quadratic time.
    prose = " ".join(" ".join(paragraph).split())[: 4 * MAX_DERIVED_LENGTH]
    prose = _EMPHASIS.sub(r"\2", _LINK.sub(r"\1", prose))
    if not any(char.isalnum() for char in prose):
        return None
    if len(prose) > MAX_DERIVED_LENGTH:
        prose = prose[:MAX_DERIVED_LENGTH].rsplit(" ", 1)[0].rstrip(",;:.") + "..."
    return prose
