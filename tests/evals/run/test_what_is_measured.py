"""Which metrics a case is measured by, what its result depends on, and what becomes of results that look alike."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool

from adk_skills_agent import SkillToolset
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.judge import Judge
from adk_skills_agent.evals.judge_model import JudgeModel
from adk_skills_agent.evals.outputs import write_workspace
from adk_skills_agent.evals.row_file import read_rows
from adk_skills_agent.evals.run.agent import Agents
from adk_skills_agent.evals.run.result import NAME, Ledger
from adk_skills_agent.evals.skillsbench.trial import write_kept
from adk_skills_agent.testing import Answer, GeminiServer, ModelRequest, Rule, RuleModel, say
from evals.eval_folders import judge_model, make_skill
from evals.run.running import LOADS_AND_REPORTS, a_plan, carry_out

NAMES = ("a b", "a-b", "A-b", "plain", "../../x", "x" * 300)
FOR_ALL = "skill: reporter\ncriteria: {%s}\ncases:\n"


async def test_a_trigger_query_is_scored_as_one_whatever_the_criteria_of_the_file(tmp_path: Path) -> None:
    cases = FOR_ALL % "tool_args_score: 0.5, skill_discovery_score: 1" + (
        "  - {id: wrongly, prompt: Write a poem on my data., should_trigger: false}\n"
        "  - {id: rightly, prompt: Write a poem., should_trigger: false}\n"
    )
    prepared = a_plan(tmp_path, cases, runs=1)
    with GeminiServer(LOADS_AND_REPORTS) as server:
        state = await carry_out(prepared, server, tmp_path / "out")
    assert {key[0]: result.passed for key, result in state.results.items()} == {"wrongly": False, "rightly": True}


def test_a_case_of_which_the_criteria_measure_nothing_is_not_run(tmp_path: Path) -> None:
    cases = FOR_ALL % "tool_args_score: 0.5, output_files_score: 1" + (
        "  - {id: nothing, prompt: x, answer_contains: [y]}\n"
        "  - {id: called, prompt: x, answer_contains: [y], calls: [load_skill]}\n"
        "  - {id: file, prompt: x, criteria: {output_files_score: {threshold: 1, files: [a.md]}}}\n"
    )
    prepared = a_plan(tmp_path, cases)
    assert [case.id for case in prepared.cases] == ["called", "file"]
    assert [problem.code for problem in prepared.skipped] == ["nothing-to-measure"]
    said = [note.message for note in prepared.notes if note.code == "not-in-criteria"]
    assert said == [f"`criteria` leaves out {name}, which 'called' could be measured by." for name in (
        "tool_invocation_score", "reference_match_score",
    )]  # fmt: skip


async def test_another_judge_may_finish_what_the_first_could_not_judge(tmp_path: Path) -> None:
    cases = (
        "skill: reporter\ncases:\n  - {id: plain, prompt: Hi., answer_contains: [help]}\n"
        "  - {id: judged, prompt: Hi., rubrics: [The answer greets., The answer is short.]}\n"
    )
    first, second = (
        a_plan(tmp_path, cases, runs=1, judged=True, settings={"model": "m", "judge": judge, "judge_samples": 1})
        for judge in ("a", "b")
    )
    silent, good = judge_model(lambda *_: ""), judge_model(lambda *_: "yes")
    with GeminiServer(LOADS_AND_REPORTS) as server, GeminiServer(silent) as bad, GeminiServer(good) as able:
        await carry_out(first, server, tmp_path / "out", judge=Judge(JudgeModel(bad.model(), samples=1)))
        state = await carry_out(
            second, server, tmp_path / "out", judge=Judge(JudgeModel(able.model(), samples=1)), resume=True
        )
    assert state.resumed == 2
    assert [result.passed for result in state.results.values()] == [True] * 4
    with Ledger(tmp_path / "out", resume=True) as ledger:
        assert len(ledger.finished({trial.key: trial for trial in second.trials})) == 4


async def test_what_a_judge_was_paid_for_no_verdict_stays_in_the_costs(tmp_path: Path) -> None:
    cases = "skill: reporter\ncases:\n  - {id: a, prompt: Hi., rubrics: [The answer greets., It is short.]}\n"
    prepared = a_plan(tmp_path, cases, runs=1, judged=True, arms=("with_skill",))
    silent, good = judge_model(lambda *_: ""), judge_model(lambda *_: "yes")
    paid = []
    with GeminiServer(LOADS_AND_REPORTS) as server, GeminiServer(silent) as bad, GeminiServer(good) as able:
        for judge in (bad, able):
            shared = {"judge": Judge(JudgeModel(judge.model(), samples=1)), "resume": True}
            state = await carry_out(prepared, server, tmp_path / "out", **shared)
            paid.append(next(iter(state.results.values())).judge_usage.total)
            assert paid[-1] > sum(paid[:-1])
    assert len(list(read_rows(tmp_path / "out" / NAME))) == 2


async def test_an_agent_that_is_stopped_has_missed_the_outcome_also_when_the_judge_is_out_of_reach(
    tmp_path: Path,
) -> None:
    cases = "skill: reporter\ncases:\n  - {id: a, prompt: Hi., rubrics: [The answer greets., It is short.]}\n"
    prepared = a_plan(tmp_path, cases, runs=1, judged=True)

    def dawdle(_: ModelRequest) -> Answer:
        time.sleep(2)
        return Answer("Late.")

    slow = RuleModel([Rule(dawdle)])
    with GeminiServer(slow) as server, GeminiServer(judge_model(lambda *_: "")) as bad:
        state = await carry_out(
            prepared, server, tmp_path / "out", judge=Judge(JudgeModel(bad.model(), samples=1)), timeout=0.5
        )
    assert {(result.passed, result.outcome_passed) for result in state.results.values()} == {(False, False)}


async def test_results_with_names_alike_do_not_fall_together_in_the_workspace(tmp_path: Path) -> None:
    cases = "skill: reporter\ncases:\n" + "".join(
        f"  - {{id: {name!r}, prompt: Hi., answer_contains: [help]}}\n" for name in NAMES
    )
    prepared = a_plan(tmp_path, cases, runs=1)
    with GeminiServer(RuleModel([], otherwise=say("No help."))) as server:
        await carry_out(prepared, server, tmp_path / "out")
    rows = list(read_rows(tmp_path / "out" / NAME))
    for row in rows:  # what an agent may leave: a file with the name of ours, two that read alike, half a character
        row["trace"]["output_files"] = {
            name: {"size": 1, "text": name} for name in ("answer.md", "d/a.md", "d-a.md", "b.md")
        }
        row["trace"]["turns"][0]["final_text"] += "\ud800"
    (tmp_path / "out" / NAME).write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = tmp_path / "workspace"
    assert write_workspace(tmp_path / "out", place) == write_workspace(tmp_path / "out", place) == len(rows)
    assert len(list(place.glob("*/*/run-1/grading.json"))) == len(rows) == 12
    for outputs in place.glob("*/*/run-1/outputs"):
        texts = {file.name: file.read_text() for file in outputs.iterdir()}
        assert texts.pop("answer.md") == "No help.?"
        assert texts.pop("b.md") == "b.md"
        assert sorted(texts.values()) == ["answer.md", "d-a.md", "d/a.md"]
    assert (place / "eval-plain").is_dir()


@pytest.mark.parametrize("how", ["sub-agent", "tool"])
def test_skills_of_agents_below_that_no_arm_can_take_away_are_refused(how: str, tmp_path: Path) -> None:
    make_skill(tmp_path / "skills")
    with GeminiServer(LOADS_AND_REPORTS) as server:
        below = LlmAgent(name="clerk", model=server.model(), tools=[SkillToolset.from_dirs([tmp_path / "skills"])])
        boss = (
            LlmAgent(name="boss", model=server.model(), sub_agents=[below])
            if how == "sub-agent"
            else LlmAgent(name="boss", model=server.model(), tools=[AgentTool(below)])
        )
        with pytest.raises(ConfigError, match=r"Agent 'clerk', below 'boss', brings skills"):
            Agents(None, boss)
        Agents(None, below)


async def test_row_200_nothing_is_written_through_a_link_in_the_workspace(tmp_path: Path) -> None:
    """Seen: a repository has workspace/eval-a/with_skill/run-1/outputs -> .git, and a script writes its "config"."""
    prepared = a_plan(tmp_path, "skill: reporter\ncases: [{id: a, prompt: Hi., answer_contains: [help]}]\n", runs=1)
    with GeminiServer(RuleModel([], otherwise=say("No help."))) as server:
        await carry_out(prepared, server, tmp_path / "out")
    rows = list(read_rows(tmp_path / "out" / NAME))
    for row in rows:
        row["trace"]["output_files"] = {"config": {"size": 1, "text": "[core]\n\tfsmonitor = touch planted\n"}}
    (tmp_path / "out" / NAME).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / ".git").mkdir()
    for name in ("eval-a/with_skill/run-1/outputs", "eval-a"):
        link = tmp_path / name.replace("/", "-") / name
        link.parent.mkdir(parents=True)
        link.symlink_to(tmp_path / ".git")
        with pytest.raises(OSError, match="a link leads out of"):
            write_workspace(tmp_path / "out", tmp_path / name.replace("/", "-"))
    with pytest.raises(OSError, match="a link leads out of"):
        write_kept(tmp_path / "eval-a", {"eval-a/task/adk.json": "{}"})
    assert not list((tmp_path / ".git").iterdir())
