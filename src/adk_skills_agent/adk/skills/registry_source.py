"""Skills of a google-adk registry in the catalogue: pinned names are listed beside those on disk (adk-python #7130)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adk_skills_agent.catalog.skill_source import FirstNames, SkillSource
from adk_skills_agent.errors import ResourceNotFound, SkillNotFound, nearest
from adk_skills_agent.format import parse_text
from adk_skills_agent.format.models import SkillMetadata

if TYPE_CHECKING:
    import google.adk.skills


class RegistrySource(SkillSource):
    """A google-adk registry, Google's own among them, as a source of ``SkillsRegistry.add_source``.

    google-adk asks a registry only for a name that the model already knows; here the named skills are listed.

    Args:
        registry: The client, such as ``google.adk.integrations.skill_registry``'s.
        names: The ids of the skills; the catalogue uses the names their frontmatter has.
    """

    def __init__(self, registry: google.adk.skills.SkillRegistry, names: Sequence[str]) -> None:
        self._registry, self._ids = registry, tuple(names)
        self._files: dict[str, Mapping[str, bytes]] = {}
        self._names = FirstNames()

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        """Fetches each named skill."""
        files: dict[str, Mapping[str, bytes]] = {}
        listed = []
        skills = {identifier: await self._registry.get_skill(name=identifier) for identifier in self._ids}
        for identifier in self._names.places({identifier: skill.name for identifier, skill in skills.items()}):
            skill = skills[identifier]
            own = _files_of(skill)
            files.setdefault(skill.name, own)  # as of what is listed twice: the first counts (row 357)
            listed.append(parse_text(own["SKILL.md"].decode(), folder_name=skill.name).metadata)
        self._files = files
        return listed

    async def list_files(self, name: str) -> Sequence[str]:
        """All its files."""
        return list(await self._known(name))

    async def read_file(self, name: str, path: str) -> bytes:
        """Of what was fetched."""
        files = await self._known(name)
        if path not in files:
            raise ResourceNotFound(f"Skill {name!r} has no file {path!r}.", nearest(path, files))
        return files[path]

    async def _known(self, name: str) -> Mapping[str, bytes]:
        if name not in self._files:
            await self.list_metadata()
        if name not in self._files:
            raise SkillNotFound(f"There is no skill {name!r}.", nearest(name, self._files))
        return self._files[name]


def _files_of(skill: google.adk.skills.Skill) -> dict[str, bytes]:
    import yaml

    level1: dict[str, Any] = skill.frontmatter.model_dump(by_alias=True, exclude_none=True)
    level1 = {key: value for key, value in level1.items() if value not in ({}, [], "")}
    head = yaml.safe_dump(level1, allow_unicode=True, sort_keys=False)
    files = {"SKILL.md": f"---\n{head}---\n{skill.instructions}".encode()}
    resources = skill.resources
    for folder, contents in (("references", resources.references), ("assets", resources.assets)):
        for path, content in contents.items():
            files[f"{folder}/{path}"] = content if isinstance(content, bytes) else content.encode()
    for path, script in resources.scripts.items():
        files[f"scripts/{path}"] = script.src.encode()
    return files
