"""A model of rules: which rule answers, when its calls are spent, and what is said when none applies."""

from __future__ import annotations

from typing import Any

import pytest

from adk_skills_agent.testing import (
    Answer,
    Call,
    GeminiServer,
    ModelRequest,
    Refusal,
    Rule,
    RuleModel,
    When,
    call,
    judge_rule,
    say,
)
from adk_skills_agent.testing.conversation import Mismatch


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def asked(name: str, **args: Any) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": args}}]}


def result(name: str, **response: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"functionResponse": {"name": name, "response": response}}]}


def request(*contents: dict[str, Any], tools: tuple[str, ...] = ("look", "load_skill"), **body: Any) -> ModelRequest:
    schema = {"type": "object", "properties": {"skill_name": {"type": "string", "enum": ["csv", "sql"]}}}
    declared = [{"name": name, "description": "x", "parameters_json_schema": schema} for name in tools]
    return ModelRequest(
        "generateContent", "m", {"contents": list(contents), "tools": [{"functionDeclarations": declared}], **body}
    )


LOOK = Rule(call("look", at="a"), When(user_contains=("find",)))


def test_the_first_rule_that_applies_answers() -> None:
    model = RuleModel([LOOK, Rule(say("first"), When(user_contains=("Hello",))), Rule(say("second"))])
    assert model.reply(request(user("Hello"))) == say("first")
    assert model.reply(request(user("Bye"))) == say("second")
    assert model.reply(request(user("Please find"))) == call("look", at="a")


def test_a_call_is_made_once_in_a_turn_and_again_in_the_next() -> None:
    model = RuleModel([LOOK, Rule(say("found ${look.at}"), When(called=("look",)))], otherwise=say("?"))
    turn = [user("find"), asked("look", at="a"), result("look", at="there")]
    assert model.reply(request(*turn)) == say("found there")
    assert model.reply(request(*turn, {"role": "model", "parts": [{"text": "ok"}]}, user("find again"))).calls  # type: ignore[union-attr]
    other = [user("find"), asked("look", at="b"), result("look")]
    assert model.reply(request(*other)) == call("look", at="a")


def test_times_lets_a_call_be_made_again() -> None:
    model = RuleModel([Rule(call("look"), times=2)], otherwise=say("enough"))
    once = [user("x"), asked("look"), result("look", error="no")]
    assert model.reply(request(*once)) == call("look")
    assert model.reply(request(*once, asked("look"), result("look"))) == say("enough")


def test_a_rule_needs_the_tools_it_calls() -> None:
    model = RuleModel([LOOK], otherwise=say("without"))
    assert model.reply(request(user("find"), tools=())) == say("without")
    absent = RuleModel([Rule(Answer(calls=(Call("look", {}, undeclared=True),)))])
    assert absent.reply(request(user("find"), tools=())).calls  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("when", "applies"),
    [
        (When(skills=("csv",)), True),
        (When(skills=("csv", "log")), False),
        (When(skills=("listed & more",)), True),
        (When(called=("look",)), True),
        (When(called=("look", "load_skill")), False),
        (When(not_called=("load_skill",)), True),
        (When(not_called=("look", "load_skill")), False),
    ],
)
def test_skills_and_calls_of_the_turn_are_conditions(when: When, applies: bool) -> None:
    told = "<available_skills>\n<skill>\n<name>\nlisted &amp; more\n</name>\n</skill>\n</available_skills>"
    history = [
        user("x"),
        asked("load_skill"),
        result("load_skill"),
        user("find"),
        asked("look"),
        result("look", r=told),
    ]
    model = RuleModel([Rule(say("yes"), when)], otherwise=say("no"))
    assert model.reply(request(*history)) == say("yes" if applies else "no")


def test_a_function_may_answer_or_pass() -> None:
    def count(asked: ModelRequest) -> Answer | None:
        return say(str(len(asked.user_text))) if asked.user_text.startswith("count") else None

    model = RuleModel([Rule(count)], otherwise=Refusal(429, "RESOURCE_EXHAUSTED", "Busy."))
    assert model.reply(request(user("count me"))) == say("8")
    assert model.reply(request(user("hello"))) == Refusal(429, "RESOURCE_EXHAUSTED", "Busy.")


def test_without_a_rule_every_reason_is_named() -> None:
    model = RuleModel([LOOK, Rule(call("jump")), Rule(call("look"), times=1)], name="mine")
    with pytest.raises(Mismatch) as refused:
        model.reply(request(user("go"), asked("look"), result("look")))
    assert str(refused.value) == (
        "No rule of 'mine' is for this request: rule 1 expected the user's text to contain 'find'; it is 'go'; rule 2 "
        "expected the tool 'jump' to be offered; the request offers ['look', 'load_skill']; rule 3 expected its call "
        "not to have been made 1 time(s) in this turn."
    )


def test_a_template_that_finds_nothing_names_the_rule() -> None:
    with pytest.raises(Mismatch, match="Rule 1 of 'rules' uses"):
        RuleModel([Rule(say("${look.at}"))]).reply(request(user("x")))


def test_a_server_of_rules_answers_any_number_of_conversations_and_keeps_the_latest_requests() -> None:
    with GeminiServer(RuleModel([Rule(say("Hi."))]), remember=3) as server, server.client() as client:
        answers = {
            client.models.generate_content(model="gemini-2.5-flash", contents=f"Hello {number}").text
            for number in range(5)
        }
        assert answers == {"Hi."}
        assert [one.user_text for one in server.requests] == ["Hello 2", "Hello 3", "Hello 4"]
        server.assert_finished()


def test_calls_get_the_same_ids_in_the_same_conversation() -> None:
    from google.genai import types

    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="look")])

    def ids(server: GeminiServer, text: str) -> list[str | None]:
        with server.client() as client:
            answer = client.models.generate_content(
                model="gemini-2.5-flash", contents=text, config=types.GenerateContentConfig(tools=[tool])
            )
        return [one.id for one in answer.function_calls or ()]

    model = RuleModel([Rule(Answer(calls=(Call("look", {"at": 1}), Call("look", {"at": 2}))))])
    with GeminiServer(model) as server:
        first = ids(server, "one")
        assert len(set(first)) == 2
        assert ids(server, "two") != first
        assert ids(server, "one") == first


def test_a_judge_rule_answers_judges_only() -> None:
    model = RuleModel([judge_rule(lambda what, conversation: what in conversation)], otherwise=say("not a judge"))
    system = {"systemInstruction": {"parts": [{"text": "ID:\nRationale:\nVerdict"}]}}
    asked_for = "ID: k-1\nProperty: It rains.\n\nID: k-2\nProperty: Sun\n"
    text = f"<<<BEGIN k>>>\nIt rains. ${{x}}\n<<<END k>>>\n\nProperties:\n\n{asked_for}"
    assert model.reply(request(user(text), **system)) == say(
        "ID: k-1\nRationale: Scripted.\nVerdict k-1: yes\n\nID: k-2\nRationale: Scripted.\nVerdict k-2: no"
    )
    assert model.reply(request(user(text))) == say("not a judge")
