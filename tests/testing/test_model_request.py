import pytest

from adk_skills_agent.testing import FunctionResponse, ModelRequest


def request(*contents, **body):
    return ModelRequest("generateContent", "gemini-2.5-flash", {"contents": list(contents), **body})


def said(role, *texts):
    return {"role": role, "parts": [{"text": text} for text in texts]}


def result(name, response, **more):
    return {"role": "user", "parts": [{"functionResponse": {"name": name, "response": response, **more}}]}


CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}


def test_the_system_text_joins_the_parts_of_the_instruction():
    assert request(said("user", "hi"), systemInstruction=said("user", "Be", "brief")).system_text == "Be\nbrief"
    assert request(said("user", "hi")).system_text == ""


def test_tools_of_several_groups_are_listed_in_order():
    tools = [
        {"functionDeclarations": [{"name": "a"}, {"name": "b"}]},
        {"googleSearch": {}},
        {"functionDeclarations": [{"name": "c"}]},
    ]
    asked = request(said("user", "hi"), tools=tools)
    assert asked.tool_names == ["a", "b", "c"]
    assert asked.declaration("b") == {"name": "b"}
    with pytest.raises(KeyError, match=r"no function 'x', only \['a', 'b', 'c'\]"):
        asked.declaration("x")


def test_the_user_text_is_the_latest_that_a_user_wrote_also_behind_tool_results():
    asked = request(said("user", "first"), said("model", "ok"), said("user", "second", "part"), CALL, result("f", {}))
    assert asked.user_text == "second\npart"
    assert request(CALL).user_text == ""


def test_a_content_without_a_role_is_the_users():
    assert request({"parts": [{"text": "hi"}]}).user_text == "hi"
    assert request({"parts": [{"text": "hi"}]}).model_turns == 0


def test_an_answer_split_over_two_contents_counts_as_one_model_turn():
    assert request(said("user", "a"), said("model", "b"), CALL, result("f", {}), said("model", "c")).model_turns == 2


def test_function_responses_are_all_results_and_the_last_ones_only_those_of_the_last_content():
    asked = request(said("user", "a"), CALL, result("f", {"n": 1}, id="7"), CALL, result("f", {"n": 2}))
    assert asked.function_responses == [FunctionResponse("f", {"n": 1}, "7"), FunctionResponse("f", {"n": 2})]
    assert asked.last_function_responses == [FunctionResponse("f", {"n": 2})]
    assert request(CALL, result("f", {}), said("user", "more")).last_function_responses == []


def test_the_text_of_a_result_has_its_json_and_its_strings_as_they_are():
    text = FunctionResponse("f", {"a": {"out": 'line "one"\nline two'}, "n": [3, "x"]}).text
    assert '"n": [3, "x"]' in text
    assert 'line "one"\nline two' in text


def test_prompt_tokens_are_the_characters_by_four_rounded_up():
    assert request(said("user", "12345")).prompt_tokens == 2
    assert request(said("user", "12345"), systemInstruction=said("user", "123")).prompt_tokens == 2
    assert request(said("user", "1"), tools=[{"functionDeclarations": [{"name": "a"}]}]).prompt_tokens == 4


def test_the_fingerprint_ignores_the_ids_of_calls_and_nothing_else():
    one = request(CALL, result("f", {"id": "kept"}, id="1"))
    assert one.fingerprint == request(CALL, result("f", {"id": "kept"}, id="2")).fingerprint
    assert one.fingerprint != request(CALL, result("f", {"id": "other"}, id="1")).fingerprint
