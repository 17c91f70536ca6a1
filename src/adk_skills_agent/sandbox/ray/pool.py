"""The workers of a cluster that run scripts for this process: how many there are, who is lost, who is next.

One thread keeps the pool, whatever event loops use it. It joins the cluster, starts workers while runs wait, asks each
once in a while whether it lives, replaces lost ones and ends idle ones. Nothing that runs is ever started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.errors import ConfigError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import IsolationReport
from adk_skills_agent.sandbox.ray.cluster import address_of, connection, lacks_package, sentence_of, why_no_worker
from adk_skills_agent.sandbox.ray.wire import WorkerAnswer, package_version, python_version
from adk_skills_agent.sandbox.threads import MAX_WAITING, Semaphore

_TICK_SECONDS = 0.5
_START_TICK_SECONDS = 0.05
_PING_SECONDS = 5.0
_CLOSE_SECONDS = 5.0
_PAUSE_SECONDS = 10.0
"""After a worker that could not be started: until the next one is tried, while others run."""
_MOST_FAILURES = 3
"""Workers in a row that did not start, before it is said that none can."""
MOST_CALLS = 10_000
"""Calls of one worker at a time, sessions that wait for their output among them; runs are bounded by its places."""

logger = logging.getLogger("adk_skills_agent.sandbox")


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How many workers there are, where they are, and what each takes; see :class:`~.sandbox.RaySandbox`."""

    address: str
    min_workers: int
    max_workers: int
    runs_per_worker: int
    cpus: float
    memory_bytes: int
    resources: Mapping[str, float]
    idle_seconds: float
    start_seconds: float
    hang_seconds: float
    most_waiting: int

    def __post_init__(self) -> None:
        if not 0 < self.min_workers <= self.max_workers:
            raise ConfigError(
                f"min_workers={self.min_workers} and max_workers={self.max_workers}: use numbers of at least 1, the "
                "first not above the second."
            )
        if self.runs_per_worker < 1:
            raise ConfigError(f"runs_per_worker={self.runs_per_worker}: a worker needs at least one place.")

    @property
    def needs(self) -> str:
        """What a worker takes, for a sentence."""
        parts = [f"{self.cpus:g} CPU"]
        parts += [f"{self.memory_bytes >> 20} MiB"] if self.memory_bytes else []
        return ", ".join([*parts, *(f"{much:g} {name}" for name, much in self.resources.items())])


@dataclass(slots=True, eq=False)
class Worker:
    """A worker that is there.

    Attributes:
        actor: Ray's handle.
        answer: What it has said of itself.
        busy: Runs in it now.
        sessions: Sessions in it now.
        used: ``time.monotonic()`` of its last use.
        skills: When each skill was last run in it, by digest: where a sandbox may wait for the next run.
        lost: Why it is gone, as a clause; empty while it is there.
    """

    actor: Any
    answer: WorkerAnswer
    busy: int = 0
    sessions: int = 0
    used: float = field(default_factory=time.monotonic)
    skills: dict[str, float] = field(default_factory=dict)
    lost: str = ""
    asked: float = field(default_factory=time.monotonic)
    ping: Any = None

    @property
    def name(self) -> str:
        """Of its node, as the report has it."""
        return f"{self.answer.host}/{self.answer.node_id[:6]}"


@dataclass(frozen=True, slots=True)
class _Starting:
    actor: Any
    hello: Any
    since: float


class WorkerPool:
    """The workers of one sandbox object.

    ``turns`` is a place in a worker for each run, fair to users and sessions; ``notes`` say which nodes are not used.
    """

    def __init__(self, options: PoolOptions) -> None:
        self.turns = Semaphore(0, fair=True, most_waiting=MAX_WAITING, most_in_all=options.most_waiting)
        self.notes: dict[str, str] = {}
        self._options = options
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._starting: list[_Starting] = []
        self._thread: threading.Thread | None = None
        self._first: Future[None] = Future()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._numbers = itertools.count(1)
        self._unusable: set[str] = set()
        self._failures = 0
        self._not_before = 0.0
        self._last_problem = ""
        self._in_use: dict[int, tuple[asyncio.AbstractEventLoop, Worker, str]] = {}
        self.ray: Any = None

    async def ready(self) -> None:
        """Wait until there is a worker; the first call joins the cluster.

        Raises:
            SandboxUnavailable: There is no cluster, or no worker can be started in it.
        """
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._first = Future()
                self._stop.clear()
                self._failures, self._not_before = 0, 0.0
                self._thread = threading.Thread(target=self._keep, name="adk-skills-ray", daemon=True)
                self._thread.start()
            first = self._first
        if not first.done():
            await asyncio.shield(asyncio.wrap_future(first))
        first.result()

    def take(self, skills: tuple[str, ...] = ()) -> Worker:
        """The worker for a run that has its turn: the least busy one, of these the one that ran its skill last."""
        with self._lock:
            if not self._workers:
                raise SandboxUnavailable(
                    "No worker of the cluster is left. Try again in a moment.", (self._last_problem or "ray: lost",)
                )
            known = skills[0] if skills else ""
            worker = min(self._workers, key=lambda one: (one.busy, -one.skills.get(known, 0.0), one.sessions))
            worker.busy += 1
            worker.used = time.monotonic()
            worker.skills.update((skill, worker.used) for skill in skills)
            return worker

    def give_back(self, worker: Worker) -> None:
        """The run is over."""
        with self._lock:
            worker.busy -= 1
            worker.used = time.monotonic()

    def begin(self, worker: Worker, ending: str) -> int:
        """A number for something that lasts: when its event loop is closed, ``ending`` is called with it there."""
        with self._lock:
            number = next(self._numbers)
            self._in_use[number] = (asyncio.get_running_loop(), worker, ending)
            return number

    def finished(self, number: int) -> None:
        """It is over."""
        with self._lock:
            self._in_use.pop(number, None)

    def wake(self) -> None:
        """Somebody is about to wait: there may have to be more workers."""
        if self.turns.free <= 0:
            self._wake.set()

    def lose(self, worker: Worker, why: str) -> None:
        """A worker is gone, or is not to be trusted any more: it ends now, and another one takes its place."""
        with self._lock:
            if worker.lost:
                return
            worker.lost = why
            with contextlib.suppress(ValueError):
                self._workers.remove(worker)
            self._last_problem = f"ray: the worker on {worker.name} {why}"
        logger.warning("A worker of the cluster was lost: on node %s, it %s.", worker.name, why)
        self._resize()
        with contextlib.suppress(Exception):
            self.ray.kill(worker.actor, no_restart=True)
        self._wake.set()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Those that are there."""
        with self._lock:
            return tuple(self._workers)

    def report(self) -> IsolationReport:
        """What scripts get in the weakest of them."""
        reports = [one.answer.report for one in self.workers if one.answer.report is not None]
        if not reports:
            raise SandboxUnavailable("No worker of the cluster is there.", (self._last_problem or "ray: none",))
        return min(reports, key=lambda report: report.level.strength)

    def close(self) -> None:
        """End the workers and the connection; blocks. A later run starts anew."""
        self._stop.set()
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    # The rest is the thread's.

    def _keep(self) -> None:
        try:
            self.ray = connection().acquire(self._options.address)
        except ConfigError as error:
            self._fail(error.message)
            return
        except Exception as error:  # of Ray, whatever it is: whoever waits must hear of it
            logger.exception("The Ray cluster could not be joined.")
            self._fail(f"The cluster {self._options.address!r} cannot be joined: {sentence_of(error)}")
            return
        try:
            while not self._stop.is_set():
                self._look()
                self._wake.wait(_START_TICK_SECONDS if self._starting else _TICK_SECONDS)
                self._wake.clear()
        except Exception as error:
            logger.exception("The workers of the Ray cluster cannot be kept any more.")
            self._fail(f"The cluster cannot be used any more: {sentence_of(error)}")
        finally:
            self._end_all()
            connection().release()

    def _look(self) -> None:
        self._start_wanted()
        self._greet()
        self._ask()
        self._end_what_nobody_awaits()
        self._let_go()

    def _start_wanted(self) -> None:
        options, now = self._options, time.monotonic()
        demand = -(-(self.turns.held + self.turns.waiting) // options.runs_per_worker)
        wanted = min(options.max_workers, max(options.min_workers, demand))
        missing = wanted - len(self.workers) - len(self._starting)
        if missing <= 0 or now < self._not_before:
            return
        for _ in range(missing):
            worker = importlib.import_module("adk_skills_agent.sandbox.ray.worker").RayWorker
            actor = self.ray.remote(worker).options(**self._actor_options()).remote()
            self._starting.append(_Starting(actor, actor.hello.remote(), now))

    def _actor_options(self) -> dict[str, Any]:
        options = self._options
        strategy: Any = "SPREAD"
        if self._unusable:
            module = importlib.import_module("ray.util.scheduling_strategies")
            strategy = module.NodeLabelSchedulingStrategy(hard={"ray.io/node-id": module.NotIn(*self._unusable)})
        return {
            "num_cpus": options.cpus,
            "memory": options.memory_bytes or None,
            "resources": dict(options.resources),
            "max_concurrency": MOST_CALLS,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": strategy,
        }

    def _greet(self) -> None:
        """Take in the workers that are ready, and put away those that cannot be used."""
        if not self._starting:
            return
        ready, _ = self.ray.wait(
            [one.hello for one in self._starting], num_returns=len(self._starting), timeout=0, fetch_local=False
        )
        for one in tuple(self._starting):
            if one.hello in ready:
                self._starting.remove(one)
                self._take_in(one)
            elif time.monotonic() - one.since > self._options.start_seconds:
                self._starting.remove(one)
                self._kill(one.actor)
                self._failed(
                    f"no worker was there within {self._options.start_seconds:g} seconds: no node has room for one "
                    f"({self._options.needs}), or none answers"
                )

    def _take_in(self, one: _Starting) -> None:
        try:
            answer: WorkerAnswer = self.ray.get(one.hello, timeout=self._options.start_seconds)
        except Exception as error:  # noqa: BLE001  # of Ray's, or what the node's own version makes of it
            self._kill(one.actor)
            if lacks_package(error):  # there any worker would fare the same
                for entry in self.ray.nodes():
                    if entry["Alive"] and entry["NodeManagerAddress"] == address_of(error):
                        name = f"{entry['NodeManagerHostname']}/{entry['NodeID'][:6]}"
                        self._do_not_use(name, entry["NodeID"], why_no_worker(error))
                        return
            self._failed(why_no_worker(error, "a node of it"))
            return
        problem = answer.problem
        if (answer.version, answer.python) != (package_version(), python_version()):
            problem = (
                f"it has adk-skills-runtime {answer.version} on Python {answer.python}, and here is "
                f"{package_version()} on {python_version()}"
            )
        if problem:
            self._kill(one.actor)
            self._do_not_use(f"{answer.host}/{answer.node_id[:6]}", answer.node_id, problem)
            return
        self._failures = 0
        with self._lock:
            self._workers.append(Worker(one.actor, answer))
        self._resize()
        if not self._first.done():
            self._first.set_result(None)

    def _do_not_use(self, name: str, node: str, problem: str) -> None:
        """Start no workers on a node any more, and say why."""
        known = node in self._unusable
        self._unusable.add(node)
        self.notes[name] = f"Node {name} is not used: {problem}."
        if not known:
            logger.warning("%s", self.notes[name])
        if not self._has_more_nodes():
            self._failed("no node of it can run scripts", at_once=True)

    def _has_more_nodes(self) -> bool:
        return any(
            entry["Alive"] and entry["Resources"].get("CPU") and entry["NodeID"] not in self._unusable
            for entry in self.ray.nodes()
        )

    def _failed(self, why: str, *, at_once: bool = False) -> None:
        """A worker did not start. Without any other, and after a few in a row, all who wait are told."""
        self._failures += 1
        self._not_before = time.monotonic() + (_PAUSE_SECONDS if self.workers else 0.0)
        self._last_problem = f"ray: {why}"
        logger.warning("A worker of the cluster could not be started: %s.", why)
        if not self.workers and (at_once or self._failures >= _MOST_FAILURES or "within" in why):
            self._fail(f"The cluster {self._options.address!r} cannot be used: {why}. {' '.join(self.notes.values())}")

    def _fail(self, sentence: str) -> None:
        """Nobody can be served: those who wait are told, and the next run tries anew."""
        self._stop.set()
        self._last_problem = f"ray: {sentence}"
        error = SandboxUnavailable(sentence.strip(), (f"ray: {sentence.strip()}", *self.notes.values()))
        if self._first.done():
            self._first = Future()
        self._first.set_exception(error)

    def _ask(self) -> None:
        """Ask each worker whether it lives; one that does not say so is lost."""
        now = time.monotonic()
        for worker in self.workers:
            if worker.ping is None:
                if now - worker.asked >= min(_PING_SECONDS, self._options.hang_seconds / 2):
                    worker.asked, worker.ping = now, worker.actor.ping.remote()
                continue
            done, _ = self.ray.wait([worker.ping], timeout=0)
            if done:
                ping, worker.ping, worker.asked = worker.ping, None, now
                try:
                    self.ray.get(ping)
                except Exception as error:  # noqa: BLE001  # Ray's for a worker that is gone
                    self.lose(worker, f"is gone ({sentence_of(error)})")
            elif now - worker.asked > self._options.hang_seconds:
                self.lose(worker, f"did not answer for {self._options.hang_seconds:g} seconds")

    def _end_what_nobody_awaits(self) -> None:
        """An event loop that was closed has left its runs and sessions."""
        with self._lock:
            gone = [(number, use) for number, use in self._in_use.items() if use[0].is_closed()]
            for number, _ in gone:
                del self._in_use[number]
        for number, (_, worker, ending) in gone:
            with contextlib.suppress(Exception):
                getattr(worker.actor, ending).remote(number)

    def _let_go(self) -> None:
        """End the workers above the minimum that have had nothing to do for long."""
        now = time.monotonic()
        idle = []
        with self._lock:
            for worker in sorted(self._workers, key=lambda one: one.used):
                rests = not worker.busy and not worker.sessions and now - worker.used > self._options.idle_seconds
                if rests and len(self._workers) > self._options.min_workers:
                    self._workers.remove(worker)
                    idle.append(worker)
        if idle:
            self._resize()
            self._end([worker.actor for worker in idle])

    def _resize(self) -> None:
        with self._lock:
            places = len(self._workers) * self._options.runs_per_worker
        self.turns.resize(places)

    def _end_all(self) -> None:
        with self._lock:
            workers, self._workers = self._workers, []
            for worker in workers:
                worker.lost = worker.lost or "was ended with its sandbox"
        self._resize()
        starting, self._starting = self._starting, []
        self._end([worker.actor for worker in workers])
        for one in starting:
            self._kill(one.actor)

    def _end(self, actors: list[Any]) -> None:
        """End workers in order: their sandboxes first."""
        closing = []
        for actor in actors:
            with contextlib.suppress(Exception):
                closing.append(actor.close.remote())
        if closing:
            with contextlib.suppress(Exception):
                self.ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for actor in actors:
            self._kill(actor)

    def _kill(self, actor: Any) -> None:
        with contextlib.suppress(Exception):
            self.ray.kill(actor, no_restart=True)
