"""Runs of very many trials: what the driver keeps of each is small, and what it asks after each does not grow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.outputs import RunFacts, benchmark, write_outputs
from adk_skills_agent.evals.run.agent import Agents
from adk_skills_agent.evals.run.plan import Trial
from adk_skills_agent.evals.run.result import Ledger, TrialResult, read_rows, result_of
from adk_skills_agent.evals.run.schedule import RunState, run_trials
from adk_skills_agent.evals.run.trial import TrialSettings
from adk_skills_agent.evals.summary import CaseInArm, summarise
from adk_skills_agent.testing import GeminiServer
from evals.run.running import CASES, LOADS_AND_REPORTS, a_plan, carry_out

if TYPE_CHECKING:
    from adk_skills_agent.evals.cluster import Cluster


class Copies:
    """In the place of a cluster: answers with copies of a row that a real trial gave, as they come over a network."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = json.dumps({**row, "cost_usd": 0.001})

    async def run(self, trial: Trial) -> dict[str, Any]:
        return json.loads(self._row) | {"case": trial.case.id, "run": trial.run, "fingerprint": trial.fingerprint}


async def one_row(folder: Path) -> dict[str, Any]:
    with GeminiServer(LOADS_AND_REPORTS) as server:
        await carry_out(a_plan(folder, arms=("with_skill",), runs=1), server, folder / "one")
    found: dict[str, Any] = json.loads((folder / "one/trials.jsonl").read_text().splitlines()[0])
    return found


@pytest.mark.slow
async def test_a_driver_keeps_little_of_each_trial_and_knows_what_is_spent(tmp_path: Path) -> None:
    cluster = cast("Cluster", Copies(await one_row(tmp_path)))
    prepared = a_plan(tmp_path, CASES, arms=("with_skill",), runs=3_000)
    state = RunState(len(prepared.trials))
    this, sizes = psutil.Process(), []

    def watch(state: RunState, result: object) -> None:
        if result is not None and len(state.results) in (3_000, 9_000):
            sizes.append(this.memory_info().rss)

    with Ledger(tmp_path / "out") as ledger:
        await run_trials(
            prepared.trials,
            TrialSettings(Agents(None)),
            ledger,
            state=state,
            budget_usd=1e6,
            on_change=watch,
            cluster=cluster,
        )
    each = (sizes[1] - sizes[0]) / 6_000
    assert each < 1_000, f"{each:.0f} bytes of a trial; 100,000 of them are to take less than 100 MB"
    assert abs(state.spent - 9.0) < 1e-6
    assert state.dearest == 0.001
    assert state.ended == {("with_skill", True): 9_000}
    summary, facts = summarise(prepared.trials, state.results), RunFacts("m", "", 3_000)
    content = benchmark(summary, prepared.trials[:300], state, facts)
    write_outputs(tmp_path / "out", content, summary, facts)
    written = json.loads((tmp_path / "out/benchmark.json").read_text())
    assert len(written["runs"]) == 300
    assert written["runs"][7]["result"]["pass_rate"] == 1.0


class Counted(tuple[TrialResult, ...]):  # noqa: SLOT001  # a tuple of any length has none
    """Results that know how often they were gone through."""

    times = 0

    def __iter__(self) -> Iterator[TrialResult]:
        self.times += 1
        return super().__iter__()


async def test_the_runs_of_a_case_are_not_gone_through_again_for_each_of_them(tmp_path: Path) -> None:
    """`eval --runs 30000` spent hours in pass@k after its last trial."""
    result = result_of(await one_row(tmp_path))
    results = Counted([result] * 500)
    case = a_plan(tmp_path).trials[0].case
    passes = CaseInArm(case, "with_skill", 500, results).to_json()["pass_at_k"]
    assert (len(passes), passes["1"], passes["500"]) == (500, 1.0, 1.0)
    assert results.times < 20


async def test_results_that_say_the_same_share_it(tmp_path: Path) -> None:
    row = await one_row(tmp_path)
    one, two = result_of(json.loads(json.dumps(row))), result_of(json.loads(json.dumps(row)))
    assert one.scores is two.scores
    assert one.usage is two.usage
    assert one.fingerprint is two.fingerprint
    assert dict(one.scores) == {score["metric"]: score["value"] for score in row["scores"]}


async def test_a_row_that_was_repaired_wrongly_is_named(tmp_path: Path) -> None:
    """The sum or the report over all rows failed on it, with a traceback and after the run."""
    row = await one_row(tmp_path)
    wrong: list[tuple[str, object]] = [
        ("passed", "yes"),
        ("passed", []),
        ("score", "1.0"),
        ("score", 10**400),
        ("outcome", float("nan")),
        ("run", float("inf")),
        ("seconds", 10**400),
        ("cost_usd", "0.1"),
        ("cost_usd", True),
        ("usage", {"total": "many"}),
        ("scores", [{"metric": "m", "value": "x"}]),
        ("verdicts", ["met"]),
        ("error", {"kind": "model"}),
        ("simulated_user", {"cost_usd": "free"}),
    ]
    for name, value in wrong:
        with pytest.raises(ValueError, match="it is no result of a trial"):
            result_of(row | {name: value})


async def test_a_row_of_brackets_without_end_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "trials.jsonl").write_text("[" * 100_000 + "\n")
    prepared = a_plan(tmp_path)
    with Ledger(out, resume=True) as ledger, pytest.raises(ConfigError, match=r"trials\.jsonl:1: .*Repair the line"):
        ledger.finished({trial.key: trial for trial in prepared.trials})
    with pytest.raises(ConfigError, match=r"trials\.jsonl:1: this is no row of results"):
        list(read_rows(out / "trials.jsonl"))
