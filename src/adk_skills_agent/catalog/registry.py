"""The registry: which skills there are, kept up to date with the disk (S4-10, C1 to C12, C19 to C21)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.config import RegistryConfig
from adk_skills_agent.catalog.discovery import scan
from adk_skills_agent.catalog.folder import Folder, Scan
from adk_skills_agent.catalog.index_cache import IndexCache
from adk_skills_agent.catalog.indexed import IndexedSkill
from adk_skills_agent.catalog.reading import CatalogReader, CatalogSnapshot
from adk_skills_agent.catalog.scopes import (
    ScanRoot,
    Scope,
    explicit_root,
    package_root,
    place_name,
    project_root,
    scope_roots,
)
from adk_skills_agent.catalog.skill import Skill
from adk_skills_agent.catalog.spelling import real_path, shown
from adk_skills_agent.catalog.user_folders import cache_folder
from adk_skills_agent.format.diagnostic import Diagnostic, Severity

if TYPE_CHECKING:
    import asyncio

    from adk_skills_agent.catalog.search import SearchIndex

_MAX_LOADED = 64  # skills whose instructions are kept in memory; more are read again


class SkillsRegistry(CatalogReader):
    """All skills of the places it was told to look in.

    Bad input never raises and never loses the catalog: it becomes a diagnostic. May be used by several threads.

    Args:
        config: Settings; the defaults of the client guide when None.
    """

    def __init__(self, config: RegistryConfig | None = None) -> None:
        self.config = config or RegistryConfig()
        self._lock = threading.RLock()
        self._current = CatalogSnapshot()
        self._explicit: dict[ScanRoot, None] = {}
        self._not_paths: list[Diagnostic] = []
        self._cwd: str | None = None
        self._packages: tuple[list[ScanRoot], list[Diagnostic]] | None = None
        self._scans: dict[ScanRoot, Scan] = {}
        self._origins: dict[str, ScanRoot] = {}
        self._counts: dict[ScanRoot, int] = {}
        self._cache = IndexCache(cache_folder(self.config) if self.config.cache else None)
        self._loaded: dict[str, tuple[IndexedSkill, Skill]] = {}
        self._loaded_lock = threading.Lock()
        self._search_lock = threading.Lock()
        self._search_index: tuple[CatalogSnapshot, SearchIndex] | None = None
        self._next_look = 0.0
        self._flight: tuple[asyncio.AbstractEventLoop, asyncio.Task[bool]] | None = None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything that was repaired, refused, shadowed or cut, each once, in a stable order (C19)."""
        searching = self._search_index
        return tuple(dict.fromkeys((*super().diagnostics, *(searching[1].diagnostics if searching else ()))))

    def discover(self, dirs: Iterable[str | os.PathLike[str]]) -> int:
        """Look for skills in folders that the owner names; the explicit scope, which wins over all others.

        Args:
            dirs: Folders of skills, folders of one skill, or SKILL.md files; ``~`` is the home. What does not exist
                leaves an error in :attr:`diagnostics`.

        Returns:
            How many skills of these folders are in the catalog.
        """
        named = [dirs] if isinstance(dirs, str | os.PathLike) else list(dirs)
        with self._lock:
            roots: set[ScanRoot] = set()
            for folder in named:
                root = explicit_root(folder, self.config)
                if isinstance(root, Diagnostic):
                    self._not_paths.append(root)
                else:
                    self._explicit[root] = None
                    roots.add(root)
            self._look()
            return sum(self._counts[root] for root in roots)

    def discover_scopes(self, cwd: str | os.PathLike[str] | None = None) -> int:
        """Look for skills in the scopes: project, ancestors, user, admin, packages (C1 to C3, C12).

        Args:
            cwd: The folder the agent works in; that of the process when None. A second call replaces the first.

        Returns:
            How many skills of the scopes are in the catalog.
        """
        with self._lock:
            self._cwd = self._working_folder(cwd)
            self._look()
            return sum(count for root, count in self._counts.items() if root.scope is not Scope.EXPLICIT)

    def scope_of(self, name: str) -> Scope:
        """Who put a skill where it was found.

        Raises:
            SkillNotFound: There is no such skill.
        """
        origin = self._origins.get(self._require(name).name)
        return origin.scope if origin is not None else Scope.EXPLICIT

    def refresh(self) -> bool:
        """Look at the disk now. An unchanged tree costs only stats.

        Returns:
            Whether a skill was added, removed or edited, or a diagnostic changed.
        """
        with self._lock:
            return self._look()

    async def refresh_if_due(self) -> bool:
        """Look at the disk when the last look is older than ``refresh_interval``, off the event loop.

        Callers at the same time share one look.

        Returns:
            As :meth:`refresh`; False when it was not due.
        """
        if time.monotonic() < self._next_look:
            return False
        import asyncio

        loop = asyncio.get_running_loop()
        flight = self._flight
        if flight is None or flight[0] is not loop or flight[1].done():
            flight = self._flight = (loop, loop.create_task(asyncio.to_thread(self._refresh_due)))
        # one caller's cancellation must not take the look away from the others
        return await asyncio.shield(flight[1])

    def _refresh_due(self) -> bool:
        with self._lock:
            if time.monotonic() < self._next_look:
                return False  # another thread looked while this one waited
            return self._look()

    def _snapshot(self) -> CatalogSnapshot:
        return self._current

    def _index(self) -> SearchIndex:
        from adk_skills_agent.catalog.headings import headings_of
        from adk_skills_agent.catalog.search import SearchIndex

        with self._search_lock:
            snapshot = self._current
            if self._search_index is None or self._search_index[0] is not snapshot:
                items = [entry.metadata for entry in snapshot.skills.values()]
                permits = {name: root.permits for name, root in self._origins.items() if root.permits is not None}
                headings = partial(headings_of, permits=permits)
                self._search_index = (snapshot, SearchIndex(items, headings))
            return self._search_index[1]

    def _load(self, entry: IndexedSkill) -> Skill:
        with self._loaded_lock:  # not the lock of the scan: a caller on the event loop must not wait for the disk
            made_from, skill = self._loaded.pop(entry.location, (None, None))
            if skill is None or made_from is None or not made_from.says_the_same(entry):
                origin = self._origins.get(entry.name)
                skill = Skill(entry.metadata, entry.problems, permits=origin.permits if origin is not None else None)
            self._loaded[entry.location] = (entry, skill)
            if len(self._loaded) > _MAX_LOADED:
                del self._loaded[next(iter(self._loaded))]
            return skill

    def _working_folder(self, given: str | os.PathLike[str] | None) -> str:
        try:
            return real_path(given) if given is not None else os.getcwd()
        except FileNotFoundError:
            message = "The folder this process works in is gone, so there is no project scope. Name one with cwd."
            self._not_paths.append(Diagnostic("no-such-folder", Severity.ERROR, message))
            return os.sep

    def _look(self) -> bool:
        """Scan every root and replace the snapshot when something differs. The lock is held."""
        problems = list(self._not_paths)
        scans: dict[ScanRoot, Scan] = {}
        for root in self._roots(problems):
            scans[root] = self._scan(root)
        self._scans = scans
        shadowed: dict[str, str] = {}
        skills, origins, counts = _merge(scans, problems, shadowed)
        problems.extend(self._cache.problems)
        self._origins = origins
        self._counts = counts
        self._next_look = time.monotonic() + self.config.refresh_interval
        old = self._current
        if _same(old.skills, skills) and list(old.problems) == problems:
            return False
        self._current = CatalogSnapshot(
            old.version + 1,
            skills,
            tuple(problems),
            shadowed,
            {problem: folders for found in scans.values() for problem, folders in found.about.items()},
        )
        return True

    def _scan(self, root: ScanRoot) -> Scan:
        earlier = self._scans.get(root)
        known: dict[str, Folder] = earlier.folders if earlier is not None else self._cache.load(root.path)
        result = scan(root, known)
        if result.learned and not root.respect_gitignore:  # else the index would lack what was passed over
            self._cache.save(root.path, result.folders)
        return result

    def _roots(self, problems: list[Diagnostic]) -> Iterator[ScanRoot]:
        yield from self._explicit
        if self._cwd is None:
            return
        candidates = [root for root in scope_roots(self._cwd, self.config) if os.path.lexists(root.path)]
        needing_trust = [root for root in candidates if root.scope in {Scope.PROJECT, Scope.ANCESTOR}]
        trusted = not needing_trust or self._is_project_trusted(needing_trust, problems)
        yield from (root for root in candidates if trusted or root not in needing_trust)
        if self.config.packages:
            if self._packages is None:
                from adk_skills_agent.catalog.packages import package_folders

                folders, package_problems = package_folders()
                self._packages = ([package_root(folder, self.config) for folder in folders], package_problems)
            yield from self._packages[0]
            problems.extend(self._packages[1])

    def _is_project_trusted(self, found: list[ScanRoot], problems: list[Diagnostic]) -> bool:
        """Whether the skills of the project and its ancestors are loaded (C11); if not, say how to trust it."""
        if self.config.trust is True:
            return True
        from adk_skills_agent.catalog.trust import read_trusted_projects

        assert self._cwd is not None  # noqa: S101 - there are no such scopes without it
        project = real_path(project_root(self._cwd))
        if self.config.trust is False:
            message = f"The skills of the project {shown(project)} are not loaded, because the setting trust is False."
            problems.append(Diagnostic("untrusted-project", Severity.INFO, message, shown(project)))
            return False
        listed = read_trusted_projects(self.config)
        if listed.problem is not None:
            problems.append(listed.problem)
        if project in listed:
            return True
        places = ", ".join(shown(root.path) for root in found)
        message = (
            f"The project {shown(project)} is not trusted, so the skills in {places} are not loaded. Look at them, "
            f"then trust it: from adk_skills_agent.catalog import trust_project; trust_project({project!r})."
        )
        problems.append(Diagnostic("untrusted-project", Severity.WARNING, message, shown(project)))
        return False


def _merge(
    scans: dict[ScanRoot, Scan], problems: list[Diagnostic], shadowed: dict[str, str]
) -> tuple[dict[str, IndexedSkill], dict[str, ScanRoot], dict[ScanRoot, int]]:
    """One skill for each name: of the first root in the order of precedence, and there the first found (C8 to C10)."""
    skills: dict[str, IndexedSkill] = {}
    origins: dict[str, ScanRoot] = {}
    counts: dict[ScanRoot, int] = {}
    for root, result in scans.items():
        before = len(skills)
        problems.extend(result.problems)
        for skill in result.skills:
            winner = skills.setdefault(skill.name, skill)
            if winner is skill:
                origins[skill.name] = root
            elif not _is_same_file(winner, skill):
                shadowed[skill.location] = winner.location
                problems.append(_shadowed(skill, root, winner, origins[skill.name]))
        counts[root] = len(skills) - before
    return dict(sorted(skills.items())), origins, counts


def _is_same_file(one: IndexedSkill, other: IndexedSkill) -> bool:
    if one.location == other.location:
        return True
    try:
        return os.path.samefile(one.location, other.location)
    except OSError:
        return False


def _shadowed(skill: IndexedSkill, root: ScanRoot, winner: IndexedSkill, winner_root: ScanRoot) -> Diagnostic:
    message = (
        f"The skill {skill.name!r} in {shown(skill.location)} ({place_name(root)}) is hidden by the one of the same "
        f"name in {shown(winner.location)} ({place_name(winner_root)}). Rename one of them to have both."
    )
    return Diagnostic("shadowed-skill", Severity.WARNING, message, shown(skill.location))


def _same(old: object, new: dict[str, IndexedSkill]) -> bool:
    if not isinstance(old, dict) or len(old) != len(new):
        return False
    return all(
        name == other and entry.says_the_same(old[other]) for (name, entry), other in zip(new.items(), old, strict=True)
    )
