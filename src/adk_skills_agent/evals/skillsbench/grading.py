"""Grading a trial: the tests go in only now, run under their own limits, and leave a reward.

Before that the agent's processes are ended, and ``/tests`` and ``/logs/verifier`` are emptied, so that nothing the
agent left there counts. What the verifier's exit code is does not matter; the reward file does (S0-135).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench.box import LOGS, Phase, TaskBox
from adk_skills_agent.evals.skillsbench.task import Task

TESTS, VERIFIER = "/tests", "/verifier"
VERIFIER_LOGS = f"{LOGS}/verifier"
_MAX_REWARD_BYTES = 64 << 10
_MAX_REPORT_BYTES = 1 << 20
_LAST_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Grade:
    """What the verifier said.

    Attributes:
        reward: Between 0 and 1; None when there is none, which is an error and not a zero.
        error: Why there is none.
        output: The end of what the verifier wrote.
        timed_out: Whether its time was over.
        seconds: How long it took.
        report: Its CTRF report, as it wrote it; None when there is none.
    """

    reward: float | None
    error: str | None = None
    output: str = ""
    timed_out: bool = False
    seconds: float = 0.0
    report: str | None = None

    @property
    def passed(self) -> bool | None:
        """Whether everything was right; None without a reward."""
        return None if self.reward is None else self.reward >= 1.0


async def grade(task: Task, box: TaskBox, phase: Phase) -> Grade:
    """Run a task's verifier.

    Args:
        task: The task.
        box: Where the agent worked.
        phase: Network, variables and folders besides the tests.

    Raises:
        SandboxError: The box failed before the tests could run.
    """
    where = VERIFIER if task.layout == "benchflow" and task.tests.name == "verifier" else TESTS
    await box.end_processes()
    for folder in (TESTS, VERIFIER, VERIFIER_LOGS):
        await box.empty(folder)
    whole = Phase(
        phase.network,
        (*phase.folders, (where, task.tests)),
        (*phase.env, ("BENCHFLOW_VERIFIER_DIR", where)),
    )
    ran = await box.run(
        ("bash", f"{where}/test.sh"), seconds=task.limits.verifier_seconds, phase=whole, cwd=box.workdir
    )
    await box.end_processes()
    output = ran.text[-_LAST_CHARACTERS:]
    text = await box.read(f"{VERIFIER_LOGS}/reward.txt", _MAX_REWARD_BYTES)
    named = await box.read(f"{VERIFIER_LOGS}/reward.json", _MAX_REWARD_BYTES) if text is None else None
    report = await box.read(f"{VERIFIER_LOGS}/ctrf.json", _MAX_REPORT_BYTES)
    reward, problem = reward_of(text, named)
    if reward is None and ran.timed_out:
        problem = f"The verifier took longer than {task.limits.verifier_seconds:g} seconds and left no reward."
    elif reward is None and text is None and named is None:
        problem = f"The verifier ended with code {ran.exit_code} and left no reward."
    return Grade(
        reward,
        problem,
        output,
        ran.timed_out,
        ran.seconds,
        report.decode("utf-8", "replace") if report is not None else None,
    )


def reward_of(text: bytes | None, named: bytes | None) -> tuple[float | None, str | None]:
    """The reward in ``reward.txt``, else in ``reward.json`` (its ``reward``, or the mean of named rewards).

    Returns:
        The reward, or None and the reason.
    """
    if text is not None:
        return _number(text.decode("utf-8", "replace").strip(), "reward.txt")
    if named is None:
        return None, "There is neither reward.txt nor reward.json."
    try:
        values = json.loads(named)
    except (ValueError, RecursionError) as error:
        return None, f"reward.json is no JSON: {error}."
    if isinstance(values, dict) and "reward" in values:
        values = values["reward"]
    if isinstance(values, dict):
        if not values:
            return None, "reward.json names no reward."
        found = [_number(value, f"{name} in reward.json") for name, value in values.items()]
        problem = next((problem for _, problem in found if problem), None)
        if problem:
            return None, problem
        return sum(reward for reward, _ in found if reward is not None) / len(found), None
    return _number(values, "reward.json")


def _number(value: object, where: str) -> tuple[float | None, str | None]:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if math.isnan(number) or not 0.0 <= number <= 1.0:
        return None, f"{where} has {str(value)[:60]!r}, which is no number from 0 to 1."
    return number, None


def infrastructure_error(error: SandboxError) -> Grade:
    """The grade of a trial whose box failed: none."""
    return Grade(None, error.message)
