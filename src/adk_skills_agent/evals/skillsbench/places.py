"""Where the trials of a run happen: on this machine, or on the nodes of a Ray cluster, each with its own sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError, SandboxUnavailable
from adk_skills_agent.evals.cluster import Begun, NodeJob, below, note_folder, note_model, packed, there, unpack
from adk_skills_agent.evals.pace import Counter
from adk_skills_agent.evals.skillsbench.agents import ADK, BenchAgent, Nop, Oracle
from adk_skills_agent.evals.skillsbench.engine_options import EngineOptions
from adk_skills_agent.evals.skillsbench.environment import BuildError, Images, TaskSandbox
from adk_skills_agent.evals.skillsbench.results import BuildCounts, Key
from adk_skills_agent.evals.skillsbench.task import Task, read_tasks
from adk_skills_agent.evals.skillsbench.trial import BenchSettings, BenchTrial, kept_files, run_trial, write_kept
from adk_skills_agent.evals.skillsbench.verifier_tools import uv_programs, write_tools
from adk_skills_agent.sandbox import temporary_prefix

_MARGIN_SECONDS = 3600.0
"""Beside the times of agent and verifier: for building the environment, which the first trial of a task waits for."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a machine needs to know to run trials: names and settings, no objects.

    Attributes:
        sandbox: ``local`` or ``container``.
        store: Folder of the built environments; None for ``skillsbench`` in the user's cache folder.
        engine: Settings of container mode.
        agents: Names of agents.
        model: Of the agent ``adk``.
        wheels: Folder of wheels for verifiers without a network.
        agent_network: As in :class:`BenchSettings`.
        verifier_network: As in :class:`BenchSettings`.
        skip_tests: As in :class:`BenchSettings`.
        rebuild: Build every environment anew.
        prune_interval: Clean up after so many builds; 0 never.
        variables: Names of the machine's variables that tasks may ask for.
    """

    sandbox: str
    agents: tuple[str, ...]
    model: str = ""
    store: Path | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    wheels: Path | None = None
    agent_network: bool = True
    verifier_network: bool = True
    skip_tests: bool = False
    rebuild: bool = False
    prune_interval: int = 0
    variables: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the built environments."""
        if self.store is not None:
            return self.store.expanduser().absolute()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "adk-skills-runtime", "skillsbench")

    def open(self) -> TaskSandbox:
        """The sandbox, which the caller closes.

        Raises:
            SandboxUnavailable: This machine has none of that kind.
        """
        if self.sandbox == "container":
            from adk_skills_agent.evals.skillsbench.container_mode import open_container_mode

            return open_container_mode(self.engine)
        from adk_skills_agent.evals.skillsbench.local_mode import open_local_mode

        return open_local_mode(self.folder)

    def settings(
        self,
        stack: contextlib.ExitStack,
        sandbox: TaskSandbox,
        out: Path,
        counts: BuildCounts,
        say: Callable[[str], None] = lambda _: None,
    ) -> BenchSettings:
        """What the trials here share; temporary folders and models end with the stack."""
        tools = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=temporary_prefix("bench"))), "tools")
        return BenchSettings(
            sandbox=sandbox,
            images=Images(sandbox, counts, self.rebuild, self.prune_interval, say),
            agents=self._agents(stack),
            out=out,
            tools=tools,
            wheels=self.wheels,
            agent_network=self.agent_network,
            verifier_network=self.verifier_network,
            skip_tests=self.skip_tests,
            variables={name: os.environ[name] for name in self.variables if name in os.environ},
        )

    async def write_tools(self, settings: BenchSettings) -> str | None:
        """Write the commands for verifiers; a sentence where one of them cannot be had."""
        note = uv = None
        try:
            uv = await uv_programs(self.folder)
        except BuildError as error:
            note = f"{error.message} Verifiers that install it need its own site."
        await asyncio.to_thread(write_tools, settings.tools, uv, network=settings.verifier_network)
        return note

    def _agents(self, stack: contextlib.ExitStack) -> dict[str, BenchAgent]:
        agents: dict[str, BenchAgent] = {"oracle": Oracle(), "nop": Nop()}
        if ADK in self.agents:
            from adk_skills_agent.evals.run.settings import named_model
            from adk_skills_agent.evals.skillsbench.adk_agent import AdkAgent

            agents[ADK] = AdkAgent(stack.enter_context(named_model(self.model)))
        return {name: agent for name, agent in agents.items() if name in self.agents}


def without_those_that_cannot_run(
    tasks: Sequence[Task], sandbox: TaskSandbox | None, seconds: float | None
) -> tuple[list[Task], dict[str, str]]:
    """The tasks that can run, and the others with the reason.

    Args:
        tasks: All of them.
        sandbox: Of this machine; None leaves it to nodes what they can run.
        seconds: For the agent, over the tasks' own; None leaves those.
    """
    runnable, left_out = [], {}
    for task in tasks:
        reason = " ".join(task.unsupported) or (sandbox.problem(task) if sandbox is not None else None)
        if reason:
            left_out[task.name] = reason
        elif seconds is None:
            runnable.append(task)
        else:
            limits = replace(task.limits, agent_seconds=seconds)
            runnable.append(replace(task, settings=replace(task.settings, limits=limits)))
    return runnable, left_out


# On a cluster.


@dataclass(frozen=True, kw_only=True)
class BenchJob(NodeJob):
    """Trials of ``adk-skills bench skillsbench``.

    Attributes:
        place: What each node needs to know, with the paths of here.
        tasks: The folders of the tasks here.
        agent_seconds: For the agent, over the tasks' own; None leaves those.
        out: Folder of the results here.
    """

    place: Place
    tasks: tuple[Path, ...]
    agent_seconds: float | None
    out: Path

    async def begin(self, stack: contextlib.AsyncExitStack, folder: Path, counter: Counter | None) -> Begun:
        """Open the node's sandbox; see :meth:`NodeJob.begin`."""
        del counter  # there are no limits of requests here
        await asyncio.to_thread(unpack, self, folder)
        wheels = below(folder, self.place.wheels) if self.place.wheels is not None else None
        place = replace(self.place, wheels=wheels, model=there(folder, self.place.model))
        sandbox = await asyncio.to_thread(place.open)
        stack.push_async_callback(sandbox.close)
        parents = {below(folder, task).parent for task in self.tasks}
        read = [task for parent in sorted(parents) for task in read_tasks(parent).tasks]
        tasks, cannot = without_those_that_cannot_run(read, sandbox, self.agent_seconds)
        if not tasks:
            raise SandboxUnavailable(f"it can run none of the tasks: {next(iter(cannot.values()), '')}")
        counts = BuildCounts()
        settings = place.settings(stack.enter_context(contextlib.ExitStack()), sandbox, folder / "results", counts)
        for agent in settings.agents.values():
            stack.push_async_callback(agent.close)
        note = await place.write_tools(settings)
        notes = [*sandbox.notes(), *([note] if note else [])]
        by_name = {task.name: task for task in tasks}

        async def run(key: Key) -> dict[str, Any]:
            name, arm, number, agent = key
            row = await run_trial(BenchTrial(by_name[name], arm, number, agent), settings)
            files = await asyncio.to_thread(kept_files, settings.out, row)
            return {**row, "notes": [*row["notes"], *notes], _FILES: files, _BUILDS: counts.to_json()}

        return Begun(sandbox.name, run, cannot)

    def seconds(self, trial: BenchTrial) -> float:
        """As long as agent and verifier may take, and a build."""
        limits = trial.task.limits
        return 2 * limits.agent_seconds + limits.verifier_seconds + _MARGIN_SECONDS

    def kept(self, trial: BenchTrial, row: dict[str, Any]) -> dict[str, Any]:
        """With the fingerprint of here; its trace and report are written beside the results."""
        write_kept(self.out, row.pop(_FILES))
        return {**row, "fingerprint": trial.fingerprint}

    def unmeasured(self, trial: BenchTrial, why: str) -> dict[str, Any]:
        """A trial without a reward, which ``--resume`` runs again."""
        return {
            "task": trial.task.name,
            "arm": trial.arm,
            "trial": trial.number,
            "agent": trial.agent,
            "reward": None,
            "passed": None,
            "error": why,
            "seconds": 0.0,
            "error_kind": "sandbox",
            "category": trial.task.settings.category,
            "fingerprint": trial.fingerprint,
            "started": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }


_FILES, _BUILDS = "kept_files", "builds_of_node"


class NodeBuilds:
    """What the nodes built, from what their latest rows say."""

    def __init__(self, counts: BuildCounts) -> None:
        self._counts = counts
        self._nodes: dict[str, Mapping[str, Any]] = {}

    def take(self, row: dict[str, Any]) -> dict[str, Any]:
        """Count the builds of the row's node; the row without them."""
        told = row.pop(_BUILDS, None)
        if told is not None:
            ran = row["ran_on"]
            self._nodes[f"{ran['node']} {ran['process']}"] = told
            every = self._nodes.values()
            self._counts.built = sum(one["built"] for one in every)
            self._counts.cached = sum(one["cached"] for one in every)
            self._counts.retried = sum(one["retried"] for one in every)
            self._counts.seconds = sum(one["seconds"] for one in every)
            self._counts.failed = {name: why for one in every for name, why in one["failed"].items()}
        return row


def bench_job(place: Place, tasks: Sequence[Task], agent_seconds: float | None, out: Path) -> BenchJob:
    """What the nodes of a cluster get of a run: its tasks, the wheels, the rules of a scripted model.

    Raises:
        ConfigError: The files are too large, or one cannot be read.
    """
    found: dict[Path, int] = {}
    folders = tuple(task.folder.absolute() for task in tasks)
    for folder in folders:
        note_folder(folder, found, skipped=frozenset())  # a repository may be a task's data
    wheels = place.wheels.absolute() if place.wheels is not None else None
    if wheels is not None:
        note_folder(wheels, found)
    if place.store is not None and not place.store.is_absolute():
        raise ConfigError("--cache-dir: on a cluster it is a folder of each node; give an absolute path.")
    place = replace(place, wheels=wheels, model=note_model(place.model, found))
    return BenchJob(place=place, tasks=folders, agent_seconds=agent_seconds, out=out, **packed(found))
