"""The properties of one skill, as skills-ref's ``read_properties`` gives them (S4-32)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from adk_skills_agent.errors import ParseError, ValidationError
from adk_skills_agent.format.reading import read_text
from adk_skills_agent.format.skill_file import find_skill_md, skill_folder
from adk_skills_agent.format.strict_frontmatter import StrictValue, parse_strict


@dataclass(frozen=True, slots=True)
class SkillProperties:
    """The fields of a SKILL.md, read strictly.

    Attributes:
        name: As written, trimmed.
        description: As written, trimmed.
        license: As written, or None.
        compatibility: As written, or None.
        allowed_tools: As written (a list stays one), or None.
        metadata: The author's own keys; None when the file has none.
    """

    name: str
    description: str
    license: StrictValue | None = None
    compatibility: StrictValue | None = None
    allowed_tools: StrictValue | None = None
    metadata: Mapping[str, StrictValue] | StrictValue | None = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """A JSON-ready form with the file's field names; without the fields that are None or an empty mapping."""
        result: dict[str, object] = {"name": self.name, "description": self.description}
        if self.license is not None:
            result["license"] = self.license
        if self.compatibility is not None:
            result["compatibility"] = self.compatibility
        if self.allowed_tools is not None:
            result["allowed-tools"] = self.allowed_tools
        if self.metadata:
            result["metadata"] = dict(self.metadata) if isinstance(self.metadata, Mapping) else self.metadata
        return result


def read_properties(path: str | os.PathLike[str]) -> SkillProperties:
    """Read the frontmatter of a skill strictly. It is not validated further: use ``validate_skill`` for that.

    Args:
        path: The skill's folder, or the SKILL.md in it.

    Returns:
        Its properties.

    Raises:
        ParseError: There is no SKILL.md, or its frontmatter cannot be read.
        ValidationError: ``name`` or ``description`` is missing or empty.
    """
    folder = skill_folder(path)
    try:
        skill_md = find_skill_md(folder)
    except (OSError, ValueError) as error:
        raise ParseError(f"Path cannot be read: {folder} ({error})") from error
    if skill_md is None:
        raise ParseError(f"SKILL.md not found in {folder}")
    fields, _ = parse_strict(read_text(skill_md).text)
    for name in ("name", "description"):  # both must be there before either is looked at
        if name not in fields:
            raise ValidationError(f"Missing required field in frontmatter: {name}")
    return SkillProperties(
        name=_required(fields, "name"),
        description=_required(fields, "description"),
        license=fields.get("license"),
        compatibility=fields.get("compatibility"),
        allowed_tools=fields.get("allowed-tools"),
        metadata=fields.get("metadata"),
    )


def _required(fields: Mapping[str, StrictValue], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or not value.strip():
        raise ValidationError(f"Field '{name}' must be a non-empty string")
    return value.strip()
