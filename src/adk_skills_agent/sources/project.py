"""The installed skills of a project or a user: add, remove, restore, check. One process at a time changes them.

The order of every change makes a kill harmless: trees go into the store, then the lock is renamed, then
the folders are. Between the last two the lock names bytes that the store has, and ``sync`` puts them in place.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adk_skills_agent.catalog.scopes import project_root
from adk_skills_agent.catalog.settings import RegistryConfig, data_folder, home_folder, settings_folder
from adk_skills_agent.catalog.untrusted_files import INSTALLED, VIRTUAL_ENVIRONMENT_MARK
from adk_skills_agent.errors import ConfigError, SourceError
from adk_skills_agent.sources.lock_file import (
    LOCK_FILE,
    SKILLS_FOLDER,
    LockedSkill,
    SkillLock,
    changed_manifest,
    manifest_path,
    read_skill_lock,
    read_wanted,
    write_skill_lock,
)
from adk_skills_agent.sources.origin import Origin, OriginKind
from adk_skills_agent.sources.store import (
    SkillStore,
    install_copy,
    install_link,
    one_at_a_time,
    remove_tree,
    take_away,
    write_aside,
)
from adk_skills_agent.sources.tree import (
    NOT_COMPARED,
    VERSION_CONTROL,
    SkillTree,
    digest_folder,
    read_tree,
    tree_digest,
)

if TYPE_CHECKING:
    from adk_skills_agent.sources.fetch import FetchedSkill
    from adk_skills_agent.sources.signatures import SignaturePolicy

_FLUSHED_SINGLY = 50  # files of one change; more are flushed together
InstallScope = Literal["project", "user"]


@dataclass(frozen=True, slots=True)
class SkillState:
    """An installed skill beside its lock."""

    name: str  # the skill
    folder: Path  # where it is installed
    changed: tuple[str, ...] = ()  # files with other bytes or another mode than the lock says
    added: tuple[str, ...] = ()  # files the lock does not know
    missing: tuple[str, ...] = ()  # files that are not there; all of them when the folder is not
    problem: str = ""  # why the folder could not be compared; empty when it could
    unlocked: bool = False  # whether the lock does not know the skill at all
    unsigned: str = ""  # why its signature does not do, where one is required; else empty

    @property
    def is_same(self) -> bool:
        """Whether it is just what the lock says, and signed where it must be."""
        return not (self.changed or self.added or self.missing or self.problem or self.unlocked or self.unsigned)

    @property
    def is_gone(self) -> bool:
        """Whether nothing is installed: there is no folder, or a link to a tree that the store has no more."""
        return not os.path.lexists(self.folder) or (self.folder.is_symlink() and not self.folder.exists())

    def sentences(self) -> list[str]:
        """One for each difference."""
        if self.problem:
            return [f"{self.name}: {self.problem}"]
        if self.is_gone:
            return [f"{self.name}: not installed"]
        return [
            *([f"{self.name}: signature: {self.unsigned}"] if self.unsigned else ()),
            *(f"{self.name}: changed: {path}" for path in self.changed),
            *(f"{self.name}: added: {path}" for path in self.added),
            *(f"{self.name}: missing: {path}" for path in self.missing),
        ]


def compare(skill: LockedSkill, folder: Path) -> SkillState:
    """An installed skill beside its lock; every byte is read."""
    if not folder.is_dir():
        problem = "it is no folder; move it away" if os.path.lexists(folder) and not folder.is_symlink() else ""
        return SkillState(skill.name, folder, missing=tuple(skill.files), problem=problem)
    try:
        digests, executables = digest_folder(folder, f"The skill {skill.name!r}")
    except SourceError as error:
        return SkillState(skill.name, folder, problem=error.message)
    changed = [
        path
        for path, digest in skill.files.items()
        if path in digests and (digests[path] != digest or (path in executables) != (path in skill.executables))
    ]
    return SkillState(
        skill.name,
        folder,
        tuple(changed),
        tuple(sorted(set(digests) - set(skill.files))),
        tuple(sorted(set(skill.files) - set(digests))),
    )


_WORTH_TWO = 100  # skills; fewer are compared faster than a process is begun


def compare_all(pairs: Sequence[tuple[LockedSkill, Path]], *, forks: bool = False) -> list[SkillState]:
    """Installed skills beside their locks, in their order; every byte is read.

    With ``forks`` a forked process compares every second one: threads of Python do not share the work of opening small
    files. Only for a process that has one thread: a program of ours, not a library in somebody's server.
    """
    if not forks or len(pairs) < _WORTH_TWO or sys.platform != "linux" or (os.cpu_count() or 1) < 2:
        return [compare(*pair) for pair in pairs]
    states: list[SkillState | None] = [None] * len(pairs)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            data = marshal.dumps([_as_told(compare(*pair)) for pair in pairs[1::2]])
            while data:
                data = data[os.write(writer, data) :]
        finally:
            os._exit(0)
    os.close(writer)
    try:
        states[::2] = [compare(*pair) for pair in pairs[::2]]
        with os.fdopen(reader, "rb") as stream:
            told = stream.read()
    finally:
        os.waitpid(child, 0)
    try:
        found = marshal.loads(told)  # noqa: S302 - from our own child
        states[1::2] = [
            SkillState(skill.name, folder, *values) for (skill, folder), values in zip(pairs[1::2], found, strict=True)
        ]
    except (EOFError, ValueError, TypeError):  # it was killed: what it had is not whole
        states[1::2] = [compare(*pair) for pair in pairs[1::2]]
    return [state for state in states if state is not None]


def _as_told(state: SkillState) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]:
    return state.changed, state.added, state.missing, state.problem


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a restore did."""

    installed: tuple[str, ...] = ()  # skills that were put in place
    same: tuple[str, ...] = ()  # skills that were there already
    kept: tuple[SkillState, ...] = ()  # skills with local edits, which stayed
    unlocked: tuple[str, ...] = ()  # skills that are wanted and not in the lock, or the other way round


class Project:
    """A folder with ``.agents/skills``, its lock and what it wants.

    ``root`` is the folder of the lock, made when something is installed. Scope ``user`` puts the lock beside the user's
    settings. Trees are kept in ``store``, the user's by default.
    """

    def __init__(self, root: Path, scope: InstallScope = "project", store: SkillStore | None = None) -> None:
        self.root = root
        self.scope = scope
        self.store = store or SkillStore()
        self._inside: set[str] = set()
        self.replaced = SkillStore(self.store.folder.parent / "replaced")
        self.lock_path = root / LOCK_FILE
        self.manifest = manifest_path(root)
        self.skills_folder = root / SKILLS_FOLDER

    def read_lock(self) -> SkillLock:
        """The lock as it is now. Raises ``ConfigError`` when it cannot be used."""
        return read_skill_lock(self.lock_path)

    def wanted(self) -> dict[str, Origin]:
        """What the manifest asks for. Raises ``ConfigError`` when it cannot be used."""
        return {name: self._relative(origin) for name, origin in read_wanted(self.manifest).items()}

    def folder_of(self, skill: LockedSkill) -> Path:
        """Where a skill is installed.

        Raises:
            SourceError: A link on the way leads out of the project, into its version control (row 188), or to installed
                packages, which programs of the project import (row 202).
        """
        above = skill.path.rpartition("/")[0]
        if above not in self._inside:
            place, root = (self.root / above).resolve(), self.root.resolve()
            inside = place.is_relative_to(root)
            parts = {part.casefold() for part in place.relative_to(root).parts} if inside else set()
            usual = place == root / SKILLS_FOLDER  # of a project that is an environment itself, too
            if not inside or parts & (VERSION_CONTROL | INSTALLED) or (not usual and _in_an_environment(place, root)):
                raise SourceError(
                    f"{skill.path} is behind a link that leads out of {self.root}, into its version control or to "
                    "installed packages. Remove the link."
                )
            if (self.root / above).is_dir():
                self._inside.add(above)
        return self.root / skill.path

    def origin_of(self, skill: LockedSkill) -> Origin:
        """Where it is to be fetched from, with an absolute path.

        Raises:
            SourceError: It is an MCP server, and the project, whose lock names it, is not trusted (row 138).
        """
        from adk_skills_agent.catalog.trust import is_trusted

        origin = skill.origin
        if origin.kind is OriginKind.MCP and self.scope == "project" and not is_trusted(self.root):
            raise SourceError(
                f"The lock says that {skill.name!r} is from {origin}, an MCP server: a program that would be started "
                "here, or that gets your token. Read the lock; if you trust the project: adk-skills trust."
            )
        if origin.kind in {OriginKind.FOLDER, OriginKind.ARCHIVE} and "://" not in origin.location:
            return replace(origin, location=str((self.root / origin.location).resolve()))
        return origin

    def named_by(self, origin: Origin, *, allow_private: bool = False) -> tuple[Origin, ...] | None:
        """Who named a source of the lock, as :func:`~.fetch.opened` has it (row 427).

        None for the user: it is his own lock, a source that he added, a folder of the project, a project that he
        trusts, or he allows what is private. Empty for somebody else: the lock and the manifest come with a clone.
        """
        if self.scope == "user" or allow_private:
            return None
        from adk_skills_agent.sources.named import named_by

        return named_by(origin, self.root)

    def _relative(self, origin: Origin) -> Origin:
        if origin.kind in {OriginKind.FOLDER, OriginKind.ARCHIVE} and "://" not in origin.location:
            place, root = Path(origin.location), self.root.resolve()
            if place.is_absolute() and place.is_relative_to(root):
                return replace(origin, location=place.relative_to(root).as_posix())
        return origin

    def with_changes(self, changes: Mapping[str, LockedSkill | None]) -> bytes | None:
        """As :func:`~.lock_file.changed_manifest`, for the project's own file.

        Raises ``ConfigError`` when it cannot be read, or is a link out of the project: a file with what that leads to,
        a private one perhaps, would take its place among the files that are committed (row 233).
        """
        if self.scope == "project" and not self.manifest.resolve().is_relative_to(self.root.resolve()):
            raise ConfigError(
                f"{self.manifest} is a link that leads out of the project, so it is not changed. Put a file there."
            )
        return changed_manifest(self.manifest, changes)

    def signature_policy(self) -> SignaturePolicy:
        """Whose signatures the project takes, and whether there must be one; see :mod:`.signatures`.

        Raises ``ConfigError`` when the manifest cannot be used.
        """
        from adk_skills_agent.sources.signatures import read_signature_policy

        return read_signature_policy(self.manifest)

    # Changes

    def changing(self) -> _Change:
        """Hold the project while it is changed; other processes wait."""
        return _Change(self)

    def guard_path(self) -> Path:
        """The file that is locked while the project is changed; it is not in the project.

        Raises ``ConfigError`` when the user has no home folder.
        """
        data = data_folder(RegistryConfig())
        if data is None:
            raise ConfigError("There is no home folder to keep skills in. Set HOME or XDG_DATA_HOME.")
        key = hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:32]
        return Path(data) / "projects" / f"{key}.guard"

    def lock_entry(self, skill: FetchedSkill, *, tree: SkillTree | None = None) -> LockedSkill:
        """What the lock says of a fetched skill.

        ``tree`` is what is installed, when local edits were merged into it.
        """
        installed = tree or skill.tree
        merged = installed.digest != skill.tree.digest
        return LockedSkill(
            skill.name,
            f"{SKILLS_FOLDER}/{skill.name}",
            self._relative(skill.origin),
            installed.digest,
            dict(installed.digests),
            installed.executables,
            skill.commit,
            skill.tree.digest if merged else "",
            skill.license,
            skill.signer,
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            skill.requires,
            skill.signed,
        )

    def add(
        self,
        skills: Sequence[FetchedSkill],
        *,
        wanted: Sequence[str] | None = None,
        named: Sequence[Origin] | None = None,
        link: bool = False,
        replace_edits: bool = False,
    ) -> None:
        """Install skills and pin them.

        ``named`` are the sources that the user named (None for those of all these skills), which count as such from now
        on, see :meth:`named_by`; what a skill or a marketplace named is none of them (row 469).

        ``wanted`` are the names that the manifest asks for (None for all); the others came as what these need. ``link``
        installs a link to the store and no copy; ``replace_edits`` replaces a folder that is not what the lock says.
        Raises ``SourceError`` when such a folder is there, or the disk does not take the skill.
        """
        from adk_skills_agent.sources.named import keep_named
        from adk_skills_agent.sources.other_installers import is_gh_copy

        with self.changing() as change:
            lock = change.lock
            for skill in skills:
                target = self.skills_folder / skill.name
                if replace_edits or not os.path.lexists(target):
                    continue
                known = lock.skills.get(skill.name)
                if known is None:
                    if tree_digest(*digest_folder(target, f"The skill {skill.name!r}")) == skill.tree.digest:
                        continue
                    if is_gh_copy(target, skill.tree):
                        continue
                    raise SourceError(
                        f"{target} is there already and was not installed by adk-skills. "
                        "Move it away, or replace it with --force."
                    )
                if self.is_edited(compare(known, target)):
                    raise SourceError(
                        f"{target} has local edits (adk-skills verify shows them). Keep them with "
                        f"adk-skills update {skill.name}, or replace them with --force."
                    )
            entries = [self.lock_entry(skill) for skill in skills]
            entries = [_keep_time(entry, lock.skills.get(entry.name)) for entry in entries]
            change.apply(
                [(entry, skill.tree) for entry, skill in zip(entries, skills, strict=True)], wanted=wanted, link=link
            )
        keep_named((skill.origin for skill in skills) if named is None else named)

    def refuse_other_sources(self, skills: Sequence[FetchedSkill], asked: Sequence[str]) -> None:
        """Refuse what came as a need of others and would replace a skill that is wanted, or needed, from elsewhere.

        ``asked`` are the names that the user asked for now. Raises ``SourceError`` with the first.
        """
        lock = self.read_lock()
        kept = {*self.wanted(), *_needs_of_others(lock, asked)} - {*asked}
        for skill in skills:
            known = lock.skills.get(skill.name)
            if skill.name not in kept or known is None:
                continue
            if known.origin != self._relative(skill.origin):
                raise SourceError(
                    f"{skill.name!r} is needed from {skill.origin}, and you have it from {known.origin}. Install that "
                    f"first, if you want it: adk-skills add {shlex.quote(str(skill.origin))} --skill {skill.name}"
                )

    def remove(self, names: Sequence[str], *, force: bool = False) -> list[str]:
        """Uninstall skills; return their names.

        With ``force`` one with local edits goes, too; its files are kept. Raises ``ConfigError`` when no such skill is
        installed, or ``SourceError`` when another needs it or it has local edits.
        """
        names = list(dict.fromkeys(names))
        with self.changing() as change:
            lock = change.lock
            for name in names:
                if name not in lock.skills:
                    raise ConfigError(f"{name!r} is not installed here. See: adk-skills list --installed.")
                state = compare(lock.skills[name], self.folder_of(lock.skills[name]))
                if self.is_edited(state) and not force:
                    if state.problem:
                        raise SourceError(f"{name!r} cannot be compared with its lock, so it stays: {state.problem}")
                    raise SourceError(
                        f"{name!r} has local edits (adk-skills verify shows them). Remove it with --force."
                    )
            for name, other in _needs_of_others(lock, names).items() if not force else ():
                if name in names:
                    raise SourceError(f"{name!r} is needed by {other!r}. Remove both, or use --force.")
            manifest = self.with_changes(dict.fromkeys(names))
            folders = [self.folder_of(lock.skills[name]) for name in names]
            asides: list[tuple[Path, Path]] = []
            try:
                for folder in folders:
                    change.backup(folder)
                    if (aside := take_away(folder)) is not None:
                        asides.append((folder, aside))
                change.write(lock.having((), names), manifest)
            except BaseException as error:
                for folder, aside in asides:
                    (aside / "old").rename(folder)
                if isinstance(error, OSError):
                    said = f"{folder} cannot be removed: {error.strerror}. Nothing was removed."
                    raise SourceError(said) from error
                raise
            finally:
                for _, aside in asides:
                    remove_tree(aside)
        return names

    def unneeded(self) -> list[str]:
        """The skills in the lock that the manifest does not want, nor any skill that it wants needs."""
        return _unneeded(self.read_lock(), self.wanted())

    def sync(
        self,
        *,
        frozen: bool = False,
        link: bool = False,
        force: bool = False,
        allow_private: bool = False,
        signatures: SignaturePolicy | None = None,
    ) -> SyncResult:
        """Put in place what the lock says.

        Args:
            frozen: Nothing but what the lock says; any difference is an error, and lock and manifest stay.
            link: Install links to the store.
            force: Replace folders with local edits; their files are kept.
            allow_private: As :func:`~.fetch.opened`, and whatever the lock names is fetched.
            signatures: Whose signatures count; the project's own policy when None. What the store has was verified
                when it was locked; what must be fetched again is verified again.

        Raises:
            SourceError: A source does not have the bytes of the lock any more; a skill is not signed and must be; or,
                frozen, anything differs.
        """
        policy = signatures if signatures is not None else self.signature_policy()
        with self.changing() as change:
            lock = change.lock
            refused = [why for skill in lock.skills.values() if (why := policy.why_not(skill.name, skill.signer))]
            if refused:
                raise SourceError(
                    f"A signature is required: {'; '.join(refused[:20])}. Lock them again from a signed source: "
                    "adk-skills add SOURCE --require-signature."
                )
            unlocked = self._disagreements(lock)
            if frozen and unlocked:
                raise SourceError(f"The lock and {self.manifest.name} differ: {'; '.join(unlocked)}.")
            absent, same, kept = [], [], []
            for skill in lock.skills.values():
                state = compare(skill, self.folder_of(skill))
                if state.is_same:
                    same.append(skill.name)
                elif force or not self.is_edited(state):
                    absent.append(skill)
                else:
                    kept.append(state)
            if frozen and kept:
                said = [sentence for state in kept for sentence in state.sentences()]
                raise SourceError(f"Installed skills differ from the lock: {'; '.join(said[:20])}.")
            trees, problems = self._restored(absent, allow_private=allow_private, policy=policy)
            change.install([(skill, trees[skill.name]) for skill in absent if skill.name in trees], link=link)
            if problems:
                raise SourceError(" ".join(problems))
        return SyncResult(tuple(skill.name for skill in absent), tuple(same), tuple(kept), tuple(unlocked))

    def is_edited(self, state: SkillState) -> bool:
        """Whether a folder has local edits: what differs from the lock and is no whole tree of the store either.

        A change that was killed leaves such a tree, the older one, beside a lock that names the newer one.
        """
        if state.is_same or state.is_gone:
            return False
        try:
            return tree_digest(*digest_folder(state.folder, "A skill")) not in self.store
        except SourceError:
            return True

    def _disagreements(self, lock: SkillLock) -> list[str]:
        wanted = self.wanted()
        if not wanted and not self.manifest.is_file():
            return []
        said = []
        for name, origin in wanted.items():
            locked = lock.skills.get(name)
            again = f"Lock it: adk-skills add {shlex.quote(str(origin))} --skill {shlex.quote(name)}"
            if locked is None:
                said.append(f"{name} is wanted and not in the lock. {again}")
            elif replace(locked.origin, subpath=origin.subpath and locked.origin.subpath) != origin:
                said.append(f"{name} is wanted from {origin} and locked from {locked.origin}. {again}")
        said += [
            f"{name} is locked, and not wanted or needed any more. Remove it: adk-skills remove {name}"
            for name in _unneeded(lock, wanted)
        ]
        return said

    def _restored(
        self, skills: Sequence[LockedSkill], *, allow_private: bool, policy: SignaturePolicy
    ) -> tuple[dict[str, SkillTree], list[str]]:
        """The trees of locked skills: from the store, else from their sources, one request for each commit.

        And a sentence for each source that does not give what it should: the others go on.
        """
        trees: dict[str, SkillTree] = {}
        problems: list[str] = []
        missing: dict[tuple[Origin, str], list[LockedSkill]] = {}
        for skill in skills:
            tree = self.store.get(skill.tree)
            if tree is not None:
                trees[skill.name] = tree
                continue
            if skill.base:
                problems.append(
                    f"{skill.name!r} has local edits that are not on this machine. Commit {skill.path} with the lock."
                )
                continue
            try:
                origin = self.origin_of(skill)
            except SourceError as error:
                problems.append(error.message)
                continue
            pinned = origin.at(skill.commit) if origin.kind in {OriginKind.GIT, OriginKind.PACKAGE} else origin
            missing.setdefault((replace(pinned, subpath=""), skill.origin.ref), []).append(skill)
        for (origin, ref), group in missing.items():
            try:
                trees |= self._refetched(origin, ref, group, allow_private=allow_private, policy=policy)
            except (SourceError, ConfigError) as error:
                names = ", ".join(skill.name for skill in group[:12])
                problems.append(f"Not restored: {names}: {error.message}")
        return trees, problems

    def _refetched(
        self, origin: Origin, ref: str, skills: Sequence[LockedSkill], *, allow_private: bool, policy: SignaturePolicy
    ) -> dict[str, SkillTree]:
        from adk_skills_agent.sources.fetch import fetch_skills  # verifying needs none of it

        folders = [skill.origin.subpath for skill in skills]
        fetched_now = fetch_skills(
            origin,
            folders=folders,
            allow_private=allow_private,
            signatures=policy if policy.required else None,
            tag=ref,
            named_by=self.named_by(origin, allow_private=allow_private),
        )
        found = {one.origin.subpath: one for one in fetched_now}
        trees = {}
        for skill in skills:
            fetched = found.get(skill.origin.subpath)
            if fetched is None:
                raise SourceError(
                    f"{origin} has no folder {skill.origin.subpath or '.'!r} for {skill.name!r} any more."
                )
            if fetched.tree.digest != skill.tree:
                different = sorted(
                    path
                    for path in {*fetched.tree.digests, *skill.files}
                    if fetched.tree.digests.get(path) != skill.files.get(path)
                )
                raise SourceError(
                    f"{origin} has other bytes for {skill.name!r} than the lock says "
                    f"({', '.join(different[:5]) or 'a mode'}). Find out why before you lock it again."
                )
            trees[skill.name] = fetched.tree
        return trees

    # Questions

    def verify(self, signatures: SignaturePolicy | None = None, *, forks: bool = False) -> list[SkillState]:
        """Every locked skill beside its bytes, and every installed one that no lock knows; sorted by name.

        ``signatures`` are compared with the signer that the lock names; None is the project's own policy. Raises
        ``ConfigError`` when the lock, or the policy, cannot be used.
        """
        policy = signatures if signatures is not None else self.signature_policy()
        lock = self.read_lock()
        states = compare_all([(skill, self.folder_of(skill)) for skill in lock.skills.values()], forks=forks)
        if policy.required:
            states = [
                replace(state, unsigned=policy.why_not(state.name, lock.skills[state.name].signer)) for state in states
            ]
        if self.skills_folder.is_dir():
            names = sorted(os.listdir(self.skills_folder))  # noqa: PTH208 - a thousand paths take longer than their names
            unlocked = [self.skills_folder / one for one in names if one not in lock.skills and one[0] != "."]
            states += [SkillState(one.name, one, unlocked=True) for one in unlocked if (one / "SKILL.md").is_file()]
        return states


class _Change:
    """A project held for a change. Its methods keep the order: store, lock, folders."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._held = one_at_a_time(project.guard_path(), str(project.root))
        self.lock = SkillLock()

    def __enter__(self) -> _Change:
        self._held.__enter__()
        try:
            self._recover()
            self.lock = self._project.read_lock()
        except BaseException as error:
            self._held.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, *about: object) -> None:
        self._held.__exit__(None, None, None)

    def _recover(self) -> None:
        """Put away what a killed process left: nobody else is at work here now."""
        folder = self._project.skills_folder
        if not folder.is_dir():
            return
        for aside in folder.glob(".aside-*"):
            if aside.is_dir() and not aside.is_symlink():
                self.backup(aside / "old")
                remove_tree(aside)
            else:
                aside.unlink(missing_ok=True)

    def backup(self, folder: Path) -> None:
        """Keep the bytes of an installed folder, beside the store, before it goes; nothing when it is no skill."""
        if not folder.is_dir() or folder.is_symlink():
            return
        try:
            self._project.replaced.put(read_tree(folder, "The installed skill", skipped=NOT_COMPARED))
        except SourceError:
            if (folder / "SKILL.md").is_file():
                raise

    def write(self, lock: SkillLock, manifest: bytes | None) -> None:
        """Write the lock, then the manifest, if it changes. Raises ``SourceError`` when the disk does not take it."""
        try:
            write_skill_lock(self._project.lock_path, lock)
            if manifest is not None:
                try:
                    self._project.manifest.parent.mkdir(parents=True, exist_ok=True)
                    write_aside(self._project.manifest, manifest)
                except OSError:
                    write_skill_lock(self._project.lock_path, self.lock)  # both or none
                    raise
        except OSError as error:
            place = error.filename or self._project.lock_path
            raise SourceError(f"{place} cannot be written: {error.strerror}.") from error
        self.lock = lock

    def apply(
        self,
        entries: Sequence[tuple[LockedSkill, SkillTree]],
        *,
        wanted: Sequence[str] | None = None,
        link: bool = False,
    ) -> None:
        """Store, lock and install skills; what can be known before is refused before anything is written.

        Raises ``ConfigError`` when the manifest cannot be changed, or ``SourceError`` when a folder cannot be made, or
        the disk does not take it.
        """
        asked = {entry.name: entry for entry, _ in entries if wanted is None or entry.name in wanted}
        manifest = self._project.with_changes(asked)
        for entry, _ in entries:
            folder = self._project.folder_of(entry).parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SourceError(f"The folder {folder} cannot be made: {error.strerror}.") from error
            if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
                raise SourceError(f"The folder {folder} cannot be written. Give yourself the right to, and try again.")
        self._keep([tree for _, tree in entries])
        self.write(self.lock.having(entry for entry, _ in entries), manifest)
        self.install(entries, link=link)

    def _keep(self, trees: Sequence[SkillTree]) -> None:
        """Put trees into the store. Many files are flushed at once: a thousand flushes take minutes."""
        new = [tree for tree in trees if tree.digest not in self._project.store]
        at_once = sum(len(tree.files) for tree in new) > _FLUSHED_SINGLY
        for tree in new:
            self._project.store.put(tree, flush=not at_once)
        if at_once:
            os.sync()

    def install(self, entries: Iterable[tuple[LockedSkill, SkillTree]], *, link: bool) -> None:
        """Put trees in place; the bytes of a folder that goes are kept, and a link to the store stays one.

        Raises ``SourceError`` when the disk refuses.
        """
        chosen = list(entries)
        self._keep([tree for _, tree in chosen])
        for entry, tree in chosen:
            target = self._project.folder_of(entry)
            stored = self._project.store.path(tree.digest)
            try:
                if compare(entry, target).is_same and (not link or target.is_symlink()):
                    continue
                self.backup(target)
                if link or (target.is_symlink() and target.readlink().parent == stored.parent):
                    if not self._project.store.is_whole(tree.digest):
                        self._project.store.put(tree)
                    install_link(target, stored)
                else:
                    install_copy(target, tree)
            except OSError as error:
                raise SourceError(
                    f"{target} cannot be written: {error.strerror}. Mend that, then complete it: adk-skills sync."
                ) from error


def _in_an_environment(folder: Path, root: Path) -> bool:
    """Whether a folder of a project is in a Python environment, whatever that is called."""
    above = [one for one in (folder, *folder.parents) if one.is_relative_to(root)]
    return any((one / VIRTUAL_ENVIRONMENT_MARK).exists() for one in above)


def _unneeded(lock: SkillLock, wanted: Iterable[str]) -> list[str]:
    waiting = [name for name in wanted if name in lock.skills]
    needed = set(waiting)
    while waiting:
        if requires := lock.skills[waiting.pop()].requires:
            from adk_skills_agent.sources.requires import required_name  # most skills need none, and its imports

            more = {required_name(text) for text in requires} & set(lock.skills) - needed
            needed |= more
            waiting += more
    return [name for name in lock.skills if name not in needed]


def _keep_time(entry: LockedSkill, known: LockedSkill | None) -> LockedSkill:
    """Locking the same thing again changes nothing."""
    return known if known is not None and replace(entry, time=known.time) == known else entry


def open_project(folder: Path, scope: InstallScope = "project", store: SkillStore | None = None) -> Project:
    """The project that a folder belongs to, or the user's own skills.

    The nearest folder upwards from ``folder`` with a lock, a manifest or a ``.git`` is the project; scope ``user`` is
    the home. Raises ``ConfigError`` when there is no home folder.
    """
    if scope == "user":
        return UserSkills(store)
    real = folder.resolve()
    top = Path(project_root(str(real)))
    here = real
    while True:
        if (here / LOCK_FILE).is_file() or (here / "adk-skills.toml").is_file():
            return Project(here, store=store)
        if here in {top, here.parent}:
            return Project(top, store=store)
        here = here.parent


class UserSkills(Project):
    """The skills of the user: installed in ``~/.agents/skills``, locked beside the settings.

    Raises ``ConfigError`` when there is no home folder.
    """

    def __init__(self, store: SkillStore | None = None) -> None:
        home, settings = home_folder(RegistryConfig()), settings_folder(RegistryConfig())
        if home is None or settings is None:
            raise ConfigError("There is no home folder to install skills in. Set HOME.")
        super().__init__(Path(home), "user", store)
        self.lock_path = Path(settings) / LOCK_FILE
        self.manifest = Path(settings) / "adk-skills.toml"


def _needs_of_others(lock: SkillLock, names: Collection[str]) -> dict[str, str]:
    """What skills other than these need, and which one needs it."""
    from adk_skills_agent.sources.requires import required_name

    others = [other for other in lock.skills.values() if other.name not in names]
    return {required_name(text): other.name for other in others for text in other.requires}
