"""The store: every tree of files that was ever installed, once, under its digest; shared by all projects of a user.

A tree is written beside, flushed and renamed, so that what has a digest for its name is whole, also after a kill. It is
checked again when it is used, and what is damaged is put away and fetched again.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from adk_skills_agent.catalog.settings import RegistryConfig, data_folder
from adk_skills_agent.errors import ConfigError, SourceError
from adk_skills_agent.platforms import lock_within, write_whole
from adk_skills_agent.sources.tree import SkillTree, digest_folder, read_tree, tree_digest

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ASIDE = ".aside-"
TELL_AFTER_SECONDS = 2.0
"""How long a process waits for another without a word."""
STALE_SECONDS = 3600.0
"""What a process that was killed left aside is removed when it is older than that."""


class SkillStore:
    """A folder of trees by digest.

    ``folder`` is made when it is first written to; None is the user's: ``$XDG_DATA_HOME/adk-skills/store``. Raises
    ``ConfigError`` when there is no home to keep it in.
    """

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            data = data_folder(RegistryConfig())
            if data is None:
                raise ConfigError("There is no home folder to keep skills in. Set HOME or XDG_DATA_HOME.")
            folder = Path(data) / "store"
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where a tree is, or would be. Raises ``SourceError`` when it is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise SourceError(f"{digest[:80]!r} is no digest of a skill. Restore the lock from version control.")
        return self.folder / digest.replace(":", "-")

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and bool(_DIGEST.fullmatch(digest)) and self.path(digest).is_dir()

    def put(self, tree: SkillTree, *, flush: bool = True) -> Path:
        """Keep a tree; nothing happens when it is there already.

        With ``flush`` the disk has it before it gets its name. Who puts many flushes once, afterwards: what a power cut
        leaves damaged is found when it is used. Returns its folder, read-only. Raises ``SourceError`` when the disk
        refuses.
        """
        target = self.path(tree.digest)
        if target.is_dir():
            return target
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            aside = _folder_aside(self.folder)
        except OSError as error:
            raise SourceError(f"The store {self.folder} cannot be written: {error.strerror}.") from error
        try:
            write_tree(aside, tree, read_only=True, flush=flush)
            aside.chmod(0o755)
            try:
                aside.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was first, with the same bytes
                    raise
            if flush:
                flush_folder(self.folder)
        except OSError as error:
            raise SourceError(f"The store {self.folder} cannot be written: {error.strerror}.") from error
        finally:
            remove_tree(aside)
        return target

    def get(self, digest: str) -> SkillTree | None:
        """A tree, checked; None when it is not here. A damaged one is removed."""
        place = self.path(digest)
        if not place.is_dir():
            return None
        try:
            tree = read_tree(place, "A skill in the store", skipped=())
        except SourceError:
            tree = None
        if tree is None or tree.digest != digest:
            self._put_away(place)
            return None
        return tree

    def is_whole(self, digest: str) -> bool:
        """Whether a tree is here with just its bytes; a damaged one is removed."""
        place = self.path(digest)
        if not place.is_dir():
            return False
        try:
            good = tree_digest(*digest_folder(place, "A skill in the store")) == digest
        except SourceError:
            good = False
        if not good:
            self._put_away(place)
        return good

    def digests(self) -> list[str]:
        """Of all trees, sorted."""
        if not self.folder.is_dir():
            return []
        names = sorted(path.name for path in self.folder.iterdir())
        return [name.replace("-", ":", 1) for name in names if _DIGEST.fullmatch(name.replace("-", ":", 1))]

    def sweep(self) -> int:
        """Remove what killed processes left aside; return how much it was."""
        if not self.folder.is_dir():
            return 0
        return sweep_aside(self.folder)

    def _put_away(self, place: Path) -> None:
        aside = self.folder / f"{_ASIDE}damaged-{os.urandom(6).hex()}"
        with contextlib.suppress(OSError):
            place.rename(aside)
            remove_tree(aside)


def _folder_aside(folder: Path) -> Path:
    import tempfile  # verifying writes nothing, and its imports are a third of its time

    return Path(tempfile.mkdtemp(prefix=_ASIDE, dir=folder))


def sweep_aside(folder: Path) -> int:
    """Remove folders and files that a killed process left aside in a folder."""
    count = 0
    for path in folder.glob(f"{_ASIDE}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > STALE_SECONDS:
                remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                count += 1
    return count


def write_tree(folder: Path, tree: SkillTree, *, read_only: bool = False, flush: bool = False) -> None:
    """Write the files of a tree into an empty folder.

    With ``flush`` the disk has them when this returns. Raises ``OSError`` when the disk does not take it.
    """
    folders = {folder}
    for path, file in tree.files.items():
        target = folder / path
        if target.parent not in folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
        mode = (0o555 if file.executable else 0o444) if read_only else (0o755 if file.executable else 0o644)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            left = memoryview(file.data)
            while left:
                left = left[stream.write(left) :]
            os.fchmod(descriptor, mode)
            if flush:
                os.fsync(descriptor)
    if flush:
        for one in folders:
            flush_folder(one)


def install_copy(target: Path, tree: SkillTree) -> None:
    """Put a tree at a place, in one step for whoever looks: the old folder or the new one, never a half.

    Raises ``OSError`` when the disk does not take it; what was there stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = _folder_aside(target.parent)
    try:
        inner = aside / "new"
        inner.mkdir()
        write_tree(inner, tree)
        replace_folder(target, inner, aside / "old")
    finally:
        remove_tree(aside)


def install_link(target: Path, stored: Path) -> None:
    """Put a link to a tree of the store at a place, in one step. Raises ``OSError`` when the disk refuses."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = _folder_aside(target.parent)
    try:
        link = aside / "new"
        link.symlink_to(stored, target_is_directory=True)
        replace_folder(target, link, aside / "old")
    finally:
        remove_tree(aside)


def replace_folder(target: Path, new: Path, old: Path) -> None:
    """Rename ``new`` to ``target``; what was there goes to ``old`` and comes back when the second step fails."""
    if os.path.lexists(target):
        if target.is_symlink() and new.is_symlink():
            new.replace(target)
            return
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise
    else:
        new.rename(target)


def take_away(target: Path) -> Path | None:
    """Move an installed skill aside, into a folder beside it; the caller removes that with :func:`remove_tree`.

    Returns the folder aside, or None when there was nothing. Raises ``OSError`` when it cannot be moved.
    """
    if not os.path.lexists(target):
        return None
    aside = _folder_aside(target.parent)
    try:
        target.rename(aside / "old")
    except OSError:
        aside.rmdir()
        raise
    return aside


def remove_tree(folder: Path) -> None:
    """Remove a folder, read-only ones in it too; what cannot be removed stays and is swept later."""

    def force(_remove: object, path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(stat.S_IRWXU)
            place = Path(path)
            place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()

    if folder.exists():
        import shutil

        shutil.rmtree(folder, onerror=force)


def write_aside(path: Path, data: bytes) -> None:
    """:func:`~adk_skills_agent.platforms.write_whole`, and the disk has the bytes and the name when this returns."""
    write_whole(path, data, flush=True)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder, where it can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def one_at_a_time(place: Path, what: str) -> Iterator[None]:
    """Let one process at a time change a project; the others wait, and say so when it takes long.

    The file ``place`` is made, kept, and locked while the block runs; a kill unlocks it. ``what`` is changed, for the
    log. Raises ``SourceError`` when the disk refuses.
    """
    import fcntl

    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SourceError(f"{place} cannot be made: {error.strerror}.") from error
    try:
        if not lock_within(descriptor, TELL_AFTER_SECONDS):
            import logging  # verifying needs none of it

            logging.getLogger(__name__).warning("Another process is changing %s; waiting until it ends.", what)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
