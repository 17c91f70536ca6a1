"""Which environment the scripts of a skill get, under the owner's setting ``dependencies``.

:meth:`SkillEnvironments.environment_for` is the one question; whoever runs something of a skill asks it first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from adk_skills_agent.errors import ConfigError, PackageError, SandboxError, SkillsError
from adk_skills_agent.platforms import typed_path
from adk_skills_agent.recent import Recent
from adk_skills_agent.sandbox import snapshot

# The rest of this layer is imported where it is used: a toolset is made in milliseconds, and few skills need packages.
if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill
    from adk_skills_agent.packages.environments import Environment
    from adk_skills_agent.packages.findings import Findings
    from adk_skills_agent.packages.lock import Lock
    from adk_skills_agent.packages.needs import Needs
    from adk_skills_agent.packages.shared_environments import SharedEnvironments
    from adk_skills_agent.packages.uv import Index, Progress
    from adk_skills_agent.sandbox import Secret

logger = logging.getLogger(__name__)

DependencyMode: TypeAlias = Literal["off", "locked", "ask", "install"]
MODES = get_args(DependencyMode)
PRESETS = ("office",)
"""Named sets of packages that ship with this one: what many published skills take for granted."""
LOCK_FILE = "adk-skills.lock"
_RETRY_SECONDS = 600.0
"""An index that did not answer is not asked again for every script."""
_REMEMBERED = 512


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Whether and how packages that skills need may be installed.

    Attributes:
        mode: ``off``: nothing, scripts have what the agent's Python has. ``locked``: only environments that
            ``adk-skills prepare`` made. ``ask``: the user sees the exact packages and is asked once for them.
            ``install``: they are installed without a question.
        preset: A named set of packages that every script gets besides: ``office``.
        indexes: URLs of package indexes, the first one first; empty for ``UV_DEFAULT_INDEX``, ``UV_INDEX_URL`` or
            ``PIP_INDEX_URL``, else PyPI.
        find_links: Folders with wheels, besides.
        lock: A folder of the project with locks, ``<skill>.lock`` each, which come before those beside the skills.
        cache: Where environments are; None for the user's cache.
        exclude_newer: Only files published before; None is three days ago on PyPI, and no bound on other indexes.
        offline: Never ask an index; what was fetched before may still be installed.
        npm_registry: The URL of the registry of npm packages; empty for the one that npm is configured with.
        builds: Packages that may be built where there is no wheel, by name, or True for all. A build runs the package's
            own code: it runs in the sandbox, without the network. The lock then holds for this machine only.
        store: Where servers share environments, as ``workspace_store`` has it: what one prepared the others fetch.
        store_key: Encrypts them there, and tells that nobody else wrote them: 64 hexadecimal digits, best a
            :class:`~adk_skills_agent.Secret`.
    """

    mode: DependencyMode = "ask"
    preset: str | None = None
    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    lock: Path | None = None
    cache: Path | None = None
    exclude_newer: datetime | None = None
    offline: bool = False
    npm_registry: str = ""
    builds: tuple[str, ...] | bool = False
    store: str | Path | None = None
    store_key: str | Secret | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(
                f"dependencies must be {', '.join(map(repr, MODES[:-1]))} or 'install', not {self.mode!r}."
            )
        if self.preset is not None and self.preset not in PRESETS:
            raise ConfigError(f"There is no preset {self.preset!r}. Known: {', '.join(PRESETS)}.")
        for name in ("indexes", "find_links", "builds"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"Dependencies.{name} takes a list; write ({getattr(self, name)!r},).")
        for index in self.indexes:
            if "://" not in index:  # uv takes it for a folder, which may be empty or missing
                raise ConfigError(
                    f"{index!r} is no URL of a package index. Write it like 'https://pypi.example.com/simple', and a "
                    "folder with wheels as find_links."
                )
        if self.store_key is not None and self.store is None:
            raise ConfigError("Dependencies.store_key needs a store. Give store='s3://bucket/prefix' or a folder.")

    @property
    def index(self) -> Index:
        """Where packages come from."""
        from adk_skills_agent.packages.uv import Index

        builds = self.builds if isinstance(self.builds, bool) else tuple(self.builds)
        return Index(tuple(self.indexes), tuple(map(str, self.find_links)), self.offline, self.npm_registry, builds)

    @property
    def shared(self) -> SharedEnvironments | None:
        """The environments in the store; None without one.

        Raises:
            ConfigError: There is no such store, or the key cannot be used.
        """
        if self.store is None:
            return None
        from adk_skills_agent.packages.shared_environments import SharedEnvironments
        from adk_skills_agent.sandbox import Secret

        key = self.store_key.reveal() if isinstance(self.store_key, Secret) else self.store_key
        return SharedEnvironments(self.store, key)


def dependencies_of(choice: Dependencies | str | None, *, default: DependencyMode) -> Dependencies:
    """The meaning of a ``dependencies=`` argument. Raises ``ConfigError`` when it is neither a mode nor an object."""
    if choice is None:
        return Dependencies(default)
    if isinstance(choice, str):
        return Dependencies(cast("DependencyMode", choice))  # checked there
    if not isinstance(choice, Dependencies):
        raise ConfigError(f"dependencies must be a mode such as 'ask', or Dependencies(...), not {choice!r}.")
    return choice


@dataclass(frozen=True, slots=True)
class Ready:
    """What a script gets."""

    environment: Environment | None = None  # None for the agent's own Python
    notes: tuple[str, ...] = ()  # for the model: what is not here, one sentence each
    # why there is no environment although one is needed; its notes are for the owner
    problem: PackageError | None = None


_NOTHING = Ready()


class PackagesNotApproved(PackageError):
    """Somebody has to say yes first; ``lock`` is to what."""

    def __init__(self, skill: str, lock: Lock) -> None:
        super().__init__(f"The packages of skill '{skill[:64]}' are not installed yet; the user has to approve them.")
        self.lock = lock  # the exact packages
        self.skill = skill  # the skill that needs them


@dataclass(frozen=True, slots=True)
class _Asked:
    """What :meth:`SkillEnvironments.environment_for` was asked for."""

    skill: Skill
    script: str | None
    python: str | None
    approved: Collection[str] = ()
    progress: Progress | None = None


class SkillEnvironments:
    """Finds and makes the environments of skills, and caches what it found. Thread-safe.

    Args:
        dependencies: The owner's decisions.
    """

    def __init__(self, dependencies: Dependencies) -> None:
        self.dependencies = dependencies
        self._notes: Recent[tuple[object, ...], tuple[str, ...]] = Recent(_REMEMBERED)
        self._found: Recent[tuple[object, ...], Environment | None] = Recent(_REMEMBERED)
        self._failed: dict[tuple[object, ...], tuple[float, PackageError]] = {}
        self._needs: Recent[tuple[object, ...], tuple[Findings, Needs]] = Recent(_REMEMBERED)
        self._left_out: dict[tuple[object, ...], str] = {}
        self._settled: Recent[tuple[object, ...], None] = Recent(_REMEMBERED)
        self._mutex = threading.Lock()
        self._shared = dependencies.shared

    @property
    def on(self) -> bool:
        """Whether anything is done at all."""
        return self.dependencies.mode != "off" or self.dependencies.preset is not None

    @property
    def asks(self) -> bool:
        """Whether the user is asked before anything is installed."""
        return self.dependencies.mode == "ask"

    @property
    def cache(self) -> Path:
        """The folder of environments, locks and uv's cache."""
        from adk_skills_agent.packages.environments import packages_folder

        return packages_folder(self.dependencies.cache)

    def environment_for(
        self,
        skill: Skill,
        *,
        script: str | None = None,
        python: str | None = None,
        approved: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Environment | None:
        """The environment that a skill's scripts and commands get. Blocks; what is known takes under a millisecond.

        Args:
            skill: The skill, on disk.
            script: The script that is to run; what only others need is not asked for. None for any of them.
            python: The interpreter scripts get; None for the one that runs the agent.
            approved: Digests of locks that the user said yes to.
            progress: Called with each step of an installation.

        Returns:
            None when the skill needs nothing that is not there: its scripts run as they would without this.

        Raises:
            PackagesNotApproved: The mode is ``ask`` and nobody was asked yet.
            PackageError: They are needed and cannot be had; the scripts may still run without.
        """
        if not self.on:
            return None
        return self._environment(_Asked(skill, script, python, approved, progress), stamp_of_skill(skill))

    def is_settled(self, skill: str, script: str) -> bool:
        """Whether what a script needs is known and there: asking again takes no time unless somebody changed it."""
        return not self.on or any((skill, path) in self._settled for path in (script, f"scripts/{script}"))

    def _environment(self, asked: _Asked, stamp: Stamp) -> Environment | None:
        key = (stamp, asked.python, asked.script)
        with self._mutex:
            if key in self._found:
                known = self._found[key]
                if known is None or os.access(known.python, os.X_OK):
                    return known
            failed = self._failed.get(key)
        if failed is not None and time.monotonic() - failed[0] < _RETRY_SECONDS:
            raise failed[1]
        try:
            environment = self._decide(asked)
        except PackagesNotApproved:
            raise
        except PackageError as error:
            if self.dependencies.mode in {"ask", "install"}:
                with self._mutex:
                    self._failed[key] = (time.monotonic(), error)
            raise
        with self._mutex:
            self._failed.pop(key, None)
            self._found[key] = environment
            self._settled[asked.skill.name, asked.script] = None
        return environment

    def ready_for(
        self,
        skill: Skill,
        script: str,
        *,
        python: str | None = None,
        approved: Collection[str] = (),
        path: str | None = None,
    ) -> Ready:
        """The environment of a script and the notes for the model, before the script runs. Blocks.

        A script runs without its packages, too: what was inferred of it may be wrong, and if it is not, the script
        itself says so.

        Args:
            skill: The skill, on disk.
            script: The script, relative to the skill's root.
            python: As :meth:`environment_for`.
            approved: As :meth:`environment_for`.
            path: The PATH of the run, where programs are granted; None for the usual one.

        Raises:
            PackagesNotApproved: As :meth:`environment_for`.
            SkillsError: The SKILL.md cannot be read.
        """
        if not self.on:
            return _NOTHING
        stamp = stamp_of_skill(skill)
        with self._mutex:
            notes = self._notes.get((stamp, python, script, path))
        if notes is None:
            notes = self._programs(skill, script, python, path)
            with self._mutex:
                self._notes[stamp, python, script, path] = notes
        try:
            environment = self._environment(_Asked(skill, script, python, approved), stamp)
        except PackagesNotApproved:
            raise
        except PackageError as error:
            return Ready(None, (*notes, error.message), error)
        with self._mutex:
            left_out = self._left_out.get((stamp, python, script))
        if left_out is not None and environment is not None:
            notes = (*notes, f"{left_out} This script has the packages that its own code imports.")
        return Ready(environment, notes)

    def _programs(self, skill: Skill, script: str, python: str | None, path: str | None) -> tuple[str, ...]:
        """A sentence when programs are not here that the script calls or its skill declares.

        A shell script goes on without a program and may end well: its result must not look like one.
        """
        from adk_skills_agent.packages.findings import NeedKind

        missing = [
            need.name
            for need in self.needs_of(skill, python=python).of(NeedKind.PROGRAM)
            if need.missing
            and (need.declared or any(place.rpartition(":")[0] == script for place in need.places))
            and not (path and any(shutil.which(name, path=path) for name in (need.name, *need.alternatives)))
        ]
        if not missing:
            return ()
        named = ", ".join(f"'{name}'" for name in missing[:5])
        return (f"This machine does not have {named}, which the skill calls: what depends on it is not done.",)

    def needs_of(self, skill: Skill, *, python: str | None = None) -> Needs:
        """The needs of a skill; read once for each version of its files. Blocks.

        Raises:
            SkillsError: The SKILL.md cannot be read.
        """
        return self._read(skill, python)[1]

    def _findings_of(self, skill: Skill, python: str | None) -> Findings:
        return self._read(skill, python)[0]

    def _read(self, skill: Skill, python: str | None) -> tuple[Findings, Needs]:
        key = (stamp_of_skill(skill), python)
        with self._mutex:
            known = self._needs.get(key)
        if known is None:
            from adk_skills_agent.packages.needs import find_needs, supplied

            findings = find_needs(skill)
            known = (findings, supplied(skill, findings, python=python))
            with self._mutex:
                self._needs[key] = known
        return known

    def _imported(self, skill: Skill, script: str | None, python: str | None) -> frozenset[str]:
        """The distributions that a Python script and the skill's files which it imports name in their code."""
        from packaging.utils import canonicalize_name

        from adk_skills_agent.packages.findings import NeedKind

        findings = self._findings_of(skill, python)
        reached = findings.reached_from(script) if script in findings.uses else frozenset()
        return frozenset(
            canonicalize_name(found.name.partition("[")[0])
            for found in findings.found
            if found.kind is NeedKind.PYTHON_PACKAGE and found.place.rpartition(":")[0] in reached
        )

    def _wants(self, skill: Skill, needs: Needs, script: str | None, python: str | None) -> bool:
        """Whether packages that are not here are needed by the script, as far as can be told."""
        from packaging.utils import canonicalize_name

        from adk_skills_agent.packages.findings import NeedKind

        missing = [need for need in needs.of(NeedKind.PYTHON_PACKAGE) if need.missing]
        if not missing or script is None:
            return bool(missing)
        findings = self._findings_of(skill, python)
        reached, brought = findings.reached_from(script), {canonicalize_name(need.name) for need in missing}
        # A program may be one of the others, in Python, or a package's own.
        if any(
            found.kind is NeedKind.PROGRAM
            and found.place.rpartition(":")[0] in reached
            and (found.name.startswith(("python", "uv", "pip")) or canonicalize_name(found.name) in brought)
            for found in findings.found
        ):
            return True
        imported = self._imported(skill, script, python)
        # What an author declares may be loaded by name by another package, so it counts where packages are used.
        return bool(imported) and any(need.declared or canonicalize_name(need.name) in imported for need in missing)

    def _node_packages(self, skill: Skill, needs: Needs, script: str | None, python: str | None) -> tuple[str, ...]:
        """The npm packages of a script, as requirements; of a skill that has none, or one that needs none, nothing."""
        from adk_skills_agent.packages.findings import NeedKind
        from adk_skills_agent.packages.needs import runs_on_node
        from adk_skills_agent.packages.npm import npm_program

        wanted = needs.node_requirements()
        if not wanted or npm_program() is None:
            return ()
        if script is None or runs_on_node(script):
            return wanted
        starts = (
            found.kind in {NeedKind.PROGRAM, NeedKind.INTERPRETER} and found.name in {"node", "npx"}
            for found in self._findings_of(skill, python).found
            if found.place.rpartition(":")[0] == script
        )
        return wanted if any(starts) else ()

    def _decide(self, asked: _Asked) -> Environment | None:
        from packaging.utils import canonicalize_name

        from adk_skills_agent.packages.needs import as_requirement

        skill, script, python = asked.skill, asked.script, asked.python
        needs = self.needs_of(skill, python=python)
        own = tuple(text for text in needs.requirements() if as_requirement(text) is not None)
        node = self._node_packages(skill, needs, script, python)
        own = (*own, *node)  # an environment takes the place of the agent's Python, so it has both
        try:
            return self._environment_with(asked, own, node)
        except PackagesNotApproved:
            raise
        except PackageError as error:
            imported = self._imported(skill, script, python)
            needed = tuple(text for text in own if canonicalize_name(_name_of(text)) in imported)
            if not error.of_some or not needed or needed == own:
                raise
            # One of the packages that only other files or the text name cannot be had: not this script's trouble.
            found = self._environment_with(asked, needed, ())
            with self._mutex:
                self._left_out[(stamp_of_skill(skill), python, script)] = error.message
            return found

    def _environment_with(self, asked: _Asked, own: tuple[str, ...], node: tuple[str, ...]) -> Environment | None:
        """The environment of some requirements of a skill; see :meth:`_decide`."""
        from adk_skills_agent.packages.environments import prepare
        from adk_skills_agent.packages.lock import preset_requirements, resolve
        from adk_skills_agent.packages.uv import failure

        skill, python, progress = asked.skill, asked.python, asked.progress
        settings, what = self.dependencies, f"the packages of skill '{skill.name[:64]}'"
        needs = self.needs_of(skill, python=python)
        beside = self._locks(skill)
        for lock in beside:
            if lock.packages and lock.answers(own):
                found = self._found_or_fetched(lock, python)
                if found is not None:
                    return found
        base = preset_requirements(settings.preset) if settings.preset else ()
        if base:
            for shared in self._kept(base, python):
                found = self._found_or_fetched(shared, python) if _covers(shared, own) else None
                if found is not None:
                    return found
        elif not node and not self._wants(skill, needs, asked.script, python):
            return None  # the agent's Python has it all, or nothing is needed
        wanted = tuple(sorted({*base, *own}))
        answering = [one for one in beside if one.packages and one.answers(wanted)]
        node_lock = author_node_lock(skill) if node else None
        kept = self._kept(wanted, python, node_lock)
        for lock in (*answering, *kept):
            found = self._found_or_fetched(lock, python)
            if found is not None:
                return found
        if settings.mode in {"locked", "off"}:
            raise failure(
                f"{what[:1].upper()}{what[1:]} are not installed here: {_named(wanted)}. "
                "Do it without them, or tell the user.",
                f"Prepare them: adk-skills prepare {typed_path(skill.skill_dir)}"
                + (f" --environment {settings.preset}" if settings.preset else ""),
            )
        # What was resolved from other indexes may not be in these.
        usable = (*answering, *(one for one in kept if one.source == str(self._place(wanted, python, node_lock))))
        chosen: Lock | None = usable[0] if usable else None
        pins: tuple[str, ...] = ()
        if chosen is not None and chosen.source == LOCK_FILE and settings.mode == "install":
            # Nobody has seen the skill's own lock: its versions hold if the index has them and they are old enough.
            pins = tuple(f"{one.name}=={one.version}" for one in chosen.python_packages)
            chosen = None
        lock = chosen or resolve(
            tuple(sorted({*wanted, *pins})),
            cache=self.cache / "uv",
            python=python,
            index=settings.index,
            exclude_newer=settings.exclude_newer,
            what=what,
            progress=progress,
            # npm takes what the author locked whatever its age, and here nobody is asked (row 494).
            node_lock=None if settings.mode == "install" else node_lock,
        )
        if lock not in answering and not pins:  # what lies beside a skill is that skill's word, for nobody else
            self.keep(lock, wanted, python, node_lock)  # an answer is about exactly this one
        if settings.mode == "ask" and lock.digest not in asked.approved:
            raise PackagesNotApproved(skill.name, lock)
        found = self._found_or_fetched(lock, python)
        if found is not None:
            return found
        made = prepare(lock, cache=self.cache, python=python, index=settings.index, what=what, progress=progress)
        if self._shared is not None:
            self._shared.save(made, python=python)
        return made

    def _found_or_fetched(self, lock: Lock, python: str | None) -> Environment | None:
        """The environment of a lock that is here, or in the store of the servers."""
        from adk_skills_agent.packages.environments import find_environment

        found = find_environment(lock, cache=self.cache, python=python)
        if found is None and self._shared is not None:
            found = self._shared.fetch(lock, cache=self.cache, python=python)
        return found

    def _locks(self, skill: Skill) -> list[Lock]:
        """The locks of the project, and beside the skill, that can be read."""
        from adk_skills_agent.catalog.skill import name_in_rules
        from adk_skills_agent.packages.lock import parse_lock, read_lock

        found: list[Lock] = []
        if self.dependencies.lock is not None:
            lock = read_lock(Path(self.dependencies.lock) / f"{name_in_rules(skill.name)}.lock")
            if lock is not None:
                found.append(lock)
        try:
            content = skill.read_bytes(LOCK_FILE)
        except SkillsError:  # most skills have none
            return found
        try:
            found.append(parse_lock(content, LOCK_FILE))
        except ConfigError as error:
            logger.warning("The lock of skill %r is not used: %s", skill.name, error.message)
        return found

    def _kept(self, wanted: Sequence[str], python: str | None, node_lock: bytes | None = None) -> list[Lock]:
        """Earlier solutions: from these indexes, then from those given to ``adk-skills prepare``."""
        from adk_skills_agent.packages.lock import read_lock

        found: list[Lock] = []
        for any_index in (False, True):
            place = self._place(wanted, python, node_lock, any_index=any_index)
            with contextlib.suppress(ConfigError):
                lock = read_lock(place)
                if lock is not None:
                    found.append(lock)
        return found

    def keep(self, lock: Lock, wanted: Sequence[str], python: str | None, node_lock: bytes | None = None) -> None:
        """Note in the cache what requirements come to, so that nothing is resolved twice.

        Args:
            lock: What they came to.
            wanted: The requirements.
            python: The interpreter they are for.
            node_lock: The author's package-lock that chose versions: no skill with another one gets these.
        """
        from adk_skills_agent.packages.lock import write_lock

        for any_index in (False, True):
            write_lock(self._place(wanted, python, node_lock, any_index=any_index), lock)

    def _place(
        self, wanted: Sequence[str], python: str | None, node_lock: bytes | None, *, any_index: bool = False
    ) -> Path:
        from adk_skills_agent.packages.lock import python_of, this_platform

        index = self.dependencies.index
        where = [] if any_index else [index.urls, index.find_links, index.npm_registry]
        chosen = hashlib.sha256(node_lock).hexdigest() if node_lock is not None else ""
        content = [sorted(wanted), python_of(python).minor, this_platform(), chosen, *where]
        return self.cache / "locks" / f"{hashlib.sha256(json.dumps(content).encode()).hexdigest()}.lock"


_NODE_LOCK = "package-lock.json"
_MAX_NODE_LOCK_BYTES = 4 << 20


def author_node_lock(skill: Skill) -> bytes | None:
    """The package-lock beside the first ``package.json`` of a skill; None where there is none of a usable size."""
    places = sorted(file.path for file in skill.files() if PurePosixPath(file.path).name == _NODE_LOCK)
    for place in places:
        if "node_modules" in PurePosixPath(place).parts:
            continue
        with contextlib.suppress(SkillsError):
            data = skill.read_bytes(place, _MAX_NODE_LOCK_BYTES + 1)
            return data if len(data) <= _MAX_NODE_LOCK_BYTES else None
    return None


def _named(requirements: Sequence[str]) -> str:
    shown = [name for text in requirements if (name := _name_of(text))][:8]
    more = f" and {len(requirements) - len(shown)} more" if len(requirements) > len(shown) else ""
    return ", ".join(shown) + more


def _name_of(text: str) -> str:
    from adk_skills_agent.packages.needs import as_requirement
    from adk_skills_agent.packages.npm import is_node_requirement

    if is_node_requirement(text):
        return text.rpartition("@")[0] if "@" in text[5:] else text
    requirement = as_requirement(text)
    return requirement.name if requirement is not None else ""


def _covers(lock: Lock, requirements: Sequence[str]) -> bool:
    """Whether the packages of a lock are enough for other requirements."""
    from packaging.utils import canonicalize_name

    from adk_skills_agent.packages.needs import as_requirement

    versions = {package.name: package.version for package in lock.packages}
    for text in requirements:
        requirement = as_requirement(text)
        if requirement is None:
            return False
        version = versions.get(canonicalize_name(requirement.name))
        if version is None or requirement.extras or not requirement.specifier.contains(version, prereleases=True):
            return False
    return True


Stamp = tuple[str, int]


def stamp_of_skill(skill: Skill) -> Stamp:
    """A stamp of a skill's files: its folder, and one number for all that is in it."""
    folder = str(skill.skill_dir)
    try:
        return folder, hash(snapshot(folder))
    except (OSError, SandboxError):  # not readable, or too much: nothing of it runs
        return folder, 0
