"""Short ways to write google-adk's eval cases and metrics."""

from __future__ import annotations

from typing import Any

from google.adk.evaluation.eval_case import EvalCase
from google.adk.evaluation.eval_metrics import BaseCriterion, EvalMetric


def invocation(text: str, *calls: str, says: str = "", rubrics: list[str] | None = None) -> dict[str, Any]:
    return {
        "user_content": {"role": "user", "parts": [{"text": text}]},
        "final_response": {"role": "model", "parts": [{"text": says}]} if says else None,
        "intermediate_data": {"tool_uses": [{"name": name, "args": {"what": "a"}} for name in calls]},
        "rubrics": [rubric(text) for text in rubrics] if rubrics else None,
    }


def rubric(text: str, kind: str | None = None) -> dict[str, Any]:
    return {"rubric_id": text, "rubric_content": {"text_property": text}, "type": kind}


def case(name: str, *conversation: dict[str, Any], **fields: Any) -> EvalCase:
    return EvalCase.model_validate({"eval_id": name, "conversation": list(conversation) or None, **fields})


def metric(name: str, threshold: float | None = 1.0, **options: Any) -> EvalMetric:
    criterion = None if threshold is None else BaseCriterion(threshold=threshold, **options)
    return EvalMetric(metric_name=name, criterion=criterion)
