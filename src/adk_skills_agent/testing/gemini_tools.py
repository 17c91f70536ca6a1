"""What Gemini demands of the function declarations in a request."""

from __future__ import annotations

import json
import re
from typing import Any

from adk_skills_agent.testing.invalid_request import InvalidRequest

_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL", "TYPE_UNSPECIFIED"})
_JSON_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_MAX_DEPTH = 32  # nesting; deeper schemas are refused by the service, too


def check_tools(tools: list[Any]) -> None:
    """Check every function declaration of a request.

    Raises:
        InvalidRequest: Gemini would refuse one of them.
    """
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
