"""Every event exactly once, in order, through the real Runner; no content and no secret in any (S4-25)."""

from __future__ import annotations

import json
import logging
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.genai import types

import preloaded
from adk_skills_agent import Secret
from adk_skills_agent.adk.events.events import (
    ApprovalDecided,
    ApprovalRequested,
    GuardTripped,
    ResourceRead,
    ScriptFinished,
    ScriptStarted,
    SkillActivated,
    SkillDiscovered,
    SkillDropped,
    SkillEvent,
)
from adk_skills_agent.adk.options import SkillLimits
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.errors import TooManyRuns
from adk_skills_agent.executors import CodeExecutionInput, LocalSandboxCodeExecutor
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
)


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    make_skill("other", body="# Other\n\n" + "Words and words. " * 200)
    folder = make_skill(
        "reporter",
        body="# Reporter\n\nRun `scripts/publish.py`.\n",
        files={
            "scripts/publish.py": "print('published')\nopen('out.txt', 'w').write('x')\n",
            "scripts/fail.py": "raise SystemExit(3)",
            "scripts/secret.py": "import os; print(os.environ['TOKEN'])",
            "references/guide.md": "the guide",
        },
    )
    return folder.parent


def calls(*steps: tuple[str, dict[str, Any]] | str) -> str:
    turns: list[dict[str, Any]] = [
        {"text": step} if isinstance(step, str) else {"call": {"name": step[0], "args": step[1]}} for step in steps
    ]
    return json.dumps({"turns": turns})


def load(name: str) -> tuple[str, dict[str, Any]]:
    return "load_skill", {"skill_name": name}


def script(path: str) -> tuple[str, dict[str, Any]]:
    return "run_skill_script", {"skill_name": "reporter", "file_path": path}


def read(path: str) -> tuple[str, dict[str, Any]]:
    return "load_skill_resource", {"skill_name": "reporter", "file_path": path}


class Watched:
    """An agent whose events are kept."""

    def __init__(self, rehearse: Any, ask: Any, skills: Path, conversation: str, **settings: Any) -> None:
        self.server = rehearse(conversation)
        self.events: list[SkillEvent] = []
        self.toolset = SkillToolset.from_dirs([skills], on_event=self.events.append, **settings)
        self.agent = LlmAgent(name="helper", model=self.server.model(), instruction="Help.", tools=[self.toolset])
        self.ask = ask

    def of(self, kind: type[SkillEvent]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    @property
    def counts(self) -> Counter[str]:
        return Counter(type(event).__name__ for event in self.events)


@pytest.mark.requirement("S4-25")
async def test_a_whole_turn_emits_each_event_once_and_in_order(skills: Path, rehearse: Any, ask: Any) -> None:
    conversation = calls(
        ("list_skills", {}),
        load("reporter"),
        load("reporter"),
        read("references/guide.md"),
        script("scripts/publish.py"),
        script("scripts/fail.py"),
        ("unload_skill", {"skill_name": "reporter"}),
        "Done.",
    )
    watched = Watched(rehearse, ask, skills, conversation)
    answered = await ask(watched.agent, "Write a report")
    watched.server.assert_finished()
    assert [type(event) for event in watched.events if not isinstance(event, GuardTripped)] == [
        SkillDiscovered,
        SkillActivated,
        SkillActivated,
        ResourceRead,
        ScriptStarted,
        ScriptFinished,
        ScriptStarted,
        ScriptFinished,
        SkillDropped,
    ]
    (discovered,) = watched.of(SkillDiscovered)
    assert (discovered.how, discovered.count, discovered.skills) == ("list", 2, ("other", "reporter"))
    first, second = watched.of(SkillActivated)
    assert (first.skill, first.how, first.again, second.again) == ("reporter", "tool", False, True)
    assert first.tokens > 0
    assert len(first.version) == 64
    (resource,) = watched.of(ResourceRead)
    assert (resource.path, resource.bytes, resource.error_code) == ("references/guide.md", 9, "")
    started, _ = watched.of(ScriptStarted)
    good, bad = watched.of(ScriptFinished)
    assert (good.script, good.status, good.exit_code, good.files) == ("scripts/publish.py", "success", 0, 1)
    assert (good.stdout_bytes, good.stderr_bytes, good.error_code, good.reason) == (len("published\n"), 0, "", "")
    assert good.run == started.run
    assert good.level
    assert started.version == first.version
    assert (bad.status, bad.reason, bad.exit_code, bad.error_code) == ("error", "exit_code", 3, "EXECUTION_ERROR")
    assert bad.run not in {"", good.run}
    assert watched.of(SkillDropped)[0].reason == "unloaded"
    for event in watched.events:
        origin = event.origin
        assert (origin.app, origin.user, origin.session, origin.agent) == (
            "tests",
            "user",
            answered.session_id,
            "helper",
        )
        assert origin.invocation
        assert origin.call


async def test_what_misses_is_told_once_with_its_code(skills: Path, rehearse: Any, ask: Any) -> None:
    watched = Watched(
        rehearse,
        ask,
        skills,
        calls(load("reportr"), read("nothing.md"), script("scripts/no.py"), "Sorry."),
    )
    await ask(watched.agent, "Write a report")
    watched.server.assert_finished()
    assert watched.counts == {"SkillActivated": 1, "ResourceRead": 1, "ScriptFinished": 1, "GuardTripped": 3}
    assert watched.of(SkillActivated)[0].error_code == "SKILL_NOT_FOUND"
    assert watched.of(ResourceRead)[0].error_code == "RESOURCE_NOT_FOUND"
    missed = watched.of(ScriptFinished)[0]
    assert (missed.run, missed.status, missed.error_code) == ("", "error", "SCRIPT_NOT_FOUND")
    assert [(event.kind, event.skill) for event in watched.of(GuardTripped)] == [
        ("skill", "reportr"),
        ("resource", "reporter"),
        ("script", "reporter"),
    ]


@pytest.mark.parametrize("args", [{"x": {"y": {}}}, ["a\0b"], "'unclosed", 3])
async def test_arguments_that_cannot_be_used_are_told_once(args: object, skills: Path, rehearse: Any, ask: Any) -> None:
    name, arguments = script("scripts/publish.py")
    watched = Watched(rehearse, ask, skills, calls((name, arguments | {"args": args}), "Sorry."))
    answered = await ask(watched.agent, "Write a report")
    assert answered.results[0][1]["error_code"] == "INVALID_ARGUMENTS"
    (finished,) = watched.of(ScriptFinished)
    assert (finished.status, finished.error_code) == ("error", "INVALID_ARGUMENTS")
    assert [event.run for event in watched.of(ScriptStarted)] == ([finished.run] if finished.run else [])


async def test_a_fatal_miss_says_so(skills: Path, rehearse: Any, ask: Any) -> None:
    watched = Watched(rehearse, ask, skills, calls(script("scripts/a.py"), script("scripts/b.py"), "Sorry."))
    await ask(watched.agent, "Write a report")
    trips = watched.of(GuardTripped)
    assert [(event.count, event.fatal, event.error_code) for event in trips] == [
        (1, False, "SCRIPT_NOT_FOUND"),
        (2, True, "SCRIPT_NOT_FOUND_FATAL"),
    ]


async def test_a_skill_that_had_to_make_room_is_told_once(skills: Path, rehearse: Any, ask: Any) -> None:
    watched = Watched(
        rehearse,
        ask,
        skills,
        calls(load("reporter"), load("other"), "Done.", "More."),
        limits=SkillLimits(active_tokens=900),
    )
    answered = await ask(watched.agent, "Write a report")
    await ask(watched.agent, "More", session_of=answered)
    dropped = watched.of(SkillDropped)
    assert [(event.skill, event.reason) for event in dropped] == [("reporter", "budget")]


async def test_a_search_and_a_users_own_activation_are_told(skills: Path, rehearse: Any, ask: Any) -> None:
    watched = Watched(rehearse, ask, skills, calls("Hello."))
    await ask(watched.agent, "Use $reporter please")
    (activated,) = watched.of(SkillActivated)
    assert (activated.skill, activated.how) == ("reporter", "user")


async def test_a_question_its_answer_and_a_later_refusal_are_told_once_each(
    skills: Path, rehearse: Any, ask: Any
) -> None:
    watched = Watched(
        rehearse,
        ask,
        skills,
        calls(script("scripts/publish.py"), script("scripts/fail.py"), "Done."),
        permissions={"scripts": {"publish.py": "ask", "fail.py": "deny"}},
    )
    answered = await ask(watched.agent, "Publish")
    (requested,) = watched.of(ApprovalRequested)
    assert (requested.action, requested.target, requested.subjects) == (
        "run",
        "scripts/publish.py",
        ("script:scripts/publish.py",),
    )
    assert requested.rule == "scripts: publish.py: ask"
    assert len(requested.version) == 64
    assert not watched.of(ApprovalDecided)
    question = next(
        call
        for event in answered.events
        for call in event.get_function_calls()
        if call.name == "adk_request_confirmation"
    )
    response = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": True})
    message = types.Content(role="user", parts=[types.Part(function_response=response)])
    async for _ in answered.runner.run_async(user_id="user", session_id=answered.session_id, new_message=message):
        pass
    approved, denied = watched.of(ApprovalDecided)
    assert (approved.decision, approved.by, approved.kept) == ("approved", "user", "session")
    assert (denied.decision, denied.by, denied.target) == ("denied", "rule", "scripts/fail.py")
    assert approved.version == requested.version
    assert len(watched.of(ApprovalRequested)) == 1
    assert len(watched.of(ScriptFinished)) == 1


@pytest.mark.behaviour(
    "optional",
    "`on_event=`, `audit_log=`",
    google="spans only",
    ours="typed events and a log of lines in JSON, without contents or secrets",
)
async def test_the_log_has_every_event_and_no_content_argument_or_secret(
    skills: Path, tmp_path: Path, rehearse: Any, ask: Any
) -> None:
    secret = "hunter2-hunter2"
    publish = (
        "run_skill_script",
        {"skill_name": "reporter", "file_path": "scripts/secret.py", "args": ["my-argument"]},
    )
    conversation = calls(
        load("reporter"), read("references/guide.md"), publish, script(f"scripts/{secret}.py"), "Done."
    )
    log = tmp_path / "audit.jsonl"
    watched = Watched(rehearse, ask, skills, conversation, env={"TOKEN": Secret(secret)}, audit_log=log)
    await ask(watched.agent, "Write a report")
    await watched.toolset.close()
    text = log.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["event"] for record in records] == [type(event).__name__ for event in watched.events]
    assert secret not in text
    assert "[secret TOKEN]" in text
    for content in ("the guide", "my-argument", "# Reporter", str(skills)):
        assert content not in text


class Full(Sandbox):
    """One whose line is full; it keeps what it was asked."""

    name = "full"

    def __init__(self) -> None:
        self.requests: list[ExecutionRequest] = []

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        self.requests.append(request)
        raise TooManyRuns("Too many runs are waiting: 256 of this user already. Wait, then try again.")

    async def probe(self) -> IsolationReport:
        return IsolationReport(IsolationLevel.NAMESPACES, {})


async def test_row_81_a_run_too_many_is_an_answer_with_a_code_and_an_event(
    rehearse: Any, ask: Any, skills: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = Full()
    conversation = calls(script("scripts/publish.py"), "busy")
    watched = Watched(rehearse, ask, skills, conversation, sandbox=full)
    answered = await watched.ask(watched.agent, "Publish.")
    answer = answered.results[0][1]
    assert answer["error_code"] == "TOO_MANY_RUNS"
    assert "256 of this user already" in answer["error"]
    assert [(event.error_code, event.reason) for event in watched.of(ScriptFinished)] == [
        ("TOO_MANY_RUNS", "not_started")
    ]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    # Whose run it is: the user, and the session in it.
    assert [request.share for request in full.requests] == [("app:tests:user:user", answered.session_id)]


def test_row_81_code_that_cannot_wait_any_more_is_an_answer_too() -> None:
    full = Full()
    executor = LocalSandboxCodeExecutor(sandbox=full)
    result = executor.execute_code(None, CodeExecutionInput(code="print(1)"))  # type: ignore[arg-type]
    assert (result.exit_code, "256 of this user already" in result.stderr) == (1, True)
    assert [request.share for request in full.requests] == [()]


LOGS = """
import logging, sys
if "configured" in sys.argv:
    logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)
import adk_skills_agent.adk.events.events
log = logging.getLogger("adk_skills_agent.adk.runtime_toolset")
log.warning("the active skill %s", "x\\x1b]0;title\\x07\\nCRITICAL forged\\ttab\\r\\x9b2J")
log.info("not shown")
try:
    raise ValueError("\\x1b[2J\\nCRITICAL forged too")
except ValueError:
    log.exception("plain")
log.warning("%d", "no number")
"""


@pytest.mark.parametrize("way", ["configured", "not configured"])
def test_no_text_of_strangers_in_the_log_controls_a_terminal_or_poses_as_a_line_of_its_own(way: str) -> None:
    """Attack row 238: names in a session's state, and a failing script's stderr, were on the owner's terminal."""
    run = subprocess.run([preloaded.program("python"), "-c", LOGS, way], capture_output=True, text=True, check=True)
    assert "\\x1b]0;title\\x07\n    CRITICAL forged\ttab\\r\\x9b2J" in run.stderr
    assert "\\x1b[2J\n    CRITICAL forged too" in run.stderr
    assert all(character.isprintable() or character in "\n\t" for character in run.stderr)
    assert run.stderr.count("the active skill") == 1
    assert "not shown" not in run.stderr


def test_row_347_of_a_long_message_in_the_log_the_ends_are_made_printable(caplog: pytest.LogCaptureFixture) -> None:
    """Seen: an artifact service's exception quoted a session's id of 25 MB: its traceback stopped the agent for 9 s."""
    name = "a" * 5_000_000
    try:
        raise OSError(f"File name too long: '{name}'\nthe end")
    except OSError:
        logging.getLogger("adk_skills_agent.adk").exception("begin %s\n", name)
    [record] = caplog.records
    for text in (record.getMessage(), str(record.exc_text)):
        assert len(text) < 70_000
        assert "characters left out" in text
    assert record.getMessage().startswith("begin aaa")
    assert str(record.exc_text).endswith("aaa'\n    the end")
