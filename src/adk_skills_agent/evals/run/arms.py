"""The arms of a comparison: the same cases with the skill, without it, and with other versions of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adk_skills_agent.adk.folder_version import FolderVersion
from adk_skills_agent.catalog import CatalogReader, RegistryConfig, Skill, SkillsRegistry
from adk_skills_agent.catalog.filters import SkillsView
from adk_skills_agent.catalog.indexed import IndexedSkill
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.cases import EvalCase

WITH, WITHOUT = "with_skill", "without_skill"
ANSWERS = ("evals", "evals.json", "eval_queries.json")
"""What no agent may see of a skill: the cases and what is expected."""


class SkillsUnderTest(SkillsView):
    """A catalog whose skills hide their eval cases: an agent that reads the expected answers proves nothing."""

    def __init__(self, source: CatalogReader, private: Sequence[Path] = ()) -> None:
        super().__init__(source, include_disabled=True)
        self._private = tuple(private)
        self._shown: dict[str, tuple[Skill, Skill]] = {}

    def _load(self, entry: IndexedSkill) -> Skill:
        whole = super()._load(entry)
        made_from, shown = self._shown.get(entry.location, (None, whole))
        if made_from is not whole:  # a new object would read the skill anew
            shown = whole.excluding(unseen(Path(whole.skill_dir), self._private))
            self._shown[entry.location] = whole, shown
        return shown


def unseen(skill: Path, private: Sequence[Path]) -> tuple[str, ...]:
    """What no agent may see of a skill, relative to its folder: the cases, and results that are written into it."""
    inside = (path for path in map(Path.resolve, private) if path.is_relative_to(skill.resolve()))
    beside = (path.name for path in skill.glob("*.evalset.json"))
    return (*ANSWERS, *beside, *(str(path.relative_to(skill.resolve())) for path in inside))


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of the comparison.

    Attributes:
        name: ``with_skill``, ``without_skill``, or the name of a version.
        catalog: Every skill the arm's agents may have.
        has_skill: Whether the skill a case is about is among them.
    """

    name: str
    catalog: CatalogReader
    has_skill: bool = True
    _digests: dict[str, str] = field(default_factory=dict)

    def hidden(self, case: EvalCase) -> tuple[str, ...]:
        """Names that are absent from an agent that runs the case: those it is about, in the arm without."""
        if self.has_skill:
            return ()
        return case.skills or tuple(self.catalog)

    def digest(self, case: EvalCase) -> str:
        """What identifies the skills of the arm for a case: every name there is, every byte of those it is about."""
        hidden = self.hidden(case)
        names = [name for name in self.catalog if name not in hidden]
        about = [name for name in names if not case.skills or name in case.skills]
        parts = [*names, *(self._version(name) for name in about)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _version(self, name: str) -> str:
        if name not in self._digests:
            skill = self.catalog.load_skill(name)
            self._digests[name] = FolderVersion(str(skill.skill_dir), name, skill.without).now()
        return self._digests[name]


def make_arms(
    names: Sequence[str], dirs: Sequence[Path], versions: Mapping[str, Path], private: Sequence[Path] = ()
) -> list[Arm]:
    """The arms of a run.

    Args:
        names: ``with_skill``, ``without_skill`` and names of versions, in the order in which they are shown.
        dirs: Where the skills are.
        versions: Name to the folder of another version of a skill; it takes the place of the skill of its name.
        private: Files and folders that agents must not see, should they lie in a skill: the results.

    Raises:
        ConfigError: A name is unknown or given twice, or the folder of a version holds no skill of the names there are.
    """
    arms = []
    for name in names:
        if name in (WITH, WITHOUT):
            arms.append(Arm(name, _catalog(dirs, private), has_skill=name == WITH))
        elif name in versions:
            folder = versions[name]
            found = list(_catalog([folder], private))
            if not found:
                raise ConfigError(f"Version {name!r}: there is no skill in {folder}. Give the folder of the SKILL.md.")
            if not set(found) & set(_catalog(dirs, private)):
                raise ConfigError(
                    f"Version {name!r}: {folder} holds {', '.join(found)}; no skill to compare with is called so."
                )
            arms.append(Arm(name, _catalog([folder, *dirs], private)))
        else:
            raise ConfigError(
                f"There is no arm {name!r}. Take {WITH}, {WITHOUT}, or name a version: --version {name}=DIR."
            )
    if len({arm.name for arm in arms}) < len(arms):
        raise ConfigError("An arm is named twice. Name each once.")
    return arms


def _catalog(dirs: Sequence[Path], private: Sequence[Path]) -> CatalogReader:
    # No cache on the disk, and never looked at again: what is measured must not change in the middle.
    registry = SkillsRegistry(RegistryConfig(cache=False, refresh_interval=float("inf")))
    registry.discover(dirs)
    return SkillsUnderTest(registry, private)
