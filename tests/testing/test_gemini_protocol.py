import json

import pytest

from adk_skills_agent.testing import Answer, Call, Usage
from adk_skills_agent.testing.gemini_protocol import answer_body, parse_request, stream_bodies
from adk_skills_agent.testing.request import InvalidRequest

USER = {"role": "user", "parts": [{"text": "hi"}]}
MODEL = {"role": "model", "parts": [{"text": "ho"}]}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"n": 1}}}]}


def parsed(*contents, method="generateContent", **body):
    return parse_request(method, "gemini-x", json.dumps({"contents": list(contents), **body}).encode())


@pytest.mark.parametrize(
    "contents",
    [
        [USER],
        [{"parts": [{"text": ""}]}],
        [USER, MODEL, USER],
        [USER, CALL, RESULT],
        [USER, CALL, RESULT, CALL, RESULT],
        [USER, CALL, {**RESULT, "role": "function"}],
        [USER, {"role": "model", "parts": [{"text": "so", "thought": True}, *CALL["parts"]]}, RESULT],
        [{"parts": [{"inlineData": {"mimeType": "a/b", "data": ""}}]}],
    ],
)
def test_valid_histories_are_accepted(contents):
    assert parsed(*contents, unknownField=1).contents == contents


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ([], "contents is not specified"),
        (["hi"], r"'GenerateContentRequest.contents\[0\]': an object"),
        ([{"role": "user"}], "contents.parts must not be empty"),
        ([{"role": "user", "parts": {}}], "a list is expected"),
        ([{"role": "system", "parts": [{"text": "a"}]}], "use a valid role: user, model"),
        ([{"parts": ["a"]}], "an object is expected"),
        ([{"parts": [{}]}], r"must have one initialized field \(none\)"),
        ([{"parts": [{"text": "a", "functionCall": {"name": "f"}}]}], r"\(text, functionCall\)"),
        ([{"parts": [{"text": 5}]}], r"\(TYPE_STRING\), 5"),
        ([{"parts": [{"functionResponse": 5}]}], "an object is expected"),
        ([USER, {"role": "model", "parts": [{"functionCall": {"args": {}}}]}], "function_call.name: Name cannot be"),
        ([USER, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": []}}]}], "function_call.args"),
        ([USER, CALL, {"parts": [{"functionResponse": {"name": "f", "response": "x"}}]}], "function_response.response"),
        ([CALL, RESULT], "function call turn comes immediately after a user turn"),
        ([USER, MODEL, CALL, RESULT], "function call turn comes immediately after a user turn"),
        ([USER, RESULT], "function response turn comes immediately after a function call turn"),
        ([RESULT], "function response turn comes immediately after a function call turn"),
        ([USER, CALL, USER], "number of function response parts is equal"),
        ([USER, {"role": "model", "parts": CALL["parts"] * 2}, RESULT], r"1 for 2 calls"),
        ([USER, MODEL], "last content has the role user"),
    ],
)
def test_a_history_that_gemini_refuses_is_refused(contents, problem):
    with pytest.raises(InvalidRequest, match=problem) as caught:
        parsed(*contents)
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"contents": "hi"}', b'{"tools": 5}'])
def test_a_body_that_is_no_request_is_refused(body):
    with pytest.raises(InvalidRequest):
        parse_request("generateContent", "m", body)


def test_a_system_instruction_needs_parts_and_may_have_any_role():
    assert parsed(USER, systemInstruction={"role": "system", "parts": [{"text": "a"}]}).system_text == "a"
    with pytest.raises(InvalidRequest, match=r"system_instruction.*must not be empty"):
        parsed(USER, systemInstruction={"parts": []})


def test_count_tokens_also_takes_a_wrapped_request():
    wrapped = {"generateContentRequest": {"contents": [USER]}}
    assert parse_request("countTokens", "m", json.dumps(wrapped).encode()).contents == [USER]


def test_an_answer_has_text_then_calls_and_every_field_a_client_reads():
    body = answer_body(Answer("so", (Call("f", {"a": 1}), Call("g"))), parsed(USER), "r1")
    assert body == {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "so"},
                        {"functionCall": {"id": "r1-0", "name": "f", "args": {"a": 1}}},
                        {"functionCall": {"id": "r1-1", "name": "g", "args": {}}},
                    ],
                },
                "index": 0,
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 15, "totalTokenCount": 16},
        "modelVersion": "gemini-x",
        "responseId": "r1",
    }


def test_given_usage_wins_over_the_estimate_also_when_it_is_zero():
    usage = answer_body(Answer("so", usage=Usage(7, 0, 3)), parsed(USER), "r")["usageMetadata"]
    assert usage == {
        "promptTokenCount": 7,
        "candidatesTokenCount": 0,
        "totalTokenCount": 7,
        "cachedContentTokenCount": 3,
    }


def texts(bodies):
    return ["".join(p.get("text", "") for p in b["candidates"][0]["content"].get("parts", ())) for b in bodies]


@pytest.mark.parametrize(
    ("text", "chunks", "pieces"),
    [
        ("abcdefg", 3, ["abc", "def", "g"]),
        ("ab", 5, ["a", "b"]),
        ("abc", 1, ["abc"]),
        ("abc", ("ab", "", "c"), ["ab", "c"]),
        ("", 3, [""]),
    ],
)
def test_a_streamed_text_comes_in_pieces_whose_join_is_the_text(text, chunks, pieces):
    bodies = list(stream_bodies(Answer(text, stream_chunks=chunks), parsed(USER), "r"))
    assert texts(bodies) == pieces


def test_only_the_last_chunk_has_the_finish_reason_and_the_whole_usage():
    bodies = list(stream_bodies(Answer("abc", (Call("f"),), "MAX_TOKENS"), parsed(USER), "r"))
    assert [b["candidates"][0].get("finishReason") for b in bodies] == [None, None, None, "MAX_TOKENS"]
    assert [b["usageMetadata"].get("totalTokenCount") for b in bodies[:-1]] == [None] * 3
    assert bodies[-1]["usageMetadata"]["totalTokenCount"] > 0
    assert bodies[-1]["candidates"][0]["content"]["parts"][0]["functionCall"]["name"] == "f"
