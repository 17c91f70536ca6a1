"""What a walk keeps of each folder, and what it gives back."""

from __future__ import annotations

from adk_skills_agent.catalog.indexed import IndexedSkill
from adk_skills_agent.format.diagnostic import Diagnostic

SKILL_FILE = "SKILL.md"


class Folder:
    """What a scan keeps of one folder, so that the next one need not list it again.

    Attributes:
        path: Absolute path, by the way it was reached.
        stamp: Its stamp when it was listed.
        settled: Whether that stamp can be believed.
        children: Names of the subfolders to visit, sorted.
        links: Names of the links that do not lead to a file, sorted; where they lead is looked at every time.
        skill_file: The name of its SKILL.md, empty when it has none.
        skill: The skill, when it could be read.
        problems: What listing it left.
    """

    __slots__ = ("children", "links", "path", "problems", "settled", "skill", "skill_file", "stamp")

    def __init__(
        self,
        path: str,
        stamp: int,
        settled: bool,
        children: tuple[str, ...],
        links: tuple[str, ...],
        skill_file: str,
        problems: tuple[Diagnostic, ...] = (),
        skill: IndexedSkill | None = None,
    ) -> None:
        self.path = path
        self.stamp = stamp
        self.settled = settled
        self.children = children
        self.links = links
        self.skill_file = skill_file
        self.problems = problems
        self.skill = skill


class Scan:
    """The result of walking one root.

    Attributes:
        folders: Every folder visited, by path; give it to the next scan of the same root.
        skills: The skills found, in the order of the walk.
        problems: What was repaired, refused, skipped or cut.
        about: For some of these problems, the other folders that they speak of.
        learned: Whether something was read that the index on disk does not know yet.
    """

    __slots__ = ("about", "folders", "learned", "problems", "skills")

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {}
        self.skills: list[IndexedSkill] = []
        self.problems: list[Diagnostic] = []
        self.about: dict[Diagnostic, tuple[str, ...]] = {}
        self.learned = False
