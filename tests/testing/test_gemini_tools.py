import pytest

from adk_skills_agent.testing.gemini_protocol import check_tools
from adk_skills_agent.testing.request import InvalidRequest


def check(*declarations):
    check_tools([{"functionDeclarations": list(declarations)}])


def with_schema(schema, key="parametersJsonSchema"):
    return {"name": "f", key: schema}


@pytest.mark.parametrize(
    "declaration",
    [
        {"name": "f"},
        {"name": "_a.b:c-d9", "description": "d", "unknown": 1},
        {"name": "f" * 128},
        with_schema({"type": "object"}),
        with_schema({"type": "object", "properties": {"a-b": {"type": ["string", "null"], "enum": ["x", None]}}}),
        with_schema({"type": "object", "properties": {"a": {"anyOf": [{"type": "object"}, True]}}, "required": ["a"]}),
        with_schema({"type": "OBJECT", "properties": {"a": {"type": "STRING", "enum": ["x"]}}}, "parameters"),
        with_schema({"type": "object", "properties": {"a": {"type": "ARRAY", "items": {}}}}, "parameters"),
    ],
)
def test_valid_declarations_are_accepted(declaration):
    check(declaration)


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        ("f", "an object is expected"),
        ({}, "Invalid function name None"),
        ({"name": ""}, "Invalid function name ''"),
        ({"name": "9a"}, "Invalid function name '9a'"),
        ({"name": "a b"}, "Invalid function name 'a b'"),
        ({"name": "a\n"}, "Invalid function name"),
        ({"name": "é"}, "Invalid function name"),
        ({"name": "f" * 129}, "Invalid function name"),
        ({"name": "f", "description": 5}, "description"),
        ({"name": "f", "parameters": {"type": "OBJECT"}, "parametersJsonSchema": {"type": "object"}}, "exclusive"),
        (with_schema([]), "must describe an object"),
        (with_schema({"type": "string"}), "must describe an object"),
        (with_schema({"type": "object", "properties": []}), "properties"),
        (with_schema({"type": "object", "properties": {"a": 5}}), r"properties\[a\]': a JSON schema"),
        (with_schema({"type": "object", "properties": {"a": {"type": "text"}}}), "'text' is not a JSON Schema type"),
        (with_schema({"type": "object", "properties": {"a": {"enum": []}}}), "at least one value"),
        (with_schema({"type": "object", "properties": {"a": {"enum": ["x", ""]}}}), r"enum\[1\]: cannot be empty"),
        (with_schema({"type": "object", "required": ["a"]}), r"required\[0\]: property is not defined"),
        (with_schema({"type": "OBJECT", "properties": {}}, "parameters"), "should be non-empty for OBJECT"),
        (with_schema({"type": "OBJECT", "properties": {"a-b": {}}}, "parameters"), "Invalid parameter name 'a-b'"),
        (with_schema({"type": "OBJECT", "properties": {"a": {"type": "ARRAY"}}}, "parameters"), "items: missing field"),
        (
            with_schema({"type": "OBJECT", "properties": {"a": {"type": "INTEGER", "enum": [1]}}}, "parameters"),
            "STRING",
        ),
        (with_schema({"type": "OBJECT", "properties": {"a": {"type": "TEXT"}}}, "parameters"), '"TEXT"'),
        (with_schema("x", "parameters"), "an object is expected"),
    ],
)
def test_a_declaration_that_gemini_refuses_is_refused(declaration, problem):
    with pytest.raises(InvalidRequest, match=problem):
        check(declaration)


@pytest.mark.parametrize("key", ["parameters", "parametersJsonSchema"])
def test_a_schema_nested_without_end_is_refused(key):
    schema = {"type": "string"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        check(with_schema(schema, key))


def test_the_same_name_twice_is_refused_also_over_several_tools():
    with pytest.raises(InvalidRequest, match="Duplicate function declaration found: f"):
        check_tools([{"functionDeclarations": [{"name": "f"}]}, {"functionDeclarations": [{"name": "f"}]}])


def test_tools_without_functions_are_let_through():
    check_tools([{"googleSearch": {}}, {"functionDeclarations": None}])
    with pytest.raises(InvalidRequest):
        check_tools(["x"])
    with pytest.raises(InvalidRequest):
        check_tools([{"functionDeclarations": {}}])
