"""Gemini's REST protocol, the server's side: a body becomes a valid request or Gemini's refusal; an answer, its JSON.

Unknown fields are ignored. What is checked is what makes Gemini refuse a request with HTTP 400, so that an agent that
works against this also works against the service.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from adk_skills_agent.testing.conversation import Answer
from adk_skills_agent.testing.request import InvalidRequest, JsonObject, ModelRequest, estimate_tokens

_ROLES = ("user", "model", "function")
_PART_DATA = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
)
_INPUT_TOKEN_LIMIT, _OUTPUT_TOKEN_LIMIT = 1_048_576, 65_536


def parse_request(method: str, model: str, body: bytes) -> ModelRequest:
    """A request as Gemini accepts it. Raises ``InvalidRequest`` when Gemini would refuse it."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"Invalid JSON payload received. {error}") from error
    if not isinstance(data, dict):
        raise InvalidRequest("Invalid JSON payload received. The root must be an object.")
    if method == "countTokens" and isinstance(inner := data.get("generateContentRequest"), dict):
        data = inner
    check_tools(_list(data, "tools", "GenerateContentRequest"))
    _check_contents(_list(data, "contents", "GenerateContentRequest"))
    if (system := data.get("systemInstruction")) is not None:
        _check_content(system, "GenerateContentRequest.system_instruction")
    return ModelRequest(method, model, data)


def _list(data: JsonObject, key: str, where: str) -> list[Any]:
    value = data.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(f"Invalid value at '{where}.{key}': a list is expected.")
    return value


def _check_contents(contents: list[Any]) -> None:
    if not contents:
        raise InvalidRequest("* GenerateContentRequest.contents: contents is not specified")
    calls_before: int | None = None  # of the content before; None at the start
    for index, content in enumerate(contents):
        where = f"GenerateContentRequest.contents[{index}]"
        _check_content(content, where)
        calls = sum("functionCall" in part for part in content["parts"])
        responses = sum("functionResponse" in part for part in content["parts"])
        role_before = contents[index - 1].get("role", "user") if index else None
        if calls and role_before not in {"user", "function"}:
            raise InvalidRequest(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                f"response turn. ({where})"
            )
        if responses and not calls_before:
            raise InvalidRequest(
                f"Please ensure that function response turn comes immediately after a function call turn. ({where})"
            )
        if calls_before and responses != calls_before:
            raise InvalidRequest(
                "Please ensure that the number of function response parts is equal to the number of function call "
                f"parts of the function call turn. ({where}: {responses} for {calls_before} calls)"
            )
        calls_before = calls
    if contents[-1].get("role", "user") == "model":
        raise InvalidRequest("Please ensure that the last content has the role user, or is a function response.")


def _check_content(content: object, where: str) -> None:
    if not isinstance(content, dict):
        raise InvalidRequest(f"Invalid value at '{where}': an object is expected.")
    role = content.get("role", "user")
    if role not in _ROLES and not where.endswith("system_instruction"):
        raise InvalidRequest(f"Please use a valid role: user, model. ({where} has {role!r})")
    parts = _list(content, "parts", where)
    if not parts:
        raise InvalidRequest(f"* {where}.parts: contents.parts must not be empty.")
    for index, part in enumerate(parts):
        _check_part(part, f"{where}.parts[{index}]")


def _check_part(part: object, where: str) -> None:
    if not isinstance(part, dict):
        raise InvalidRequest(f"Invalid value at '{where}': an object is expected.")
    present = [key for key in _PART_DATA if part.get(key) is not None]
    if len(present) != 1:
        found = ", ".join(present) or "none"
        raise InvalidRequest(f"* {where}.data: required oneof field 'data' must have one initialized field ({found})")
    kind = present[0]
    value = part[kind]
    if kind == "text":
        if not isinstance(value, str):
            raise InvalidRequest(f"Invalid value at '{where}.text' (TYPE_STRING), {json.dumps(value)}")
        return
    if not isinstance(value, dict):
        raise InvalidRequest(f"Invalid value at '{where}.{kind}': an object is expected.")
    if kind in {"functionCall", "functionResponse"}:
        field = "function_call" if kind == "functionCall" else "function_response"
        if not isinstance(value.get("name"), str) or not value["name"]:
            raise InvalidRequest(f"* {where}.{field}.name: Name cannot be empty.")
        payload = "args" if kind == "functionCall" else "response"
        if value.get(payload) is not None and not isinstance(value[payload], dict):
            raise InvalidRequest(f"Invalid value at '{where}.{field}.{payload}' (Struct), an object is expected.")


# Answers


def answer_body(answer: Answer, request: ModelRequest, response_id: str) -> JsonObject:
    """The JSON of ``generateContent``."""
    parts = [*_thoughts(answer), *([{"text": answer.text}] if answer.text else []), *_call_parts(answer, response_id)]
    return _body(request, response_id, parts, answer, _usage(answer, request))


def stream_bodies(answer: Answer, request: ModelRequest, response_id: str) -> Iterator[JsonObject]:
    """The JSON of each chunk of ``streamGenerateContent``: text in pieces, each tool call whole, the reason last."""
    parts: list[JsonObject] = [*_thoughts(answer), *({"text": piece} for piece in _pieces(answer))]
    parts.extend(_call_parts(answer, response_id))
    usage = _usage(answer, request)
    if not parts:
        yield _body(request, response_id, [], answer, usage)
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        yield _body(
            request,
            response_id,
            [part],
            answer if last else None,
            usage if last else {k: v for k, v in usage.items() if k in {"promptTokenCount", "cachedContentTokenCount"}},
        )


def count_body(request: ModelRequest) -> JsonObject:
    """The JSON of ``countTokens``."""
    return {"totalTokens": request.prompt_tokens}


def model_body(model: str) -> JsonObject:
    """The JSON of ``models.get``."""
    return {
        "name": f"models/{model}",
        "version": "rehearsed",
        "displayName": f"{model} (rehearsed)",
        "inputTokenLimit": _INPUT_TOKEN_LIMIT,
        "outputTokenLimit": _OUTPUT_TOKEN_LIMIT,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


def error_body(code: int, status: str, message: str) -> JsonObject:
    """An error as Google's APIs write it."""
    return {"error": {"code": code, "message": message, "status": status}}


def _body(
    request: ModelRequest, response_id: str, parts: list[JsonObject], ended: Answer | None, usage: JsonObject
) -> JsonObject:
    candidate: JsonObject = {"content": {"role": "model", **({"parts": parts} if parts else {})}, "index": 0}
    if ended is not None:
        candidate["finishReason"] = ended.finish_reason
        if ended.finish_message:
            candidate["finishMessage"] = ended.finish_message
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": request.model,
        "responseId": response_id,
    }


def _thoughts(answer: Answer) -> list[JsonObject]:
    if not answer.thought:
        return []
    signature = base64.b64encode(b"signed: " + answer.thought.encode()).decode()
    return [{"text": answer.thought, "thought": True, "thoughtSignature": signature}]


def _call_parts(answer: Answer, response_id: str) -> list[JsonObject]:
    return [
        {"functionCall": {"id": f"{response_id}-{index}", "name": call.name, "args": dict(call.args)}}
        for index, call in enumerate(answer.calls)
    ]


def _usage(answer: Answer, request: ModelRequest) -> JsonObject:
    chars = len(answer.text) + sum(len(json.dumps({"name": c.name, "args": dict(c.args)})) for c in answer.calls)
    prompt = answer.usage.prompt if answer.usage.prompt is not None else request.prompt_tokens
    output = answer.usage.output if answer.usage.output is not None else estimate_tokens(chars)
    usage = {"promptTokenCount": prompt, "candidatesTokenCount": output, "totalTokenCount": prompt + output}
    if answer.usage.cached is not None:
        usage["cachedContentTokenCount"] = answer.usage.cached
    return usage


def _pieces(answer: Answer) -> list[str]:
    if not isinstance(answer.stream_chunks, int):
        return [piece for piece in answer.stream_chunks if piece]
    size = max(1, -(-len(answer.text) // answer.stream_chunks))
    return [answer.text[start : start + size] for start in range(0, len(answer.text), size)]


# What Gemini demands of the function declarations in a request.

_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL", "TYPE_UNSPECIFIED"})
_JSON_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_MAX_DEPTH = 32  # nesting; deeper schemas are refused by the service, too


def check_tools(tools: list[Any]) -> None:
    """Check every function declaration of a request. Raises ``InvalidRequest`` when one is wrong."""
    seen: set[str] = set()
    for t, tool in enumerate(tools):
        where = f"GenerateContentRequest.tools[{t}]"
        if not isinstance(tool, dict):
            raise InvalidRequest(f"Invalid value at '{where}': an object is expected.")
        declarations = tool.get("functionDeclarations")
        if declarations is None:
            continue
        if not isinstance(declarations, list):
            raise InvalidRequest(f"Invalid value at '{where}.function_declarations': a list is expected.")
        for d, declaration in enumerate(declarations):
            _check_declaration(declaration, f"{where}.function_declarations[{d}]", seen)


def _check_declaration(declaration: object, where: str, seen: set[str]) -> None:
    if not isinstance(declaration, dict):
        raise InvalidRequest(f"Invalid value at '{where}': an object is expected.")
    name = declaration.get("name")
    if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
        raise InvalidRequest(
            f"* {where}.name: Invalid function name {name!r}. Must start with a letter or an underscore. Must be "
            "alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum "
            "length of 128."
        )
    if name in seen:
        raise InvalidRequest(f"Duplicate function declaration found: {name}")
    seen.add(name)
    description = declaration.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidRequest(f"Invalid value at '{where}.description' (TYPE_STRING), {json.dumps(description)}")
    parameters, schema = declaration.get("parameters"), declaration.get("parametersJsonSchema")
    if parameters is not None and schema is not None:
        raise InvalidRequest(f"* {where}: parameters and parameters_json_schema are mutually exclusive.")
    if parameters is not None:
        _check_schema(parameters, f"{where}.parameters", 0)
        for parameter in parameters.get("properties") or {}:
            if not _PARAMETER_NAME.fullmatch(parameter):
                raise InvalidRequest(f"* {where}.parameters.properties: Invalid parameter name {parameter!r}.")
    if schema is not None:
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise InvalidRequest(f"* {where}.parameters_json_schema: the schema must describe an object.")
        _check_json_schema(schema, f"{where}.parameters_json_schema", 0)


def _check_schema(schema: object, where: str, depth: int) -> None:
    """The OpenAPI subset of ``parameters``."""
    if not isinstance(schema, dict):
        raise InvalidRequest(f"Invalid value at '{where}': an object is expected.")
    if depth > _MAX_DEPTH:
        raise InvalidRequest(f"* {where}: the schema is nested too deeply.")
    kind = str(schema.get("type", "TYPE_UNSPECIFIED")).upper()
    if kind not in _TYPES:
        raise InvalidRequest(f"Invalid value at '{where}.type' (type.googleapis.com/Type), {json.dumps(kind)}")
    if kind == "ARRAY" and schema.get("items") is None:
        raise InvalidRequest(f"* {where}.items: missing field.")
    if schema.get("enum") is not None and kind not in {"STRING", "TYPE_UNSPECIFIED"}:
        raise InvalidRequest(f"* {where}.enum: only allowed for STRING type")
    _check_enum(schema, where, allow_any=False)
    properties = schema.get("properties")
    if kind == "OBJECT" and depth == 0 and properties == {}:
        raise InvalidRequest(f"* {where}.properties: should be non-empty for OBJECT type")
    _check_children(schema, where, depth, _check_schema)
    _check_required(schema, where)


def _check_json_schema(schema: object, where: str, depth: int) -> None:
    """The JSON Schema of ``parametersJsonSchema``."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidRequest(f"Invalid value at '{where}': a JSON schema is expected.")
    if depth > _MAX_DEPTH:
        raise InvalidRequest(f"* {where}: the schema is nested too deeply.")
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _JSON_TYPES:
            raise InvalidRequest(f"* {where}.type: {kind!r} is not a JSON Schema type.")
    _check_enum(schema, where, allow_any=True)
    _check_children(schema, where, depth, _check_json_schema)
    _check_required(schema, where)


def _check_enum(schema: dict[str, Any], where: str, *, allow_any: bool) -> None:
    values = schema.get("enum")
    if values is None:
        return
    if not isinstance(values, list) or not values:
        raise InvalidRequest(f"* {where}.enum: a list of at least one value is expected.")
    for index, value in enumerate(values):
        if value == "" or (not allow_any and not isinstance(value, str)):
            raise InvalidRequest(f"* {where}.enum[{index}]: cannot be empty, and must be a string")


def _check_children(schema: dict[str, Any], where: str, depth: int, check: Any) -> None:
    properties = schema.get("properties")
    if properties is not None:
        if not isinstance(properties, dict):
            raise InvalidRequest(f"Invalid value at '{where}.properties': an object is expected.")
        for name, child in properties.items():
            check(child, f"{where}.properties[{name}]", depth + 1)
    if schema.get("items") is not None:
        check(schema["items"], f"{where}.items", depth + 1)
    for index, child in enumerate(schema.get("anyOf") or ()):
        check(child, f"{where}.any_of[{index}]", depth + 1)


def _check_required(schema: dict[str, Any], where: str) -> None:
    required = schema.get("required")
    if required is None:
        return
    if not isinstance(required, list):
        raise InvalidRequest(f"Invalid value at '{where}.required': a list is expected.")
    properties = schema.get("properties") or {}
    for index, name in enumerate(required):
        if name not in properties:
            raise InvalidRequest(f"* {where}.required[{index}]: property is not defined")
