"""Each format of eval cases is read as its authors write it (C46, C47); what is not used is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import EvalFileError
from adk_skills_agent.evals.formats.reading import eval_files, read_eval_file
from evals.eval_folders import make_skill, write_json

AGENTSKILLS = {
    "skill_name": "csv-analyzer",
    "evals": [
        {
            "id": 1,
            "prompt": "I have a CSV of monthly sales data in data/sales_2025.csv. Can you find the top 3 months?",
            "expected_output": "A bar chart image showing the top 3 months by revenue, with labeled axes and values.",
            "files": ["evals/files/sales_2025.csv"],
            "assertions": ["The output includes a bar chart image file", "Both axes are labeled"],
        },
        {"id": 2, "prompt": "clean it up", "expected_output": "A cleaned CSV.", "files": []},
    ],
}


@pytest.fixture
def analyzer(tmp_path: Path) -> Path:
    skill = make_skill(tmp_path, "csv-analyzer")
    write_json(skill / "evals/evals.json", AGENTSKILLS)
    (skill / "evals/files").mkdir()
    (skill / "evals/files/sales_2025.csv").write_text("month,revenue\n")
    return skill


@pytest.mark.requirement("C46")
def test_the_example_of_agentskills_io_is_read_unmodified(analyzer: Path) -> None:
    file = read_eval_file(analyzer / "evals/evals.json")
    chart, clean = file.cases
    assert (chart.id, chart.skills, chart.kind, chart.source.line) == ("csv-analyzer/1", ("csv-analyzer",), "task", 4)
    assert chart.turns[0].user_text.startswith("I have a CSV")
    assert [(rubric.id, rubric.text) for rubric in chart.turns[0].rubrics] == [
        ("assertion-1", "The output includes a bar chart image file"),
        ("assertion-2", "Both axes are labeled"),
    ]
    assert [(given.name, given.path) for given in chart.files] == [
        ("sales_2025.csv", analyzer / "evals/files/sales_2025.csv")
    ]
    assert [rubric.id for rubric in clean.turns[0].rubrics] == ["expected-output"]
    assert "A cleaned CSV." in clean.turns[0].rubrics[0].text
    assert chart.skill_folder == analyzer


def test_skill_creator_calls_the_assertions_expectations(analyzer: Path) -> None:
    cases = json.loads(json.dumps(AGENTSKILLS))
    cases["evals"][0]["expectations"] = cases["evals"][0].pop("assertions")
    write_json(analyzer / "evals/evals.json", cases)
    assert len(read_eval_file(analyzer / "evals/evals.json").cases[0].turns[0].rubrics) == 2


def test_unknown_fields_of_a_foreign_format_are_named_and_left_alone(analyzer: Path) -> None:
    cases = json.loads(json.dumps(AGENTSKILLS))
    cases["evals"][1]["difficulty"] = "hard"
    write_json(analyzer / "evals/evals.json", cases)
    notes = read_eval_file(analyzer / "evals/evals.json").diagnostics
    assert [(note.code, note.message, note.line) for note in notes if note.code == "unused-field"] == [
        ("unused-field", "evals[1].difficulty is not used.", 21)
    ]


@pytest.mark.requirement("C47")
def test_trigger_queries_are_about_the_skill_around_them_and_split_60_to_40(analyzer: Path) -> None:
    queries = [{"query": f"Question number {n} about my data", "should_trigger": n < 10} for n in range(20)]
    path = write_json(analyzer / "evals/eval_queries.json", queries)
    cases = read_eval_file(path).cases
    assert {case.skills for case in cases} == {("csv-analyzer",)}
    assert [case.should_trigger for case in cases] == [True] * 10 + [False] * 10
    for kind in (True, False):
        splits = [case.split for case in cases if case.should_trigger is kind]
        assert (splits.count("train"), splits.count("validation")) == (6, 4)
    again = {case.id: case.split for case in read_eval_file(write_json(path, queries[::-1])).cases}
    assert again == {case.id: case.split for case in cases}  # C47: the order in the file decides nothing


def test_queries_that_differ_in_signs_only_have_ids_of_their_own(analyzer: Path) -> None:
    queries = ["Total it!", "total it", "👋", "🎉", "Sing."]
    path = write_json(analyzer / "eval_queries.json", [{"query": one, "should_trigger": True} for one in queries])
    ids = [case.id for case in read_eval_file(path).cases]
    assert len(set(ids)) == 5
    assert ids[-1].endswith("/query/sing")


def test_queries_that_begin_alike_have_ids_of_their_own(analyzer: Path) -> None:
    long = "please take the spreadsheet that my manager sent me this morning and "
    path = write_json(
        analyzer / "eval_queries.json",
        [
            {"query": long + "add a column", "should_trigger": True},
            {"query": long + "delete it", "should_trigger": False},
        ],
    )
    assert len({case.id for case in read_eval_file(path).cases}) == 2
    assert path in eval_files(analyzer)


EVAL_SET: dict[str, Any] = {
    "eval_set_id": "set",
    "eval_cases": [
        {
            "eval_id": "load",
            "skills": ["reporter"],
            "rubrics": [
                {"rubric_id": "r1", "rubric_content": {"text_property": "The agent loads the skill."}},
                {
                    "rubric_id": "r2",
                    "rubric_content": {"text_property": "x"},
                    "type": "TOOL_USE_QUALITY",
                },
            ],
            "session_input": {"app_name": "a", "user_id": "u", "state": {"city": "Oslo"}},
            "conversation": [
                {
                    "invocation_id": "1",
                    "user_content": {"role": "user", "parts": [{"text": "First"}]},
                    "final_response": {"role": "model", "parts": [{"text": "REPORT"}]},
                    "intermediate_data": {"tool_uses": [{"name": "load_skill", "args": {"skill_name": "reporter"}}]},
                },
                {"userContent": {"parts": [{"text": "Second"}]}},
            ],
        },
        {"eval_id": "talk", "conversation_scenario": {"starting_prompt": "Hi", "conversation_plan": "Talk."}},
    ],
}


def test_an_eval_set_of_google_adk_is_read_by_its_own_classes(tmp_path: Path) -> None:
    path = write_json(tmp_path / "x.evalset.json", EVAL_SET)
    write_json(tmp_path / "test_config.json", {"criteria": {"tool_args_score": 0.5, "response_match_score": 0.8}})
    file = read_eval_file(path)
    case, talk = file.cases
    assert talk.scenario is not None
    assert (talk.turns[0].user_text, talk.scenario.plan["conversation_plan"], talk.scenario.model) == (
        "Hi",
        "Talk.",
        "",
    )
    assert [turn.user_text for turn in case.turns] == ["First", "Second"]
    assert [(call.name, dict(call.args)) for call in case.turns[0].expected_calls] == [
        ("load_skill", {"skill_name": "reporter"})
    ]
    assert case.turns[0].reference == "REPORT"
    assert [rubric.id for rubric in case.turns[1].rubrics] == ["r1"]  # one of the case is for each turn
    assert (case.skills, dict(case.initial_state)) == (("reporter",), {"city": "Oslo"})
    assert dict(case.criteria) == {"tool_args_score": 0.5}
    codes = [note.code for note in file.diagnostics]
    assert {"other-rubric-type", "other-metric"} <= set(codes)


YAML = """\
skill: reporter
criteria: {tool_args_score: {threshold: 0.5, key_args: [skill_name]}}
cases:
  - id: totals
    turns:
      - prompt: First
        calls: [list_skills, {name: load_skill, args: {skill_name: reporter}}]
        answer_contains: [North, "1,200"]
      - prompt: 2026-01-01 yes
        rubrics: [The answer names the region., {id: file, text: The report has a table.}]
    expected_files: [report.md, {name: "*.csv", contains: [total]}]
    state: {user: Ada}
  - {id: 7, prompt: A poem, should_trigger: false}
"""


def test_our_yaml_says_everything_a_case_can_say(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(YAML)
    totals, poem = read_eval_file(path).cases
    assert (totals.source.line, poem.id, poem.kind, poem.should_trigger) == (4, "7", "trigger", False)
    assert totals.turns[0].reference == "North\n1,200"
    assert totals.turns[1].user_text == "2026-01-01 yes"
    assert [rubric.id for rubric in totals.turns[1].rubrics] == ["rubric-1", "file"]
    assert [(file.name, file.contains) for file in totals.expected_files] == [("report.md", ()), ("*.csv", ("total",))]
    assert totals.expected.turns[0].calls[1].skill == "reporter"
    assert totals.criteria == {"tool_args_score": {"threshold": 0.5, "key_args": ["skill_name"]}}


def test_a_skill_named_on_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(YAML)
    assert {case.skills for case in read_eval_file(path, skill="other").cases} == {("other",)}


def test_a_folder_stands_for_the_cases_in_its_evals_folder(analyzer: Path, tmp_path: Path) -> None:
    (analyzer / "evals/more.yaml").write_text(YAML)
    assert [file.name for file in eval_files(analyzer)] == ["evals.json", "more.yaml"]
    assert eval_files(analyzer / "SKILL.md") == eval_files(analyzer)
    with pytest.raises(EvalFileError, match="There are no eval cases"):
        eval_files(make_skill(tmp_path, "bare"))
