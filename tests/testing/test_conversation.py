import pytest

from adk_skills_agent.testing import Answer, Call, Conversation, ModelRequest, Turn, When, parse_conversation
from adk_skills_agent.testing.conversation import Mismatch

TOOLS = [{"functionDeclarations": [{"name": "find"}, {"name": "open"}]}]


def asked(user="hello there", *, results=(), system="You help.", answered=0):
    contents = [{"role": "user", "parts": [{"text": user}]}]
    for turn in range(answered):
        contents.append({"role": "model", "parts": [{"text": f"answer {turn}"}]})
        contents.append({"role": "user", "parts": [{"text": user}]})
    if results:
        contents.append({"role": "model", "parts": [{"functionCall": {"name": n}} for n, _ in results]})
        contents.append(
            {"role": "user", "parts": [{"functionResponse": {"name": n, "response": r}} for n, r in results]}
        )
    system_instruction = {"parts": [{"text": system}]}
    return ModelRequest(
        "generateContent", "m", {"contents": contents, "systemInstruction": system_instruction, "tools": TOOLS}
    )


@pytest.mark.parametrize(
    "when",
    [
        When(),
        When(user_contains=("hello", "there")),
        When(system_contains=("help",)),
        When(tools=("open", "find")),
        When(last_tool=("find",)),
        When(tool_result_contains=("line one\nline two",)),
        When(tool_result_contains=('"status": "success"',)),
        When(tool_result={"status": "success", "deep": {"n": 1}}),
        When(tool_result={"files": [{"name": "a"}]}),
    ],
)
def test_conditions_that_hold_have_no_objection(when):
    response = {
        "status": "success",
        "out": "line one\nline two",
        "deep": {"n": 1, "m": 2},
        "files": [{"name": "a", "size": 3}],
    }
    assert when.objection(asked(results=[("find", response)])) is None


@pytest.mark.parametrize(
    ("when", "sentence"),
    [
        (When(user_contains=("Hello",)), "the user's text to contain 'Hello'; it is 'hello there'"),
        (When(system_contains=("buy",)), "the system instruction to contain 'buy'; it is 'You help.'"),
        (When(tools=("save",)), "the tool 'save' to be offered; the request offers ['find', 'open']"),
        (When(last_tool=("open",)), "a result of 'open'; what came is of 'find': "),
        (When(tool_result_contains=("three",)), "the tool result to contain 'three'; what came is of 'find': "),
        (When(tool_result={"n": 2}), "the tool result to have {'n': 2}; what came is of 'find': "),
        (When(tool_result={"n": True}), "the tool result to have {'n': True}"),
        (When(tool_result={"n": {"m": 1}}), "the tool result to have"),
        (When(tool_result={"l": [1]}), "the tool result to have"),
    ],
)
def test_a_condition_that_does_not_hold_says_what_was_expected_and_what_came(when, sentence):
    assert sentence in when.objection(asked(results=[("find", {"n": 1, "l": [1, 2]})]))


def test_no_tool_result_is_called_that():
    assert When(last_tool=("find",)).objection(asked()) == "a result of 'find'; what came is no tool result"


def test_parallel_results_are_expected_in_any_order_and_completely():
    both = asked(results=[("find", {}), ("open", {"n": 1})])
    assert When(last_tool=("open", "find"), tool_result={"n": 1}).objection(both) is None
    assert When(last_tool=("open",)).objection(both) is not None


def test_a_long_text_is_cut_in_the_sentence():
    sentence = When(user_contains=("x",)).objection(asked("a" * 100_000))
    assert len(sentence) < 600
    assert "(100002 characters)" in sentence


CONVERSATION = parse_conversation(
    "turns: [{text: one}, {when: {user_contains: more}, text: two}]", source="talk.yaml", name="talk"
)


def test_the_turn_is_chosen_by_how_often_the_model_has_answered():
    assert CONVERSATION.turn_for(asked())[0] == 0
    assert CONVERSATION.turn_for(asked("more", answered=1))[0] == 1


def test_an_unexpected_request_names_turn_file_line_expectation_and_what_came():
    with pytest.raises(Mismatch) as caught:
        CONVERSATION.turn_for(asked("enough", answered=1))
    assert caught.value.message == (
        "Turn 2 of conversation 'talk' (talk.yaml:1) expected the user's text to contain 'more'; it is 'enough'"
    )


def test_a_request_after_the_last_turn_says_so_and_what_came_last():
    with pytest.raises(
        Mismatch, match=r"has 2 turns and the model has already answered 2 times.*the user's text 'again'"
    ):
        CONVERSATION.turn_for(asked("again", answered=2))
    with pytest.raises(Mismatch, match="with a result of 'find': "):
        CONVERSATION.turn_for(asked(answered=1, results=[("find", {"a": 1})]))


def test_an_answer_is_filled_from_the_results():
    answer = Answer("Got ${last.n}", (Call("open", {"n": "${last.n}"}),), stream_chunks=("Got ", "${last.n}"))
    filled = Conversation("t", (Turn(When(), answer),)).filled(0, asked(results=[("find", {"n": 5})]))
    assert filled == Answer("Got 5", (Call("open", {"n": 5}),), stream_chunks=("Got ", "5"))


def test_a_call_of_a_function_that_is_not_offered_is_a_mismatch_unless_it_is_meant_so():
    with pytest.raises(Mismatch, match=r"calls 'save', which the request does not offer: \['find', 'open'\]"):
        Conversation("t", (Turn(When(), Answer(calls=(Call("save"),))),)).filled(0, asked())
    meant = Conversation("t", (Turn(When(), Answer(calls=(Call("save", undeclared=True),))),))
    assert meant.filled(0, asked()).calls[0].name == "save"


def test_a_template_that_finds_nothing_is_a_mismatch():
    with pytest.raises(Mismatch, match=r"Turn 1 of conversation 't' uses \$\{last.n\}: no result of 'last' yet"):
        Conversation("t", (Turn(When(), Answer("${last.n}")),)).filled(0, asked())
