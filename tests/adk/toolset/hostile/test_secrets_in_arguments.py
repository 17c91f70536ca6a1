"""A secret that a model writes into an argument is in no answer, no event and no log, however an error quotes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google_skills import Answering, answers, call, in_turn, skill
from toolset_agents import agent_with

from adk_skills_agent import Secret, SkillToolset

VALUE = "tok-9f8e7d6c5b4a-hunter2-xyz"
BEFORE = (64, 84, 104)
"""How far into an argument it begins: wherever a sentence is cut, half of it must not be left."""


def asked(text: str) -> list[Any]:
    return [
        call("load_skill", skill_name=text),
        call("load_skill", skill_name=f"far/{text}"),
        call("unload_skill", skill_name=text),
        call("load_skill_resource", skill_name="one", file_path=f"references/{text}"),
        call("load_skill_resource", skill_name="one", file_path=f"/{text}"),
        call("load_skill_resource", skill_name=text, file_path="references/guide.md"),
        call("load_skill_resource", skill_name="one", file_path="references/guide.md", offset=text),
        call("run_skill_script", skill_name="one", file_path=f"scripts/{text}"),
        call("run_skill_script", skill_name="one", file_path=f"scripts/{text}.py"),
        call("run_skill_script", skill_name="one", file_path="scripts/go.py", args=f"'{text}"),
        call("run_skill_script", skill_name=text, file_path="scripts/go.py"),
        call("list_skills", offset=text),
        call("search_skills", query=text),
    ]


@pytest.mark.parametrize("number", range(len(asked(""))))
async def test_what_an_error_quotes_is_redacted_before_it_is_cut(
    number: int, rehearse: Any, talk: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Quoting(Answering):
        async def get_skill(self, *, name: str) -> Any:
            raise ConnectionError(f"no route to {name}") if name.startswith("far/") else KeyError(name)

        async def search_skills(self, *, query: str) -> Any:
            raise ConnectionError(f"no route for {query}")

    told: list[Any] = []
    log = tmp_path / "audit.jsonl"
    got = []
    for before in BEFORE:
        text = "x" * before + VALUE + "y" * 40
        toolset = SkillToolset(
            [skill("one")],
            registry=Quoting() if number in {1, 12} else None,
            policy="trusted",
            grants={"one": {"TOKEN": Secret(VALUE)}},
            on_event=told.append,
            audit_log=log,
        )
        server = rehearse(in_turn(asked(text)[number]))
        got += answers(await (await talk(agent_with(server, toolset))).say("go"))
        await toolset.close()
    assert len(got) == len(BEFORE)
    said = json.dumps(got) + repr(told) + log.read_text() + caplog.text
    # As much of it as nobody would write by chance, from its beginning or its end.
    assert VALUE[:8] not in said
    assert VALUE[-8:] not in said
    assert all(len(str(one.get("error", ""))) <= 200 for one in got if isinstance(one, dict))
