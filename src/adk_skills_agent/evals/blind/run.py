"""Many blind comparisons: after the trials, side by side, each kept the moment it is there."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.errors import ConfigError, JudgeUnavailable
from adk_skills_agent.evals.blind.comparison import (
    NEITHER,
    SEED,
    A,
    B,
    BlindVerdict,
    Pair,
    PairKey,
    compare_blind,
    identity,
    names_in,
    output_shown,
    same_output,
    sides,
    task_shown,
)
from adk_skills_agent.evals.judge_model import JudgeModel
from adk_skills_agent.evals.models import Price
from adk_skills_agent.evals.row_file import MAX_ROW_VALUES, RowFile, Stopped, lines_of, row_at, work_off
from adk_skills_agent.evals.run.plan import Key
from adk_skills_agent.evals.run.result import NOT_MEASURED, TrialResult, trace_of
from adk_skills_agent.evals.trace import Trace, Usage
from adk_skills_agent.settings import parsed_json


@dataclass(slots=True)
class BlindState:
    """Comparisons as they go on."""

    planned: int
    results: dict[PairKey, Compared] = field(default_factory=dict)
    not_compared: list[PairKey] = field(default_factory=list)  # pairs of which a trial has no result
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
    these outputs and this judge, is not compared again. ``seed`` draws which output is A. ``on_change`` is told when a
    comparison starts (without a result) and when it ends. Returns the state at the end. Raises ``ConfigError`` when
    earlier rows were compared in another way.
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
    for number, start, line in lines_of(rows):
        row: dict[str, Any] = parsed_json(line, MAX_ROW_VALUES)
        if (row.get("error") or {}).get("kind") not in NOT_MEASURED:
            places[str(row["case"]), str(row["arm"]), int(row["run"])] = number, start
    return places


def _trace(rows: Path, place: tuple[int, int]) -> Trace:
    line, start = place
    return trace_of(row_at(rows, start), f"{rows}:{line}")


# ``comparisons.jsonl``: a row for each blind comparison. It says A and B; which arm is which follows from its seed.

NAME = "comparisons.jsonl"
SCHEMA = 1
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison."""

    key: PairKey
    seed: int  # what drew which of them is A
    fingerprint: str  # of both outputs, the task and the judge
    winner: str  # ``A``, ``B`` or ``TIE``; empty when the judge gave no verdict
    agreement: float
    flips: int = 0  # samples whose two orders named different winners
    samples: int = 0  # how many samples there were; 0 when the outputs are the same and nobody was asked
    reasons: str = ""  # the judge's; they call the outputs ``output A`` and ``output B``
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: _NOTHING)
    # ``A`` or ``B`` when only that output names a skill of the case: the judge could tell whose it is
    names_skill: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None  # the judge's; None when the price is not known
    error: str = ""

    @property
    def measured(self) -> bool:
        """Whether there is a verdict."""
        return bool(self.winner)

    @property
    def arms(self) -> dict[str, str]:
        """The arm of A and the arm of B. Only what is done after the last question asks for it."""
        return sides(self.key, self.seed)

    @property
    def reasons_by_arm(self) -> str:
        """The reasons, unblinded."""
        arms = self.arms
        return re.sub(r"\boutput ([AB])\b", lambda match: arms[match[1]], self.reasons)

    @property
    def winning_arm(self) -> str:
        """The arm that won, or empty for a tie and for no verdict."""
        return self.arms.get(self.winner, "")


def row_of(compared: Compared, verdict: BlindVerdict | None) -> dict[str, Any]:
    """The row of a comparison."""
    case, arm, baseline, run = compared.key
    return {
        "schema": SCHEMA,
        "case": case,
        "arms": [arm, baseline],
        "run": run,
        "seed": compared.seed,
        "fingerprint": compared.fingerprint,
        "winner": compared.winner or None,
        "agreement": round(compared.agreement, 4),
        "flips": compared.flips,
        "samples": compared.samples,
        "reasons": compared.reasons,
        "scores": {side: dict(scores) for side, scores in compared.scores.items()},
        "names_skill": compared.names_skill or None,
        "votes": [asdict(vote) for vote in verdict.votes] if verdict is not None else [],
        "judge_usage": compared.usage.to_json(),
        "judge_cost_usd": compared.cost_usd,
        "error": {"kind": "judge", "message": compared.error} if compared.error else None,
    }


def compared_of(row: Mapping[str, Any]) -> Compared:
    """The comparison of a row. Raises ``ValueError`` when it is no row of this schema."""
    try:
        if row["schema"] != SCHEMA:
            raise ValueError(f"it has schema {row['schema']!r}, not {SCHEMA}")
        arm, baseline = row["arms"]
        if row["winner"] not in (A, B, NEITHER, None):
            raise ValueError(f"its winner is {row['winner']!r}")
        return Compared(
            key=(str(row["case"]), str(arm), str(baseline), int(row["run"])),
            seed=int(row["seed"]),
            fingerprint=str(row["fingerprint"]),
            winner=row["winner"] or "",
            agreement=float(row["agreement"]),
            flips=int(row["flips"]),
            samples=int(row["samples"]),
            reasons=str(row["reasons"]),
            scores={
                side: {str(name): float(value) for name, value in row["scores"][side].items()}
                for side in (A, B)
                if side in row["scores"]
            },
            names_skill=row["names_skill"] or "",
            usage=Usage.from_json(row["judge_usage"]),
            cost_usd=row["judge_cost_usd"],
            error=str((row["error"] or {}).get("message", "")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no comparison ({type(error).__name__}: {error})") from error


class Comparisons(RowFile):
    """The comparisons of one output folder; see :class:`~adk_skills_agent.evals.row_file.RowFile`."""

    def __init__(self, folder: Path) -> None:
        # Rows of earlier runs need no --resume: a comparison counts only for the very outputs it is of.
        super().__init__(folder, NAME, resume=True)

    def known(self) -> dict[PairKey, Compared]:
        """The comparisons there are; the last row of a pair counts. Raises ``ConfigError`` when a line is wrong."""
        self.cut_torn_row()
        return _by_pair(self.path)


def read_comparisons(folder: Path) -> dict[PairKey, Compared]:
    """The comparisons of a run, the last row of a pair; none where there is no file. A torn last line is left out.

    Raises ``ConfigError`` when the file cannot be read, or a row is malformed; the sentence names the line.
    """
    path = folder / NAME
    try:
        return _by_pair(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"The comparisons {path} cannot be read: {error.strerror or error}.") from error


def _by_pair(path: Path) -> dict[PairKey, Compared]:
    found: dict[PairKey, Compared] = {}
    for number, _, line in lines_of(path):
        try:
            compared = compared_of(parsed_json(line, MAX_ROW_VALUES))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: {error}. Remove the line; the judge is asked again.") from error
        found[compared.key] = compared
    return found
