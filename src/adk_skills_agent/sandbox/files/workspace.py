"""The private folder of one run, filled with what was given, which is remembered so that the rest is output."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError, about
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK
from adk_skills_agent.sandbox.contract import HOME_DIR, InputFile, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.files.collect import (
    Collected,
    Entry,
    Stamp,
    Walk,
    collect,
    copy_bytes,
    on_disk,
    open_folder,
    open_own_file,
    open_own_folder,
    parent_of,
    portable,
    readable_name,
    stamp,
    write_all,
)
from adk_skills_agent.sandbox.files.removal import folder_name, remove_tree, sweep_abandoned

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.secrets import SecretForms

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC
# A given file gets this much older a modification time than it has, so that a write within the clock's tick shows.
_AGE_NS = 1_000_000_007
_UNBOUNDED = 1 << 62
_DEFAULT_ENTRIES = 100_000


@dataclass(slots=True)
class Workspace:
    """The folders of one run and what was in them at its start.

    Attributes:
        root: Host folder of mode 0700 that holds ``work`` and ``tmp``; deleted at the end.
        given: Files put in, by relative path, and their stamps.
        given_folders: Folders put in.
        links: Links to a mount's entries, by name, and their inodes.
        persistent: Relative paths of files and folders that came from the session's workspace.
        notes: What could not be put in, one sentence each.
        aside: Bytes of the session's files that are not in the run, because a mount has entries of their names.
        lasting_tmp: What was put into ``tmp``, where it lasts over several runs: it is the ``work`` of this one.
    """

    root: str
    work: str
    tmp: str
    given: dict[str, Stamp] = field(default_factory=dict)
    given_folders: set[str] = field(default_factory=set)
    links: dict[str, int] = field(default_factory=dict)
    persistent: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    aside: int = 0
    lasting_tmp: Workspace | None = None

    @property
    def home(self) -> str:
        """The script's home folder, below ``tmp``."""
        return f"{self.tmp}/{HOME_DIR.name}"

    def remove(self) -> str | None:
        """Delete everything; a sentence when something is left."""
        return remove_tree(self.root)

    def unlink(self) -> None:
        """Take the links away again, before a command has run."""
        for name in self.links:
            os.unlink(on_disk(self.work, name))  # noqa: PTH108
        self.links.clear()

    def undo(self) -> str | None:
        """Delete everything before a command has run: without a descriptor, since there may be none left.

        Only then is it sure that a path leads to what was put there.
        """
        try:
            for path in (*self.links, *self.given):
                os.unlink(on_disk(self.work, path))  # noqa: PTH108
            for path in sorted(self.given_folders, reverse=True):
                os.rmdir(on_disk(self.work, path))  # noqa: PTH106
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(self.home)  # noqa: PTH106
            for folder in (self.work, self.tmp, self.root):
                os.rmdir(folder)  # noqa: PTH106
        except OSError:
            return self.remove()
        return None


def create_workspace(run_id: str) -> Workspace:
    """Make the empty folders, private to this user."""
    import tempfile

    place = os.path.realpath(tempfile.gettempdir())
    sweep_abandoned(place)
    root = os.path.join(place, folder_name(run_id))  # noqa: PTH118
    workspace = Workspace(root, f"{root}/work", f"{root}/tmp")  # noqa: S108  # inside the private root
    os.mkdir(root, 0o700)  # noqa: PTH102
    try:
        os.mkdir(workspace.work, 0o700)  # noqa: PTH102
        os.mkdir(workspace.tmp, 0o700)  # noqa: PTH102
    except OSError:
        workspace.undo()
        raise
    return workspace


def fill_workspace(
    workspace: Workspace,
    policy: SandboxPolicy,
    *,
    persistent: Path | None,
    input_files: Iterable[InputFile],
    mounts: Iterable[ReadOnlyMount],
    tmp: Path | None = None,
    inside: bool = False,
) -> None:
    """Make the home folder; put in the session's files, then the input files, then links to entries of linked mounts.

    ``tmp`` is the session's folder for temporary files, which need not be there. In a sandbox that imported modules
    ahead their code runs meanwhile, and may put a link where a folder was: nothing is reached through one (row 118).

    Raises:
        SandboxError: The session's workspace is no folder, or larger than the policy allows; a mount is no folder.
        ValueError: An input file's path is absolute, leaves the workspace, or is used twice.
    """
    try:
        os.mkdir(workspace.home, 0o700)  # noqa: PTH102
    except FileExistsError:  # a module that was imported ahead has put its cache there
        if not stat.S_ISDIR(os.lstat(workspace.home).st_mode):
            raise
    if persistent is not None:
        _copy_in(workspace, policy, persistent, _entries_that_come_first(mounts))
    if tmp is not None:
        workspace.lasting_tmp = Workspace("", workspace.tmp, "")
        if tmp.is_dir():
            _copy_in(workspace.lasting_tmp, _tmp_policy(policy), tmp, {HOME_DIR.name}, is_said=False)
    seen: set[str] = set()
    top = open_folder(workspace.work)
    try:
        for file in input_files:
            _put(workspace, top, file, seen)
    finally:
        os.close(top)
    link_mounts(workspace, mounts, inside=inside)


def give_away(workspace: Workspace, uid: int, *, but: Collection[str] = ()) -> None:
    """Make what was put into the workspace and into ``tmp``, except for some folders, another user's.

    It goes from the inside out: until a folder is that user's, nobody else reaches what is in it.
    """
    for one in (workspace, workspace.lasting_tmp):
        if one is None:
            continue
        top = open_folder(one.work)
        try:
            for path in one.given:
                with parent_of(top, path) as (folder, name):
                    os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
                    one.given[path] = stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
            for path in sorted(one.given_folders.difference(but), reverse=True):
                with parent_of(top, path) as (folder, name):
                    os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(top)


def remove_on_the_way(workspace: Workspace, paths: Sequence[str]) -> None:
    """Remove the empty folders and files in which something was shown, after the run; see ``folders_on_the_way``."""
    top = open_own_folder(workspace.work)
    try:
        for path in reversed(paths):
            with contextlib.suppress(OSError), parent_of(top, path) as (folder, name):  # the script put something there
                try:
                    os.rmdir(name, dir_fd=folder)
                except NotADirectoryError:  # a file was shown there
                    os.unlink(name, dir_fd=folder)
    finally:
        os.close(top)


def keep_lasting_tmp(
    workspace: Workspace, target: Path, policy: SandboxPolicy, secrets: SecretForms | None
) -> list[str]:
    """Bring back what a run left in ``tmp``, but for its home folder; sentences as of :func:`persist`."""
    lasting = workspace.lasting_tmp
    if lasting is None:
        return []
    policy = _tmp_policy(policy)
    collected = collect(lasting, policy, secrets)
    home = HOME_DIR.name
    collected.changed = {path: info for path, info in collected.changed.items() if not _below(path, {home})}
    collected.folders = [path for path in collected.folders if not _below(path, {home})]
    collected.replaced.pop(home, None)
    if not (lasting.persistent or collected.changed or collected.folders):
        return []
    target.mkdir(mode=0o700, exist_ok=True)
    return [f"In /tmp: {note}" for note in persist(lasting, collected, target, policy, "it has more than tmp_bytes")]


def _tmp_policy(policy: SandboxPolicy) -> SandboxPolicy:
    """The policy as it is for ``/tmp``; no file there becomes output."""
    return replace(policy, workspace_bytes=policy.tmp_bytes, max_files=0, max_total_file_bytes=0)


def link_mounts(workspace: Workspace, mounts: Iterable[ReadOnlyMount], *, inside: bool) -> None:
    """The last part of :func:`fill_workspace`: links to the entries of linked mounts."""
    for mount in mounts:
        if not mount.source.is_dir():
            raise about(SandboxError(f"The folder for {mount.target} is not there."), mount.source)
        if mount.linked:
            _link(workspace, mount, str(mount.target) if inside else None)


def _put(workspace: Workspace, top: int, file: InputFile, seen: set[str]) -> None:
    parts = file.path.split("/")
    if not file.path or "\0" in file.path or file.path.startswith("/") or any(p in {"", ".", ".."} for p in parts):
        raise ValueError(f"Input file path {file.path!r} must be relative, inside the workspace, with forward slashes.")
    if file.path in seen:
        raise ValueError(f"Input file {file.path!r} is given twice.")
    seen.add(file.path)
    mode = 0o700 if file.executable else 0o600
    try:
        path = ""
        for part in parts[:-1]:
            path = f"{path}/{part}" if path else part
            if path not in workspace.given_folders:
                with parent_of(top, path) as (folder, name):
                    os.mkdir(name, 0o700, dir_fd=folder)
                workspace.given_folders.add(path)
        with parent_of(top, file.path) as (folder, name):
            if file.path in workspace.given:
                os.unlink(name, dir_fd=folder)  # it replaces the session's file of that name
            descriptor = os.open(name, _CREATE, mode, dir_fd=folder)
    except UnicodeEncodeError:
        raise ValueError(f"Input file path {file.path!r} is not valid text.") from None
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        raise ValueError(f"Input file {file.path!r} needs a folder where there is a file, or the reverse.") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise ValueError(f"Input file path {file.path[:40]!r}... is too long for a file system.") from None
    try:
        write_all(descriptor, file.content)
        workspace.given[file.path] = _age(descriptor)
    finally:
        os.close(descriptor)


def _link(workspace: Workspace, mount: ReadOnlyMount, seen_at: str | None) -> None:
    source = os.path.abspath(mount.source)  # noqa: PTH100
    for name in sorted(os.listdir(source)):  # noqa: PTH208
        target = f"{workspace.work}/{name}"
        try:
            os.symlink(f"{seen_at or source}/{name}", target)  # noqa: PTH211
        except FileExistsError:
            continue  # the workspace's own file goes first
        workspace.links[portable(name)] = os.lstat(target).st_ino


def _entries_that_come_first(mounts: Iterable[ReadOnlyMount]) -> set[str]:
    first = [mount.source for mount in mounts if mount.linked and mount.first and mount.source.is_dir()]
    return {portable(name) for source in first for name in os.listdir(source)}  # noqa: PTH208


def _copy_in(
    workspace: Workspace, policy: SandboxPolicy, source: Path, without: Collection[str], *, is_said: bool = True
) -> None:
    room = _UNBOUNDED if policy.workspace_bytes is None else policy.workspace_bytes
    most = _DEFAULT_ENTRIES if policy.workspace_inodes is None else policy.workspace_inodes
    walk = Walk(most, max_seconds=60.0)
    try:
        top = open_folder(str(source))
    except OSError as error:
        raise about(SandboxError(f"The session's workspace cannot be read: {error.strerror}."), source) from error
    try:
        target = open_folder(workspace.work)
    except BaseException:
        os.close(top)
        raise
    try:
        with contextlib.closing(walk.entries(top)) as entries:
            for entry in entries:
                if without and _below(entry.path, without):
                    if is_said and stat.S_ISREG(entry.info.st_mode):
                        workspace.aside += entry.info.st_size
                    if is_said and entry.path in without:
                        workspace.notes.append(
                            f"{readable_name(entry.path)!r} of the workspace is not in this run: the skill has its own."
                        )
                    continue
                if entry.is_folder:
                    if entry.path not in workspace.given_folders:
                        _ensure_folder(target, entry.path)
                        workspace.given_folders.add(entry.path)
                    workspace.persistent.add(entry.path)
                elif stat.S_ISREG(entry.info.st_mode):
                    room -= entry.info.st_size
                    if room < 0:
                        problem = f"holds more than workspace_bytes={policy.workspace_bytes:,}"
                        advice = "Delete files from it, or raise the limit."
                        raise about(SandboxError(f"The session's workspace {problem}. {advice}"), source)
                    workspace.given[entry.path] = _copy_file(entry, target)
                    workspace.persistent.add(entry.path)
                else:
                    workspace.notes.append(
                        f"{entry.path!r} in the workspace is not a regular file; it was not copied in."
                    )
    finally:
        os.close(top)
        os.close(target)
    if walk.stopped:
        problem = f"cannot be copied: {walk.stopped}"
        raise about(SandboxError(f"The session's workspace {problem}. Delete files from it."), source)
    workspace.notes.extend(f"{path!r} in the workspace was not copied in: {reason}." for path, reason in walk.skipped)


def _ensure_folder(top: int, path: str) -> None:
    """Make a folder that may be there: one on the way to a mount, such as that of an interpreter below ``/tmp``."""
    with parent_of(top, path) as (folder, name):
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise


def _copy_file(entry: Entry, top: int) -> Stamp:
    source = os.open(entry.name, os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=entry.folder)
    try:
        with parent_of(top, entry.path) as (folder, name):
            descriptor = os.open(name, _CREATE, 0o700 if entry.info.st_mode & 0o100 else 0o600, dir_fd=folder)
        try:
            copy_bytes(source, descriptor, entry.info.st_size)
            return _age(descriptor, entry.info.st_mtime_ns)
        finally:
            os.close(descriptor)
    finally:
        os.close(source)


def _age(descriptor: int, modified_ns: int | None = None) -> Stamp:
    when = (os.fstat(descriptor).st_mtime_ns if modified_ns is None else modified_ns) - _AGE_NS
    os.utime(descriptor, ns=(when, when))
    return stamp(os.fstat(descriptor))


# Bring what a run changed back into the session's workspace.
#
# The run is dead, but without namespaces another one of the same user may change its folders meanwhile (attack row
# 40): so everything is reached through descriptors of folders, and only the very file that was found is kept.

_PERMISSIONS = 0o777  # set-user-id and the like stay behind
_FOLDER = os.O_RDONLY | O_DIRECTORY | O_CLOEXEC
_MAX_NOTES = 50
_MOST_BEYOND_END = 1 << 20  # a file system may reserve some for a file that grows


_TOO_MANY = "the workspace would have more files and folders than workspace_inodes"


_NO_ROOM = "the workspace would exceed workspace_bytes"


def persist(
    workspace: Workspace, collected: Collected, target: Path, policy: SandboxPolicy, no_room: str = _NO_ROOM
) -> list[str]:
    """Move new and changed files into ``target``, inside ``workspace_bytes`` and ``workspace_inodes``, and remove there
    what the run removed.

    A sentence comes for each file that could not be brought back, or is kept as it was before the run; ``no_room`` is
    why when there are too many bytes.
    """
    top = os.open(target, _FOLDER)
    try:
        notes = _remove_gone(workspace, collected, top)
        places = _places(target, policy) if collected.folders or collected.changed else 0
        for path in collected.folders:
            if _info(top, path) is None:
                if places <= 0:
                    notes.append(_not_kept(top, path, _TOO_MANY))
                    continue
                places -= 1
            try:
                _make_folder(top, path)
            except OSError as error:
                notes.append(
                    f"The folder {readable_name(path)!r} was not kept: {error.strerror or type(error).__name__}."
                )
        for path in collected.outside:
            notes.append(_not_kept(top, path, "it has a hard link outside of the workspace"))
        if collected.changed:
            notes += _bring_back(workspace, collected, top, policy, places, no_room)
    finally:
        os.close(top)
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"The same holds for {len(notes) - _MAX_NOTES:,} more files of the session's workspace."]
    return notes


def _places(target: Path, policy: SandboxPolicy) -> int:
    """How many more files and folders ``target`` may have: with more the next run could not copy it in, or make any."""
    most = _DEFAULT_ENTRIES if policy.workspace_inodes is None else policy.workspace_inodes
    most -= most // 100
    top = open_folder(str(target))
    try:
        with contextlib.closing(Walk(most).entries(top)) as entries:
            return most - sum(1 for _ in entries)
    finally:
        os.close(top)


def _bring_back(
    workspace: Workspace, collected: Collected, top: int, policy: SandboxPolicy, places: int, no_room: str
) -> list[str]:
    notes: list[str] = []
    sizes = {path: info.st_size for path, info in collected.changed.items()}
    earlier = {path: _size(top, path) for path in sizes}
    room = _UNBOUNDED if policy.workspace_bytes is None else policy.workspace_bytes
    # What stays in the session also counts, or the next run could not copy it in any more: files the run left alone,
    # and the earlier version of each changed file until the new one has taken its place.
    left_alone = workspace.persistent.intersection(workspace.given).difference(earlier)
    if collected.complete:
        left_alone = {path for path in left_alone if path in collected.present or _below(path, collected.unseen)}
    room -= sum(workspace.given[path].size for path in left_alone) + sum(earlier.values()) + workspace.aside
    work = open_own_folder(workspace.work)
    try:
        # What shrank goes first and what is new goes last: then everything is kept whenever all of it fits in the end.
        for path in sorted(sizes, key=lambda path: (not earlier[path], sizes[path] - earlier[path], path)):
            growth = sizes[path] - earlier[path]
            if growth > max(room, 0):
                notes.append(_not_kept(top, path, no_room))
                continue
            is_new = _info(top, path) is None
            if is_new and places <= 0:
                notes.append(_not_kept(top, path, _TOO_MANY))
                continue
            places -= is_new
            try:
                _keep(work, top, path, collected.changed[path])
            except OSError as error:
                notes.append(_not_kept(top, path, error.strerror or type(error).__name__))
            else:
                room -= growth
    finally:
        os.close(work)
    return notes


def _keep(work: int, top: int, path: str, found: os.stat_result) -> None:
    """Give the session the file that was found, and nothing else another run may have put in its place since."""
    identity = (found.st_dev, found.st_ino)
    with parent_of(work, path) as (folder, name), parent_of(top, path) as (kept_in, _):
        descriptor = open_own_file(name, folder, identity, _PERMISSIONS)
        try:
            # Under a name of its own first, so that nobody sees half a file, or what is not the file that was found.
            partial = f".{os.urandom(8).hex()}.part".encode()
            try:
                # With several names in the workspace they become files of their own, as they will in the next run.
                # One that takes more of the disk than it has content (fallocate) is copied: only the content is kept.
                hidden = found.st_blocks * 512 > found.st_size + _MOST_BEYOND_END
                if hidden or found.st_nlink > 1 or not _moved(name, folder, partial, kept_in, identity):
                    _copy(descriptor, found.st_size, partial, kept_in)
                _put_in_place(partial, name, kept_in)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=kept_in)
                raise
        finally:
            os.close(descriptor)


def _moved(name: bytes, folder: int, partial: bytes, kept_in: int, identity: tuple[int, int]) -> bool:
    """Whether it could be moved; between two file systems it cannot."""
    try:
        os.rename(name, partial, src_dir_fd=folder, dst_dir_fd=kept_in)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    info = os.stat(partial, dir_fd=kept_in, follow_symlinks=False)
    if (info.st_dev, info.st_ino) != identity:
        if stat.S_ISDIR(info.st_mode):  # somebody else's by now; it goes back where it was
            os.rename(partial, name, src_dir_fd=kept_in, dst_dir_fd=folder)
        raise OSError(errno.ESTALE, "it is not the file any more that was found")
    return True


def _copy(source: int, size: int, partial: bytes, kept_in: int) -> None:
    info = os.fstat(source)
    if info.st_size > size:
        raise OSError(errno.ESTALE, "it grew after the end of the run")
    descriptor = os.open(partial, _CREATE, 0o600, dir_fd=kept_in)
    try:
        copy_bytes(source, descriptor, size)
        os.fchmod(descriptor, stat.S_IMODE(info.st_mode) & _PERMISSIONS)
        os.utime(descriptor, ns=(info.st_atime_ns, info.st_mtime_ns))
    finally:
        os.close(descriptor)


def _put_in_place(partial: bytes, name: bytes, kept_in: int) -> None:
    for attempt in (1, 2):
        try:
            os.replace(partial, name, src_dir_fd=kept_in, dst_dir_fd=kept_in)
        except IsADirectoryError:
            if attempt == 2:
                raise
            remove_tree(os.fsdecode(name), kept_in)
        else:
            return


def _not_kept(top: int, path: str, why: str) -> str:
    if _info(top, path) is not None:
        return f"{readable_name(path)!r} was not kept: {why}; the session keeps the earlier version of it."
    return f"{readable_name(path)!r} was not kept: {why}."


def _size(top: int, path: str) -> int:
    """Bytes of a regular file; 0 when there is none."""
    info = _info(top, path)
    return info.st_size if info is not None and stat.S_ISREG(info.st_mode) else 0


def _info(top: int, path: str) -> os.stat_result | None:
    try:
        with parent_of(top, path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _below(path: str, folders: Collection[str]) -> bool:
    """Whether a path or a folder it is in is one of these."""
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False


def _make_folder(top: int, path: str) -> None:
    with parent_of(top, path) as (folder, name):
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)  # a file gave way to a folder of that name
                os.mkdir(name, 0o700, dir_fd=folder)


def _remove_gone(workspace: Workspace, collected: Collected, top: int) -> list[str]:
    """Remove what the run removed, or replaced by something a session cannot keep; a sentence for each of these."""
    if collected.complete:
        there = collected.present.union(collected.folders)
        gone = {path for path in workspace.persistent - there if not _below(path, collected.unseen)}
    else:
        gone = {path for path in workspace.persistent if _below(path, collected.replaced)}
    # Folders after what is in them.
    for path in sorted(gone, reverse=True):
        try:
            with parent_of(top, path) as (folder, name):
                if path in workspace.given_folders:
                    os.rmdir(name, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)
        except OSError:
            continue  # somebody else put something there meanwhile; it is not ours to remove
    notes = [
        f"{readable_name(path)!r} {reason} now, which a session cannot keep: "
        "it was removed from the session's workspace."
        for path, reason in collected.replaced.items()
    ]
    if not collected.complete and workspace.persistent:
        notes.append("What the script removed may still be in the session's workspace: not all of it was looked at.")
    return notes
