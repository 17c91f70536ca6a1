"""Collect what a run left in its workspace: new and changed regular files, inside every bound.

Attack rows 10, 11, 39 to 42. A file that contains one of the run's secrets is neither collected nor kept for the
session's next run, which may be another skill's.

Runs after everything of the run is dead. Folders are entered through descriptors, links are never followed, a file is
opened without blocking and looked at again before it is read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass, field

from adk_skills_agent.sandbox.contract import OutputFile, SandboxPolicy
from adk_skills_agent.sandbox.local.mime_types import mime_type
from adk_skills_agent.sandbox.local.output_names import distinct, readable, safe_name
from adk_skills_agent.sandbox.local.tree import Entry, Walk, open_own_file, open_own_folder
from adk_skills_agent.sandbox.local.workspace import Workspace, stamp
from adk_skills_agent.sandbox.redaction import withheld
from adk_skills_agent.sandbox.secret_forms import SecretForms

_DEFAULT_ENTRIES = 100_000
_MAX_SKIPPED = 100
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


@dataclass(slots=True)
class Collected:
    """What came out of a workspace.

    Attributes:
        files: The output files, sorted by path.
        skipped: ``(path, reason)`` of what is there and was not taken.
        changed: Relative host paths of all new or changed regular files, taken or not, and what ``lstat`` said; for a
            persistent workspace. Without those that contain a secret.
        folders: Relative host paths of all folders seen.
        present: Given files that are still there as regular files, changed or not.
        replaced: What came from the session and is now something it cannot keep (a link, a pipe), and what that is.
        outside: Files with a hard link outside of the workspace: their content may not be the run's.
        unseen: Folders that were not looked into.
        complete: Whether everything but ``unseen`` was looked at.
        notes: One sentence per renamed file, and one when skipped files are not all listed.
    """

    files: list[OutputFile] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    changed: dict[str, os.stat_result] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    replaced: dict[str, str] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    unseen: set[str] = field(default_factory=set)
    complete: bool = False
    notes: list[str] = field(default_factory=list)


def collect(workspace: Workspace, policy: SandboxPolicy, secrets: SecretForms | None = None) -> Collected:
    """Read the output files of a finished run.

    Args:
        workspace: Its folders.
        policy: How much is taken.
        secrets: What must not be in a file or its name.

    Raises:
        OSError: The workspace itself cannot be opened.
    """
    result = Collected()
    most = policy.workspace_inodes if policy.workspace_inodes is not None else _DEFAULT_ENTRIES
    walk = Walk(most + len(workspace.given) + len(workspace.given_folders) + len(workspace.links), own=True)
    taken: set[str] = set()
    hard_links: dict[tuple[int, int], list[Entry]] = {}
    left_out = 0
    budget = policy.max_total_file_bytes
    try:
        top = open_own_folder(workspace.work)
    except FileNotFoundError:
        result.notes.append("The script removed its workspace; there are no output files.")
        return result
    except NotADirectoryError:
        result.notes.append("The script replaced its workspace by something else; there are no output files.")
        return result
    try:
        with contextlib.closing(walk.entries(top)) as entries:
            for entry in entries:
                if entry.is_folder:
                    if secrets is None or secrets.found_in(_bytes_of(entry.path)) is None:
                        result.folders.append(entry.path)
                    continue
                if workspace.links.get(entry.path) == entry.info.st_ino and stat.S_ISLNK(entry.info.st_mode):
                    continue
                reason = _why_not(entry)
                if not stat.S_ISREG(entry.info.st_mode):
                    if entry.path in workspace.persistent and reason is not None:
                        result.replaced[entry.path] = reason
                elif entry.path in workspace.given:
                    result.present.add(entry.path)
                    if workspace.given[entry.path] == stamp(entry.info):
                        continue
                secret = (
                    _secret_in(entry, secrets) if secrets is not None and stat.S_ISREG(entry.info.st_mode) else None
                )
                reason = secret or reason
                if reason is None:
                    result.changed[entry.path] = entry.info
                    reason = _take(entry, policy, budget, taken, result)
                elif stat.S_ISREG(entry.info.st_mode) and secret is None:
                    identity = (entry.info.st_dev, entry.info.st_ino)
                    hard_links.setdefault(identity, []).append(entry)
                if reason is None:
                    budget -= result.files[-1].size
                elif len(result.skipped) < _MAX_SKIPPED:
                    result.skipped.append((readable(entry.path), reason))
                else:
                    left_out += 1
    finally:
        os.close(top)
    for same in hard_links.values():
        # Only when every name of a file is in the workspace, its content is surely the run's.
        if len(same) == same[0].info.st_nlink:
            result.changed.update((entry.path, entry.info) for entry in same)
        else:
            result.outside.extend(entry.path for entry in same)
    result.unseen = {path for path, _ in walk.skipped}
    result.complete = walk.stopped is None
    result.skipped.extend((readable(path), reason) for path, reason in walk.skipped[:_MAX_SKIPPED])
    if walk.stopped:
        result.notes.append(f"Not all of the workspace was looked at for output files: {walk.stopped}.")
    if left_out:
        result.notes.append(f"{left_out:,} more files were not collected.")
    return result


def _why_not(entry: Entry) -> str | None:
    for test, kind in _KINDS:
        if test(entry.info.st_mode):
            return f"is {kind}"
    if not stat.S_ISREG(entry.info.st_mode):
        return "is no regular file"
    # A hard link could make a file from elsewhere on the disk look like output.
    return "has several hard links" if entry.info.st_nlink != 1 else None


def _secret_in(entry: Entry, secrets: SecretForms) -> str | None:
    """Why a file is withheld, if it is; all of it is looked at, however large it is."""
    found = secrets.found_in(_bytes_of(entry.path))
    if found is not None:
        return withheld(found)
    try:
        descriptor = _open(entry)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        before = b""
        while chunk := os.read(descriptor, 1 << 20):
            data = before + chunk
            found = secrets.found_in(data)
            if found is not None:
                return withheld(found)
            before = data[-secrets.reach :]
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)
    return None


def _bytes_of(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _take(entry: Entry, policy: SandboxPolicy, budget: int, taken: set[str], result: Collected) -> str | None:
    """Read one file into ``result.files``; why not, if not."""
    if len(result.files) >= policy.max_files:
        return f"more than max_files={policy.max_files} output files"
    too_large = f"larger than max_file_bytes={policy.max_file_bytes:,}"
    if entry.info.st_size > policy.max_file_bytes:
        return too_large
    if entry.info.st_size > budget:
        return f"the output files together are larger than max_total_file_bytes={policy.max_total_file_bytes:,}"
    name = safe_name(entry.path)
    if name is None:
        return "its path is too long"
    try:
        content = read_entry(entry, min(policy.max_file_bytes, budget))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if content is None:
        return "it changed while it was read"
    final = distinct(name, taken)
    if final != entry.path:
        result.notes.append(f"Output file {readable(entry.path)!r} is called {final!r}.")
    result.files.append(OutputFile(final, content, mime_type(final)))
    return None


def read_entry(entry: Entry, limit: int) -> bytes | None:
    """The content of a regular file that was found, however the path may have changed since (attack row 40).

    Args:
        entry: Where it was found, and what ``lstat`` said then.
        limit: Most bytes it may have.

    Returns:
        None when it is not the file that was found, or larger than ``limit``.

    Raises:
        OSError: It cannot be opened, or is a link now.
    """
    try:
        descriptor = _open(entry)
    except OSError as error:
        if error.errno == errno.ESTALE:
            return None
        raise
    try:
        info = os.fstat(descriptor)
        if info.st_size > limit:
            return None
        chunks: list[bytes] = []
        left = limit + 1
        while left > 0 and (chunk := os.read(descriptor, min(left, 1 << 20))):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks) if left > 0 else None
    finally:
        os.close(descriptor)


def _open(entry: Entry) -> int:
    return open_own_file(entry.name, entry.folder, (entry.info.st_dev, entry.info.st_ino))
