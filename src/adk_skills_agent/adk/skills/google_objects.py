"""Our skills as ``google.adk.skills.Skill`` objects, for google-adk's own code that wants them (its optimizer)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from google.adk.skills.models import Frontmatter, Resources, Script, Skill
from google.adk.tools import skill_toolset as theirs
from pydantic import PrivateAttr

from adk_skills_agent.adk.skills.known import KnownSkill
from adk_skills_agent.adk.skills.memory import EditedSkill, MemorySkill
from adk_skills_agent.errors import CatalogError

if TYPE_CHECKING:
    from adk_skills_agent.adk.skills.memory import MemoryFolders


class LazyResources(Resources):
    """The files of a skill, read when they are asked for."""

    _known: KnownSkill = PrivateAttr()

    def get_reference(self, reference_id: str) -> str | bytes | None:
        """Text where the file is UTF-8, else bytes."""
        return self._content(f"references/{reference_id}")

    def get_asset(self, asset_id: str) -> str | bytes | None:
        """As :meth:`get_reference`."""
        return self._content(f"assets/{asset_id}")

    def get_script(self, script_id: str) -> Script | None:
        """None for a script that is not UTF-8, as google-adk has it."""
        content = self._content(f"scripts/{script_id}")
        return Script(src=content) if isinstance(content, str) else None

    def list_references(self) -> list[str]:
        """Paths below ``references``."""
        return self._below("references/")

    def list_assets(self) -> list[str]:
        """Paths below ``assets``."""
        return self._below("assets/")

    def list_scripts(self) -> list[str]:
        """Paths below ``scripts``."""
        return self._below("scripts/")

    def _below(self, folder: str) -> list[str]:
        return [path.removeprefix(folder) for path in self._known.files() if path.startswith(folder)]

    def _content(self, path: str) -> str | bytes | None:
        if path not in self._known.files():
            return None
        content = self._known.read_bytes(path)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content


class DiskBackedSkill(Skill):
    """A folder in the shape of google-adk's object; a copy with other instructions keeps the folder's files."""

    _known: KnownSkill = PrivateAttr()

    def known(self) -> KnownSkill:
        """The folder, with the instructions of this object. May block."""
        if self.instructions == self._known.instructions():
            return self._known
        return EditedSkill(self._known, self.instructions)


def as_object(skill: KnownSkill) -> Skill:
    """The google-adk object for a skill. May block."""
    if isinstance(skill, MemorySkill):
        return skill.object
    # Not validated: google-adk refuses names and descriptions that we repair.
    resources = LazyResources.model_construct()
    resources._known = skill
    result = DiskBackedSkill.model_construct(
        frontmatter=Frontmatter.model_construct(**skill.frontmatter()),
        instructions=skill.instructions(),
        resources=resources,
    )
    result._known = skill
    return result


def from_object(skill: Skill, folders: MemoryFolders) -> KnownSkill:
    """The skill behind a google-adk object. May block for one that :func:`as_object` made."""
    return skill.known() if isinstance(skill, DiskBackedSkill) else MemorySkill(skill, folders)


def registry_skill(found: object, name: str, folders: MemoryFolders) -> KnownSkill | None:
    """The answer of a registry for a name; it may be anything, whatever the signature says.

    The name that was asked for is the skill's name here, as with google-adk, though its frontmatter may have another.
    Raises ``CatalogError`` when it is no skill.
    """
    if found is None:
        return None
    if not all(hasattr(found, part) for part in ("name", "frontmatter", "instructions", "resources")):
        raise CatalogError(f"the registry answered with a {type(found).__name__}, which is not a skill")
    known = from_object(cast("Skill", found), folders)
    return known if known.name == name else MemorySkill(cast("Skill", found), folders, name)


# Ours are virtual subclasses of google-adk's classes: its optimizer and its analytics ask with ``isinstance``.


def stand_in_for_theirs(ours: Iterable[type]) -> None:
    """Register each class with google-adk's of the same name; doing it again changes nothing.

    Raises ``AttributeError`` when google-adk has no class of that name (any more).
    """
    for own in ours:
        getattr(theirs, own.__name__).register(own)
