"""``sandbox="ray"``: each run in the local sandbox of a worker on a Ray cluster.

For servers that may not make sandboxes themselves. Ray finds the machine and calls it, and isolates nothing: the worker
runs the command in this package's own sandbox there, with the same policy, limits, filters and report. A script is
started at most once: what is lost on the way is an error, never a second run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import RunLost, SandboxError, SandboxUnavailable, SkillsError, TooManyRuns
from adk_skills_agent.recent import Recent
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import (
    WORK_DIR,
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
)
from adk_skills_agent.sandbox.output import secrets_of_run
from adk_skills_agent.sandbox.policy import check_policy, looks_secret
from adk_skills_agent.sandbox.process.command import check_argv
from adk_skills_agent.sandbox.ray.cluster import sentence_of
from adk_skills_agent.sandbox.ray.pool import PoolOptions, Worker, WorkerPool
from adk_skills_agent.sandbox.ray.wire import Event, Outcome, Shipment, pack, packed_folder
from adk_skills_agent.sandbox.remote.remote import on_the_way
from adk_skills_agent.sandbox.secrets import (
    MIN_SECRET_CHARS,
    EnvValue,
    FrozenMapping,
    Secret,
    SecretForms,
    redact_error,
)
from adk_skills_agent.sandbox.sessions.session import SessionHost
from adk_skills_agent.sandbox.skill_store import Staged, stage
from adk_skills_agent.sandbox.streaming import ResourceSample
from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.command import Layout, longest_run
from adk_skills_agent.sandbox.supervisor.transfer import RunFolder
from adk_skills_agent.sandbox.threads import Step, uninterrupted

ADDRESS_VARIABLE = "RAY_ADDRESS"
"""Ray's own variable for the address of the cluster."""
MOST_WAITING = 10_000
"""Runs of all users that wait for a place; a further one is refused."""
_CANCEL_SECONDS = 10.0
"""For a worker to end a run that is cancelled; after that it is lost itself, and so is all that runs in it."""
_HELD_SKILLS = 256
"""Skills kept in Ray's object store for workers that do not have them yet."""
_PART_BYTES = 4 << 20  # of a workspace that are gathered in one go
_PATIENCE_SECONDS = 20.0
"""On top of what a run and its files may take: for the way there and back, on a loaded network."""


@dataclass(frozen=True, slots=True)
class RayDescription:
    """What ``adk-skills doctor`` prints of a cluster: the node of each worker, a sentence for each node that is not
    used.
    """

    workers: tuple[str, ...]
    not_used: tuple[str, ...]


class RaySandbox(Sandbox):
    """Runs commands on the nodes of a Ray cluster; see :class:`Sandbox` for the contract.

    Nothing is asked of a cluster before the first use. One object serves any number of event loops and threads; its
    workers are its own, and end with it or with this process.

    Args:
        address: ``HOST:PORT`` of the cluster, of which this machine is a node, or ``auto``; None takes
            ``RAY_ADDRESS``, else ``auto``. A program that has called ``ray.init`` itself is connected already.
        min_workers: Workers that are kept from the first run on.
        max_workers: Workers there are at most; more are started while runs wait, and Ray's autoscaler sees that.
        runs_per_worker: Runs at the same time in one worker.
        cpus: Processors that Ray reserves for a worker.
        memory_bytes: Memory that Ray reserves for a worker; 0 for none. Scripts are limited by their policy.
        resources: Custom resources of Ray that a worker takes, such as ``{"sandboxes": 1}``, which choose its nodes.
        idle_seconds: After so long without a run a worker above ``min_workers`` ends.
        start_seconds: How long a worker may take to be there.
        hang_seconds: A worker that does not answer for so long is lost.
        wait_seconds: How long a run may wait for its turn.
        most_waiting: Runs of all users together that may wait; of one user and session it is as everywhere.

    Raises:
        ConfigError: Numbers that make no pool.
    """

    name = "ray"
    filters_secrets = True

    def __init__(
        self,
        address: str | None = None,
        *,
        min_workers: int = 1,
        max_workers: int = 8,
        runs_per_worker: int = 8,
        cpus: float = 1.0,
        memory_bytes: int = 0,
        resources: Mapping[str, float] | None = None,
        idle_seconds: float = 300.0,
        start_seconds: float = 120.0,
        hang_seconds: float = 20.0,
        wait_seconds: float = 300.0,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._pool = WorkerPool(
            PoolOptions(
                address or os.environ.get(ADDRESS_VARIABLE) or "auto",
                min_workers,
                max_workers,
                runs_per_worker,
                cpus,
                memory_bytes,
                dict(resources or {}),
                idle_seconds,
                start_seconds,
                hang_seconds,
                most_waiting,
            )
        )
        self._wait_seconds = wait_seconds
        self._packing = threading.Lock()
        self._skills: Recent[str, Any] = Recent(_HELD_SKILLS)  # references, by digest

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`.

        Raises:
            SandboxUnavailable: There is no cluster, or no worker of it can do what the policy needs.
            TooManyRuns: Too many wait already, or this one waited too long.
            RunLost: The worker was lost. The command may have done a part of its work, and is not run again.
        """
        asked = time.monotonic()
        policy = check_policy(request.policy)
        check_level(policy)
        check_argv(request.argv)
        with Step("prepare the run", ValueError):
            secrets = secrets_of_run(request, policy)
        try:
            await self._pool.ready()
            async with self._turn(request.share):
                with Step("run the command", ValueError):
                    result = await self._run(request, policy, secrets, asked)
        except SkillsError as error:
            redact_error(error, secrets)
            raise
        if isinstance(result, Exception):  # what the caller's on_output or on_sample raised
            raise result
        return result

    async def probe(self) -> IsolationReport:
        """What holds in the workers, found by running something in each; of several kinds the weakest.

        Raises:
            SandboxUnavailable: There is no cluster, or no worker can be started in it.
        """
        await self._pool.ready()
        return self._pool.report()

    async def describe(self) -> RayDescription:
        """Where the workers are, and which nodes are not used."""
        await self._pool.ready()
        return RayDescription(tuple(one.name for one in self._pool.workers), tuple(self._pool.notes.values()))

    def session_host(self) -> SessionHost:
        """Sessions in a worker each, until it is lost."""
        from adk_skills_agent.sandbox.ray.sessions import RaySessions

        return RaySessions(self._pool)

    async def close(self) -> None:
        """End the workers with all that waits in them. Safe to call twice."""
        await uninterrupted(asyncio.to_thread(self._pool.close))
        self._skills.clear()

    @contextlib.asynccontextmanager
    async def _turn(self, share: tuple[str, ...]) -> AsyncIterator[None]:
        """A place in a worker, when it is this one's turn."""
        turn = self._pool.turns.turn(share)
        self._pool.wake()
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn.__aenter__()
        except TimeoutError:
            raise TooManyRuns(
                f"No worker of the cluster had a place for {self._wait_seconds:g} seconds. Try again later."
            ) from None
        try:
            yield
        finally:
            await turn.__aexit__(None, None, None)

    async def _run(
        self, request: ExecutionRequest, policy: SandboxPolicy, secrets: SecretForms | None, asked: float
    ) -> ExecutionResult | Exception:
        staged = await _staged(request)
        folder = opened = _folder(request, policy)
        sender = _Sender(request.share[:1])
        try:
            skills = tuple(mount.source.name for mount in staged.request.mounts)
            sent: list[Any] = [b"" if folder is None else await _filled(folder, sender)]
            head, values = pack(_shipment(request, policy, staged, folder))
            worker = self._pool.take(skills)
            try:
                copies = [mount.source for mount in staged.request.mounts]
                packed = await threads.in_worker(lambda: {copy.name: self._packed(copy) for copy in copies})
                sent[:] = (head, sent[0], packed, *values)
                outcome = await self._call(worker, request, policy, sender, sent)
            finally:
                self._pool.give_back(worker)
            if isinstance(outcome, Exception):
                return outcome
            if outcome.error is not None:
                raise outcome.error
            if outcome.result is None:
                raise RunLost("The run was ended on the machine that ran it, and not from here. Call the script again.")
            result = outcome.result
            notes = [*staged.notes, *result.notes]
            if folder is not None:
                more = await threads.in_worker(functools.partial(_taken, folder, outcome))
                notes += more if secrets is None else [secrets.text(note) for note in more]
            spills: tuple[Path | None, Path | None] = (None, None)
            if any(content is not None for content in outcome.spilled):
                spills, problems = await threads.in_worker(lambda: _spilled(request.spill_dir, outcome))
                notes += problems
            return replace(
                result,
                notes=tuple(dict.fromkeys(notes)),
                stdout_spill=spills[0],
                stderr_spill=spills[1],
                setup_ms=max(0.0, (time.monotonic() - asked) * 1000 - result.wall_ms),
            )
        except GeneratorExit:  # the loop is gone: nothing can be waited for any more
            opened = None
            if folder is not None:
                folder.discard()
            raise
        finally:
            on_the_way().release(sender)
            staged.release()
            if opened is not None:
                await threads.in_worker(opened.discard)

    def _packed(self, copy: Path) -> Any:
        """A skill's copy as an object of Ray's, which brings its bytes once to each node that asks. Blocking."""
        with self._packing:
            if copy.name not in self._skills:
                self._skills[copy.name] = self._pool.ray.put(packed_folder(copy))
            return self._skills[copy.name]

    async def _call(
        self, worker: Worker, request: ExecutionRequest, policy: SandboxPolicy, sender: _Sender, sent: list[Any]
    ) -> Outcome | Exception:
        """Run it there; what a callback raised, or the outcome. What is sent is let go of once Ray has it.

        RunLost says that the worker was lost, or does not answer.
        """
        ray = self._pool.ray
        number = self._pool.begin(worker, "cancel")
        call: asyncio.Future[Outcome | Exception] | None = None
        try:
            try:
                answers = worker.actor.run.options(num_returns="streaming").remote(number, *sent)
            except ray.exceptions.RayError as error:  # the object store is full, for instance
                raise SandboxError(
                    f"The run could not be sent to the cluster and was not started ({type(error).__name__}). Try again "
                    "later, or send less."
                ) from error
            sent.clear()
            on_the_way().release(sender)
            deadline = asyncio.timeout(longest_run(policy, _PATIENCE_SECONDS))
            call = asyncio.ensure_future(_heard(answers, request, sender, deadline))
            try:
                async with deadline:
                    await asyncio.wait([call])
            except TimeoutError:
                await uninterrupted(self._end(worker, number, "did not end a run in time"))
                raise RunLost(
                    "The machine that ran the script did not answer in time after the deadline, and the script was "
                    "ended. It may have done a part of its work and was not run again; check what it changed."
                ) from None
            except asyncio.CancelledError:
                await uninterrupted(self._end(worker, number, "did not end a run that was cancelled"))
                raise
            except GeneratorExit:  # the loop is gone: nothing can be waited for any more
                with contextlib.suppress(Exception):
                    worker.actor.cancel.remote(number)
                raise
            try:
                outcome = call.result()
            except ray.exceptions.RayTaskError as error:
                raise SandboxError(f"The worker of the cluster failed: {type(error.cause).__name__}.") from error
            except ray.exceptions.RayError as error:
                self._pool.lose(worker, f"is gone ({sentence_of(error)})")
                raise lost(worker, error) from error
            if isinstance(outcome, Exception):
                await uninterrupted(self._end(worker, number, "did not end a run that nobody listens to"))
            return outcome
        finally:
            self._pool.finished(number)
            if call is not None and not call.done():
                with contextlib.suppress(RuntimeError):  # the loop is gone
                    call.cancel()
            elif call is not None and not call.cancelled():
                call.exception()  # taken, so that it is not reported as lost

    async def _end(self, worker: Worker, number: int, else_it: str) -> None:
        """End a run there, and wait until nothing of it is left; a worker that does not do that is lost."""
        asking = asyncio.ensure_future(result_of(worker.actor.cancel.remote(number)))
        await asyncio.wait([asking], timeout=_CANCEL_SECONDS)
        if not asking.done():
            self._pool.lose(worker, else_it)
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        asking.cancel()


async def _heard(
    answers: Any, request: ExecutionRequest, sender: _Sender, deadline: asyncio.Timeout
) -> Outcome | Exception:
    """Tell a run's callbacks what happens in it; the outcome, or what the first one raised that raises.

    The outcome stays in Ray's object store until there is room for its files here; that wait is none of the worker's.
    """
    async for reference in answers:
        answer: tuple[Event, ...] | int | Outcome = await reference
        if isinstance(answer, Outcome):
            return answer
        if isinstance(answer, int):
            began, when = time.monotonic(), deadline.when()
            deadline.reschedule(None)
            await on_the_way().add(sender, answer)
            deadline.reschedule(None if when is None else when + time.monotonic() - began)
            continue
        for event in answer:
            try:
                if isinstance(event, ResourceSample):
                    if request.on_sample is not None:
                        request.on_sample(event)
                elif request.on_output is not None:
                    request.on_output(*event)
            except Exception as error:  # noqa: BLE001  # raised again where the run is awaited
                return error
    return SandboxError("The worker of the cluster said nothing of how the run ended.")


def lost(worker: Worker, error: BaseException) -> RunLost:
    """The error of a run whose worker is gone; where, and what Ray says, is a note for the owner."""
    problem = RunLost(
        "The machine that ran the script was lost before the script had ended. It may have done a part of its work and "
        "was not run again: check what it changed, then call it again if that is safe."
    )
    problem.add_note(f"Node {worker.name} of the cluster: {sentence_of(error)}")
    return problem


async def result_of(reference: Any) -> Any:
    """The value of a reference of Ray's."""
    return await reference


async def _staged(request: ExecutionRequest) -> Staged:
    """The copies of a request's mounts; they are let go of when nobody waits for them any more."""
    wanted = replace(request, mounts=tuple(replace(mount, copied=True) for mount in request.mounts))
    staging = threads.submit(asyncio.get_running_loop(), lambda: stage(wanted))
    try:
        return await uninterrupted(staging)
    except asyncio.CancelledError:
        if not staging.cancelled() and staging.exception() is None:
            staging.result().release()
        raise


def check_level(policy: SandboxPolicy) -> None:
    """Refuse what has no wall between a script and its worker."""
    asked = policy.isolation
    if asked != "auto" and IsolationLevel(asked).strength < IsolationLevel(policy.min_isolation).strength:
        reason = f"{asked}: weaker than min_isolation={policy.min_isolation!r}"
        raise SandboxUnavailable(f"The run is refused ({reason}).", (reason,))
    if asked in {IsolationLevel.PROCESS.value, IsolationLevel.CONTAINER.value, IsolationLevel.REMOTE.value}:
        why = "a script at that level could end its worker" if asked == "process" else "a worker has no such level"
        reason = f"ray: {why}, and isolation={asked!r} is required"
        raise SandboxUnavailable(f"The run is refused ({reason}).", (reason,))


def _folder(request: ExecutionRequest, policy: SandboxPolicy) -> RunFolder | None:
    """The session's workspace on its way; None where there is none."""
    if request.workspace is None:
        return None
    own = replace(request, mounts=(), input_files=(), cwd=WORK_DIR)
    return RunFolder(own, replace(policy, max_files=0, max_total_file_bytes=0), Layout(mounted=True))


@dataclass(eq=False, slots=True)
class _Sender:
    """Whose bytes are on the way, for :class:`.remote.OnTheWay`: one for each run."""

    user: tuple[str, ...]


async def _filled(folder: RunFolder, sender: _Sender) -> bytearray:
    """Everything that is sent, gathered as there is room for it (row 444)."""
    await threads.in_worker(folder.fill, os.urandom(8).hex())
    parts, files = folder.sent(), bytearray()
    while part := await threads.in_worker(_next_part, parts):
        await on_the_way().add(sender, len(part))
        files += part
    return files


def _next_part(parts: Iterator[bytes]) -> bytes:
    found = bytearray()
    for part in parts:
        found += part
        if len(found) >= _PART_BYTES:
            break
    return bytes(found)


def _taken(folder: RunFolder, outcome: Outcome) -> list[str]:
    """Bring what the run changed into the session's workspace; what of it did not get there."""
    known = len(folder.notes)
    for frame in frames.FrameReader().feed(outcome.changes):
        folder.take(frame)
    folder.leave_out(outcome.unlisted)
    return [*folder.notes[:known], *folder.collect(None).notes, *folder.notes[known:]]


def _spilled(place: Path | None, outcome: Outcome) -> tuple[tuple[Path | None, Path | None], list[str]]:
    """Write the whole texts of long streams where they are wanted; where they are, and why one is not."""
    result = outcome.result
    assert result is not None  # noqa: S101  # asked before
    written: list[Path | None] = []
    problems = []
    for name, there, content in zip(
        ("stdout", "stderr"), (result.stdout_spill, result.stderr_spill), outcome.spilled, strict=True
    ):
        target = None
        if place is not None and there is not None and content is not None:
            target = place / there.name
            aside = target.with_name(f".{target.name}.part")
            try:
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(content)
                aside.rename(target)
            except OSError as error:
                target = None
                problems.append(f"{name}: its full text could not be kept: {error.strerror}.")
        written.append(target)
    return (written[0], written[1]), problems


def sent_policy(policy: SandboxPolicy) -> SandboxPolicy:
    """The policy with the values of the variables that a run inherits from this process, and not from a worker."""
    inherited: dict[str, EnvValue] = {}
    for name in policy.inherit_env:
        if (value := os.environ.get(name)) is not None:
            secret = looks_secret(name) and len("".join(value.split())) >= MIN_SECRET_CHARS
            inherited[name] = Secret(value) if secret else value
    return replace(policy, inherit_env=(), env=FrozenMapping({**inherited, **policy.env}))


def _shipment(request: ExecutionRequest, policy: SandboxPolicy, staged: Staged, folder: RunFolder | None) -> Shipment:
    """What the worker gets; nothing in it is a path or a variable of this machine that it would look up there."""
    sent = replace(
        request,
        policy=sent_policy(policy),
        mounts=tuple(
            replace(mount, source=Path(copy.source.name), without=())
            for mount, copy in zip(request.mounts, staged.request.mounts, strict=True)
        ),
        workspace=None,
        tmp=None,
        on_output=None,
        on_sample=None,
        spill_dir=None,
    )
    return Shipment(
        sent,
        own_python=request.argv[0] == sys.executable,
        kept=None if folder is None else folder.bounds,
        spills=request.spill_dir is not None,
        hears=request.on_output is not None,
        looks=request.on_sample is not None,
    )
