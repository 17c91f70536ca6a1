"""The log of a session in a store: who works on its files, and what they were after each call.

Each session has a log of numbered entries. An entry is *created*, never replaced, and of several servers that create
the same number one succeeds: that is the fence. A server claims the session before a call (a claim is an entry), and
saves it afterwards (so is what was saved): its new files first, as objects named by their content, the entry that lists
all files last. A server that lost its claim finds its number taken, and overwrites nothing.

Clocks of two servers are never compared. A claim is over when its server shows no sign of life for ``lease_seconds`` by
the clock of the one that waits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.errors import ConfigError, StorageDamaged, StorageError
from adk_skills_agent.sandbox import Secret
from adk_skills_agent.scripts.stored_files import MAX_ENTRIES, Content, StoredFile, verified
from adk_skills_agent.settings import parsed_json
from adk_skills_agent.storage import ObjectStore, Sealer, open_objects
from adk_skills_agent.storage.sealing import SEAL_BYTES, is_sealed

_FORMAT = 1
_SESSION = re.compile(r"[0-9a-f]{32}")
_NUMBER = re.compile(r"[0-9]{12}")
_MOST_ENTRY_BYTES = 64 << 20
_MOST_VALUES = 8 * MAX_ENTRIES
"""An empty list takes 20 times as much memory as in JSON; an entry has six values for each file."""
_MOST_LIFE_BYTES = 1_024
_MOST_CALL_CHARS = 200
"""It is told to the model of the next server."""
_BEATS = 3
"""Signs of life in the time after which a claim is over."""
_MOST_LEASE_SECONDS = 86_400.0
"""A session whose server died waits for so long."""
_MOST_SAVED = 2.0**35
"""In the year 3058, which a date can have."""
_MOST_WAIT_SECONDS = 600.0
"""A collection waits for all sessions together until it knows whose server is dead: one must not stop it for a day."""

Key = bytes | str | Secret


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose files they are, for the operator's lists."""

    app: str = ""
    user: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a session's log."""

    number: int  # its place; also the fencing token of a claim
    id: str  # made up when it was written, so that nobody takes another's for their own
    before: str  # the id of the entry before it
    kind: str  # ``claim`` or ``saved``
    holder: str  # the server that wrote it
    base: int  # the number of the entry that lists the files; its own when it does
    # When, in seconds since 1970, by the clock of its server. Only for people, and for how long it is kept.
    saved: float
    call: str = ""  # what a claim is for; of a saved entry, the call that was cut off before it, or empty
    owner: Owner = field(default_factory=Owner)
    # Of a claim: after so many seconds without a sign of life its server is dead. Servers may be set differently; who
    # waits goes by the longer one.
    lease: float = 0.0
    content: Content | None = None  # the files, when this entry lists them

    def to_bytes(self) -> bytes:
        """For the store. Raises ``StorageError`` when it is larger than any that is read."""
        value: dict[str, object] = {
            "format": _FORMAT,
            "id": self.id,
            "before": self.before,
            "kind": self.kind,
            "holder": self.holder,
            "base": self.base,
            "saved": self.saved,
            "call": self.call,
            "lease": self.lease,
            "owner": [self.owner.app, self.owner.user, self.owner.session],
        }
        if self.content is not None:
            value["content"] = self.content.to_json()
        text = json.dumps(value).encode()
        if len(text) > _MOST_ENTRY_BYTES:
            raise StorageError("The names of the session's files are too long together for its entry in the store.")
        return zlib.compress(text, 1)

    @classmethod
    def from_bytes(cls, number: int, data: bytes) -> Entry:
        """The reverse.

        Raises ``ValueError`` when it is damaged, or ``StorageError`` when it is of another version of this package.
        """
        unpack = zlib.decompressobj()
        try:
            text = unpack.decompress(data, _MOST_ENTRY_BYTES)
        except zlib.error:
            raise ValueError("it is damaged") from None
        if unpack.unconsumed_tail or not unpack.eof:
            raise ValueError("it is damaged, or larger than any that is written")
        value: Any = parsed_json(text, _MOST_VALUES)
        if isinstance(value, dict) and isinstance(value.get("format"), int) and value["format"] != _FORMAT:
            raise StorageError(
                "The session was saved by another version of adk-skills-runtime. Run one version on all servers."
            )
        try:
            app, user, session = map(str, value["owner"])
            content = value.get("content")
            base, saved, lease = int(value["base"]), float(value["saved"]), float(value["lease"])
            if not (0 <= base <= number and 0 <= saved < _MOST_SAVED and 0 <= lease <= _MOST_LEASE_SECONDS):
                raise ValueError("it has a time or a number that cannot be")
            return cls(
                number,
                str(value["id"]),
                str(value["before"]),
                str(value["kind"]),
                str(value["holder"]),
                base,
                saved,
                str(value["call"])[:_MOST_CALL_CHARS],
                Owner(app, user, session),
                lease,
                Content.from_json(content) if content is not None else None,
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"it has another form ({type(error).__name__}: {error})") from error


def session_name(key: str) -> str:
    """The folder of a session in a store, from its key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def this_server() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{_ONE_START}"


_ONE_START = os.urandom(6).hex()


class WorkspaceStore:
    """Where the files of sessions are kept, so that the next request of a session may reach another server.

    Args:
        url: A folder that all servers have mounted, or a URL of fsspec: ``s3://bucket/prefix``, ``gs://...``,
            ``abfs://...``, ``memory://...`` (one process, for tests); or an object store.
        key: Encrypts everything that is stored (AES-256-GCM): 32 bytes as 64 hexadecimal digits or base64, best as
            ``Secret.from_env(...)``. A list of keys seals with the first and opens with all. None stores it as it is.
        max_bytes: Most bytes of one session. None takes what the policy allows its folders.
        lease_seconds: A server that shows no sign of life for so long has lost its claim; a day at most.
        wait_seconds: How long a call waits for another server's call of the same session before it is refused.
        options: For fsspec's file system: credentials, endpoints.

    Raises:
        ConfigError: There is no such store, or a value cannot be used.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | ObjectStore,
        *,
        key: Key | Sequence[Key] | None = None,
        max_bytes: int | None = None,
        lease_seconds: float = 15.0,
        wait_seconds: float = 30.0,
        **options: Any,
    ) -> None:
        for name, value, least in (("lease_seconds", lease_seconds, 0.1), ("wait_seconds", wait_seconds, 0.0)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
                raise ConfigError(f"WorkspaceStore: {name} must be a number from {least} on, not {value!r}.")
        if lease_seconds > _MOST_LEASE_SECONDS:
            raise ConfigError(
                f"WorkspaceStore: lease_seconds must be at most {_MOST_LEASE_SECONDS:g}, not {lease_seconds!r}."
            )
        if max_bytes is not None and (isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0):
            raise ConfigError(
                f"WorkspaceStore: max_bytes must be a whole number from 0 on, or None, not {max_bytes!r}."
            )
        self.objects = url if isinstance(url, ObjectStore) else open_objects(url, **options)
        self.sealer = Sealer(_keys(key)) if key is not None else None
        self.max_bytes = max_bytes
        self.lease_seconds = float(lease_seconds)
        self.wait_seconds = float(wait_seconds)
        self._checked = False
        self._checking = threading.Lock()

    def __repr__(self) -> str:
        sealed = ", encrypted" if self.sealer is not None else ""
        return f"WorkspaceStore({self.objects.shown!r}{sealed})"

    def ready(self) -> None:
        """Ask the store once whether it can keep two servers apart. Blocks.

        Raises:
            ConfigError: It cannot.
            StorageError: It does not answer, or is read-only.
        """
        with self._checking:
            if not self._checked:
                self.objects.check()
                self._checked = True

    def log(self, key: str) -> SessionLog:
        """The log of the session with this key."""
        return SessionLog(self, session_name(key))

    def logs(self) -> Iterator[SessionLog]:
        """The logs of all sessions. Blocks.

        Raises:
            StorageError: The store does not answer.
        """
        for name in self.objects.folders():
            if _SESSION.fullmatch(name):
                yield SessionLog(self, name)


def _keys(key: Key | Sequence[Key]) -> list[bytes | str]:
    given = [key] if isinstance(key, (bytes, str, Secret)) else list(key)
    return [one.reveal() if isinstance(one, Secret) else one for one in given]


def workspace_store_of(value: object) -> WorkspaceStore | None:
    """The setting ``workspace_store`` of a toolset: None, a folder, a URL, or a store.

    Raises ``ConfigError`` when it is something else, or cannot be opened.
    """
    if value is None or isinstance(value, WorkspaceStore):
        return value
    if isinstance(value, (str, os.PathLike, ObjectStore)):
        return WorkspaceStore(value)
    raise ConfigError(
        "workspace_store must be a folder, a URL such as s3://bucket/prefix, WorkspaceStore(...), or an artifact "
        f"service of google-adk, not {type(value).__name__}."
    )


class SessionLog:
    """The log of one session. Every method blocks and may raise :class:`StorageError`."""

    def __init__(self, store: WorkspaceStore, name: str) -> None:
        self.store = store
        self._objects = store.objects
        self.name = name

    def numbers(self) -> list[int]:
        """The entries there are, oldest first."""
        return sorted(int(name) for name in self._objects.names(f"{self.name}/log") if _NUMBER.fullmatch(name))

    def entry(self, number: int) -> Entry | None:
        """An entry; None when there is none."""
        name = self._entry_name(number)
        data = self._objects.read(name, _MOST_ENTRY_BYTES)
        if data is None:
            return None
        try:
            return Entry.from_bytes(number, self._opened(name, data))
        except (ValueError, RecursionError) as error:
            raise StorageDamaged(f"{self._objects.shown}: {name} cannot be read: {error}.") from error

    def create(self, entry: Entry) -> bool:
        """Write an entry; False when the number is taken."""
        name = self._entry_name(entry.number)
        return self._objects.create(name, self._sealed(name, entry.to_bytes()))

    def put_blob(self, blob: str, data: bytes) -> None:
        """Write the bytes of a file."""
        name = self._blob_name(blob)
        self._objects.write(name, self._sealed(name, data))

    def blob(self, file: StoredFile) -> bytes:
        """The bytes of a file, verified."""
        name = self._blob_name(file.blob)
        # A store may have no range of an object of no bytes.
        data = self._objects.read(name, file.size + SEAL_BYTES) if file.size or self.store.sealer else b""
        sealer = self.store.sealer
        opened = self._opened(name, data) if data is not None else None
        return verified(opened, file, sealer.name_of if sealer is not None else None)

    def show_life(self, number: int) -> None:
        """Say that the server with this claim still works."""
        self._objects.write(f"{self.name}/alive/{number:012d}", os.urandom(8).hex().encode())

    def life(self, number: int) -> bytes | None:
        """What the holder of a claim wrote last as a sign of life; only whether it changes means something."""
        return self._objects.read(f"{self.name}/alive/{number:012d}", _MOST_LIFE_BYTES)

    def last_saved(self, numbers: Sequence[int], problems: list[str]) -> Entry | None:
        """The newest entry that can be read and lists the files; what is damaged is added to ``problems``."""
        left = list(numbers)
        while left:
            number = left.pop()
            try:
                entry = self.entry(number)
            except StorageDamaged as error:
                problems.append(error.message)
                continue
            if entry is None:
                continue
            if entry.content is not None:
                return entry
            if entry.base == 0:
                return None
            left = [one for one in left if one <= entry.base]
        return None

    def prune(self, before: int, keep: frozenset[str], until: int) -> tuple[int, int]:
        """Remove what no entry that stays needs.

        Only blobs that came with entries up to ``until`` go: later ones are another server's. Returns how many objects
        went, and their bytes.
        """
        doomed: dict[str, int] = {}
        for folder in ("log", "alive", "blobs"):
            self._objects.sweep(f"{self.name}/{folder}")
        for folder in ("log", "alive"):
            found = self._objects.names(f"{self.name}/{folder}")
            doomed |= {f"{self.name}/{folder}/{name}": size for name, size in found.items() if _before(name, before)}
        for blob, size in self._objects.names(f"{self.name}/blobs").items():
            number = blob.rpartition(".")[2]
            if blob not in keep and number.isdigit() and int(number) <= until:
                doomed[self._blob_name(blob)] = size
        self._objects.delete(doomed)
        return len(doomed), sum(doomed.values())

    def remove_entry(self, number: int) -> None:
        """Remove an entry that never was the log's."""
        self._objects.delete([self._entry_name(number)])

    def remove(self) -> int:
        """Remove everything of the session, its log last; return how many objects that were."""
        count = 0
        for folder in ("blobs", "alive", "log"):
            self._objects.sweep(f"{self.name}/{folder}", 0.0)
            names = [f"{self.name}/{folder}/{name}" for name in self._objects.names(f"{self.name}/{folder}")]
            self._objects.delete(names)
            count += len(names)
        self._objects.remove_folders(self.name)
        return count

    def usage(self) -> int:
        """Bytes of all its objects."""
        return sum(sum(self._objects.names(f"{self.name}/{folder}").values()) for folder in ("blobs", "log"))

    def _entry_name(self, number: int) -> str:
        return f"{self.name}/log/{number:012d}"

    def _blob_name(self, blob: str) -> str:
        return f"{self.name}/blobs/{blob}"

    def _sealed(self, name: str, data: bytes) -> bytes:
        return self.store.sealer.seal(name, data) if self.store.sealer is not None else data

    def _opened(self, name: str, data: bytes) -> bytes:
        if self.store.sealer is not None:
            return self.store.sealer.open(name, data)
        if is_sealed(data):
            raise StorageError(
                f"{self._objects.shown} is encrypted. Give its key: WorkspaceStore(url, key=...), or the variable "
                "ADK_SKILLS_WORKSPACE_KEY of adk-skills workspaces."
            )
        return data


def _before(name: str, number: int) -> bool:
    return bool(_NUMBER.fullmatch(name)) and int(name) < number


# What an operator sees and does: `adk-skills workspaces`.


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session in a store."""

    name: str  # its folder there
    owner: Owner
    files: int
    size: int
    stored: int  # bytes of its objects in the store, earlier versions among them
    # when it was last written, in seconds since 1970, by the clock of that server; None if nobody knows
    saved: float | None
    holder: str = ""  # the server that works on it or did not end; empty when none does
    problem: str = ""  # why it cannot be read, or empty

    def to_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "session": self.name,
            "app": self.owner.app,
            "user": self.owner.user,
            "session_id": self.owner.session,
            "files": self.files,
            "bytes": self.size,
            "stored_bytes": self.stored,
            "saved": self.saved,
            "holder": self.holder,
            "problem": self.problem,
        }


def stored_session(log: SessionLog) -> StoredSession:
    """What a store has of one session. Blocks. Raises ``StorageError`` when the store does not answer."""
    numbers = log.numbers()
    problems: list[str] = []
    saved = log.last_saved(numbers, problems)
    newest: Entry | None = None
    if numbers:
        with contextlib.suppress(StorageDamaged):
            newest = log.entry(numbers[-1])
    known = newest or saved
    content = saved.content if saved is not None and saved.content is not None else Content()
    return StoredSession(
        log.name,
        known.owner if known is not None else Owner(),
        len(content.files),
        content.size,
        log.usage(),
        known.saved if known is not None else None,
        newest.holder if newest is not None and newest.kind == "claim" else "",
        problems[0] if problems else "",
    )


@dataclass(slots=True)
class Collected:
    """What a collection did."""

    removed: list[str] = field(default_factory=list)  # sessions that were older than asked for, and are gone
    objects: int = 0  # objects that nothing needed any more, and are gone
    freed: int = 0  # bytes of both
    busy: list[str] = field(default_factory=list)  # sessions that were left alone, because a server works on them
    # sentences about sessions that cannot be read; they are left alone
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "removed": self.removed,
            "objects": self.objects,
            "freed_bytes": self.freed,
            "busy": self.busy,
            "problems": self.problems,
        }


def collect_garbage(store: WorkspaceStore, older_than: float | None = None) -> Collected:
    """Remove sessions nobody used for long, and in the others what no entry needs. Blocks.

    ``older_than`` is in seconds; None removes no session. A session from the future, by a clock that is wrong, stays,
    and so does one that a server has for longer than ten minutes, and than ``lease_seconds``, without a sign of life.
    Raises ``StorageError`` when the store does not answer.
    """
    done = Collected()
    busy: list[tuple[SessionLog, Life]] = []
    for log in store.logs():
        life = _collect_guarded(log, older_than, done, None)
        if life is not None:
            busy.append((log, life))
    most = max(store.lease_seconds, _MOST_WAIT_SECONDS)
    if any(life.lease <= most for _, life in busy):
        # A server that works shows it meanwhile.
        time.sleep(max(store.lease_seconds, *(life.lease for _, life in busy if life.lease <= most)))
    for log, life in busy:
        if life.lease > most or _collect_guarded(log, older_than, done, life) is not None:
            done.busy.append(log.name)
    return done


def _collect_guarded(log: SessionLog, older_than: float | None, done: Collected, dead: Life | None) -> Life | None:
    try:
        before = log.usage()
        life = _collect_one(log, older_than, done, dead)
        done.freed += max(before - log.usage(), 0)
    except StorageError as error:
        done.problems.append(f"{log.name}: {error.message}")
        return None
    return life


def _collect_one(log: SessionLog, older_than: float | None, done: Collected, dead: Life | None) -> Life | None:
    with claimed(log, "adk-skills workspaces gc", dead) as claim:
        if isinstance(claim, Life):
            return claim
        entry, numbers = claim.entry, claim.numbers
        if older_than is not None and time.time() - claim.last_used > older_than:
            log.remove()
            done.removed.append(log.name)
            return None
        keep_from, blobs = entry.number, set[str]()
        earlier = [number for number in numbers if number < entry.number]
        problems: list[str] = []
        for _ in range(2):  # the last two that were saved
            kept = log.last_saved(earlier, problems)
            if kept is None or kept.content is None:
                break
            keep_from = kept.number
            blobs |= {file.blob for file in kept.content.files.values()}
            earlier = [number for number in earlier if number < kept.number]
        if problems:
            raise StorageError(problems[0])
        objects, _ = log.prune(keep_from, frozenset(blobs), entry.number - 1)
        done.objects += objects
    return None


def remove_session(store: WorkspaceStore, name: str) -> bool:
    """Remove a session. Blocks, for ``lease_seconds`` where a server has it and may be dead.

    Returns False when a server works on it; nothing was removed. Raises ``StorageError`` when there is no such
    session, or the store refuses.
    """
    log = SessionLog(store, name)
    if not _SESSION.fullmatch(name) or not log.numbers():
        raise StorageError(f"{store.objects.shown} has no session {name[:60]!r}; adk-skills workspaces ls lists them.")
    dead: Life | None = None
    for _ in range(2):
        with claimed(log, "adk-skills workspaces rm", dead) as claim:
            if not isinstance(claim, Life):
                log.remove()
                return True
            if dead is not None:
                return False
            dead = claim
        time.sleep(max(store.lease_seconds, dead.lease))
    return False


@dataclass(frozen=True, slots=True)
class Life:
    """What was seen of a server that has a session; when it is the same after ``lease_seconds``, the server is dead."""

    number: int  # of its claim
    sign: bytes | None  # its last sign of life
    lease: float = 0.0  # as :class:`Entry`


@dataclass(frozen=True, slots=True)
class OperatorClaim:
    """A session while an operator's command has it."""

    entry: Entry
    saved: Entry | None  # the entry that was saved last, if any
    numbers: list[int]  # the entries there were
    last_used: float  # when a server wrote to it last, in seconds since 1970 by that server's clock


@contextlib.contextmanager
def claimed(log: SessionLog, call: str, dead: Life | None = None) -> Iterator[OperatorClaim | Life]:
    """Have a session for a command of the operator.

    ``dead`` is what was seen of its server ``lease_seconds`` ago.

    Yields:
        The claim; what is seen of its server when one has the session.
    """
    numbers = log.numbers()
    newest = log.entry(numbers[-1]) if numbers else None
    cut_off = newest.call if newest is not None else ""
    if newest is not None and newest.kind == "claim":
        life = Life(newest.number, log.life(newest.number), newest.lease)
        if life != dead:
            yield life
            return
    problems: list[str] = []
    saved = log.last_saved(numbers, problems)
    base = saved.number if saved is not None else 0
    owner = newest.owner if newest is not None else Owner()
    before, number, lease = newest.id if newest else "", newest.number if newest else 0, log.store.lease_seconds
    claim = new_entry(before, number, "claim", base, call, owner, lease=lease)
    if not log.create(claim):
        yield Life(claim.number, None, lease)
        return
    try:
        last_used = newest.saved if newest is not None else claim.saved
        yield OperatorClaim(claim, saved, numbers, last_used)
    finally:
        if log.numbers():  # else it was removed
            log.create(new_entry(claim.id, claim.number, "saved", base, cut_off, owner))


def new_entry(
    before: str,
    number: int,
    kind: str,
    base: int,
    call: str,
    owner: Owner,
    content: Content | None = None,
    lease: float = 0.0,
) -> Entry:
    """The entry after another one."""
    return Entry(
        number + 1,
        os.urandom(12).hex(),
        before,
        kind,
        this_server(),
        base if content is None else number + 1,
        time.time(),
        call,
        owner,
        lease,
        content,
    )


class SignsOfLife:
    """Shows that a claim's server works, from a thread of its own, until it is ended."""

    def __init__(self, log: SessionLog, number: int, every: float) -> None:
        self._log = log
        self._number = number
        self._every = every
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._again()

    def end(self) -> None:
        """No further signs. A sign that is being written is waited for no longer than the store takes."""
        self._over.set()
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()

    def _again(self) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._timer = threading.Timer(self._every, self._show)
            self._timer.daemon = True
            self._timer.start()

    def _show(self) -> None:
        with contextlib.suppress(StorageError):  # the next one may come through; without any the claim is lost
            self._log.show_life(self._number)
        self._again()


def life_interval(store: WorkspaceStore) -> float:
    """Seconds between two signs of life."""
    return store.lease_seconds / _BEATS
