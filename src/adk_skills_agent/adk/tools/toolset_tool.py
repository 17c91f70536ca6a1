"""What the tools of a toolset have in common: when they are declared, and that no exception comes out of them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.genai import types

from adk_skills_agent.adk.absent_tools import answer_undeclared
from adk_skills_agent.adk.answers import failure
from adk_skills_agent.adk.final_text import allow_only_words, say_final_text
from adk_skills_agent.adk.retry_guard import call_key
from adk_skills_agent.errors import ErrorCode, InvalidArguments, SandboxError, SkillsError

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.skill_runtime import SkillRuntime

FREE_ERRORS = 1
"""A call that failed may be tried again once, as it is, before the repeats are counted."""

logger = logging.getLogger(__name__)


class ToolsetTool(BaseTool):
    """A tool over what the tools of one toolset share.

    Args:
        runtime: Skills, state and settings of the toolset.
        base_name: The tool's own name; the model may know it by another (``runtime.names``), and with a prefix.
        description: What the model is told; ``full_description`` may say more.
    """

    required: tuple[str, ...] = ()
    skill_argument = "skill_name"
    free_repeats = 5
    """How often a turn may make a call and get the same answer: an agent in a loop reads a file in each round."""

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
            if isinstance(error, SandboxError):
                logger.exception("the sandbox failed for %s", self.name)
            return answer
        except Exception:  # whatever it is, the turn goes on; the owner gets the traceback, the model a sentence
            logger.exception("%s failed", self.name)
            message = f"{self.name} failed because of an internal error. Do not repeat the call; tell the user."
            return {"error": message, "error_code": ErrorCode.EXECUTION_ERROR.value}

    def _free_repeats(self, answer: Any) -> int:
        """How often the same call may get this answer before the repeats are counted."""
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
