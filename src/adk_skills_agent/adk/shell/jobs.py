"""Background jobs of a shell: a command that goes on while the conversation does.

A job works on a copy of the session's workspace as it is at its start, so that other commands go on meanwhile; what it
added or changed is brought into the workspace when it ends. Jobs run on an event loop of their own thread: the loop of
the agent may end with each turn. They end at their limits, with their toolset, and with the agent's process, whatever
ends that (attack row 31: the sandbox's processes never outlive the agent).
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import shutil
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import InvalidArguments, SandboxError
from adk_skills_agent.platforms import after_fork_in_child
from adk_skills_agent.sandbox import more_for, of_who_has_most
from adk_skills_agent.scripts.workspaces import Usage, in_pages, usage_of

if TYPE_CHECKING:
    from adk_skills_agent.sandbox import Redactor, SandboxPolicy
    from adk_skills_agent.scripts import ScriptOutcome
    from adk_skills_agent.scripts.outcome import RefusedHost

logger = logging.getLogger(__name__)

MAX_JOBS = 16
"""In this process at a time: each takes one of the places of running commands."""
MAX_JOBS_OF_USER = MAX_JOBS // 2
"""Of all sessions of one user, fewer while others have many: nobody takes the places of everybody (row 81)."""
MAX_REMEMBERED = 64
"""Jobs of one session that have ended and whose output can still be read."""
MAX_SESSIONS = 256
"""Sessions whose ended jobs are remembered."""
MAX_HELD_BYTES = 64 << 20
"""Of ended jobs' files and output in this process; what ended first goes first."""
_CLOSE_SECONDS = 10.0
_MAX_NOTES = 50

_DECODER = codecs.getincrementaldecoder("utf-8")

Stamp = tuple[int, int]


@dataclass(slots=True, eq=False)
class Job:
    """One background job."""

    name: str  # what the model calls it: ``job-1``
    command: str
    most_bytes: int
    started: float = field(default_factory=time.monotonic)  # by ``time.monotonic()``
    answer: dict[str, object] | None = None  # of its end, for the model; None while it runs
    ended: float | None = None  # by ``time.monotonic()``; None while it runs
    left_out: int = 0  # bytes of its output that were not kept
    stopped: bool = False
    owner: object = None  # whose end ends it
    user: str = ""
    # what happened, until the model hears of the end and its files become artifacts
    outcome: ScriptOutcome | None = None
    refused: tuple[RefusedHost, ...] = ()  # hosts it was refused
    skill: str = ""  # whose variables it had
    run: str = ""  # the id of its events
    # looks at both streams as they are joined: each may have a half of a secret (row 376); None for no secrets
    redactor: Redactor | None = None
    # who waits for output past an offset, and none of the offsets is smaller than the least; all may be of one user,
    # and a piece of output costs nothing while nobody's wait is over (row 422)
    _waiting: dict[asyncio.Event, tuple[int, asyncio.AbstractEventLoop]] = field(default_factory=dict)
    _least: int = sys.maxsize
    _text: list[str] = field(default_factory=list)
    _characters: int = 0
    kept: int = 0
    _decoders: dict[str, codecs.IncrementalDecoder] = field(default_factory=dict)
    _joined: codecs.IncrementalDecoder = field(default_factory=lambda: _DECODER("replace"))
    _changed: threading.Condition = field(default_factory=threading.Condition)
    future: Future[None] | None = None

    @property
    def held(self) -> int:
        """Bytes of this process's memory that it holds."""
        return self.kept + (0 if self.outcome is None else sum(file.size for file in self.outcome.result.files))

    def let_go(self) -> None:
        """Forget its files and its output, of which an offset past the end is told from now on."""
        if self.outcome is not None and self.outcome.result.files and self.answer is not None:
            notes = self.answer.get("notes")
            said = "Its files are in the working directory; they were not saved as artifacts, it ended too long ago."
            self.answer["notes"] = [*(notes if isinstance(notes, list) else []), said]
        with self._changed:
            self.outcome = None
            self.left_out, self.kept = self.left_out + self.kept, 0
            self._text.clear()
            self._characters = 0

    def take(self, stream: str, chunk: bytes) -> None:
        """Keep a piece of its output, of either stream, in the order in which they came."""
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = _DECODER("replace")
        with self._changed:
            room = max(self.most_bytes - self.kept, 0)
            self.kept += len(chunk[:room])
            self.left_out += len(chunk[room:])
            text = decoder.decode(chunk[:room])
            if self.redactor is not None:
                text = self._joined.decode(self.redactor.feed(text.encode()))
            self._add(text)

    def _add(self, text: str) -> None:
        """With the lock."""
        if text:
            self._text.append(text.replace("\0", "\ufffd"))
            self._characters += len(text)
            self._tell()

    def end(self, answer: dict[str, object]) -> None:
        """Say how it ended."""
        with self._changed:
            if self.redactor is not None:
                self._add(self._joined.decode(self.redactor.close(), final=True))
            self.answer = answer
            self.ended = time.monotonic()
            self._tell()

    def output(self, offset: int, most: int) -> tuple[str, int]:
        """Characters of its output from an offset on, and how many there are in all."""
        with self._changed:
            if len(self._text) > 1:
                self._text[:] = ["".join(self._text)]
            text = self._text[0] if self._text else ""
        return text[offset : offset + most], len(text)

    async def wait(self, offset: int, seconds: float) -> None:
        """Wait for output past an offset, or for the end; no thread is held meanwhile."""
        event = asyncio.Event()
        with self._changed:
            if self.ended is not None or self._characters > offset:
                return
            self._waiting[event] = offset, asyncio.get_running_loop()
            self._least = min(self._least, offset)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return
        finally:
            with self._changed:
                self._waiting.pop(event, None)

    def wait_here(self, seconds: float) -> None:
        """Wait for the end. Blocks."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended is not None, seconds)

    def _tell(self) -> None:
        """Wake those whose wait is over; with the lock."""
        self._changed.notify_all()
        if self.ended is None and self._characters <= self._least:
            return
        for event, (offset, loop) in list(self._waiting.items()):
            if self.ended is not None or self._characters > offset:
                del self._waiting[event]
                with contextlib.suppress(RuntimeError):  # the loop of that turn is closed
                    loop.call_soon_threadsafe(event.set)
        self._least = min((offset for offset, _ in self._waiting.values()), default=sys.maxsize)


class Jobs:
    """The jobs of all sessions in this process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: dict[str, list[Job]] = {}
        self._count: dict[str, int] = {}

    def start(
        self,
        key: str,
        user: str,
        owner: object,
        command: str,
        most: int,
        most_bytes: int,
        run: Callable[[Job], Coroutine[Any, Any, None]],
    ) -> Job:
        """Begin a job.

        ``most`` jobs may run in this session at once. ``run`` does it all; :meth:`Job.end` is its last deed. Raises
        ``InvalidArguments`` when too many run already.
        """
        if self._pid != os.getpid():
            self._reset()  # a forked child: the jobs are its parent's
        with self._mutex:
            jobs = self._sessions.get(key, [])  # a session whose job is refused is none
            running = [job for job in jobs if job.ended is None]
            if len(running) >= most:
                names = ", ".join(job.name for job in running)
                raise InvalidArguments(f"{len(running)} jobs run already ({names}). Stop one, or wait for its end.")
            everywhere = [job for others in self._sessions.values() for job in others if job.ended is None]
            own = sum(job.user == user for job in everywhere)
            # rows 81 and 214
            if own and (own >= MAX_JOBS_OF_USER or more_for(own, MAX_JOBS - len(everywhere)) < 1):
                said = "1 background job of this user runs" if own == 1 else f"{own} background jobs of this user run"
                raise InvalidArguments(f"{said} already. Stop one, or try again later.")
            if len(everywhere) >= MAX_JOBS:
                raise InvalidArguments("Too many background jobs run on this machine. Try again later.")
            self._count[key] = self._count.get(key, 0) + 1
            job = Job(f"job-{self._count[key]}", command, most_bytes, owner=owner, user=user)
            jobs.append(job)
            self._sessions[key] = jobs
            self._forget(key, jobs)
            self._make_room()
            loop = self._running_loop()
        job.future = asyncio.run_coroutine_threadsafe(_guarded(job, run), loop)
        return job

    def _forget(self, key: str, jobs: list[Job]) -> None:
        """Let go of jobs that ended long ago: of this session, and of sessions that nobody has used for long.

        These are of the user who has most, or one user could make the jobs of all others unknown (row 447).
        """
        ended = [job for job in jobs if job.ended is not None]
        for old in ended[: max(len(ended) - MAX_REMEMBERED, 0)]:
            jobs.remove(old)
        self._sessions[key] = self._sessions.pop(key)  # the last one used is the last
        users = {name: others[-1].user for name, others in self._sessions.items() if others}
        idle = [name for name, others in self._sessions.items() if all(job.ended is not None for job in others)]
        going = of_who_has_most(idle, lambda name: users.get(name, ""), Counter(users.values()))
        for name in list(islice(going, max(len(idle) + 1 - MAX_SESSIONS, 0))):
            del self._sessions[name]  # its count stays, so that no name is used twice

    def _make_room(self) -> None:
        """Let go of output and files of jobs that ended, of the user who has most the oldest first."""
        ended = [job for others in self._sessions.values() for job in others if job.ended is not None and job.held]
        held: Counter[str] = Counter()
        for job in ended:
            held[job.user] += job.held
        left = held.total() - MAX_HELD_BYTES
        ended.sort(key=lambda job: job.ended or 0.0)
        for job in of_who_has_most(ended, lambda job: job.user, held, lambda job: job.held):
            if left <= 0:
                return
            left -= job.held
            job.let_go()

    def of(self, key: str, name: str) -> Job:
        """A job of a session. Raises ``InvalidArguments`` when no job has that name; the sentence lists the jobs."""
        with self._mutex:
            jobs = list(self._sessions.get(key, ())) if self._pid == os.getpid() else []
        for job in jobs:
            if job.name == name:
                return job
        known = ", ".join(job.name for job in jobs[-8:]) or "none; start one with execute and background=true"
        raise InvalidArguments(f"There is no job '{name[:40]}'. Jobs of this session: {known}.")

    def running(self, key: str) -> list[Job]:
        """The jobs of a session that have not ended."""
        with self._mutex:
            return [job for job in self._sessions.get(key, ()) if job.ended is None]

    async def stop(self, job: Job) -> None:
        """End a job and wait until nothing of it is left; no thread is held meanwhile (row 269)."""
        self._cancel(job)
        await job.wait(sys.maxsize, _CLOSE_SECONDS)

    @staticmethod
    def _cancel(job: Job) -> None:
        job.stopped = True
        if job.future is not None:
            job.future.cancel()

    def close(self, owner: object) -> None:
        """End the jobs of an owner's sessions. Blocks."""
        with self._mutex:
            if self._pid != os.getpid():
                return
            jobs: list[Job] = []
            for key, others in list(self._sessions.items()):
                jobs += [job for job in others if job.owner is owner]
                self._sessions[key] = [job for job in others if job.owner is not owner]
                if not self._sessions[key]:
                    del self._sessions[key]
                    self._count.pop(key, None)
        running = [job for job in jobs if job.ended is None]
        for job in running:
            self._cancel(job)
        for job in running:
            job.wait_here(_CLOSE_SECONDS)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="adk-skills-jobs", daemon=True).start()
        return self._loop


JOBS = Jobs()
"""The jobs of this process."""
after_fork_in_child(JOBS._reset)


async def _guarded(job: Job, run: Callable[[Job], Awaitable[None]]) -> None:
    try:
        await run(job)
    except asyncio.CancelledError:
        if job.ended is not None:
            return  # its files were back already
        job.end(
            {"status": "error", "reason": "cancelled", "error": f"{job.name} was stopped; its files were not kept."}
        )
    except Exception as error:  # whatever it is, the model must be told of an end
        logger.exception("%s failed", job.name)
        said = getattr(error, "message", "") or "it could not be run to its end; this is not the command's fault"
        if isinstance(error, OSError) and error.strerror:  # without the paths of the host that it names
            said = f"the copy of the workspace that it works on cannot be made: {error.strerror}"
        job.end({"status": "error", "error": f"{job.name}: {said}"})
    finally:
        if job.ended is None:
            job.end({"status": "error", "error": f"{job.name} ended without a result."})


# The copy of the workspace that a job works on. Workspaces hold regular files and folders only, of this user.


def copy_workspace(source: Path, target: Path) -> dict[str, Stamp]:
    """Copy a workspace for a job; what is in the copy, by relative path (a folder's ends with ``/``). Blocks."""
    target.mkdir(mode=0o700)
    for folder, folders, files in os.walk(source):
        here = target / os.path.relpath(folder, source)
        for name in folders:
            (here / name).mkdir(mode=0o700)
        for name in files:
            if stat.S_ISREG((Path(folder) / name).lstat().st_mode):
                shutil.copy2(Path(folder) / name, here / name, follow_symlinks=False)
    return _stamps(target)


def bring_back(copy: Path, before: dict[str, Stamp], workspace: Path, policy: SandboxPolicy) -> list[str]:
    """Move what a job added or changed into the session's workspace, and remove there what it removed. Blocks.

    What the job removed goes first, so that a file can take the place of a folder and the reverse. What somebody else
    changed in the workspace meanwhile is replaced, and said; what has no room is left out, and said. Returns a sentence
    for each file that was not what the job had found, or could not be moved; of many one for the rest. Raises
    ``SandboxError`` when the copy is gone.
    """
    if not copy.is_dir():
        raise SandboxError("The files of the job are gone; somebody deleted them.")
    notes: list[str] = []
    after = _stamps(copy)
    for path in sorted(before.keys() - after.keys(), reverse=True):
        target = workspace / path
        with contextlib.suppress(OSError):
            if path.endswith("/"):
                target.rmdir()
            elif _stamp(target)[0] == before[path][0]:
                target.unlink()
    used = usage_of(workspace)
    for path in sorted(after):
        found, target = after[path], workspace / path
        shown = f"'{path}'" if path.isprintable() else repr(path.encode("utf-8", "replace").decode())
        try:
            if path.endswith("/"):
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                continue
            if before.get(path) == found:
                continue
            there = target.is_file()
            grows = in_pages((copy / path).lstat().st_size)
            grows -= in_pages(target.lstat().st_size) if there else 0
            if grows > 0 and policy.workspace_bytes is not None and used.size + grows > policy.workspace_bytes:
                notes.append(f"{shown} of the job was not kept: the workspace has no room for it.")
                continue
            if not there and policy.workspace_inodes is not None and used.entries >= policy.workspace_inodes:
                notes.append(f"{shown} of the job was not kept: the workspace has too many files.")
                continue
            if there and (path not in before or _stamp(target)[0] != before[path][0]):
                notes.append(f"{shown} was changed by another command meanwhile; the job's version replaced it.")
            _move(copy / path, target)
            used = Usage(used.size + grows, used.entries + (not there))
        except OSError as error:
            notes.append(f"{shown} of the job was not kept: {error.strerror or type(error).__name__}.")
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"The same holds for {len(notes) - _MAX_NOTES:,} more files of the job."]
    return notes


def _move(source: Path, target: Path) -> None:
    """Put a file in its place: aside first, so that nobody sees half of it."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{os.urandom(8).hex()}.part")
    try:
        shutil.move(source, partial)
        os.replace(partial, target)  # noqa: PTH105
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _stamps(root: Path) -> dict[str, Stamp]:
    """Files and folders below a folder; a folder's path ends with ``/``.

    Raises ``OSError`` when the folder cannot be read.
    """

    def unreadable(error: OSError) -> None:
        raise error

    found: dict[str, Stamp] = {}
    for folder, folders, files in os.walk(root, onerror=unreadable):
        for name in files:
            path = Path(folder) / name
            found[os.path.relpath(path, root)] = _stamp(path)
        for name in folders:
            found[f"{os.path.relpath(Path(folder) / name, root)}/"] = (0, 0)
    return found


def _stamp(path: Path) -> Stamp:
    """Its time of change, and a number that also tells a file that was put in its place."""
    info = path.lstat()
    return info.st_mtime_ns, info.st_ino
