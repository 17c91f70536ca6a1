"""Plugins for google-adk's runner: terminals, calls that a dead server left, and code that Gemini 2.x would lose.

``ToolCallsPlugin`` prints the tool calls of a turn, which ``adk run`` does not show. ``ModelErrorsPlugin`` shows an
error of the model's service once. ``UnfinishedCallsPlugin`` answers tool calls whose server ended before they did.

``CodeExecutionRecoveryPlugin`` is for Gemini 2.x and an executor of one's own (S3, google/adk-python#5315). Such a
model wants to call the native ``code_execution`` tool, which only ``BuiltInCodeExecutor`` declares; its service then
rejects the answer, and google-adk ends the turn with the error. The plugin tells the model, in every request, to write
a fenced block instead; and when it calls natively all the same, takes the code from the error and hands it to
google-adk's own pipeline, as if it had come in the right form.
"""

from __future__ import annotations

import ast
import builtins
import logging
import re
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from google.adk.code_executors import BaseCodeExecutor, BuiltInCodeExecutor
from google.adk.code_executors.code_executor_context import CodeExecutorContext
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

from adk_skills_agent.errors import ErrorCode, in_one_line
from adk_skills_agent.recent import Recent

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext


logger = logging.getLogger(__name__)

_WIDTH = 160
_MOST_JOINED = 20
"""Lines of a text that begins with a brace."""
_RESULT_KEYS = ("error", "stdout", "message", "content", "instructions", "skills", "result")
"""The fields of a result that say most, best first."""


class ToolCallsPlugin(BasePlugin):
    """Prints each tool call and how it ended, one line each, for ``adk run`` and other terminals.

    Args:
        name: The plugin's name in google-adk.
        stream: Where to; None is standard error, so that what the agent says can be piped.
        width: Most characters of a line.
    """

    def __init__(self, name: str = "tool_calls", *, stream: TextIO | None = None, width: int = _WIDTH) -> None:
        super().__init__(name=name)
        self._stream = stream
        self._width = width
        self._started: dict[tuple[str, str], float] = {}  # by invocation and call

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Print the call."""
        self._started[_key(tool_context)] = time.monotonic()
        arguments = ", ".join(f"{name}={value!r}" for name, value in tool_args.items())
        self._say(f"→ {tool.name}({arguments})")
        return None

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Print how it ended and the first line of what came out."""
        self._say(f"← {tool.name}{self._seconds(tool_context)}: {_said(result)}")
        return None

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> dict[str, Any] | None:
        """Print what it raised."""
        self._say(f"← {tool.name}{self._seconds(tool_context)}: {type(error).__name__}: {error}")
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Forget the invocation's calls that never ended."""
        for key in [key for key in self._started if key[0] == invocation_context.invocation_id]:
            del self._started[key]

    def _seconds(self, tool_context: ToolContext) -> str:
        started = self._started.pop(_key(tool_context), None)
        return f" ({time.monotonic() - started:.1f} s)" if started is not None else ""

    def _say(self, line: str) -> None:
        _print_line(line, self._width, self._stream)


def _key(tool_context: ToolContext) -> tuple[str, str]:
    return tool_context.invocation_id, tool_context.function_call_id or ""


class ModelErrorsPlugin(BasePlugin):
    """Shows the error of a model's service once, and lets the conversation go on.

    Without it google-adk tells an error as an event, raises it as well, and prints its traceback: ``adk web`` shows it
    twice, and ``adk run`` ends with two hundred lines. With it the turn ends with the error as its last event; ``adk
    run`` with one question then ends with 0, so leave the plugin out where its exit code counts.

    Args:
        name: The plugin's name in google-adk.
        stream: Where it is printed, besides the event; None is standard error.
    """

    def __init__(self, name: str = "model_errors", *, stream: TextIO | None = None) -> None:
        super().__init__(name=name)
        self._stream = stream

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """The error as the model's answer, in one sentence; nobody raises it any more."""
        from google.adk.models.llm_response import LlmResponse

        code = str(getattr(error, "status", None) or getattr(error, "code", None) or type(error).__name__)
        message = str(getattr(error, "message", None) or error or type(error).__name__)
        logger.debug("agent %s: the model's error", callback_context.agent_name, exc_info=error)
        _print_line(f"Error of the model {llm_request.model or ''}: {code}: {message}", _ERROR_WIDTH, self._stream)
        return LlmResponse(error_code=code, error_message=message)


_ERROR_WIDTH = 1_000


def _print_line(line: str, width: int, stream: TextIO | None) -> None:
    """One line without what a terminal obeys; it stays one line whatever is in it."""
    shown = in_one_line(line)
    if len(shown) > width:
        shown = shown[: width - 1] + "…"
    stream = stream if stream is not None else sys.stderr
    encoding = stream.encoding or "utf-8"
    print(shown.encode(encoding, "replace").decode(encoding), file=stream, flush=True)


def _said(result: object) -> str:
    """The state of a tool's answer and the first line of what says most in it."""
    if not isinstance(result, Mapping):
        return str(result)
    if result.get("error_code") == ErrorCode.APPROVAL_REQUIRED:
        return "waits for the user's answer"
    state = str(result.get("status") or ("error" if result.get("error") else "ok"))
    text = next((str(result[key]) for key in _RESULT_KEYS if result.get(key)), "")
    lines = text.strip().split("\n", _MOST_JOINED)[:_MOST_JOINED]
    first = lines[0] if len(lines[0]) > 1 else " ".join(line.strip() for line in lines)  # JSON begins with a brace
    return f"{state}: {first}" if first and first != state else state


class UnfinishedCallsPlugin(BasePlugin):
    """Tells the model of tool calls that have no answer because their server ended: what they did is not known.

    google-adk leaves such a call out of the next request, so that a model would make it again without knowing that it
    may have been done. With this plugin the session gets an answer for each when its next message arrives. Calls of
    long-running tools, and those that wait for the user, are left alone: their answers come with a message.

    Send the messages of a session one after another, as google-adk needs it anyway: a call that still runs for another
    request has no answer either.

    Args:
        name: The plugin's name in google-adk.
    """

    def __init__(self, name: str = "unfinished_calls") -> None:
        super().__init__(name=name)

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        """Answer what was left, before the message becomes part of the session."""
        from google.adk.events import Event

        session = invocation_context.session
        answered = {response.id for event in session.events for response in event.get_function_responses()}
        answered |= {part.function_response.id for part in user_message.parts or () if part.function_response}
        unfinished = []
        for event in reversed(session.events):
            waits = event.long_running_tool_ids or set()
            left = [call for call in event.get_function_calls() if call.id not in answered and call.id not in waits]
            if left and event.invocation_id != invocation_context.invocation_id:
                unfinished.append((event, left))
            if len(unfinished) == _MOST_UNFINISHED:
                break
        for event, left in reversed(unfinished):
            parts = [
                types.Part(
                    function_response=types.FunctionResponse(
                        id=call.id, name=call.name, response=dict(UNFINISHED_ANSWER)
                    )
                )
                for call in left
            ]
            logger.warning(
                "session %s: %s had no answer; the model is told that what it did is not known",
                session.id,
                ", ".join(str(call.name) for call in left),
            )
            await invocation_context.session_service.append_event(
                session,
                Event(
                    invocation_id=event.invocation_id,
                    author=event.author,
                    branch=event.branch,
                    content=types.Content(role="user", parts=parts),
                ),
            )
        return None


_MOST_UNFINISHED = 100
"""Events whose calls a message answers, the newest: a client may give its session any number of them (row 307)."""
UNFINISHED_ANSWER: Mapping[str, str] = {
    "status": "unknown",
    "error": "The server ended before this call did. It may have been done or not: look before you do it again.",
}
"""The answer of a tool call whose server ended."""

RECOVERED_FROM = "adk_skills_recovered_from"
"""Key of ``custom_metadata`` in a recovered response; its value is the error code."""

_REJECTIONS = frozenset({"UNEXPECTED_TOOL_CALL", "MALFORMED_FUNCTION_CALL"})
_NO_ERROR: dict[str, object] = {"error_code": None, "error_message": None, "finish_reason": None}
_DEFAULT_FENCE = ("```tool_code\n", "\n```")
_GOOGLE_SAYS = "DO NOT emit native executable_code parts"
"""google-adk's own steering, which it adds for executors with ``optimize_data_file``, has this line."""

_STEERING = """\
You have no code_execution tool and no native executable_code: the service rejects both. To run Python code, write it \
in a fenced block exactly like this, and stop after it; the result comes in the next message:

{start}print("hello"){end}"""


_MOST_INVOCATIONS = 256


@dataclass(slots=True)
class _Kept:
    """The facts kept about one invocation: the functions each agent declared, and how often code was recovered."""

    declared: dict[str, frozenset[str]] = field(default_factory=dict)
    recovered: dict[str, int] = field(default_factory=dict)


class CodeExecutionRecoveryPlugin(BasePlugin):
    """Steers models to fenced code, and recovers the code of native calls that the service rejected.

    It has an effect only on agents whose ``code_executor`` is one other than ``BuiltInCodeExecutor``. A recovered call
    counts like any other run: after ``error_retry_attempts`` failing runs of one invocation, or the same code so
    often, the error is left as it is (S3-10).
    """

    def __init__(self, name: str = "code_execution_recovery") -> None:
        super().__init__(name=name)
        # By invocation, youngest last: google-adk does not say when a turn was cancelled or its model failed.
        self._kept: Recent[str, _Kept] = Recent(_MOST_INVOCATIONS)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Add the steering to the request, once (S3-2, S3-3)."""
        invocation = callback_context.get_invocation_context()
        executor = _executor(invocation)
        if executor is None:
            return None
        self._of(invocation).declared[callback_context.agent_name] = frozenset(llm_request.tools_dict)
        steering = _steering(executor)
        if not any(said in _system_text(llm_request) for said in (_GOOGLE_SAYS, steering)):
            llm_request.append_instructions([steering])
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Turn a rejected native call into the call it was meant to be (S3-4 to S3-7)."""
        if _code(llm_response) not in _REJECTIONS:
            return None
        invocation = callback_context.get_invocation_context()
        executor = _executor(invocation)
        if executor is None or llm_response.get_function_calls():
            return None
        declared = self._of(invocation).declared.get(callback_context.agent_name, frozenset())
        code = rejected_code(llm_response.error_message, declared)
        if code is None:
            return None
        used_up = self._attempts_used_up(invocation, executor, code)
        if llm_response.partial:
            # A fragment is never run (S3-10), but a client would show the error of one that will be recovered whole.
            return None if used_up else llm_response.model_copy(update=_NO_ERROR)
        if used_up:
            logger.info(
                "agent %s: a rejected native code call is not recovered again; error_retry_attempts is %d",
                callback_context.agent_name,
                _attempts(executor),
            )
            return None
        self._count(invocation, code)
        logger.info(
            "agent %s: recovered %d characters of code from %s",
            callback_context.agent_name,
            len(code),
            _code(llm_response),
        )
        return _with_code(llm_response, code)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Forget what was kept for the invocation."""
        self._kept.pop(invocation_context.invocation_id, None)

    def _of(self, invocation: InvocationContext) -> _Kept:
        kept = self._kept[invocation.invocation_id] = self._kept.get(invocation.invocation_id) or _Kept()
        return kept

    def _attempts_used_up(self, invocation: InvocationContext, executor: BaseCodeExecutor, code: str) -> bool:
        """Whether google-adk would not run the code any more, or has run the same too often already."""
        allowed = _attempts(executor)
        failed = CodeExecutorContext(invocation.session.state).get_error_count(invocation.invocation_id)
        if failed >= allowed:
            return True
        return self._of(invocation).recovered.get(code, 0) >= allowed

    def _count(self, invocation: InvocationContext, code: str) -> None:
        seen = self._of(invocation).recovered
        seen[code] = seen.get(code, 0) + 1


def _executor(invocation: InvocationContext) -> BaseCodeExecutor | None:
    """The agent's executor, when it is one that runs fenced code."""
    agent = invocation.agent
    executor = getattr(agent, "code_executor", None)
    if not isinstance(executor, BaseCodeExecutor) or isinstance(executor, BuiltInCodeExecutor):
        return None
    config = invocation.run_config
    if config is not None and config.support_cfc and getattr(agent, "parent_agent", None) is None:
        return None  # google-adk uses the built-in one then
    return executor


def _attempts(executor: BaseCodeExecutor) -> int:
    return getattr(executor, "error_retry_attempts", 2)  # google-adk's default


def _steering(executor: BaseCodeExecutor) -> str:
    fences = getattr(executor, "code_block_delimiters", None)
    start, end = fences[0] if fences else _DEFAULT_FENCE
    return _STEERING.format(start=start, end=end)


def _system_text(request: LlmRequest) -> str:
    instruction = request.config.system_instruction
    if isinstance(instruction, str):
        return instruction
    parts = instruction.parts if isinstance(instruction, types.Content) else None
    return "\n".join(part.text for part in parts or [] if part.text)


def _code(response: LlmResponse) -> str:
    code = response.error_code
    return str(code.value) if isinstance(code, types.FinishReason) else str(code or "")


def _with_code(response: LlmResponse, code: str) -> LlmResponse:
    """The response with the code at its end; what the model thought before, and its signatures, stay."""
    before = list(response.content.parts or []) if response.content else []
    part = types.Part(executable_code=types.ExecutableCode(code=code, language=types.Language.PYTHON))
    return response.model_copy(
        update={
            **_NO_ERROR,
            "content": types.Content(role="model", parts=[*before, part]),
            "custom_metadata": {**(response.custom_metadata or {}), RECOVERED_FROM: _code(response)},
        }
    )


# The code in the message of a model's service that rejected a native code call (S3-4, S3-6).
#
# Gemini 2.x tends to answer "run this" with a native ``executable_code`` part. Its service rejects the part when the
# request declared no ``code_execution`` tool, and all that is left of it is the text of the error.

_HEAD = re.compile(r"\A\s*(?:unexpected tool call|malformed function call)\s*:\s*", re.IGNORECASE)
_FENCED = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_TOOL_NAMESPACES = frozenset({"default_api", "tools", "functions"})
_RUNNERS = frozenset(
    {"run_code", "execute_code", "code_execution", "executable_code", "tool_code", "python", "run_python", "code"}
)
"""The names that models use for the native tool. Any other name is somebody's tool, and its arguments are data."""
_CODE_ARGUMENTS = frozenset({"code", "source", "python_code", "script"})
_OTHER_ARGUMENTS = frozenset({"language", "id"})


def rejected_code(message: str | None, tool_names: Collection[str] = ()) -> str | None:
    """The Python code that a rejected native call was to run; None when the message has none.

    A call of one of ``tool_names``, the declared functions, that came out malformed is not code for an executor.
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
        from adk_skills_agent.packages import parsed_python

        program = parsed_python(text)
    except (SyntaxError, ValueError):
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
