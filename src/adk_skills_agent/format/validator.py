"""Validation as skills-ref 0.1.1 does it: the same messages, in the same order (SPEC.md 3; S4-S13, S4-13)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.field_repairs import FIELDS, MAX_COMPATIBILITY_LENGTH, MAX_DESCRIPTION_LENGTH
from adk_skills_agent.format.frontmatter import parse_strict
from adk_skills_agent.format.models import MAX_NAME_LENGTH, Diagnostic, ParsedSkill, Severity, nfkc
from adk_skills_agent.format.parser import parse_read
from adk_skills_agent.format.reading import ALMOST_SKILL_FILES, find_skill_md, read_text, skill_folder


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What is wrong with a skill.

    Attributes:
        path: The folder, as given (its parent when a SKILL.md was given).
        errors: The messages of the strict profile, in its order. Empty means valid.
        diagnostics: What loading the skill repairs or reports.
        lints: Advice of the specification that is not followed; never errors.
    """

    path: Path
    errors: list[str]
    diagnostics: tuple[Diagnostic, ...] = ()
    lints: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the skill is valid: no errors. Lints and diagnostics do not count."""
        return not self.errors


def validate_skill(path: str | os.PathLike[str]) -> ValidationResult:
    """Check a skill folder against the specification.

    Returns:
        Errors (exactly those of skills-ref, which has no bound on nesting; here it is 50 levels), diagnostics and
        lints. Never raises for what is on disk.
    """
    folder = skill_folder(path)
    try:
        if not folder.exists():
            return ValidationResult(folder, [f"Path does not exist: {folder}"])
        if not folder.is_dir():
            return ValidationResult(folder, [f"Not a directory: {folder}"])
        skill_md = find_skill_md(folder)
    except (OSError, ValueError) as error:  # no permission on a parent; a NUL character in the path
        return ValidationResult(folder, [f"Path cannot be read: {folder} ({error})"])
    if skill_md is None:
        return ValidationResult(folder, ["Missing required file: SKILL.md"], _almost_named(folder))
    try:
        read = read_text(skill_md)
    except ParseError as error:
        return ValidationResult(folder, [error.message])
    # On these skills-ref ends with a traceback.
    errors = [d.message for d in read.diagnostics if d.code in ("invalid-utf8", "utf-16")]
    errors += [d.message for d in read.diagnostics if d.code == "nul-bytes" and _in_frontmatter(d, read.text)]
    if not errors:
        try:
            fields, _ = parse_strict(read.text)
            # "." and ".." have no name to compare; skills-ref takes them as they are and fails.
            errors = validate_metadata(fields, folder if folder.name not in ("", "..") else folder.resolve())
        except ParseError as error:
            errors = [error.message]
    try:
        parsed = parse_read(read, skill_md)
    except ParseError:  # an empty file; the strict profile has said so
        return ValidationResult(folder, errors)
    return ValidationResult(folder, errors, parsed.diagnostics, lint_skill(parsed, folder))


def validate_metadata(metadata: Mapping[str, object], skill_dir: Path | None = None) -> list[str]:
    """Check the fields of a frontmatter.

    ``metadata`` is as the strict profile reads it. The name of ``skill_dir`` must be the skill's (S8); None leaves that
    out. Returns the messages of skills-ref: unexpected fields, name, description, compatibility. Empty means valid.
    """
    errors: list[str] = []
    unexpected = sorted(str(key) for key in metadata if key not in FIELDS)
    if unexpected:
        errors.append(f"Unexpected fields in frontmatter: {', '.join(unexpected)}. Only {sorted(FIELDS)} are allowed.")
    if "name" not in metadata:
        errors.append("Missing required field in frontmatter: name")
    else:
        errors.extend(_name_errors(metadata["name"], skill_dir))
    if "description" not in metadata:
        errors.append("Missing required field in frontmatter: description")
    else:
        errors.extend(_description_errors(metadata["description"]))
    if "compatibility" in metadata:
        errors.extend(_compatibility_errors(metadata["compatibility"]))
    return errors


def _in_frontmatter(found: Diagnostic, text: str) -> bool:
    """Whether its line is one that the strict profile reads as YAML; in the body a NUL hurts no parser."""
    fenced = "---".join(text.split("---", 2)[:2])
    return found.line is not None and found.line <= fenced.count("\n") + 1


def _name_errors(value: object, skill_dir: Path | None) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["Field 'name' must be a non-empty string"]
    name = nfkc(value.strip())
    errors: list[str] = []
    if len(name) > MAX_NAME_LENGTH:
        errors.append(f"Skill name '{name}' exceeds {MAX_NAME_LENGTH} character limit ({len(name)} chars)")
    if name != name.lower():
        errors.append(f"Skill name '{name}' must be lowercase")
    if name.startswith("-") or name.endswith("-"):
        errors.append("Skill name cannot start or end with a hyphen")
    if "--" in name:
        errors.append("Skill name cannot contain consecutive hyphens")
    if not all(char.isalnum() or char == "-" for char in name):
        errors.append(
            f"Skill name '{name}' contains invalid characters. Only letters, digits, and hyphens are allowed."
        )
    if skill_dir is not None and nfkc(skill_dir.name) != name:
        errors.append(f"Directory name '{skill_dir.name}' must match skill name '{name}'")
    return errors


def _description_errors(value: object) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["Field 'description' must be a non-empty string"]
    if len(value) > MAX_DESCRIPTION_LENGTH:  # before strip, as the reference measures it
        return [f"Description exceeds {MAX_DESCRIPTION_LENGTH} character limit ({len(value)} chars)"]
    return []


def _compatibility_errors(value: object) -> list[str]:
    if not isinstance(value, str):
        return ["Field 'compatibility' must be a string"]
    if len(value) > MAX_COMPATIBILITY_LENGTH:
        return [f"Compatibility exceeds {MAX_COMPATIBILITY_LENGTH} character limit ({len(value)} chars)"]
    return []


# Advice of the specification that a valid skill may still not follow (S9, S14-S16). Never errors.

MAX_LINES = 500
"""Lines of a SKILL.md (S15)."""
MAX_BODY_TOKENS = 5_000
"""Tokens of a body (S14)."""
CHARACTERS_PER_TOKEN = 4
"""The usual estimate for English."""
MAX_LINKS = 1_000
"""Different links of a body that are looked up; no real skill has a tenth of that."""
# Each part ends where the next link may begin, and nothing is tried twice: linear on any text.
_LINK = re.compile(r"(?<!\!)\[[^\[\]\n]*+\]\(<?([^()\s>]++)>?(?:\s++\"[^\"\n]*+\")?\)")
_CODE = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#")
_WHEN = re.compile(
    r"\b(?:when|whenever|if|before|after|while|during|for|use (?:this|it|to)|trigger\w*|asks?|mentions?)\b",
    re.IGNORECASE,
)


_PLACEHOLDER = re.compile(r"\[?TODO\b|Describe what .+ does\. Use when a task mentions the things it is for\.")
"""What templates of skills have in place of a description: skill-creator's, and ours."""


def lint_skill(parsed: ParsedSkill, folder: Path) -> tuple[Diagnostic, ...]:
    """Look at a skill as a careful reviewer would. Returns one finding per piece of advice, links one each."""
    file = parsed.metadata.file
    found: list[Diagnostic] = []

    def note(code: str, message: str, line: int | None = None) -> None:
        found.append(Diagnostic(code, Severity.INFO, message, file, line))

    if file is not None and os.path.basename(file) != "SKILL.md":  # noqa: PTH119
        note("skill-file-name", "The file is not called exactly SKILL.md; other clients will not find it. Rename it.")
    lines = parsed.body_line + parsed.body.count("\n")
    if lines > MAX_LINES:
        note("long-file", f"SKILL.md has {lines} lines; keep it under {MAX_LINES} and move detail into references/.")
    tokens = len(parsed.body) // CHARACTERS_PER_TOKEN
    if tokens > MAX_BODY_TOKENS:
        note("large-body", f"The body has about {tokens} tokens; under {MAX_BODY_TOKENS} is recommended.")
    if not parsed.body:
        note("empty-body", "The body is empty; the agent gets no instructions from this skill.")
    description = parsed.metadata.description
    if description.isascii() and not _WHEN.search(description):
        note("description-without-when", "The description does not say when to use the skill; add `Use when ...`.")
    if _PLACEHOLDER.match(description):
        note("description-placeholder", "The description is still the one to replace; say what the skill does.")
    _lint_folders(folder, note)
    _lint_links(parsed, folder, note)
    return tuple(found)


def _almost_named(folder: Path) -> tuple[Diagnostic, ...]:
    """The file that was meant to be SKILL.md, where there is one."""
    try:
        names = sorted(place.name for place in folder.iterdir() if place.name.lower() in ALMOST_SKILL_FILES)
    except OSError:
        return ()
    if not names:
        return ()
    message = f"{names[0]!r} is not called SKILL.md, so nobody reads it. Rename it."
    return (Diagnostic("skill-file-name", Severity.ERROR, message, str(folder / names[0])),)


def _lint_folders(folder: Path, note: Callable[[str, str], None]) -> None:
    """Name folders whose names are almost those that the specification and agents look for."""
    import difflib

    try:
        names = {entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)}
    except OSError:
        return
    for name in sorted(names - _FOLDERS):
        for meant in difflib.get_close_matches(name.lower(), _FOLDERS, 1, _ALMOST):
            note("folder-name", f"The folder {name!r} is not called {meant!r}; agents look there. Rename it.")


_FOLDERS = frozenset({"scripts", "references", "assets"})
_ALMOST = 0.85  # "reference" and "assests" are, "resources" and "agents" (in 95 and 44 of 2,066 real skills) are not


def _lint_links(parsed: ParsedSkill, folder: Path, note: Callable[[str, str, int | None], None]) -> None:
    prose = _CODE.sub(lambda match: "\n" * match.group().count("\n"), parsed.body)
    seen: set[str] = set()
    counted = 0
    line = parsed.body_line
    for match in _LINK.finditer(prose):
        target = match.group(1).split("#", 1)[0].split("?", 1)[0]
        if not target or _URL.match(target) or target in seen:
            continue
        seen.add(target)
        line += prose.count("\n", counted, match.start())
        counted = match.start()
        if len(seen) > MAX_LINKS:
            note("many-links", f"The body links to more than {MAX_LINKS} files; the rest was not looked up.", line)
            return
        parts = [part for part in target.split("/") if part != "."]
        if target.startswith("/") or ".." in parts:
            note("reference-outside", f"{target!r} is not inside the skill; link files relative to its folder.", line)
        elif not _exists(folder, target):
            note("missing-reference", f"{target!r} is linked but not in the skill.", line)
        elif len(parts) > 2:
            note("deep-reference", f"{target!r} is more than one folder deep; keep references one level deep.", line)


def _exists(folder: Path, target: str) -> bool:
    from urllib.parse import unquote

    try:
        return (folder / target).exists() or (folder / unquote(target)).exists()
    except (OSError, ValueError):
        return False
