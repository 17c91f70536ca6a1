"""The registry: which skills there are, kept up to date with the disk (S4-10, C1 to C12, C19 to C21)."""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from adk_skills_agent.catalog.discovery import scan
from adk_skills_agent.catalog.index import Folder, IndexCache, IndexedSkill, Scan
from adk_skills_agent.catalog.scopes import (
    ScanRoot,
    Scope,
    explicit_root,
    package_root,
    place_name,
    project_root,
    scope_roots,
)
from adk_skills_agent.catalog.settings import RegistryConfig, cache_folder
from adk_skills_agent.catalog.skill import Skill
from adk_skills_agent.catalog.untrusted_files import real_path, shown
from adk_skills_agent.catalog.view import CatalogReader, CatalogSnapshot, entry_named
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.format.models import Diagnostic, Severity, SkillMetadata
from adk_skills_agent.platforms import require_posix

if TYPE_CHECKING:
    import asyncio

    from adk_skills_agent.catalog.search import SearchIndex
    from adk_skills_agent.catalog.skill_source import SkillSource, SourceFeed


Missing: TypeAlias = Literal["error", "warn"]
"""The treatment of a folder that does not exist: an error, or a diagnostic."""

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How long whoever asks whether anything is new waits for the answer."""
_MOST_NAMES = 200_000  # whose first place is remembered
_MAX_LOADED = 64  # skills whose instructions are kept in memory; more are read again


class SkillsRegistry(CatalogReader):
    """The skills of all the places it has been told to search.

    Bad input never raises and never loses the catalog: it becomes a diagnostic. May be used by several threads.

    Args:
        config: Settings; the defaults of the client guide when None.

    Raises:
        ConfigError: This is Windows.
    """

    def __init__(self, config: RegistryConfig | None = None) -> None:
        require_posix("Finding skills")
        self.config = config or RegistryConfig()
        self._lock = threading.RLock()
        self._current = CatalogSnapshot()
        self._explicit: dict[ScanRoot, None] = {}
        self._feeds: dict[str, SourceFeed] = {}
        self._first = _FirstPlaces()
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
        self._flight: tuple[asyncio.AbstractEventLoop, asyncio.Task[bool], float] | None = None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything that was repaired, refused, shadowed or cut, each once, in a stable order (C19)."""
        searching = self._search_index
        return tuple(dict.fromkeys((*super().diagnostics, *(searching[1].diagnostics if searching else ()))))

    @classmethod
    def of_folders(
        cls,
        dirs: Iterable[str | os.PathLike[str]],
        *,
        missing: Missing = "error",
        relative_to: str | os.PathLike[str] | None = None,
        config: RegistryConfig | None = None,
    ) -> Self:
        """The skills of some folders: a registry whose owner is told at once of a folder that is not there.

        Args:
            dirs: As :meth:`discover`.
            missing: As :meth:`discover`, but ``"error"`` by default.
            relative_to: As :meth:`discover`.
            config: Settings; the defaults of the client guide when None.

        Raises:
            ConfigError: A folder does not exist.
        """
        registry = cls(config)
        registry.discover(dirs, missing=missing, relative_to=relative_to)
        return registry

    def discover(
        self,
        dirs: Iterable[str | os.PathLike[str]],
        *,
        missing: Missing = "warn",
        relative_to: str | os.PathLike[str] | None = None,
    ) -> int:
        """Look for skills in folders that the owner names; the explicit scope, which wins over all others.

        Args:
            dirs: Folders of skills, folders of one skill, or SKILL.md files; ``~`` is the home.
            missing: What a folder that does not exist is: ``"error"``, or ``"warn"`` to go on with an error in
                :attr:`diagnostics`; the skills are found when it appears.
            relative_to: Where relative folders start: a folder, or a file in it such as ``__file__``. The working
                directory when None.

        Returns:
            How many skills of these folders are in the catalog.

        Raises:
            ConfigError: A folder does not exist and ``missing`` is ``"error"``.
        """
        if missing not in ("error", "warn"):
            raise ConfigError(f"missing must be 'error' or 'warn', not {missing!r}.")
        named = [dirs] if isinstance(dirs, str | os.PathLike) else list(dirs)
        named = [_from(folder, relative_to) for folder in named]
        if missing == "error":
            _require_existing(named, relative_to, self.config)
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

    def add_source(
        self,
        source: SkillSource,
        *,
        name: str,
        priority: int = 0,
        filter: Callable[[SkillMetadata], bool] | None = None,  # noqa: A002 - the usual word
        deadline: float = 10.0,
        interval: float = 60.0,
    ) -> int:
        """Show the skills of a source, too. Waits for its first list, up to the deadline; afterwards never.

        Args:
            source: Where they come from.
            name: What diagnostics call it.
            priority: Of two sources with a skill of the same name the higher wins; folders win over every source.
            filter: Says of a skill that is listed whether it is taken.
            deadline: Seconds for one question; then the others go on without it, with what it listed last.
            interval: Seconds between two questions for changes.

        Returns:
            How many skills of the source are in the catalog.

        Raises:
            ConfigError: There is a source of that name, it is no name, or ``source`` is none.
        """
        from adk_skills_agent.catalog.skill_source import SkillSource, SourceFeed
        from adk_skills_agent.errors import ConfigError

        if not isinstance(source, SkillSource):
            raise ConfigError(
                f"add_source() takes a SkillSource, not {source!r:.80}. Wrap it, for example in "
                "adk_skills_agent.sources.OriginSource('owner/repo') or FolderSource('skills')."
            )
        with self._lock:
            if name in self._feeds:
                raise ConfigError(f"There is a source {name!r} already. Remove it, or give this one another name.")
            cache = cache_folder(self.config) if self.config.cache else None
            feed = SourceFeed(
                source, name, priority=priority, keep=filter, deadline=deadline, interval=interval, cache=cache
            )
            self._feeds[name] = feed
            self._look()
            return self._counts.get(feed.root, 0)

    def remove_source(self, name: str) -> None:
        """Let a source go: its skills are no longer in the catalog.

        Raises:
            ConfigError: There is no such source.
        """
        from adk_skills_agent.errors import ConfigError

        with self._lock:
            feed = self._feeds.pop(name, None)
            if feed is None:
                raise ConfigError(f"There is no source {name!r}. There are: {', '.join(self._feeds) or 'none'}.")
            self._look()
        feed.close()

    @property
    def has_sources(self) -> bool:
        """Whether there are skills whose files are not known before they are fetched."""
        return bool(self._feeds)

    async def fetch(self, name: str) -> None:
        """Have the files of a skill here before it is loaded; only a skill of a source has to be fetched.

        Raises:
            RegistryError: Its source does not give them.
        """
        entry = entry_named(self._current, name) if self._feeds else None
        feed = self._feed_of(entry) if entry is not None else None
        if feed is not None and entry is not None:
            await feed.fetch(entry.name)

    def ignores_allowed_tools(self, name: str) -> bool:
        """Whether ``allowed-tools`` of a skill counts for nothing: its source is an MCP server, or says so."""
        entry = entry_named(self._current, name) if self._feeds else None
        feed = self._feed_of(entry) if entry is not None else None
        return feed is not None and feed.source.ignores_allowed_tools

    def unanswered(self, name: str) -> str:
        """The source that goes before the place of a name, or has no place before it, and has listed nothing yet.

        It may have a skill of that name. Empty when there is none.
        """
        feeds = self._feeds_in_order()
        if all(feed.has_listed for feed in feeds):
            return ""
        entry = entry_named(self._current, name)
        for feed in feeds:
            if entry is not None and feed.has(entry.location):
                return ""
            if not feed.has_listed and (entry is None or self._feed_of(entry) is not None):
                return feed.name
        return ""

    def _feeds_in_order(self) -> list[SourceFeed]:
        return sorted(self._feeds.copy().values(), key=lambda one: -one.priority)  # one may be added meanwhile

    def _ensure(self, entry: IndexedSkill) -> None:
        if self._feeds and (feed := self._feed_of(entry)) is not None:
            feed.ensure(entry.name)

    def _feed_of(self, entry: IndexedSkill) -> SourceFeed | None:
        return next((feed for feed in self._feeds.values() if feed.has(entry.location)), None)

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
            for feed in self._feeds.values():
                feed.look(now=True)
            return self._look()

    async def refresh_if_due(self) -> bool:
        """Look at the disk when the last look is older than ``refresh_interval``, off the event loop.

        Callers at the same time share one look. They go on with what was seen before when it takes longer than
        ``LOOK_SECONDS``, as after a source has changed thousands of skills (row 463).

        Returns:
            As :meth:`refresh`; False when it was not due, or goes on.
        """
        if time.monotonic() < self._next_look:
            return False
        import asyncio

        loop = asyncio.get_running_loop()
        flight = self._flight
        if flight is None or flight[0] is not loop or flight[1].done():
            began = time.monotonic()
            flight = self._flight = (loop, loop.create_task(asyncio.to_thread(self._refresh_due)), began)
            flight[1].add_done_callback(_log_failure)  # perhaps nobody waits any more
        # It does not end with one of its callers, or with their patience.
        left = max(0.0, flight[2] + LOOK_SECONDS - time.monotonic()) if self._current.version else None
        done, _ = await asyncio.wait({flight[1]}, timeout=left)
        return flight[1].result() if done else False

    def _refresh_due(self) -> bool:
        with self._lock:
            if time.monotonic() < self._next_look:
                return False  # another thread looked while this one waited
            return self._look()

    def _snapshot(self) -> CatalogSnapshot:
        return self._current

    def _index(self) -> SearchIndex:
        from adk_skills_agent.catalog.search import SearchIndex
        from adk_skills_agent.catalog.skill import headings_of

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
            if skill is None or not (made_from is entry or (made_from is not None and made_from.says_the_same(entry))):
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
        for feed in self._feeds.values():
            feed.look()
            problems.extend(feed.problems)
        scans: dict[ScanRoot, Scan] = {}
        for root in self._roots(problems):
            scans[root] = self._scan(root)
        self._scans = scans
        shadowed: dict[str, str] = {}
        self._first.look(scans, self._feeds_in_order())
        skills, origins, counts = _merge(scans, problems, shadowed, self._first)
        problems.extend(_without_skills(scans))
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
        if self._cwd is not None:
            yield from self._scope_roots(problems)
        for feed in self._feeds_in_order():
            yield feed.root

    def _scope_roots(self, problems: list[Diagnostic]) -> Iterator[ScanRoot]:
        assert self._cwd is not None  # noqa: S101 - the caller looked
        candidates = [root for root in scope_roots(self._cwd, self.config) if os.path.lexists(root.path)]
        needing_trust = [root for root in candidates if root.scope in {Scope.PROJECT, Scope.ANCESTOR}]
        trusted = not needing_trust or self._is_project_trusted(needing_trust, problems)
        yield from (root for root in candidates if trusted or root not in needing_trust)
        if self.config.packages:
            if self._packages is None:
                from adk_skills_agent.catalog.scopes import package_folders

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
            f"then trust it with: adk-skills trust {shlex.quote(shown(project))}"
        )
        problems.append(Diagnostic("untrusted-project", Severity.WARNING, message, shown(project)))
        return False


def _log_failure(look: asyncio.Task[bool]) -> None:
    error = None if look.cancelled() else look.exception()
    if error is not None:
        logger.error("A look at the skills failed; those that were seen before stay.", exc_info=error)


def _from(folder: str | os.PathLike[str], start: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    """A folder as it was meant: a relative one from where the owner says that it starts."""
    given = os.fspath(folder)
    if start is None or not isinstance(given, str) or not given or os.path.isabs(given) or given.startswith("~"):
        return folder
    base = os.path.abspath(start)
    return os.path.join(base if os.path.isdir(base) else os.path.dirname(base), given)


def _require_existing(
    folders: Iterable[str | os.PathLike[str]], start: str | os.PathLike[str] | None, config: RegistryConfig
) -> None:
    """Refuse folders that are not there, all in one sentence.

    Raises:
        ConfigError: With the place where each was looked for, and the folder that relative ones start from.
    """
    absent: list[str] = []
    for folder in folders:
        root = explicit_root(folder, config)
        if isinstance(root, Diagnostic):
            raise ConfigError(root.message)
        given = os.fspath(folder)
        if os.path.isfile(os.path.expanduser(given)) and os.path.basename(given).lower() != "skill.md":
            raise ConfigError(f"{shown(given)} is a file. Give the folder of your skills.")
        if not os.path.exists(root.path) or (root.only_this_folder and not os.path.exists(os.path.expanduser(given))):
            absent.append(given if os.path.isabs(given) else f"{given} ({root.path})")
    if not absent:
        return
    what = "This folder of skills does not exist" if len(absent) == 1 else "These folders of skills do not exist"
    try:
        here = shown(os.getcwd())
    except FileNotFoundError:
        here = "gone"
    hint = "" if start is not None else ", write paths that start at your file with relative_to=__file__,"
    raise ConfigError(
        f"{what}: {', '.join(map(shown, absent))}. The working directory is {here}. Correct the path"
        f"{hint} or go on without it with missing='warn'."
    )


class _FirstPlaces:
    """Where each name was first, once there are sources: authors write names, and grants and rules go by them.

    A name stays with its place against every source that does not go before it (row 485).
    """

    def __init__(self) -> None:
        self._first: dict[str, ScanRoot] = {}
        self._order: dict[ScanRoot, tuple[int, int]] = {}
        self._settled: set[ScanRoot] = set()

    def look(self, roots: Iterable[ScanRoot], feeds: Iterable[SourceFeed]) -> None:
        """Take the places that there are now, in the order of precedence."""
        sources = {feed.root: feed for feed in feeds}
        places = list(roots) if sources else []
        self._order = {
            root: (1, -sources[root].priority) if root in sources else (0, number) for number, root in enumerate(places)
        }
        known = itertools.takewhile(lambda root: sources[root].has_listed, sources)
        self._settled = {*known, *(root for root in places if root not in sources)}

    def holder(self, name: str, root: ScanRoot) -> ScanRoot | None:
        """The place that keeps a source from having a name; None when it may."""
        had = self._first.get(name)
        if had is None or had == root or root.scope is not Scope.SOURCE or had not in self._order:
            return None
        return had if self._order[had] <= self._order[root] else None

    def remember(self, origins: Mapping[str, ScanRoot]) -> None:
        """Remember whose the names are, as far as no source that goes before may have them, too."""
        for name, root in origins.items() if self._order else ():
            if root in self._settled and (name in self._first or len(self._first) < _MOST_NAMES):
                self._first[name] = root


def _merge(
    scans: dict[ScanRoot, Scan], problems: list[Diagnostic], shadowed: dict[str, str], first: _FirstPlaces
) -> tuple[dict[str, IndexedSkill], dict[str, ScanRoot], dict[ScanRoot, int]]:
    """One skill for each name: of the first root in the order of precedence, and there the first found (C8 to C10).

    Those that lie in the folder of another skill come last: who installs one knows its own name only (row 398). A
    source does not get a name that another place has had (``first``).
    """
    skills: dict[str, IndexedSkill] = {}
    origins: dict[str, ScanRoot] = {}
    for result in scans.values():
        problems.extend(result.problems)
    for are_nested in (False, True):
        for root, result in scans.items():
            for skill in result.skills if result.nested or not are_nested else ():
                if (skill.location in result.nested) is not are_nested:
                    continue
                had = first.holder(skill.name, root)
                if had is not None and skill.name not in skills:
                    problems.append(_taken(skill, root, had))
                    continue
                winner = skills.setdefault(skill.name, skill)
                if winner is skill:
                    origins[skill.name] = root
                elif not _is_same_file(winner, skill):
                    shadowed[skill.location] = winner.location
                    problems.append(_shadowed(skill, root, winner, origins[skill.name]))
    first.remember(origins)
    found = Counter(origins.values())
    return dict(sorted(skills.items())), origins, {root: found[root] for root in scans}


def _without_skills(scans: Mapping[ScanRoot, Scan]) -> Iterator[Diagnostic]:
    """The folders that the owner named and that have nothing in them, not even a skill that was refused."""
    for root, found in scans.items():
        if root.scope is Scope.EXPLICIT and not found.skills and not found.problems:
            yield Diagnostic("no-skills", Severity.WARNING, f"There is no skill in {shown(root.path)}.", file=root.path)


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


def _taken(skill: IndexedSkill, root: ScanRoot, had: ScanRoot) -> Diagnostic:
    message = (
        f"The skill {skill.name!r} of {place_name(root)} is left out until the program starts again: {place_name(had)} "
        "had a skill of that name, and grants and rules go by names."
    )
    return Diagnostic("name-taken", Severity.WARNING, message)


def _same(old: object, new: dict[str, IndexedSkill]) -> bool:
    if not isinstance(old, dict) or len(old) != len(new):
        return False
    return all(
        name == other and entry.says_the_same(old[other]) for (name, entry), other in zip(new.items(), old, strict=True)
    )


# Every skill of one folder, also those that a catalog would shadow: what a check of a whole folder works on.


@dataclass(frozen=True, slots=True)
class FolderSkills:
    """The content of a folder."""

    skills: tuple[Path, ...]  # the folders of all skills, sorted; skills of the same name each count
    unread: tuple[Diagnostic, ...]  # an error for everything that may be a skill and could not be read


def skills_below(folder: Path) -> FolderSkills:
    """All skills in ``folder``, at any depth."""
    root = explicit_root(folder, RegistryConfig(cache=False))
    if isinstance(root, Diagnostic):
        return FolderSkills((), (root,))
    found = scan(root, {})
    loaded = {skill.location for skill in found.skills}
    unread = tuple(
        problem for problem in found.problems if problem.severity is Severity.ERROR and problem.file not in loaded
    )
    return FolderSkills(tuple(sorted(Path(location).parent for location in loaded)), unread)
