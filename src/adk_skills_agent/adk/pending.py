"""Stand-ins until the real modules are here (removed then)."""

from __future__ import annotations

from typing import Any

from adk_skills_agent.adk.tools.toolset_tool import ToolsetTool


class RetryGuard:
    def __init__(self, limits: Any) -> None:
        pass

    def refused(self, tool_context: Any, kind: str) -> None:
        return None

    def miss(self, tool_context: Any, kind: str, error: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        return error

    def success(self, tool_context: Any, kind: str, key: str | None = None) -> None:
        pass


class _Pending(ToolsetTool):
    required = ("skill_name", "file_path")

    def properties(self) -> dict[str, dict[str, object]]:
        return {"skill_name": {"type": "string"}, "file_path": {"type": "string"}}

    async def answer(self, args: dict[str, Any], tool_context: Any) -> Any:
        return {}


class LoadSkillResourceTool(_Pending):
    def __init__(self, runtime: Any) -> None:
        super().__init__(runtime, "load_skill_resource", "Reads a file.")


class RunSkillScriptTool(_Pending):
    def __init__(self, runtime: Any) -> None:
        super().__init__(runtime, "run_skill_script", "Runs a script.")
