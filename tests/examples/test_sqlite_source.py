"""The example of a source of one's own passes the conformance suite, and its skills run in an agent."""

import importlib.util
import sys
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

from adk_skills_agent import SandboxPolicy, SkillsRegistry, SkillToolset
from adk_skills_agent.testing import GeminiServer, check_skill_source, parse_conversation

PLACE = Path(__file__).parents[2] / "examples" / "sources" / "sqlite_source.py"
CONTENTS = {
    "pdf": {
        "SKILL.md": b"---\nname: pdf\ndescription: Counts pages.\n---\nRun count.py.\n",
        "scripts/count.py": b"print('seven pages')\n",
    },
    "csv": {"SKILL.md": b"---\nname: csv\ndescription: Reads tables.\n---\nRead.\n"},
}
TALK = """
turns:
  - call: {name: load_skill, args: {skill_name: pdf}}
  - call: {name: run_skill_script, args: {skill_name: pdf, file_path: scripts/count.py}}
  - text: done
"""


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("sqlite_source", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["sqlite_source"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sqlite_source"]


@pytest.fixture
def database(example, tmp_path):
    path = tmp_path / "skills.db"
    for name, files in CONTENTS.items():
        description = files["SKILL.md"].decode().split("description: ")[1].split("\n")[0]
        example.put_skill(path, name, description, files)
    return path


async def test_the_example_conforms(example, database):
    passed = await check_skill_source(lambda: example.SqliteSource(database), CONTENTS)
    assert len(passed) == 9


async def test_a_skill_of_a_database_is_loaded_and_its_script_runs(example, database):
    registry = SkillsRegistry()
    assert registry.add_source(example.SqliteSource(database), name="db") == 2
    with GeminiServer([parse_conversation(TALK)]) as server:
        tools = SkillToolset.from_catalog(registry, policy=SandboxPolicy(min_isolation="process"), dependencies="off")
        runner = InMemoryRunner(LlmAgent(name="assistant", model=server.model(), tools=[tools]), app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        results = []
        async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            results += [dict(response.response) for response in event.get_function_responses()]
        await runner.close()
    loaded, ran = results
    assert loaded["instructions"] == "Run count.py."
    assert loaded["files"]
    assert ran["stdout"] == "seven pages\n"
    registry.remove_source("db")
    assert list(registry) == []
