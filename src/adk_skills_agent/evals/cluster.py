"""Trials on other machines: a Ray cluster runs them, and this process keeps the results.

Ray schedules and isolates nothing: every script runs in the sandbox of the node it lands on. Each node has one worker,
which gets the files of the run once, plans the same trials from them, and runs those it is named. A row comes back to
the driver and is written there, so the budget, ``--resume`` and the live display work as on one machine, and a row
exists once however often a node was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import logging
import os
import platform
import secrets
import signal
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError, SkillsError
from adk_skills_agent.evals.pace import Counter, Limits, Pace
from adk_skills_agent.evals.preparation import Prepared, Request
from adk_skills_agent.evals.run.plan import Key, Trial
from adk_skills_agent.evals.run.settings import SCRIPTED, ModelNames
from adk_skills_agent.evals.run.trial import unmeasured_row
from adk_skills_agent.platforms import extract_all_below
from adk_skills_agent.sandbox import join_cluster as join
from adk_skills_agent.sandbox import load_ray, sentence_of, temporary_prefix, why_no_worker

LOST_MOST = 3
"""How often a trial is started again because its node was lost, before its row says so."""
START_SECONDS = 120.0
"""For a node to answer with what it is."""
_FREE_SECONDS = 15.0
"""For a node that is taken: the workers of a run that was killed a moment ago end within it."""
_LOOK_SECONDS = 0.5
_MOST_BUNDLE_BYTES = 512 << 20
_LOCAL_NODES = 2
_CLOSE_SECONDS = 5.0
_LOOPBACK = "127.0.0.2"
"""Ray takes 127.0.0.1 for the address that others see."""
_AS_IMPORTANT = {"RAY_worker_niceness": "0"}
"""Ray's workers give way to everything else on the machine; trials here are what ``--parallel`` would run."""
_NOT_SENT = frozenset({".git", "__pycache__"})
_TEST_CONFIG = "test_config.json"
_MARGIN_SECONDS = 900.0
"""Beside a trial's own time: for its judge."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a trial takes of a node.

    Attributes:
        cpus: Processors; how many trials a node runs at once follows from it.
        memory_bytes: Memory, counted by Ray and not enforced by it: the sandbox limits what scripts take.
        gpus: Graphics processors.
        labels: Custom resources of Ray: ``{"container": 1}`` for nodes with an engine, for instance.
    """

    cpus: float = 1.0
    memory_bytes: int = 0
    gpus: float = 0.0
    labels: Mapping[str, float] = field(default_factory=dict)

    def slots(self, resources: Mapping[str, float]) -> int:
        """How many trials fit on a node with these resources at once."""
        wanted = {**self.labels, "CPU": self.cpus, "memory": float(self.memory_bytes), "GPU": self.gpus}
        return int(min((resources.get(name, 0.0) / much for name, much in wanted.items() if much > 0), default=1))


@dataclass(frozen=True, slots=True)
class Begun:
    """A job that a node has begun.

    Attributes:
        level: What isolates the work there.
        run: Runs the trial of a key; its row.
        cannot: Name of a case or task to the reason why this node cannot run its trials.
    """

    level: str
    run: Callable[[Any], Awaitable[dict[str, Any]]]
    cannot: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NodeJob(ABC):
    """What is sent to every node, once.

    Attributes:
        bundle: The files of the run: a tar archive whose names are the absolute paths here, without the first slash.
        limits: How fast the models may be asked, over all nodes.
    """

    bundle: bytes
    version: str
    python: str
    limits: Limits = field(default_factory=Limits)

    @abstractmethod
    async def begin(self, stack: contextlib.AsyncExitStack, folder: Path, counter: Counter | None) -> Begun:
        """Get ready on a node.

        Args:
            stack: Closed when the work is over.
            folder: For the files of the bundle; removed then.
            counter: Of requests to models.

        Raises:
            SkillsError: The node cannot do it; the sentence says why.
        """

    @abstractmethod
    def seconds(self, trial: Any) -> float:
        """After so many without an answer a node is given up."""

    @abstractmethod
    def kept(self, trial: Any, row: dict[str, Any]) -> dict[str, Any]:
        """The row of a trial as the driver writes it."""

    @abstractmethod
    def unmeasured(self, trial: Any, why: str) -> dict[str, Any]:
        """The row of a trial that no node could finish."""


@dataclass(frozen=True, kw_only=True)
class Job(NodeJob):
    """Trials of ``adk-skills eval``.

    Attributes:
        request: What is measured, with the paths of here.
        models: By whom.
    """

    request: Request
    models: ModelNames

    async def begin(self, stack: contextlib.AsyncExitStack, folder: Path, counter: Counter | None) -> Begun:
        """Plan the same trials; see :meth:`NodeJob.begin`."""
        from adk_skills_agent.evals.preparation import prepare
        from adk_skills_agent.evals.run.settings import settings_of
        from adk_skills_agent.evals.run.trial import run_trial
        from adk_skills_agent.sandbox import IsolationLevel, local_sandbox, policy_of

        level = (await local_sandbox().probe()).level
        wanted = IsolationLevel(policy_of(self.models.policy).min_isolation)
        if level.strength < wanted.strength:
            raise ConfigError(f"it isolates scripts at level '{level.value}', and the policy asks for '{wanted.value}'")
        prepared = prepare(unpacked(self, folder))
        models = replace(self.models, model=there(folder, self.models.model), judge=there(folder, self.models.judge))
        trials = {trial.key: trial for trial in prepared.trials}
        closing = stack.enter_context(contextlib.ExitStack())
        settings = settings_of(closing, prepared, models, folder, counter)
        if prepared.trials:
            await settings.agents.get_ready(prepared.trials[0])

        async def run(key: Key) -> dict[str, Any]:
            if key not in trials:
                return {"refused": f"it knows no trial {key[0]!r}"}
            return await run_trial(trials[key], settings)

        return Begun(level.value, run)

    def seconds(self, trial: Trial) -> float:  # noqa: ARG002  # all trials have the same time
        """As long as a trial may take, and its judge."""
        return self.models.timeout + _MARGIN_SECONDS

    def kept(self, trial: Trial, row: dict[str, Any]) -> dict[str, Any]:
        """With the paths of here."""
        return {**row, "source": str(trial.case.source), "fingerprint": trial.fingerprint}

    def unmeasured(self, trial: Trial, why: str) -> dict[str, Any]:
        """An error of the cluster, which ``--resume`` runs again."""
        return unmeasured_row(trial, "cluster", why)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node says of itself.

    Attributes:
        problem: Why it cannot run trials; empty when it can.
        cannot: As in :class:`Begun`.
    """

    host: str
    version: str
    python: str
    level: str
    problem: str
    cannot: Mapping[str, str] = field(default_factory=dict)


def job_of(prepared: Prepared, request: Request, models: ModelNames) -> Job:
    """What the nodes of a cluster get of a run: its cases, the files they name, and the skills of its arms.

    Raises ``ConfigError`` when the files are too large, or one cannot be read.
    """
    found: dict[Path, int] = {}
    dirs: dict[Path, None] = {}
    for arm in prepared.arms:
        for name in arm.catalog:
            with contextlib.suppress(SkillsError):  # the arm's agents cannot load it either
                skill = arm.catalog.load_skill(name)
                folder = Path(skill.skill_dir).absolute()
                note_folder(folder, found, without=skill.without)
                if arm.name not in request.versions:
                    dirs[folder] = None
    for file in (*prepared.files, *(one.path for case in prepared.cases for one in case.files)):
        for path in (file, file.with_name(_TEST_CONFIG)):
            if path.is_file():
                found[path.absolute()] = path.stat().st_size

    names = {arm.name for arm in prepared.arms}
    request = replace(
        request,
        targets=tuple(path.absolute() for path in prepared.files),
        dirs=tuple(dirs),
        arms=tuple(arm.name for arm in prepared.arms),
        versions={name: path.absolute() for name, path in request.versions.items() if name in names},
        private=(),
        user_model=note_model(request.user_model, found),
    )
    models = replace(models, model=note_model(models.model, found), judge=note_model(models.judge, found))
    return Job(request=request, models=models, limits=models.limits, **packed(found))


def note_model(name: str, found: dict[Path, int]) -> str:
    """A model's name with the absolute path of its rules, which travel too."""
    if not name.startswith(SCRIPTED):
        return name
    rules = Path(name.removeprefix(SCRIPTED)).absolute()
    found[rules] = rules.stat().st_size if rules.is_file() else 0
    return f"{SCRIPTED}{rules}"


def note_folder(
    folder: Path, found: dict[Path, int], *, without: Sequence[str] = (), skipped: frozenset[str] = _NOT_SENT
) -> None:
    """Note the files of a skill or task: what its scripts would see of it, and no link that leads out of it."""
    left_out = {folder / name for name in without}
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = [name for name in folders if name not in skipped and here / name not in left_out]
        for name in files:
            path = here / name
            if path not in left_out and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                found[path] = path.stat().st_size


def packed(found: Mapping[Path, int]) -> dict[str, Any]:
    """The bundle, version and Python of a job with these files.

    Raises:
        ConfigError: They are too large, or one cannot be read.
    """
    from adk_skills_agent import __version__

    if sum(found.values()) > _MOST_BUNDLE_BYTES:
        largest = max(found, key=lambda path: found[path])
        raise ConfigError(
            f"The files of the run are larger than {_MOST_BUNDLE_BYTES >> 20} MiB (the largest: {largest}). Put the "
            "skills and the cases into folders without other files, or choose fewer of them with --filter."
        )
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for path in found:
            try:
                archive.add(path.resolve(), arcname=str(path).lstrip("/"), recursive=False)
            except OSError as error:
                raise ConfigError(f"{path} cannot be sent to the cluster: {error.strerror}.") from error
    return {"bundle": stream.getvalue(), "version": __version__, "python": _python()}


def unpack(job: NodeJob, folder: Path) -> None:
    """Write the files of a job below a folder."""
    with tarfile.open(fileobj=io.BytesIO(job.bundle)) as archive:
        extract_all_below(archive, folder)


def unpacked(job: Job, folder: Path) -> Request:
    """Write the files of a job below a folder; the request with the paths they have there."""
    unpack(job, folder)

    def all_there(paths: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(below(folder, path) for path in paths)

    request = job.request
    return replace(
        request,
        targets=all_there(request.targets),
        dirs=all_there(request.dirs),
        versions=dict(zip(request.versions, all_there(list(request.versions.values())), strict=True)),
        user_model=there(folder, request.user_model),
    )


def there(folder: Path, model: str) -> str:
    """A model's name with the path that its rules have on the node."""
    if not model.startswith(SCRIPTED):
        return model
    return f"{SCRIPTED}{below(folder, model.removeprefix(SCRIPTED))}"


def below(folder: Path, path: Path | str) -> Path:
    """Where a file of the driver is after it was unpacked."""
    return folder / str(Path(path)).lstrip("/")


class Worker:
    """The work of one node; Ray makes an actor of it. Its methods run in the actor's event loop."""

    def __init__(self, job: NodeJob, pace: Any = None) -> None:
        self._job = job
        self._counter = _Remote(pace) if pace is not None else None
        self._stack = contextlib.AsyncExitStack()
        self._begun: Begun | None = None

    async def hello(self) -> NodeAnswer:
        """What this node is, and whether it can run trials."""
        from adk_skills_agent import __version__

        problem, python = "", _python()
        if (__version__, python) != (self._job.version, self._job.python):
            problem = (
                f"it has adk-skills-runtime {__version__} on Python {python}, and here is {self._job.version} on "
                f"{self._job.python}"
            )
        else:
            for name in ("google_adk", "google_genai"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=temporary_prefix("cluster"))))
            try:
                self._begun = await self._job.begin(self._stack, folder, self._counter)
            except SkillsError as error:
                problem = error.message.removesuffix(".")
                await self._stack.aclose()
        level, cannot = (self._begun.level, self._begun.cannot) if self._begun is not None else ("", {})
        return NodeAnswer(platform.node(), __version__, python, level, problem, cannot)

    async def run(self, key: Any) -> dict[str, Any]:
        """Run one trial; its row, or ``{"refused": sentence}`` where it cannot be run here."""
        if self._begun is None:
            return {"refused": "it could not begin"}
        try:
            row = await self._begun.run(key)
        except SkillsError as error:
            return {"refused": error.message.removesuffix(".")}
        return {**row, "ran_on": {"host": platform.node(), "process": os.getpid(), "log": _log_of_this_process()}}

    async def close(self) -> None:
        """End what serves the models, and remove the files."""
        await self._stack.aclose()


class _Remote:
    """The :class:`Pace` of all nodes, an actor of Ray."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def ask(self) -> tuple[int, float]:
        """As :meth:`Pace.ask`."""
        ticket, wait = await self._actor.ask.remote()
        return ticket, wait

    async def told(self, ticket: int, tokens: int, *, busy: bool = False) -> None:
        """As :meth:`Pace.told`."""
        await self._actor.told.remote(ticket, tokens, busy=busy)


def _log_of_this_process() -> str:
    """Where Ray keeps what this worker prints, on its node; empty outside of one."""
    with contextlib.suppress(Exception):
        ray = importlib.import_module("ray")
        if not ray.is_initialized():  # asking would start a cluster
            return ""
        context = ray.get_runtime_context()
        return f"worker-{context.get_worker_id()}-*.out"
    return ""


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


@dataclass(slots=True)
class Node:
    """A node that runs trials.

    Attributes:
        name: Its name, with Ray's id where two are called alike.
        actor: Its worker; None after it was lost.
        cannot: As in :class:`Begun`.
    """

    name: str
    id: str
    slots: int
    actor: Any
    busy: int = 0
    level: str = ""
    cannot: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """The nodes of a run, from :func:`workers`."""

    def __init__(self, ray: Any, job: NodeJob, needs: Needs) -> None:
        self._ray = ray
        self._job = job
        self._needs = needs
        self._sent: Any = None
        self._pace: Any = None
        self._free = asyncio.Condition()
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        self._restarting = 0

    @property
    def slots(self) -> int:
        """Trials at once, over all nodes."""
        return sum(node.slots for node in self.nodes)

    async def start(self) -> None:
        """Start a worker on each node that can be used; why the others cannot is in ``notes``.

        Raises ``ConfigError`` when none can.
        """
        self._sent = self._ray.put(self._job)
        limits = self._job.limits
        if limits != Limits():
            here = _on(
                self._ray.get_runtime_context().get_node_id(), soft=True
            )  # a node that is lost takes no count along
            options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
            self._pace = self._ray.remote(Pace).options(**options).remote(limits)
        found = []
        for entry in self._ray.nodes():
            if entry["Alive"]:
                name = str(entry.get("NodeName") or entry["NodeID"][:8])
                if not entry["Resources"].get("CPU"):
                    continue  # the head of a cluster often runs nothing
                if self._needs.slots(entry["Resources"]) < 1:
                    self.notes.append(
                        f"Node {name} is not used: a trial needs more than it has ({_shown(self._needs)})."
                    )
                else:
                    found.append(Node(name, entry["NodeID"], 0, None))
        await self._see_what_is_free(found)
        names = [node.name for node in found]
        for node in found:
            if names.count(node.name) > 1:
                node.name = f"{node.name}/{node.id[:6]}"
        for node in found:
            if not node.slots:
                self.notes.append(f"Node {node.name} is not used: {_TAKEN}")
        await asyncio.gather(*(self._begin(node) for node in found if node.slots))
        self.nodes = [node for node in found if node.actor is not None]
        if not self.nodes:
            raise ConfigError(f"No node of the cluster can run trials. {' '.join(self.notes) or _NO_NODE}")

    async def _see_what_is_free(self, nodes: Sequence[Node]) -> None:
        """Note how many trials each node has room for beside what others run there; wait a little for full ones."""
        # Ray's public functions tell what is free in the whole cluster only.
        state = importlib.import_module("ray._private.state")
        until = asyncio.get_running_loop().time() + _FREE_SECONDS
        while True:
            free = await asyncio.to_thread(state.available_resources_per_node)
            for node in nodes:
                node.slots = self._needs.slots(free.get(node.id, {}))
            if all(node.slots for node in nodes) or asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _begin(self, node: Node) -> None:
        """Start the worker of a node, and ask it what it is."""
        wanted = self._needs
        options: dict[str, Any] = {
            "num_cpus": wanted.cpus * node.slots,
            "num_gpus": wanted.gpus * node.slots or None,
            "memory": wanted.memory_bytes * node.slots or None,
            "resources": {name: much * node.slots for name, much in wanted.labels.items()},
            "max_concurrency": node.slots + 1,
            "scheduling_strategy": _on(node.id, soft=False),
        }
        actor = self._ray.remote(Worker).options(**options).remote(self._sent, self._pace)
        try:
            answer = await asyncio.wait_for(_result(actor.hello.remote()), START_SECONDS)
        except TimeoutError:
            self.notes.append(f"Node {node.name} is not used: it did not answer within {START_SECONDS:g} seconds.")
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
            return
        except self._ray.exceptions.RayError as error:
            self.notes.append(f"Node {node.name} is not used: {why_no_worker(error)}.")
            return
        if answer.problem:
            self.notes.append(f"Node {node.name} is not used: {answer.problem}.")
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
            return
        node.actor, node.level, node.cannot = actor, answer.level, answer.cannot

    async def run(self, trial: Any) -> dict[str, Any]:
        """Run a trial on a node that is free; again elsewhere when that node is lost.

        Returns its row. Where no node could finish it, the row's error says so, and ``--resume`` runs it again. Raises
        ``ConfigError``.
        """
        why = ""
        for _ in range(LOST_MOST):
            node = await self._taken(trial.key[0])
            if node is None:
                why = "no node of the cluster is left"
                break
            seconds = self._job.seconds(trial)
            try:
                row = await asyncio.wait_for(_result(node.actor.run.remote(trial.key)), seconds)
            except self._ray.exceptions.RayTaskError as error:  # its code failed; elsewhere it would fail as well
                return self._job.unmeasured(trial, f"node {node.name} failed: {sentence_of(error)}")
            except TimeoutError:
                why = f"node {node.name} did not answer for {seconds:g} seconds"
                with contextlib.suppress(Exception):
                    self._ray.kill(node.actor)
                await self._give_up(node)
                continue
            except self._ray.exceptions.RayError as error:  # the node, its worker or the object store is gone
                why = f"node {node.name} was lost: {sentence_of(error)}"
                logger.warning("%s", why)
                await self._give_up(node)
                continue
            finally:
                await self._give_back(node)
            if "refused" in row:
                raise ConfigError(f"Node {node.name} does not run it: {row['refused']}.")
            return self._job.kept(trial, {**row, "ran_on": {**row["ran_on"], "node": node.name}})
        return self._job.unmeasured(trial, why)

    async def _taken(self, name: str) -> Node | None:
        """The node with most room of those that can run a case or task; None when there are none any more."""
        async with self._free:
            while (able := [node for node in self.nodes if name not in node.cannot]) or self._restarting:
                node = max(able, key=lambda one: one.slots - one.busy, default=None)
                if node is not None and node.busy < node.slots:
                    node.busy += 1
                    return node
                await self._free.wait()
            return None

    async def _give_back(self, node: Node) -> None:
        async with self._free:
            node.busy -= 1
            self._free.notify_all()

    async def _give_up(self, node: Node) -> None:
        """Leave a node whose worker is gone out, but for a new worker where the node itself still lives."""
        lost, node.actor = node.actor, None
        if lost is None:
            return  # another trial of it was told before
        async with self._free:
            self.nodes.remove(node)
            self._restarting += 1
        again, told = Node(node.name, node.id, node.slots, None), len(self.notes)
        try:
            if any(entry["NodeID"] == node.id and entry["Alive"] for entry in self._ray.nodes()):
                await self._begin(again)
            if again.actor is None:  # Ray calls a node alive for a while that is gone
                self.notes[told:] = [f"Node {node.name} was lost; its trials ran elsewhere."]
        finally:
            async with self._free:
                self._restarting -= 1
                self.nodes += [again] if again.actor is not None else []
                self._free.notify_all()

    async def close(self) -> None:
        """End the workers, and with them what they run; their files are removed first."""
        for node in self.nodes:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(_result(node.actor.close.remote()), _CLOSE_SECONDS)
            with contextlib.suppress(Exception):
                self._ray.kill(node.actor)
        self.nodes.clear()
        if self._pace is not None:
            self._ray.kill(self._pace)


_NO_NODE = "It has no node with a CPU, and a run starts none: add one with `ray start --address HOST:PORT`."
_TAKEN = "other work takes what it has. `ray status` shows what is free; wait for it, or let a trial take less."


def _on(node_id: str, *, soft: bool) -> Any:
    """Ray's way to say which node."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node_id=node_id, soft=soft)


async def _result(reference: Any) -> Any:
    return await reference


def _shown(needs: Needs) -> str:
    parts = [f"{needs.cpus:g} CPU"]
    parts += [f"{needs.memory_bytes >> 20} MiB"] if needs.memory_bytes else []
    parts += [f"{needs.gpus:g} GPU"] if needs.gpus else []
    parts += [f"{much:g} {name}" for name, much in needs.labels.items()]
    return ", ".join(parts)


@contextlib.contextmanager
def joined(address: str, needs: Needs) -> Iterator[Any]:
    """Join a Ray cluster, or start one on this machine. In the main thread, before its event loop: Ray wants SIGTERM.

    ``address`` is ``local`` or ``local:NODES`` for nodes of this machine's own, else what ``ray.init`` takes; ``needs``
    is what each trial takes.

    Yields:
        The module ``ray``.

    Raises:
        ConfigError: Ray is not installed, or nobody answers.
    """
    own = {}
    if _is_local(address):  # its servers listen on every interface, so nobody may use them without this run's token
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), **_AS_IMPORTANT}
    had = {name: os.environ.get(name) for name in own}
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with contextlib.ExitStack() as stack:
        stack.callback(_restore, had)
        os.environ.update(own)
        ray = load_ray("--cluster")
        try:
            _join(ray, address, stack, needs)
        except SystemExit as error:
            # Ray's own answer to SIGTERM, with 1: to a build that would mean that the pass rate was not reached.
            raise SystemExit(128 + signal.SIGTERM) from error
        for number, handler in before.items():
            signal.signal(number, handler)  # whoever waits for the run ends it in order
        yield ray


@contextlib.asynccontextmanager
async def workers(ray: Any, job: NodeJob, needs: Needs) -> AsyncIterator[Cluster]:
    """A worker on each node of a cluster that was joined. Raises ``ConfigError`` when no node can be used."""
    cluster = Cluster(ray, job, needs)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()


def _restore(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _join(ray: Any, address: str, stack: contextlib.ExitStack, needs: Needs) -> None:
    own: dict[str, str] = {}
    if _is_local(address):
        own = {"_node_ip_address": _LOOPBACK}
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            address = _started(_local_nodes(address), stack, needs)
        except Exception as error:  # a node that is late is an Exception of no kind
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"The cluster {address!r} cannot be started: {sentence_of(error)}") from error
    join(ray, address, **own)
    stack.callback(ray.shutdown)


def _started(nodes: int, stack: contextlib.ExitStack, needs: Needs) -> str:
    """Start a head that runs nothing and nodes on this machine; the address of the cluster."""
    utilities = importlib.import_module("ray.cluster_utils")
    here = {"node_ip_address": _LOOPBACK}
    made = utilities.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **here})
    stack.callback(made.shutdown)
    cpus = max(1, (os.cpu_count() or 2) // nodes, needs.cpus)
    for _ in range(nodes):
        made.add_node(num_cpus=cpus, resources=dict(needs.labels), num_gpus=needs.gpus or None, **here)
    return str(made.address)


def _is_local(address: str) -> bool:
    return address.partition(":")[0] == "local"


def _local_nodes(address: str) -> int:
    _, colon, text = address.partition(":")
    if not colon:
        return _LOCAL_NODES
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 64:
        raise ConfigError(f"--cluster {address!r}: write local or local:NODES with a number from 1 to 64.")
    return int(text)
