"""Models of rules in YAML: what they become, and which line a mistake is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.testing import (
    Answer,
    Call,
    ChaoticModel,
    Hallucination,
    ModelRequest,
    Refusal,
    Rule,
    RuleModel,
    When,
    load_rules,
    parse_rules,
)

TEXT = """
name: assistant
rules:
  - when: {user_contains: CSV, skills: csv-report, not_called: [load_skill]}
    call: {name: load_skill, args: {skill_name: csv-report}}
    times: 2
  - when: {last_tool: load_skill}
    text: Loaded.
    usage: {prompt: 10}
  - when: {user_contains: later}
    error: {code: 503}
otherwise: {text: I cannot help with that.}
"""


def test_a_file_of_rules_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(TEXT)
    model = load_rules(path)
    assert isinstance(model, RuleModel)
    assert (model.name, model.source, model.otherwise) == ("assistant", str(path), Answer("I cannot help with that."))
    load, loaded, later = model.rules
    assert load == Rule(
        Answer(calls=(Call("load_skill", {"skill_name": "csv-report"}),)),
        When(user_contains=("CSV",), skills=("csv-report",), not_called=("load_skill",)),
        times=2,
        line=4,
    )
    assert (loaded.line, later.answer) == (7, Refusal(503, "UNAVAILABLE", "This error was rehearsed (UNAVAILABLE)."))


def test_chaos_is_a_field_of_the_file() -> None:
    model = parse_rules("rules: [{text: Hi}]\nchaos: {rate: 0.25, seed: 7, kinds: [path, skill], in_a_row: 1}")
    assert isinstance(model, ChaoticModel)
    assert (model.rate, model.seed, model.in_a_row) == (0.25, 7, 1)
    assert model.kinds == (Hallucination.PATH, Hallucination.SKILL)
    assert isinstance(plain := parse_rules("rules: [{text: Hi}]\nchaos: {rate: 1}"), ChaoticModel)
    assert plain.kinds == tuple(Hallucination)


def test_a_judge_is_a_field_of_the_file() -> None:
    model = parse_rules(
        """
judge:
  - {property_contains: sum, conversation_contains: ["7", adder]}
  - {property_contains: [skill, loaded]}
  - {property_contains: rain, conversation_contains: rain}
"""
    )

    def holds(what: str, conversation: str) -> bool:
        system = {"parts": [{"text": "Rationale: Verdict"}]}
        text = f"<<<BEGIN k>>>\n{conversation}\n<<<END k>>>\nID: k-1\nProperty: {what}\n"
        body = {"contents": [{"role": "user", "parts": [{"text": text}]}], "systemInstruction": system}
        answer = model.reply(ModelRequest("generateContent", "m", body))
        assert isinstance(answer, Answer)
        return answer.text.endswith("yes")

    assert holds("the sum is right", "adder said 7")
    assert not holds("the sum is right", "adder said 8")
    assert holds("a skill was loaded", "")
    assert not holds("it rains: rain", "sun")
    assert not holds("anything else", "anything else")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "rules.yaml:1: The file is empty. It needs `rules:`"),
        ("name: x", "rules.yaml:1: The model has no rules."),
        ("rules: {}", "rules.yaml:1: Expected `rules` to be a list."),
        ("rules:\n  - when: {}\n", "rules.yaml:2: This turn says nothing."),
        ("rules:\n  - text: a\n    colour: red", "rules.yaml:3: A rule has no field 'colour'"),
        ("rules:\n  - text: a\n    times: 2", "rules.yaml:3: `times` says how often the rule's `call` may be made"),
        ("rules:\n  - call: {name: a}\n    times: 0", "rules.yaml:3: `times` says"),
        ("rules:\n  - text: a\n    error: {code: 500}", "rules.yaml:2: A rule keeps no count of its errors"),
        ("rules: []\notherwise: {when: {}}", "rules.yaml:2: `otherwise` has no field 'when'"),
        ("rules: []\nchaos: {rate: 2}", "rules.yaml:2: `chaos` needs a `rate` from 0 to 1."),
        ("rules: []\nchaos: {seed: 2}", "rules.yaml:2: `chaos` needs a `rate` from 0 to 1."),
        ("rules: []\nchaos: {rate: 1, kinds: [tol]}", "rules.yaml:2: `kinds` must be some of: tool, skill, path"),
        ("judge:\n  - {text: x}", "rules.yaml:2: A property has no field 'text'"),
        ("rules: [", "rules.yaml:1: This is not valid YAML"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_rules(text, source="rules.yaml")
    assert str(refused.value).startswith(sentence)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no file of rules at"):
        load_rules(tmp_path / "none.yaml")
