"""Many trials at a time, each result kept the moment it is there."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from adk_skills_agent.evals.row_file import RowFile, Stopped, work_off
from adk_skills_agent.evals.skillsbench.environment import BuildError, Images
from adk_skills_agent.evals.skillsbench.results import BenchResult, RunState, finished, result_of
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.trial import BenchTrial
from adk_skills_agent.platforms import open_regular


async def run_bench(
    plan: Sequence[BenchTrial],
    run: Callable[[BenchTrial], Awaitable[dict[str, Any]]],
    rows: RowFile,
    state: RunState,
    *,
    parallel: int = 1,
    on_result: Callable[[RunState, BenchResult, dict[str, Any]], object] = lambda _state, _result, _row: None,
) -> None:
    """Run what is not finished yet.

    A cancellation ends it at once: what is finished is in the file and in ``state``, what was under way is not, and
    runs again with the next run. Raises ``ConfigError`` when the rows there are already do not fit the plan.

    Args:
        plan: All trials, in the order in which they start.
        run: Runs one; its row.
        rows: Gets them.
        state: Filled meanwhile.
        parallel: How many at once.
        on_result: Told when one ended.
    """
    done = finished(rows, {trial.key: trial.fingerprint for trial in plan})
    state.results.update(done)
    state.resumed = len(done)

    async def do(trial: BenchTrial) -> bool:
        row = await run(trial)
        rows.append(row)  # without a pause in between: nothing that is finished can be cancelled away
        result = result_of(row)
        state.results[result.key] = result
        on_result(state, result, row)
        return result.error_kind != "model"

    try:
        state.stopped = await work_off((trial for trial in plan if trial.key not in done), do, parallel=parallel)
    except asyncio.CancelledError:
        state.stopped = Stopped.INTERRUPTED
        raise


async def build_all(
    wanted: Sequence[tuple[Task, bool]],
    images: Images,
    *,
    parallel: int = 1,
    on_build: Callable[[Task, bool, BuildError | None], object] = lambda _task, _skills, _error: None,
) -> None:
    """Build environments and run nothing."""

    async def do(one: tuple[Task, bool]) -> bool:
        try:
            await images.get(one[0], with_skills=one[1])
        except BuildError as error:
            on_build(*one, error)
        else:
            on_build(*one, None)
        return True

    await work_off(wanted, do, parallel=parallel)


def make_plan(
    tasks: Sequence[Task], arms: Sequence[str], agents: Sequence[str], trials: int, settings: Mapping[str, Any]
) -> list[BenchTrial]:
    """Every trial, task by task, so that an environment is built when its first trial comes.

    ``settings`` is what else the results depend on: a run with others is not resumed.
    """
    plan = []
    for task in tasks:
        digest = _digest(task)
        for number in range(1, trials + 1):
            for agent in agents:
                for arm in arms:
                    parts = json.dumps([digest, arm, agent, dict(settings)], sort_keys=True)
                    fingerprint = hashlib.sha256(parts.encode()).hexdigest()[:16]
                    plan.append(BenchTrial(task, arm, number, agent, fingerprint))
    return plan


def _digest(task: Task) -> str:
    """Of the task's files: what they say, but of its data, which may be large, only names and sizes."""
    total = hashlib.sha256(f"{task.instruction}\0{task.limits}".encode())
    for folder in filter(None, (task.environment, task.tests, task.solution)):
        for path in sorted(folder.rglob("*")):
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                continue
            total.update(f"{path.relative_to(task.folder)}\0{status.st_size}\0".encode())
            if folder is not task.environment or path.name in {"Dockerfile", "SKILL.md"}:
                with contextlib.suppress(OSError), open_regular(path) as file:
                    while piece := file.read(1 << 20):
                        total.update(piece)
    return total.hexdigest()
