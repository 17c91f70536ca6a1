"""The demo's conversation over the real skills, tools, sandbox and Runner; and that it notices what is broken."""

import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types
from google.genai.errors import ClientError

from adk_skills_agent.adk import SkillDiscoveryMode, SkillToolset
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.testing import GeminiServer, load_conversation

DEMO = Path(str(files("adk_skills_agent.testing"))) / "conversations" / "demo.yaml"
EXAMPLES = Path(__file__).parents[2] / "examples" / "skills"
QUESTION = "Summarise the sample sales by region and write a report; then tell me what the format means."

pytestmark = pytest.mark.filterwarnings("ignore::adk_skills_agent.errors.SecurityWarning")  # level process, chosen here


@pytest.fixture
def examples(tmp_path):
    return Path(shutil.copytree(EXAMPLES, tmp_path / "skills"))


async def demonstrate(server, folder):
    toolset = SkillToolset.from_dirs(
        [folder],
        discovery_mode=SkillDiscoveryMode.EAGER,
        policy=SandboxPolicy(min_isolation="process"),
        shell=True,
    )
    agent = LlmAgent(name="assistant", model=server.model(), instruction="Answer briefly.", tools=[toolset])
    runner = InMemoryRunner(agent=agent)
    try:
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        message = types.Content(role="user", parts=[types.Part(text=QUESTION)])
        return [e async for e in runner.run_async(user_id="u", session_id=session.id, new_message=message)]
    finally:
        await runner.close()


async def test_the_demo_goes_as_written(examples):
    async with GeminiServer(load_conversation(DEMO)) as server:
        events = await demonstrate(server, examples)
        server.assert_finished()
        called = [call.name for event in events for call in event.get_function_calls()]
        assert called == ["load_skill", "load_skill_resource", "run_skill_script", "write_file", "execute"]
        answer = events[-1].content.parts[0].text
        assert "The whole report is in report.md." in answer
        answers = [each for event in events for each in event.get_function_responses()]
        result = next(each.response for each in answers if each.name == "run_skill_script")
        for figure in ("109830.5", "34966", "29481.5", "27296", "18087", "31.8"):
            assert figure in result["stdout"]
            assert f"{float(figure):,.2f}".removesuffix(".00").removesuffix("0") in answer


@pytest.mark.parametrize(
    ("path", "old", "new", "turn"),
    [
        ("SKILL.md", "reads one CSV file", "reads many files", 2),
        ("references/output-format.md", "an empty cell is not a zero", "an empty cell is a zero", 3),
        ("scripts/report.py", "def main(", "def other(", 4),
        ("assets/sample.csv", "1001,", "1001,x,", 4),
    ],
)
async def test_the_demo_fails_at_the_turn_where_something_is_broken(examples, path, old, new, turn):
    file = examples / "csv-report" / path
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    async with GeminiServer(load_conversation(DEMO)) as server:
        with pytest.raises(ClientError, match="FAILED_PRECONDITION"):
            await demonstrate(server, examples)
        (mismatch,) = server.mismatches
        assert mismatch.message.startswith(f"Turn {turn} of conversation 'demo' ({DEMO}:")
