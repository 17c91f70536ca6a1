"""The run behind ``adk-skills eval``: models, trials, results, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.eval import Progress, print_summary
from adk_skills_agent.cli.interruption import run_interruptible
from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.run import NAME as COMPARISONS
from adk_skills_agent.evals.blind.run import BlindState, Comparisons, run_comparisons
from adk_skills_agent.evals.judge import Judge
from adk_skills_agent.evals.judge_model import JudgeCache, JudgeModel
from adk_skills_agent.evals.models import Price, model_named, price_of, read_price
from adk_skills_agent.evals.outputs import RunFacts, benchmark, write_outputs, write_workspace
from adk_skills_agent.evals.report import write_report
from adk_skills_agent.evals.run.agent import Agents, agent_named
from adk_skills_agent.evals.run.result import Ledger
from adk_skills_agent.evals.run.schedule import RunState, Stopped, run_trials
from adk_skills_agent.evals.run.trial import TrialSettings
from adk_skills_agent.evals.summary import Summary, baseline_of, summarise

if TYPE_CHECKING:
    from google.adk.models import BaseLlm

    from adk_skills_agent.evals.blind.comparison import Pair
    from adk_skills_agent.evals.preparation import Prepared


SCRIPTED = "scripted:"
NOT_REACHED, NOT_MEASURED, INTERRUPTED = 1, 2, 130
_JUDGE_CACHE = "judge-cache.jsonl"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says about a run; see its help."""

    model: str
    agent: str | None
    judge: str
    judge_samples: int
    runs: int
    parallel: int
    timeout: float
    policy: str | None
    budget_usd: float | None
    price: str | None
    judge_price: str | None
    user_price: str | None
    fail_under: float
    out: Path
    workspace: Path | None
    resume: bool
    as_json: bool


def run_eval(prepared: Prepared, options: Options, pairs: Sequence[Pair] | None = None) -> int:
    """Run what is prepared, keep and print the results.

    Args:
        prepared: The plan.
        options: Of the command line.
        pairs: What is compared blind; None for no such comparison.

    Returns:
        The exit code.

    Raises:
        ConfigError: A model, a price or the folder of the results cannot be used.
    """
    # What they log of a request that fails is in the row of its trial; here it would bury what is said.
    for name in ("google_adk", "google_genai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        price, judge_price = _prices(options)
        ledger = stack.enter_context(Ledger(options.out, resume=options.resume))
        base = agent_named(options.agent) if options.agent else None
        agents = Agents(
            stack.enter_context(named_model(options.model)) if options.model else None, base, options.policy
        )
        judge = None
        if options.judge:
            judge = Judge(
                JudgeModel(
                    stack.enter_context(_judge_model(options.judge)),
                    samples=options.judge_samples,
                    cache=JudgeCache(options.out / _JUDGE_CACHE),
                )
            )
        names = dict.fromkeys(case.scenario.model for case in prepared.cases if case.scenario is not None)
        user_prices = _user_prices(list(names), options)
        users = {name: stack.enter_context(named_model(name)) for name in names}
        settings = TrialSettings(agents, judge, options.timeout, price, judge_price, users, user_prices)
        state = RunState(len(prepared.trials))
        blind = BlindState(len(pairs)) if pairs is not None else None
        ended: BaseException | None = None
        progress = stack.enter_context(Progress(state, baseline_of(prepared.trials)))
        try:
            run_interruptible(_run(prepared, settings, ledger, state, options, progress, pairs, blind))
        except (KeyboardInterrupt, click.exceptions.Exit) as error:
            state.stopped, ended = Stopped.INTERRUPTED, error
        progress.close()
        for note in ledger.notes:
            print(f"adk-skills: {safe(note)}", file=sys.stderr)
        summary = summarise(prepared.trials, state.results)
        facts = RunFacts(
            model=options.model or str(getattr(getattr(base, "model", ""), "model", getattr(base, "model", ""))),
            judge=options.judge,
            runs=options.runs,
            skipped=prepared.skipped,
            notes=tuple(ledger.notes),
        )
        content = benchmark(summary, prepared.trials, state, facts, blind)
        compared = [options.out / COMPARISONS] if blind is not None and blind.results else []
        written = [ledger.path, *compared, *write_outputs(options.out, content, summary, facts)]
        if state.results:
            written.append(write_report(options.out))
        if options.workspace is not None:
            write_workspace(options.out, options.workspace)
            written.append(options.workspace)
    if options.as_json:
        print_json(content)
    else:
        print_summary(summary, content, written)
    if ended is not None:
        print(f"adk-skills: {_stop_sentence(state, blind, options)}", file=sys.stderr)
        if isinstance(ended, click.exceptions.Exit):
            return ended.exit_code
        return INTERRUPTED
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
) -> None:
    try:
        await run_trials(
            prepared.trials,
            settings,
            ledger,
            state=state,
            parallel=options.parallel,
            budget_usd=options.budget_usd,
            on_change=progress,
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
            parallel=options.parallel,
            price=settings.judge_price,
            budget_usd=None if options.budget_usd is None else options.budget_usd - state.spent,
            on_change=progress.compared,
        )


@contextlib.contextmanager
def named_model(name: str) -> Iterator[BaseLlm]:
    """A model by its name; a scripted one serves as long as it is used."""
    if not name.startswith(SCRIPTED):
        yield model_named(name)
        return

    with scripted_model(Path(name.removeprefix(SCRIPTED))) as model:
        yield model


@contextlib.contextmanager
def _judge_model(name: str) -> Iterator[BaseLlm]:
    with contextlib.ExitStack() as stack:
        try:
            model = stack.enter_context(named_model(name))
        except ConfigError as error:
            raise ConfigError(f"{error.message} Name another judge, or leave rubrics out: --judge none") from error
        yield model


def _price(text: str | None, name: str) -> Price | None:
    if text is not None:
        return read_price(text)
    return Price(0.0, 0.0, 0.0, "scripted models cost nothing") if name.startswith(SCRIPTED) else price_of(name)


def _prices(options: Options) -> tuple[Price | None, Price | None]:
    price, judge_price = _price(options.price, options.model), _price(options.judge_price, options.judge)
    if options.budget_usd is not None:
        if price is None:
            raise ConfigError(
                f"--budget-usd: the price of {options.model or options.agent} is not known. Give --price."
            )
        if options.judge and judge_price is None:
            raise ConfigError(f"--budget-usd: the price of {options.judge} is not known. Give --judge-price.")
    return price, judge_price


def _user_prices(names: Sequence[str], options: Options) -> dict[str, Price]:
    prices = {name: price for name in names if (price := _price(options.user_price, name)) is not None}
    unknown = [name for name in names if name not in prices]
    if options.budget_usd is not None and unknown:
        raise ConfigError(f"--budget-usd: the price of {', '.join(unknown)} is not known. Give --user-price.")
    return prices


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
    done = f"{len(state.results)} of {state.planned} trials{compared} are done and kept in {safe(str(options.out))}"
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


# ``scripted:FILE``: a model of rules on the loopback interface, for trying things without a key.

_REMEMBERED = 10
"""Requests the server keeps: what a run of thousands of trials says is in its results."""


@contextlib.contextmanager
def scripted_model(path: Path) -> Iterator[BaseLlm]:
    """google-adk's own Gemini class, answered by the rules of a file (see :mod:`adk_skills_agent.testing`).

    Raises:
        ConfigError: The file cannot be read as rules; file and line are named.
    """
    from adk_skills_agent.testing import GeminiServer, load_rules

    with GeminiServer(load_rules(path), remember=_REMEMBERED) as server:
        yield server.model()
