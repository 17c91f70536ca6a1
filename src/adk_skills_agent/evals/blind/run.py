"""Many blind comparisons: after the trials, side by side, each kept the moment it is there."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import JudgeUnavailable
from adk_skills_agent.evals.blind.pairs import (
    SEED,
    Pair,
    PairKey,
    names_in,
    output_shown,
    same_output,
    sides,
    task_shown,
)
from adk_skills_agent.evals.blind.rows import Compared, Comparisons, row_of
from adk_skills_agent.evals.blind.verdict import NEITHER, A, B, BlindVerdict, compare_blind, identity
from adk_skills_agent.evals.judge_model import JudgeModel
from adk_skills_agent.evals.prices import Price
from adk_skills_agent.evals.run.plan import Key
from adk_skills_agent.evals.run.result import NOT_MEASURED, TrialResult, trace_of
from adk_skills_agent.evals.run.schedule import Stopped, work_off
from adk_skills_agent.evals.trace import Trace, Usage


@dataclass(slots=True)
class BlindState:
    """Comparisons as they go on.

    Attributes:
        planned: How many there are.
        results: What is finished.
        not_compared: Pairs of which a trial has no result.
        running: How many are under way.
        stopped: Why it ended early, or None.
        last_error: The latest of the judge.
    """

    planned: int
    results: dict[PairKey, Compared] = field(default_factory=dict)
    not_compared: list[PairKey] = field(default_factory=list)
    running: int = 0
    stopped: Stopped | None = None
    last_error: str = ""

    @property
    def spent(self) -> float:
        """US dollars, as far as prices are known."""
        return sum(result.cost_usd or 0.0 for result in self.results.values())


@dataclass(frozen=True, slots=True)
class _Material:
    """What the judge is shown of a pair."""

    task: str
    outputs: Mapping[str, str]
    same: bool


async def run_comparisons(
    pairs: Sequence[Pair],
    trials: Mapping[Key, TrialResult],
    rows: Path,
    model: JudgeModel,
    ledger: Comparisons,
    *,
    state: BlindState | None = None,
    seed: int = SEED,
    parallel: int = 4,
    price: Price | None = None,
    budget_usd: float | None = None,
    on_change: Callable[[BlindState, Compared | None], object] = lambda _state, _result: None,
) -> BlindState:
    """Compare what is not compared yet.

    A pair whose outputs are the same, byte by byte, is a tie without a question. One that was compared already, with
    these outputs and this judge, is not compared again.

    Args:
        pairs: All of them, in the order in which they start.
        trials: The results there are.
        rows: ``trials.jsonl``, which has their traces.
        model: The judge.
        ledger: Gets a row for each.
        state: Filled meanwhile; a new one when None.
        seed: Draws which output is A.
        parallel: How many at once.
        price: Of the judge's tokens.
        budget_usd: What may be spent on comparisons.
        on_change: Told when one starts (without a result) and when one ends.

    Returns:
        The state at the end.

    Raises:
        ConfigError: A row of results cannot be read.
    """
    state = state if state is not None else BlindState(len(pairs))
    known, places = ledger.known(), _places(rows)

    def keep(compared: Compared, verdict: BlindVerdict | None) -> None:
        ledger.append(row_of(compared, verdict))
        state.results[compared.key] = compared
        on_change(state, compared)

    waiting = []
    for pair in pairs:
        if not all(key in trials and trials[key].measured and key in places for key in pair.trials):
            state.not_compared.append(pair.key)
            continue
        material = await asyncio.to_thread(_material, pair, rows, places, seed)
        before = known.get(pair.key)
        if before is not None and before.measured and _fits(before, material, model, seed):
            state.results[pair.key] = before
        elif material.same:
            verdict = BlindVerdict(NEITHER, 1.0, reasons="Both outputs are the same.")
            keep(_result(pair, material, model, seed, verdict, Usage(), price), verdict)
        else:
            waiting.append(pair)

    async def do(pair: Pair) -> bool:
        material = await asyncio.to_thread(_material, pair, rows, places, seed)
        spent: list[Usage] = []
        state.running += 1
        on_change(state, None)
        verdict, error = None, ""
        try:
            verdict = await compare_blind(model, material.task, material.outputs[A], material.outputs[B], spent.append)
        except JudgeUnavailable as failure:
            error = state.last_error = failure.message
        finally:
            state.running -= 1
        compared = _result(pair, material, model, seed, verdict, sum(spent, Usage()), price, error)
        keep(compared, verdict)  # without a pause in between: what was paid cannot be cancelled away
        return compared.measured

    def affordable() -> bool:
        dearest = max((result.cost_usd or 0.0 for result in state.results.values()), default=0.0)
        return budget_usd is None or state.spent + dearest * (state.running + 1) <= budget_usd

    try:
        state.stopped = await work_off(waiting, do, parallel=parallel, affordable=affordable)
    except asyncio.CancelledError:
        state.stopped = Stopped.INTERRUPTED
        raise
    return state


def _fits(before: Compared, material: _Material, model: JudgeModel, seed: int) -> bool:
    return (before.fingerprint, before.seed) == (_fingerprint(material, model), seed)


def _result(
    pair: Pair,
    material: _Material,
    model: JudgeModel,
    seed: int,
    verdict: BlindVerdict | None,
    usage: Usage,
    price: Price | None,
    error: str = "",
) -> Compared:
    said = verdict if verdict is not None else BlindVerdict("", 0.0)
    naming = [side for side in (A, B) if names_in(material.outputs[side], pair.case.skills)]
    return Compared(
        key=pair.key,
        seed=seed,
        fingerprint=_fingerprint(material, model),
        winner=said.winner,
        agreement=said.agreement,
        flips=said.flips,
        samples=model.samples if said.votes else 0,
        reasons=said.reasons,
        scores=said.scores,
        names_skill=naming[0] if len(naming) == 1 else "",
        usage=usage,
        cost_usd=price.cost(usage) if price is not None else None,
        error=error,
    )


def _material(pair: Pair, rows: Path, places: Mapping[Key, tuple[int, int]], seed: int) -> _Material:
    drawn = sides(pair.key, seed)
    traces = dict(zip((pair.arm, pair.baseline), (_trace(rows, places[key]) for key in pair.trials), strict=True))
    talked = pair.case.scenario is not None
    outputs = {side: output_shown(traces[arm], talked=talked) for side, arm in drawn.items()}
    return _Material(task_shown(pair.case), outputs, same_output(*traces.values()))


def _fingerprint(material: _Material, model: JudgeModel) -> str:
    asked: list[object] = [identity(material.task, material.outputs[A], material.outputs[B]), material.same]
    if not material.same:  # else nobody is asked
        asked += [model.name, model.samples, model.temperature]
    return hashlib.sha256(json.dumps(asked).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _places(rows: Path) -> dict[Key, tuple[int, int]]:
    """Where the last measured row of each trial is: line, first byte."""
    places: dict[Key, tuple[int, int]] = {}
    start = 0
    with rows.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                row: dict[str, Any] = json.loads(line)
                if (row.get("error") or {}).get("kind") not in NOT_MEASURED:
                    places[str(row["case"]), str(row["arm"]), int(row["run"])] = number, start
            start += len(line)
    return places


def _trace(rows: Path, place: tuple[int, int]) -> Trace:
    line, start = place
    with rows.open("rb") as file:
        file.seek(start)
        return trace_of(json.loads(file.readline()), f"{rows}:{line}")
