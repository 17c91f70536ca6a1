"""One worker of the cluster: runs what the agent sends in the local sandbox of its node.

Ray makes an actor of :class:`RayWorker` and calls its methods in the event loop of a process of its own. It starts a
script when it is told to and never again; a call that Ray would repeat does not exist (``max_task_retries=0``).
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import platform
import shutil
import sys
import tempfile
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import SandboxError, SkillsError
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import IsolationLevel, IsolationReport, SandboxPolicy
from adk_skills_agent.sandbox.files.removal import remove_tree, temporary_prefix
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.output import PathMapping
from adk_skills_agent.sandbox.ray.wire import (
    Event,
    Outcome,
    Shipment,
    WorkerAnswer,
    package_version,
    python_version,
    unpack,
    unpack_folder,
)
from adk_skills_agent.sandbox.sessions.session import SessionChannel
from adk_skills_agent.sandbox.skill_store import Materialised, cache_folder, materialise
from adk_skills_agent.sandbox.streaming import ResourceSample
from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.channel import SandboxEnd
from adk_skills_agent.sandbox.supervisor.files import Workspace

LEAST = IsolationLevel.LANDLOCK
"""Below this level a script could end its worker: it is the same user's process."""
_OPEN_CLUSTER = (
    "network: the script reaches the cluster's own ports. Without RAY_AUTH_MODE=token whoever does can run any program "
    "on the nodes and, because Ray unpickles what they answer, on the agent's machine."
)
"""Row 305."""
_HELD_SKILLS = 256
_REMEMBERED = 1_000
"""Runs that were cancelled and sessions that were closed before they came."""


class RayWorker:
    """The sandbox of one process on a node; its methods are called by the agent that started it."""

    def __init__(self) -> None:
        self._sandbox = local_sandbox()
        self._runs: dict[int, _Run] = {}
        self._unwanted: deque[int] = deque(maxlen=_REMEMBERED)
        self._skills: OrderedDict[str, Materialised] = OrderedDict()
        self._sessions: dict[int, SessionChannel] = {}
        self._node_id = ""

    async def hello(self) -> WorkerAnswer:
        """What this worker is, found by running something in its sandbox."""
        ray: Any = importlib.import_module("ray")
        self._node_id = str(ray.get_runtime_context().get_node_id())
        report, problem = None, ""
        try:
            report = await self._sandbox.probe()
        except SkillsError as error:
            problem = error.message.removesuffix(".")
        else:
            if report.level.strength < LEAST.strength:
                why = "; ".join(report.reasons)
                problem = f"it has no sandbox: scripts would run at level '{report.level.value}' ({why})"
        placed = None if report is None else self._placed(report)
        return WorkerAnswer(platform.node(), self._node_id, package_version(), python_version(), placed, problem)

    async def ping(self) -> None:
        """An answer, when the event loop is alive."""

    async def run(
        self, number: int, head: bytes, files: bytes, skills: dict[str, Awaitable[bytes]], *secrets: str
    ) -> AsyncGenerator[tuple[Event, ...] | int | Outcome, None]:
        """Run one command to its end: what happens as it happens, and at last the outcome, after its size in bytes.

        Args:
            number: Names the run in :meth:`cancel`.
            head: A :class:`Shipment`, packed.
            files: The frames of the workspace.
            skills: The archive of each mount, by digest; asked for when this node does not have it.
            secrets: Those of the request.
        """
        if number in self._unwanted:
            yield Outcome(cancelled=True)
            return
        run = self._runs[number] = _Run(asyncio.ensure_future(self._run(number, unpack(head, secrets), files, skills)))
        try:
            while not run.task.done() or run.events:
                if not run.events:
                    await run.arrived.wait()
                    run.arrived.clear()
                if run.events:
                    found, run.events = tuple(run.events), []
                    yield found
            if run.task.cancelled():
                yield Outcome(cancelled=True)
            elif (error := run.task.exception()) is None:
                yield run.task.result().size
                yield run.task.result()
            elif isinstance(error, SkillsError | ValueError):
                yield Outcome(error=error)
            else:
                raise error
        finally:
            del self._runs[number]

    async def cancel(self, number: int) -> None:
        """End a run; nothing of it is left when this is over. A run that has not come yet will not begin."""
        run = self._runs.get(number)
        if run is None:
            self._unwanted.append(number)
            return
        run.task.cancel()
        await asyncio.wait([run.task])

    async def close(self) -> None:
        """End all that runs and waits here."""
        for run in tuple(self._runs.values()):
            run.task.cancel()
        for number in tuple(self._sessions):
            await self.close_session(number)
        for skill in self._skills.values():
            skill.release()
        self._skills.clear()
        await self._sandbox.close()

    # Sessions: the channel of one is here, and what the agent does with it are calls.

    async def open_session(
        self, number: int, head: bytes, *secrets: str
    ) -> tuple[IsolationReport, PathMapping | None] | Exception:
        """Start the program of a session: what holds in it and replaces host paths in its output, or why it did not
        start.
        """
        policy, share = unpack(head, secrets)
        threads.WHOSE.set(share)
        host = self._sandbox.session_host()
        assert host is not None  # noqa: S101  # the local sandbox has one
        try:
            channel = None if number in self._unwanted else await host.start(policy)
        except (SkillsError, ValueError) as error:
            return error
        if channel is None or number in self._unwanted:  # nobody knows of it any more (row 303)
            if channel is not None:
                await channel.close()
            return SandboxError("The session was closed before it had begun.")
        self._sessions[number] = channel
        return self._placed(channel.isolation, policy), channel.view

    async def send(self, number: int, data: bytes) -> None:
        """Pass bytes to the program of a session; without effect when it is gone."""
        if (channel := self._sessions.get(number)) is not None:
            await channel.send(data)

    async def receive(self, number: int) -> bytes:
        """The next bytes of a session; none at its end."""
        channel = self._sessions.get(number)
        return b"" if channel is None else await channel.receive()

    async def keeps_limits(self, number: int, cpu_seconds: float | None) -> bool:
        """See :meth:`SessionChannel.keeps_limits`."""
        channel = self._sessions.get(number)
        return channel is not None and await channel.keeps_limits(cpu_seconds)

    async def kill_session(self, number: int) -> None:
        """End the program of a session at once."""
        if (channel := self._sessions.get(number)) is not None:
            channel.kill()

    async def close_session(self, number: int) -> SandboxEnd:
        """End a session and everything in it. One that has not begun yet will not."""
        channel = self._sessions.pop(number, None)
        if channel is None:
            self._unwanted.append(number)
            return SandboxEnd()
        return await channel.close()

    # One run.

    async def _run(self, number: int, shipment: Shipment, files: bytes, skills: dict[str, Awaitable[bytes]]) -> Outcome:
        threads.WHOSE.set(shipment.request.share)  # it has its turn, and here a task of its own
        for digest in {str(mount.source) for mount in shipment.request.mounts}.difference(self._skills):
            found = await threads.in_worker(functools.partial(_from_store, digest))
            if found is None:
                found = await threads.in_worker(functools.partial(_stored, digest, await skills[digest]))
            self._hold(found)
        folder = None
        if shipment.kept is not None or shipment.spills:
            folder = await threads.in_worker(lambda: _unpacked(files))
        try:
            return await self._execute(number, shipment, folder)
        finally:
            if folder is not None:
                await threads.in_worker(folder.remove)

    async def _execute(self, number: int, shipment: Shipment, folder: _Folder | None) -> Outcome:
        told, run = shipment.request, self._runs[number]
        root = cache_folder()
        request = replace(
            told,
            argv=(sys.executable, *told.argv[1:]) if shipment.own_python else told.argv,
            mounts=tuple(
                replace(mount, source=Path(root, mount.source), digest=str(mount.source)) for mount in told.mounts
            ),
            workspace=folder.work if folder is not None and shipment.kept is not None else None,
            spill_dir=folder.spill if folder is not None and shipment.spills else None,
            on_output=(lambda name, chunk: run.add((name, chunk))) if shipment.hears else None,
            on_sample=run.add if shipment.looks else None,
        )
        result = await self._sandbox.run(request)
        result = replace(result, isolation=self._placed(result.isolation, told.policy))
        if folder is None:
            return Outcome(result)
        return await threads.in_worker(lambda: folder.outcome(result, shipment.kept))

    def _placed(self, report: IsolationReport, policy: SandboxPolicy | None = None) -> IsolationReport:
        degraded = report.degraded
        if policy is not None and policy.network.mode == "host" and os.environ.get("RAY_AUTH_MODE") != "token":
            degraded = (*degraded, _OPEN_CLUSTER)
        return replace(
            report,
            enforced=dict(report.enforced),
            degraded=degraded,
            node=f"{platform.node()}/{self._node_id[:6]}",
        )

    def _hold(self, skill: Materialised) -> None:
        """Keep a skill in the store while this worker may need it; the one used least goes when they are many."""
        if skill.digest in self._skills:
            skill.release()
        else:
            self._skills[skill.digest] = skill
        self._skills.move_to_end(skill.digest)
        while len(self._skills) > _HELD_SKILLS:
            self._skills.popitem(last=False)[1].release()


class _Run:
    """A run that goes on, and what has happened in it that nobody has fetched."""

    def __init__(self, task: asyncio.Future[Outcome]) -> None:
        self.task = task
        self.events: list[Event] = []
        self.arrived = asyncio.Event()
        task.add_done_callback(lambda _: self.arrived.set())

    def add(self, event: Event) -> None:
        """Keep an event; of samples only the newest."""
        if isinstance(event, ResourceSample):
            self.events = [one for one in self.events if not isinstance(one, ResourceSample)]
        self.events.append(event)
        self.arrived.set()


class _Folder:
    """A private folder for the workspace of a run and for its spill files. Every method blocks."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix=temporary_prefix("ray")))
        self.work, self.spill = self._root / "work", self._root / "spill"
        self.work.mkdir(mode=0o700)
        self._workspace = Workspace(str(self.work))
        self._folders: list[str] = []

    def fill(self, files: bytes) -> None:
        """Write what the agent sent."""
        for frame in frames.FrameReader().feed(files):
            self._workspace.put(frame)
            if frame.get("kind") == "folder":
                self._folders.append(frames.text(frame, "path"))
        self._workspace.remember()

    def outcome(self, result: Any, kept: dict[str, int] | None) -> Outcome:
        """The result with everything that goes back."""
        changes = bytearray()
        unlisted = 0
        if kept is not None:
            unlisted = self._workspace.tell_changes(1, kept, lambda frame: changes.extend(frames.encode(frame)))
            for path in sorted(self._folders, reverse=True):  # those in a folder first
                if not (self.work / path).is_dir():
                    changes.extend(frames.encode({"t": "gone", "id": 1, "path": path}))
        spilled = tuple(
            None if path is None else path.read_bytes() for path in (result.stdout_spill, result.stderr_spill)
        )
        return Outcome(result, changes=bytes(changes), unlisted=unlisted, spilled=(spilled[0], spilled[1]))

    def remove(self) -> None:
        """Remove it with everything in it."""
        remove_tree(str(self._root))


def _unpacked(files: bytes) -> _Folder:
    """The folder of a run, with what the agent sent."""
    folder = _Folder()
    try:
        folder.fill(files)
    except BaseException:
        folder.remove()
        raise
    return folder


def _from_store(digest: str) -> Materialised | None:
    """The skill of this digest in the store of this node; None when it is not there."""
    place = Path(cache_folder(), digest)
    try:
        made = materialise(place) if place.is_dir() else None
    except SandboxError:  # thrown away at this moment
        return None
    if made is None or made.digest == digest:
        return made
    made.release()
    return None


def _stored(digest: str, packed: bytes) -> Materialised:
    """Put a skill into the store of this node; a SandboxError when it is not what its digest says."""
    folder = Path(tempfile.mkdtemp(prefix=temporary_prefix("skill")))
    try:
        unpack_folder(packed, folder)
        made = materialise(folder)
        if made.digest != digest:
            made.release()
            raise SandboxError("The skill that came is not the one that was sent.")
        return made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
