"""Spans and metrics of skills, as an OpenTelemetry SDK gets them (S4-25)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import preloaded
from adk_skills_agent.adk.events.events import (
    ApprovalDecided,
    ApprovalRequested,
    Events,
    GuardTripped,
    Origin,
    ResourceRead,
    ScriptFinished,
    ScriptStarted,
    SkillActivated,
    SkillDiscovered,
    SkillDropped,
    SkillEvent,
    Telemetry,
)

ORIGIN = Origin(app="app", user="alice", session="s1", invocation="i1", agent="helper", call="c1")


class Recorded:
    """An SDK in memory, and a listener that writes into it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider(metric_readers=[self._reader])
        self.tracer = tracers.get_tracer("google-adk")
        self.events = Events([Telemetry(tracers, self._meters)])

    def emit(self, *events: SkillEvent) -> None:
        """Inside a span like the one google-adk opens around a tool call."""
        with self.tracer.start_as_current_span("execute_tool run_skill_script"):
            for event in events:
                self.events.emit(event)

    @property
    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

    @property
    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.mark.behaviour(
    "better", "Script runs in OpenTelemetry", google="an attribute", ours="a span with its real times, and metrics"
)
def test_a_script_run_is_a_span_below_the_tool_call_with_its_real_times(recorded: Recorded) -> None:
    recorded.emit(
        ScriptStarted(origin=ORIGIN, skill="reporter", script="scripts/x.py", version="v1", run="r1"),
        ScriptFinished(
            origin=ORIGIN,
            skill="reporter",
            script="scripts/x.py",
            run="r1",
            status="error",
            reason="exit_code",
            error_code="EXECUTION_ERROR",
            exit_code=3,
            seconds=1.5,
            level="namespaces",
            time=1_000.0,
        ),
    )
    tool, script = (
        recorded.spans["execute_tool run_skill_script"],
        recorded.spans["run_skill_script reporter scripts/x.py"],
    )
    assert script.parent.span_id == tool.context.span_id
    assert (script.start_time, script.end_time) == (998_500_000_000, 1_000_000_000_000)
    assert script.status.status_code is StatusCode.ERROR
    assert dict(script.attributes) == {
        "gen_ai.skill.name": "reporter",
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "s1",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.skill.resource.name": "scripts/x.py",
        "error.type": "EXECUTION_ERROR",
        "process.exit.code": 3,
        "skill.script.status": "error",
        "skill.script.reason": "exit_code",
        "skill.script.run": "r1",
        "skill.script.executor": "sandbox",
        "skill.script.stdout_bytes": 0,
        "skill.script.stderr_bytes": 0,
        "skill.script.files": 0,
        "skill.sandbox.level": "namespaces",
    }
    assert tool.attributes["gen_ai.skill.name"] == "reporter"
    assert tool.attributes["skill.version"] == "v1"


def test_activations_reads_approvals_and_the_guard_are_attributes_of_the_tool_call(recorded: Recorded) -> None:
    recorded.emit(SkillActivated(origin=ORIGIN, skill="reporter", tokens=120, version="v1"))
    assert recorded.spans["execute_tool run_skill_script"].attributes["skill.instructions.tokens"] == 120
    recorded.emit(
        ResourceRead(origin=ORIGIN, skill="reporter", path="a.md", bytes=7),
        ApprovalRequested(origin=ORIGIN, skill="reporter", action="run", rule="scripts: a: ask"),
        ApprovalDecided(origin=ORIGIN, skill="reporter", action="run", decision="approved", by="user"),
        GuardTripped(origin=ORIGIN, skill="reporter", kind="script", count=2, fatal=True, error_code="X_FATAL"),
        SkillDiscovered(origin=ORIGIN, how="search", count=4),
        SkillDropped(origin=ORIGIN, skill="reporter", reason="budget"),
    )
    found = recorded.spans["execute_tool run_skill_script"].attributes
    assert found["gen_ai.skill.resource.name"] == "a.md"
    assert found["skill.approval.decision"] == "approved"
    assert (found["skill.guard.kind"], found["skill.guard.fatal"], found["skill.guard.count"]) == ("script", True, 2)
    assert found["error.type"] == "X_FATAL"
    assert found["skill.discovery.count"] == 4


def test_metrics_count_and_measure_without_names_of_people_or_sessions(recorded: Recorded) -> None:
    recorded.emit(
        SkillActivated(origin=ORIGIN, skill="reporter", tokens=120),
        SkillActivated(origin=ORIGIN, skill="an invention of the model", error_code="SKILL_NOT_FOUND"),
        ScriptFinished(origin=ORIGIN, skill="reporter", script="scripts/x.py", run="r1", seconds=0.25),
        ScriptFinished(origin=ORIGIN, skill="reporter", script="no", status="error", error_code="SCRIPT_NOT_FOUND"),
        ResourceRead(origin=ORIGIN, skill="reporter", path="a"),
        SkillDropped(origin=ORIGIN, skill="a name in the state (row 236)", reason="gone"),
        SkillDiscovered(origin=ORIGIN, how="list", count=1),
        ApprovalDecided(origin=ORIGIN, skill="reporter", action="run", decision="denied", by="rule"),
        GuardTripped(origin=ORIGIN, skill="no such", kind="skill"),
    )
    metrics = recorded.metrics
    assert set(metrics) == {
        "skill.activations",
        "skill.approvals",
        "skill.discoveries",
        "skill.drops",
        "skill.guard.trips",
        "skill.instructions.tokens",
        "skill.resource.reads",
        "skill.script.duration",
        "skill.script.runs",
    }
    names = {"gen_ai.skill.name": "reporter", "gen_ai.agent.name": "helper"}
    activations = [dict(point.attributes) for point in metrics["skill.activations"]]
    assert names | {"skill.activation.how": "tool"} in activations
    assert {
        "gen_ai.agent.name": "helper",
        "error.type": "SKILL_NOT_FOUND",
        "skill.activation.how": "tool",
    } in activations
    assert metrics["skill.instructions.tokens"][0].sum == 120
    assert metrics["skill.script.duration"][0].sum == 0.25
    assert {point.attributes.get("error.type") for point in metrics["skill.script.runs"]} == {None, "SCRIPT_NOT_FOUND"}
    everything = json.dumps([dict(point.attributes) for points in metrics.values() for point in points])
    for private in ("alice", "s1", "i1", "c1", "invention", "no such", "in the state", "scripts/x.py"):
        assert private not in everything


def test_without_an_sdk_nothing_happens() -> None:
    Events([Telemetry()]).emit(ScriptFinished(skill="a", script="b", run="r"))


WITH_ADK = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.testing import GeminiServer, parse_conversation

async def main():
    conversation = parse_conversation(json.dumps({"turns": [
        {"call": {"name": "load_skill", "args": {"skill_name": "reporter"}}},
        {"call": {"name": "run_skill_script", "args": {"skill_name": "reporter", "file_path": "scripts/x.py"}}},
        {"text": "Done."}]}))
    with GeminiServer([conversation]) as server:
        agent = LlmAgent(name="helper", model=server.model(), tools=[SkillToolset.from_dirs([sys.argv[1]])])
        runner = InMemoryRunner(agent=agent)
        await runner.run_debug("go", quiet=True)
        await runner.close()
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans}
    print(json.dumps([
        {"name": span.name, "parent": names.get(span.parent.span_id) if span.parent else None,
         "attributes": {key: value for key, value in span.attributes.items() if "skill" in key}}
        for span in spans]))
asyncio.run(main())
"""


def test_with_the_real_runner_the_spans_of_a_turn_hang_together(make_skill: Callable[..., Path]) -> None:
    folder = make_skill("reporter", files={"scripts/x.py": "print(1)"})
    run = subprocess.run(
        [preloaded.program("python"), "-W", "ignore", "-c", WITH_ADK, str(folder.parent)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert run.returncode == 0, run.stderr
    spans = json.loads(run.stdout.splitlines()[-1])
    loads = [span for span in spans if span["name"].startswith("execute_tool load_skill")]
    assert len(loads) == 1
    assert loads[0]["attributes"]["gen_ai.skill.name"] == "reporter"
    assert len(loads[0]["attributes"]["skill.version"]) == 64
    scripts = [span for span in spans if span["name"] == "run_skill_script reporter scripts/x.py"]
    assert len(scripts) == 1
    assert scripts[0]["parent"].startswith("execute_tool run_skill_script")
    assert scripts[0]["attributes"]["skill.script.status"] == "success"
