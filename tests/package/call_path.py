"""A program: which files of the package one ``run_skill_script`` call passes, as a JSON list on standard output.

A rehearsed model calls the tool several times through a real Runner. The last calls count, all files of them together:
sandboxes wait then, nothing is found out for the first time, and what a thread of the sandbox does beside one call
shows in another. The model is in a process of its own: its threads are no part of a call. The arguments are the Python
to run the agent in and a folder of skills with ``tools/scripts/hello.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import adk_skills_agent

CALLS = 9
FIRST_CALLS = 3
ROOT = f"{Path(adk_skills_agent.__file__).parent}/"
CALL = "  - call: {name: run_skill_script, args: {skill_name: tools, file_path: hello.py}, undeclared: true}\n"

seen: set[str] = set()
inside = threading.Event()


def look(frame: FrameType, event: str, _: object) -> None:
    name = frame.f_code.co_filename
    if event == "call" and inside.is_set() and name.startswith(ROOT):
        seen.add(name.removeprefix(ROOT))


async def main(skills: Path) -> None:
    calls = 0
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from adk_skills_agent import SkillToolset
    from adk_skills_agent.adk.tools.run_skill_script import RunSkillScriptTool
    from adk_skills_agent.sandbox.local.namespaces.zygote import zygote_life

    class Watched(RunSkillScriptTool):
        async def run_async(self, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > FIRST_CALLS:
                await asyncio.to_thread(zygote_life().wait, 20)  # a busy machine takes its time
                for thread in threading.enumerate():
                    if thread.name == "adk-skills-sweeper":  # at the first call, and never again
                        await asyncio.to_thread(thread.join)
                inside.set()
            try:
                return await super().run_async(**named)
            finally:
                inside.clear()

    toolset = SkillToolset.from_dirs([skills])
    for tool in await toolset.get_tools():
        if type(tool) is RunSkillScriptTool:
            tool.__class__ = Watched
    agent = LlmAgent(name="assistant", model="gemini-2.5-flash", tools=[toolset])
    runner = InMemoryRunner(agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    question = types.Content(role="user", parts=[types.Part(text="go")])
    answers = []
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=question):
        answers += [call.response for call in event.get_function_responses()]
    await toolset.close()
    if [answer["stdout"] for answer in answers] != ["hello\n"] * CALLS:
        sys.exit(f"The calls did not do what they should: {answers}")
    print(json.dumps(sorted(seen)))


def with_model() -> int:
    """Run this program again beside a model that calls the tool."""
    from adk_skills_agent.testing import GeminiServer, parse_conversation

    with GeminiServer([parse_conversation(f"turns:\n{CALL * CALLS}  - text: done\n")]) as server:
        line = [sys.argv[1], "-W", "ignore", __file__, sys.argv[2]]
        return subprocess.run(line, check=False, env={**os.environ, **server.environment()}).returncode


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(with_model())
    # Before anything starts a thread: only those that start later are looked at.
    threading.setprofile(look)
    sys.setprofile(look)
    asyncio.run(main(Path(sys.argv[1])))
