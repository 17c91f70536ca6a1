"""The report of a run: one HTML file that needs no network, with every trial's trace in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_report"]


def write_report(run_dir: Path, *, baseline: Path | None = None, benchmark: Mapping[str, Any] | None = None) -> Path:
    """Write ``report.html`` into the folder of a run; :func:`.write.build_report` says more of what it wrote.

    ``run_dir`` may be of a run that is not at its end; ``baseline`` is an earlier run of the same cases. ``benchmark``
    is what ``benchmark.json`` holds, where the caller has it. Returns the file. Raises ``ConfigError`` when a folder
    has no results, or rows that are none, or ``OSError`` when the file cannot be written.
    """
    # Late: other pages of ours share only the shell of this one.
    from adk_skills_agent.evals.report.page import build_report

    return build_report(run_dir, baseline=baseline, benchmark=benchmark).path
