"""Trials with google-adk's real Runner and a model of known behaviour: exactly the known results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.adk.agents import LlmAgent

from adk_skills_agent.adk import SkillToolset
from adk_skills_agent.errors import ConfigError, EvalFileError
from adk_skills_agent.evals.cases import CaseTurn, EvalCase, Source
from adk_skills_agent.evals.judge import Judge
from adk_skills_agent.evals.judge_model import JudgeModel
from adk_skills_agent.evals.models import Price
from adk_skills_agent.evals.outputs import RunFacts, benchmark, write_outputs, write_workspace
from adk_skills_agent.evals.preparation import Prepared, Request, prepare
from adk_skills_agent.evals.row_file import Stopped, read_rows
from adk_skills_agent.evals.run.grading import judge_context
from adk_skills_agent.evals.run.schedule import RunState
from adk_skills_agent.evals.summary import CaseInArm, Summary, run_summary, summarise
from adk_skills_agent.evals.trace import OutputFile, Trace
from adk_skills_agent.sandbox.contract import Network, SandboxPolicy
from adk_skills_agent.testing import Answer, GeminiServer, ModelRequest, Refusal, Rule, RuleModel, When, call, say
from evals.eval_folders import judge_model, make_skill, write_json
from evals.run.running import CASES, LOADS_AND_REPORTS, a_plan, carry_out


def table(prepared: Prepared, state: RunState) -> dict[tuple[str, str], tuple[int, int]]:
    cells = summarise(prepared.trials, state.results).cells
    return {place: (cell.passed, len(cell.measured)) for place, cell in cells.items()}


@pytest.mark.requirement("C47")
async def test_a_model_of_known_behaviour_gives_exactly_the_known_scores(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path)
    with GeminiServer(LOADS_AND_REPORTS) as server:
        state = await carry_out(prepared, server, tmp_path / "out")
    assert table(prepared, state) == {
        ("totals", "with_skill"): (2, 2),
        ("totals", "without_skill"): (0, 2),
        ("data-query", "with_skill"): (2, 2),
        ("poem", "with_skill"): (2, 2),
    }
    summary = summarise(prepared.trials, state.results)
    (lift,) = summary.lifts()
    assert (lift["mean"], lift["pairs"], lift["better"]) == (1.0, 1, 1)
    assert summary.trigger()["with_skill"]["total"] == {
        "hits": 2, "false_alarms": 0, "misses": 0, "precision": 1.0, "recall": 1.0,
    }  # fmt: skip
    rows = list(read_rows(tmp_path / "out/trials.jsonl"))
    assert len(rows) == len(prepared.trials) == 8
    row = next(row for row in rows if (row["case"], row["arm"]) == ("totals", "with_skill"))
    assert {score["metric"]: score["value"] for score in row["scores"]} == {
        "tool_invocation_score": 1.0,
        "tool_args_score": 1.0,
        "reference_match_score": 1.0,
    }
    assert row["trace"]["turns"][0]["calls"][0]["name"] == "load_skill"
    assert row["skills_loaded"] == ["reporter"]


@pytest.mark.requirement("C46")
async def test_the_skill_is_absent_from_the_arm_without_and_its_eval_cases_from_both(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "skills")
    make_skill(tmp_path / "skills", "gardener")
    (skill / "references").mkdir()
    (skill / "references/guide.md").write_text("Guide.")
    (skill / "evals").mkdir()
    (skill / "evals/evals.json").write_text('{"answer": "SECRET"}')
    answers_beside = ("eval_queries.json", "evals.json", "my.evalset.json")
    for name in answers_beside:
        (skill / name).write_text("SECRET")
    reads = RuleModel(
        [
            Rule(call("load_skill", skill_name="reporter"), When(skills=("reporter",))),
            *(
                Rule(call("load_skill_resource", skill_name="reporter", file_path=path), When(skills=("reporter",)))
                for path in ("references/guide.md", "evals/evals.json", *answers_beside[1:])
            ),
        ],
        otherwise=say("REPORT"),
    )
    prepared = a_plan(tmp_path, runs=1, pattern="totals")
    with GeminiServer(reads) as server:
        await carry_out(prepared, server, tmp_path / "out", parallel=1)
        told = {tuple(request.skills) for request in server.requests}
    assert told == {("gardener", "reporter"), ("gardener",)}
    text = (tmp_path / "out/trials.jsonl").read_text()
    assert "SECRET" not in text
    assert "Guide." in text
    rows = {row["arm"]: row for row in read_rows(tmp_path / "out/trials.jsonl")}
    assert rows["without_skill"]["skills_available"] == ["gardener"]
    answers = [one["response"] for one in rows["with_skill"]["trace"]["turns"][0]["calls"]]
    assert [bool(answer.get("error")) for answer in answers] == [False, False, True, True, True]
    assert answers[0]["files"] == ["references/guide.md"]


async def test_a_version_takes_the_place_of_the_skill(tmp_path: Path) -> None:
    old = make_skill(tmp_path / "old", body="Old instructions say OLD.")
    prepared = a_plan(tmp_path, runs=1, versions={"old": old}, pattern="totals")
    assert [trial.arm.name for trial in prepared.trials] == ["with_skill", "without_skill", "old"]
    with GeminiServer(LOADS_AND_REPORTS) as server:
        await carry_out(prepared, server, tmp_path / "out")
    rows = {row["arm"]: row for row in read_rows(tmp_path / "out/trials.jsonl")}
    assert "say OLD." in json.dumps(rows["old"]["trace"])
    assert "say OLD." not in json.dumps(rows["with_skill"]["trace"])
    assert rows["old"]["fingerprint"] != rows["with_skill"]["fingerprint"]


async def test_files_are_given_and_files_left_are_kept(tmp_path: Path) -> None:
    make_skill(tmp_path / "skills")
    script = tmp_path / "skills/reporter/scripts/copy.py"
    script.parent.mkdir()
    script.write_text(
        "import pathlib; pathlib.Path('report.md').write_text(pathlib.Path('in.csv').read_text().upper())"
    )
    (tmp_path / "in.csv").write_text("north,1")
    cases = """\
skill: reporter
cases:
  - id: copy
    prompt: Copy it.
    files: [in.csv]
    expected_files: [{name: report.md, contains: ["NORTH,1"]}]
"""
    model = RuleModel(
        [
            Rule(call("load_skill", skill_name="reporter"), When(tools=("run_skill_script",))),
            Rule(
                call("run_skill_script", skill_name="reporter", file_path="scripts/copy.py", files=["in.csv"]),
                When(user_contains=("Input files (artifacts of this session): in.csv",)),
            ),
        ],
        otherwise=say("Done."),
    )
    prepared = a_plan(tmp_path, cases, runs=1)
    with GeminiServer(model) as server:
        state = await carry_out(prepared, server, tmp_path / "out")
    assert table(prepared, state) == {("copy", "with_skill"): (1, 1), ("copy", "without_skill"): (0, 1)}
    assert write_workspace(tmp_path / "out", tmp_path / "workspace") == 2  # C46
    here = tmp_path / "workspace/eval-copy/with_skill/run-1"
    assert (here / "outputs/report.md").read_text() == "NORTH,1"
    assert json.loads((here / "grading.json").read_text())["summary"] == {
        "passed": 1, "failed": 0, "total": 1, "pass_rate": 1.0,
    }  # fmt: skip
    assert set(json.loads((here / "timing.json").read_text())) == {"total_tokens", "duration_ms"}
    row = next(row for row in read_rows(tmp_path / "out/trials.jsonl") if row["arm"] == "with_skill")
    assert row["trace"]["output_files"]["report.md"] == {"size": 7, "text": "NORTH,1"}
    assert row["trace"]["turns"][0]["user_text"] == "Copy it."


async def test_a_model_that_cannot_be_used_is_an_error_of_the_run_and_stops_it(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, runs=5)
    with GeminiServer(RuleModel([Rule(Refusal(403, "PERMISSION_DENIED", "no such key"))])) as server:
        state = await carry_out(prepared, server, tmp_path / "out", parallel=1)
    assert state.stopped is Stopped.OUTAGE
    assert "no such key" in state.last_error
    assert [result.passed for result in state.results.values()] == [None] * 3
    assert {row["error"]["kind"] for row in read_rows(tmp_path / "out/trials.jsonl")} == {"model"}
    with GeminiServer(LOADS_AND_REPORTS) as server:  # resumed when it is there again
        state = await carry_out(prepared, server, tmp_path / "out", resume=True)
    assert state.stopped is None
    assert state.resumed == 0
    assert summarise(prepared.trials, state.results).pass_rate("with_skill") == 1.0


@pytest.mark.slow
async def test_what_the_agent_does_wrong_is_its_failure(tmp_path: Path) -> None:
    def dawdle(request: ModelRequest) -> Answer:
        if request.model_turns == 0:
            return call("load_skill", skill_name="reporter")
        time.sleep(12)
        return say("REPORT")

    slow = RuleModel([Rule(dawdle)])
    prepared = a_plan(tmp_path, runs=1, pattern="totals", arms=("with_skill",))
    with GeminiServer(slow) as server:
        state = await carry_out(prepared, server, tmp_path / "out", timeout=10.0)
    (result,) = state.results.values()
    assert (result.passed, result.error["kind"], result.measured) == (False, "timeout", True)
    assert result.scores["tool_args_score"] == 1.0  # what there is counts, and is shown
    assert result.tool_calls == 1


@pytest.mark.slow
def test_what_a_process_does_once_is_not_on_the_first_agents_clock(tmp_path: Path) -> None:
    """google-adk imports 400 modules for its first agent: on a busy machine longer than a trial may take."""
    here = Path(__file__).with_name("first_turn_imports.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", here, tmp_path],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(here.parents[2])},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["imported:"], (done.stdout, done.stderr)


JUDGED = """\
skill: reporter
cases:
  - id: judged
    prompt: Summarise my data.
    rubrics: [The answer names the region., The agent loads the skill.]
"""


async def test_an_outage_of_the_judge_is_no_score_and_only_the_judging_is_done_again(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, JUDGED, runs=1, judged=True, arms=("with_skill",))
    with GeminiServer(LOADS_AND_REPORTS) as server:
        with GeminiServer(RuleModel([Rule(Refusal(403, "PERMISSION_DENIED", "no"))])) as down:
            state = await carry_out(
                prepared, server, tmp_path / "out", judge=Judge(JudgeModel(down.model(), samples=1))
            )
        (result,) = state.results.values()
        assert (result.passed, result.score, result.error["kind"]) == (None, None, "judge")
        asked = len(server.requests)
        with GeminiServer(judge_model(lambda text, _: "yes" if "names" in text else "no")) as up:
            state = await carry_out(
                prepared, server, tmp_path / "out", resume=True, judge=Judge(JudgeModel(up.model(), samples=1)),
                settings={"judge_price": Price(1.0, 1.0, 1.0)},
            )  # fmt: skip
        assert len(server.requests) == asked
    (result,) = state.results.values()
    assert (result.passed, result.score, dict(result.error)) == (False, 0.5, {})
    assert [(verdict["rubric"], verdict["met"]) for verdict in result.verdicts] == [
        ("rubric-1", True),
        ("rubric-2", False),
    ]
    assert result.judge_usage.total > 0
    assert result.judge_cost_usd == pytest.approx(result.judge_usage.total / 1e6, rel=0.01)


async def test_no_trial_starts_that_would_pass_the_budget(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, runs=20)
    price = Price(10.0, 10.0, 10.0)
    with GeminiServer(LOADS_AND_REPORTS) as server:
        state = await carry_out(
            prepared, server, tmp_path / "out", budget_usd=0.1, settings={"price": price}, parallel=2
        )
    assert state.stopped is Stopped.BUDGET
    assert 0.02 < state.spent <= 0.1
    assert 0 < len(state.results) < len(prepared.trials)


async def test_unknown_skills_duplicate_ids_and_cases_without_a_measure_are_listed_and_the_rest_runs(
    tmp_path: Path,
) -> None:
    prepared = a_plan(
        tmp_path,
        CASES
        + """\
  - {id: totals, prompt: Again., answer_contains: [x]}
  - {id: lost, prompt: Hello., skill: no-such-skill, answer_contains: [x]}
  - {id: vague, prompt: Hello.}
  - {id: judged-only, prompt: Hello., rubrics: [The answer greets.]}
""",
    )
    assert [(problem.code, problem.line) for problem in prepared.skipped] == [
        ("duplicate-id", 9),
        ("unknown-skill", 10),
        ("nothing-to-measure", 11),
        ("nothing-to-measure", 12),
    ]
    assert "'no-such-skill'" in prepared.skipped[1].message
    assert len(prepared.cases) == 3


def test_a_trial_is_known_by_everything_its_result_depends_on(tmp_path: Path) -> None:
    case = "skill: reporter\ncases:\n  - {id: a, prompt: Hi., calls: [list_skills], answer_contains: [x]}\n"
    first = a_plan(tmp_path, case).trials[0].fingerprint
    assert a_plan(tmp_path, f"# moved\n{case}").trials[0].fingerprint == first
    changes = (
        (case.replace("Hi.", "Ho."), {}),
        (case.replace("list_skills", "{name: list_skills, args: {a: 1}}"), {}),
        (case.replace("[x]", "[y]"), {}),
        (case.replace("answer_contains: [x]", "answer_contains: [x], state: {a: 1}"), {}),
        (case.replace("answer_contains: [x]", "answer_contains: [x], criteria: {tool_args_score: 0.5}"), {}),
        (case, {"settings": {"model": "other"}}),
    )
    assert len({first, *(a_plan(tmp_path, text, **more).trials[0].fingerprint for text, more in changes)}) == 7
    make_skill(tmp_path / "skills", "newcomer")  # what else the agent may choose counts, too
    assert a_plan(tmp_path, case).trials[0].fingerprint != first


async def test_other_versions_of_a_case_are_not_mixed_into_a_run(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, runs=1)
    with GeminiServer(LOADS_AND_REPORTS) as server:
        await carry_out(prepared, server, tmp_path / "out")
        with pytest.raises(ConfigError, match="has results already"):
            await carry_out(prepared, server, tmp_path / "out")
        changed = a_plan(tmp_path, CASES.replace("REPORT", "REPORTS"), runs=1)
        with pytest.raises(ConfigError, match=r"another version of the case.*: totals"):
            await carry_out(changed, server, tmp_path / "out", resume=True)
        (tmp_path / "skills/reporter/SKILL.md").write_text("---\nname: reporter\ndescription: New.\n---\nNew.")
        with pytest.raises(ConfigError, match="another version"):
            await carry_out(a_plan(tmp_path, runs=1), server, tmp_path / "out", resume=True)


@pytest.mark.requirement("S0-152")
def test_a_judged_case_needs_two_rubrics_s0_152(tmp_path: Path) -> None:
    cases = "skill: reporter\ncases:\n  - {id: one, prompt: Hi., rubrics: [The answer greets.]}\n"
    with pytest.raises(EvalFileError, match=r"cases\.yaml:3: The case 'one' has one rubric\. Give it 2 or more"):
        a_plan(tmp_path, cases, judged=True)
    assert a_plan(tmp_path, cases + "  - {id: two, prompt: Hi., answer_contains: [x]}\n", judged=False).trials


def measured(case: EvalCase, arm: str, passed: bool, seconds: float, tokens: int) -> CaseInArm:
    usage = SimpleNamespace(total=tokens)
    result = SimpleNamespace(passed=passed, outcome_passed=passed, seconds=seconds, usage=usage)
    return CaseInArm(case, arm, 1, (result,))  # type: ignore[arg-type]


@pytest.mark.requirement("C46")
def test_what_the_skill_adds_is_taken_over_the_same_tasks_c46(tmp_path: Path) -> None:
    """Seen: trigger queries, which no agent without the skill can pass, made 0.364 of a lift of 0."""
    source, turns = Source("cases.yaml", 1), (CaseTurn("Hello."),)
    task, other = EvalCase("task", turns, source), EvalCase("other", turns, source)
    query = EvalCase("query", turns, source, should_trigger=True)
    cells = [
        measured(task, "with_skill", passed=True, seconds=3, tokens=300),
        measured(task, "without_skill", passed=True, seconds=1, tokens=100),
        measured(other, "with_skill", passed=False, seconds=100, tokens=9_000),  # not measured without the skill
        measured(query, "with_skill", passed=True, seconds=5, tokens=50),
        measured(query, "without_skill", passed=False, seconds=5, tokens=20),
    ]
    summary = Summary({(cell.case.id, cell.arm): cell for cell in cells}, ("with_skill", "without_skill"))
    tasks = run_summary(summary, "task")
    assert tasks["delta"] == {"pass_rate": 0.0, "time_seconds": 2.0, "tokens": 200.0}
    assert tasks["with_skill"]["pass_rate"]["mean"] == 0.5
    assert run_summary(summary, "trigger")["with_skill"]["tokens"]["mean"] == 50
    assert [lift["mean"] for lift in summary.lifts()] == [0.0]


@pytest.mark.requirement("S0-156", "C46")
async def test_the_results_are_written_for_people_viewers_and_ci(tmp_path: Path) -> None:
    from xml.etree import ElementTree as ET

    prepared = a_plan(tmp_path, CASES + "  - {id: lost, prompt: Hello., skill: gone, answer_contains: [x]}\n", runs=3)
    answers = iter(range(10**6))
    flaky = RuleModel(
        [
            Rule(call("load_skill", skill_name="reporter"), When(user_contains=("data",), skills=("reporter",))),
            Rule(
                lambda request: say("REPORT \x07" if next(answers) % 2 else "none"),
                When(user_contains=("Summarise",), skills=("reporter",)),
            ),
        ],
        otherwise=say("I cannot help."),
    )
    with GeminiServer(flaky) as server:
        state = await carry_out(prepared, server, tmp_path / "out", parallel=1)
    summary = summarise(prepared.trials, state.results)
    facts = RunFacts("rules", "", 3, prepared.skipped)
    content = benchmark(summary, prepared.trials, state, facts)
    write_outputs(tmp_path / "out", content, summary, facts)
    written = json.loads((tmp_path / "out/benchmark.json").read_text())
    assert set(written["run_summary"]) == {"with_skill", "without_skill", "delta"}
    rate = written["run_summary"]["with_skill"]["pass_rate"]["mean"]
    assert written["run_summary"]["delta"]["pass_rate"] == pytest.approx(rate)
    assert written["adk_skills"]["flaky"] == [{"case": "totals", "arm": "with_skill"}]
    assert any(note.startswith("Flaky: totals passed ") for note in written["notes"])
    passes = written["adk_skills"]["cases"][0]["arms"]["with_skill"]["pass_at_k"]
    assert 0 < passes["1"] < passes["3"] == 1.0
    assert {run["configuration"] for run in written["runs"]} == {"with_skill", "without_skill"}
    root = ET.parse(tmp_path / "out/junit.xml").getroot()
    suites = {suite.get("name"): suite for suite in root}
    assert set(suites) == {"with_skill", "skipped"}  # the baseline is expected to fail: it is no test
    assert (suites["with_skill"].get("tests"), suites["with_skill"].get("failures")) == ("3", "1")
    failure = suites["with_skill"].find(".//failure")
    assert failure is not None
    assert "of 3 runs passed" in failure.get("message", "")


async def test_a_sandbox_that_does_not_work_is_no_result_of_the_agent(tmp_path: Path) -> None:
    scripts = make_skill(tmp_path / "skills") / "scripts"
    scripts.mkdir()
    (scripts / "go.py").write_text("print(1)")
    runs = RuleModel(
        [
            Rule(call("load_skill", skill_name="reporter"), When(skills=("reporter",))),
            Rule(
                call("run_skill_script", skill_name="reporter", file_path="scripts/go.py"), When(skills=("reporter",))
            ),
        ],
        otherwise=say("REPORT"),
    )
    prepared = a_plan(tmp_path, runs=1, pattern="totals", arms=("with_skill",))
    no_such_level = SandboxPolicy(isolation="landlock", min_isolation="landlock", network=Network.allow("example.org"))
    with GeminiServer(runs) as server:
        state = await carry_out(prepared, server, tmp_path / "out", policy=no_such_level)
    (result,) = state.results.values()
    assert (result.passed, result.error["kind"]) == (None, "sandbox")


async def test_an_outage_in_the_middle_fails_few_trials_however_many_run_at_once(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, runs=25)
    answers = iter(range(10**6))

    def then_down(request: ModelRequest) -> Answer | Refusal:
        return say("I cannot help.") if next(answers) < 30 else Refusal(403, "PERMISSION_DENIED", "no more")

    with GeminiServer(RuleModel([Rule(then_down)])) as server:  # type: ignore[arg-type]
        state = await carry_out(prepared, server, tmp_path / "out", parallel=8)
    assert state.stopped is Stopped.OUTAGE
    unmeasured = [result for result in state.results.values() if not result.measured]
    assert 3 <= len(unmeasured) <= 8 + 2
    assert len(state.results) - len(unmeasured) == 30


async def test_a_tool_that_raises_is_a_failure_of_the_agent_and_its_own_skills_make_room_for_the_arms(
    tmp_path: Path,
) -> None:
    def measure(what: str) -> dict[str, str]:
        """Measure something."""
        raise ValueError(f"no scale for {what}")

    elsewhere = make_skill(tmp_path / "elsewhere", "carpenter").parent
    own = LlmAgent(
        name="own",
        model="gemini-2.5-flash",
        instruction="You are Own.",
        tools=[measure, SkillToolset.from_dirs([elsewhere])],
    )
    prepared = a_plan(tmp_path, runs=1, pattern="totals")
    with GeminiServer(RuleModel([Rule(call("measure", what="wood"))], otherwise=say("REPORT"))) as server:
        state = await carry_out(prepared, server, tmp_path / "out", base=own)
        assert {tuple(request.skills) for request in server.requests} == {("gardener", "reporter"), ("gardener",)}
        assert all(request.system_text.startswith("You are Own.") for request in server.requests)
    for result in state.results.values():
        assert (result.passed, result.error["kind"], result.measured) == (False, "agent", True)
        assert "no scale for wood" in result.error["message"]


async def test_a_skill_that_a_user_names_counts_as_loaded(tmp_path: Path) -> None:
    cases = "skill: reporter\ncases:\n  - {id: named, prompt: $reporter go on., should_trigger: true}\n"
    prepared = a_plan(tmp_path, cases, runs=2)
    with GeminiServer(RuleModel([], otherwise=say("REPORT"))) as server:
        state = await carry_out(prepared, server, tmp_path / "out")
    assert [(result.passed, result.skills_loaded) for result in state.results.values()] == [(True, ("reporter",))] * 2


async def test_a_skill_named_in_another_spelling_is_still_absent_from_the_arm_without(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, CASES.replace("skill: reporter", "skill: Reporter"), runs=1, pattern="totals")
    with GeminiServer(LOADS_AND_REPORTS) as server:
        state = await carry_out(prepared, server, tmp_path / "out")
    assert table(prepared, state) == {("totals", "with_skill"): (1, 1), ("totals", "without_skill"): (0, 1)}


async def test_results_that_are_written_into_the_skill_change_nothing_and_are_not_seen(tmp_path: Path) -> None:
    out = make_skill(tmp_path / "skills") / "results"
    make_skill(tmp_path / "skills", "gardener")
    prepared = a_plan(tmp_path, runs=1, private=(out,))
    with GeminiServer(LOADS_AND_REPORTS) as server:
        await carry_out(prepared, server, out)
        again = a_plan(tmp_path, runs=1, private=(out,))
        state = await carry_out(again, server, out, resume=True)
    assert state.resumed == len(prepared.trials)
    assert again.arms[0].catalog.load_skill("reporter").files() == ()


def test_a_version_of_no_skill_there_is_is_refused(tmp_path: Path) -> None:
    other = make_skill(tmp_path / "other", "carpenter")
    with pytest.raises(ConfigError, match="holds carpenter; no skill to compare with is called so"):
        a_plan(tmp_path, versions={"old": other})
    with pytest.raises(ConfigError, match="there is no skill in"):
        a_plan(tmp_path, versions={"old": tmp_path / "out"})


def test_the_judge_is_told_of_the_files_that_were_left_and_of_what_is_not_shown(tmp_path: Path) -> None:
    (trial, *_) = a_plan(tmp_path, JUDGED, runs=1, judged=True).trials
    files = {f"f{number:02}": OutputFile.of(b"\xff") for number in range(25)} | {"a": OutputFile.of(b"x" * 9_000)}
    told = judge_context(trial, Trace((), files))
    assert "File left by the agent: a (9,000 bytes; its first 8,000 characters): xxx" in told
    assert "f03 (1 bytes; not shown)" in told
    assert told.endswith("The agent left 6 more files, which are not shown.")


def test_a_query_that_is_there_twice_has_no_name_to_change(tmp_path: Path) -> None:
    evals = make_skill(tmp_path / "skills") / "evals"
    evals.mkdir()
    queries = [{"query": "Tell me of my data!", "should_trigger": True}] * 2
    write_json(evals / "eval_queries.json", queries)
    more = [{"query": "Tell me of my data?", "should_trigger": True}]
    write_json(tmp_path / "skills/reporter/eval_queries.json", more)
    prepared = prepare(Request((evals.parent,), runs=1, judged=False))
    assert [case.turns[0].user_text for case in prepared.cases] == ["Tell me of my data!"]
    twice, alike = (str(problem) for problem in prepared.skipped)
    first = f"{evals}/eval_queries.json:2"
    assert f"The query 'Tell me of my data!' is there already, at {first}. It is not run; delete one of them." in twice
    assert twice.startswith(f"{evals}/eval_queries.json:6:")
    assert f"'Tell me of my data?' differs only in signs from the one at {first}. It is not run; reword it." in alike
