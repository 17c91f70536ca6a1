"""At load time: whether a pinned skill still has the bytes of its lock."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from adk_skills_agent.catalog.settings import RegistryConfig, home_folder, settings_folder
from adk_skills_agent.errors import ConfigError, IntegrityError
from adk_skills_agent.sources.lock_file import LOCK_FILE, SKILLS_FOLDER, LockedSkill, manifest_path, read_skill_lock
from adk_skills_agent.sources.project import compare
from adk_skills_agent.sources.signatures import read_signature_policy

logger = logging.getLogger(__name__)

Integrity: TypeAlias = Literal["require", "warn"]
"""What happens with a pinned skill whose bytes differ: it is refused, or the owner's log says so."""
_KEPT = 1_024


class IntegrityCheck:
    """Compares installed skills with the lock that names them. A skill that no lock names is nobody's business here.

    May be used by several threads. ``mode`` is ``require`` or ``warn``. Raises ``ConfigError`` when it is neither.
    """

    def __init__(self, mode: Integrity) -> None:
        if mode not in get_args(Integrity):
            raise ConfigError(f"integrity must be 'require', 'warn' or None, not {mode!r}.")
        self.mode = mode
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, tuple[str, ...]]] = {}

    def check(self, name: str, folder: Path, version: Callable[[], str]) -> str:
        """Look at one skill. Blocks; reads its files only when one may have changed.

        Returns the version that was found as locked, which is what may be used (row 406); empty where no lock names the
        skill, or differences are only told.

        Raises:
            IntegrityError: It differs and ``require`` was asked for. The sentence is for the model, the notes for the
                owner.
        """
        try:
            found = locked_skill_at(folder)
            other = None if found is not None and found[0].name == name else locked_elsewhere(name, folder)
            manifest = manifest_path(found[1].parent) if found is not None else folder
        except ConfigError as error:
            self._say(name, folder, (error.message,))
            return ""
        if other is not None:  # row 399
            self._say(name, folder, (f"the lock has this name for {other}",))
        if found is None:
            return ""
        locked, lock, whole = found
        current = version()
        stamp = f"{current} {locked.tree} {locked.signer} {_modified(manifest)}"
        with self._lock:
            known = self._seen.get(str(folder))
        told = known
        # What is wrong may be beside a skill in the folder of another one, whose version does not change with that.
        if known is None or known[0] != stamp or (known[1] and whole != folder):
            state = compare(locked, whole)
            try:
                state = replace(state, unsigned=read_signature_policy(manifest).why_not(locked.name, locked.signer))
            except ConfigError as error:
                state = replace(state, unsigned=error.message)
            known = (stamp, () if state.is_same else (*state.sentences(), f"see {lock}"))
            if version() != current:
                known = (stamp, ("it changed while it was looked at",))
            with self._lock:
                if len(self._seen) >= _KEPT:
                    self._seen.clear()
                self._seen[str(folder)] = known
        if known[1]:
            self._say(name, folder, known[1], fresh=known != told)
        return current if self.mode == "require" else ""

    def _say(self, name: str, folder: Path, changes: tuple[str, ...], *, fresh: bool = True) -> None:
        place = os.fspath(folder)
        if self.mode == "warn":
            if fresh:
                logger.warning("The skill %s in %s is not what its lock says: %s", name, place, "; ".join(changes))
            return
        error = IntegrityError(
            f"Skill '{name}' is not what its lock says, so it is not used. Do it without it, or tell the user.", changes
        )
        error.add_note(
            f"{place}: {'; '.join(changes)}. See adk-skills verify; restore it with adk-skills sync --force."
        )
        raise error


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def locked_skill_at(folder: Path) -> tuple[LockedSkill, Path, Path] | None:
    """The lock's entry for an installed skill, the lock, and the folder that it names; None when no lock names that.

    A skill in the folder of an installed one is a part of that (row 459). The lock names a place, which may be a link
    itself, or be reached by one (row 358). Raises ``ConfigError`` when the lock cannot be used.
    """
    written = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay
    places = (written, written.parent.resolve() / written.name, written.resolve())
    return next(filter(None, map(_locked_at, dict.fromkeys(places))), None) or _locked_by_link(written)


def _locked_by_link(written: Path) -> tuple[LockedSkill, Path, Path] | None:
    """The same where the installed place is a link to the folder, or ``.agents/skills`` is one (row 495)."""
    whole = written.resolve()
    for root in reversed(dict.fromkeys((*written.parents, *whole.parents))):
        skills = root / SKILLS_FOLDER
        names = _names_leading_to(skills, whole) if skills.is_dir() else ()
        for lock in _locks_of(root) if names else ():
            for found in filter(None, map(read_skill_lock(lock).skills.get, names)):
                if root / found.path == skills / found.name:
                    return found, lock, root / found.path
    return None


def _names_leading_to(skills: Path, whole: Path) -> list[str]:
    """The names in a folder of installed skills, links among them, that lead to a folder or to one above it."""
    base = skills.resolve()
    names = [whole.relative_to(base).parts[0]] if base in whole.parents else []
    try:
        with os.scandir(skills) as entries:
            links = [Path(entry.path) for entry in entries if entry.is_symlink()]
    except OSError:
        return names
    there = {whole, *whole.parents}
    return [*names, *(link.name for link in links if link.resolve() in there)]


def _locked_at(place: Path) -> tuple[LockedSkill, Path, Path] | None:
    # The outermost one: what lies in an installed skill, also a lock, is a part of that.
    for whole in reversed((place, *place.parents)):
        if whole.parent.parts[-2:] != tuple(SKILLS_FOLDER.split("/")):
            continue
        root = whole.parent.parent.parent
        for lock in _locks_of(root):
            found = read_skill_lock(lock).skills.get(whole.name)
            if found is not None and root / found.path == whole:
                return found, lock, whole
    return None


def locked_elsewhere(name: str, folder: Path) -> Path | None:
    """The other place that a lock has for the name of a skill in the same folder of installed skills; None when there
    is none. Raises ``ConfigError`` when the lock cannot be used.
    """
    written = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay
    whole = written.resolve()
    for root in dict.fromkeys((*written.parents, *whole.parents)):
        skills = root / SKILLS_FOLDER
        if skills not in {*written.parents, *whole.parents} and skills.resolve() not in whole.parents:
            continue
        for lock in _locks_of(root):
            found = read_skill_lock(lock).skills.get(name)
            if found is not None and (root / found.path).resolve() != whole:
                return root / found.path
    return None


def _locks_of(root: Path) -> list[Path]:
    """The locks that name skills in ``.agents/skills`` of a folder: a project's, and the user's own."""
    locks = [root / LOCK_FILE]
    settings = settings_folder(RegistryConfig())
    home = home_folder(RegistryConfig())
    if settings is not None and home is not None and root in {Path(home), Path(home).resolve()}:
        locks.append(Path(settings) / LOCK_FILE)
    return [lock for lock in locks if lock.is_file()]
