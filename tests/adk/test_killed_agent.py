"""Row 31: what an agent that was killed left in the folder for temporary files goes with the next agent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

KINDS = {"sessions", "memory", "environment"}

# Its script leaves a file in the workspace of its session, then a piece of code runs until the agent is killed.
AGENT = """
import asyncio, sys, time, warnings
from types import SimpleNamespace
warnings.simplefilter("ignore")
from google.adk.agents import LlmAgent
from google.adk.code_executors.code_execution_utils import CodeExecutionInput
from google.adk.runners import InMemoryRunner
from google.adk.skills import models
from google.genai import types
from adk_skills_agent import SandboxPolicy, SkillToolset
from adk_skills_agent.executors import LocalSandboxCodeExecutor, SandboxEnvironment
from adk_skills_agent.testing import GeminiServer, parse_conversation

policy = SandboxPolicy(min_isolation="process")
TALK = '''
turns:
  - call: {name: run_skill_script, args: {skill_name: notes, file_path: scripts/note.sh}, undeclared: true}
  - text: Done.
'''
CODE = "print('up', flush=True); import time; time.sleep(120)"

async def turn(toolset):
    with GeminiServer([parse_conversation(TALK)]) as server:
        runner = InMemoryRunner(LlmAgent(name="assistant", model=server.model(), tools=[toolset]), app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="user")
        said = types.Content(role="user", parts=[types.Part(text="go")])
        async for event in runner.run_async(user_id="user", session_id=session.id, new_message=said):
            for response in event.get_function_responses():
                assert response.response["status"] == "success", response

async def main():
    scripts = {"note.sh": models.Script(src="echo kept > note.txt")}
    about = models.Frontmatter(name="notes", description="Takes notes.")
    skill = models.Skill(frontmatter=about, instructions="Take notes.", resources=models.Resources(scripts=scripts))
    toolset = SkillToolset(skills=[skill], policy=policy)
    await turn(toolset)
    environment = SandboxEnvironment(policy=policy)
    await environment.write_file("kept.txt", "kept")

    def wait_for_the_end(name, data):
        print("ready", flush=True)
        time.sleep(120)

    executor = LocalSandboxCodeExecutor(policy=policy, on_output=wait_for_the_end)
    executor.execute_code(SimpleNamespace(), CodeExecutionInput(code=CODE))

asyncio.run(main())
"""

# The cheapest use of any: an agent that opens the workspace of a session.
NEXT = """
import asyncio, logging, threading
logging.basicConfig(level="INFO", format="%(message)s")
from adk_skills_agent.scripts.workspaces import SessionWorkspaces

async def main():
    async with SessionWorkspaces().use("a"):
        pass

asyncio.run(main())
for thread in threading.enumerate():
    if thread.name == "adk-skills-sweeper":
        thread.join()
"""


@pytest.mark.slow
def test_every_folder_of_a_killed_agent_goes_with_the_next_and_none_of_one_that_lives(tmp_path: Path) -> None:
    room = tmp_path / "host-tmp"
    room.mkdir()
    environment = {**os.environ, "TMPDIR": str(room)}

    def next_agent() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", NEXT], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stderr.splitlines()

    with subprocess.Popen(
        [sys.executable, "-c", AGENT], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "ready\n"
            made = set(os.listdir(room))
            assert {re.sub(r"adk-skills-([a-z]+)-.*", r"\1", name) for name in made} >= KINDS
            assert [path.read_text() for path in room.glob("*sessions*/*/note.txt")] == ["kept\n"]
            assert next_agent() == []
            assert set(os.listdir(room)) == made
        finally:
            agent.kill()
    told = next_agent()
    assert os.listdir(room) == []
    end = ", which an agent that is gone had left in the folder for temporary files."
    assert set(told) == {f"Removed {name}{end}" for name in made}
