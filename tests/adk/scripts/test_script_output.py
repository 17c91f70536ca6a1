"""Output of a running script reaches a listener that asked while the script runs, bounded and without secrets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent

from adk_skills_agent import ScriptFinished, ScriptOutput, ScriptStarted, Secret, SkillToolset

SLOW = """
import sys, time
print("first", flush=True)
time.sleep(0.8)
print("half é way", flush=True)
print("a warning", file=sys.stderr, flush=True)
time.sleep(0.8)
print("last", end="")
"""
FLOOD = "import sys\nfor number in range(20_000):\n    print('line', number)\n"
LEAK = """
import os, time
key = os.environ["KEY"]
print(key[:9], end="", flush=True)
time.sleep(0.4)
print(key[9:])
"""


class Listener:
    output = True

    def __init__(self) -> None:
        self.events: list[tuple[float, Any]] = []

    def __call__(self, event: Any) -> None:
        self.events.append((time.monotonic(), event))

    def texts(self, stream: str = "stdout") -> list[str]:
        return [one.text for _, one in self.events if isinstance(one, ScriptOutput) and one.stream == stream]


async def run(
    script: str, make_skill: Callable[..., Path], rehearse: Any, ask: Any, *listeners: Any, **settings: Any
) -> dict[str, Any]:
    folder = make_skill("slow", files={"scripts/run.py": script}).parent
    args = {"skill_name": "slow", "file_path": "run.py"}
    server = rehearse(json.dumps({"turns": [{"call": {"name": "run_skill_script", "args": args}}, {"text": "ok"}]}))
    skills = SkillToolset.from_dirs([folder], on_event=listeners, **settings)
    answered = await ask(LlmAgent(name="assistant", model=server.model(), tools=[skills]), "Run it")
    return dict(answered.results[0][1])


async def test_output_comes_while_the_script_runs_and_only_to_who_asked(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, tmp_path: Path
) -> None:
    listener, plain = Listener(), []
    audit = tmp_path / "audit.jsonl"
    answer = await run(SLOW, make_skill, rehearse, ask, listener, plain.append, audit_log=audit)
    assert listener.texts() == ["first\n", "half é way\n", "last"]
    assert listener.texts("stderr") == ["a warning\n"]
    assert "".join(listener.texts()) == answer["stdout"]
    times = {type(event): at for at, event in reversed(listener.events)}
    first = next(at for at, event in listener.events if isinstance(event, ScriptOutput))
    assert first < times[ScriptFinished] - 0.7
    (started,) = [event for _, event in listener.events if isinstance(event, ScriptStarted)]
    assert {event.run for _, event in listener.events if isinstance(event, ScriptOutput)} == {started.run}
    assert not [event for event in plain if isinstance(event, ScriptOutput)]
    assert "half" not in audit.read_text()


async def test_a_flood_is_a_few_events_and_ends_at_a_bound(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    listener = Listener()
    await run(FLOOD, make_skill, rehearse, ask, listener)
    texts = listener.texts()
    assert sum(map(len, texts)) == 64 << 10
    assert len(texts) < 80
    assert [event.last for _, event in listener.events if isinstance(event, ScriptOutput)].count(True) == 1


async def test_a_secret_that_comes_in_two_pieces_is_in_no_event(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    listener = Listener()
    await run(LEAK, make_skill, rehearse, ask, listener, env={"KEY": Secret("hunter2-hunter2-hunter2")})
    assert "".join(listener.texts()) == "[secret KEY]\n"
