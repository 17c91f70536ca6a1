"""Many trials at a time, each result kept the moment it is there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from adk_skills_agent.evals.in_parallel import in_parallel
from adk_skills_agent.evals.row_file import RowFile
from adk_skills_agent.evals.skillsbench.box import BuildError
from adk_skills_agent.evals.skillsbench.images import Images
from adk_skills_agent.evals.skillsbench.results import BenchResult, RunState, finished, result_of
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.trial import BenchSettings, BenchTrial, run_trial

OUTAGE_TRIALS = 3
"""Trials in a row whose model could not be used: the next ones would fare the same."""
INTERRUPTED, OUTAGE = "interrupted", "outage"


async def run_bench(
    plan: Sequence[BenchTrial],
    settings: BenchSettings,
    rows: RowFile,
    state: RunState,
    *,
    parallel: int = 1,
    on_result: Callable[[RunState, BenchResult, dict[str, Any]], object] = lambda _state, _result, _row: None,
) -> None:
    """Run what is not finished yet.

    A cancellation ends it at once: what is finished is in the file and in ``state``, what was under way is not, and
    runs again with the next run.

    Args:
        plan: All trials, in the order in which they start.
        settings: What they share.
        rows: Gets a row for each.
        state: Filled meanwhile.
        parallel: How many at once.
        on_result: Told of each trial that ends.

    Raises:
        ConfigError: The rows there are already do not fit the plan.
    """
    done = finished(rows, {trial.key: trial.fingerprint for trial in plan})
    state.results.update(done)
    state.resumed = len(done)
    waiting = deque(trial for trial in plan if trial.key not in done)
    outages = 0

    async def work() -> None:
        nonlocal outages
        while waiting and not state.stopped:
            row = await run_trial(waiting.popleft(), settings)
            rows.append(row)  # without a pause in between: nothing that is finished can be cancelled away
            result = result_of(row)
            state.results[result.key] = result
            outages = outages + 1 if result.error_kind == "model" else 0
            if outages >= OUTAGE_TRIALS:
                state.stopped = OUTAGE
            on_result(state, result, row)

    try:
        await in_parallel(parallel, len(waiting), work)
    except asyncio.CancelledError:
        state.stopped = INTERRUPTED
        raise


async def build_all(
    wanted: Sequence[tuple[Task, bool]],
    images: Images,
    *,
    parallel: int = 1,
    on_build: Callable[[Task, bool, BuildError | None], object] = lambda _task, _skills, _error: None,
) -> None:
    """Build environments and run nothing.

    Args:
        wanted: Tasks, each with or without its skills.
        images: Builds them.
        parallel: How many at once.
        on_build: Told of each, with the error when it failed.
    """
    waiting = deque(wanted)

    async def work() -> None:
        while waiting:
            task, with_skills = waiting.popleft()
            try:
                await images.get(task, with_skills=with_skills)
            except BuildError as error:
                on_build(task, with_skills, error)
            else:
                on_build(task, with_skills, None)

    await in_parallel(parallel, len(waiting), work)
