"""One tool call through a real Runner: a rehearsed model makes it and gets its answer."""

from __future__ import annotations

import json
from typing import Any

from google.adk.agents import LlmAgent

from adk_skills_agent.testing import GeminiServer


def one_call(tool: str, /, **args: Any) -> str:
    return f"turns:\n  - call: {{name: {tool}, args: {json.dumps(args)}, undeclared: true}}\n  - text: done\n"


def many_calls(*calls: tuple[str, dict[str, Any]]) -> str:
    lines = [f"  - call: {{name: {tool}, args: {json.dumps(args)}, undeclared: true}}" for tool, args in calls]
    return "\n".join(["turns:", *lines, "  - text: done"])


def agent_with(server: GeminiServer, toolset: Any, **more: Any) -> LlmAgent:
    return LlmAgent(name="assistant", model=server.model(), instruction="Help.", tools=[toolset], **more)
