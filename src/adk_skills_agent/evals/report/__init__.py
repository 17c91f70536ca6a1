"""The report of a run: one HTML file that needs no network, with every trial's trace in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_report"]


def write_report(run_dir: Path, *, baseline: Path | None = None, benchmark: Mapping[str, Any] | None = None) -> Path:
    """Write ``report.html`` into the folder of a run; :func:`.write.build_report` says more of what it wrote.

    Args:
        run_dir: The ``--out`` folder of ``adk-skills eval``, also of a run that is not at its end.
        baseline: The folder of an earlier run of the same cases, to compare with.
        benchmark: What its ``benchmark.json`` holds, where the caller has it; None reads the file.

    Returns:
        The file.

    Raises:
        ConfigError: A folder has no results, or rows that are none.
        OSError: The file cannot be written.
    """
    # Late: other pages of ours share only the shell of this one.
    from adk_skills_agent.evals.report.page import build_report

    return build_report(run_dir, baseline=baseline, benchmark=benchmark).path
