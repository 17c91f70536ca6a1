"""The code in the message of a model's service that rejected a native code call (S3-4, S3-6).

Gemini 2.x tends to answer "run this" with a native ``executable_code`` part. Its service rejects the part when the
request declared no ``code_execution`` tool, and all that is left of it is the text of the error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

_HEAD = re.compile(r"\A\s*(?:unexpected tool call|malformed function call)\s*:\s*", re.IGNORECASE)
_FENCED = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_CODE_ARGUMENTS = frozenset({"code", "source", "python_code", "script"})
_TOOL_NAMESPACES = frozenset({"default_api", "tools", "functions"})


def rejected_code(message: str | None, tool_names: Collection[str] = ()) -> str | None:
    """The Python code that a rejected native call was to run; None when the message has none.

    Args:
        message: The error text, such as ``Unexpected tool call: print(6 * 7)``.
        tool_names: The functions the request declared. A call of one of them that came out malformed is not code for
            an executor, and neither is one written as ``default_api.name(...)``.
    """
    if not message:
        return None
    head = _HEAD.match(message)
    if head is None:
        return None
    text = message[head.end() :].strip("\n").rstrip()
    fenced = _FENCED.match(text.strip())
    if fenced is not None:
        text = fenced.group(1)
    try:
        program = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # a sentence, or code that was cut: running a part of it would be worse than the error
    if not program.body or _is_one_word(program) or _calls_a_tool(program, tool_names):
        return None
    return _wrapped_code(program, tool_names) or text


def _is_one_word(program: ast.Module) -> bool:
    """A bare name, such as the one of a tool that is not declared, is no program."""
    only = program.body[0] if len(program.body) == 1 else None
    return isinstance(only, ast.Expr) and isinstance(only.value, ast.Name | ast.Attribute)


def _calls_a_tool(program: ast.Module, tool_names: Collection[str]) -> bool:
    for node in ast.walk(program):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in tool_names:
            return True
        if (
            isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Name)
            and called.value.id in _TOOL_NAMESPACES
        ):
            return True
    return False


def _wrapped_code(program: ast.Module, tool_names: Collection[str]) -> str | None:
    """The code in a call such as ``run_code(code="...")``: a native tool's name around the program it was to run."""
    only = program.body[0] if len(program.body) == 1 else None
    if not isinstance(only, ast.Expr) or not isinstance(only.value, ast.Call):
        return None
    call = only.value
    if call.args or not isinstance(call.func, ast.Name) or call.func.id in tool_names:
        return None
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg in _CODE_ARGUMENTS and isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return None
