"""How a run is going, on stderr: a live display on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from adk_skills_agent.cli.output import safe

if TYPE_CHECKING:
    from adk_skills_agent.evals.blind.rows import Compared
    from adk_skills_agent.evals.blind.run import BlindState
    from adk_skills_agent.evals.run.result import TrialResult
    from adk_skills_agent.evals.run.schedule import RunState


class Progress:
    """Shows a run.

    Args:
        state: Of the run.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._display: Any = None
        self._task: Any = None
        self._begun = time.monotonic()
        if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._display, self._task = _display(state.planned)

    def __enter__(self) -> Self:
        if self._display is not None:
            self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the display away."""
        if self._display is not None:
            self._display.stop()
            self._display = None

    def __call__(self, state: RunState, result: TrialResult | None) -> None:
        """Take a trial's start (no result) or end."""
        done = len(state.results)
        if self._display is not None:
            now = ", ".join(f"{safe(case)} {arm} {run}" for case, arm, run in list(state.running)[:2])
            spent = f" ${state.spent:.4f}" if state.spent else ""
            self._display.update(self._task, completed=done, description=f"{_counts(state)}{spent}  {now}")
        elif result is not None:
            print(f"[{done}/{state.planned}] {_line(result)}", file=sys.stderr, flush=True)

    def compared(self, state: BlindState, result: Compared | None) -> None:
        """Take a blind comparison's start (no result) or end. Who won is not said before all are done."""
        done = len(state.results)
        if self._display is not None:
            spent = f" ${state.spent:.4f}" if state.spent else ""
            self._display.update(self._task, total=state.planned, completed=done, description=f"compared blind{spent}")
        elif result is not None:
            case, _, _, run = result.key
            said = f"compared, {result.agreement:.0%} agree" if result.measured else f"no verdict: {safe(result.error)}"
            print(f"[{done}/{state.planned}] {safe(case)} run {run}: {said}", file=sys.stderr, flush=True)


def _display(planned: int) -> tuple[Any, Any]:
    """A progress bar of rich; nothing where rich is not installed (it comes with the extra eval)."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None, None
    bar = Bar(
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    return bar, bar.add_task("", total=planned)


def _counts(state: RunState) -> str:
    results = state.results.values()
    passed = sum(result.passed is True for result in results)
    failed = sum(result.passed is False for result in results)
    errors = len(state.results) - passed - failed
    return f"{passed} passed, {failed} failed" + (f", {errors} not measured" if errors else "")


def _line(result: TrialResult) -> str:
    said = {True: "passed", False: "failed", None: "not measured"}[result.passed]
    cost = f" ${result.spent:.4f}" if result.spent else ""
    why = f": {safe(result.error['message'])}" if result.error else ""
    return f"{safe(result.case)} {safe(result.arm)} run {result.run}: {said}, {result.seconds:.1f} s{cost}{why}"
