"""Skills from anywhere: a database, an object store, a server. A registry shows them beside those on disk.

What a source lists is put into a folder of this process as level 1 alone; the files of a skill come when it is first
loaded. Each source has a thread and an event loop of its own: a slow or dead one holds up nobody, and what it listed
last stays until it answers again.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from adk_skills_agent.catalog.files import MAX_FILES, clean_path
from adk_skills_agent.catalog.scopes import ScanRoot, Scope
from adk_skills_agent.catalog.source_lists import SourceLists, age_in_words
from adk_skills_agent.catalog.untrusted_files import real_path
from adk_skills_agent.errors import ConfigError, RegistryError, SkillsError
from adk_skills_agent.format import decoded, normalise_name, parse_text
from adk_skills_agent.format.models import Diagnostic, ParsedSkill, Severity, SkillMetadata
from adk_skills_agent.platforms import write_whole

logger = logging.getLogger(__name__)

DEADLINE_SECONDS = 10.0
"""How long a source may take to list its skills, or to give one, before the others go on without it."""
REFRESH_SECONDS = 60.0
"""Between two questions to a source."""
_REST = 10
_YIELD_SECONDS = 1e-4
MAX_SKILLS = 20_000
_MOST_PLACES = 4 * MAX_SKILLS
"""That a source has had in the life of a process, those that are gone among them."""
MAX_BYTES = 64 << 20
"""Of one skill."""
_T = TypeVar("_T")


class FirstNames:
    """Which place of a source has a name: authors write names, and grants, rules and approvals go by them (row 464)."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._told: set[str | tuple[str, str]] = set()

    def places(self, names: Mapping[str, str]) -> list[str]:
        """The places in the order in which they count, of those with one name first the one that had it first.

        Of new ones it is the one that is called so. ``names`` is what each place calls itself now. One that called
        itself otherwise when it was first seen is left out until the process is started anew, and so is one whose name
        was another's, which is away; the log says so once.
        """
        for place, name in names.items():
            if place not in self._first and len(self._first) >= _MOST_PLACES:  # a source may have ever new ones
                if "" not in self._told:
                    self._told.add("")
                    logger.warning("A source has had %d skills; further ones are left out.", _MOST_PLACES)
                continue
            if self._first.setdefault(place, name) != name and place not in self._told:
                self._told.add(place)
                logger.warning(
                    "The skill %r of a source was called %r, and calls itself %r now, so it is left out.",
                    *(place, self._first[place], name),
                )
        kept = [place for place, name in names.items() if self._first.get(place) == name]
        kept.sort(key=lambda place: place.rpartition("/")[2] != names[place])
        for place in kept:
            self._places.setdefault(normalise_name(names[place]), place)
        holders = {place: self._places[normalise_name(names[place])] for place in kept}
        for place, holder in holders.items():
            if holder not in holders and (place, holder) not in self._told:
                self._told.add((place, holder))
                logger.warning(
                    "The skill %r of a source is left out until the program starts again: %r, which is away, had its "
                    "name first.",
                    *(place, holder),
                )
        return sorted((place for place in kept if holders[place] in holders), key=lambda place: holders[place] != place)


class SkillSource(ABC):
    """A place that has skills. Two methods are needed; the others have defaults.

    The methods are coroutines and run on an event loop of the registry's for this source, one call after the other or
    several at once. What they raise becomes a diagnostic of the registry, or the answer to the model that asked.
    """

    ignores_allowed_tools: bool = False
    """Whether ``allowed-tools`` of its skills counts for nothing, as the MCP extension for skills demands of hosts."""

    @abstractmethod
    async def list_metadata(self) -> Sequence[SkillMetadata]:
        """The frontmatter of every skill: at least name and description. ``file`` does not count."""

    @abstractmethod
    async def read_file(self, name: str, path: str) -> bytes:
        """A file of a skill.

        Args:
            name: As :meth:`list_metadata` has it.
            path: ``SKILL.md``, or one of :meth:`list_files`.

        Raises:
            SkillNotFound: There is no such skill.
            ResourceNotFound: It has no such file.
        """

    async def load_skill(self, name: str) -> ParsedSkill:
        """A skill: its SKILL.md, read."""
        data = await self.read_file(name, "SKILL.md")
        return parse_text(data.decode("utf-8", "replace"), folder_name=name)

    async def list_files(self, name: str) -> Sequence[str]:
        """The paths of all files of a skill, relative, with ``/``; with or without the SKILL.md."""
        del name
        return ()

    async def refresh(self) -> bool:
        """Whether anything may have changed since the last call; asked before the skills are listed again."""
        return True

    def cache_key(self) -> str:
        """What this source is, for the list that is kept in the user's cache and shown while the source is away.

        Empty (the default) keeps none. Two sources, or two users of one, with different skills need different keys.
        """
        return ""

    async def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Let go of connections; the source was removed from its registry."""


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"skill-source-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            if pending:
                self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the thread; does not wait for a source that blocks it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)


class SourceFeed:
    """One source of a registry: what it listed last, and the files of what was loaded. Used by several threads.

    Of skills of the same name in several sources that of the higher ``priority`` wins; folders win over all.
    ``deadline`` is for one question, ``interval`` for the time between two, in seconds.
    """

    def __init__(
        self,
        source: SkillSource,
        name: str,
        *,
        priority: int = 0,
        keep: Callable[[SkillMetadata], bool] | None = None,
        deadline: float = DEADLINE_SECONDS,
        interval: float = REFRESH_SECONDS,
        cache: str | None = None,
    ) -> None:
        if not name or normalise_name(name) != name:
            raise ConfigError(f"{name!r} is no name of a source. Use small letters, digits and hyphens.")
        self.source, self.name, self.priority = source, name, priority
        self._keep, self._deadline, self._interval = keep, deadline, interval
        self._folder = Path(tempfile.mkdtemp(prefix=f"adk-skills-source-{name}-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, str(self._folder), ignore_errors=True)
        self._loop = _Loop(name)
        self._lock = threading.Lock()  # for files, of one skill at a time
        self._fetch_lock = threading.Lock()  # for what is in memory: event loops take it (row 463)
        self._listed: dict[str, SkillMetadata] | None = None
        self._whole: set[str] = set()
        self._stale: set[str] = set()
        self._asked: Future[list[SkillMetadata] | None] | None = None
        self._fetching: dict[str, Future[None]] = {}
        self._next = 0.0
        key = source.cache_key()
        self._kept = SourceLists(cache, name, key) if cache is not None and key else None
        self._answered = False  # what is shown may be a kept list
        self._listed_at = 0.0
        self._last = ""
        self.problems: tuple[Diagnostic, ...] = ()

    @property
    def root(self) -> ScanRoot:
        """Where the registry finds what the source listed."""
        folder = str(self._folder)
        return ScanRoot(folder, Scope.SOURCE, max_depth=1, boundary=real_path(folder))

    @property
    def has_listed(self) -> bool:
        """Whether it is known what it has, be it from a list that was kept."""
        return self._listed is not None

    def has(self, location: str) -> bool:
        """Whether a SKILL.md is one of this source."""
        return location.startswith(f"{self._folder}/")

    # Listing

    def look(self, *, now: bool = False) -> None:
        """Take what the source lists, when it is time. Waits for the first list, up to the deadline, and never again.

        ``now`` asks although it is not time, and waits.
        """
        wait = now or self._listed is None
        if now and self._asked is not None:  # its answer may be from before
            self._asked.cancel()
            self._asked = None
        if self._asked is None:
            if not now and time.monotonic() < self._next:
                return
            self._asked = self._loop.submit(self._list())
        try:
            items = self._asked.result(self._deadline + 1.0 if wait else 0)
        except FutureTimeout:
            if wait:
                self._next = time.monotonic() + self._interval
                longer = "give a slow one more by the deadline of add_source"
                self._say(f"does not answer within {self._deadline:g} seconds; {longer}")
            if self._asked.done():  # it was the source's own deadline
                self._asked = None
            return
        except Exception as error:  # noqa: BLE001 - a source is somebody else's code: whatever it raises is told
            self._asked = None
            self._next = time.monotonic() + self._interval
            self._say(f"cannot be read: {type(error).__name__}: {error}")
            return
        self._asked = None
        self._next = time.monotonic() + self._interval
        self._last = ""
        self.problems = ()
        if items is not None:
            began = time.monotonic()
            self._take(items)
            # Of a source with ever new skills a tenth of the time is spent on them (row 463).
            self._next = max(self._next, time.monotonic() + _REST * (time.monotonic() - began))
            self._answered, self._listed_at = True, time.time()
            if self._kept is not None:
                self._kept.save([item for item in items[:MAX_SKILLS] if isinstance(item, SkillMetadata)])

    async def _list(self) -> list[SkillMetadata] | None:
        async with asyncio.timeout(self._deadline):
            if not await self.source.refresh() and self._answered:
                return None
            return list(await self.source.list_metadata())

    def _take(self, items: Sequence[SkillMetadata]) -> None:
        problems: list[Diagnostic] = []
        listed: dict[str, SkillMetadata] = {}
        for item in items[:MAX_SKILLS]:
            name = normalise_name(item.name) if isinstance(item, SkillMetadata) else ""
            if not name or not item.description.strip():
                problems.append(self._problem("source-entry", f"lists {str(item)[:80]!r}, which has no usable name"))
            elif name in listed:
                problems.append(self._problem("shadowed-skill", f"lists {name!r} twice; the first one counts"))
            elif self._keep is None or self._keep(item):
                listed[name] = item
                if item.allowed_tools and self.source.ignores_allowed_tools:
                    what = (
                        f"has allowed-tools in {name!r}, which count for nothing: they are a server's, not an owner's"
                    )
                    problems.append(self._problem("allowed-tools-ignored", what))
        if len(items) > MAX_SKILLS:
            problems.append(
                self._problem("source-entry", f"lists more than {MAX_SKILLS:,} skills; the rest is left out")
            )
        before = self._listed or {}
        for name in set(before) - set(listed):
            with self._lock:
                shutil.rmtree(self._folder / name, ignore_errors=True)
                self._whole.discard(name)
        for name, item in listed.items():
            if name in before and _told(before[name]) == _told(item):
                continue
            with self._lock:
                if name not in self._whole:
                    self._write(name, {"SKILL.md": _level1(name, item)})
            time.sleep(_YIELD_SECONDS)  # a lock that is asked for again at once goes to nobody who loads a skill
        with self._lock:
            self._stale = set(self._whole)
            self._listed = listed
            self.problems = tuple(problems)

    def _say(self, what: str) -> None:
        if self._listed is None and self._kept is not None and (kept := self._kept.load()) is not None:
            self._take(kept.skills)
            self._listed_at = time.time() - kept.age
        if self._listed is not None and not self._last:  # said once: a text that grew older would be news each minute
            when = datetime.fromtimestamp(self._listed_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
            age = age_in_words(max(0.0, time.time() - self._listed_at))
            self._last = f" What it listed last is shown, of {when} ({age} old when it went away)."
        last = self._last
        self.problems = (self._problem("source-unavailable", f"{what[:300].rstrip('.')}.{last}"),)

    def _problem(self, code: str, what: str) -> Diagnostic:
        return Diagnostic(code, Severity.WARNING, f"The source of skills {self.name!r} {what}")

    # Files

    def ensure(self, name: str) -> None:
        """Have the files of a skill here, waiting up to the deadline; nothing when they are.

        Raises:
            RegistryError: The source does not give them. The sentence is for the model.
        """
        if name in self._whole:
            return
        try:
            self._fetch(name).result(self._deadline + 1.0)
        except FutureTimeout:
            raise self._late(name) from None

    async def fetch(self, name: str) -> None:
        """As :meth:`ensure`, without blocking; files of a list before the last one are fetched again.

        Raises:
            RegistryError: As :meth:`ensure`; what is here already is used where the source is gone.
        """
        if name in self._whole and name not in self._stale:
            return
        try:
            async with asyncio.timeout(self._deadline + 1.0):
                await asyncio.shield(asyncio.wrap_future(self._fetch(name)))
        except TimeoutError:
            if name not in self._whole:
                raise self._late(name) from None
        except RegistryError:
            if name not in self._whole:
                raise

    def _late(self, name: str) -> RegistryError:
        return RegistryError(f"Skill '{name}' cannot be loaded: its source does not answer. Try again later, or go on.")

    def _fetch(self, name: str) -> Future[None]:
        with self._fetch_lock:
            running = self._fetching.get(name)
            if name in self._whole and name not in self._stale:  # somebody was faster
                ready: Future[None] = Future()
                ready.set_result(None)
                return ready
            if running is None or running.done():
                running = self._fetching[name] = self._loop.submit(self._get(name))
            return running

    async def _get(self, name: str) -> None:
        listed = (self._listed or {}).get(name)
        called = listed.name if listed is not None else name
        try:
            async with asyncio.timeout(self._deadline):
                paths = [path for path in await self.source.list_files(called) if path != "SKILL.md"]
                if len(paths) > MAX_FILES:
                    raise RegistryError(f"Skill '{name}' has more than {MAX_FILES:,} files, so it is not loaded.")
                files = {"SKILL.md": await self.source.read_file(called, "SKILL.md")}
                total = 0
                for path in paths:
                    data = await self.source.read_file(called, path)
                    total += len(data)
                    if total > MAX_BYTES:
                        raise RegistryError(f"Skill '{name}' has more than {MAX_BYTES >> 20} MiB, so it is not loaded.")
                    files[clean_path(path)] = data
        except TimeoutError as error:
            raise self._late(name) from error
        except SkillsError as error:
            raise RegistryError(f"Skill '{name}' cannot be loaded: {error.message}") from error
        except Exception as error:
            failure = RegistryError(f"Skill '{name}' cannot be loaded: its source failed. Tell the user, or go on.")
            failure.add_note(f"The source {self.name!r} raised {type(error).__name__}: {error}")
            raise failure from error
        level1 = parse_text(decoded(files["SKILL.md"]), folder_name=name).metadata
        if normalise_name(level1.name) != name:
            raise RegistryError(f"Skill '{name}' cannot be loaded: its SKILL.md has another name. Tell the user.")
        if self._keep is not None and not self._keep(level1):  # which saw what the list says (row 483)
            raise RegistryError(f"Skill '{name}' cannot be loaded: it is not what its source lists. Tell the user.")
        with self._lock:
            self._write(name, files)
            self._whole.add(name)
            self._stale.discard(name)

    def _write(self, name: str, files: dict[str, bytes]) -> None:
        folder = self._folder / name
        for path, data in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_file() and target.read_bytes() == data:
                continue
            write_whole(target, data, mode=0o755 if data[:2] == b"#!" else 0o644)
        for there in [one for one in folder.rglob("*") if one.is_file()]:
            if there.relative_to(folder).as_posix() not in files:
                there.unlink()

    def close(self) -> None:
        """Let the source go and remove its files; a source that does not close in time, or fails to, is logged."""
        try:
            self._loop.submit(self.source.close()).result(1.0)
        except Exception as error:  # noqa: BLE001 - a source is somebody else's code, and it is let go all the same
            said = (
                "does not close within a second" if isinstance(error, FutureTimeout) else f"cannot be closed: {error}"
            )
            logger.warning("%s", self._problem("source-not-closed", said).message)
        self._loop.stop()
        self._finalizer()


def _told(item: SkillMetadata) -> tuple[object, ...]:
    return (
        item.description,
        item.license,
        item.compatibility,
        item.allowed_tools,
        dict(item.metadata),
        dict(item.extra),
    )


def _level1(name: str, item: SkillMetadata) -> bytes:
    """The head of a SKILL.md from what a source listed."""
    import yaml

    values = {
        **item.extra,  # a stranger's, and none of the fields that the filter saw (row 483)
        "name": name,
        "description": item.description,
        "license": item.license,
        "compatibility": item.compatibility,
        "allowed-tools": item.allowed_tools,
        "metadata": dict(item.metadata) or None,
    }
    told = {key: value for key, value in values.items() if value is not None}
    return f"---\n{yaml.safe_dump(told, allow_unicode=True, sort_keys=False)}---\n".encode()
