"""What the tools of a toolset have in common: when they are declared, and that no exception comes out of them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.genai import types

from adk_skills_agent.adk.answers import failure
from adk_skills_agent.adk.final_text import say_final_text
from adk_skills_agent.errors import ErrorCode, InvalidArguments, SandboxError, SkillsError

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.skill_runtime import SkillRuntime

logger = logging.getLogger(__name__)


class ToolsetTool(BaseTool):
    """A tool over what the tools of one toolset share.

    Args:
        runtime: Skills, state and settings of the toolset.
        base_name: The tool's own name; the model may know it by another (``runtime.names``), and with a prefix.
        description: What the model is told; ``full_description`` may say more.
    """

    required: tuple[str, ...] = ()

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
        elif isinstance(getattr(llm_request, "tools_dict", None), dict):
            llm_request.tools_dict.setdefault(self.name, self)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Answer a call; what cannot be done is an answer with a code and a sentence, never an exception."""
        try:
            if not isinstance(args, dict):
                raise InvalidArguments(f"The arguments must be a JSON object, got {type(args).__name__}.")
            return await self._said(await self.answer(args, tool_context), tool_context)
        except SandboxError as error:
            logger.exception("the sandbox failed for %s", self.name)
            return failure(error)
        except SkillsError as error:
            return failure(error)
        except Exception:  # whatever it is, the turn goes on; the owner gets the traceback, the model a sentence
            logger.exception("%s failed", self.name)
            message = f"{self.name} failed because of an internal error. Do not repeat the call; tell the user."
            return {"error": message, "error_code": ErrorCode.EXECUTION_ERROR.value}

    async def _said(self, answer: Any, tool_context: ToolContext) -> Any:
        """The answer; what it has for the user, when the guard ends the turn, is said."""
        await say_final_text(tool_context, answer)
        return answer

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
