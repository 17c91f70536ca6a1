"""Many trials at a time: how many at once, what may be spent, when to stop; each result kept the moment it is there."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adk_skills_agent.evals.row_file import Stopped, work_off
from adk_skills_agent.evals.run.plan import Key, Trial
from adk_skills_agent.evals.run.result import Ledger, TrialResult, result_of
from adk_skills_agent.evals.run.trial import TrialSettings, judge_again, run_trial

if TYPE_CHECKING:
    from adk_skills_agent.evals.cluster import Cluster


@dataclass(slots=True)
class RunState:
    """A run as it goes on."""

    planned: int
    # what is finished, by trial; those of an earlier run too
    results: dict[Key, TrialResult] = field(default_factory=dict)
    resumed: int = 0  # how many of them are of an earlier run
    # how many ended in each arm with which ``passed``
    ended: Counter[tuple[str, bool | None]] = field(default_factory=Counter)
    spent: float = 0.0  # US dollars of every finished trial, as far as prices are known
    dearest: float = 0.0  # the most that one of them cost
    running: dict[Key, float] = field(default_factory=dict)
    stopped: Stopped | None = None
    last_error: str = ""

    def keep(self, result: TrialResult) -> None:
        """Take the result of a trial that had none; what is asked after each trial is counted here, not then."""
        self.results[result.key] = result
        self.ended[result.arm, result.passed] += 1
        self.spent += result.spent
        self.dearest = max(self.dearest, result.spent)


async def run_trials(
    trials: Sequence[Trial],
    settings: TrialSettings,
    ledger: Ledger,
    *,
    state: RunState | None = None,
    parallel: int = 4,
    budget_usd: float | None = None,
    on_change: Callable[[RunState, TrialResult | None], object] = lambda _state, _result: None,
    cluster: Cluster | None = None,
) -> RunState:
    """Run what is not finished yet.

    A cancellation ends it at once: what is finished is in the ledger and in ``state``, what was under way is not. No
    trial starts when what was spent and what those under way are likely to cost reaches ``budget_usd``. ``on_change``
    is told when a trial starts (without a result) and when one ends. Returns the state at the end.
    """
    state = state if state is not None else RunState(len(trials))
    finished = ledger.finished({trial.key: trial for trial in trials})
    for before in finished.values():
        state.keep(before)
    state.resumed = len(finished)
    waiting = [trial for trial in trials if trial.key not in finished]

    async def do(trial: Trial) -> bool:
        state.running[trial.key] = time.monotonic()
        on_change(state, None)
        try:
            row = await _row(trial, settings, ledger, cluster)
        finally:
            del state.running[trial.key]
        result = result_of(row)
        state.keep(result)
        if not result.measured:
            state.last_error = f"the {result.error['kind']} cannot be used: {result.error['message']}"
        on_change(state, result)
        return result.measured

    def affordable() -> bool:
        return budget_usd is None or _would_cost(state) <= budget_usd

    try:
        if waiting and cluster is None:
            await settings.agents.get_ready(waiting[0])
        state.stopped = await work_off(waiting, do, parallel=parallel, affordable=affordable)
    except asyncio.CancelledError:
        state.stopped = Stopped.INTERRUPTED
        raise
    return state


async def _row(trial: Trial, settings: TrialSettings, ledger: Ledger, cluster: Cluster | None) -> dict[str, Any]:
    unjudged = ledger.unjudged(trial.key)
    if unjudged is not None:
        row = await judge_again(trial, unjudged, settings)
    else:
        row = await (run_trial(trial, settings) if cluster is None else cluster.run(trial))
    ledger.append(row)  # without a pause in between: nothing that is finished can be cancelled away
    return row


def _would_cost(state: RunState) -> float:
    """What is spent, and what the trials under way and one more are likely to cost: as the dearest so far."""
    return state.spent + state.dearest * (len(state.running) + 1)
