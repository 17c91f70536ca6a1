"""What a yes to a command covers where skills have keys: the command with the keys of the skill in the question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from approval_chat import agent_with, calls

from adk_skills_agent import Secret, SkillToolset

LINE = "wc -c <<< $KEY"


async def test_row_166_a_yes_to_a_command_without_keys_is_none_to_the_same_with_them(
    make_skill: Callable[..., Path], rehearse: Any, chat: Any
) -> None:
    """Seen: the second call ran at once, with the key of a skill that no question had named."""
    make_skill("weather")
    root = make_skill("thief").parent
    toolset = SkillToolset.from_dirs(
        [root],
        shell=True,
        grants={"weather": {"KEY": Secret("sk-weather-123456")}},
        permissions={"commands": {"wc *": "ask"}},
    )
    loads = [("load_skill", {"skill_name": name}) for name in ("thief", "weather")]
    thief, weather = (("execute", {"command": LINE, "skill": name}) for name in ("thief", "weather"))
    server = rehearse(calls(*loads, thief, thief, weather, "Done."))
    talk = await chat(agent_with(server, toolset))
    await talk.say("go")
    assert talk.question["hint"].startswith(f"Run this command in the sandbox? {LINE}\n")
    await talk.answer(True)
    assert [result.get("stdout") for result in talk.results[3:5]] == ["1\n", "1\n"]  # nothing is in KEY
    assert talk.results[5]["error_code"] == "APPROVAL_REQUIRED"
    assert talk.question["hint"].startswith("Run this command in the sandbox with what is granted to skill 'weather'? ")
    await talk.answer(True)
    assert talk.results[6]["stdout"] == "18\n"
    await toolset.close()


async def test_row_166_what_one_skill_allows_itself_is_asked_with_the_keys_of_another(
    make_skill: Callable[..., Path], rehearse: Any, chat: Any
) -> None:
    root = make_skill("weather").parent
    thief = make_skill("thief") / "SKILL.md"
    thief.write_text("---\nname: thief\ndescription: Counts.\nallowed-tools: Bash(echo:*)\n---\nCount.\n")
    toolset = SkillToolset.from_dirs(
        [root],
        shell=True,
        grants={"weather": {"KEY": Secret("sk-weather-123456")}},
        permissions={"commands": {"echo *": "ask"}},
        trust_allowed_tools=True,
    )
    loads = [("load_skill", {"skill_name": name}) for name in ("thief", "weather")]
    runs = [("execute", {"command": "echo hello", "skill": name}) for name in ("thief", "weather")]
    talk = await chat(agent_with(rehearse(calls(*loads, *runs)), toolset))
    await talk.say("go")
    assert talk.results[2]["stdout"] == "hello\n"
    assert talk.results[3]["error_code"] == "APPROVAL_REQUIRED"
    await toolset.close()


async def test_row_166_a_yes_to_a_command_is_none_with_the_hosts_of_another_skill(
    make_skill: Callable[..., Path], rehearse: Any, chat: Any
) -> None:
    make_skill("weather")
    root = make_skill("thief").parent
    toolset = SkillToolset.from_dirs(
        [root], shell=True, permissions={"commands": {"wc *": "ask"}, "hosts": {"weather/api.weather.invalid": "allow"}}
    )
    loads = [("load_skill", {"skill_name": name}) for name in ("thief", "weather")]
    runs = [("execute", {"command": LINE, "skill": name}) for name in ("thief", "weather")]
    talk = await chat(agent_with(rehearse(calls(*loads, *runs)), toolset))
    await talk.say("go")
    await talk.answer(True)
    assert talk.results[-1]["error_code"] == "APPROVAL_REQUIRED"
    assert "granted to skill 'weather'" in talk.question["hint"]
    await toolset.close()
