"""What the tools for a model have in common: when they are declared, and how an error becomes an answer."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.genai import types

from adk_skills_agent.adk.answers import failure
from adk_skills_agent.errors import SandboxError, SkillsError

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.listing import SkillListing

logger = logging.getLogger(__name__)


class SkillTool(BaseTool):
    """A tool over one agent's listing of skills.

    Args:
        name: The tool's name.
        description: What the model is told.
        listing: The skills the agent sees.
    """

    required: tuple[str, ...] = ()

    def __init__(self, name: str, description: str, listing: SkillListing) -> None:
        super().__init__(name=name, description=description)
        self.listing = listing

    def __deepcopy__(self, memo: dict[int, object]) -> SkillTool:
        """A copy of an agent shares its tools: they hold no state of the agent."""
        return self

    @abstractmethod
    def properties(self) -> dict[str, dict[str, object]]:
        """The JSON schema of each argument."""

    @abstractmethod
    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """Do what was asked.

        Raises:
            SkillsError: It cannot be done; the model gets the code and the sentence.
        """

    def full_description(self) -> str:
        """The description of this moment."""
        return self.description

    def offered(self) -> bool:
        """Whether the model is told of the tool now: never without skills (C27)."""
        return not self.listing.empty

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Declare the tool when it is of use."""
        if self.offered():
            await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """Answer a call; what cannot be done is an answer with a code and a sentence, never an exception."""
        try:
            return await self.answer(args, tool_context)
        except SandboxError as error:
            logger.exception("the sandbox failed for %s", self.name)
            return failure(error)
        except SkillsError as error:
            return failure(error)

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
