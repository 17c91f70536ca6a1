"""A chaotic model: wrong at the rate it says, by its seed, the same however many conversations run at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adk_skills_agent.testing import (
    Answer,
    Call,
    ChaoticModel,
    FunctionCall,
    GeminiServer,
    Hallucination,
    ModelRequest,
    Refusal,
    Rule,
    RuleModel,
    When,
    call,
    parse_conversation,
    say,
)
from adk_skills_agent.testing.chaos import draw_key

TOOLS = ("list_skills", "load_skill", "load_skill_resource")
RULES = RuleModel(
    [
        Rule(call("list_skills")),
        Rule(call("load_skill", skill_name="csv")),
        Rule(call("load_skill_resource", skill_name="csv", file_path="references/a.md"), When(called=("load_skill",))),
        Rule(say("Done: ${load_skill_resource.content}"), When(last_tool=("load_skill_resource",))),
    ]
)
RIGHT = [
    [FunctionCall("list_skills", {})],
    [FunctionCall("load_skill", {"skill_name": "csv"})],
    [FunctionCall("load_skill_resource", {"skill_name": "csv", "file_path": "references/a.md"})],
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def request(*contents: dict[str, Any], tools: tuple[str, ...] = TOOLS, seed: int | None = None) -> ModelRequest:
    schema = {"type": "object", "properties": {"skill_name": {"type": "string", "enum": ["csv", "csvs"]}}}
    declared = [{"name": name, "description": "x", "parameters_json_schema": schema} for name in tools]
    config = {} if seed is None else {"seed": seed}
    return ModelRequest(
        "generateContent",
        "m",
        {"contents": list(contents), "tools": [{"functionDeclarations": declared}], "generationConfig": config},
    )


def converse(model: ChaoticModel | RuleModel, text: str, seed: int | None = None) -> list[Answer]:
    """The answers to a user's message; every call gets a result."""
    contents, answers = [user(text)], []
    while True:
        answer = model.reply(request(*contents, seed=seed))
        assert isinstance(answer, Answer)
        answers.append(answer)
        if not answer.calls:
            return answers
        calls = [{"functionCall": {"name": one.name, "args": dict(one.args)}} for one in answer.calls]
        result = {"content": "text"}
        results = [{"functionResponse": {"name": one.name, "response": result}} for one in answer.calls]
        contents += [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]


def predicted(model: ChaoticModel, text: str, seed: int | None = None, name: str = "m") -> list[bool]:
    """Whether each answer with calls is wrong, told from the seed alone."""
    found: list[bool] = []
    for calls in RIGHT:
        row = 0
        while row < model.in_a_row and model.mistake(calls, draw_key(name, seed, [text], len(found))) is not None:
            found.append(True)
            row += 1
        found.append(False)
    return found


def is_right(answer: Answer) -> bool:
    return [FunctionCall(one.name, dict(one.args)) for one in answer.calls] in RIGHT


def test_at_rate_0_it_is_the_model_it_wraps() -> None:
    assert converse(ChaoticModel(RULES, 0), "go") == converse(RULES, "go")


@pytest.mark.parametrize("row", [1, 3])
def test_at_rate_1_every_call_comes_after_as_many_wrong_ones_as_may_be_in_a_row(row: int) -> None:
    answers = converse(ChaoticModel(RULES, 1, in_a_row=row), "go")
    assert [is_right(one) for one in answers[:-1]] == ([False] * row + [True]) * 3
    assert answers[-1].text == "Done: text"


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0, 1), st.text(min_size=1, max_size=8), st.none() | st.integers(0, 99))
def test_what_is_wrong_is_told_from_the_seed(seed: int, rate: float, text: str, asked: int | None) -> None:
    model = ChaoticModel(RULES, rate, seed=seed)
    answers = converse(model, text, asked)
    assert [not is_right(one) for one in answers[:-1]] == predicted(model, text, asked)
    assert [one for one in answers if is_right(one)] == converse(RULES, text)[:-1]
    assert answers == converse(ChaoticModel(RULES, rate, seed=seed), text, asked)


args = st.dictionaries(
    st.sampled_from(["skill_name", "file_path", "name", "count", "verbose"]),
    st.text(max_size=5) | st.integers(0, 3) | st.lists(st.text(max_size=2), max_size=2),
    max_size=4,
)
made_calls = st.lists(st.builds(FunctionCall, st.sampled_from(TOOLS), args), min_size=1, max_size=3)


@given(made_calls, st.integers(0, 10**6), st.sets(st.sampled_from(list(Hallucination)), min_size=1))
def test_a_wrong_answer_is_recognised_as_the_one_that_was_drawn(
    calls: list[FunctionCall], seed: int, kinds: set[Hallucination]
) -> None:
    """A history is read by drawing again from what it holds: the draw must not change with its own mistake."""
    right = Answer(calls=tuple(Call(one.name, one.args) for one in calls))
    model = ChaoticModel(RuleModel([Rule(right)]), 1, seed=seed, kinds=tuple(kinds))
    key = draw_key("m", None, ["go"], 0)
    drawn = model.mistake(calls, key)
    answer = model.reply(request(user("go")))
    assert isinstance(answer, Answer)
    if drawn is None:
        assert answer == right
        return
    number, kind = drawn
    wrong = [FunctionCall(one.name, dict(one.args)) for one in answer.calls]
    assert model.mistake(wrong, key) == drawn
    differ = [n for n, (one, other) in enumerate(zip(calls, wrong, strict=True)) if one != other]
    assert differ == [number]
    assert (wrong[number].name not in TOOLS) is (kind is Hallucination.TOOL)
    if kind is Hallucination.SKILL:
        changed = next(name for name in ("skill_name", "name") if isinstance(calls[number].args.get(name), str))
        assert wrong[number].args[changed] not in {"csv", "csvs", calls[number].args[changed]}


def test_seed_name_text_and_the_agents_seed_make_another_draw() -> None:
    def wrong(seed: int = 1, text: str = "go", asked: int | None = None) -> list[bool]:
        return predicted(ChaoticModel(RULES, 0.5, seed=seed), text, asked)

    base = wrong()
    assert any(wrong(seed=n) != base for n in range(2, 9))
    assert any(wrong(text=f"go {n}") != base for n in range(9))
    assert any(wrong(asked=n) != base for n in range(9))


def test_the_rate_is_the_share_of_answers_that_are_wrong() -> None:
    model = ChaoticModel(RULES, 0.3, seed=5, in_a_row=1000)
    drawn = [wrong for n in range(400) for wrong in predicted(model, f"question {n}")]
    assert 0.27 < sum(drawn) / len(drawn) < 0.33


def test_only_the_kinds_asked_for_occur_and_a_call_without_a_place_stays_right() -> None:
    model = ChaoticModel(RULES, 1, kinds=(Hallucination.PATH,), in_a_row=1)
    answers = converse(model, "go")
    assert [is_right(one) for one in answers[:-1]] == [True, True, False, True]
    (wrong,) = answers[2].calls
    assert wrong.args["skill_name"] == "csv"
    assert wrong.args["file_path"] != "references/a.md"
    both = ChaoticModel(RULES, 1, seed=3, in_a_row=50)
    assert {both.mistake(RIGHT[2], str(n))[1] for n in range(50)} == set(Hallucination)  # type: ignore[index]


def test_a_rehearsed_conversation_can_be_chaotic_too() -> None:
    rehearsed = parse_conversation(
        "turns: [{call: {name: list_skills}}, {call: {name: load_skill, args: {skill_name: csv}}}, {text: End}]"
    )
    answers = converse(ChaoticModel(rehearsed, 1, in_a_row=2), "go")  # type: ignore[arg-type]
    assert [is_right(one) for one in answers] == [False, False, True, False, False, True, False]
    assert answers[-1].text == "End"


def test_what_the_model_refuses_is_refused() -> None:
    refusal = Refusal(429, "RESOURCE_EXHAUSTED", "Busy.")
    assert ChaoticModel(RuleModel([Rule(refusal)]), 1).reply(request(user("go"))) == refusal


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ChaoticModel(RULES, 1.5), "rate must be from 0 to 1, not 1.5"),
        (lambda: ChaoticModel(RULES, 1, kinds=()), "at least one kind"),
        (
            lambda: ChaoticModel(parse_conversation("turns: [{text: a, error: {code: 429, times: 2}}]"), 1),
            "cannot count how often a conversation refuses",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], ChaoticModel], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    return make_skill("csv", files={"references/a.md": "Text of a.\n"}).parent


async def _trials(
    model: ChaoticModel, skills: Path, questions: list[str], at_once: int
) -> list[list[tuple[str, Any, Any]]]:
    """Name, arguments and answer of each call, for each question, with a real toolset."""
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from adk_skills_agent import SkillToolset

    turnstile = asyncio.Semaphore(at_once)
    async with GeminiServer(model, remember=10) as server:
        toolset = SkillToolset.from_dirs([skills])
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=server.model(), tools=[toolset]))

        async def trial(question: str) -> list[tuple[str, Any, Any]]:
            async with turnstile:
                session = await runner.session_service.create_session(app_name=runner.app_name, user_id="me")
                message = types.Content(role="user", parts=[types.Part(text=question)])
                found: dict[str | None, list[Any]] = {}
                async for event in runner.run_async(user_id="me", session_id=session.id, new_message=message):
                    found |= {one.id: [one.name, one.args] for one in event.get_function_calls()}
                    for one in event.get_function_responses():
                        found[one.id].append(one.response)
                return [(name, args, answer) for name, args, answer in found.values()]

        done = await asyncio.gather(*map(trial, questions))
        await runner.close()
        assert not server.mismatches
        return done


def is_refused(answer: Any) -> bool:
    return "error" in answer or "not found" in str(answer).lower()


@pytest.mark.slow
async def test_many_trials_at_once_are_the_trials_one_by_one_and_as_predicted(skills: Path) -> None:
    model = ChaoticModel(
        RULES, 0.4, seed=11, kinds=(Hallucination.TOOL, Hallucination.SKILL, Hallucination.PATH), in_a_row=1
    )
    questions = [f"Question {number}" for number in range(10)]
    at_once = await _trials(model, skills, questions, 10)
    one_by_one = await _trials(model, skills, questions, 1)
    assert at_once == one_by_one
    for question, calls in zip(questions, at_once, strict=True):
        wrong = [FunctionCall(name, args) not in [one for (one,) in RIGHT] for name, args, _ in calls]
        assert wrong == predicted(model, question, name="gemini-2.5-flash")
        assert wrong == [is_refused(answer) for _, _, answer in calls]
    assert len(set(map(str, at_once))) > 5
    refused = Counter(is_refused(answer) for calls in at_once for _, _, answer in calls)
    assert refused[False] == 30
    assert refused[True] > 5
