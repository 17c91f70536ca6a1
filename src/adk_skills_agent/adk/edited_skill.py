"""A skill with other instructions than its file has: what google-adk's optimizer tries out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.known_skill import RESOURCE_FOLDERS, KnownSkill
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.errors import CHANGED, SkillChanged

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill


class EditedSkill(KnownSkill):
    """Everything but the body is the other skill's.

    Args:
        original: The skill.
        instructions: What its body is instead.
    """

    def __init__(self, original: KnownSkill, instructions: str) -> None:
        self._original = original
        self._instructions = instructions

    @property
    def name(self) -> str:
        """The original's."""
        return self._original.name

    @property
    def description(self) -> str:
        """The original's."""
        return self._original.description

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The original's."""
        return self._original.metadata

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The original's."""
        return self._original.allowed_tools

    @property
    def compatibility(self) -> str | None:
        """The original's."""
        return self._original.compatibility

    @property
    def in_memory(self) -> bool:
        """As the original."""
        return self._original.in_memory

    @property
    def scope(self) -> Scope:
        """The original's."""
        return self._original.scope

    def frontmatter(self) -> dict[str, Any]:
        """The original's."""
        return self._original.frontmatter()

    def instructions(self) -> str:
        """The other body."""
        return self._instructions

    def version(self) -> str:
        """Another version than the original's: what was approved of that one is not approved of this."""
        return self._version_over(self._original.version())

    def _version_over(self, original: str) -> str:
        text = f"{original}\0{self._instructions}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def copy_digest(self, version: str) -> str:
        """The original's, whose folder it is."""
        original = self._original.version()
        if self._version_over(original) != version:
            raise SkillChanged(CHANGED)
        return self._original.copy_digest(original)

    def files(self) -> tuple[str, ...]:
        """The original's."""
        return self._original.files()

    def find(self, path: str, prefixes: Sequence[str] = RESOURCE_FOLDERS) -> str:
        """In the original."""
        return self._original.find(path, prefixes)

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """From the original."""
        return self._original.read_bytes(path, limit)

    def size(self, path: str) -> int:
        """Of the original."""
        return self._original.size(path)

    def local(self) -> Skill:
        """The original's folder; its scripts are the same."""
        return self._original.local()
