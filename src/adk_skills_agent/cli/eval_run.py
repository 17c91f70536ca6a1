"""The run behind ``adk-skills eval``: models, trials, results, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.cli.eval import Progress, print_summary
from adk_skills_agent.cli.output import safe
from adk_skills_agent.cli.terminal import exit_code_of, run_interruptible
from adk_skills_agent.evals.blind.run import NAME as COMPARISONS
from adk_skills_agent.evals.blind.run import BlindState, Comparisons, run_comparisons
from adk_skills_agent.evals.outputs import RunFacts, benchmark, json_of, write_outputs, write_workspace
from adk_skills_agent.evals.report import write_report
from adk_skills_agent.evals.row_file import Stopped
from adk_skills_agent.evals.run.result import Ledger
from adk_skills_agent.evals.run.schedule import RunState, run_trials
from adk_skills_agent.evals.run.settings import ModelNames, check_budget, settings_of
from adk_skills_agent.evals.run.trial import TrialSettings
from adk_skills_agent.evals.summary import Summary, baseline_of, summarise

if TYPE_CHECKING:
    from adk_skills_agent.evals.blind.comparison import Pair
    from adk_skills_agent.evals.cluster import Cluster, Needs
    from adk_skills_agent.evals.preparation import Prepared, Request


NOT_REACHED, NOT_MEASURED = 1, 2
_PARALLEL = 4


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A cluster that runs the trials, what each takes of a node, and the files that the nodes need."""

    address: str
    needs: Needs
    request: Request


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run; see the command's help."""

    models: ModelNames
    runs: int
    parallel: int | None
    elsewhere: Elsewhere | None
    budget_usd: float | None
    fail_under: float
    out: Path
    workspace: Path | None
    resume: bool
    as_json: bool


def run_eval(prepared: Prepared, options: Options, pairs: Sequence[Pair] | None = None) -> int:
    """Run what is prepared, keep and print the results. Returns the exit code.

    Raises ``ConfigError`` when the run cannot begin.
    """
    # What they log of a request that fails is in the row of its trial; here it would bury what is said.
    for name in ("google_adk", "google_genai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        models = options.models
        check_budget(models, prepared, options.budget_usd)
        settings = settings_of(stack, prepared, models, options.out)  # first: without a model there is no folder
        ledger = stack.enter_context(Ledger(options.out, resume=options.resume))
        ray = None
        if options.elsewhere is not None:
            from adk_skills_agent.evals.cluster import joined

            ray = stack.enter_context(joined(options.elsewhere.address, options.elsewhere.needs))
        base = settings.agents.base
        state = RunState(len(prepared.trials))
        blind = BlindState(len(pairs)) if pairs is not None else None
        ended: KeyboardInterrupt | None = None
        progress = stack.enter_context(Progress(state, baseline_of(prepared.trials)))
        try:
            run_interruptible(_run(prepared, settings, ledger, state, options, progress, pairs, blind, ray))
        except KeyboardInterrupt as error:
            state.stopped, ended = Stopped.INTERRUPTED, error
        progress.close()
        for note in ledger.notes:
            print(f"adk-skills: {safe(note)}", file=sys.stderr)
        summary = summarise(prepared.trials, state.results)
        facts = RunFacts(
            model=models.model or str(getattr(getattr(base, "model", ""), "model", getattr(base, "model", ""))),
            judge=models.judge,
            runs=options.runs,
            skipped=prepared.skipped,
            notes=tuple(ledger.notes),
        )
        content = benchmark(summary, prepared.trials, state, facts, blind)
        compared = [options.out / COMPARISONS] if blind is not None and blind.results else []
        written = [ledger.path, *compared, *write_outputs(options.out, content, summary, facts)]
        if state.results:
            written.append(write_report(options.out, benchmark=content))
        if options.workspace is not None:
            write_workspace(options.out, options.workspace)
            written.append(options.workspace)
    if options.as_json:
        sys.stdout.writelines(json_of(content))
    else:
        print_summary(summary, content, written)
    if ended is not None:
        print(f"adk-skills: {_stop_sentence(state, blind, options)}", file=sys.stderr)
        return exit_code_of(ended)
    return _exit_code(summary, prepared, state, blind, options)


async def _run(
    prepared: Prepared,
    settings: TrialSettings,
    ledger: Ledger,
    state: RunState,
    options: Options,
    progress: Progress,
    pairs: Sequence[Pair] | None,
    blind: BlindState | None,
    ray: object,
) -> None:
    try:
        async with _place(prepared, options, ray) as cluster:
            await run_trials(
                prepared.trials,
                settings,
                ledger,
                state=state,
                parallel=options.parallel or (cluster.slots if cluster is not None else _PARALLEL),
                budget_usd=options.budget_usd,
                on_change=progress,
                cluster=cluster,
            )
    finally:
        await asyncio.shield(settings.agents.close())
    if pairs is None or blind is None or settings.judge is None or state.stopped is not None:
        return
    with Comparisons(options.out) as comparisons:
        await run_comparisons(
            pairs,
            state.results,
            ledger.path,
            settings.judge.model,
            comparisons,
            state=blind,
            parallel=options.parallel or _PARALLEL,
            price=settings.judge_price,
            budget_usd=None if options.budget_usd is None else options.budget_usd - state.spent,
            on_change=progress.compared,
        )


@contextlib.asynccontextmanager
async def _place(prepared: Prepared, options: Options, ray: object) -> AsyncIterator[Cluster | None]:
    """Where the trials run: nodes of a cluster, of which those that cannot are named; or here."""
    where = options.elsewhere
    if where is None:
        yield None
        return
    from adk_skills_agent.evals.cluster import job_of, workers

    job = job_of(prepared, where.request, options.models)
    async with workers(ray, job, where.needs) as cluster, telling_of_nodes(cluster):
        yield cluster


@contextlib.asynccontextmanager
async def telling_of_nodes(cluster: Cluster) -> AsyncIterator[None]:
    """Say on which nodes the trials run, which cannot be used, and at the end which were lost."""
    names = ", ".join(f"{safe(node.name)} ({node.slots} at once, {node.level})" for node in cluster.nodes)
    print(f"adk-skills: the trials run on {names}", file=sys.stderr)
    for note in cluster.notes:
        print(f"adk-skills: {safe(note)}", file=sys.stderr)
    told = len(cluster.notes)
    try:
        yield
    finally:
        for note in cluster.notes[told:]:
            print(f"adk-skills: {safe(note)}", file=sys.stderr)


def _exit_code(
    summary: Summary, prepared: Prepared, state: RunState, blind: BlindState | None, options: Options
) -> int:
    unmeasured = [result for result in state.results.values() if result.passed is None]
    if state.stopped is not None or (blind is not None and blind.stopped is not None):
        print(f"adk-skills: {_stop_sentence(state, blind, options)}", file=sys.stderr)
        return NOT_MEASURED
    if unmeasured:
        first = unmeasured[0]
        said = safe(first.error.get("message", "no criterion had a value"))
        print(
            f"adk-skills: {len(unmeasured)} of {state.planned} trials could not be measured ({said}). "
            "--resume runs them again.",
            file=sys.stderr,
        )
        return NOT_MEASURED
    undecided = [one for one in blind.results.values() if not one.measured] if blind is not None else []
    if undecided:
        print(
            f"adk-skills: {len(undecided)} blind comparisons have no verdict ({safe(undecided[0].error)}). "
            "--resume asks again.",
            file=sys.stderr,
        )
        return NOT_MEASURED
    rate = summary.pass_rate(summary.main_arm)
    if rate is not None and rate < options.fail_under:
        said = f"the pass rate of {safe(summary.main_arm)} is {rate:.1%}, below {options.fail_under:.1%}"
        print(f"adk-skills: {said} (--fail-under)", file=sys.stderr)
        return NOT_REACHED
    if prepared.skipped:
        count = len(prepared.skipped)
        print(f"adk-skills: {count} case{'s were' if count > 1 else ' was'} skipped", file=sys.stderr)
        return NOT_REACHED
    return 0


def _stop_sentence(state: RunState, blind: BlindState | None, options: Options) -> str:
    compared = f", {len(blind.results)} of {blind.planned} blind comparisons" if blind is not None else ""
    measured = sum(result.measured for result in state.results.values())  # the others are run again
    done = f"{measured} of {state.planned} trials{compared} are done and kept in {safe(str(options.out))}"
    spent = state.spent + (blind.spent if blind is not None else 0.0)
    in_trials = state.stopped is not None and not (blind is not None and blind.stopped is not None)
    error = state.last_error if in_trials or blind is None else f"the judge cannot be used: {blind.last_error}"
    why = {
        Stopped.BUDGET: f"stopped before --budget-usd {options.budget_usd} was spent (${spent:.4f} so far)",
        Stopped.OUTAGE: f"stopped: {safe(error)}",
        Stopped.INTERRUPTED: "interrupted",
    }
    stopped = state.stopped or (blind.stopped if blind is not None else None)
    return f"{why[stopped or Stopped.INTERRUPTED]}; {done}, --resume continues"
