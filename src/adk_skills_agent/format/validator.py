"""Validation as skills-ref 0.1.1 does it: the same messages, in the same order (SPEC.md 3; S4-S13, S4-13)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.diagnostic import Diagnostic
from adk_skills_agent.format.field_repairs import FIELDS, MAX_COMPATIBILITY_LENGTH, MAX_DESCRIPTION_LENGTH
from adk_skills_agent.format.lints import lint_skill
from adk_skills_agent.format.names import MAX_NAME_LENGTH, nfkc
from adk_skills_agent.format.parser import parse_read
from adk_skills_agent.format.reading import read_text
from adk_skills_agent.format.skill_file import find_skill_md, skill_folder
from adk_skills_agent.format.strict_frontmatter import parse_strict


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

    Args:
        path: The folder, or the SKILL.md in it.

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
        return ValidationResult(folder, ["Missing required file: SKILL.md"])
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

    Args:
        metadata: Field name to value, as the strict profile reads them.
        skill_dir: The skill's folder; its name must be the skill's (S8). None leaves that out.

    Returns:
        The messages of skills-ref: unexpected fields, name, description, compatibility. Empty means valid.
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
