"""The base of a toolset's tools: it decides when they are declared, and lets no exception out."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.genai import types

from adk_skills_agent.adk.guard import allow_only_words, call_key, say_final_text
from adk_skills_agent.adk.running.call import share_of_session
from adk_skills_agent.errors import (
    ErrorCode,
    FormatError,
    InvalidArguments,
    ResourceNotFound,
    SandboxError,
    ScriptNotFound,
    SkillNotFound,
    SkillsError,
    TooManyRuns,
    WorkspaceUnavailable,
)
from adk_skills_agent.sandbox import acting_for, log_exception, redact_error

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.sandbox import SecretForms


FREE_ERRORS = 1
"""A call that failed may be tried again once, as it is, before the repeats are counted."""

logger = logging.getLogger(__name__)


class ToolsetTool(BaseTool):
    """A tool over what the tools of one toolset share.

    The model may know it by another name than ``base_name`` (``runtime.names``), and with a prefix.
    """

    required: tuple[str, ...] = ()
    skill_argument = "skill_name"
    free_repeats = 5
    """The number of times a turn may get the same answer to a call: an agent in a loop reads a file in each round."""

    def __init__(self, runtime: SkillRuntime, base_name: str, description: str) -> None:
        # Without the prefix: google-adk puts it before the names of a copy.
        super().__init__(name=runtime.names.get(base_name, base_name), description=description)
        self.runtime = runtime
        self.base_name = base_name

    def __deepcopy__(self, memo: dict[int, object]) -> ToolsetTool:
        """A copy of an agent shares its tools: they hold no state of the agent."""
        return self

    @abstractmethod
    def properties(self) -> dict[str, dict[str, object]]:
        """The JSON schema of each argument."""

    @abstractmethod
    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Do what was asked.

        Raises:
            SkillsError: It cannot be done; the model gets the code and the sentence.
        """

    def skill_of(self, args: Any) -> str:
        """The skill a call names, for the owner's log; empty when it names none."""
        name = args.get(self.skill_argument) if isinstance(args, dict) else None
        return name if isinstance(name, str) else ""

    def full_description(self) -> str:
        """The description of this moment."""
        return self.description

    def offered(self, tool_context: ToolContext) -> bool:
        """Whether the tool can work in this request; else the model is not told of it."""
        return True

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Declare the tool when it can work.

        Otherwise it is known to the request without being declared: a model that calls it all the same gets our answer,
        which the guard counts, and not google-adk's advice to try again, which nobody counts (#6281).
        """
        if self.offered(tool_context):
            await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        else:
            answer_undeclared(llm_request, self.name, self)
        allow_only_words(tool_context, llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Answer a call; what cannot be done is an answer with a code and a sentence, never an exception."""
        guard = self.runtime.guard
        call = call_key(self.base_name, tool_context.agent_name, args)
        answer: Any = guard.spent(tool_context, call)
        if answer is None:
            with acting_for(share_of_session(tool_context)):
                answer = await self._answered(args, tool_context)
            free = self._free_repeats(answer)
            answer = guard.same_answer(tool_context, call, answer, free, self.skill_of(args))
        await say_final_text(tool_context, answer)
        return answer

    async def _answered(self, args: Any, tool_context: ToolContext) -> Any:
        try:
            if not isinstance(args, dict):
                raise InvalidArguments(f"The arguments must be a JSON object, got {type(args).__name__}.")
            return await self.answer(args, tool_context)
        except SkillsError as error:
            answer = failure(error, self.runtime.grants.forms)
            if is_broken_sandbox(error):
                log_exception(logger, self.runtime.grants.forms, "the sandbox failed for %s", self.name)
            return answer
        except Exception:  # noqa: BLE001 - the turn goes on; the owner gets the traceback, the model a sentence
            log_exception(logger, self.runtime.grants.forms, "%s failed", self.name)
            message = f"{self.name} failed because of an internal error. Do not repeat the call; tell the user."
            return {"error": message, "error_code": ErrorCode.EXECUTION_ERROR.value}

    def _free_repeats(self, answer: Any) -> int:
        """The number of times the same call may get this answer before repeats are counted."""
        found_nothing = answer == [] or (isinstance(answer, dict) and answer.get("skills") == [])
        if found_nothing or (isinstance(answer, dict) and "error" in answer):
            return FREE_ERRORS
        return self.free_repeats

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.full_description(),
            parameters_json_schema={
                "type": "object",
                "properties": self.properties(),
                "required": list(self.required),
            },
        )

    def _detect_error_in_response(self, response: Any) -> str | None:
        """google-adk asks a tool whether an answer is an error, for ``error.type`` of its spans; it has no public way.

        tests/adk/test_skill_toolset.py fails loudly when it stops asking.
        """
        if isinstance(response, dict) and response.get("error"):
            return str(response.get("error_code") or "TOOL_ERROR")
        return None


# Tools that answer a call without being declared, so that nothing ever names them (#6281).


class ToolsOfRequest(dict[str, Any]):
    """A request's tools by name, and some that are found but not listed.

    google-adk tells a model that calls an unknown tool which ones there are, by listing this mapping.
    """

    def __init__(self, listed: dict[str, Any]) -> None:
        super().__init__(listed)
        self.undeclared: dict[str, BaseTool] = {}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.undeclared

    def __missing__(self, name: str) -> BaseTool:
        return self.undeclared[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The tool, listed or not."""
        if super().__contains__(name):
            return self[name]
        return self.undeclared.get(name, default)


def answer_undeclared(llm_request: LlmRequest, name: str, tool: BaseTool) -> None:
    """Let a tool answer calls in this request though the model is not told of it; a declared one of the name wins."""
    tools = getattr(llm_request, "tools_dict", None)
    if not isinstance(tools, dict):
        return
    if not isinstance(tools, ToolsOfRequest):
        tools = llm_request.tools_dict = ToolsOfRequest(tools)
    tools.undeclared.setdefault(name, tool)


# What a tool answers when it cannot do what was asked: a code, a sentence and the nearest names.

MAX_ERROR_CHARS = 200
"""Of a sentence for a model, which may quote what the model wrote, of any length."""

_HEAD_CHARS = 120  # the rest is of its end, which says what is wrong with what was quoted


def is_broken_sandbox(error: SkillsError) -> bool:
    """Whether a sandbox itself failed, so that the owner needs the traceback; full places and stores say a sentence."""
    return isinstance(error, SandboxError) and not isinstance(error, (TooManyRuns, WorkspaceUnavailable))


def failure(error: SkillsError, secrets: SecretForms | None = None) -> dict[str, object]:
    """The tool response for an error of this package; it names no path of the host."""
    redact_error(error, secrets)
    message = error.message
    if isinstance(error, FormatError):
        # Its sentence is for the owner and names the file on the host.
        logger.warning("a skill cannot be read: %s", message)
        message = "The skill's instructions cannot be read right now. Go on without it and tell the user."
    if len(message) > MAX_ERROR_CHARS:
        logger.info("an error was shortened for the model: %s", message)
        message = f"{message[:_HEAD_CHARS]}...{message[_HEAD_CHARS + 3 - MAX_ERROR_CHARS :]}"
    answer: dict[str, object] = {"error": message, "error_code": error.code.value}
    if isinstance(error, (SkillNotFound, ResourceNotFound, ScriptNotFound)) and error.suggestions:
        answer["suggestions"] = list(error.suggestions)
    return answer


def required_text(args: dict[str, object], name: str) -> str:
    """A required string argument of a tool call.

    Raises:
        InvalidArguments: It is missing, empty or not a string.
    """
    value = args.get(name)
    if value is None or value == "":
        raise InvalidArguments(f"Argument '{name}' is required.")
    if not isinstance(value, str):
        raise InvalidArguments(f"Argument '{name}' must be a string, got {type(value).__name__}.")
    return value


def required_texts(args: dict[str, object], *names: str) -> list[str]:
    """Required string arguments, with one sentence for each that is missing.

    Raises:
        InvalidArguments: One is missing, empty or not a string.
    """
    problems = []
    for name in names:
        try:
            required_text(args, name)
        except InvalidArguments as error:
            problems.append(error.message)
    if problems:
        raise InvalidArguments("\n".join(problems))
    return [str(args[name]) for name in names]


# Checking what a model passes to a tool.


def whole_number(args: dict[str, Any], name: str, default: int = 0) -> int:
    """An optional whole number from 0 on.

    Raises:
        InvalidArguments: The value is not such a number.
    """
    value = args.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON numbers may arrive as 20.0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise InvalidArguments(f"'{name}' must be a whole number from 0 on, got {str(value)!r}.")
    return value


# The parts that several tool declarations share.


def skill_name_schema(names: Sequence[str] | None) -> dict[str, object]:
    """The JSON schema of a skill's name: an enum of the valid ones (C29), or any string when they are too many."""
    schema: dict[str, object] = {"type": "string", "description": "The skill's name, exactly as listed."}
    if names:
        schema["enum"] = list(names)
    return schema
