"""Tools that answer a call without being declared, so that nothing ever names them (#6281)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_tool import BaseTool


class ToolsOfRequest(dict[str, Any]):
    """A request's tools by name, and some that are found but not listed.

    google-adk tells a model that calls an unknown tool which ones there are, by listing this mapping.
    """

    def __init__(self, listed: dict[str, Any]) -> None:
        super().__init__(listed)
        self.absent: dict[str, BaseTool] = {}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.absent

    def __missing__(self, name: str) -> BaseTool:
        return self.absent[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The tool, listed or not."""
        if super().__contains__(name):
            return self[name]
        return self.absent.get(name, default)


def answer_undeclared(llm_request: LlmRequest, name: str, tool: BaseTool) -> None:
    """Let a tool answer calls in this request though the model is not told of it; a declared one of the name wins."""
    tools = getattr(llm_request, "tools_dict", None)
    if not isinstance(tools, dict):
        return
    if not isinstance(tools, ToolsOfRequest):
        tools = llm_request.tools_dict = ToolsOfRequest(tools)
    tools.absent.setdefault(name, tool)
