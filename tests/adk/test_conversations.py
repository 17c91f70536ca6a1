"""``run()``: one question without async, from a script, a notebook's running loop, a thread (issue 17, item 3)."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent

import preloaded
from adk_skills_agent import SkillToolset, run
from adk_skills_agent.errors import ConfigError, InvalidArguments

COUNTS = """
import pathlib
seen = pathlib.Path("count.txt")
number = int(seen.read_text()) + 1 if seen.exists() else 1
seen.write_text(str(number))
print("run number", number)
"""


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    return make_skill("counter", files={"scripts/count.py": COUNTS}).parent


def turns(*steps: str) -> str:
    """A conversation: ``"count"`` runs the script, anything else is said."""
    call = {"name": "run_skill_script", "args": {"skill_name": "counter", "file_path": "scripts/count.py"}}
    return json.dumps({"turns": [{"call": call} if step == "count" else {"text": step} for step in steps]})


def counter(server: Any, skills: Path) -> LlmAgent:
    return LlmAgent(name="counter", model=server.model(), tools=[SkillToolset.from_dirs([skills])])


def outputs(answer: Any) -> list[str]:
    return [
        response.response["stdout"].strip() for event in answer.events for response in event.get_function_responses()
    ]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "adk-skills-conversation"]


def test_one_question_gets_its_answer_files_and_events(skills: Path, rehearse: Any) -> None:
    server = rehearse(turns("count", "It was the first."))
    seen: list[Any] = []
    with run(counter(server, skills), "Count.", on_event=seen.append) as answer:
        assert str(answer) == answer.text == "It was the first."
        assert outputs(answer) == ["run number 1"]
        assert answer.files == {"count.txt": b"1"}
        assert list(answer.events) == seen
        assert answer.errors == ()
    server.assert_finished()
    assert threads() == []


async def test_it_works_where_a_loop_is_running_and_a_conversation_goes_on(skills: Path, rehearse: Any) -> None:
    server = rehearse(turns("count", "one", "count", "two"))
    agent = counter(server, skills)
    assert asyncio.get_running_loop().is_running()
    first = run(agent, "Count.")
    second = run(agent, "Again.", after=first)
    assert (first.text, second.text) == ("one", "two")
    assert outputs(second) == ["run number 2"]  # the workspace is that of the session
    first.close()
    with pytest.raises(ConfigError, match="conversation was closed"):
        run(agent, "More.", after=second)


def test_conversations_of_one_agent_are_apart_and_end_with_their_answers(skills: Path, rehearse: Any) -> None:
    server = rehearse(turns("count", "a"), turns("count", "b"), turns("count", "c"))
    agent = counter(server, skills)
    answers = [run(agent, question) for question in ("first", "second", "third")]
    assert [outputs(answer) for answer in answers] == [["run number 1"]] * 3
    assert len(threads()) == 3
    del answers
    gc.collect()
    assert threads() == []


def test_files_of_this_machine_go_with_the_question(skills: Path, rehearse: Any, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    server = rehearse(turns("count", "done"))
    with run(counter(server, skills), "Count.", files=[tmp_path / "data.csv"]) as answer:
        assert answer.text == "done"
    assert "uploads/data.csv" in json.dumps(server.requests[0].body)
    with pytest.raises(InvalidArguments, match=r"gone\.csv cannot be read: No such file"):
        run(counter(server, skills), "Count.", files=[tmp_path / "gone.csv"])


def test_the_answer_of_another_agent_is_refused(skills: Path, rehearse: Any) -> None:
    server = rehearse(turns("one"))
    with (
        run(counter(server, skills), "Hello.") as answer,
        pytest.raises(ConfigError, match="an answer of another agent"),
    ):
        run(counter(server, skills), "Hello.", after=answer)


def test_what_the_agent_raises_comes_out_and_leaves_no_thread(skills: Path, rehearse: Any) -> None:
    def fails(callback_context: Any) -> None:
        raise ZeroDivisionError("of the agent")

    agent = counter(rehearse(turns("never")), skills)
    agent.before_agent_callback = fails
    with pytest.raises(ZeroDivisionError, match="of the agent"):
        run(agent, "Hello.")
    gc.collect()
    assert threads() == []


def test_a_program_that_closes_nothing_ends_at_once_and_leaves_nothing(skills: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "from google.adk.agents import LlmAgent\n"
        "from adk_skills_agent import SkillToolset, run\n"
        "from adk_skills_agent.testing import GeminiServer, parse_conversation\n"
        "with GeminiServer([parse_conversation(sys.argv[2])]) as server:\n"
        "    toolset = SkillToolset.from_dirs([sys.argv[1]])\n"
        "    answer = run(LlmAgent(name='a', model=server.model(), tools=[toolset]), 'Count.')\n"
        "    print(answer)\n"
    )
    done = subprocess.run(
        [preloaded.program("python"), program, skills, turns("count", "fine")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_the_question_and_its_script(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    skill = make_skill("sleeper", files={"scripts/sleep.py": "import time\ntime.sleep(600)\n"})
    call = {"name": "run_skill_script", "args": {"skill_name": "sleeper", "file_path": "scripts/sleep.py"}}
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from google.adk.agents import LlmAgent\n"
        "from adk_skills_agent import ScriptStarted, SkillToolset, run\n"
        "from adk_skills_agent.testing import GeminiServer, parse_conversation\n"
        "def told(event):\n"
        "    if isinstance(event, ScriptStarted):\n"
        "        print('started', flush=True)\n"
        "with GeminiServer([parse_conversation(sys.argv[2])]) as server:\n"
        "    toolset = SkillToolset.from_dirs([sys.argv[1]], on_event=told)\n"
        "    run(LlmAgent(name='a', model=server.model(), tools=[toolset]), 'Sleep.')\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    conversation = json.dumps({"turns": [{"call": call}, {"text": "never"}]})
    process = subprocess.Popen(
        [preloaded.program("python"), program, skill.parent, conversation],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in {-signal.SIGINT, 130}, errors
    assert "KeyboardInterrupt" in errors
    assert list(temporary.iterdir()) == []
