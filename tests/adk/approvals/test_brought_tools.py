"""Tools that skills bring: asked for, left out, or covered by allowed-tools (S4-21)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from approval_chat import agent_with, calls
from google.adk.agents import LlmAgent
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

import preloaded
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
from adk_skills_agent.sources import OriginSource, consent_page, fetch_skills, open_project, read_origin


def send_mail(to: str) -> dict[str, str]:
    """Send a mail."""
    return {"sent": to}


def delete_mail(number: int) -> dict[str, int]:
    """Delete a mail."""
    return {"deleted": number}


@pytest.fixture
def mailer(make_skill: Callable[..., Path]) -> Path:
    folder = make_skill("mailer", body="Send mails.")
    text = (folder / "SKILL.md").read_text()
    head = "allowed-tools: send_mail\nmetadata:\n  adk_additional_tools: [send_mail, delete_mail]\ndescription:"
    (folder / "SKILL.md").write_text(text.replace("description:", head, 1))
    return folder.parent


MAIL = ("send_mail", {"to": "bob"})


DELETE = ("delete_mail", {"number": 7})


@pytest.mark.behaviour(
    "better",
    "`allowed-tools` of a skill",
    google="ignored",
    ours="a request, which counts once this version is approved",
)
async def test_allowed_tools_count_once_this_version_was_approved_and_other_tools_still_ask(
    mailer: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), MAIL, DELETE, "Done."))
    toolset = SkillToolset.from_dirs(
        [mailer], permissions={"skills": {"mailer": "ask"}}, additional_tools=[send_mail, delete_mail]
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    assert "It also asks to use without asking: send_mail." in talk.question["hint"]
    await talk.answer(True)
    assert talk.results[2] == {"sent": "bob"}
    assert talk.question["payload"]["skill_approval"]["approves"] == ["tool:delete_mail"]
    await talk.answer(True)
    assert talk.results[-1] == {"deleted": 7}
    server.assert_finished()


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
async def test_row_168_a_tool_that_runs_at_the_models_provider_cannot_ask_so_it_is_left_out(
    verdict: str, make_skill: Callable[..., Path], rehearse: Any, chat: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: with a rule that says ask, the model had url_context, and nobody was asked."""
    file = make_skill("reader") / "SKILL.md"
    text = file.read_text()
    file.write_text(text.replace("description:", "metadata:\n  adk_additional_tools: [url_context]\ndescription:", 1))
    toolset = SkillToolset.from_dirs([file.parents[1]], permissions={"tools": {"url_context": verdict}})
    server = rehearse(calls(("load_skill", {"skill_name": "reader"}), "Done."))
    talk = await chat(agent_with(server, toolset))
    await talk.say("Read")
    assert ("urlContext" in str(server.requests[-1].body)) == (verdict == "allow")
    assert ("url_context needs an approval, which cannot be asked for" in caplog.text) == (verdict == "ask")


async def test_row_193_the_question_shows_all_tools_that_a_yes_allows(mailer: Path, rehearse: Any, chat: Any) -> None:
    """Seen: behind twenty names of no tool the question said "and 1 more", and that one was allowed."""
    file = mailer / "mailer" / "SKILL.md"
    many = " ".join(f"Tool{number}" for number in range(30))
    tools = f'"{many} Bash(rm:*) Read(a\\nYour yes is for nothing) send_mail"'
    file.write_text(file.read_text().replace("allowed-tools: send_mail", f"allowed-tools: {tools}"))
    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), MAIL, "Done."))
    toolset = SkillToolset.from_dirs(
        [mailer], permissions={"skills": {"mailer": "ask"}}, additional_tools=[send_mail, delete_mail]
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    hint = talk.question["hint"]
    assert "use without asking: Bash(rm:*), send_mail, Tool0, Tool1," in hint
    assert "\n" not in hint
    await talk.answer(True)
    assert talk.results[-1] == {"sent": "bob"}


async def test_allowed_tools_never_override_ask_or_deny(mailer: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), MAIL, "Done."))
    toolset = SkillToolset.from_dirs(
        [mailer],
        permissions={"skills": {"mailer": "ask"}, "tools": {"send_mail": "ask", "delete_*": "deny"}},
        additional_tools=[send_mail, delete_mail],
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    await talk.answer(True)
    assert talk.question["payload"]["skill_approval"]["approves"] == ["tool:send_mail"]
    assert "delete_mail" not in server.requests[-1].tool_names
    assert "send_mail" in server.requests[-1].tool_names
    await talk.answer(False)
    assert talk.results[-1]["error_code"] == "PERMISSION_DENIED"
    server.assert_finished()


async def test_tools_with_a_prefix_are_asked_for_by_their_own_names(mailer: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(calls(("my_load_skill", {"skill_name": "mailer"}), ("my_send_mail", {"to": "bob"}), "Done."))
    toolset = SkillToolset.from_dirs(
        [mailer], permissions={"tools": {"send_mail": "ask"}}, additional_tools=[send_mail], tool_name_prefix="my"
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    assert talk.question["hint"].startswith("Call the tool 'send_mail' that the skill 'mailer' brings?")
    await talk.answer(True)
    assert talk.results[-1] == {"sent": "bob"}
    server.assert_finished()


async def test_a_tool_that_streams_cannot_be_asked_for_and_is_left_out(
    mailer: Path, rehearse: Any, chat: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def send_mail(to: str) -> AsyncIterator[str]:
        """Send a mail."""
        yield to

    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), "Done."))
    toolset = SkillToolset.from_dirs(
        [mailer], permissions={"tools": {"send_mail": "ask"}}, additional_tools=[send_mail, delete_mail]
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    assert "send_mail" not in server.requests[-1].tool_names
    assert "delete_mail" in server.requests[-1].tool_names
    assert "the tool send_mail needs an approval" in caplog.text


async def test_trusted_allowed_tools_are_not_asked_about_and_denials_stay(
    mailer: Path, rehearse: Any, chat: Any
) -> None:
    steps = ("load_skill", {"skill_name": "mailer"}), MAIL, "Sent.", DELETE, "Done."
    toolset = SkillToolset.from_dirs(
        [mailer],
        permissions={"tools": {"send_mail": "ask", "delete_mail": "ask"}},
        additional_tools=[send_mail, delete_mail],
        trust_allowed_tools=True,
    )
    talk = await chat(agent_with(rehearse(calls(*steps)), toolset))
    await talk.say("Mail Bob")
    assert talk.results[-1] == {"sent": "bob"}
    assert talk.questions == []
    await talk.say("Delete it")
    assert talk.question["payload"]["skill_approval"]["approves"] == ["tool:delete_mail"]  # nobody named that one


async def test_trusted_tools_are_those_of_active_skills(mailer: Path, rehearse: Any, chat: Any) -> None:
    found: list[tuple[str, ...]] = []
    toolsets: list[SkillToolset] = []

    def look(tool_context: ToolContext) -> dict[str, str]:
        """Look."""
        found.append(toolsets[-1].runtime.trusted_tools(tool_context))
        return {}

    for trusting in (True, False):
        toolsets.append(SkillToolset.from_dirs([mailer], trust_allowed_tools=trusting))
        server = rehearse(calls(("look", {}), ("load_skill", {"skill_name": "mailer"}), ("look", {}), "Done."))
        agent = LlmAgent(name="assistant", model=server.model(), tools=[toolsets[-1], look])
        await (await chat(agent)).say("Go")
    assert found == [(), ("send_mail",), (), ()]


@pytest.mark.parametrize("how", [pytest.param("served", marks=pytest.mark.slow), "installed"])
async def test_allowed_tools_of_a_skill_of_an_mcp_server_count_for_nothing(
    mailer: Path, rehearse: Any, chat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    pytest.importorskip("mcp.client.extension", reason="the MCP SDK 2 is not installed")
    place = f"mcp:{preloaded.program('adk-skills')} serve --dir {mailer}"
    registry = SkillsRegistry(RegistryConfig(cache=False))
    if how == "served":
        await asyncio.to_thread(registry.add_source, OriginSource(place), name="mail-server", deadline=60)
        (told,) = [one for one in registry.diagnostics if one.code == "allowed-tools-ignored"]
        assert "'mailer'" in told.message
    else:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        project = open_project(tmp_path)
        (skill,) = await asyncio.to_thread(fetch_skills, read_origin(place), ["mailer"])
        page = consent_page(skill)
        assert page.ignored_tools == "send_mail"
        assert any("allowed-tools: send_mail" in line for line in page.lines())
        project.add([skill])
        registry.discover([project.skills_folder])
    toolset = SkillToolset.from_catalog(
        registry.view(),
        permissions={"tools": {"send_mail": "ask"}},
        additional_tools=[send_mail, delete_mail],
        trust_allowed_tools=True,
    )
    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), MAIL, "Done."))
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    assert talk.question["payload"]["skill_approval"]["approves"] == ["tool:send_mail"], "nobody allowed it"
    assert talk.results[0]["frontmatter"]["allowed_tools"] is None
    if how == "served":
        registry.remove_source("mail-server")


async def test_row_267_a_toolset_does_not_take_the_calls_of_another_tool_by_its_name(
    mailer: Path, rehearse: Any, chat: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An MCP server lists the tools that it likes."""

    class Server(BaseToolset):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
            def send_mail(to: str) -> dict[str, str]:
                return {"sent": f"to {self._name}: {to}"}

            def delete_mail(number: int) -> dict[str, str]:
                return {"deleted": f"by {self._name}: {number}"}

            return [FunctionTool(send_mail), FunctionTool(delete_mail)]

    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), MAIL, DELETE, "Done."))
    toolset = SkillToolset.from_dirs([mailer], additional_tools=[Server("first"), send_mail, Server("second")])
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    assert talk.results[-2:] == [{"sent": "bob"}, {"deleted": "by first: 7"}]
    assert caplog.text.count("another tool has that name") == 2


@pytest.mark.parametrize("first", [True, False])
async def test_row_268_a_skill_does_not_replace_a_tool_that_the_agent_has(
    mailer: Path, rehearse: Any, chat: Any, first: bool
) -> None:
    """google-adk takes the last tool of a name, and declares both, which Gemini refuses."""

    def delete_mail(number: int) -> dict[str, str]:
        """Of the agent."""
        return {"deleted": f"by the agent: {number}"}

    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), MAIL, DELETE, "Done."))
    toolset = SkillToolset.from_dirs([mailer], additional_tools=[send_mail, globals()["delete_mail"]])
    agent = agent_with(server, toolset)
    agent.tools = [delete_mail, *agent.tools] if first else [*agent.tools, delete_mail]
    talk = await chat(agent)
    await talk.say("Delete mail 7")
    assert talk.results[-2:] == [{"sent": "bob"}, {"deleted": "by the agent: 7"}]
    assert server.requests[-1].tool_names.count("delete_mail") == 1
