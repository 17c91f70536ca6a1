"""Arms compared blind after their trials: model and judge of known behaviour give exactly the known figures (C46)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.comparison import plan_pairs, same_output, sides
from adk_skills_agent.evals.blind.figures import blind_figures, blind_notes
from adk_skills_agent.evals.blind.run import BlindState, Comparisons, read_comparisons, run_comparisons
from adk_skills_agent.evals.judge_model import JudgeModel
from adk_skills_agent.evals.models import Price
from adk_skills_agent.evals.outputs import RunFacts, benchmark, json_of, write_workspace
from adk_skills_agent.evals.preparation import Prepared
from adk_skills_agent.evals.report import write_report
from adk_skills_agent.evals.row_file import Stopped, read_rows
from adk_skills_agent.evals.run.schedule import RunState
from adk_skills_agent.evals.summary import summarise
from adk_skills_agent.evals.trace import OutputFile, Trace, Turn
from adk_skills_agent.testing import GeminiServer, Refusal, Rule, RuleModel, When, call, compare_rule, say
from evals.eval_folders import make_skill
from evals.run.running import a_plan, carry_out

CASES = """\
skill: reporter
cases:
  - {id: totals, prompt: Summarise my data., answer_contains: [REPORT]}
  - {id: poem, prompt: Write a poem., answer_contains: [rose]}
  - {id: worse, prompt: Count my data quickly., answer_contains: [REPORT]}
  - {id: query, prompt: Tell me of my data., should_trigger: true}
"""
AGENT = RuleModel(
    [
        Rule(say("A rose is a rose."), When(user_contains=("poem",))),
        Rule(call("load_skill", skill_name="reporter"), When(user_contains=("data",), skills=("reporter",))),
        Rule(say("REPORT: maybe 3."), When(user_contains=("quickly",), skills=("reporter",))),
        Rule(say("REPORT: North leads."), When(user_contains=("data",), skills=("reporter",))),
        Rule(say("Five."), When(user_contains=("quickly",))),
    ],
    otherwise=say("I cannot help."),
)


def points(output: str) -> int:
    return 5 if "North" in output or "Five" in output else 2


async def compared(
    prepared: Prepared, trials: RunState, judge: RuleModel, out: Path, *, samples: int = 1, **more: Any
) -> tuple[BlindState, list[str]]:
    pairs = plan_pairs(prepared.trials)
    with GeminiServer(judge) as server, Comparisons(out) as ledger:
        model = JudgeModel(server.model(), samples=samples, waits=())
        state = await run_comparisons(pairs, trials.results, out / "trials.jsonl", model, ledger, **more)
        return state, [request.system_text + request.user_text for request in server.requests]


async def a_run(tmp_path: Path, cases: str = CASES, agent: RuleModel = AGENT, **plan: Any) -> tuple[Prepared, RunState]:
    prepared = a_plan(tmp_path, cases, **plan)
    with GeminiServer(agent) as server:
        return prepared, await carry_out(prepared, server, tmp_path / "out")


@pytest.mark.requirement("C46")
async def test_wins_ties_and_losses_are_those_of_the_arms_and_nobody_is_told_which_is_which(tmp_path: Path) -> None:
    prepared, trials = await a_run(tmp_path, runs=4)
    judge = RuleModel([compare_rule(points)])
    state, asked = await compared(prepared, trials, judge, tmp_path / "out", samples=3, parallel=1)
    (figures,) = blind_figures(state.results)
    assert (figures["arm"], figures["baseline"]) == ("with_skill", "without_skill")
    assert (figures["wins"], figures["ties"], figures["losses"]) == (4, 4, 4)
    assert {case["case"]: case["preference"] for case in figures["cases"]} == {
        "totals": 1.0,
        "poem": 0.0,
        "worse": -1.0,
    }
    assert (figures["better"], figures["worse"], figures["equal"], figures["p_value"]) == (1, 1, 1, 1.0)
    assert (figures["preference"], figures["win_rate"], figures["agreement"]) == (0.0, 0.5, 1.0)
    assert figures["low"] <= -0.6
    assert figures["high"] >= 0.6
    assert figures["same_output"] == 4  # the poem is the same with and without the skill: nobody is asked
    assert figures["scores"]["with_skill"]["overall"] == 7.0  # 5 and 2 in halves of the 8
    assert len(asked) == 2 * 3 * 2  # the runs of a case say the same, which is paid once
    hidden = ("with_skill", "without_skill", "load_skill", "reporter", "skill_name")
    assert not [word for word in hidden for text in asked if word in text]
    rows = [json.loads(line) for line in (tmp_path / "out/comparisons.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    assert {row["winner"] for row in rows if row["case"] == "totals"} == {"A", "B"}  # drawn by the seed
    assert not any("with_skill" in json.dumps([row["votes"], row["reasons"], row["winner"]]) for row in rows)
    content = benchmark(
        summarise(prepared.trials, trials.results), prepared.trials, trials, RunFacts("m", "j", 4), state
    )
    assert content["adk_skills"]["blind"] == [figures]
    written = json.loads("".join(json_of(content)))
    assert written["adk_skills"] == content["adk_skills"]
    assert [run["eval_id"] for run in written["runs"]] == [result.case for result in content["runs"]]


def test_which_output_is_called_a_is_drawn_by_the_seed_and_evenly() -> None:
    keys = [(f"case-{number}", "with_skill", "old", 1) for number in range(400)]
    drawn = [sides(key)["A"] for key in keys]
    assert drawn == [sides(key)["A"] for key in keys]
    assert 150 < drawn.count("old") < 250
    assert drawn != [sides(key, 1)["A"] for key in keys]


async def test_two_versions_are_compared_and_so_are_the_files_they_leave(tmp_path: Path) -> None:
    texts = {"skills": "All of it.", "old": "Half of it."}
    for folder, text in texts.items():
        skill = make_skill(tmp_path / folder)
        (skill / "scripts").mkdir()
        (skill / "scripts/write.py").write_text(f"open('report.md', 'w').write({text!r})")
    cases = "skill: reporter\ncases:\n  - {id: file, prompt: Write the data., expected_files: [report.md]}\n"
    agent = RuleModel(
        [
            Rule(call("load_skill", skill_name="reporter")),
            Rule(call("run_skill_script", skill_name="reporter", file_path="scripts/write.py")),
        ],
        otherwise=say("It is in report.md."),
    )
    plan = {"runs": 2, "versions": {"old": tmp_path / "old/reporter"}, "arms": ("with_skill", "old")}
    prepared, trials = await a_run(tmp_path, cases, agent, **plan)
    judge = RuleModel([compare_rule(lambda output: 4 if "report.md (10 bytes): All of it." in output else 3)])
    state, asked = await compared(prepared, trials, judge, tmp_path / "out")
    (figures,) = blind_figures(state.results)
    assert (figures["baseline"], figures["wins"], figures["ties"], figures["losses"]) == ("old", 2, 0, 0)
    assert all("All of it." in text and "Half of it." in text for text in asked)
    assert write_workspace(tmp_path / "out", tmp_path / "workspace") == 4
    for number in (1, 2):
        content = json.loads((tmp_path / f"workspace/eval-file/comparison-{number}.json").read_text())
        winner = content["winner"]
        assert content["adk_skills"][winner] == "with_skill"
        assert content["rubric"][winner]["overall_score"] == 8.0
        assert set(content["rubric"][winner]["structure"]) == {"organization", "formatting", "usability", "polish"}
    page = write_report(tmp_path / "out").read_text()
    assert "Blind comparison" in page
    assert "<b>2 won</b>, 0 tied, 0 lost" in page
    assert "Run 2: with_skill. Scripted: " in page


async def test_what_is_compared_is_not_compared_again_unless_the_judge_is_another(tmp_path: Path) -> None:
    prepared, trials = await a_run(tmp_path, runs=2)
    judge = RuleModel([compare_rule(points)])
    first, asked = await compared(prepared, trials, judge, tmp_path / "out", parallel=1)
    assert len(asked) == 4
    again, asked = await compared(prepared, trials, RuleModel([]), tmp_path / "out")
    assert asked == []
    assert again.results == first.results == read_comparisons(tmp_path / "out")
    _, asked = await compared(prepared, trials, judge, tmp_path / "out", samples=3, parallel=1)
    assert len(asked) == 12
    assert len((tmp_path / "out/comparisons.jsonl").read_text().splitlines()) == 10  # the same outputs need no judge


async def test_stopped_at_any_point_and_continued_no_comparison_is_lost_or_paid_twice(tmp_path: Path) -> None:
    prepared, trials = await a_run(tmp_path, runs=3)
    judge = RuleModel([compare_rule(points)])
    whole, _ = await compared(prepared, trials, judge, tmp_path / "out")
    (tmp_path / "out/comparisons.jsonl").unlink()
    for left in (1, 3):
        state = BlindState(9)
        running: list[asyncio.Future[Any]] = []

        def stop(state: BlindState, result: object, left: int = left, running: list[Any] = running) -> None:
            asked = [one for one in state.results.values() if one.samples]
            if result is not None and len(asked) >= left:
                running[0].cancel()

        work = compared(prepared, trials, judge, tmp_path / "out", state=state, on_change=stop, parallel=1)
        running.append(asyncio.ensure_future(work))
        with pytest.raises(asyncio.CancelledError):
            await running[0]
        assert state.stopped is Stopped.INTERRUPTED
    with (tmp_path / "out/comparisons.jsonl").open("ab") as file:
        file.write(b'{"torn')
    state, asked = await compared(prepared, trials, judge, tmp_path / "out", parallel=1)
    assert blind_figures(state.results) == blind_figures(whole.results)
    assert 0 < len(asked) <= 4
    rows = [json.loads(line) for line in (tmp_path / "out/comparisons.jsonl").read_text().splitlines()]
    assert len({(row["case"], row["run"]) for row in rows}) == len(rows) == 9


async def test_an_outage_of_the_judge_is_no_tie_and_stops_the_comparing(tmp_path: Path) -> None:
    prepared, trials = await a_run(tmp_path, runs=2)
    down = RuleModel([Rule(Refusal(403, "PERMISSION_DENIED", "no key"))])
    state, asked = await compared(prepared, trials, down, tmp_path / "out", parallel=1)
    undecided = [one for one in state.results.values() if not one.measured]
    assert state.stopped is Stopped.OUTAGE
    assert "no key" in state.last_error
    assert (len(undecided), len(asked)) == (3, 6)
    assert all(one.error and not one.winner for one in undecided)
    (figures,) = blind_figures(state.results)
    assert (figures["wins"], figures["losses"], len(figures["errors"])) == (0, 0, 3)
    assert figures["ties"] == figures["same_output"] == figures["comparisons"]
    state, _ = await compared(prepared, trials, RuleModel([compare_rule(points)]), tmp_path / "out")
    assert state.stopped is None
    assert (blind_figures(state.results)[0]["wins"], blind_figures(state.results)[0]["losses"]) == (2, 2)


async def test_no_comparison_starts_that_would_pass_the_budget(tmp_path: Path) -> None:
    prepared, trials = await a_run(tmp_path, runs=3)
    price = Price(10.0, 10.0, 10.0)
    judge = RuleModel([compare_rule(points)])
    whole, _ = await compared(prepared, trials, judge, tmp_path / "out", price=price, parallel=1)
    (tmp_path / "out/comparisons.jsonl").unlink()
    budget = 0.75 * whole.spent
    state, _ = await compared(prepared, trials, judge, tmp_path / "out", price=price, parallel=1, budget_usd=budget)
    assert state.stopped is Stopped.BUDGET
    assert 0 < state.spent <= budget < whole.spent


async def test_pairs_without_a_result_are_counted_and_a_row_without_a_trace_is_named(tmp_path: Path) -> None:
    prepared, trials = await a_run(tmp_path, runs=2)
    del trials.results["totals", "without_skill", 2]
    judge = RuleModel([compare_rule(points)])
    state, _ = await compared(prepared, trials, judge, tmp_path / "out")
    assert state.not_compared == [("totals", "with_skill", "without_skill", 2)]
    (figures,) = blind_figures(state.results, state.not_compared)
    assert (figures["comparisons"], figures["not_compared"]) == (5, 1)
    assert "1 pairs are not compared, because a trial has no result" in blind_notes([figures])[0]
    rows = [{**row, "trace": None} for row in read_rows(tmp_path / "out/trials.jsonl")]
    (tmp_path / "out/trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sentence = r"trials.jsonl:\d+: the row of '\w+' \(with\w*_skill, run \d\) cannot be used: it has no trace. Remove"
    with pytest.raises(ConfigError, match=sentence):
        await compared(prepared, trials, judge, tmp_path / "out")
    with pytest.raises(ConfigError, match=sentence):
        write_workspace(tmp_path / "out", tmp_path / "workspace")


async def test_an_output_that_names_the_skill_and_a_judge_that_prefers_a_place_are_said(tmp_path: Path) -> None:
    agent = RuleModel(
        [Rule(say("I used the reporter skill."), When(skills=("reporter",)))], otherwise=say("I had nothing to use.")
    )
    prepared, trials = await a_run(tmp_path, agent=agent, runs=2)
    places: Callable[[str], int] = iter([5, 1] * 100).__next__  # type: ignore[assignment]
    judge = RuleModel([compare_rule(lambda _: places())])  # type: ignore[call-arg]
    state, _ = await compared(prepared, trials, judge, tmp_path / "out", parallel=1)
    (figures,) = blind_figures(state.results)
    assert (figures["ties"], figures["flips"], figures["samples"], figures["names_skill"]) == (6, 6, 6, 6)
    naming, flipping = blind_notes([figures])
    assert "in 6 of 6 only one output names the skill" in naming
    assert "in 6 of 6 samples the judge preferred a place" in flipping


def test_files_that_differ_only_in_bytes_nobody_shows_are_not_the_same() -> None:
    def left(content: bytes | None) -> Trace:
        return Trace((Turn("q", (), "Done."),), {"a.png": OutputFile(3, content)})

    assert same_output(left(b"\xff01"), left(b"\xff01"))
    assert not same_output(left(b"\xff01"), left(b"\xff02"))
    assert not same_output(left(None), left(None))  # too large to be kept: not known


def test_a_row_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "comparisons.jsonl").write_text('{"schema": 1}\n')
    with pytest.raises(ConfigError, match=r"comparisons.jsonl:1: it is no comparison .*; the judge is asked again"):
        read_comparisons(tmp_path)
    with Comparisons(tmp_path) as ledger, pytest.raises(ConfigError, match=r"comparisons.jsonl:1"):
        ledger.known()
