"""The code in the message of a model's service that rejected a native code call (S3-4, S3-6).

Gemini 2.x tends to answer "run this" with a native ``executable_code`` part. Its service rejects the part when the
request declared no ``code_execution`` tool, and all that is left of it is the text of the error.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection

_HEAD = re.compile(r"\A\s*(?:unexpected tool call|malformed function call)\s*:\s*", re.IGNORECASE)
_FENCED = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_TOOL_NAMESPACES = frozenset({"default_api", "tools", "functions"})
_RUNNERS = frozenset(
    {"run_code", "execute_code", "code_execution", "executable_code", "tool_code", "python", "run_python", "code"}
)
"""What models call the native tool. Any other name is a tool of somebody's, and its arguments are data."""
_CODE_ARGUMENTS = frozenset({"code", "source", "python_code", "script"})
_OTHER_ARGUMENTS = frozenset({"language", "id"})


def rejected_code(message: str | None, tool_names: Collection[str] = ()) -> str | None:
    """The Python code that a rejected native call was to run; None when the message has none.

    Args:
        message: The error text, such as ``Unexpected tool call: print(6 * 7)``.
        tool_names: The functions the request declared. A call of one of them that came out malformed is not code for
            an executor.
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
    program = _parsed(text)
    if program is None:
        return None
    wrapped = _wrapped_code(program, tool_names)
    if wrapped is not None:
        inner = _parsed(wrapped)
        return wrapped if inner is not None and not _calls_a_tool(inner, tool_names) else None
    if _is_only_a_tool_call(program) or _calls_a_tool(program, tool_names):
        return None
    return text


def _parsed(text: str) -> ast.Module | None:
    """The program; None for a sentence or code that was cut, of which running a part would be worse than the error."""
    try:
        program = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return program if program.body else None


def _is_only_a_tool_call(program: ast.Module) -> bool:
    """Whether all there is is a value, a name, or one call of something that is not Python's own.

    ``send_mail(to="a")`` is the call of a tool that is not declared; ``print(6 * 7)`` is a program.
    """
    only = program.body[0] if len(program.body) == 1 else None
    if not isinstance(only, ast.Expr):
        return False
    value = only.value
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.Call):
        return not (isinstance(value.func, ast.Name) and hasattr(builtins, value.func.id))
    return isinstance(value, ast.Constant | ast.Name | ast.Attribute | ast.Dict | ast.List | ast.Tuple | ast.Set)


def _calls_a_tool(program: ast.Module, tool_names: Collection[str]) -> bool:
    for node in ast.walk(program):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in tool_names:
            return True
        if isinstance(called, ast.Attribute) and (
            called.attr in tool_names or (isinstance(called.value, ast.Name) and called.value.id in _TOOL_NAMESPACES)
        ):
            return True
    return False


def _wrapped_code(program: ast.Module, tool_names: Collection[str]) -> str | None:
    """The code in a call such as ``run_code(code="...")``: a native tool's name around the program it was to run."""
    only = program.body[0] if len(program.body) == 1 else None
    if not isinstance(only, ast.Expr) or not isinstance(only.value, ast.Call):
        return None
    call = only.value
    if call.args or not isinstance(call.func, ast.Name):
        return None
    if call.func.id not in _RUNNERS or call.func.id in tool_names:
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    code = [value for name, value in given.items() if name in _CODE_ARGUMENTS]
    if len(code) != 1 or any(name not in _CODE_ARGUMENTS | _OTHER_ARGUMENTS for name in given):
        return None
    return code[0].value if isinstance(code[0], ast.Constant) and isinstance(code[0].value, str) else None
