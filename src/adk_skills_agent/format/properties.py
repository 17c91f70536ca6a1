"""The properties of one skill, as skills-ref's ``read_properties`` gives them (S4-32)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from adk_skills_agent.errors import ParseError, ValidationError
from adk_skills_agent.format.frontmatter import StrictValue, parse_strict
from adk_skills_agent.format.models import SkillMetadata
from adk_skills_agent.format.reading import find_skill_md, read_text, skill_folder


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


# The ``<available_skills>`` block of a prompt, exactly as skills-ref writes it (S4-15, S4-32).


def to_available_skills_xml(items: Iterable[SkillMetadata], *, location: bool = False) -> str:
    r"""The catalog as XML: every tag and every value on its own line, values escaped.

    Args:
        items: The skills, in the order wanted.
        location: Also give the absolute path of each SKILL.md on this host; for agents that read files themselves.

    Returns:
        The block; for no skills ``<available_skills>\n</available_skills>``.
    """
    lines = ["<available_skills>"]
    for item in items:
        path = item.file if location else None
        lines.extend(_skill(item.name, item.description, path))
    lines.append("</available_skills>")
    return "\n".join(lines)


def to_prompt(skill_dirs: Iterable[str | os.PathLike[str]]) -> str:
    """The block for some skill folders, read strictly, with locations; skills-ref's function of that name.

    Returns:
        The block.

    Raises:
        ParseError: A folder has no SKILL.md, or its frontmatter cannot be read.
        ValidationError: ``name`` or ``description`` is missing or empty.
    """
    lines = ["<available_skills>"]
    for skill_dir in skill_dirs:
        folder = Path(skill_dir).resolve()
        properties = read_properties(folder)
        lines.extend(_skill(properties.name, properties.description, str(find_skill_md(folder))))
    lines.append("</available_skills>")
    return "\n".join(lines)


def _skill(name: str, description: str, path: str | None) -> list[str]:
    lines = ["<skill>", "<name>", _escape(name), "</name>", "<description>", _escape(description), "</description>"]
    if path is not None:
        lines += ["<location>", _escape(path), "</location>"]
    lines.append("</skill>")
    return lines


def _escape(text: str) -> str:
    # html.escape, without the 3 ms that importing html costs for its table of entities.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#x27;")
