"""One workspace per session: files a script leaves are there for the session's next script (row E10).

A workspace is a private folder of the host that a sandbox copies in before a run and updates after it. Two runs of one
session take turns, from whatever thread or event loop; different sessions never wait for each other. All agents of a
session share its workspace; it is deleted when the last toolset that used it is closed, and by the next agent when
this one is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adk_skills_agent.errors import SandboxError, WorkspaceUnavailable
from adk_skills_agent.platforms import (
    LEAST_FREE_BYTES,
    LEAST_FREE_ENTRIES,
    after_fork_in_child,
    entries_left,
    room_left,
)
from adk_skills_agent.recent import Recent
from adk_skills_agent.sandbox import (
    MAX_WAITING,
    WHOSE,
    OnePerProcess,
    Semaphore,
    of_who_has_most,
    remove_tree,
    temporary_folder,
    uninterrupted,
)
from adk_skills_agent.scripts.plan import share_of, user_of_key

if TYPE_CHECKING:
    from adk_skills_agent.scripts.stored_files import SessionFolders
    from adk_skills_agent.scripts.stored_workspace import SessionStore, StoredWorkspace

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

MAX_WORKSPACES = 256
IDLE_SECONDS = 3600.0
_ONE_SESSION = ("", "")  # a workspace is one session's, so all who wait for it are the same user and session
_MEASURED_SECONDS, _MEASURING_SECONDS = 30.0, 0.25
_REMEMBERED_LOSSES = 10_000  # sessions that came and went; only to tell a model that its files are gone


@dataclass(slots=True)
class _Workspace:
    key: str
    used: float
    path: Path | None = None
    users: int = 0
    openers: int = 0
    turn: Semaphore = field(default_factory=lambda: Semaphore(1, most_waiting=MAX_WAITING))
    owners: set[int] = field(default_factory=set)
    kept_in: Path | None = None
    stored: StoredWorkspace | None = None
    doomed: bool = False
    making: threading.Lock = field(default_factory=threading.Lock)
    usage: Usage = field(default_factory=lambda: Usage(0, 0))  # when somebody looked last, at ``measured``
    measured: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionWorkspace:
    """A workspace while a run has it."""

    path: Path  # the folder on the host
    spill: Path  # Where the full text of long output goes. It is not made: most runs need none. Deleted with the claim.
    note: str | None = None  # a sentence for the model when files of earlier runs are gone; else None

    @property
    def tmp(self) -> Path:
        """The folder for the session's ``/tmp``, beside the workspace. Not created here: most sessions need none."""
        return _tmp_of(self.path)

    @property
    def skills(self) -> Path:
        """The place of skill folders that runs have written to. Not created here: most sessions need none."""
        return _skills_of(self.path)


class WorkspaceClaim:
    """A run's claim to the workspace of its session. Nothing of it is on the disk before :meth:`open`."""

    def __init__(self, workspaces: SessionWorkspaces, workspace: _Workspace, store: SessionStore | None = None) -> None:
        self._workspaces = workspaces
        self._workspace = workspace
        self._store = store
        self._opened: SessionWorkspace | None = None
        self._ended = False
        self.notes: list[str] = []
        """Sentences for the model about files that were fetched from, or not saved in, the session's store."""

    def open(self) -> SessionWorkspace:
        """The folder, made when it is missing; the same one however often it is asked for. May block.

        Raises ``SandboxError`` when the folder cannot be made.
        """
        return self._opened or self._workspaces._open_folder(self)

    def turn(self, *, writes: bool = True, call: str = "") -> contextlib.AbstractAsyncContextManager[object]:
        """Have the folder alone; waits while another run of the session has it.

        With a store the files are those of the session's last call, on whatever server that was, and are saved at the
        end. What could not be done is in :attr:`notes`. ``call`` says in a few words what the turn is for: another
        server tells them when this one dies in it.

        Raises:
            TooManyRuns: On entering: too many runs of the session wait for it already.
            WorkspaceUnavailable: On entering: another server works on the session, or its store cannot be used.
        """
        # File work in the turn counts for whoever has it; all users would be one user without a name (row 450).
        own = self._workspace.turn.turn(WHOSE.get() or _ONE_SESSION)
        return own if self._store is None else _StoredTurn(self, self._store, writes=writes, call=call).within(own)

    @property
    def facts(self) -> dict[str, Any]:
        """What parts of the server remember of the session, for the next one. Read and set within a turn."""
        stored = self._workspace.stored
        return {name: json.loads(fact) for name, fact in stored.facts.items()} if stored is not None else {}

    def remember(self, name: str, fact: object) -> None:
        """Set one of :attr:`facts`, a JSON value; nothing happens without a store."""
        if self._workspace.stored is not None:
            self._workspace.stored.facts[name] = json.dumps(fact)

    def _folders(self) -> SessionFolders:
        from adk_skills_agent.scripts.stored_files import SessionFolders

        opened = self.open()
        return SessionFolders(opened.path, opened.tmp, opened.skills)


_POLL_SECONDS = 0.25
_STORING = 8
"""Sessions whose files are fetched or saved at a time; a user has a share of these places."""
_store_turns = Semaphore(_STORING, fair=True)
_store_threads = OnePerProcess(lambda: ThreadPoolExecutor(_STORING, thread_name_prefix="adk-skills-store"))
after_fork_in_child(_store_turns._reset)


class _StoredTurn:
    """A turn in which the files come from a store and go back there."""

    def __init__(self, claim: WorkspaceClaim, store: SessionStore, *, writes: bool, call: str) -> None:
        self._claim = claim
        self._store = store
        self._writes = writes
        self._call = call

    @contextlib.asynccontextmanager
    async def within(self, own: contextlib.AbstractAsyncContextManager[object]) -> AsyncIterator[None]:
        """Have it within the turn that the session's calls on this server take."""
        async with own:
            await self._begin()
            try:
                yield
            finally:
                await self._in_own_thread(self._end)

    async def _in_own_thread(self, work: Callable[[], _Result]) -> _Result:
        """Do what waits for the store, to its end: all tools of all users wait for the loop's own threads (row 304)."""
        owner = self._store.owner

        async def alone() -> _Result:
            async with _store_turns.turn(share_of(owner.app, owner.user, owner.session)):
                return await asyncio.get_running_loop().run_in_executor(_store_threads(), work)

        return await uninterrupted(alone())

    async def _begin(self) -> None:
        from adk_skills_agent.scripts.stored_workspace import Busy, StoreReport

        until = time.monotonic() + self._store.store.wait_seconds
        while True:
            try:
                self._claim.notes += await self._in_own_thread(self._begun)
            except Busy:
                if time.monotonic() >= until:
                    problem = (
                        "Another server works on the session, so this call was refused after "
                        f"{self._store.store.wait_seconds:g} seconds. Send the requests of a session one by one."
                    )
                    self._store.tell(StoreReport("busy", problem=problem))
                    raise WorkspaceUnavailable(
                        "Another call of this session is at work on another server, so nothing was started. Try again "
                        "when it has ended."
                    ) from None
            except asyncio.CancelledError:
                await self._in_own_thread(self._end)  # it may have the session already
                raise
            else:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _begun(self) -> list[str]:
        stored = self._claim._workspace.stored
        return stored.begin(self._claim._folders(), self._store, self._call, writes=self._writes) if stored else []

    def _end(self) -> None:
        stored = self._claim._workspace.stored
        if stored is not None and self._writes:
            self._claim.notes += stored.end(self._claim._folders(), self._store)


class SessionWorkspaces:
    """The workspaces of all sessions in this process.

    Beyond ``max_workspaces`` the least recently used idle one is deleted; one unused for ``idle_seconds`` is, when
    another session opens one. While the disk is nearly full, each that is opened costs idle ones of the users who have
    most of it, and a user whose sessions in use fill it gets no further one.
    """

    def __init__(self, *, max_workspaces: int = MAX_WORKSPACES, idle_seconds: float = IDLE_SECONDS) -> None:
        self._max = max_workspaces
        self._idle = idle_seconds
        self._reset()

    @contextlib.asynccontextmanager
    async def claim(
        self, key: str, owner: object = None, kept_in: Path | None = None, store: SessionStore | None = None
    ) -> AsyncIterator[WorkspaceClaim]:
        """The right to the folder of ``key``, for the length of one call; nothing blocks but deleting what was made.

        ``owner`` must be closed before the folder is deleted. ``kept_in`` is a folder of the owner's for workspaces
        that are never deleted: a session that goes on after a restart finds its files there. ``store`` keeps the files
        for other servers.
        """
        claim = WorkspaceClaim(self, self._claimed(key, id(owner), kept_in, store), store)
        try:
            yield claim
        finally:
            over = self._put_back(claim)
            if over:
                await asyncio.to_thread(_delete, *over)

    @contextlib.asynccontextmanager
    async def use(self, key: str, owner: object = None) -> AsyncIterator[SessionWorkspace]:
        """Claim the folder of ``key``, open it and wait for its turn.

        Raises ``SandboxError`` when it cannot be made or fetched.
        """
        async with self.claim(key, owner) as claim:
            opened = await asyncio.to_thread(claim.open)
            async with claim.turn():
                yield opened

    def close(self, owner: object = None) -> None:
        """Delete the workspaces that only ``owner`` used, those in use as soon as their run has ended."""
        with self._mutex:
            mine = [(key, found) for key, found in self._open.items() if id(owner) in found.owners]
            over: list[Path] = []
            for key, workspace in mine:
                workspace.owners.discard(id(owner))
                if workspace.owners:
                    continue
                del self._open[key]
                workspace.doomed = True
                if not workspace.users and workspace.path is not None and workspace.kept_in is None:
                    over.append(workspace.path)
        _delete(*over)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()  # for what is in memory: event loops wait for it
        self._making_root = threading.Lock()
        self._measuring = threading.Lock()
        self._open: dict[str, _Workspace] = {}
        self._leaving: dict[Path, Usage] = {}  # that are being deleted, and what they held
        self._lost: Recent[str, None] = Recent(_REMEMBERED_LOSSES)
        self._root: Path | None = None

    def _claimed(self, key: str, owner: int, kept_in: Path | None, store: SessionStore | None = None) -> _Workspace:
        """Only memory is touched, so that this may be done on an event loop."""
        if self._pid != os.getpid():
            self._reset()  # a forked child: the folders are its parent's
        now = time.monotonic()
        with self._mutex:
            workspace = self._open.get(key)
            if workspace is None:
                workspace = self._open[key] = _Workspace(key, now, kept_in=kept_in)
            workspace.users += 1
            workspace.owners.add(owner)
            if store is not None and workspace.stored is None:
                from adk_skills_agent.scripts.stored_workspace import StoredWorkspace

                workspace.stored = StoredWorkspace(store.store, key)
                if workspace.path is not None:
                    workspace.stored.start_with_files()
            workspace.used = now
        return workspace

    def _open_folder(self, claim: WorkspaceClaim) -> SessionWorkspace:
        workspace = claim._workspace
        try:
            with workspace.making:
                path, doomed = self._found_or_made(workspace)
        except OSError as error:
            raise SandboxError(f"The workspace of the session cannot be made: {error.strerror or error}.") from error
        self._remove(doomed)
        note = "The files that earlier scripts of this session left are gone; the working directory started empty."
        # Beside the workspaces, in a folder that only the owner may enter: nobody else can be there first.
        # A kept folder has none of it: nobody would delete what a killed agent left there.
        beside = os.path.dirname(path) if workspace.kept_in is None else self._root_folder()  # noqa: PTH120
        spill = Path(f"{beside}/spill-{os.urandom(8).hex()}")
        with self._mutex:
            lost = self._lost.pop(workspace.key, self) is None
            opened = SessionWorkspace(path, spill, note if lost and workspace.stored is None else None)
            if not claim._ended:  # its call may have been cancelled meanwhile
                workspace.openers += 1
                claim._opened = opened
        return opened

    def _found_or_made(self, workspace: _Workspace) -> tuple[Path, list[Path]]:
        """The folder, and folders that are to be deleted. One thread at a time for each workspace."""
        path = workspace.path
        root = self._root_folder()
        there = path is not None and (workspace.openers or os.path.isdir(path))  # noqa: PTH112
        full = workspace.kept_in is None and _may_be_full(root)
        room = self._make_room(workspace, new=not there) if full else []
        if path is not None and there:
            return path, room
        if workspace.kept_in is not None:
            made = workspace.kept_in / hashlib.sha256(workspace.key.encode()).hexdigest()[:32] / "work"
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
            made.parent.chmod(0o700)
        else:
            made = Path(tempfile.mkdtemp(dir=root))
        with self._mutex:
            if path is not None:
                logger.warning("the workspace of %s was deleted by somebody else", workspace.key)
                self._lost[workspace.key] = None
                if workspace.stored is not None:
                    workspace.stored.start_empty()
            doomed = [*room, *self._evict(time.monotonic())]
            workspace.path = made
            if (
                workspace.doomed and not workspace.users and workspace.kept_in is None
            ):  # the call was cancelled and the toolset closed meanwhile
                doomed.append(made)
                self._leaving[made] = workspace.usage
        return made, doomed

    def _root_folder(self) -> Path:
        with self._making_root:
            if self._root is None or not self._root.is_dir():
                self._root, _ = temporary_folder("sessions", self)
            return self._root

    def _make_room(self, opener: _Workspace, *, new: bool) -> list[Path]:
        """Forget idle workspaces of the users who have most of a disk, if it is nearly full (row 158). Blocks.

        A disk is full of bytes or of files, however small these are (row 423).
        """
        root = self._root_folder()
        bytes_room = self._make_room_of(*room_left(root), lambda usage: usage.size, opener, new=new)
        try:
            return bytes_room + self._make_room_of(*entries_left(root), lambda usage: usage.entries, opener, new=new)
        except SandboxError:
            self._remove(bytes_room)
            raise

    def _make_room_of(
        self, left: int, kept: int, amount: Callable[[Usage], int], opener: _Workspace, *, new: bool
    ) -> list[Path]:
        """The same for one of both.

        At most a quarter of them for each that is opened, and only of users whose part is an average one and no trifle:
        the files of the others are not what fills it (row 410). Raises ``SandboxError`` when ``new`` is one more of a
        user whose sessions in use fill it.
        """
        with self._mutex:
            left += sum(map(amount, self._leaving.values()))
            if left >= 0:
                return []
            there = [(key, found) for key, found in self._open.items() if found.path is not None and not found.kept_in]
        self._measure([found for _, found in there])
        held: Counter[str] = Counter()
        for key, found in there:
            held[user_of_key(key)] += amount(found.usage)
        average = max(held.total() / max(1, len(held)), kept / 64)
        doomed: list[Path] = []
        idle = sorted((it for it in there if amount(it[1].usage) and it[1] is not opener), key=lambda it: it[1].used)
        with self._mutex:
            idle = [(key, found) for key, found in idle if not found.users and self._open.get(key) is found]
            going = of_who_has_most(idle, lambda it: user_of_key(it[0]), held, lambda it: amount(it[1].usage))
            for key, found in islice(going, 1 + len(idle) // 4):
                size = amount(found.usage)
                if left >= 0 or held[user_of_key(key)] + size < average:
                    break
                left += size
                doomed += self._forgotten(key, found)
        if doomed:
            logger.warning("the disk is nearly full: %d idle workspaces of sessions are deleted", len(doomed))
        user = user_of_key(opener.key)
        busy = sum(amount(found.usage) for key, found in there if found.users and user_of_key(key) == user)
        if new and left < 0 and busy >= max(kept, average):
            self._remove(doomed)
            raise SandboxError(
                "The disk for the files of sessions is nearly full, and other sessions of this user, whose scripts are "
                "running, have most of it. Nothing was started. Try again when they have ended, or tell the user."
            )
        return doomed

    def _measure(self, workspaces: list[_Workspace]) -> None:
        """Look at what they hold with all that is beside them, at those first that nobody has looked at for longest.

        Only for a moment and in one thread at a time, because there may be a million files (row 431); what is not
        looked at counts as before. One in use is looked at anew after a while.
        """
        if not self._measuring.acquire(blocking=False):
            return
        try:
            until = time.monotonic() + _MEASURING_SECONDS
            for workspace in sorted(workspaces, key=lambda one: one.measured):
                path, now = workspace.path, time.monotonic()
                if now > until:
                    return
                fresh = workspace.measured > (now - _MEASURED_SECONDS if workspace.users else workspace.used)
                if path is not None and not fresh:
                    found = [usage_of(place) for place in (path, _tmp_of(path), _skills_of(path))]
                    workspace.usage = Usage(sum(place.size for place in found), sum(place.entries for place in found))
                    workspace.measured = time.monotonic()
        finally:
            self._measuring.release()

    def _evict(self, now: float) -> list[Path]:
        """Forget idle workspaces that are too many or too old; their folders are the caller's to delete.

        Those in use, but the one that is opened, are no reason for it: the calls of one user may be in more of them
        than all users together may leave idle (row 446).
        """
        idle = sorted((item for item in self._open.items() if not item[1].users), key=lambda item: item[1].used)
        # Of the users with the most, their oldest (row 81).
        going = of_who_has_most([key for key, _ in idle], user_of_key, Counter(map(user_of_key, self._open)))
        too_many = set(islice(going, max(len(idle) + 1 - self._max, 0)))
        doomed: list[Path] = []
        for key, workspace in idle:
            if key in too_many or now - workspace.used > self._idle:
                doomed += self._forgotten(key, workspace)
        return doomed

    def _forgotten(self, key: str, workspace: _Workspace) -> list[Path]:
        """Forget an idle workspace; its folder, if it is to be deleted. The lock is held."""
        logger.info("the workspace of %s was idle and is deleted", key)
        if workspace.stored is not None and workspace.stored.unsaved:
            logger.warning("the workspace of %s had files that its store does not have", key)
        del self._open[key]
        workspace.doomed = True
        if workspace.path is None or workspace.kept_in is not None:
            return []
        self._lost[key] = None
        self._leaving[workspace.path] = workspace.usage
        return [workspace.path]

    def _remove(self, folders: list[Path]) -> None:
        """Delete folders in a thread of its own, one after the other: whoever opens a session waits for nobody's.

        One may have 20,000 folders, which take a disk ten seconds (row 449).
        """

        def remove() -> None:
            for folder in folders:
                _delete(folder)
                with self._mutex:
                    self._leaving.pop(folder, None)

        if folders:
            try:
                _removal().submit(remove)
            except RuntimeError:  # the interpreter is shutting down
                remove()

    def _put_back(self, claim: WorkspaceClaim) -> list[Path]:
        """End a claim; the folders that are to be deleted now."""
        workspace = claim._workspace
        with self._mutex:
            claim._ended = True
            opened = claim._opened
            workspace.users -= 1
            workspace.openers -= opened is not None
            workspace.used = time.monotonic()
            ended = workspace.doomed and not workspace.users and workspace.kept_in is None
        over = [workspace.path] if ended and workspace.path is not None else []
        # One look at a folder in memory or in the page cache is cheaper than a thread that finds nothing to delete.
        return [*over, opened.spill] if opened is not None and os.path.lexists(opened.spill) else over


SHARED_WORKSPACES = SessionWorkspaces()
"""The workspaces of this process: several agents of one session must see the same files."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The size of a folder: bytes as a file system in memory counts them, and the number of files and folders."""

    size: int
    entries: int

    def has_room(self, most_bytes: int | None, most_entries: int | None, data: bytes) -> bool:
        """Whether one more file of this content fits below the limits."""
        fits = most_bytes is None or self.size + in_pages(len(data)) <= in_pages(most_bytes)
        return fits and (most_entries is None or self.entries + 1 <= most_entries)


def usage_of(root: Path, *, but: str = "") -> Usage:
    """The content of a folder. Blocks.

    ``but`` is the relative path of a file that does not count, because it is about to be replaced.
    """
    total, entries, left_out = 0, 0, f"{root}/{but}"
    for folder, folders, files in os.walk(root):
        entries += len(folders) + len(files)
        for name in files:
            path = f"{folder}/{name}"
            if path == left_out:
                entries -= 1
                continue
            with contextlib.suppress(FileNotFoundError):
                total += in_pages(os.lstat(path).st_size)
    return Usage(total, entries)


_PAGE_BYTES = 4096


def in_pages(size: int) -> int:
    """A file's size as a file system in memory counts it."""
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES


def _may_be_full(folder: Path) -> bool:
    """Whether a disk has so little left that it is worth a look; it may also be a small one."""
    return shutil.disk_usage(folder)[2] < LEAST_FREE_BYTES or os.statvfs(folder).f_favail < LEAST_FREE_ENTRIES


def _tmp_of(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}-tmp")


def _skills_of(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}-skills")


_removal = OnePerProcess(lambda: ThreadPoolExecutor(1, thread_name_prefix="adk-skills-removal"))


def _delete(*folders: Path) -> None:
    for folder in folders:
        for each in (folder, _tmp_of(folder), _skills_of(folder)):
            remove_tree(str(each))  # of any depth, where shutil.rmtree breaks; what stays is logged
