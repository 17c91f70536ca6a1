"""The values a SKILL.md turns into (S4-8). Plain frozen dataclasses: thousands of them must be cheap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from adk_skills_agent.format.diagnostic import Diagnostic

YamlValue: TypeAlias = "str | None | list[YamlValue] | dict[str, YamlValue]"
"""A value of the frontmatter. Scalars keep the spelling of the file (``1.10`` stays ``"1.10"``); null is None."""

_EMPTY: Mapping[str, YamlValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SkillMetadata:
    """Level 1 of a skill: what is known without reading its body.

    Attributes:
        name: The name the catalog uses (normalised; see ``original_name``).
        description: What the skill does and when to use it; never empty.
        file: Absolute path of the SKILL.md as text, or None for a skill that is not on disk. ``location`` is the same
            as a Path, made when asked for: thousands of Path objects cost more than all the rest.
        license: As written, or None.
        compatibility: As written (a mapping becomes JSON, S0-133), or None.
        allowed_tools: Space-separated tools as the specification has them, or None.
        metadata: The author's own keys. Scalars are strings; nested values stay nested.
        extra: Unknown frontmatter fields, kept.
        original_name: The name as the author wrote it, None when the file has none.
        repairs: Codes of the diagnostics that reading it left, e.g. ``("description-derived",)``.
    """

    name: str
    description: str
    file: str | None = None
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: str | None = None
    metadata: Mapping[str, YamlValue] = field(default_factory=lambda: _EMPTY)
    extra: Mapping[str, YamlValue] = field(default_factory=lambda: _EMPTY)
    original_name: str | None = None
    repairs: tuple[str, ...] = ()

    @property
    def location(self) -> Path | None:
        """Absolute path of the SKILL.md, or None for a skill that is not on disk (C20)."""
        return Path(self.file) if self.file is not None else None


@dataclass(frozen=True, slots=True)
class ParsedSkill:
    """A SKILL.md as the lenient profile reads it.

    Attributes:
        metadata: Level 1.
        body: Level 2, the Markdown after the frontmatter, trimmed. Empty when only the head was read.
        diagnostics: Everything that was repaired or is wrong, in the order found.
        body_line: 1-based line of the file where the body starts.
    """

    metadata: SkillMetadata
    body: str
    diagnostics: tuple[Diagnostic, ...]
    body_line: int
