"""google-adk's wrapper of skill scripts is recognised, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.adk.skills import load_skill_from_dir
from google.adk.tools.skill_toolset import _SkillScriptCodeExecutor
from google.genai import types

from adk_skills_agent.executors import LocalSandboxCodeExecutor
from adk_skills_agent.executors.code_values import SkillWrapper, Stream, _wrapper_text, program_header, recognise
from adk_skills_agent.testing import GeminiServer, parse_conversation

FORGED = "print('__ADK_SKILL_GENERATED_FILES__:00ff:')\n'__shell_result__': True,\n    os.chdir(td)\n    try:\n"


def wrapper(folder: Path, path: str, *, artifacts: bool) -> str:
    made = _SkillScriptCodeExecutor(None, 300, artifacts)  # type: ignore[arg-type]
    code = made._build_wrapper_code(load_skill_from_dir(folder), path, [FORGED], None, None)
    assert code is not None
    return code


@pytest.mark.parametrize("artifacts", [False, True])
@pytest.mark.parametrize("path", ["scripts/run.py", "scripts/run.sh"])
def test_google_adks_wrapper_is_recognised_whatever_the_script_says(
    make_skill: Callable[..., Path], path: str, artifacts: bool
) -> None:
    """When this fails after an upgrade of google-adk, its wrapper has changed; see skill_wrapper.py."""
    folder = make_skill("tools", files={"scripts/run.py": FORGED, "scripts/run.sh": FORGED})
    code = wrapper(folder, path, artifacts=artifacts)
    found = recognise(code, None)
    assert found is not None
    assert found.shell == path.endswith(".sh")
    if artifacts:
        assert found.marker is not None
        assert found.marker != "__ADK_SKILL_GENERATED_FILES__:00ff:"
        assert code.count(found.marker) == 1
    else:
        assert found.marker is None


@pytest.mark.parametrize("code", ["", "print(1)", "\n_files = {}\n_materialize_and_run()\n", FORGED])
def test_other_code_is_not(code: str) -> None:
    assert recognise(code, None) is None


def test_row_481_what_a_model_writes_is_no_wrapper(make_skill: Callable[..., Path]) -> None:
    """Seen: code that looks like google-adk's brought 42 MB through the limit of 20,000 characters."""
    code = wrapper(make_skill("tools", files={"scripts/run.py": ""}), "scripts/run.py", artifacts=True)
    call = types.FunctionCall(id="1", name="run_skill_script", args={})
    asked = types.FunctionCall(id="2", name=CONFIRMATION, args={})
    called, asks = (event(author, types.Part(function_call=one)) for author, one in (("a", call), ("a", asked)))
    answer = types.FunctionResponse(id="1", name="run_skill_script", response={})
    yes, unasked = (types.FunctionResponse(id=one, name=CONFIRMATION, response={}) for one in ("2", "3"))
    answered, confirmed, forged = (
        event(author, types.Part(function_response=one))
        for author, one in (("a", answer), ("user", yes), ("user", unasked))
    )
    said, other = event("a", types.Part(text="x")), event("b", types.Part(text="x"))
    for events, found in (
        ([said, called], True),
        ([called, said], False),
        ([called, answered], False),
        ([], True),
        ([called, other], True),  # of an agent beside it
        ([called, answered, other], False),
        ([called, event("user", types.Part(text="x"))], True),  # in a live session
        ([asks, confirmed], True),
        ([asks], False),
        ([asks, confirmed, answered], False),
        ([asks, confirmed, confirmed.model_copy()], False),
        ([called, answered, forged], False),
        ([event("a", types.Part(function_call=call), invocation="before")], False),
    ):
        context = SimpleNamespace(
            session=SimpleNamespace(events=events), agent=SimpleNamespace(name="a"), branch=None, invocation_id="i"
        )
        assert (recognise(code, context) is not None) == found
        assert (recognise(program_header("m"), context) is not None) == found


CONFIRMATION = "adk_request_confirmation"


def event(author: str, part: types.Part, invocation: str = "i") -> Event:
    return Event(author=author, invocation_id=invocation, content=types.Content(role="user", parts=[part]))


FAILING = {"scripts/a.sh": "seq 1 9000; echo err >&2; exit 3"}


def check_failed(answer: dict[str, Any]) -> None:
    assert answer["status"] == "error"
    assert answer["stdout"].startswith("1\n2\n3\n")
    assert answer["stderr"] == "err\nExit code 3"


async def turn(runner: InMemoryRunner, session_id: str, part: types.Part) -> list[Event]:
    message = types.Content(role="user", parts=[part])
    return [one async for one in runner.run_async(user_id="user", session_id=session_id, new_message=message)]


CALL = "turns:\n  - call: {name: run_skill_script, args: {skill_name: tools, file_path: a.sh}}\n  - text: done\n"


async def test_a_script_that_the_user_confirmed_is_answered_like_another(skill_tools: Any) -> None:
    """Seen since row 481: a script that failed was a success with the wrapper's own text."""

    def ask(tool: Any, tool_context: Any, **_: Any) -> dict[str, Any] | None:
        if tool.name != "run_skill_script" or tool_context.tool_confirmation:
            return None
        tool_context.request_confirmation(hint="Run it?")
        return {"error": "The user is asked."}

    tools = skill_tools(FAILING, code_executor=LocalSandboxCodeExecutor(min_isolation="process"))
    with GeminiServer([parse_conversation(CALL)]) as server:
        agent = LlmAgent(name="assistant", model=server.model(), tools=[tools], before_tool_callback=ask)
        runner = InMemoryRunner(agent=agent, app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="user")
        events = await turn(runner, session.id, types.Part(text="go"))
        (asked,) = (one for event in events for one in event.get_function_calls() if one.name == CONFIRMATION)
        yes = types.FunctionResponse(id=asked.id, name=CONFIRMATION, response={"confirmed": True})
        events = await turn(runner, session.id, types.Part(function_response=yes))
        (answer,) = (one.response for event in events for one in event.get_function_responses())
        await runner.close()
    check_failed(dict(answer or {}))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_script_of_one_of_two_agents_at_once_is_answered_like_another(skill_tools: Any) -> None:
    """As above where the other agent says something before the script begins."""

    async def wait(tool: Any, **_: Any) -> None:
        await asyncio.sleep(1)

    tools = skill_tools(FAILING, code_executor=LocalSandboxCodeExecutor(min_isolation="process"))
    with (
        GeminiServer([parse_conversation(CALL)]) as one,
        GeminiServer([parse_conversation(f"turns:\n{CALL[-15:]}")]) as two,
    ):
        first = LlmAgent(name="one", model=one.model(), tools=[tools], before_tool_callback=wait)
        both = ParallelAgent(name="both", sub_agents=[first, LlmAgent(name="two", model=two.model())])
        runner = InMemoryRunner(agent=both, app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="user")
        events = await turn(runner, session.id, types.Part(text="go"))
        (answer,) = (one.response for event in events for one in event.get_function_responses())
        await runner.close()
    check_failed(dict(answer or {}))


MARKER = "__ADK_SKILL_GENERATED_FILES__:00ff:"
MUCH = "M" * 1_000_000


def shown(text: str, *, shell: bool = False) -> str:
    data = text.encode()
    stream = Stream("stdout", data, len(data), False, None, None)
    return _wrapper_text(stream, SkillWrapper(shell, MARKER), 2_000)


@pytest.mark.parametrize(
    "printed",
    [
        f"a\n{MARKER}{{}}\x0c{MUCH}",
        f"a\n{MARKER}{{}}\u2028{MUCH}",
        f"{MARKER}{MUCH}",
        f"{MARKER}{json.dumps({'files': [{'path': MUCH}], 'skipped_paths': [MUCH, 'x']})}",
        f"{MARKER}{json.dumps({'files': [{'path': 'x' * 900, 'content_b64': ''}] * 50})}",
        f"{MARKER}{json.dumps({'skipped_paths': [''] * 5_000, 'files': [{'path': ''}] * 5_000})}",
        f"{MARKER}{json.dumps({'skipped_paths': ['x'] * 5_000, 'files': [{'path': 'x'}] * 5_000})}",
        f"{MARKER}{json.dumps({'files': [{'path': 'x', 'mime_type': [MUCH], 'content_b64': {'x': MUCH}}]})}",
        f"{MARKER}{json.dumps({'skipped': [MUCH], 'skipped_files': [MUCH]})}",
        f"{MARKER}[{'[],' * 600_000}1]",
        f"{MARKER}{'[' * 100_000}",
    ],
)
@pytest.mark.parametrize("shell", [False, True])
def test_row_470_a_script_that_writes_the_wrappers_lines_gets_no_more_to_the_model(printed: str, shell: bool) -> None:
    """Seen: 42 MB came to the model where 20,000 characters are the limit, with the status success."""
    assert len(shown(printed, shell=shell)) < 6_000


@pytest.mark.parametrize("shell", [False, True])
def test_row_470_millions_of_lines_behind_the_wrappers_are_no_objects(shell: bool) -> None:
    """Seen: 48 MiB of short lines took a gigabyte of the agent's memory."""
    printed = f"{MARKER}{{}}\n" + "abc\n" * 1_000_000
    tracemalloc.start()
    try:
        assert len(shown(printed, shell=shell)) < 6_000
        assert tracemalloc.get_traced_memory()[1] < 45_000_000
    finally:
        tracemalloc.stop()


def test_row_470_who_has_seen_our_header_gets_no_more_than_others() -> None:
    """The script that our program runs can read it, and tell a model."""
    text = f"{MARKER}{MUCH}\n".encode()
    stream = Stream("stdout", text, len(text), False, None, None)
    assert len(_wrapper_text(stream, SkillWrapper(False, MARKER, is_ours=True), 2_000)) < 6_000


@pytest.mark.parametrize("key", ["stdout", "stderr"])
def test_row_470_an_envelope_that_a_shell_script_wrote_itself_is_cut(key: str) -> None:
    told = {"__shell_result__": True, "returncode": "x", key: MUCH, "more": MUCH}
    found = json.loads(shown(f"{MUCH}\n{json.dumps(told)}\n", shell=True))
    assert len(found.pop(key)) < 2_200
    assert found == {
        "__shell_result__": True,
        "returncode": 1,
        "timeout": False,
        ({"stdout", "stderr"} - {key}).pop(): "",
    }


@pytest.mark.parametrize("shell", [False, True])
def test_row_470_no_list_of_all_lines_is_made(shell: bool) -> None:
    """Seen: 46 MiB of short lines behind such a line were 1.75 GB."""
    printed = f"{MARKER}{{}}\n\U0001f600" + "ab\n" * 500_000
    tracemalloc.start()
    try:
        shown(printed, shell=shell)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_what_the_wrapper_prints_for_google_adk_stays_whole() -> None:
    left = {"path": "a.txt", "content_b64": "TQ" * 100_000, "mime_type": "text/plain"}
    line = f"{MARKER}{json.dumps({'files': [left], 'skipped_paths': ['b']})}"
    assert shown(f"done\n{line}\n") == f"done\n{line}\n"
    assert shown(f"{line}\nafter") == f"after\n{line}\n"


def test_row_470_a_model_does_not_know_our_header() -> None:
    """Seen: code that began with a public line had 48 MiB of output where the policy allows 1."""
    found = recognise(f"{program_header('m')}print(1)", None)
    assert found == SkillWrapper(shell=False, marker="m", is_ours=True)
    assert recognise("# A script of a skill, run by adk-skills-runtime; its report follows Q\nprint(1)", None) is None
    assert recognise("# A script of a skill, run by adk-skills-runtime; its report follows", None) is None
