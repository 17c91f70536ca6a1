"""Gemini's REST protocol, the server's side: a body becomes a valid request or Gemini's refusal; an answer, its JSON.

Unknown fields are ignored. What is checked is what makes Gemini refuse a request with HTTP 400, so that an agent that
works against this also works against the service.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from adk_skills_agent.testing.conversation import Answer
from adk_skills_agent.testing.gemini_tools import check_tools
from adk_skills_agent.testing.invalid_request import InvalidRequest
from adk_skills_agent.testing.request import JsonObject, ModelRequest, estimate_tokens

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
    """A request as Gemini accepts it.

    Raises:
        InvalidRequest: Gemini would refuse it.
    """
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
