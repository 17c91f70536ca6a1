"""Registries that know denied names, use names of their own, or answer with anything."""

from __future__ import annotations

from typing import Any

import pytest
from google_skills import Answering, answers, call, in_turn, skill
from toolset_agents import agent_with, lazily

from adk_skills_agent import SkillToolset


@pytest.mark.parametrize("local", [False, True], ids=["only in the registry", "local too"])
@pytest.mark.behaviour(
    "better", "A denied name that a registry knows", google="no such rule", ours="not found, not shown"
)
async def test_a_denied_name_is_unknown_through_a_registry_too(rehearse: Any, talk: Any, local: bool) -> None:
    registry = Answering(
        skills={"secret": skill("secret"), "alias": skill("secret"), "two": skill("two")},
        found=(skill("secret").frontmatter, skill("two").frontmatter),
    )
    toolset = SkillToolset(
        [skill("one"), *([skill("secret")] if local else [])],
        registry=registry,
        permissions={"skills": {"secret": "deny"}},
    )
    server = rehearse(
        in_turn(
            call("search_skills", query="x"),
            call("load_skill", skill_name="secret"),
            call("load_skill_resource", skill_name="alias", file_path="references/guide.md"),
        )
    )
    found, loaded, read = answers(await (await talk(agent_with(server, toolset))).say("go"))
    assert [one["name"] for one in found["result"]] == ["two"]
    assert loaded["error_code"] == "SKILL_NOT_FOUND"
    assert "suggestions" not in loaded
    assert read["error_code"].startswith("SKILL_NOT_FOUND")
    assert "Does secret" not in str(server.requests[-1].body)


async def test_a_denied_skill_on_disk_is_not_found_in_the_registry(five: Any, rehearse: Any, talk: Any) -> None:
    registry = Answering(skills={"one": skill("one")}, found=(skill("one").frontmatter,))
    toolset = lazily(five, registry=registry, permissions={"skills": {"one": "deny"}})
    server = rehearse(in_turn(call("search_skills", query="x"), call("load_skill", skill_name="one")))
    found, loaded = answers(await (await talk(agent_with(server, toolset))).say("go"))
    assert "one" not in [skill["name"] for skill in found["result"]]
    assert loaded["error_code"] == "SKILL_NOT_FOUND"


async def test_with_a_registry_no_enum_keeps_a_model_from_its_names(rehearse: Any, talk: Any) -> None:
    server = rehearse(in_turn())
    await (await talk(agent_with(server, SkillToolset([skill("one")], registry=Answering())))).say("go")
    declared = server.requests[0].body["tools"][0]["functionDeclarations"]
    load = next(one for one in declared if one["name"] == "load_skill")
    assert "skill_name" in str(load)
    assert "enum" not in str(load)


@pytest.mark.behaviour("same", "A registry's own name for a skill", ours="answers and state use the name asked for")
async def test_a_skill_is_known_by_the_name_that_was_asked_for(rehearse: Any, talk: Any) -> None:
    def tfn() -> dict[str, int]:
        """Counts."""
        return {"count": 1}

    weather = skill("weather", metadata={"adk_additional_tools": ["tfn"]})
    toolset = SkillToolset(
        registry=Answering(skills={"acme/weather": weather}), additional_tools=[tfn], policy="trusted"
    )
    server = rehearse(
        in_turn(
            call("load_skill", skill_name="acme/weather"),
            call("tfn"),
            call("run_skill_script", skill_name="acme/weather", file_path="scripts/go.py"),
        )
    )
    session = await talk(agent_with(server, toolset))
    loaded, counted, ran = answers(await session.say("go"))
    assert loaded["skill_name"] == "acme/weather"
    assert loaded["frontmatter"]["name"] == "weather"
    assert counted == {"count": 1}
    assert ran["stdout"] == "hi\n"
    assert (await session.state())["_adk_activated_skill_assistant"] == ["acme/weather"]
    assert str(server.requests[-1].body).count("BODY-weather") == 1


@pytest.mark.parametrize("junk", [{"name": "far"}, 5, "far", ["far"]], ids=["mapping", "number", "text", "list"])
async def test_what_is_no_skill_is_a_registry_error_that_names_the_cause(rehearse: Any, talk: Any, junk: Any) -> None:
    loop = [call("load_skill", skill_name="far")] * 6
    server = rehearse(in_turn(*loop))
    toolset = SkillToolset([skill("one")], registry=Answering(skills={"far": junk}))
    got = answers(await (await talk(agent_with(server, toolset))).say("go"))
    assert [answer["error_code"] for answer in got[:2]] == ["REGISTRY_ERROR"] * 2
    assert type(junk).__name__ in got[0]["error"]
    assert len(got) == 4


@pytest.mark.parametrize("junk", [None, [{"name": "x"}], [None], 5], ids=["nothing", "mappings", "nothings", "number"])
async def test_what_is_no_list_of_frontmatters_is_a_registry_error(rehearse: Any, talk: Any, junk: Any) -> None:
    server = rehearse(in_turn(*[call("search_skills", query="x")] * 6))
    toolset = SkillToolset([skill("one")], registry=Answering(found=junk))
    got = answers(await (await talk(agent_with(server, toolset))).say("go"))
    assert [answer["error_code"] for answer in got[:2]] == ["REGISTRY_ERROR"] * 2
    assert "instead of a" in got[0]["error"]
    assert len(got) == 4


async def test_an_error_without_words_is_named(rehearse: Any, talk: Any) -> None:
    server = rehearse(in_turn(call("load_skill", skill_name="far")))
    toolset = SkillToolset([skill("one")], registry=Answering(skills={"far": TimeoutError()}))
    (got,) = answers(await (await talk(agent_with(server, toolset))).say("go"))
    assert got["error"].endswith("TimeoutError")
