"""google-adk's own optimizer treats our toolset like its own: it reads the skills, edits their bodies, clones it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types
from talking import Talk
from toolset_agents import agent_with, lazily

from adk_skills_agent import SkillToolset

with warnings.catch_warnings():  # google-adk's own models use what pydantic deprecates
    warnings.simplefilter("ignore")
    from google.adk.optimization.data_types import UnstructuredSamplingResult
    from google.adk.optimization.gepa_root_agent_optimizer import GEPARootAgentOptimizer, GEPARootAgentOptimizerConfig
    from google.adk.optimization.sampler import Sampler

MODEL = """
turns:
  - {when: {user_contains: "skill named `one`"}, text: "```\nIMPROVED-BODY\n```"}
  - {when: {user_contains: "I provided an AI agent"}, text: "```\nAnswer well.\n```"}
  - {when: {user_contains: task}, call: {name: load_skill, args: {skill_name: one}}}
  - {when: {last_tool: load_skill}, text: done}
"""


class Asking(Sampler[UnstructuredSamplingResult]):
    """Asks a candidate in a real Runner; good is an agent whose skill was improved."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.toolsets: list[Any] = []

    def get_train_example_ids(self) -> list[str]:
        return ["train"]

    def get_validation_example_ids(self) -> list[str]:
        return ["validate"]

    async def sample_and_score(
        self, candidate: Any, example_set: Any = "validation", batch: Any = None, capture_full_eval_data: bool = False
    ) -> UnstructuredSamplingResult:
        self.toolsets.append(candidate.tools[0])
        runner = InMemoryRunner(agent=candidate, app_name="tests")
        await (await Talk.start(runner)).say("task")
        good = "IMPROVED-BODY" in self._server.requests[-1].system_text
        names = batch or self.get_validation_example_ids()
        data = {name: {"asked": "task, which needs the skill one"} for name in names}
        return UnstructuredSamplingResult(scores=dict.fromkeys(names, float(good)), data=data)


@pytest.mark.behaviour("same", "google-adk's optimizer", ours="reads, edits and clones our toolset; files on disk stay")
async def test_the_real_optimizer_improves_a_skill_on_disk_without_touching_it(
    five: Path, says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = says(MODEL)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    toolset = lazily(five, permissions={"skills": {"t*": "deny", "f*": "deny"}})
    before = (five / "one" / "SKILL.md").read_bytes()
    sampler = Asking(server)
    config = GEPARootAgentOptimizerConfig(
        optimizer_model="gemini-2.5-flash",
        model_configuration=types.GenerateContentConfig(),
        max_metric_calls=8,
        reflection_minibatch_size=1,
    )
    result = await GEPARootAgentOptimizer(config).optimize(agent_with(server, toolset), sampler)
    best = max(result.optimized_agents, key=lambda found: found.overall_score)
    assert best.overall_score == 1.0
    improved = best.optimized_agent.tools[0]
    assert isinstance(improved, SkillToolset)
    assert [skill.instructions for skill in improved.skills] == ["IMPROVED-BODY"]
    assert "scripts/go.py" in improved.runtime.source.listed()[0].files()  # it keeps the folder's files
    assert (five / "one" / "SKILL.md").read_bytes() == before
    await toolset.close()


def test_a_clone_shares_what_the_original_closes(five: Path) -> None:
    toolset = lazily(five, script_timeout=42, tool_name_prefix="my", tool_filter=["load_skill"])
    skills = toolset.skills
    edited = skills[0].model_copy(update={"instructions": "another"})
    clone = toolset.clone_with_updated_skills([edited, *skills[1:]])
    assert [skill.name for skill in clone.skills] == [skill.name for skill in skills]
    assert clone.skills[0].instructions == "another"
    assert toolset.skills[0].instructions != "another"
    assert clone.runtime.sandbox is toolset.runtime.sandbox
    assert clone.runtime.script_timeout == 42
    assert (clone.tool_name_prefix, clone.tool_filter) == ("my", ["load_skill"])
    assert clone.skills[0].resources.list_scripts() == ["go.py"]
    assert clone.skills[0].resources.get_reference("guide.md") == f"guide of {skills[0].name}"


async def test_the_clone_runs_the_scripts_of_the_folder(five: Path, says: Any) -> None:
    server = says(
        "turns:\n  - {when: {last_tool: run_skill_script}, text: ran}\n"
        "  - {call: {name: run_skill_script, args: {skill_name: one, file_path: scripts/go.py}}}\n"
    )
    toolset = lazily(five)
    skills = [skill.model_copy(update={"instructions": "x"}) for skill in toolset.skills]
    clone = toolset.clone_with_updated_skills(skills)
    agent = LlmAgent(name="assistant", model=server.model(), tools=[clone])
    runner = InMemoryRunner(agent=agent, app_name="tests")
    events = await (await Talk.start(runner)).say("go")
    assert next(r.response["stdout"] for e in events for r in e.get_function_responses()) == "one\n"
    await runner.close()
    await toolset.close()
