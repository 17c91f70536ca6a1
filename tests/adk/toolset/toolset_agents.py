"""Agents with our toolset, a model that loads skills by request, and counting bodies in what the server received."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent

from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.testing import GeminiServer
from adk_skills_agent.testing.request import ModelRequest

MARK = "BODY-OF-{name}-IN-FORCE"


def bodies(request: ModelRequest, *names: str) -> dict[str, int]:
    """How often each skill's body is in the bytes of a request."""
    whole = json.dumps(request.body, ensure_ascii=False)
    return {name: whole.count(MARK.format(name=name)) for name in names}


LOADS = """
turns:
  - {when: {user_contains: "unload one"}, call: {name: unload_skill, args: {skill_name: one}}}
  - when: {user_contains: "load one and two"}
    call: [{name: load_skill, args: {skill_name: one}}, {name: load_skill, args: {skill_name: two}}]
  - {when: {user_contains: "load one"}, call: {name: load_skill, args: {skill_name: one}}}
  - {when: {user_contains: "load two"}, call: {name: load_skill, args: {skill_name: two}}}
  - {when: {user_contains: "load three"}, call: {name: load_skill, args: {skill_name: three}}}
  - {when: {user_contains: "load four"}, call: {name: load_skill, args: {skill_name: four}}}
  - {when: {user_contains: "load five"}, call: {name: load_skill, args: {skill_name: five}}}
  - {when: {last_tool: load_skill}, text: loaded}
  - {when: {last_tool: [load_skill, load_skill]}, text: loaded both}
  - {when: {last_tool: unload_skill}, text: unloaded}
  - {text: fine}
"""


def agent_with(server: GeminiServer, toolset: Any, name: str = "assistant", **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model=server.model(), instruction="Help.", tools=[toolset], **more)


def lazily(folder: Path, **more: Any) -> SkillToolset:
    return SkillToolset.from_dirs([folder], policy="trusted", **more)
