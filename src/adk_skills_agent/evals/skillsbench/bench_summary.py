"""The results of a benchmark run in short: a table by arm and by domain, and what the skills are worth."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from adk_skills_agent.evals.skillsbench.results import BenchResult
from adk_skills_agent.evals.skillsbench.trial import NO_SKILL
from adk_skills_agent.evals.statistics import paired_lift


def summarise(results: Sequence[BenchResult], arms: Sequence[str], agents: Sequence[str]) -> dict[str, Any]:
    """Everything that is printed of a run, as JSON values.

    A rate is the mean over tasks of each task's mean over its trials, so that a task counts once however often it was
    measured; trials without a reward count in no rate and are told as ``errors``.
    """
    sides = [(agent, arm) for agent in agents for arm in arms]
    return {
        "arms": [_side(agent, arm, _of(results, agent, arm)) for agent, arm in sides],
        "domains": [
            {"domain": domain, **_side(agent, arm, found)}
            for domain in sorted({result.category for result in results})
            for agent, arm in sides
            if (found := [result for result in _of(results, agent, arm) if result.category == domain])
        ],
        "lift": [
            lift
            for agent in agents
            for arm in arms
            if arm != NO_SKILL and NO_SKILL in arms and (lift := _lift(results, agent, arm)) is not None
        ],
    }


def self_test_problems(results: Sequence[BenchResult]) -> list[str]:
    """Tasks whose oracle does not get 1 or whose nop does not get 0, one sentence each; empty when all is well."""
    problems = []
    for result in results:
        wanted = {"oracle": 1.0, "nop": 0.0}.get(result.agent)
        if wanted is not None and result.reward != wanted:
            got = "no reward" if result.reward is None else f"{result.reward:g}"
            why = f" ({result.error})" if result.error else ""
            problems.append(f"{result.task}: {result.agent} got {got} instead of {wanted:g}{why}")
    return problems


def _of(results: Sequence[BenchResult], agent: str, arm: str) -> list[BenchResult]:
    return [result for result in results if result.agent == agent and result.arm == arm]


def _side(agent: str, arm: str, results: Sequence[BenchResult]) -> dict[str, Any]:
    rewards = _by_task(results)
    passes = {task: statistics.fmean(value >= 1.0 for value in values) for task, values in rewards.items()}
    measured = [result for result in results if result.measured]
    return {
        "agent": agent,
        "arm": arm,
        "tasks": len({result.task for result in results}),
        "trials": len(results),
        "errors": len(results) - len(measured),
        "timeouts": sum(result.error_kind == "timeout" for result in results),
        "pass_rate": statistics.fmean(passes.values()) if passes else None,
        "mean_reward": statistics.fmean(statistics.fmean(values) for values in rewards.values()) if rewards else None,
        "mean_seconds": statistics.fmean(result.seconds for result in measured) if measured else None,
        "skill_used": statistics.fmean(bool(result.skills_used) for result in measured) if measured else None,
        "tasks_with_skills": len({result.task for result in results if result.skills_available}),
        "tokens": sum(result.tokens for result in results),
    }


def _by_task(results: Sequence[BenchResult]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for result in results:
        if result.reward is not None:
            found.setdefault(result.task, []).append(result.reward)
    return found


def _lift(results: Sequence[BenchResult], agent: str, arm: str) -> dict[str, Any] | None:
    ours, theirs = _by_task(_of(results, agent, arm)), _by_task(_of(results, agent, NO_SKILL))
    both = [task for task in ours if task in theirs]
    lift = paired_lift([(statistics.fmean(ours[task]), statistics.fmean(theirs[task])) for task in both])
    if lift is None:
        return None
    figures = asdict(lift)
    return {
        "agent": agent,
        "arm": arm,
        "baseline": NO_SKILL,
        "tasks": figures.pop("pairs"),
        **figures,
        "by_task": {task: statistics.fmean(ours[task]) - statistics.fmean(theirs[task]) for task in both},
    }
