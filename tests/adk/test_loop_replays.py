"""Models that loop for ever, as users of google-adk reported them, end within one turn of the fatal answer (S2, S2-12).

Each rehearsed model has more calls than any turn may make; what the server counted is what the user would have paid.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, RunConfig, SequentialAgent
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App, ResumabilityConfig
from google.adk.runners import InMemoryRunner
from google.genai import types

from adk_skills_agent import SandboxPolicy
from adk_skills_agent.adk.events.events import GuardTripped
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
)
from adk_skills_agent.testing import GeminiServer

FOR_EVER = 30


class Weak(Sandbox):
    """A machine that isolates nothing."""

    name = "weak"

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        raise SandboxUnavailable("No isolation level here is strong enough.", ["nothing works"])

    async def probe(self) -> IsolationReport:
        return IsolationReport(IsolationLevel.PROCESS, {})


def looping(calls: Iterable[tuple[str, dict[str, Any]]]) -> str:
    turns = [
        f"  - call: {{name: {name}, args: {json.dumps(args)}, undeclared: true}}"
        for name, args in itertools.islice(itertools.cycle(list(calls)), FOR_EVER)
    ]
    return "turns:\n" + "\n".join(turns)


def agent_with(server: GeminiServer, folder: Path, **more: Any) -> LlmAgent:
    toolset = SkillToolset.from_dirs([folder], policy="trusted", **more)
    return LlmAgent(name="assistant", model=server.model(), instruction="Help.", tools=[toolset])


def codes(answered: Any) -> list[str | None]:
    return [result.get("error_code") for _, result in answered.results]


@pytest.fixture
def classifier(make_skill: Callable[..., Path]) -> Path:
    """The skill of #5652: nothing but instructions that speak of documents."""
    return make_skill(
        "document-classifier", body="Use Document 1 as reference document and Document 2 as input. Compare them.\n"
    ).parent


@pytest.fixture
def deployer(make_skill: Callable[..., Path]) -> Path:
    return make_skill(
        "deployer",
        body="Set up, build and deploy.\n",
        files={"scripts/really.py": "print('ok')", "references/a.md": "a"},
    ).parent


@pytest.mark.behaviour(
    "better",
    "A model that keeps guessing paths",
    google="is told to stop, up to 500 calls",
    ours="the turn ends after the fatal answer",
    readme=10,
)
@pytest.mark.requirement("S2-9")
async def test_hallucinated_paths_of_resources_end_the_turn(classifier: Path, rehearse: Any, ask: Any) -> None:
    """google/adk-python #5652, #5651: there up to 500 calls of the model."""
    paths = [f"references/document{number}.md" for number in range(1, 9)]
    server = rehearse(
        looping(("load_skill_resource", {"skill_name": "document-classifier", "file_path": path}) for path in paths)
    )
    seen: list[GuardTripped] = []
    agent = agent_with(server, classifier, on_event=lambda event: seen.append(event))
    answered = await ask(agent, "summarize my document")
    assert codes(answered) == ["RESOURCE_NOT_FOUND", "RESOURCE_NOT_FOUND_FATAL", "RESOURCE_NOT_FOUND_FATAL"]
    assert len(server.requests) == 3  # the miss, the fatal one, and one extra turn
    assert answered.events[-1].actions.skip_summarization
    assert answered.text == "I could not find a file that I needed, so I stopped here."
    trips = [event for event in seen if isinstance(event, GuardTripped)]
    assert [(event.kind, event.count, event.fatal) for event in trips] == [
        ("resource", 1, False),
        ("resource", 2, True),
    ]


@pytest.mark.requirement("S2-9")
async def test_hallucinated_paths_of_scripts_end_the_turn(deployer: Path, rehearse: Any, ask: Any) -> None:
    """google/adk-python #5684, #5683: another plausible script on every retry."""
    paths = ["scripts/setup.py", "scripts/build.py", "scripts/run.sh", "deploy.sh"]
    server = rehearse(looping(("run_skill_script", {"skill_name": "deployer", "file_path": path}) for path in paths))
    answered = await ask(agent_with(server, deployer), "deploy it")
    assert codes(answered) == ["SCRIPT_NOT_FOUND", "SCRIPT_NOT_FOUND_FATAL", "SCRIPT_NOT_FOUND_FATAL"]
    assert len(server.requests) == 3
    assert answered.text == "I could not find a script that I needed, so I stopped here."
    first = answered.results[0][1]
    assert first["scripts"] == ["scripts/really.py"]
    assert len(first["error"]) <= 200


@pytest.mark.behaviour("better", "A model that keeps listing and loading skills", google="loops", ours="the turn ends")
async def test_a_skill_that_names_a_missing_tool_is_not_loaded_for_ever(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    """google/adk-python #6280: list_skills and load_skill in turn, because ``confirmtool`` is not there."""
    folder = make_skill("booking", body="Collect the data, then call `confirmtool`.\n").parent
    calls = [("list_skills", {}), ("load_skill", {"skill_name": "booking"})]
    server = rehearse(looping(calls))
    answered = await ask(agent_with(server, folder), "book it")
    got = codes(answered)
    fatal = got.index("REPEATED_CALL_FATAL")
    assert len(server.requests) == len(got) == fatal + 2  # one extra turn after the fatal answer
    assert answered.results[1][1]["skill_name"] == "booking"
    assert answered.text == "I made no progress with this task, so I stopped here."


@pytest.mark.behaviour(
    "better",
    "A call of a tool that is not offered",
    google="advice to retry, in a loop",
    ours="counted, and the turn ends",
)
@pytest.mark.parametrize("executor", [True, False])
async def test_a_script_tool_that_is_not_offered_does_not_loop(
    classifier: Path, rehearse: Any, ask: Any, executor: bool
) -> None:
    """google/adk-python #6281, #6300: called though no skill has scripts; hiding the tool does not end it."""
    arguments = [{"name": f"n{number}"} for number in range(5)]
    server = rehearse(
        looping(
            (
                "run_skill_script",
                {"skill_name": "document-classifier", "file_path": f"scripts/x{index}.py", "args": args},
            )
            for index, args in enumerate(arguments)
        )
    )
    toolset = (
        SkillToolset.from_dirs([classifier], policy="trusted")
        if executor
        else SkillToolset(SkillToolset.from_dirs([classifier], policy="trusted").skills)
    )
    agent = LlmAgent(name="assistant", model=server.model(), instruction="Help.", tools=[toolset])
    answered = await ask(agent, "confirm it")
    assert server.requests[0].declaration("load_skill")
    assert "run_skill_script" not in json.dumps(server.requests[0].body["tools"])
    assert codes(answered) == ["SCRIPT_NOT_FOUND", "SCRIPT_NOT_FOUND_FATAL", "SCRIPT_NOT_FOUND_FATAL"]
    assert len(server.requests) == 3


@pytest.mark.requirement("S2-12")
async def test_unknown_skills_end_the_turn(classifier: Path, rehearse: Any, ask: Any) -> None:
    tools = ["load_skill", "load_skill_resource", "run_skill_script"]
    server = rehearse(
        looping(
            (tool, {"skill_name": f"skill-{number}", "file_path": "scripts/a.py"})
            for number, tool in enumerate(tools * 3)
        )
    )
    answered = await ask(agent_with(server, classifier), "go")
    assert codes(answered) == ["SKILL_NOT_FOUND", "SKILL_NOT_FOUND_FATAL", "SKILL_NOT_FOUND_FATAL"]
    assert len(server.requests) == 3


@pytest.mark.requirement("S0-30", "S2-12")
async def test_a_missing_executor_ends_the_turn(deployer: Path, rehearse: Any, ask: Any) -> None:
    server = rehearse(looping([("run_skill_script", {"skill_name": "deployer", "file_path": "scripts/really.py"})]))
    toolset = SkillToolset(SkillToolset.from_dirs([deployer], policy="trusted").skills)
    agent = LlmAgent(name="assistant", model=server.model(), instruction="Help.", tools=[toolset])
    answered = await ask(agent, "go")
    assert codes(answered) == ["NO_CODE_EXECUTOR", "NO_CODE_EXECUTOR_FATAL", "NO_CODE_EXECUTOR_FATAL"]
    assert len(server.requests) == 3


@pytest.mark.behaviour(
    "better",
    "A script that fails in the same way again and again",
    google="run each time",
    ours="not run a fourth time",
)
@pytest.mark.requirement("S2-12")
async def test_a_run_that_fails_in_the_same_way_is_not_repeated_for_ever(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    folder = make_skill(
        "broken", files={"scripts/fail.py": "import os\nraise ValueError(f'no such file, process {os.getpid()}')\n"}
    ).parent
    server = rehearse(
        looping([("run_skill_script", {"skill_name": "broken", "file_path": "fail.py", "args": ["--x"]})])
    )
    answered = await ask(agent_with(server, folder), "go")
    results = [result for _, result in answered.results]
    assert [result.get("error_code") for result in results] == [
        "EXECUTION_ERROR",
        "EXECUTION_ERROR",
        "EXECUTION_ERROR_FATAL",
        "EXECUTION_ERROR_FATAL",
    ]
    assert "stderr" in results[2]  # it was run, and says why
    assert "stderr" not in results[3]  # it was not
    assert answered.text == "A script kept failing in the same way, so I stopped here."


async def test_a_sandbox_that_is_not_strong_enough_ends_the_turn(deployer: Path, rehearse: Any, ask: Any) -> None:
    """The tool is not declared then; a model that calls it all the same is counted."""
    policy = SandboxPolicy(isolation="process", min_isolation="namespaces")
    server = rehearse(looping([("run_skill_script", {"skill_name": "deployer", "file_path": "scripts/really.py"})]))
    toolset = SkillToolset.from_dirs([deployer], policy=policy, sandbox=Weak())
    answered = await ask(LlmAgent(name="assistant", model=server.model(), tools=[toolset]), "go")
    assert "run_skill_script" not in json.dumps(server.requests[0].body["tools"])
    assert codes(answered) == [
        "SANDBOX_UNAVAILABLE",
        "SANDBOX_UNAVAILABLE_FATAL",
        "SANDBOX_UNAVAILABLE_FATAL",
    ]
    assert len(server.requests) == 3


@pytest.mark.parametrize("resumable", [True, False])
async def test_a_turn_that_was_ended_is_followed_by_a_normal_one(
    deployer: Path, rehearse: Any, resumable: bool
) -> None:
    """In an App, also a resumable one, whose events say where to go on; and with streaming."""
    loop = looping([("run_skill_script", {"skill_name": "deployer", "file_path": "scripts/nope.py"})])
    turns = loop.splitlines()[:4]
    server = rehearse("\n".join([*turns, "  - text: unused", "  - text: hello again"]))
    app = App(
        name="tests",
        root_agent=agent_with(server, deployer),
        resumability_config=ResumabilityConfig(is_resumable=resumable),
    )
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="tests", user_id="user")
    said: list[list[str]] = []
    for question in ("go", "and now?"):
        message = types.Content(role="user", parts=[types.Part(text=question)])
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        run = runner.run_async(user_id="user", session_id=session.id, new_message=message, run_config=config)
        parts = [
            part async for event in run if event.content and not event.partial for part in event.content.parts or []
        ]
        said.append([part.text for part in parts if part.text])
    assert said == [["I could not find a script that I needed, so I stopped here."], ["hello again"]]
    assert len(server.requests) == 4
    await runner.close()


async def test_in_a_sequence_of_agents_the_next_one_goes_on(deployer: Path, rehearse: Any, ask: Any) -> None:
    """The turn of the agent ends with its model's words, not the whole invocation; its output_key has them."""
    loop = looping([("run_skill_script", {"skill_name": "deployer", "file_path": "scripts/nope.py"})])
    first = rehearse("\n".join([*loop.splitlines()[:4], "  - {text: There is no such script.}"]))
    second = rehearse("turns: [{when: {system_contains: There is no such script}, text: the second agent}]")
    before = agent_with(first, deployer)
    before.output_key = "report"
    after = LlmAgent(name="second", model=second.model(), include_contents="none", instruction="Go on after: {report}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # google-adk's own word for its workflow agents
        answered = await ask(SequentialAgent(name="both", sub_agents=[before, after]), "go")
    assert len(first.requests) == 4
    assert len(second.requests) == 1
    assert answered.text == "the second agent"
