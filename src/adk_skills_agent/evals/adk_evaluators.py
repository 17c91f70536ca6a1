"""Our metrics as google-adk ``Evaluator`` classes.

Importing this module registers them, so that an agent's ``agent.py`` needs one line, and an eval config only names the
metrics in ``criteria``::

    import adk_skills_agent.evals.adk_evaluators
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

from google.adk.evaluation.eval_case import ConversationScenario, Invocation
from google.adk.evaluation.eval_metrics import BaseCriterion, EvalMetric, Interval, MetricInfo, MetricValueInfo
from google.adk.evaluation.evaluator import EvaluationResult, Evaluator
from google.adk.evaluation.metric_evaluator_registry import (
    DEFAULT_METRIC_EVALUATOR_REGISTRY,
    MetricEvaluatorRegistry,
)

from adk_skills_agent.evals import adk_metrics
from adk_skills_agent.evals.metrics.registry import JUDGED, METRICS


class SkillMetricEvaluator(Evaluator):
    """One of our metrics; each has a subclass."""

    criterion_type: ClassVar[type[BaseCriterion]] = BaseCriterion
    metric_name: ClassVar[str]

    def __init__(self, eval_metric: EvalMetric) -> None:
        self.eval_metric = eval_metric

    def evaluate_invocations(
        self,
        actual_invocations: list[Invocation],
        expected_invocations: list[Invocation] | None = None,
        conversation_scenario: ConversationScenario | None = None,
    ) -> EvaluationResult | Awaitable[EvaluationResult]:
        """Score what google-adk recorded."""
        if self.metric_name == JUDGED:
            return adk_metrics.instruction_adherence_score(
                self.eval_metric, actual_invocations, expected_invocations, conversation_scenario
            )
        return adk_metrics.score_invocations(
            self.metric_name, self.eval_metric, actual_invocations, expected_invocations
        )


def _evaluator(name: str) -> type[SkillMetricEvaluator]:
    kind = "".join(word.capitalize() for word in name.removesuffix("_score").split("_"))
    return type(f"{kind}Evaluator", (SkillMetricEvaluator,), {"metric_name": name, "__module__": __name__})


EVALUATORS = tuple(map(_evaluator, METRICS))


def register_skill_metrics(registry: MetricEvaluatorRegistry | None = None) -> MetricEvaluatorRegistry:
    """Make every metric of ours known to google-adk's evaluation. Safe to call again.

    ``registry`` None is the one that ``adk eval`` and ``AgentEvaluator`` look into. Returns the registry.
    """
    target = DEFAULT_METRIC_EVALUATOR_REGISTRY if registry is None else registry
    share = MetricValueInfo(interval=Interval(min_value=0.0, max_value=1.0))
    for evaluator in EVALUATORS:
        about = METRICS[evaluator.metric_name].about
        info = MetricInfo(metric_name=evaluator.metric_name, description=about, metric_value_info=share)
        target.register_evaluator(info, evaluator)
    return target


register_skill_metrics()
