"""A google-adk registry as a source of the catalogue: pinned skills are listed, loaded and run."""

from __future__ import annotations

from typing import Any

import google.adk.skills
import pytest
from google.adk.agents import LlmAgent

from adk_skills_agent import RegistrySource, SkillsRegistry, SkillToolset
from adk_skills_agent.errors import SkillNotFound
from adk_skills_agent.testing import check_skill_source

Skill, Frontmatter, Resources = (google.adk.skills.Skill, google.adk.skills.Frontmatter, google.adk.skills.Resources)
TALK = """
turns:
  - call: {name: load_skill, args: {skill_name: pdf}}
  - call: {name: run_skill_script, args: {skill_name: pdf, file_path: scripts/count.py}}
  - text: done
"""


class Registry(google.adk.skills.SkillRegistry):
    """Ids differ from names, as with Google's own."""

    async def get_skill(self, *, name: str) -> google.adk.skills.Skill:
        if name != "private-pdf-7":
            raise KeyError(name)
        return Skill(
            frontmatter=Frontmatter(name="pdf", description="Counts pages.", metadata={"version": "1.0"}),
            instructions="Run count.py.",
            resources=Resources(
                references={"guide.md": "A guide."},
                assets={"x.bin": b"\x00\xff"},
                scripts={"count.py": google.adk.skills.Script(src="print('seven')\n")},
            ),
        )

    async def search_skills(self, *, query: str) -> list[google.adk.skills.Frontmatter]:
        return []


FILES = {
    "SKILL.md": b"---\nname: pdf\ndescription: Counts pages.\nmetadata:\n  version: '1.0'\n---\nRun count.py.",
    "references/guide.md": b"A guide.",
    "assets/x.bin": b"\x00\xff",
    "scripts/count.py": b"print('seven')\n",
}


async def test_it_conforms():
    await check_skill_source(lambda: RegistrySource(Registry(), ["private-pdf-7"]), {"pdf": FILES})


async def test_pinned_skills_are_listed_and_run(rehearse: Any, ask: Any, policy: Any):
    registry = SkillsRegistry()
    assert registry.add_source(RegistrySource(Registry(), ["private-pdf-7"]), name="google") == 1
    tools = SkillToolset.from_catalog(registry, policy=policy, dependencies="off")
    answered = await ask(LlmAgent(name="assistant", model=rehearse(TALK).model(), tools=[tools]), "go")
    loaded, ran = (result for _, result in answered.results)
    assert loaded["instructions"] == "Run count.py."
    assert ran["stdout"] == "seven\n"
    registry.remove_source("google")


async def test_row_357_of_two_ids_with_the_same_name_the_first_has_it():
    """Seen: the second one's script ran with what the owner had granted to the first."""

    class Two(Registry):
        async def get_skill(self, *, name: str) -> google.adk.skills.Skill:
            skill = await super().get_skill(name="private-pdf-7")
            return skill.model_copy(update={"instructions": name})

    source = RegistrySource(Two(), ["trusted", "other"])
    registry = SkillsRegistry()
    assert registry.add_source(source, name="google") == 1
    assert (await source.read_file("pdf", "SKILL.md")).endswith(b"\ntrusted")
    assert ["lists 'pdf' twice; the first one counts" in one.message for one in registry.diagnostics] == [True]
    registry.remove_source("google")


async def test_row_464_an_author_who_renames_a_skill_does_not_get_the_name_of_another():
    """Seen: the scripts of the first id ran with what the owner had granted to the second."""

    class Renaming(Registry):
        names = {"stranger/csv": "csv", "acme/weather": "weather"}  # noqa: RUF012

        async def get_skill(self, *, name: str) -> google.adk.skills.Skill:
            skill = await super().get_skill(name="private-pdf-7")
            frontmatter = skill.frontmatter.model_copy(update={"name": self.names[name]})
            return skill.model_copy(update={"instructions": name, "frontmatter": frontmatter})

    registry = Renaming()
    source = RegistrySource(registry, list(registry.names))
    assert [skill.name for skill in await source.list_metadata()] == ["csv", "weather"]
    registry.names = registry.names | {"stranger/csv": "weather"}
    assert [skill.name for skill in await source.list_metadata()] == ["weather"]
    assert (await source.read_file("weather", "SKILL.md")).endswith(b"\nacme/weather")
    anew = RegistrySource(registry, list(registry.names))
    assert [skill.name for skill in await anew.list_metadata()] == ["weather", "weather"]
    assert (await anew.read_file("weather", "SKILL.md")).endswith(b"\nacme/weather")


async def test_an_id_that_is_gone_leaves_a_diagnostic():
    registry = SkillsRegistry()
    assert registry.add_source(RegistrySource(Registry(), ["gone"]), name="google") == 0
    assert [one.code for one in registry.diagnostics] == ["source-unavailable"]
    registry.remove_source("google")
    with pytest.raises(SkillNotFound):
        await RegistrySource(Registry(), ["private-pdf-7"]).read_file("other", "SKILL.md")
