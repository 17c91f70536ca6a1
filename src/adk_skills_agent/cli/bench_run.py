"""The run behind ``adk-skills bench skillsbench``: tasks, sandbox, trials, results, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from adk_skills_agent.cli.bench import print_builds, print_summary, trial_line
from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.terminal import run_interruptible
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.row_file import RowFile, Stopped
from adk_skills_agent.evals.skillsbench.agents import ADK, BenchAgent, Nop, Oracle
from adk_skills_agent.evals.skillsbench.bench_summary import self_test_problems, summarise
from adk_skills_agent.evals.skillsbench.environment import BuildError, Images, TaskSandbox
from adk_skills_agent.evals.skillsbench.results import BenchResult, RunState, row_file
from adk_skills_agent.evals.skillsbench.runner import build_all, make_plan, run_bench
from adk_skills_agent.evals.skillsbench.task import Task, read_tasks
from adk_skills_agent.evals.skillsbench.trial import SELF_GEN, WITH_SKILL, BenchSettings, BenchTrial
from adk_skills_agent.evals.skillsbench.verifier_tools import uv_programs, write_tools
from adk_skills_agent.sandbox import temporary_prefix

NOT_MEASURED, INTERRUPTED = 1, 130


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; see its help."""

    tasks_dir: Path
    containing: str
    agents: tuple[str, ...]
    model: str
    arms: tuple[str, ...]
    trials: int
    parallel: int
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
    if options.wheels is not None and not options.wheels.is_dir():
        raise ConfigError(f"--wheels: there is no folder {safe(str(options.wheels))}.")
    # What they log of a request that fails is in the row of its trial; here it would bury what is said.
    for name in ("google_adk", "google_genai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        tasks = read_tasks(options.tasks_dir, containing=options.containing)
        store = options.cache_dir.expanduser().absolute() if options.cache_dir else _cache_folder()
        sandbox = _sandbox(options, store)
        stack.callback(_close, sandbox)
        runnable, left_out = _sorted_out(tasks.tasks, sandbox, options)
        left_out = {**tasks.skipped, **left_out}
        for name, reason in left_out.items():
            print(f"left out: {safe(name)}: {safe(reason)}", file=sys.stderr)
        for note in sandbox.notes():
            print(f"note: {safe(note)}", file=sys.stderr)
        if not runnable:
            raise ConfigError(f"None of the {len(left_out)} tasks can run here; why is said above.")
        plan = make_plan(runnable, options.arms, options.agents, options.trials, options.facts)
        state = RunState(len(plan))
        images = Images(sandbox, state.builds, options.rebuild, options.prune_interval, _say)
        if options.build_only:
            return _build_only(runnable, images, options)
        rows = stack.enter_context(row_file(options.out, resume=options.resume))
        agents = _agents(options, stack)
        tools = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=temporary_prefix("bench"))), "tools")
        settings = BenchSettings(
            sandbox=sandbox,
            images=images,
            agents=agents,
            out=options.out,
            tools=tools,
            wheels=options.wheels,
            agent_network=options.agent_network,
            verifier_network=options.verifier_network,
            skip_tests=options.skip_tests,
        )
        ended: BaseException | None = None
        try:
            run_interruptible(_run(plan, settings, rows, state, options, store))
        except (KeyboardInterrupt, click.exceptions.Exit) as error:
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
        return ended.exit_code if isinstance(ended, click.exceptions.Exit) else INTERRUPTED
    return _exit_code(state, options, content)


async def _run(
    plan: Sequence[BenchTrial],
    settings: BenchSettings,
    rows: RowFile,
    state: RunState,
    options: Options,
    store: Path,
) -> None:
    def told(state: RunState, result: BenchResult, row: Mapping[str, Any]) -> None:
        line = trial_line(len(state.results), state.planned, result, row, alone=len(options.arms) == 1)
        print(line, file=sys.stderr, flush=True)

    try:
        try:
            uv = await uv_programs(store)
        except BuildError as error:
            uv = None
            print(f"note: {safe(error.message)} Verifiers that install it need its own site.", file=sys.stderr)
        await asyncio.to_thread(write_tools, settings.tools, uv, network=settings.verifier_network)
        await run_bench(plan, settings, rows, state, parallel=options.parallel, on_result=told)
    finally:
        for agent in settings.agents.values():
            await asyncio.shield(agent.close())


def _sandbox(options: Options, store: Path) -> TaskSandbox:
    if options.sandbox == "container":
        from adk_skills_agent.evals.skillsbench.container_mode import open_container_mode
        from adk_skills_agent.evals.skillsbench.engine_options import read_engine_options

        return open_container_mode(
            read_engine_options(
                base_images=options.base_images,
                packages=store / "roots" if options.bases == "packages" else None,
                build_network=options.build_network,
                build_arguments=options.build_arguments,
                certificates=options.ca_certificates,
            )
        )
    given = {
        "--base-image": options.base_images,
        "--bases": options.bases != "registry",
        "--build-network": options.build_network,
        "--build-arg": options.build_arguments,
        "--ca-certificates": options.ca_certificates,
    }
    if unused := [name for name, value in given.items() if value]:
        raise ConfigError(f"{', '.join(unused)}: for --sandbox container only; local mode uses this machine's network.")
    from adk_skills_agent.evals.skillsbench.local_mode import open_local_mode

    return open_local_mode(store)


def _close(sandbox: TaskSandbox) -> None:
    asyncio.run(sandbox.close())


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "adk-skills-runtime", "skillsbench")


def _sorted_out(tasks: Sequence[Task], sandbox: TaskSandbox, options: Options) -> tuple[list[Task], dict[str, str]]:
    """The tasks that can run, with the time of the options; and the others with the reason."""
    runnable, left_out = [], {}
    for task in tasks:
        reason = " ".join(task.unsupported) or sandbox.problem(task)
        if reason:
            left_out[task.name] = reason
            continue
        if options.timeout is not None:
            limits = replace(task.limits, agent_seconds=options.timeout)
            task = replace(task, settings=replace(task.settings, limits=limits))  # noqa: PLW2901  # the same task
        runnable.append(task)
    return runnable, left_out


def _agents(options: Options, stack: contextlib.ExitStack) -> dict[str, BenchAgent]:
    agents: dict[str, BenchAgent] = {"oracle": Oracle(), "nop": Nop()}
    if ADK in options.agents:
        from adk_skills_agent.evals.run.settings import named_model
        from adk_skills_agent.evals.skillsbench.adk_agent import AdkAgent

        agents[ADK] = AdkAgent(stack.enter_context(named_model(options.model)))
    return {name: agent for name, agent in agents.items() if name in options.agents}


def _build_only(tasks: Sequence[Task], images: Images, options: Options) -> int:
    wanted = [(task, skills) for task in tasks for skills in sorted({arm == WITH_SKILL for arm in options.arms})]

    def told(task: Task, with_skills: bool, error: BuildError | None) -> None:
        said = f"failed: {safe(error.message)}" if error else "built"
        print(f"{safe(task.name)} ({'with' if with_skills else 'without'} skills): {said}", file=sys.stderr)

    run_interruptible(build_all(wanted, images, parallel=options.parallel, on_build=told))
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
