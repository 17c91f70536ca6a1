"""One face for every kind of skill a toolset can be given: a folder on disk, or a google-adk object in memory."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.errors import CHANGED, ResourceNotFound, ScriptNotFound, SkillChanged
from adk_skills_agent.scripts.interpreters import is_runnable

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill

SKILL_FILE = "SKILL.md"
RESOURCE_FOLDERS = ("references", "assets", "scripts")
"""The folders of the specification; in this order a bare file name is looked for."""

_FIRST_FILES = 10

_TOOL = re.compile(r"(?:[^\s,()]|\([^()]*\))+")
"""One entry of ``allowed-tools``: a bracket may hold spaces, as in ``Bash(git add:*)``."""


class KnownSkill(ABC):
    """A skill whose name the toolset knows. Everything it answers may block: call it from a thread.

    May be used by several threads. The object stays good while the files behind it change.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name the model uses."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What the skill does and when to use it."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """The author's own keys; ``adk_additional_tools`` is a list of names, ``adk_inject_state`` a bool."""

    @property
    @abstractmethod
    def allowed_tools(self) -> tuple[str, ...]:
        """What the author asks for in ``allowed-tools``; a request, not a permission."""

    @property
    @abstractmethod
    def compatibility(self) -> str | None:
        """What the author says the skill needs, or None."""

    @property
    @abstractmethod
    def in_memory(self) -> bool:
        """Whether it is an object of google-adk's, not a folder."""

    @property
    def scope(self) -> Scope:
        """Who put it where it was found; what the owner passed as an object is explicit."""
        return Scope.EXPLICIT

    @abstractmethod
    def frontmatter(self) -> dict[str, Any]:
        """Level 1 in the shape of ``google.adk.skills.Frontmatter.model_dump()``."""

    @abstractmethod
    def instructions(self) -> str:
        """Level 2: the body, as it is now. Raises ``SkillsError`` when it cannot be read any more."""

    @abstractmethod
    def version(self) -> str:
        """The sha256 (hex) over everything it can tell or run: a changed byte anywhere is another version.

        Raises ``SkillsError`` when a part of it cannot be read.
        """

    def pinned(self) -> str:
        """The version that a run has to have, although nobody was asked for it; empty for any. Blocks.

        Raises ``SkillsError`` when it is not what its lock says.
        """
        return ""

    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """The paths of every file but its SKILL.md, sorted, relative to the skill with ``/``."""

    def all_files(self) -> tuple[str, ...] | None:
        """As :meth:`files`, with those that no list shows and a command finds; None when they are too many.

        Those of ``node_modules``, of folders as deep as one likes, and of a folder that a link leads to, by its path.
        """
        return self.files()

    @abstractmethod
    def find(self, path: str, prefixes: Sequence[str] = RESOURCE_FOLDERS) -> str:
        """The path of a file that may be named without its folder.

        ``prefixes`` are tried after the path as it is written, best first.

        Raises:
            InvalidResourcePath: It leaves the skill or is no path.
            ScriptNotFound: No file has that name, and a script was asked for (``scripts/…``, or ``prefixes`` is
                ``("scripts",)``); ``suggestions`` has the nearest.
            ResourceNotFound: No file has that name; ``suggestions`` has the nearest names.
        """

    @abstractmethod
    def has_file(self, path: str) -> bool:
        """Whether it has a file at just this path, relative to the skill."""

    @abstractmethod
    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """The content of a file; ``SKILL.md`` too.

        Raises ``InvalidResourcePath`` as :meth:`find` does, ``ResourceNotFound`` when the file does not exist (any
        more), and ``CatalogError`` when it cannot be read.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes; raises as :meth:`read_bytes`."""

    @abstractmethod
    def local(self) -> Skill:
        """The skill as a folder of this machine, for what runs or mounts it.

        Raises ``SkillsError`` when it is gone or cannot be read.
        """

    def copy_digest(self, version: str) -> str:
        """What the sandbox's copy of :meth:`local` has to hold to be of this version; empty when it cannot differ.

        Raises ``SkillChanged`` when the skill no longer has this version.
        """
        if self.version() != version:
            raise SkillChanged(CHANGED)
        return ""

    def stamp(self, read: Sequence[str], since: int) -> object | None:
        """Equal to the last one while its list of files and some of them did not change, without reading any.

        ``since`` is when reading them began, by ``time.time_ns()``. Returns None when that is not known.
        """
        return None

    @property
    def scripts(self) -> tuple[str, ...]:
        """The files that look like scripts, those below ``scripts/`` first."""
        found = [path for path in self.files() if is_runnable(path)]
        return tuple(sorted(found, key=lambda path: (not path.startswith("scripts/"), path)))

    @property
    def additional_tools(self) -> tuple[str, ...]:
        """The tools that are offered while the skill is active."""
        names = self.metadata.get("adk_additional_tools")
        return tuple(name for name in names if isinstance(name, str)) if isinstance(names, (list, tuple)) else ()

    @property
    def injects_state(self) -> bool:
        """Whether ``{var}`` in its instructions is replaced by the session's state."""
        return self.metadata.get("adk_inject_state") is True


def is_skill_file(path: str) -> bool:
    """Whether a path of a skill is that of its instructions, however it is spelled."""
    return path.casefold() == SKILL_FILE.casefold()


def wanted_tools(text: str | None) -> tuple[str, ...]:
    """The entries of an ``allowed-tools`` field: separated by spaces or commas, brackets kept whole."""
    return tuple(_TOOL.findall(text)) if text else ()


def not_found(name: str, path: str, files: Sequence[str], prefixes: Sequence[str]) -> ResourceNotFound | ScriptNotFound:
    """The error for a path that the skill does not have, in google-adk's words, with the nearest that it has.

    Without anything near, ``suggestions`` are the first files there are: a model that sees them stops guessing.
    """
    from adk_skills_agent.errors import nearest

    is_script = path.startswith("scripts/") or tuple(prefixes) == ("scripts",)
    candidates = [file for file in files if is_runnable(file)] if is_script else list(files)
    close = nearest(path, candidates) or tuple(candidates[:_FIRST_FILES])
    if is_script:
        return ScriptNotFound(f"Script '{path}' not found in skill '{name}'.", close)
    return ResourceNotFound(f"Resource '{path}' not found in skill '{name}'.", close)
