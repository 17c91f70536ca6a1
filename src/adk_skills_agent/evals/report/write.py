"""From a results folder to ``report.html``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.figures import blind_figures
from adk_skills_agent.evals.report.comparison import Comparison, compare
from adk_skills_agent.evals.report.embedding import Embedded, embed
from adk_skills_agent.evals.report.page import report_page
from adk_skills_agent.evals.report.run_folder import RunFolder, read_run
from adk_skills_agent.evals.whole_file import write_whole

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written.

    Attributes:
        path: The file.
        size: Its bytes.
        run: What it is about.
        data: What of the traces is in it.
        comparison: With the baseline, if there is one.
    """

    path: Path
    size: int
    run: RunFolder
    data: Embedded
    comparison: Comparison | None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "report": str(self.path),
            "bytes": self.size,
            "trials": len(self.run.results),
            "cases": len(self.run.summary.cases),
            "arms": list(self.run.summary.arms),
            "shortened_texts": self.data.clipped,
            "characters_left_out": self.data.left_out,
            "traces_left_out": self.data.without_trace,
            "notes": [*self.data.notes, *self.run.notes],
            "lift": self.run.summary.lifts(),
            "blind": blind_figures(self.run.compared),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
        }


def build_report(run_dir: Path, *, baseline: Path | None = None, out: Path | None = None) -> Report:
    """Write the report of a run as one HTML file (issue 6, part 4).

    Traces that would make it too large are shortened; each place in the page says so, and so does the result.

    Args:
        run_dir: The ``--out`` folder of ``adk-skills eval``, also of a run that is not at its end.
        baseline: The folder of an earlier run of the same cases, to compare with.
        out: The file; ``report.html`` in ``run_dir`` by default.

    Raises:
        ConfigError: A folder has no results, or rows that are none.
        OSError: The file cannot be written.
    """
    run = read_run(run_dir)
    earlier = None if baseline is None else read_run(baseline)
    if earlier is not None and earlier.path.resolve() == run.path.resolve():
        raise ConfigError(f"The baseline {baseline} is the run itself. Give the folder of an earlier run.")
    comparison = None if earlier is None else compare(run.summary, earlier.summary)
    data = embed([run] if earlier is None else [run, earlier])
    page = report_page(run, data, earlier, comparison).encode("utf-8", "replace")
    path = run_dir / REPORT if out is None else out
    write_whole(path, page)
    return Report(path, len(page), run, data, comparison)
