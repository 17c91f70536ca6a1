"""Conversations whose user a model plays: google-adk's own simulator, over the loopback server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError, EvalFileError, UserModelUnavailable
from adk_skills_agent.evals.cases import Scenario
from adk_skills_agent.evals.formats.reading import read_eval_file
from adk_skills_agent.evals.judge import Judge
from adk_skills_agent.evals.judge_model import JudgeModel
from adk_skills_agent.evals.models import Price
from adk_skills_agent.evals.preparation import Prepared, Request, prepare
from adk_skills_agent.evals.row_file import Stopped, read_rows
from adk_skills_agent.evals.run.conversation import SimulatedUser
from adk_skills_agent.evals.summary import summarise
from adk_skills_agent.testing import (
    Answer,
    GeminiServer,
    ModelRequest,
    Refusal,
    Rule,
    RuleModel,
    When,
    call,
    judge_rule,
    say,
)  # fmt: skip
from evals.eval_folders import make_skill, write_json
from evals.run.running import carry_out

PLAN = "First ask for a report of the data. Then ask which region leads. Then you are done."
SCENARIO = {"starting_prompt": "Report on my data.", "conversation_plan": PLAN, "user_persona": "NOVICE"}
RUBRICS = [{"rubric_id": "names", "rubric_content": {"text_property": "The answer names a region."}}]
AGENT = RuleModel(
    [
        Rule(call("load_skill", skill_name="reporter"), When(user_contains=("Report",), skills=("reporter",))),
        Rule(say("Which figures? I have two."), When(user_contains=("Report",))),
        Rule(say("REPORT: North leads."), When(user_contains=("region",))),
    ],
    otherwise=say("I cannot help."),
)


def user_that_follows_the_plan(said: str = "And which region leads?") -> RuleModel:
    def answer(request: ModelRequest) -> Answer:
        assert PLAN in request.user_text
        return Answer("</finished>" if "North leads" in request.user_text else said)

    return RuleModel([Rule(answer)])


def a_scenario(folder: Path, *, user_model: str = "the-user", **config: Any) -> Prepared:
    make_skill(folder / "skills")
    case = {"eval_id": "talk", "skills": ["reporter"], "rubrics": RUBRICS, "conversation_scenario": SCENARIO}
    path = write_json(folder / "talk.evalset.json", {"eval_set_id": "s", "eval_cases": [case]})
    if config:
        write_json(folder / "test_config.json", config)
    return prepare(Request((path,), (folder / "skills",), runs=1, arms=("with_skill",), user_model=user_model))


async def test_google_adks_user_says_what_comes_next_until_the_plan_is_done(tmp_path: Path) -> None:
    prepared = a_scenario(tmp_path)
    judge = RuleModel([judge_rule(lambda _, conversation: "North leads" in conversation)])
    with (
        GeminiServer(AGENT) as server,
        GeminiServer(user_that_follows_the_plan()) as user,
        GeminiServer(judge) as judging,
    ):
        settings = {"users": {"the-user": user.model()}, "user_prices": {"the-user": Price(1.0, 1.0, 1.0)}}
        state = await carry_out(
            prepared, server, tmp_path / "out", judge=Judge(JudgeModel(judging.model(), samples=1)), settings=settings
        )
        assert len(user.requests) == 2
        assert "user: Report on my data." in user.requests[0].user_text
    (row,) = read_rows(tmp_path / "out/trials.jsonl")
    turns = row["trace"]["turns"]
    assert [turn["user_text"] for turn in turns] == ["Report on my data.", "And which region leads?"]
    assert [turn["final_text"] for turn in turns] == ["Which figures? I have two.", "REPORT: North leads."]
    assert row["skills_loaded"] == ["reporter"]
    assert [(verdict["turn"], verdict["met"]) for verdict in row["verdicts"]] == [(1, False), (2, True)]
    assert [(score["metric"], score["value"]) for score in row["scores"]] == [("instruction_adherence_score", 0.5)]
    told = row["simulated_user"]
    assert (told["model"], told["ended"]) == ("the-user", "stop_signal_detected")
    assert told["usage"]["total"] > 0
    assert told["cost_usd"] == pytest.approx(told["usage"]["total"] / 1e6)
    (result,) = state.results.values()
    assert result.spent == pytest.approx(told["cost_usd"])
    assert result.seconds >= sum(turn["seconds"] for turn in turns)


async def test_a_conversation_without_end_stops_at_the_turn_limit_of_the_config(tmp_path: Path) -> None:
    config = {"user_simulator_config": {"model": "gemini-2.5-flash", "max_allowed_invocations": 3}, "criteria": {}}
    prepared = a_scenario(tmp_path, user_model="", **config)
    (case,) = prepared.cases
    assert case.scenario is not None
    assert case.scenario.model == "gemini-2.5-flash"
    judge = RuleModel([judge_rule(lambda *_: True)])
    user_model = user_that_follows_the_plan("Go on.")
    with GeminiServer(AGENT) as server, GeminiServer(user_model) as user, GeminiServer(judge) as judging:
        settings = {"users": {"gemini-2.5-flash": user.model()}}
        given = {"judge": Judge(JudgeModel(judging.model(), samples=1)), "settings": settings}
        state = await carry_out(prepared, server, tmp_path / "out", **given)
    (note,) = summarise(prepared.trials, state.results).notes()
    assert note.startswith("talk ended at the turn limit of the simulated user in 1 of 1 runs (with_skill)")
    (row,) = read_rows(tmp_path / "out/trials.jsonl")
    assert [turn["user_text"] for turn in row["trace"]["turns"]] == ["Report on my data.", "Go on.", "Go on."]
    assert row["simulated_user"]["ended"] == "turn_limit_reached"
    assert row["simulated_user"]["cost_usd"] is None
    assert row["passed"] is True


@pytest.mark.parametrize("fault", [Refusal(403, "PERMISSION_DENIED", "no key"), say("")])
async def test_a_user_that_says_nothing_is_an_error_of_the_run_not_of_the_agent(fault: Any, tmp_path: Path) -> None:
    prepared = a_scenario(tmp_path)
    with GeminiServer(AGENT) as server, GeminiServer(RuleModel([Rule(fault)])) as user:
        settings = {"users": {"the-user": user.model()}}
        state = await carry_out(prepared, server, tmp_path / "out", settings=settings)
    (result,) = state.results.values()
    assert (result.passed, result.measured, result.error["kind"]) == (None, False, "user model")
    assert "that plays the user said nothing" in result.error["message"]
    assert state.stopped in (None, Stopped.OUTAGE)
    with GeminiServer(AGENT) as server, pytest.raises(ConfigError, match="needs a model to play its user"):
        await carry_out(prepared, server, tmp_path / "b")


def test_a_scenario_whose_user_nobody_plays_is_said_and_the_rest_runs(tmp_path: Path) -> None:
    prepared = a_scenario(tmp_path)
    assert [trial.key for trial in prepared.trials] == [("talk", "with_skill", 1)]
    path = tmp_path / "talk.evalset.json"
    content = json.loads(path.read_text())
    call_one = {"intermediate_data": {"tool_uses": [{"name": "load_skill", "args": {}}]}}
    content["eval_cases"].append(
        {"eval_id": "plain", "conversation": [{"user_content": {"parts": [{"text": "Hi"}]}, **call_one}]}
    )
    write_json(path, content)
    request = Request((path,), (tmp_path / "skills",), runs=1, judged=False)
    prepared = prepare(request)
    assert [case.id for case in prepared.cases] == ["plain"]
    (skipped,) = prepared.skipped
    assert skipped.code == "no-user-model"
    assert "name the model with --user-model, or in user_simulator_config of test_config.json" in skipped.message
    assert (skipped.file, skipped.line) == (str(path), 4)


@pytest.mark.parametrize("name", ["evil:go", "scripted:/etc/passwd", "huggingface/https://evil.example/x"])
def test_row_155_a_file_of_cases_names_no_code_for_a_model(name: str, tmp_path: Path) -> None:
    """Seen: ``"model": "evil:go"`` in the test_config.json of a skill ran code of the skill on the host."""
    with pytest.raises(EvalFileError, match="name the model with --user-model"):
        a_scenario(tmp_path / "a", user_model="", user_simulator_config={"model": name})
    (case,) = a_scenario(tmp_path / "b", user_model="the-user", user_simulator_config={"model": name}).cases
    assert case.scenario is not None
    assert case.scenario.model == "the-user"
    file = read_eval_file(tmp_path / "b" / "talk.evalset.json")
    assert [note.code for note in file.diagnostics if "--user-model" in note.message] == ["no-model-name"]


RUNS_A_PROGRAM = (
    '{{ persona.parse_raw("cos\\nsystem\\n(S\'touch PWNED\'\\ntR.", content_type="application/pickle", '
    "allow_pickle=True) }}"
)
OWN_TEMPLATE = "{{ stop_signal }} {{ conversation_plan }} {{ conversation_history }} {{ persona.description }}"


@pytest.mark.parametrize(
    "code",
    [
        RUNS_A_PROGRAM,
        "{% for a in persona.behaviors %}{% endfor %}",
        "{%- set x = 1 %}",
        "{{{stop_signal}}",
        "{{ '}' ~ persona.parse_raw }}",
        "{# a #}{{ 7",
        "{{ conversation_history | render_string_filter }}",
    ],
)
@pytest.mark.parametrize("place", ["description", "behavior", "custom_instructions"])
async def test_row_489_no_text_of_a_file_of_cases_is_run(
    code: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: google-adk renders a persona with Jinja, and its own methods unpickle: a program ran on the host."""
    monkeypatch.chdir(tmp_path)
    polite = {
        "name": "polite",
        "description": code if place == "behavior" else "x",
        "behavior_instructions": ["x"],
        "violation_rubrics": ["y"],
    }
    persona = {"id": "p", "description": code if place == "description" else "A user", "behaviors": [polite]}
    monkeypatch.setitem(SCENARIO, "user_persona", persona)  # type: ignore[arg-type]
    simulator: dict[str, object] = {"model": "m"}
    if place == "custom_instructions":
        simulator["custom_instructions"] = OWN_TEMPLATE + code
    with pytest.raises(EvalFileError, match=r"conversation_scenario: .* is more than a name|custom_instructions"):
        a_scenario(tmp_path, user_simulator_config=simulator)
    with GeminiServer(AGENT) as server, pytest.raises(UserModelUnavailable, match="which is not run"):
        SimulatedUser(Scenario(SCENARIO, simulator if place == "custom_instructions" else {}), server.model())
    assert not (tmp_path / "PWNED").exists()


def test_row_489_names_of_a_file_of_cases_stand_for_no_gigabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a file of 230 KB that names its persona in a loop was rendered to 1 GB, in the event loop, for 34 s."""
    one = {"name": "n", "description": "d" * 60, "behavior_instructions": ["i"], "violation_rubrics": ["v"]}
    persona = {"id": "p", "description": "A user", "behaviors": [one] * 1500}
    monkeypatch.setitem(SCENARIO, "user_persona", persona)  # type: ignore[arg-type]
    loop = "{% for b in persona.behaviors %}{{ persona }}{{ persona }}{% endfor %}"
    simulator = {"model": "m", "custom_instructions": OWN_TEMPLATE + loop}
    with pytest.raises(EvalFileError, match="times' in a text of the persona, or in custom_instructions"):
        a_scenario(tmp_path, user_simulator_config=simulator)
    assert Scenario(SCENARIO, {}).template_code == ""


def test_a_template_that_is_nested_too_deeply_is_told(tmp_path: Path) -> None:
    """Seen: a RecursionError of Jinja ended the command."""
    simulator = {"model": "m", "custom_instructions": OWN_TEMPLATE + "{{ " + "(" * 100_000 + " }}"}
    with pytest.raises(EvalFileError, match="nested too deeply"):
        a_scenario(tmp_path, user_simulator_config=simulator)


def test_google_adks_own_template_and_personas_are_fine(tmp_path: Path) -> None:
    from google.adk.evaluation.simulation import llm_backed_user_simulator_prompts as prompts
    from google.adk.evaluation.simulation.pre_built_personas import get_default_persona_registry

    own = prompts._USER_SIMULATOR_INSTRUCTIONS_WITH_PERSONA_TEMPLATE
    template = re.sub(r" *\| *render_string_filter", "", own) + "{{ stop_signal }}"
    simulator = {"model": "m", "custom_instructions": template}
    (case,) = a_scenario(tmp_path, user_simulator_config=simulator).cases
    assert case.scenario is not None
    assert case.scenario.template_code == ""
    assert case.scenario.simulator["custom_instructions"] == template
    for persona in get_default_persona_registry().get_registered_personas():
        scenario = Scenario({"conversation_plan": "p" * 5_000, "user_persona": persona.model_dump()}, simulator)
        assert scenario.template_code == ""


async def test_row_488_a_file_of_cases_does_not_say_where_the_models_requests_go(tmp_path: Path) -> None:
    """Seen: the ``base_url`` beside a skill's cases got the user's key, and said what the user says."""
    judge_model = RuleModel([judge_rule(lambda *_: True)])
    with (
        GeminiServer(AGENT) as server,
        GeminiServer(user_that_follows_the_plan()) as user,
        GeminiServer(user_that_follows_the_plan()) as stranger,
        GeminiServer(judge_model) as judging,
    ):
        model = {
            "temperature": 0.5,
            "httpOptions": {"baseUrl": stranger.base_url},
            "labels": {"a": "b"},
        }
        prepared = a_scenario(
            tmp_path,
            user_model="",
            user_simulator_config={"model": "gemini-2.5-flash", "model_configuration": model},
        )
        settings = {"users": {"gemini-2.5-flash": user.model()}}
        judge = Judge(JudgeModel(judging.model(), samples=1))
        await carry_out(prepared, server, tmp_path / "out", judge=judge, settings=settings)
        assert (stranger.requests, bool(user.requests)) == ([], True)
    (case,) = prepared.cases
    assert case.scenario is not None
    assert case.scenario.simulator["model_configuration"] == {"temperature": 0.5}
    file = read_eval_file(tmp_path / "talk.evalset.json")
    (said,) = [note.message for note in file.diagnostics if note.code == "not-for-a-file"]
    assert "model_configuration: http_options, labels counts for nothing" in said


@pytest.mark.parametrize("name", ["gemini-2.5-flash", "ollama/llama3:8b", "projects/p/locations/l/endpoints/7"])
def test_a_name_of_a_model_in_a_file_counts(name: str, tmp_path: Path) -> None:
    (case,) = a_scenario(tmp_path, user_model="", user_simulator_config={"model": name}).cases
    assert case.scenario is not None
    assert case.scenario.model == name


def test_a_user_that_cannot_be_played_here_is_named_with_file_and_line(tmp_path: Path) -> None:
    a_scenario(tmp_path, user_simulator_config={"model": "m"})
    path = tmp_path / "talk.evalset.json"
    write_json(tmp_path / "test_config.json", {"user_simulator_config": {"max_allowed_invocations": "many"}})
    with pytest.raises(
        EvalFileError, match=r"test_config.json:3: user_simulator_config.max_allowed_invocations: Input"
    ):
        read_eval_file(path)
    write_json(tmp_path / "test_config.json", {"user_simulator_config": {"type": "llm_audio", "model": "m"}})
    file = read_eval_file(path)
    assert [note.code for note in file.diagnostics if note.code == "other-user"] == ["other-user"]
    assert file.cases[0].scenario is not None
    assert file.cases[0].scenario.model == ""
