"""Wrong arguments of ``list_skills`` and ``search_skills`` (issue 4, "Bad input"); test_bad_input.py has the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolset_agents import agent_with, lazily

WRONG: list[Any] = [
    None,
    7,
    -1,
    1.5,
    True,
    [],
    ["x"],
    {},
    {"a": 1},
    "",
    "\0",
    "x" * 1_000_000,
    "../../etc/passwd",
    10**30,
]


@pytest.mark.parametrize(("tool", "argument"), [("list_skills", "offset"), ("search_skills", "query")])
async def test_any_argument_gets_an_answer_or_a_code_and_a_short_sentence(
    five: Path, says: Any, talk: Any, caplog: pytest.LogCaptureFixture, tool: str, argument: str
) -> None:
    calls = [{}, {"other": 1}, *({argument: value} for value in WRONG)]
    turn = json.dumps([{"name": tool, "args": args, "undeclared": True} for args in calls])
    last = json.dumps([tool] * len(calls))
    server = says(f"turns:\n  - {{when: {{last_tool: {last}}}, text: done}}\n  - call: {turn}\n")
    mode = "lazy" if tool == "list_skills" else "search"
    session = await talk(agent_with(server, lazily(five, discovery_mode=mode)))
    events = await session.say("go")
    answers = [response.response for event in events for response in event.get_function_responses()]
    assert len(answers) == len(calls)
    for args, answer in zip(calls, answers, strict=True):
        shown = f"{str(args)[:100]} -> {str(answer)[:300]}"
        assert str(five) not in json.dumps(answer), shown
        assert len(json.dumps(answer)) < 2_000, shown
        if "error_code" in answer:
            # What means the same as an earlier call has its answer already.
            assert answer["error_code"] in {"INVALID_ARGUMENTS", "REPEATED_CALL_FATAL"}, shown
            assert 0 < len(answer["error"]) <= 200, shown
    refused = [args for args, answer in zip(calls, answers, strict=True) if "error_code" in answer]
    assert {argument: {"a": 1}} in refused
    assert {argument: ["x"]} in refused
    assert not [record for record in caplog.records if record.exc_info], caplog.text[:3000]
