"""``SkillToolset`` in the place of google-adk's: constructor, tools, answers, state (issue item 1, item 3)."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors.unsafe_local_code_executor import UnsafeLocalCodeExecutor
from google.adk.environment import LocalEnvironment
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.skills import SkillRegistry, models
from google.adk.tools import skill_toolset as theirs
from pydantic import BaseModel
from talking import Talk
from toolset_agents import LOADS, agent_with, bodies, lazily

from adk_skills_agent import (
    SandboxPolicy,
    SkillDiscoveryMode,
    SkillLifecycleConfig,
    SkillLifecycleMode,
    SkillLimits,
    SkillsRegistry,
    SkillToolset,
)
from adk_skills_agent.adk.options import SharedSettings, SkillToolsetSettings
from adk_skills_agent.errors import ConfigError

ALL = ["list_skills", "load_skill", "load_skill_resource", "run_skill_script"]


def in_memory(name: str = "one", instructions: str = "BODY-OF-one-IN-FORCE", **more: Any) -> models.Skill:
    level1 = models.Frontmatter(name=name, description=f"Does {name}.", **more)
    scripts = {"go.py": models.Script(src="print('one')")}
    resources = models.Resources(references={"guide.md": "the guide"}, scripts=scripts)
    return models.Skill(frontmatter=level1, instructions=instructions, resources=resources)


def responses(events: list[Any]) -> list[Any]:
    return [r.response for event in events for r in event.get_function_responses()]


# What google-adk sees


@pytest.mark.behaviour("same", "`isinstance` checks of google-adk", ours="hold for the toolset and its tools")
def test_it_is_google_adks_toolset_and_its_tools_are_google_adks_tools(five: Path) -> None:
    toolset = lazily(five)
    assert isinstance(toolset, theirs.SkillToolset)
    tools = asyncio.run(toolset.get_tools())
    assert [type(tool).__name__ for tool in tools] == [
        "ListSkillsTool",
        "LoadSkillTool",
        "LoadSkillResourceTool",
        "RunSkillScriptTool",
    ]
    assert all(isinstance(tool, getattr(theirs, type(tool).__name__)) for tool in tools)
    assert isinstance(toolset.unload_tool(), theirs.UnloadSkillTool)


@pytest.mark.slow
def test_google_adks_analytics_call_its_tools_skill_tools(five: Path) -> None:
    """Slow for what the plugin needs: BigQuery's client."""
    from google.adk.plugins import bigquery_agent_analytics_plugin as plugin

    tools = asyncio.run(lazily(five).get_tools())
    assert {plugin._get_tool_origin(tool) for tool in tools} == {"SKILL"}


def test_google_adk_still_asks_a_tool_whether_its_answer_is_an_error(five: Path) -> None:
    """The hook has no public name; this fails when google-adk stops asking."""
    from google.adk.flows.llm_flows.tools import _error_handler

    source = Path(_error_handler.__file__).read_text()
    assert "_detect_error_in_response" in source
    tool = asyncio.run(lazily(five).get_tools())[1]
    assert tool._detect_error_in_response({"error": "x", "error_code": "SKILL_NOT_FOUND"}) == "SKILL_NOT_FOUND"
    assert tool._detect_error_in_response({"skill_name": "one"}) is None


def test_google_adk_still_reads_whether_tools_may_be_kept_for_an_invocation(five: Path) -> None:
    """The switch has no public name either."""
    from google.adk.tools import base_toolset

    assert "_use_invocation_cache" in Path(base_toolset.__file__).read_text()
    assert lazily(five)._use_invocation_cache is False


def test_a_copied_agent_shares_the_toolset(five: Path) -> None:
    import copy

    toolset = lazily(five)
    assert copy.deepcopy(toolset) is toolset


# Arguments


@pytest.mark.behaviour("same", "Wrong constructor arguments", ours="the same `ValueError`")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"skills": [in_memory(), in_memory()]}, "Duplicate skill name 'one'"),
        (
            {"code_executor": UnsafeLocalCodeExecutor(), "environment": LocalEnvironment()},
            "Cannot have both code_executor and environment",
        ),
        ({"environment": LocalEnvironment(), "save_output_artifacts": True}, "only supported with code_executor"),
        ({"skills_folder": "/skills"}, "Cannot specify skills_folder without an environment"),
        ({"environment": LocalEnvironment(), "skills_folder": "skills"}, "must be an absolute path"),
    ],
)
@pytest.mark.requirement("S0-18")
def test_wrong_arguments_are_refused_as_google_adk_refuses_them(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SkillToolset(**arguments)
    with pytest.raises(ValueError, match=said):
        theirs.SkillToolset(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"discovery_mode": "often"},
        {"lifecycle_config": "short"},
        {"limits": "none"},
        {"permissions": {"skills": {"one": "maybe"}}},
        {"additional_tools": [3]},
        {"policy": "none-such"},
    ],
)
def test_wrong_arguments_of_ours_are_config_errors(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SkillToolset([in_memory()], **arguments)


def test_one_string_is_no_list_of_folders(five: Path) -> None:
    with pytest.raises(ConfigError, match="takes a list of folders"):
        SkillToolset.from_dirs(str(five))


@pytest.mark.parametrize("limits", [{"skill_tokens": 0}, {"cache_turns": -1}, {"misses": True}, {"list_skills": "9"}])
def test_limits_are_checked(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SkillLimits(**limits)
    assert SkillLimits(skill_tokens=None, active_tokens=None).skill_tokens is None


def test_a_toolset_is_made_from_a_registry_and_from_a_view(five: Path) -> None:
    registry = SkillsRegistry()
    registry.discover([five])
    assert SkillToolset.from_catalog(registry, policy="trusted").skill_names() == list(registry)
    view = registry.view(allow=["t*"])
    assert SkillToolset.from_catalog(view, policy="trusted").skill_names() == ["three", "two"]


def test_from_catalog_takes_what_the_constructor_takes(five: Path) -> None:
    found = inspect.signature(SkillToolset).parameters.values()
    keywords = {each.name: each.annotation for each in found if each.kind is each.KEYWORD_ONLY}
    typed = {
        name: kind.__forward_arg__
        for one in (SharedSettings, SkillToolsetSettings)
        for name, kind in one.__annotations__.items()
    }
    assert typed == keywords
    registry = SkillsRegistry()
    registry.discover([five])
    toolset = SkillToolset.from_catalog(
        registry, tool_name_prefix="my", discovery_mode="search", require_activation=True, file_list=False
    )
    assert toolset.tool_name_prefix == "my"
    assert toolset.discovery_mode is SkillDiscoveryMode.SEARCH
    assert (toolset.runtime.require_activation, toolset.runtime.file_list) == (True, False)


def test_what_is_no_catalog_is_refused_with_what_takes_it(five: Path) -> None:
    for given in ([str(five)], str(five), None):
        with pytest.raises(ConfigError, match="takes a SkillsRegistry or a view of one"):
            SkillToolset.from_catalog(given)  # type: ignore[arg-type]


# Tools of a request


@pytest.mark.requirement("C27")
async def test_without_skills_there_is_no_tool_and_no_instruction(says: Any, talk: Any, tmp_path: Path) -> None:
    """C27, GOOGLE_ADK row A1."""
    server = says("turns: [{text: hi}]")
    session = await talk(agent_with(server, lazily(tmp_path)))
    await session.say("hello")
    assert server.requests[0].tool_names == []
    assert "skill" not in server.requests[0].system_text


@pytest.mark.requirement("C29")
async def test_names_are_an_enum_while_they_fit(five: Path, says: Any, talk: Any) -> None:
    """C29."""
    server = says("turns: [{text: hi}]")
    session = await talk(agent_with(server, lazily(five)))
    await session.say("hello")
    for tool in ("load_skill", "load_skill_resource", "run_skill_script"):
        schema = server.requests[0].declaration(tool)["parameters_json_schema"]["properties"]["skill_name"]
        assert schema["enum"] == ["five", "four", "one", "three", "two"]
    assert server.requests[0].tool_names == ALL


async def test_unload_is_offered_while_a_skill_is_active(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load one")
    await session.say("unload one")
    offered = ["unload_skill" in request.tool_names for request in server.requests]
    assert offered == [False, True, True, False]


async def test_a_prefix_is_before_every_name_and_in_every_text(five: Path, says: Any, talk: Any) -> None:
    server = says(
        """
turns:
  - {when: {last_tool: my_load_skill}, text: loaded}
  - {call: {name: my_load_skill, args: {skill_name: one}}}
"""
    )
    session = await talk(agent_with(server, lazily(five, tool_name_prefix="my")))
    await session.say("go")
    last = server.requests[-1]
    assert last.tool_names == [f"my_{name}" for name in ALL] + ["my_unload_skill"] or set(last.tool_names) == {
        *(f"my_{name}" for name in ALL),
        "my_unload_skill",
    }
    assert bodies(last, "one") == {"one": 1}
    assert "`my_load_skill`" in last.system_text
    assert "`load_skill" not in last.system_text


@pytest.mark.behaviour(
    "optional", '`script_tool_name="execute_skill_script"`', google="gone", ours="the old name of `run_skill_script`"
)
@pytest.mark.requirement("S0-2")
async def test_the_script_tool_can_have_its_old_name(five: Path, says: Any, talk: Any) -> None:
    """S0-2."""
    server = says(
        """
turns:
  - {when: {last_tool: execute_skill_script}, text: ran}
  - {call: {name: execute_skill_script, args: {skill_name: one, file_path: scripts/go.py}}}
"""
    )
    session = await talk(agent_with(server, lazily(five, script_tool_name="execute_skill_script")))
    events = await session.say("go")
    assert responses(events)[0]["stdout"] == "one\n"
    assert "run_skill_script" not in json.dumps(server.requests[0].body)
    assert "execute_skill_script" in server.requests[0].system_text


async def test_a_filtered_tool_is_not_offered_and_the_model_is_told(five: Path, says: Any, talk: Any) -> None:
    server = says("turns: [{text: hi}]")
    session = await talk(agent_with(server, lazily(five, tool_filter=["list_skills", "load_skill"])))
    await session.say("hello")
    assert server.requests[0].tool_names == ["list_skills", "load_skill"]
    assert "NOT available: `run_skill_script`, `load_skill_resource`, `unload_skill`" in server.requests[0].system_text


@pytest.mark.requirement("S0-14")
async def test_without_a_way_to_run_scripts_the_tool_is_absent(says: Any, talk: Any) -> None:
    """S0-14, google-adk issue 6281; decided by the agent's own executor."""
    server = says("turns: [{text: hi}]")
    for executor, offered in ((None, False), (UnsafeLocalCodeExecutor(), True)):
        more = {"code_executor": executor} if executor else {}
        session = await talk(agent_with(server, SkillToolset([in_memory()]), **more))
        await session.say("hello")
        assert ("run_skill_script" in server.requests[-1].tool_names) is offered
        assert ("`run_skill_script`" in server.requests[-1].system_text) is offered


# Discovery


@pytest.mark.parametrize("mode", ["eager", SkillDiscoveryMode.EAGER, theirs.SkillDiscoveryMode.EAGER])
async def test_eager_has_the_catalogue_in_the_instruction(five: Path, says: Any, talk: Any, mode: Any) -> None:
    server = says("turns: [{text: hi}]")
    session = await talk(agent_with(server, lazily(five, discovery_mode=mode)))
    await session.say("hello")
    assert server.requests[0].system_text.count("Does what one does.") == 1
    assert "list_skills" not in server.requests[0].tool_names


@pytest.mark.behaviour(
    "optional",
    '`discovery_mode="search"`',
    google="search in a registry only",
    ours="no list; local skills are found by search",
)
async def test_search_mode_lists_nothing_and_finds_by_search(five: Path, says: Any, talk: Any) -> None:
    server = says(
        """
turns:
  - {when: {last_tool: search_skills}, text: found}
  - {call: {name: search_skills, args: {query: what three does}}}
"""
    )
    session = await talk(agent_with(server, lazily(five, discovery_mode=SkillDiscoveryMode.SEARCH)))
    events = await session.say("hello")
    assert "Does what" not in json.dumps(server.requests[0].body)
    assert "list_skills" not in server.requests[0].tool_names
    assert responses(events)[0]["skills"][0] == {"name": "three", "description": "Does what three does."}


@pytest.mark.behaviour(
    "same", "`tool_filter` without `list_skills`", ours="the catalogue in the instruction, with a `FutureWarning`"
)
async def test_a_filtered_list_puts_the_catalogue_into_the_instruction_as_google_adk_does(
    five: Path, says: Any, talk: Any
) -> None:
    server = says("turns: [{text: hi}]")
    session = await talk(agent_with(server, lazily(five, tool_filter=["load_skill"])))
    with pytest.warns(FutureWarning, match="Filtering out `list_skills`"):
        await session.say("hello")
    assert "Does what one does." in server.requests[0].system_text


@pytest.mark.behaviour(
    "better", "More local skills than a model reads", google="all in one answer", ours="pages, and a search"
)
@pytest.mark.requirement("S4-17")
async def test_a_catalogue_that_does_not_fit_is_listed_in_pages_and_searched(
    make_skill: Callable[..., Path], says: Any, talk: Any
) -> None:
    """S4-17."""
    for number in range(30):
        folder = make_skill(f"skill-{number:02d}", description=f"Does thing number {number}. " * 8)
    server = says(
        """
turns:
  - when: {last_tool: list_skills, tool_result_contains: "offset 10 lists on"}
    call: {name: list_skills, args: {offset: 10}}
  - when: {last_tool: list_skills}
    text: listed
  - {call: {name: list_skills, args: {}}}
"""
    )
    toolset = lazily(folder.parent, budget_tokens=900, limits=SkillLimits(list_skills=10))
    session = await talk(agent_with(server, toolset))
    events = await session.say("hello")
    pages = [str(answer) for answer in responses(events)]
    assert "skill-00" in pages[0]
    assert "skill-09" in pages[0]
    assert "20 more skills: search_skills(query) finds one" in pages[0]
    assert "skill-10" in pages[1]
    assert "skill-09" not in pages[1]
    assert "search_skills" in server.requests[0].tool_names
    assert "enum" not in server.requests[0].declaration("load_skill")["parameters_json_schema"]["properties"]


# Loading


@pytest.mark.requirement("C34", "C35")
async def test_loading_answers_with_body_base_files_and_usage(
    make_skill: Callable[..., Path], says: Any, talk: Any
) -> None:
    """C34, C35, GOOGLE_ADK row A2."""
    folder = make_skill(
        "one",
        files={
            "scripts/report.py": '"""Writes a report."""\nimport argparse\np = argparse.ArgumentParser()\n'
            'p.add_argument("source")\np.add_argument("--top", type=int)\np.add_argument("-v", "--verbose", '
            'action="store_true")\np.add_argument("--out", required=True)\n',
            "scripts/run.sh": "#!/bin/bash\n# Usage: run.sh FILE [FILE...]\necho hi\n",
            "scripts/tool.js": "// Converts a file to text.\nconsole.log(1)\n",
            "scripts/bin.dat": b"\0\1\2",
            "templates/letter.txt": "Dear",
            "evals/cases.yaml": "the answers that are expected",
            "scripts/__pycache__/report.cpython-311.pyc": b"\0",
        },
    )
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(folder.parent)))
    events = await session.say("load one")
    answer = responses(events)[0]
    assert answer["skill_name"] == "one"
    assert answer["instructions"] == "# Sample\n\nDo the thing."
    assert answer["base_directory"] == "/skill"
    assert answer["frontmatter"]["description"] == "Does a thing. Use it for tests."
    assert answer["files"] == [
        "scripts/bin.dat",
        "scripts/report.py: source [--top TOP] [--verbose] --out OUT — Writes a report.",
        "scripts/run.sh: run.sh FILE [FILE...]",
        "scripts/tool.js: Converts a file to text.",
        "templates/letter.txt",
    ]
    assert "<file>scripts/run.sh: run.sh FILE [FILE...]</file>" in server.requests[-1].system_text


@pytest.mark.behaviour(
    "optional", "`file_list=False`", google="no list of files", ours="answers with google-adk's keys only"
)
async def test_the_list_of_files_is_capped_and_can_be_left_out(
    make_skill: Callable[..., Path], says: Any, talk: Any
) -> None:
    folder = make_skill("one", files={f"references/{number:03d}.md": "x" for number in range(100)})
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(folder.parent)))
    answer = responses(await session.say("load one"))[0]
    assert (len(answer["files"]), answer["more_files"]) == (60, 40)
    assert "<!-- 40 more files are not listed -->" in server.requests[-1].system_text
    session = await talk(agent_with(server, lazily(folder.parent, file_list=False)))
    answer = responses(await session.say("load one"))[0]
    assert set(answer) == {"skill_name", "instructions", "frontmatter"}
    assert "skill_resources" not in server.requests[-1].system_text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "INVALID_ARGUMENTS"),
        ({"skill_name": ""}, "INVALID_ARGUMENTS"),
        ({"skill_name": None}, "INVALID_ARGUMENTS"),
        ({"skill_name": 3}, "INVALID_ARGUMENTS"),
        ({"skill_name": ["one"]}, "INVALID_ARGUMENTS"),
        ({"skill_name": "onee"}, "SKILL_NOT_FOUND"),
        ({"skill_name": "no\0ne"}, "SKILL_NOT_FOUND"),
        ({"skill_name": "../../etc/passwd"}, "SKILL_NOT_FOUND"),
        ({"skill_name": "x" * 1_000_000}, "SKILL_NOT_FOUND"),
    ],
)
@pytest.mark.parametrize("tool", ["load_skill", "unload_skill"])
async def test_bad_arguments_are_short_answers(
    five: Path, says: Any, talk: Any, tool: str, arguments: dict[str, Any], code: str
) -> None:
    # Two is loaded first, so that unload_skill is offered.
    server = says(
        f"""
turns:
  - {{when: {{user_contains: load two}}, call: {{name: load_skill, args: {{skill_name: two}}}}}}
  - {{when: {{user_contains: go}}, call: {{name: {tool}, args: {json.dumps(arguments)}}}}}
  - {{when: {{last_tool: load_skill}}, text: done}}
  - {{when: {{last_tool: {tool}}}, text: done}}
"""
    )
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load two")
    answer = responses(await session.say("go"))[-1]
    expected = "SKILL_NOT_ACTIVE" if tool == "unload_skill" and code == "SKILL_NOT_FOUND" else code
    assert answer["error_code"] == expected
    assert len(answer["error"]) <= 200
    assert str(five) not in json.dumps(answer)


@pytest.mark.behaviour("better", "An unknown skill", google="an error", ours="the nearest names as well")
async def test_an_unknown_name_gets_the_nearest(five: Path, says: Any, talk: Any) -> None:
    server = says(
        "turns:\n  - {when: {last_tool: load_skill}, text: done}\n"
        "  - {call: {name: load_skill, args: {skill_name: thre}}}\n"
    )
    session = await talk(agent_with(server, lazily(five)))
    answer = responses(await session.say("go"))[0]
    assert answer["error"] == "Skill 'thre' not found."
    assert answer["suggestions"][0] == "three"


async def test_skills_in_memory_work_like_skills_on_disk(says: Any, talk: Any) -> None:
    server = says(
        """
turns:
  - {when: {last_tool: run_skill_script}, text: done}
  - {when: {last_tool: load_skill}, call: {name: run_skill_script, args: {skill_name: one, file_path: go.py}}}
  - {call: {name: load_skill, args: {skill_name: one}}}
"""
    )
    toolset = SkillToolset([in_memory()], policy="trusted")
    session = await talk(agent_with(server, toolset))
    events = await session.say("go")
    assert responses(events)[1]["stdout"] == "one\n"
    assert bodies(server.requests[-1], "one") == {"one": 1}
    folder = toolset.runtime.source.listed()[0].local().skill_dir
    assert folder.is_dir()
    await toolset.close()
    assert not folder.exists()


@pytest.mark.behaviour("same", "`adk_inject_state`", ours="the state is put into the instructions")
async def test_the_state_is_put_into_the_instructions_where_the_skill_asks_for_it(says: Any, talk: Any) -> None:
    skill = in_memory(instructions="Hello {user_name}!", metadata={"adk_inject_state": True})
    server = says(LOADS)
    session = await talk(agent_with(server, SkillToolset([skill, in_memory("two", "Hello {user_name}!")])))
    service = session.runner.session_service
    stored = await service.create_session(app_name="tests", user_id="u", state={"user_name": "Alice"})
    session = Talk(session.runner, stored.id)
    await session.say("load one")
    assert "Hello Alice!" in server.requests[-1].system_text
    await session.say("load two")
    assert server.requests[-1].system_text.count("Hello {user_name}!") == 1


async def test_a_name_that_the_state_lacks_does_not_stop_the_skill(says: Any, talk: Any) -> None:
    skill = in_memory(instructions="Hello {nobody}!", metadata={"adk_inject_state": True})
    server = says(LOADS)
    session = await talk(agent_with(server, SkillToolset([skill])))
    await session.say("load one")
    assert "Hello {nobody}!" in server.requests[-1].system_text


@pytest.mark.behaviour(
    "better",
    "A tool that a skill asks for and nobody has",
    google="nothing is said",
    ours="the model is told that it does not exist",
)
@pytest.mark.requirement("S0-25")
async def test_a_skill_brings_its_tools_and_says_which_do_not_exist(says: Any, talk: Any) -> None:
    """S0-25, google-adk issue 6280."""

    def horn() -> str:
        """Blow the horn."""
        return "tuut"

    skill = in_memory(metadata={"adk_additional_tools": ["horn", "trumpet", "load_skill"]})
    server = says(LOADS)
    session = await talk(agent_with(server, SkillToolset([skill], additional_tools=[horn])))
    answer = responses(await session.say("load one"))[0]
    assert answer["missing_tools"] == ["trumpet", "load_skill"]
    assert ["horn" in request.tool_names for request in server.requests] == [False, True]
    await session.say("unload one")
    assert "horn" not in server.requests[-1].tool_names
    assert server.requests[1].tool_names.count("load_skill") == 1


@pytest.mark.requirement("S0-25")
async def test_a_skill_may_bring_google_adks_built_in_tools_by_name(says: Any, talk: Any) -> None:
    """S0-25. Seen: ``load_memory`` and ``google_search`` were missing tools; what the application gives comes first."""

    def load_memory() -> str:
        """Ours."""
        return "ours"

    skill = in_memory(metadata={"adk_additional_tools": ["load_memory", "exit_loop", "AgentTool", "trumpet"]})
    for given, is_googles in (([], True), ([load_memory], False)):
        server = says(LOADS)
        toolset = SkillToolset([skill], additional_tools=given)
        session = await talk(agent_with(server, toolset))
        answer = responses(await session.say("load one"))[0]
        assert answer["missing_tools"] == ["AgentTool", "trumpet"]
        assert {"load_memory", "exit_loop"} <= set(server.requests[1].tool_names)
        declared = str(server.requests[1].declaration("load_memory"))
        assert ("query" in declared) is is_googles  # google-adk's has an argument of that name


@pytest.mark.requirement("S0-13")
def test_the_time_of_a_script_is_google_adks_unless_somebody_gave_another() -> None:
    """S0-13: 300 s, but a policy's or an executor's own time holds, and None always takes theirs."""
    import inspect

    assert inspect.signature(SkillToolset).parameters["script_timeout"].default == 300

    def seconds(**settings: Any) -> tuple[float | None, float | None]:
        runtime = SkillToolset([in_memory()], sandbox="local", **settings).runtime
        return runtime.settings.policy.wall_seconds, runtime.script_timeout

    assert seconds() == (300, None)
    assert seconds(policy=SandboxPolicy(wall_seconds=7)) == (7, None)
    assert seconds(policy=SandboxPolicy(wall_seconds=7), script_timeout=300) == (7, 300)
    assert seconds(script_timeout=None) == (30, None)
    assert seconds(script_timeout=5) == (5, 5)


async def test_require_activation_keeps_files_and_scripts_back(five: Path, says: Any, talk: Any) -> None:
    """GOOGLE_ADK row A5."""
    server = says(
        """
turns:
  - {when: {last_tool: load_skill}, call: {name: load_skill_resource, args: {skill_name: one, file_path: guide.md}}}
  - when: {last_tool: load_skill_resource, tool_result: {error_code: SKILL_NOT_ACTIVE}}
    call: {name: run_skill_script, args: {skill_name: one, file_path: go.py}}
  - {when: {last_tool: run_skill_script}, call: {name: load_skill, args: {skill_name: one}}}
  - {when: {last_tool: load_skill_resource}, text: done}
  - {call: {name: load_skill_resource, args: {skill_name: one, file_path: guide.md}}}
"""
    )
    session = await talk(agent_with(server, lazily(five, require_activation=True)))
    answers = responses(await session.say("go"))
    assert [answer.get("error_code") for answer in answers] == ["SKILL_NOT_ACTIVE", "SKILL_NOT_ACTIVE", None, None]
    assert answers[-1]["content"] == "guide of one"


# Lifecycles


def lifecycle(mode: str, theirs_too: bool, **more: Any) -> Any:
    if theirs_too:
        return theirs.SkillLifecycleConfig(default_mode=theirs.SkillLifecycleMode(mode), **more)
    return SkillLifecycleConfig(default_mode=SkillLifecycleMode(mode), **more)


@pytest.mark.behaviour("same", "BOUNDED skills", ours="with google-adk's own classes too")
@pytest.mark.parametrize("theirs_too", [False, True])
async def test_bounded_releases_the_least_recently_loaded(five: Path, says: Any, talk: Any, theirs_too: bool) -> None:
    server = says(LOADS)
    config = lifecycle("bounded", theirs_too, max_active_skills=2)
    session = await talk(agent_with(server, lazily(five, lifecycle_config=config)))
    for name in ("one", "two", "one"):
        await session.say(f"load {name}")
    answer = responses(await session.say("load three"))[0]
    assert answer["unloaded_skills"] == ["two"]
    assert bodies(server.requests[-1], "one", "two", "three") == {"one": 1, "two": 0, "three": 1}


@pytest.mark.parametrize("theirs_too", [False, True])
async def test_ephemeral_is_released_with_the_turn(five: Path, says: Any, talk: Any, theirs_too: bool) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five, lifecycle_config=lifecycle("ephemeral", theirs_too))))
    answer = responses(await session.say("load one"))[0]
    assert "released at the end of the current turn" in answer["lifecycle_notice"]
    await session.say("hello")
    assert [bodies(request, "one")["one"] for request in server.requests] == [0, 1, 0]
    assert (await session.state())["_adk_activated_skill_assistant"] == []
    answer = responses(await session.say("load one"))[0]
    assert "instructions" in answer
    assert "unloaded_skills" not in answer


async def test_a_disabled_lifecycle_keeps_everything(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    config = SkillLifecycleConfig(enabled=False, default_mode=SkillLifecycleMode.EPHEMERAL)
    session = await talk(agent_with(server, lazily(five, lifecycle_config=config)))
    await session.say("load one")
    await session.say("hello")
    assert bodies(server.requests[-1], "one") == {"one": 1}


# Sessions


@pytest.mark.behaviour("same", "Sessions begun with google-adk's toolset", ours="go on")
async def test_a_session_that_google_adks_toolset_began_goes_on(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    service = session.runner.session_service
    state = {"_adk_activated_skill_assistant": ["one", "unknown"]}
    stored = await service.create_session(app_name="tests", user_id="u", state=state)
    session = Talk(session.runner, stored.id)
    await session.say("hello")
    assert bodies(server.requests[-1], "one") == {"one": 1}
    await session.say("unload one")
    assert (await session.state())["_adk_activated_skill_assistant"] == ["unknown"]


async def test_two_toolsets_of_one_agent_keep_out_of_each_others_way(
    five: Path, make_skill: Callable[..., Path], tmp_path: Path, says: Any, talk: Any
) -> None:
    other = make_skill("six", body="BODY-OF-six-IN-FORCE", root=tmp_path / "others").parent
    server = says(
        """
turns:
  - {when: {user_contains: "load six"}, call: {name: other_load_skill, args: {skill_name: six}}}
  - {when: {user_contains: "load one"}, call: {name: load_skill, args: {skill_name: one}}}
  - {when: {last_tool: other_load_skill}, text: loaded}
  - {when: {last_tool: load_skill}, text: loaded}
  - {text: fine}
"""
    )
    agent = agent_with(server, lazily(five))
    agent.tools.append(lazily(other, tool_name_prefix="other"))
    session = await talk(agent)
    await session.say("load one")
    await session.say("load six")
    await session.say("hello")
    assert bodies(server.requests[-1], "one", "six") == {"one": 1, "six": 1}
    assert (await session.state())["_adk_activated_skill_assistant"] == ["one", "six"]


@pytest.mark.behaviour("better", "An agent with a `state_schema`", google="loading a skill ends the run", ours="works")
async def test_an_agent_with_a_state_schema_can_load_skills(five: Path, says: Any, talk: Any) -> None:
    """google-adk's own key is refused by a schema that does not name it; ours are not."""

    class Schema(BaseModel):
        topic: str = ""

    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five), state_schema=Schema))
    await session.say("load one")
    await session.say("hello")
    assert bodies(server.requests[-1], "one") == {"one": 1}


@pytest.mark.behaviour("same", "A stale session in a database", ours="`StaleSessionError`; what was committed stays")
async def test_with_a_database_a_stale_session_is_an_error_and_what_was_committed_stays(
    five: Path, says: Any, tmp_path: Path
) -> None:
    """GOOGLE_ADK row 13."""
    server = says(LOADS)
    runner = Runner(
        app_name="tests",
        agent=agent_with(server, lazily(five)),
        session_service=SqliteSessionService(str(tmp_path / "sessions.db")),
    )
    session = await Talk.start(runner)
    await session.say("load one")
    outcomes = await asyncio.gather(session.say("load two"), session.say("load three"), return_exceptions=True)
    failed = [type(outcome).__name__ for outcome in outcomes if isinstance(outcome, BaseException)]
    assert set(failed) <= {"StaleSessionError"}
    await session.say("hello")
    active = set((await session.state())["_adk_activated_skill_assistant"])
    assert "one" in active
    assert bodies(server.requests[-1], "one", "two", "three") == {
        name: int(name in active) for name in ("one", "two", "three")
    }
    assert len(active) == 3 - len(failed)
    await runner.close()


# A registry of google-adk's


class Remote(SkillRegistry):
    """Skills from elsewhere; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wait = asyncio.Event()
        self.wait.set()
        self.broken = False

    async def get_skill(self, *, name: str) -> models.Skill:
        self.asked.append(name)
        await self.wait.wait()
        if self.broken or name != "far":
            raise LookupError(f"no skill {name}" + "!" * 1000)
        return in_memory("far", "BODY-OF-far-IN-FORCE")

    async def search_skills(self, *, query: str) -> list[models.Frontmatter]:
        if self.broken:
            raise ConnectionError("down")
        return [in_memory("far").frontmatter, in_memory("one").frontmatter]


FAR = LOADS.replace(
    "turns:",
    """turns:
  - {when: {user_contains: "load far"}, call: {name: load_skill, args: {skill_name: far}}}
  - {when: {user_contains: "load gone"}, call: {name: load_skill, args: {skill_name: gone}}}
  - {when: {user_contains: "search"}, call: {name: search_skills, args: {query: far}}}
  - {when: {last_tool: search_skills}, text: found}
""",
    1,
)


@pytest.mark.behaviour("same", "Registry skills", ours="fetched once a turn")
async def test_a_registry_skill_is_fetched_once_a_turn(says: Any, talk: Any) -> None:
    remote = Remote()
    server = says(FAR)
    session = await talk(agent_with(server, SkillToolset([in_memory()], registry=remote)))
    await session.say("load far")
    assert remote.asked == ["far"]
    await session.say("hello")
    assert remote.asked == ["far", "far"]
    assert bodies(server.requests[-1], "far") == {"far": 1}


async def test_what_a_registry_finds_leaves_out_local_names(says: Any, talk: Any) -> None:
    server = says(FAR)
    session = await talk(agent_with(server, SkillToolset([in_memory()], registry=Remote())))
    found = responses(await session.say("search"))[0]
    assert [skill["name"] for skill in found["result"]] == ["far"]


async def test_a_broken_registry_is_a_short_answer_and_ends_no_activation(says: Any, talk: Any) -> None:
    remote = Remote()
    server = says(FAR)
    session = await talk(agent_with(server, SkillToolset(registry=remote)))
    await session.say("load far")
    remote.broken = True
    for question in ("load gone", "search"):
        answer = responses(await session.say(question))[0]
        assert answer["error_code"] == "REGISTRY_ERROR"
        assert len(answer["error"]) <= 200
        assert bodies(server.requests[-1], "far") == {"far": 1}


@pytest.mark.behaviour(
    "better",
    "Cancelling one of two callers of a registry",
    google="the other waits for ever",
    ours="the other gets its skill",
)
async def test_a_cancelled_caller_does_not_take_the_answer_from_the_others() -> None:
    remote = Remote()
    remote.wait.clear()
    source = SkillToolset(registry=remote).runtime.source
    first = asyncio.create_task(source.get("far", "turn"))
    second = asyncio.create_task(source.get("far", "turn"))
    await asyncio.sleep(0)
    first.cancel()
    remote.wait.set()
    found = await second
    assert found is not None
    assert found.name == "far"
    assert remote.asked == ["far"]


@pytest.mark.requirement("S2-13")
async def test_the_size_of_the_cache_is_a_limit() -> None:
    """S2-13."""
    remote = Remote()
    source = SkillToolset(registry=remote, limits=SkillLimits(cache_turns=2)).runtime.source
    for turn in ("a", "b", "c", "c", "b", "a"):
        await source.get("far", turn)
    assert remote.asked == ["far"] * 4  # a, b, c, and a again


# Without the model


async def test_an_application_loads_and_unloads_skills_itself(five: Path, says: Any, talk: Any) -> None:
    toolset = lazily(five)
    seen: list[Any] = []

    async def before(callback_context: Any) -> None:
        seen.append(await toolset.load_skill(callback_context, "one"))
        seen.append(await toolset.load_skill(callback_context, "one"))
        seen.append(toolset.list_active_skills(callback_context))
        seen.append(toolset.unload_skill(callback_context, "two"))
        with pytest.raises(ValueError, match="Skill 'none' not found"):
            await toolset.load_skill(callback_context, "none")

    server = says(LOADS)
    session = await talk(agent_with(server, toolset, before_agent_callback=before))
    await session.say("hello")
    assert seen == [True, False, ["one"], False]
    assert bodies(server.requests[-1], "one") == {"one": 1}
    assert (await session.state())["_adk_activated_skill_assistant"] == ["one"]
