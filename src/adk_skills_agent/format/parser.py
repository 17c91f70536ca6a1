"""The lenient reading of a SKILL.md: everything real loads, every deviation leaves a diagnostic (C13-C19, S0-133)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.field_repairs import REPAIRS, Draft
from adk_skills_agent.format.frontmatter import Split, split_frontmatter
from adk_skills_agent.format.models import Diagnostic, ParsedSkill, Severity, YamlValue
from adk_skills_agent.format.reading import Opener, SkillFileText, clean_text, read_head, read_text
from adk_skills_agent.format.text_repairs import TEXT_CHECKS
from adk_skills_agent.format.yaml_fields import TOO_COMPLEX, YamlFields, YamlProblem, load_fields

_PROBLEMS = {
    "invalid-yaml": "The frontmatter is not YAML",
    "yaml-too-complex": "The frontmatter is too complex",
    "frontmatter-not-mapping": "The frontmatter is not a mapping of fields to values",
}
_FEATURES = {
    "flow-style": "The frontmatter has a list or mapping in brackets; skills-ref accepts only the block form.",
    "yaml-tag": "The frontmatter has a YAML tag, which is ignored; skills-ref refuses it. Remove it.",
    "yaml-alias": "The frontmatter has a YAML anchor or alias, which skills-ref refuses. Write the value out.",
    "complex-key": "The frontmatter has a list or mapping as a key; its text was taken.",
    "special-scalar": "A plain `=` or `<<` is not text in YAML; put it in quotes.",
    "uneven-mappings": "Mappings of one level are indented differently, which skills-ref refuses.",
}


class _BodyNeeded(Exception):
    """A value must be derived from the body, and only the head was read."""


def parse_head(path: Path, opener: Opener = os.open) -> ParsedSkill:
    """Read level 1 of a skill: the file up to its closing fence, more only when the body must give the description.

    Returns the skill with an empty body. Raises ``ParseError`` when nothing can be made of the file: not a regular
    file, unreadable, larger than 4 MiB, or empty.
    """
    path = _absolute(path)
    head = read_head(path, opener)
    split = split_frontmatter(head.text)
    if not head.complete:
        # A head that was cut anywhere else may look closed where the whole file goes on, with another name (row 454).
        if head.closed and split.closed:
            try:
                return _parse(head, split, _folder_name(path), path, _no_body)
            except _BodyNeeded:
                pass
        head = read_text(path, opener)
        split = split_frontmatter(head.text)
    body = head.text[split.body_start :].strip()
    return _parse(head, split, _folder_name(path), path, lambda: body)


def parse_file(path: Path, opener: Opener = os.open) -> ParsedSkill:
    """Read a whole SKILL.md.

    Returns the skill with its body. Raises ``ParseError`` when nothing can be made of the file: not a regular file,
    unreadable, larger than 4 MiB, or empty.
    """
    return parse_read(read_text(path, opener), path)


def parse_read(read: SkillFileText, path: Path) -> ParsedSkill:
    """Parse a SKILL.md that was read already. Returns the skill with its body.

    Raises ``ParseError`` when it has no usable frontmatter.
    """
    path = _absolute(path)
    return _parse_whole(read, _folder_name(path), path)


def parse_text(text: str, *, folder_name: str, location: Path | None = None) -> ParsedSkill:
    """Read the text of a SKILL.md that may not be on disk.

    ``folder_name`` gives the name when the text has none; ``location`` is for diagnostics and the metadata. Returns the
    skill with its body. Raises ``ParseError`` when the text is empty.
    """
    text, diagnostics = clean_text(text, str(location) if location is not None else None)
    return _parse_whole(
        SkillFileText(text, len(text), complete=True, diagnostics=tuple(diagnostics)), folder_name, location
    )


def _parse_whole(read: SkillFileText, folder_name: str, location: Path | None) -> ParsedSkill:
    split = split_frontmatter(read.text)
    raw_body = read.text[split.body_start :]
    body = raw_body.strip()
    head = _parse(read, split, folder_name, location, lambda: body)
    skipped = raw_body.count("\n", 0, len(raw_body) - len(raw_body.lstrip()))
    return ParsedSkill(head.metadata, body, head.diagnostics, head.body_line + skipped)


def _parse(
    read: SkillFileText, split: Split, folder_name: str, location: Path | None, body: Callable[[], str]
) -> ParsedSkill:
    file = str(location) if location is not None else None
    if split.frontmatter is None and not read.text.strip("\ufeff \t\n"):
        raise ParseError(f"{file or 'The SKILL.md'} is empty; write frontmatter with a name and a description.")
    diagnostics = list(read.diagnostics)
    diagnostics.extend(Diagnostic(f.code, f.severity, f.message, file, f.line) for f in split.findings)
    values: dict[str, YamlValue] = {}
    lines: dict[str, int] = {}
    if split.frontmatter is not None:
        fields = _fields(split.frontmatter, split.frontmatter_line, file, diagnostics)
        values = fields.values
        lines = {key: line + split.frontmatter_line for key, line in fields.lines.items()}
    draft = Draft(values, lines, folder_name=folder_name, file=file, body=body, diagnostics=diagnostics)
    for repair in REPAIRS:
        repair(draft)
    metadata = draft.finish(location)
    body_line = read.text.count("\n", 0, split.body_start) + 1
    return ParsedSkill(metadata, "", tuple(diagnostics), body_line)


def _fields(text: str, first_line: int, file: str | None, diagnostics: list[Diagnostic]) -> YamlFields:
    """The fields of a frontmatter: as YAML, as YAML after repairs, or salvaged line by line."""

    def note(code: str, severity: Severity, message: str, line: int | None) -> None:
        diagnostics.append(Diagnostic(code, severity, message, file, None if line is None else line + first_line))

    try:
        fields = load_fields(text)
    except YamlProblem as problem:
        fields, text = _repaired_fields(text, problem, note)
    for key, line in fields.duplicates:
        note("duplicate-field", Severity.WARNING, f"Field {key!r} is given more than once; the last one counts.", line)
    for feature, line in fields.features.items():
        note(feature, Severity.INFO, _FEATURES[feature], line)
    for check in TEXT_CHECKS:
        finding = check(text)
        if finding is not None and not any(d.code == finding.code for d in diagnostics):
            note(finding.code, finding.severity, finding.message, finding.line)
    return fields


def _repaired_fields(
    text: str, problem: YamlProblem, note: Callable[[str, Severity, str, int | None], None]
) -> tuple[YamlFields, str]:
    """The fields of text that is not YAML, and the text they were read from."""
    from adk_skills_agent.format.text_repairs import repaired_texts, salvage_fields

    if problem.code != TOO_COMPLEX:
        for candidate, repairs in repaired_texts(text):
            try:
                fields = load_fields(candidate)
            except YamlProblem:
                continue
            for repair, line in repairs:
                note(repair.code, Severity.WARNING, repair.message, line)
            return fields, candidate
    severity = Severity.WARNING if problem.code == "frontmatter-not-mapping" else Severity.ERROR
    values, lines, dropped = salvage_fields(text)
    lost = ""
    if dropped:
        first = text.split("\n")[dropped[0]].strip()[:60]
        lost = f"; {len(dropped)} of its lines belong to no field and were left out, the first is {first!r}"
    message = f"{_PROBLEMS[problem.code]} ({problem.message}); its fields were read line by line{lost}. Correct it."
    note(problem.code, severity, message, problem.line)
    return YamlFields(values, lines), text


def _no_body() -> str:
    raise _BodyNeeded


def _folder_name(path: Path) -> str:
    parts = path.parts  # path.parent would make another Path, for every skill of a catalog
    return parts[-2] if len(parts) > 2 else ""


def _absolute(path: Path) -> Path:
    return path if path.is_absolute() else Path(os.path.abspath(path))  # noqa: PTH100  # .absolute() keeps ".."
