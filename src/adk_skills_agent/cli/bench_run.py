"""The run behind ``adk-skills bench skillsbench``: tasks, sandbox, trials, results, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.cli.bench import print_builds, print_summary, trial_line
from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.terminal import exit_code_of, run_interruptible
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.row_file import RowFile, Stopped
from adk_skills_agent.evals.skillsbench.agents import ADK
from adk_skills_agent.evals.skillsbench.environment import BuildError, Images, TaskSandbox
from adk_skills_agent.evals.skillsbench.places import NodeBuilds, Place, bench_job, without_those_that_cannot_run
from adk_skills_agent.evals.skillsbench.results import (
    SELF_GEN,
    WITH_SKILL,
    BenchResult,
    RunState,
    row_file,
    self_test_problems,
    summarise,
)
from adk_skills_agent.evals.skillsbench.runner import build_all, make_plan, run_bench
from adk_skills_agent.evals.skillsbench.task import Task, read_tasks
from adk_skills_agent.evals.skillsbench.trial import BenchSettings, BenchTrial, run_trial

if TYPE_CHECKING:
    from adk_skills_agent.evals.cluster import Needs

NOT_MEASURED = 1


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; see its help."""

    tasks_dir: Path
    containing: str
    agents: tuple[str, ...]
    model: str
    arms: tuple[str, ...]
    trials: int
    parallel: int | None
    timeout: float | None
    sandbox: str
    rebuild: bool
    build_only: bool
    prune_interval: int
    skip_tests: bool
    self_test: bool
    agent_network: bool
    verifier_network: bool
    wheels: Path | None
    out: Path
    resume: bool
    cache_dir: Path | None
    as_json: bool
    base_images: tuple[str, ...] = ()
    bases: str = "registry"
    build_network: str | None = None
    build_arguments: tuple[str, ...] = ()
    ca_certificates: Path | None = None
    variables: tuple[str, ...] = ()
    cluster: str | None = None
    needs: Needs | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that results depend on besides the tasks: a run with other facts is not resumed."""
        return {
            "model": self.model if ADK in self.agents else "",
            "sandbox": self.sandbox,
            "bases": [self.bases, *sorted(self.base_images)],
            "agent_network": self.agent_network,
            "verifier_network": self.verifier_network,
            "skip_tests": self.skip_tests,
        }


def run(options: Options) -> int:
    """Run the benchmark, keep and print the results.

    Returns:
        The exit code.

    Raises:
        ConfigError: A folder, the model or the options cannot be used.
        SandboxUnavailable: This machine cannot run tasks in that mode.
    """
    if SELF_GEN in options.arms and set(options.agents) != {ADK}:
        raise ConfigError("--arm self-gen needs an agent that can write skills: --agent adk.")
    if options.skip_tests and set(options.agents) != {ADK}:
        raise ConfigError("--skip-tests looks at how skills were used: it needs --agent adk.")
    if options.cluster is not None and options.build_only:
        raise ConfigError("--build-only builds on this machine; on a cluster each node builds what its trials need.")
    if options.wheels is not None and not options.wheels.is_dir():
        raise ConfigError(f"--wheels: there is no folder {safe(str(options.wheels))}.")
    # What they log of a request that fails is in the row of its trial; here it would bury what is said.
    for name in ("google_adk", "google_genai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        tasks = read_tasks(options.tasks_dir, containing=options.containing)
        place = _place(options)
        sandbox = None
        if options.cluster is None:
            sandbox = place.open()
            stack.callback(_close, sandbox)
        runnable, left_out = without_those_that_cannot_run(tasks.tasks, sandbox, options.timeout)
        left_out = {**tasks.skipped, **left_out}
        for name, reason in left_out.items():
            print(f"left out: {safe(name)}: {safe(reason)}", file=sys.stderr)
        for note in sandbox.notes() if sandbox is not None else ():
            print(f"note: {safe(note)}", file=sys.stderr)
        if not runnable:
            raise ConfigError(f"None of the {len(left_out)} tasks can run here; why is said above.")
        plan = make_plan(runnable, options.arms, options.agents, options.trials, options.facts)
        state = RunState(len(plan))
        if options.build_only and sandbox is not None:
            images = Images(sandbox, state.builds, options.rebuild, options.prune_interval, _say)
            return _build_only(runnable, images, options)
        rows = stack.enter_context(row_file(options.out, resume=options.resume))
        if sandbox is None:
            from adk_skills_agent.evals.cluster import joined

            ray = stack.enter_context(joined(options.cluster or "", _needs(options)))
            work = _on_nodes(plan, ray, place, runnable, rows, state, options, left_out)
        else:
            settings = place.settings(stack, sandbox, options.out, state.builds, _say)
            work = _here(plan, place, settings, rows, state, options)
        ended: KeyboardInterrupt | None = None
        try:
            run_interruptible(work)
        except KeyboardInterrupt as error:
            ended = error
        for note in rows.notes:
            print(f"adk-skills: {safe(note)}", file=sys.stderr)
        content = _content(state, options, left_out, rows.path, time.monotonic() - begun)
    if options.as_json:
        print_json(content)
    else:
        print_summary(content)
    if ended is not None:
        done = f"{len(state.results)} of {state.planned} trials are done and kept in {safe(str(options.out))}"
        print(f"adk-skills: interrupted; {done}, --resume continues", file=sys.stderr)
        return exit_code_of(ended)
    return _exit_code(state, options, content)


async def _here(
    plan: Sequence[BenchTrial],
    place: Place,
    settings: BenchSettings,
    rows: RowFile,
    state: RunState,
    options: Options,
) -> None:
    try:
        if note := await place.write_tools(settings):
            print(f"note: {safe(note)}", file=sys.stderr)
        run = partial(run_trial, settings=settings)
        await run_bench(plan, run, rows, state, parallel=options.parallel or 1, on_result=_teller(options))
    finally:
        for agent in settings.agents.values():
            await asyncio.shield(agent.close())


async def _on_nodes(
    plan: Sequence[BenchTrial],
    ray: object,
    place: Place,
    tasks: Sequence[Task],
    rows: RowFile,
    state: RunState,
    options: Options,
    left_out: dict[str, str],
) -> None:
    """Run the trials on the nodes of a cluster; tasks that no node can run are left out."""
    from adk_skills_agent.cli.eval_run import telling_of_nodes
    from adk_skills_agent.evals.cluster import workers

    job = bench_job(place, tasks, options.timeout, options.out)
    builds = NodeBuilds(state.builds)
    async with workers(ray, job, _needs(options)) as cluster, telling_of_nodes(cluster):
        for task in tasks:
            if all(task.name in node.cannot for node in cluster.nodes):
                left_out[task.name] = reason = cluster.nodes[0].cannot[task.name]
                print(f"left out: {safe(task.name)}: {safe(reason)}", file=sys.stderr)
        plan = [trial for trial in plan if trial.task.name not in left_out]
        state.planned = len(plan)

        async def run(trial: BenchTrial) -> dict[str, Any]:
            return builds.take(await cluster.run(trial))

        parallel = options.parallel or cluster.slots
        await run_bench(plan, run, rows, state, parallel=parallel, on_result=_teller(options))


def _teller(options: Options) -> Callable[[RunState, BenchResult, dict[str, Any]], None]:
    def told(state: RunState, result: BenchResult, row: Mapping[str, Any]) -> None:
        line = trial_line(len(state.results), state.planned, result, row, alone=len(options.arms) == 1)
        print(line, file=sys.stderr, flush=True)

    return told


def _needs(options: Options) -> Needs:
    from adk_skills_agent.evals.cluster import Needs

    return options.needs or Needs()


def _place(options: Options) -> Place:
    from adk_skills_agent.evals.skillsbench.engine_options import EngineOptions, read_engine_options

    place = Place(
        sandbox=options.sandbox,
        agents=options.agents,
        model=options.model,
        store=options.cache_dir,
        wheels=options.wheels,
        agent_network=options.agent_network,
        verifier_network=options.verifier_network,
        skip_tests=options.skip_tests,
        rebuild=options.rebuild,
        prune_interval=options.prune_interval,
        variables=options.variables,
    )
    if options.sandbox == "container":
        engine: EngineOptions = read_engine_options(
            base_images=options.base_images,
            packages=place.folder / "roots" if options.bases == "packages" else None,
            build_network=options.build_network,
            build_arguments=options.build_arguments,
            certificates=options.ca_certificates,
        )
        return replace(place, engine=engine)
    given = {
        "--base-image": options.base_images,
        "--bases": options.bases != "registry",
        "--build-network": options.build_network,
        "--build-arg": options.build_arguments,
        "--ca-certificates": options.ca_certificates,
    }
    if unused := [name for name, value in given.items() if value]:
        raise ConfigError(f"{', '.join(unused)}: for --sandbox container only; local mode uses this machine's network.")
    return place


def _close(sandbox: TaskSandbox) -> None:
    asyncio.run(sandbox.close())


def _build_only(tasks: Sequence[Task], images: Images, options: Options) -> int:
    wanted = [(task, skills) for task in tasks for skills in sorted({arm == WITH_SKILL for arm in options.arms})]

    def told(task: Task, with_skills: bool, error: BuildError | None) -> None:
        said = f"failed: {safe(error.message)}" if error else "built"
        print(f"{safe(task.name)} ({'with' if with_skills else 'without'} skills): {said}", file=sys.stderr)

    run_interruptible(build_all(wanted, images, parallel=options.parallel or 1, on_build=told))
    if options.as_json:
        print_json(images.counts.to_json())
    else:
        print_builds(images.counts.to_json())
    return NOT_MEASURED if images.counts.failed else 0


def _content(
    state: RunState, options: Options, left_out: Mapping[str, str], path: Path, elapsed: float
) -> dict[str, Any]:
    results = list(state.results.values())
    return {
        "benchmark": "skillsbench",
        "framework": "google-adk",
        **options.facts,
        "agents": list(options.agents),
        "planned": state.planned,
        "finished": len(results),
        "resumed": state.resumed,
        **summarise(results, options.arms, options.agents),
        "builds": state.builds.to_json(),
        "not_measured": [
            {"task": one.task, "arm": one.arm, "trial": one.trial, "kind": one.error_kind, "error": one.error}
            for one in state.unmeasured
        ],
        "left_out": dict(left_out),
        "self_test": self_test_problems(results) if options.self_test else None,
        "elapsed_seconds": round(elapsed, 1),
        "results": str(path),
    }


def _exit_code(state: RunState, options: Options, content: Mapping[str, Any]) -> int:
    if state.stopped is Stopped.OUTAGE:
        last = state.unmeasured[-1].error or ""
        print(f"adk-skills: stopped: the model cannot be used: {safe(last)}. --resume continues", file=sys.stderr)
        return NOT_MEASURED
    if options.self_test and content["self_test"]:
        print(f"adk-skills: the self-test failed for {len(content['self_test'])} trials", file=sys.stderr)
        return NOT_MEASURED
    if state.unmeasured:
        print(
            f"adk-skills: {len(state.unmeasured)} of {state.planned} trials were not measured. "
            "--resume runs them again.",
            file=sys.stderr,
        )
        return NOT_MEASURED
    return 0


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print(f"  {safe(line)}", file=sys.stderr)
