"""Skills with bodies that can be counted in what the server received."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent

from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.testing import GeminiServer
from adk_skills_agent.testing.request import ModelRequest

from ..speaking import speaking

MARK = "BODY-OF-{name}-IN-FORCE"


def bodies(request: ModelRequest, *names: str) -> dict[str, int]:
    """How often each skill's body is in the bytes of a request."""
    whole = json.dumps(request.body, ensure_ascii=False)
    return {name: whole.count(MARK.format(name=name)) for name in names}


@pytest.fixture
def five(make_skill: Callable[..., Path]) -> Path:
    """Five skills, ``one`` to ``five``, each with a body of its own."""
    for name in ("one", "two", "three", "four", "five"):
        folder = make_skill(
            name,
            description=f"Does what {name} does.",
            body=f"# {name}\n\n{MARK.format(name=name)}\n\nRun `scripts/go.py`.\n",
            files={
                "scripts/go.py": f'"""Says {name}."""\nprint("{name}")\n',
                "references/guide.md": f"guide of {name}",
            },
        )
    return folder.parent


@pytest.fixture
def says() -> Iterator[Callable[..., GeminiServer]]:
    """Start a model that answers by what it is asked: ``server = says(yaml_text)``."""
    with contextlib.ExitStack() as stack:
        yield lambda text: stack.enter_context(GeminiServer(speaking(text)))


LOADS = """
turns:
  - when: {user_contains: "load one and two"}
    call: [{name: load_skill, args: {skill_name: one}}, {name: load_skill, args: {skill_name: two}}]
  - {when: {user_contains: "load one"}, call: {name: load_skill, args: {skill_name: one}}}
  - {when: {user_contains: "load two"}, call: {name: load_skill, args: {skill_name: two}}}
  - {when: {user_contains: "load three"}, call: {name: load_skill, args: {skill_name: three}}}
  - {when: {user_contains: "load four"}, call: {name: load_skill, args: {skill_name: four}}}
  - {when: {user_contains: "load five"}, call: {name: load_skill, args: {skill_name: five}}}
  - {when: {user_contains: "unload one"}, call: {name: unload_skill, args: {skill_name: one}}}
  - {when: {last_tool: load_skill}, text: loaded}
  - {when: {last_tool: [load_skill, load_skill]}, text: loaded both}
  - {when: {last_tool: unload_skill}, text: unloaded}
  - {text: fine}
"""


def agent_with(server: GeminiServer, toolset: Any, name: str = "assistant", **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model=server.model(), instruction="Help.", tools=[toolset], **more)


def lazily(folder: Path, **more: Any) -> SkillToolset:
    return SkillToolset.from_dirs([folder], policy="trusted", **more)
