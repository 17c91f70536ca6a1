"""Spans and metrics of what happens with skills, through OpenTelemetry's API (S4-25).

google-adk opens a span ``execute_tool <name>`` around each tool call. What a skill adds to it goes onto that span, in
the names of the GenAI conventions, and each script run is a span of its own below it. Without a provider nothing of
this costs anything. No user, session or path of the host is in a metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

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

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

SCOPE = "adk_skills_agent"
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
"""google-adk's bounds for tool durations, so that both can be put side by side."""
_TOKENS = [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384]


class Telemetry:
    """A listener that records every event.

    Args:
        tracer_provider: None for the global one.
        meter_provider: None for the global one.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._activations = meter.create_counter("skill.activations", "{activation}", "Skills activated.")
        self._tokens = meter.create_histogram(
            "skill.instructions.tokens",
            "{token}",
            "Estimated tokens of the instructions of an activated skill.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._drops = meter.create_counter("skill.drops", "{drop}", "Skills released, by reason.")
        self._searches = meter.create_counter("skill.discoveries", "{discovery}", "Lists and searches of skills.")
        self._reads = meter.create_counter("skill.resource.reads", "{read}", "Files of skills that were read.")
        self._runs = meter.create_counter("skill.script.runs", "{run}", "Scripts of skills that were run.")
        self._seconds = meter.create_histogram(
            "skill.script.duration",
            "s",
            "Wall time of scripts.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._approvals = meter.create_counter("skill.approvals", "{decision}", "Questions to the user, and decisions.")
        self._guard = meter.create_counter("skill.guard.trips", "{miss}", "Calls that missed, by kind.")

    @property
    def idle(self) -> bool:
        """Whether no span is recorded here: metrics carry no version."""
        return not trace.get_current_span().is_recording()

    def __call__(self, event: SkillEvent) -> None:
        """Record one event on the current span and in the metrics."""
        names = _common(event)
        match event:
            case SkillActivated():
                # An unknown name is the model's invention: it would give each metric a series of its own.
                counted = names if not event.error_code else _without_skill(names) | _error(event.error_code)
                self._activations.add(1, counted | {"skill.activation.how": event.how})
                if not event.error_code:
                    self._tokens.record(event.tokens, names)
                _on_current_span(event, {"skill.version": event.version, "skill.instructions.tokens": event.tokens})
            case SkillDropped():
                self._drops.add(1, names | {"skill.drop.reason": event.reason})
            case SkillDiscovered():
                self._searches.add(1, _without_skill(names) | {"skill.discovery.how": event.how})
                _on_current_span(event, {"skill.discovery.count": event.count})
            case ResourceRead():
                counted = names if not event.error_code else _without_skill(names) | _error(event.error_code)
                self._reads.add(1, counted)
                _on_current_span(event, {"gen_ai.skill.resource.name": event.path, "skill.resource.bytes": event.bytes})
            case ScriptStarted():
                _on_current_span(event, {"gen_ai.skill.resource.name": event.script, "skill.version": event.version})
            case ScriptFinished():
                self._finished(event, names)
            case ApprovalRequested():
                self._approvals.add(1, names | {"skill.approval.decision": "requested"})
                _on_current_span(event, {"skill.approval.decision": "requested", "skill.approval.rule": event.rule})
            case ApprovalDecided():
                self._approvals.add(1, names | {"skill.approval.decision": event.decision})
                _on_current_span(event, {"skill.approval.decision": event.decision, "skill.approval.by": event.by})
            case GuardTripped():
                attributes: dict[str, AttributeValue] = {
                    "skill.guard.kind": event.kind,
                    "skill.guard.fatal": event.fatal,
                }
                self._guard.add(1, _without_skill(names) | attributes)
                _on_current_span(event, attributes | {"skill.guard.count": event.count})

    def _finished(self, event: ScriptFinished, names: dict[str, AttributeValue]) -> None:
        failure = _error(event.error_code or event.reason) if event.status == "error" else {}
        if not event.run:  # never started: a name that does not exist must not become a series
            self._runs.add(1, _without_skill(names) | {"skill.script.status": event.status} | failure)
            return
        measured = names | {"skill.script.status": event.status} | failure
        if event.level:
            measured["skill.sandbox.level"] = event.level
        self._runs.add(1, measured)
        self._seconds.record(event.seconds, measured)
        end = int(event.time * 1e9)
        span = self._tracer.start_span(
            f"run_skill_script {event.skill} {event.script}",
            kind=SpanKind.INTERNAL,
            start_time=end - int(event.seconds * 1e9),
            attributes=_span_attributes(event)
            | measured
            | {
                "gen_ai.skill.resource.name": event.script,
                "skill.script.run": event.run,
                "skill.script.executor": event.executor,
                "skill.script.stdout_bytes": event.stdout_bytes,
                "skill.script.stderr_bytes": event.stderr_bytes,
                "skill.script.files": event.files,
            }
            | ({"skill.script.reason": event.reason} if event.reason else {})
            | ({"process.exit.code": event.exit_code} if event.exit_code is not None else {}),
        )
        if event.status == "error":
            span.set_status(Status(StatusCode.ERROR, event.reason or event.error_code))
        span.end(end_time=end)


def _common(event: SkillEvent) -> dict[str, AttributeValue]:
    names: dict[str, AttributeValue] = {}
    if event.skill:
        names["gen_ai.skill.name"] = event.skill
    if event.origin.agent:
        names["gen_ai.agent.name"] = event.origin.agent
    return names


def _span_attributes(event: SkillEvent) -> dict[str, AttributeValue]:
    attributes = _common(event)
    if event.origin.session:
        attributes["gen_ai.conversation.id"] = event.origin.session
    if event.origin.call:
        attributes["gen_ai.tool.call.id"] = event.origin.call
    return attributes


def _without_skill(names: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {name: value for name, value in names.items() if name != "gen_ai.skill.name"}


def _error(kind: str) -> dict[str, AttributeValue]:
    return {"error.type": kind or "_OTHER"}


def _on_current_span(event: SkillEvent, attributes: Mapping[str, AttributeValue]) -> None:
    span = trace.get_current_span()
    if span.is_recording():
        code = getattr(event, "error_code", "")
        span.set_attributes(_span_attributes(event) | dict(attributes) | (_error(code) if code else {}))
