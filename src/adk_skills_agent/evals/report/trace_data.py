"""A row of results as the trace viewer shows it: every value a text, in the order of reading."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from adk_skills_agent.evals.report.clipping import Text
from adk_skills_agent.evals.trace import ToolCall, Trace

JsonObject = dict[str, Any]
TextOf = Callable[[str], Text]

_FIRST = ("error", "error_code", "message", "status", "return_code", "timed_out", "stdout", "stderr")
"""Of a tool's answer, what a reader looks for first; the rest follows as it came."""


def viewed(row: Mapping[str, Any], text: TextOf) -> JsonObject:
    """What the viewer shows of a trial.

    Args:
        row: Of ``trials.jsonl``.
        text: Puts a text into the page's form.

    Raises:
        ValueError: Its trace is none.
    """
    trace = Trace.from_json(row.get("trace") or {"turns": []})
    error = row.get("error") or None
    return {
        "source": row.get("source"),
        "started": row.get("started"),
        "available": list(row.get("skills_available") or ()),
        "loaded": list(row.get("skills_loaded") or ()),
        "activated": list(trace.activated),
        "trigger": row.get("expected_trigger"),
        "overhead": row.get("overhead_seconds"),
        "usage": row.get("usage"),
        "cost": row.get("cost_usd"),
        "judgeUsage": row.get("judge_usage"),
        "judgeCost": row.get("judge_cost_usd"),
        "error": None if error is None else {"kind": error.get("kind"), "message": text(str(error.get("message")))},
        "scores": [
            {
                "metric": str(score.get("metric")),
                "value": score.get("value"),
                "passed": score.get("passed"),
                "threshold": score.get("threshold"),
                "outcome": score.get("outcome"),
                "turns": [turn.get("value") for turn in score.get("per_turn") or ()],
                "detail": text(str(score.get("detail") or "")),
            }
            for score in row.get("scores") or ()
        ],
        "verdicts": [
            {
                "turn": verdict.get("turn"),
                "rubric": verdict.get("rubric"),
                "text": text(str(verdict.get("text") or "")),
                "met": verdict.get("met"),
                "agreement": verdict.get("agreement"),
                "samples": verdict.get("samples"),
                "rationale": text(str(verdict.get("rationale") or "")),
            }
            for verdict in row.get("verdicts") or ()
        ],
        "turns": [
            {
                "user": text(turn.user_text),
                "calls": [_call(call, text) for call in turn.calls],
                "final": text(turn.final_text),
                "tokens": None if turn.usage is None else turn.usage.to_json(),
                "seconds": turn.seconds,
                "error": text(turn.error),
            }
            for turn in trace.turns
        ],
        "files": [
            {"name": name, "size": file.size, "text": None if file.content is None else _content(file.content, text)}
            for name, file in trace.output_files.items()
        ],
    }


def texts_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Every text the viewer shows of a trial, for finding those that come back."""
    found: list[str] = []

    def keep(text: str) -> Text:
        found.append(text)
        return text

    viewed(row, keep)
    yield from found


def _call(call: ToolCall, text: TextOf) -> JsonObject:
    response = call.response
    order = [] if response is None else [key for key in _FIRST if key in response]
    return {
        "name": call.name,
        "about": _about(call),
        "failed": call.failed,
        "args": [[key, text(_as_text(value))] for key, value in call.args.items()],
        "response": None
        if response is None
        else [[key, text(_as_text(response[key]))] for key in (*order, *(key for key in response if key not in order))],
    }


def _about(call: ToolCall) -> str:
    file = call.args.get("file_path") or call.args.get("path")
    return " ".join(part[:120] for part in (call.skill, file if isinstance(file, str) else "") if part)


def _content(content: bytes, text: TextOf) -> Text | None:
    try:
        return text(content.decode())
    except UnicodeDecodeError:
        return None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
