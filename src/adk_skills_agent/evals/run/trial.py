"""One trial from its start to its row: the conversation, the scores, what it cost."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError, SkillsError
from adk_skills_agent.evals.judge import Judge
from adk_skills_agent.evals.judge_model import sentence_of
from adk_skills_agent.evals.metrics.registry import METRICS
from adk_skills_agent.evals.models import Price
from adk_skills_agent.evals.run.agent import Agents
from adk_skills_agent.evals.run.conversation import converse
from adk_skills_agent.evals.run.grading import Grade, grade
from adk_skills_agent.evals.run.plan import Trial
from adk_skills_agent.evals.run.result import SCHEMA, trace_of
from adk_skills_agent.evals.trace import Trace, Usage, plain

if TYPE_CHECKING:
    from google.adk.models import BaseLlm

    from adk_skills_agent.evals.run.conversation import SimulatedUser

TIMEOUT_SECONDS = 600.0
FAILED_KINDS = ("timeout", "agent")
"""Errors that are the agent's: the trial is scored by what there is, and has not passed."""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """What all trials of a run share."""

    agents: Agents
    judge: Judge | None = None
    timeout: float = TIMEOUT_SECONDS  # seconds for a conversation
    price: Price | None = None  # of the agent's tokens; None when it is not known
    judge_price: Price | None = None
    users: Mapping[str, BaseLlm] = field(default_factory=dict)
    user_prices: Mapping[str, Price] = field(default_factory=dict)


async def run_trial(trial: Trial, settings: TrialSettings) -> dict[str, Any]:
    """Run a trial and score it.

    Returns its row for ``trials.jsonl``. Whatever fails in the conversation or the judging is in the row. Raises
    ``ConfigError``.
    """
    begun, started = time.perf_counter(), datetime.now(UTC)
    try:
        agent, activations, available = settings.agents.make(trial)
    except SkillsError:
        raise
    except Exception as failure:
        raise ConfigError(f"The agent cannot be made: {sentence_of(failure)}") from failure
    # Names are the user's, and google-adk takes no session whose id reads like a path.
    session = hashlib.sha256("\0".join(map(str, trial.key)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    user = _user(trial, settings)
    went = await converse(trial.case, agent, activations, session, settings.timeout, user)
    error = {"kind": went.error[0], "message": went.error[1]} if went.error else None
    given, waited = await _graded(trial, went.trace, error, settings)
    usage = went.trace.usage or Usage()
    overhead = time.perf_counter() - begun - went.seconds - went.user_seconds - waited
    row = _named(trial) | {
        "started": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "seconds": round(went.seconds, 6),
        "overhead_seconds": round(max(overhead, 0.0), 6),
        "skills_available": list(available),
        "skills_loaded": list(went.trace.skills_loaded),
        "error": error,
        "usage": usage.to_json(),
        "cost_usd": settings.price.cost(usage) if settings.price else None,
        "simulated_user": _user_row(trial, user, settings),
        "trace": went.trace.to_json(),
    }
    return row | _scores(given, error, settings, outcome=any(METRICS[name].outcome for name in trial.criteria))


def unmeasured_row(trial: Trial, kind: str, why: str) -> dict[str, Any]:
    """The row of a trial that never ran: it is run again by ``--resume``."""
    nothing = ("passed", "outcome_passed", "score", "outcome", "cost_usd", "judge_cost_usd", "simulated_user", "trace")
    usage = Usage().to_json()
    return {**_named(trial), **dict.fromkeys(nothing)} | {
        "started": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "seconds": 0.0,
        "overhead_seconds": 0.0,
        "skills_available": [],
        "skills_loaded": [],
        "scores": [],
        "verdicts": [],
        "usage": usage,
        "judge_usage": usage,
        "error": {"kind": kind, "message": why},
    }


def _named(trial: Trial) -> dict[str, Any]:
    """The part of a row that says which trial it is of."""
    case = trial.case
    return {
        "schema": SCHEMA,
        "case": case.id,
        "kind": case.kind,
        "skills": list(case.skills),
        "arm": trial.arm.name,
        "run": trial.run,
        "source": str(case.source),
        "fingerprint": trial.fingerprint,
        "expected_trigger": case.should_trigger,
        "split": case.split or None,
    }


def _user(trial: Trial, settings: TrialSettings) -> SimulatedUser | None:
    scenario = trial.case.scenario
    if scenario is None:
        return None
    from adk_skills_agent.evals.run.conversation import SimulatedUser

    if scenario.model not in settings.users:
        raise ConfigError(f"Case {trial.case.id!r} needs a model to play its user. Name it with --user-model.")
    return SimulatedUser(scenario, settings.users[scenario.model])


def _user_row(trial: Trial, user: SimulatedUser | None, settings: TrialSettings) -> dict[str, Any] | None:
    if user is None or trial.case.scenario is None:
        return None
    price = settings.user_prices.get(trial.case.scenario.model)
    return {
        "model": trial.case.scenario.model,
        "ended": user.ended or None,
        "usage": user.usage.to_json(),
        "cost_usd": price.cost(user.usage) if price is not None else None,
    }


async def judge_again(trial: Trial, row: Mapping[str, Any], settings: TrialSettings) -> dict[str, Any]:
    """Score the conversation of a trial that only its judge failed; it is not held again.

    Returns the row, scored anew. Raises ``ConfigError`` when it has no trace.
    """
    given, _ = await _graded(trial, trace_of(row, "trials.jsonl"), None, settings)
    given.judge_usage += Usage.from_json(row["judge_usage"])  # paid as well
    return {**row, "error": None, **_scores(given, None, settings, outcome=False)}


async def _graded(
    trial: Trial, trace: Trace, error: Mapping[str, str] | None, settings: TrialSettings
) -> tuple[Grade, float]:
    """The scores, and the seconds the judge took. What was not the agent's failure is not scored."""
    if error is not None and error["kind"] not in FAILED_KINDS:
        return Grade(error=error["message"]), 0.0
    asked = time.perf_counter()
    given = await grade(trial, trace, settings.judge)
    return given, time.perf_counter() - asked if given.verdicts or given.error else 0.0


def _scores(given: Grade, error: Mapping[str, str] | None, settings: TrialSettings, *, outcome: bool) -> dict[str, Any]:
    """The part of a row that says how good it was; ``outcome``: whether an agent that failed has missed one."""
    failed = error is not None and error["kind"] in FAILED_KINDS
    judged: dict[str, Any] = {"error": {"kind": "judge", "message": given.error}} if given.error and not error else {}
    return {
        "passed": False if failed else given.passed,
        "outcome_passed": False if failed and outcome else given.outcome_passed,
        "score": given.score,
        "outcome": given.outcome,
        "scores": plain(given.scores),
        "verdicts": given.verdicts,
        "judge_usage": given.judge_usage.to_json(),
        "judge_cost_usd": settings.judge_price.cost(given.judge_usage) if settings.judge_price else None,
        **judged,
    }
