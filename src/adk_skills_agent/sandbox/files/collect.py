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
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adk_skills_agent.sandbox.contract import OutputFile, SandboxPolicy
from adk_skills_agent.sandbox.files.walk import Entry, Walk, open_own_file, open_own_folder, stamp
from adk_skills_agent.sandbox.secrets import SecretForms, withheld

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.files.workspace import Workspace

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
    """Read the output files of a finished run."""
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
                    result.skipped.append((readable_name(entry.path), reason))
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
    result.skipped.extend((readable_name(path), reason) for path, reason in walk.skipped[:_MAX_SKIPPED])
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
    if (reason := withheld(secrets, _bytes_of(entry.path))) is not None:
        return reason
    try:
        descriptor = _open(entry)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        before = b""
        while chunk := os.read(descriptor, 1 << 20):
            data = before + chunk
            if (reason := withheld(secrets, data)) is not None:
                return reason
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
    final = distinct_name(name, taken)
    if final != entry.path:
        result.notes.append(f"Output file {readable_name(entry.path)!r} is called {final!r}.")
    result.files.append(OutputFile(final, content, mime_type(final)))
    return None


def read_entry(entry: Entry, limit: int) -> bytes | None:
    """The content of a regular file that was found, however the path may have changed since (attack row 40).

    None when it is not the file that was found, or larger than ``limit``.
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


# Names of output files: what a script called them is hostile, what leaves the sandbox is safe to store and to show.

MAX_PATH_CHARS = 512
_MAX_PART_CHARS = 200
# Not allowed in a file name on some system that may store the artifact; a colon would also make "user:x" an artifact
# of another scope in google-adk.
_FORBIDDEN = frozenset('<>:"|?*\\')
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", *(f"{d}{n}" for d in ("com", "lpt") for n in "0123456789¹²³")]
)


def readable_name(path: str) -> str:
    """A path from the file system as text that is safe to print: every odd character is escaped."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in path)
    return escaped if len(escaped) <= MAX_PATH_CHARS else f"{escaped[:MAX_PATH_CHARS]}..."


def safe_name(path: str) -> str | None:
    """The path an output file gets: relative, printable, usable on every system; None when it is too long.

    The parts come from directory entries, so ``..``, an empty part or a leading slash cannot occur.
    """
    text = unicodedata.normalize("NFC", path)
    if len(text) > MAX_PATH_CHARS:
        return None
    return "/".join(_safe_part(part) for part in text.split("/"))


def distinct_name(name: str, taken: set[str]) -> str:
    """``name``, or a variation that no earlier file has, also where upper and lower case are the same."""
    folder, _, last = name.rpartition("/")
    stem, dot, suffix = last.rpartition(".")
    if not stem:
        stem, dot, suffix = last, "", ""
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        variation = f"{stem}~{number}{dot}{suffix}"
        candidate = f"{folder}/{variation}" if folder else variation
    taken.add(candidate.casefold())
    return candidate


def _safe_part(part: str) -> str:
    characters = [c if c.isprintable() and c not in _FORBIDDEN else "_" for c in part[:_MAX_PART_CHARS]]
    name = "".join(characters)
    if name.startswith(" "):
        name = f"_{name[1:]}"
    if name.endswith((" ", ".")):
        name = f"{name[:-1]}_"
    return f"_{name}" if name.partition(".")[0].rstrip().lower() in _RESERVED else name


# The type of an output file, by suffix. A fixed table: the host's own would make results differ between machines.

_BY_SUFFIX = {
    "bin": "application/octet-stream",
    "bmp": "image/bmp",
    "css": "text/css",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "epub": "application/epub+zip",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "ico": "image/vnd.microsoft.icon",
    "ics": "text/calendar",
    "ipynb": "application/x-ipynb+json",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "log": "text/plain",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "odp": "application/vnd.oasis.opendocument.presentation",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odt": "application/vnd.oasis.opendocument.text",
    "ogg": "audio/ogg",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "text/x-python",
    "rtf": "application/rtf",
    "sh": "application/x-sh",
    "sql": "application/sql",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "tex": "text/x-tex",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}


def mime_type(path: str) -> str:
    """The media type of a file by its suffix; ``application/octet-stream`` when the suffix says nothing."""
    return _BY_SUFFIX.get(path.rpartition("/")[2].rpartition(".")[2].lower(), "application/octet-stream")
