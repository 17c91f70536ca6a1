"""Which trials a run has, in which order."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.trial import BenchTrial


def make_plan(
    tasks: Sequence[Task], arms: Sequence[str], agents: Sequence[str], trials: int, settings: Mapping[str, Any]
) -> list[BenchTrial]:
    """Every trial, task by task, so that an environment is built when its first trial comes.

    Args:
        tasks: Those that can run.
        arms: Names of arms.
        agents: Names of agents.
        trials: Repetitions of each.
        settings: What else the results depend on; a run with others is not resumed.
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
                total.update(_bytes(path))
    return total.hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
