"""A session's workspace with a store: fetched before a call where another server changed it, saved after the call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from adk_skills_agent.errors import ConfigError, StorageDamaged, StorageError, WorkspaceUnavailable
from adk_skills_agent.scripts.stored_files import (
    MAX_ENTRIES,
    Content,
    Seen,
    SessionFolders,
    StoredFile,
    content_name,
)
from adk_skills_agent.scripts.workspace_store import (
    Entry,
    Life,
    Owner,
    SignsOfLife,
    WorkspaceStore,
    life_interval,
    new_entry,
)

if TYPE_CHECKING:
    from adk_skills_agent.sandbox import SecretForms

logger = logging.getLogger(__name__)

_UPLOADS_AT_ONCE = 8
_LARGE_BYTES = 8 << 20
"""A file above it is read and sent alone: what several hold in memory together stays bounded."""
_PRUNE_EVERY = 16
_PRUNE_BYTES = 4 << 20
_TOLD_FILES = 5


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What a store did for one call, for the owner."""

    # ``fetched``, ``saved``, ``not_saved`` (the files are only on this server), ``lost`` (another server took the
    # session over), ``withheld`` (a file that holds a secret), ``busy``, ``unavailable`` or ``damaged``
    action: str
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    problem: str = ""  # what is wrong and what to do; empty when nothing is


@dataclass(frozen=True, slots=True)
class SessionStore:
    """What a call says about the store of its session."""

    store: WorkspaceStore
    owner: Owner = field(default_factory=Owner)
    most_bytes: int | None = None  # what the policy lets the session's folders hold together; None for any size
    secrets: SecretForms | None = None  # what must not be stored; None when there are no secrets
    tell: Callable[[StoreReport], None] = lambda _report: None  # gets each report; it may be called from any thread


class Busy(Exception):  # no error: the caller waits and asks again
    """Another server works on the session."""


@dataclass(slots=True)
class _Known:
    """What the store has, as far as this server knows."""

    number: int = 0  # the newest entry of the log
    newest: Entry | None = None  # that entry, without its files; None where there is none, or none that can be read
    base: int = 0  # the entry that lists the files
    previous: int = 0  # the one that listed them before it, whose blobs are kept
    content: Content = field(default_factory=Content)  # the files of ``base``
    previous_content: Content = field(default_factory=Content)  # the files of ``previous``


class StoredWorkspace:
    """The state that one server has of one session's files in a store. One call at a time uses it."""

    def __init__(self, store: WorkspaceStore, key: str) -> None:
        self.store = store
        self._log = store.log(key)
        self._known = _Known()
        self._seen = Seen()  # the disk when it was what the store has
        self._claim: Entry | None = None
        self._life: SignsOfLife | None = None
        self._watched: tuple[Life, float] | None = None
        self._withheld: dict[str, str] = {}
        self._unsaved = False
        self._saves = 0
        self._sent = 0
        self.facts: dict[str, str] = {}
        """What other parts of the server want to find again on the next one; saved with the files."""

    @property
    def unsaved(self) -> bool:
        """Whether files here are not in the store."""
        return self._unsaved

    def start_with_files(self) -> None:
        """Say that the folder has files that the store does not know; they are never overwritten."""
        self._unsaved = True

    def start_empty(self) -> None:
        """Say that the folder is a new one; the next call fetches all files."""
        self._let_go()
        self._known, self._seen, self._unsaved = _Known(), Seen(), False

    def begin(self, folders: SessionFolders, about: SessionStore, call: str, *, writes: bool) -> list[str]:
        """Have the session's files as they are now and, for a call that may change them, the session itself. Blocks.

        ``call`` says in a few words what for; the next server tells them when this one dies. ``writes``: files may
        change.

        Returns:
            Sentences for the model.

        Raises:
            Busy: Another server works on the session. Ask again.
            WorkspaceUnavailable: The files cannot be had; nothing was changed.
        """
        try:
            self.store.ready()
            for _ in range(_MOST_RACES):
                notes = self._attempt(folders, about, call, writes=writes)
                if notes is not None:
                    return notes
        except (StorageError, ConfigError, OSError) as error:
            message = error.strerror or str(error) if isinstance(error, OSError) else error.message
            about.tell(StoreReport("unavailable", problem=message))
            logger.error("The files of a session cannot be fetched: %s", message)  # noqa: TRY400  # a sentence says it
            raise WorkspaceUnavailable(
                "The files of this session cannot be fetched now, so nothing was started. Try again later."
            ) from error
        raise Busy

    def _attempt(self, folders: SessionFolders, about: SessionStore, call: str, *, writes: bool) -> list[str] | None:
        numbers = self._log.numbers()
        latest = numbers[-1] if numbers else 0
        if self._claim is not None:
            if latest == self._claim.number:
                if self._life is None:
                    self._life = SignsOfLife(self._log, latest, life_interval(self.store))
                return []  # what the last call could not save is saved with this one
            self._let_go()
        notes: list[str] = []
        newest = self._known.newest
        if latest != self._known.number:
            problems: list[str] = []
            try:
                newest = self._log.entry(latest) if latest else None
            except StorageDamaged:
                newest = None
                problems = [f"{self.store.objects.shown}: the newest entry of session {self._log.name} is damaged."]
            if writes and newest is not None and newest.kind == "claim" and not self._is_dead(newest):
                raise Busy
            notes += self._catch_up(folders, about, numbers, newest, problems)
        elif writes and newest is not None and newest.kind == "claim" and not self._is_dead(newest):
            raise Busy  # another server's, which a call that only read has seen
        if not writes:
            return notes
        lease = self.store.lease_seconds
        before, cut_off = (newest.id, newest.call) if newest is not None else ("", "")
        claim = new_entry(before, latest, "claim", self._known.base, call, about.owner, lease=lease)
        if not self._log.create(claim):
            return None  # another server was first
        self._claim, self._watched = claim, None
        self._known.number, self._known.newest = claim.number, claim
        self._life = SignsOfLife(self._log, claim.number, life_interval(self.store))
        if cut_off:
            notes.append(
                f"An earlier call of this session ({cut_off}) was cut off on another server. What it did outside of "
                "its files is not known, and its files were not kept."
            )
        return notes

    def _is_dead(self, claim: Entry) -> bool:
        """Whether the server with a claim has shown no sign of life for a lease, by the clock of this one."""
        life, now = Life(claim.number, self._log.life(claim.number), claim.lease), time.monotonic()
        if self._watched is None or self._watched[0] != life:
            self._watched = life, now
        return now - self._watched[1] >= max(self.store.lease_seconds, claim.lease)

    def _catch_up(
        self,
        folders: SessionFolders,
        about: SessionStore,
        numbers: list[int],
        newest: Entry | None,
        problems: list[str],
    ) -> list[str]:
        """Make the files here those of the store."""
        latest = numbers[-1] if numbers else 0
        if newest is not None and newest.base == self._known.base:
            self._known.number, self._known.newest = latest, replace(newest, content=None)
            return []
        began, notes, aside = time.monotonic(), list[str](), list[str]()
        left = numbers
        while True:
            saved = self._log.last_saved(left, problems)
            wanted = saved.content if saved is not None and saved.content is not None else Content()
            base = saved.number if saved is not None else 0
            most = self._most(about)
            if most is not None and wanted.size > most:
                raise StorageError(
                    f"The session {self._log.name} in {self.store.objects.shown} holds {wanted.size:,} bytes, more "
                    "than this server allows. Give all servers the same policy."
                )
            if self._unsaved:
                aside += self._set_aside(folders, wanted)
            try:
                fetched, size = self._put(folders, wanted)
            except StorageDamaged as error:
                problems.append(error.message)
                left = [number for number in left if number < base]
                continue
            break
        if aside:
            shown = ", ".join(f"'{path}'" for path in aside[:_TOLD_FILES])
            notes.append(
                f"Another server went on with this session. Files that were only on this one are in "
                f"'{_aside_folder(self._known.number)}' now: {shown}."
            )
        if problems:
            for problem in problems:
                about.tell(StoreReport("damaged", problem=problem))
                logger.error("%s", problem)
            notes.append(
                "The last saved files of this session are damaged. The files are those of an earlier call; check them."
                if base
                else "The saved files of this session are damaged. The working directory starts empty."
            )
        elif not numbers and self._known.base:
            notes.append("The application removed the files of this session. The working directory starts empty.")
        newest = replace(newest, content=None) if newest is not None else None
        self._known = _Known(latest, newest, base, 0, wanted, Content())
        self.facts = dict(wanted.facts)
        self._unsaved = False
        self._seen = folders.look()
        if fetched:
            about.tell(StoreReport("fetched", fetched, size, time.monotonic() - began))
        return notes

    def _put(self, folders: SessionFolders, wanted: Content) -> tuple[int, int]:
        """Write what differs; how many files were fetched, and their bytes."""
        here = folders.look()
        same = {
            path: file
            for path, file in self._known.content.files.items()
            if path in here.files
            and (self._seen.is_settled(path, here) or self._name_here(folders, path) == file.blob.partition(".")[0])
        }
        keep = frozenset(self._withheld.keys() - wanted.files.keys())
        size = folders.put(wanted, same, keep, self._log.blob)
        return sum(same.get(path) != file for path, file in wanted.files.items()), size

    def _set_aside(self, folders: SessionFolders, wanted: Content) -> list[str]:
        """Move what only this server has out of the way of what the store has."""
        here = folders.look()
        known = self._known.content.files
        own = [
            path
            for path in here.files
            if path not in self._withheld
            and not (path in known and self._seen.is_settled(path, here))
            and self._name_here(folders, path) not in {_name_in(known, path), _name_in(wanted.files, path)}
        ]
        moved = folders.set_aside(own, _aside_folder(self._known.number))
        # They are files of the session from now on, and saved with the next call.
        self._withheld |= dict.fromkeys(moved, "")
        return [path.removeprefix("work/") for path in moved]

    def _name_here(self, folders: SessionFolders, path: str) -> str:
        return content_name(folders.read(path), self._name_of)

    @property
    def _name_of(self) -> Callable[[bytes], str] | None:
        return self.store.sealer.name_of if self.store.sealer is not None else None

    def end(self, folders: SessionFolders, about: SessionStore) -> list[str]:
        """Save what changed and let others have the session. Blocks; never raises.

        Returns:
            Sentences for the model about what was not saved.
        """
        claim = self._claim
        if claim is None:
            return []
        began = time.monotonic()
        try:
            return self._save(folders, about, claim, began)
        except (StorageError, OSError) as error:
            message = error.strerror or str(error) if isinstance(error, OSError) else error.message
            self._unsaved = True
            self._end_life()
            about.tell(StoreReport("not_saved", seconds=time.monotonic() - began, problem=message))
            logger.error("The files of a session were not saved: %s", message)  # noqa: TRY400  # a sentence says it
            return [
                "The files could not be saved for other servers. They are in the working directory here, and are "
                "saved with the next call; until then they may be missing on another server."
            ]

    def _save(self, folders: SessionFolders, about: SessionStore, claim: Entry, began: float) -> list[str]:
        known, notes = self._known, list[str]()
        here = folders.look()
        problem = self._too_much(about, here)
        if problem:
            content: Content | None = None
            sent, size, kept = 0, 0, False
            notes.append(problem)
            about.tell(StoreReport("not_saved", problem=problem))
            logger.warning("The files of a session were not saved: %s", problem)
        else:
            found, sent, size, withheld = self._send(folders, here, about, claim.number)
            notes += self._tell_withheld(withheld, about)
            facts = dict(self.facts)
            if about.secrets is not None and about.secrets.found_in(repr(facts).encode()) is not None:
                facts = {}
            found = replace(found, facts=facts)
            content, kept = (None if found == known.content else found), True
        entry = new_entry(claim.id, claim.number, "saved", known.base, "", claim.owner, content)
        created = self._log.create(entry)
        numbers = self._log.numbers()
        if not created or not self._has_won(numbers, claim, entry):
            return [*notes, self._lose(about, entry if created else None)]
        self._known.number, self._known.newest = entry.number, replace(entry, content=None)
        self._let_go()
        self._unsaved = not kept
        if kept:
            self._seen = here
        if content is not None:
            self._known = _Known(entry.number, self._known.newest, entry.number, known.base, content, known.content)
            about.tell(StoreReport("saved", sent, size, time.monotonic() - began))
            self._sent += size
            self._saves += 1
            if self._saves >= _PRUNE_EVERY or self._sent > max(_PRUNE_BYTES, content.size):
                self._prune(entry.number)
        return notes

    def _too_much(self, about: SessionStore, here: Seen) -> str:
        """Why the files are not saved for their size; empty when they are."""
        size, count = sum(stamp.size for stamp in here.files.values()), len(here.files) + len(here.folders)
        most = self._most(about)
        if most is not None and size > most:
            return (
                f"The session's files have {size:,} bytes, and at most {most:,} are saved for other servers, so this "
                "call's files were not saved. Delete what you do not need."
            )
        if count > MAX_ENTRIES:
            return (
                f"The session has {count:,} files and folders, and at most {MAX_ENTRIES:,} are saved for other "
                "servers, so this call's files were not saved. Delete what you do not need."
            )
        return ""

    def _most(self, about: SessionStore) -> int | None:
        return self.store.max_bytes if self.store.max_bytes is not None else about.most_bytes

    def _send(
        self, folders: SessionFolders, here: Seen, about: SessionStore, number: int
    ) -> tuple[Content, int, int, dict[str, str]]:
        """Write the blobs of new content; all files now, how many were sent, their bytes, and what was withheld."""
        known = self._known.content.files
        name_of = self._name_of
        blobs = {file.blob.partition(".")[0]: file.blob for file in known.values()}
        files: dict[str, StoredFile] = {}
        withheld: dict[str, str] = {}
        sent: dict[str, int] = {}
        search = None
        if about.secrets is not None:
            from adk_skills_agent.sandbox import FileSearch  # with it comes asyncio, which a plan does without

            search = FileSearch(about.secrets)  # for all of them: it has an end (row 361)

        def one(path: str) -> None:
            stamp = here.files[path]
            data = folders.read(path)
            reason = None if search is None else search.withheld(path.encode("utf-8", "surrogateescape"), data)
            if reason is not None:
                withheld[path] = reason
                return
            digest = content_name(data, name_of)
            blob = blobs.get(digest)
            if blob is None:
                blob = f"{digest}.{number}"
                self._log.put_blob(blob, data)
                sent[blob] = len(data)
            files[path] = StoredFile(blob, len(data), stamp.executable, stamp.modified_ns)

        changed: list[str] = []
        for path in here.files:
            if path in known and self._seen.is_settled(path, here):
                files[path] = known[path]
            else:
                changed.append(path)
        small = [path for path in changed if here.files[path].size <= _LARGE_BYTES]
        if len(small) > 2:
            with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
                list(pool.map(one, small))
        else:
            for path in small:
                one(path)
        for path in changed:
            if here.files[path].size > _LARGE_BYTES:
                one(path)
        ordered = {path: files[path] for path in sorted(files)}
        folders_sent = here.folders
        if about.secrets is not None:  # their names are stored, too
            names = ((path, path.encode("utf-8", "surrogateescape")) for path in here.folders)
            folders_sent = frozenset(path for path, name in names if about.secrets.found_in(name) is None)
        return Content(ordered, folders_sent), len(sent), sum(sent.values()), withheld

    def _tell_withheld(self, withheld: Mapping[str, str], about: SessionStore) -> list[str]:
        new = {path: reason for path, reason in withheld.items() if self._withheld.get(path) != reason}
        self._withheld = dict(withheld)
        shown_as = {path: path.partition("/")[2] for path in new}
        if about.secrets is not None:  # the name itself may be it
            shown_as = {path: about.secrets.text(shown) for path, shown in shown_as.items()}
        for path, reason in new.items():
            problem = (
                f"{shown_as[path]!r} is not saved and stays on this server alone: {reason}. "
                "Have the script write it elsewhere, or without the secret."
            )
            about.tell(StoreReport("withheld", problem=problem))
            logger.warning("%s", problem)
        if not new:
            return []
        shown = ", ".join(f"'{shown_as[path]}'" for path in list(new)[:_TOLD_FILES])
        return [f"{shown} may hold a secret of the application, so it is not saved and may be missing in a later call."]

    def _has_won(self, numbers: list[int], claim: Entry, entry: Entry) -> bool:
        """Whether an entry that was created is the log's: a log may have been removed, or gone on without it."""
        if numbers and numbers[-1] == entry.number:
            return claim.number in numbers
        after = self._log.entry(entry.number + 1) if entry.number + 1 in numbers else None
        return after is not None and after.before == entry.id

    def _lose(self, about: SessionStore, stray: Entry | None) -> str:
        if stray is not None:
            self._log.remove_entry(stray.number)
        self._let_go()
        self._unsaved = True
        problem = (
            f"Another server took over the session {self._log.name} before this call had ended, so the call's files "
            "were not saved. Give WorkspaceStore a longer lease_seconds if this server was only slow."
        )
        about.tell(StoreReport("lost", problem=problem))
        logger.error("%s", problem)
        return (
            "Another server took this session over before this call had ended. Its files were not saved; look at what "
            "is there before you go on."
        )

    def _let_go(self) -> None:
        self._end_life()
        self._claim = None

    def _end_life(self) -> None:
        if self._life is not None:
            self._life.end()
            self._life = None

    def _prune(self, number: int) -> None:
        known = self._known
        keep = {file.blob for content in (known.content, known.previous_content) for file in content.files.values()}
        try:
            self._log.prune(known.previous or known.base, frozenset(keep), number)
        except StorageError as error:
            logger.warning("What a session no longer needs was not removed from the store: %s", error.message)
            return
        self._saves = self._sent = 0


_MOST_RACES = 5


def _name_in(files: Mapping[str, StoredFile], path: str) -> str:
    return files[path].blob.partition(".")[0] if path in files else ""


def _aside_folder(number: int) -> str:
    return f"unsaved-{number}"
