"""A skill as the index holds it: level 1, cheap enough for thousands, its values built when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from adk_skills_agent.format.diagnostic import Diagnostic
from adk_skills_agent.format.models import SkillMetadata

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class IndexedSkill:
    """One SKILL.md on disk: where it is, its stamp, and what its head says.

    Attributes:
        location: Absolute path of the SKILL.md.
        stamp: The stamp of the file when it was read.
        settled: False when the stamp cannot be believed, so that the next look reads the file again.
        name: The catalog's name.
        problems: What reading the head left.
    """

    __slots__ = ("_metadata", "_values", "location", "name", "problems", "settled", "stamp")

    def __init__(
        self,
        location: str,
        stamp: int,
        settled: bool,
        name: str,
        values: list[Any],
        problems: tuple[Diagnostic, ...],
        metadata: SkillMetadata | None = None,
    ) -> None:
        self.location = location
        self.stamp = stamp
        self.settled = settled
        self.name = name
        self.problems = problems
        self._values = values
        self._metadata = metadata

    @classmethod
    def from_metadata(
        cls, location: str, stamp: int, settled: bool, metadata: SkillMetadata, problems: tuple[Diagnostic, ...]
    ) -> IndexedSkill:
        """The entry of a head that was just read."""
        location = metadata.file or location  # the path's own text, so that it is not kept twice
        return cls(location, stamp, settled, metadata.name, [], problems, metadata)

    @property
    def metadata(self) -> SkillMetadata:
        """Level 1 as a value; built at the first use."""
        found = self._metadata
        if found is None:
            found = self._metadata = _built(self.location, self.name, self._values)
        return found

    @property
    def values(self) -> list[Any]:
        """What the index on disk keeps besides the name: the description, then what only some skills have."""
        found = self._metadata
        return self._values if found is None else _taken_apart(found)

    def may_have_field(self, field: str) -> bool:
        """Whether a field that the specification does not know may be in the head; spares building the values."""
        if self._metadata is not None:
            return field in self._metadata.extra
        return len(self._values) > 1 and field in (self._values[5] or ())

    def says_the_same(self, other: IndexedSkill) -> bool:
        """Whether both stand for the same file with the same content."""
        return self is other or (
            self.location == other.location
            and self.stamp == other.stamp
            and self.problems == other.problems
            and self.metadata == other.metadata
        )


def _taken_apart(metadata: SkillMetadata) -> list[Any]:
    values: list[Any] = [
        metadata.description,
        metadata.license,
        metadata.compatibility,
        metadata.allowed_tools,
        dict(metadata.metadata) if metadata.metadata else None,
        dict(metadata.extra) if metadata.extra else None,
        0 if metadata.original_name == metadata.name else metadata.original_name,
        metadata.repairs or None,
    ]
    return values if any(values[1:]) or metadata.original_name != metadata.name else values[:1]


def _built(location: str, name: str, values: list[Any]) -> SkillMetadata:
    if len(values) == 1:
        return SkillMetadata(name, values[0], location, None, None, None, _NOTHING, _NOTHING, name)
    description, license_, compatibility, allowed_tools, own, extra, original_name, repairs = values
    return SkillMetadata(
        name,
        description,
        location,
        license_,
        compatibility,
        allowed_tools,
        MappingProxyType(own) if own else _NOTHING,
        MappingProxyType(extra) if extra else _NOTHING,
        name if original_name.__class__ is int else original_name,
        tuple(repairs) if repairs else (),
    )
