"""Trials as data within the page: compressed, in parts that are unpacked when somebody looks, below a size."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.report.clipping import RepeatedTexts, TextTable
from adk_skills_agent.evals.report.run_folder import RunFolder
from adk_skills_agent.evals.report.trace_data import texts_of, viewed
from adk_skills_agent.evals.run.plan import Key
from adk_skills_agent.evals.run.result import TrialResult

BUDGET_BYTES = 4_000_000
"""Of all traces within the page; with figures and charts of 1,000 trials it stays below 5 MB (issue 6)."""
LIMITS = (50_000, 16_000, 6_000, 2_500, 1_000, 400)
"""Characters of one text, tried in this order until the traces fit."""
_PART_CHARACTERS = 300_000
"""JSON of one part: unpacked within milliseconds."""
_LEVEL = 6
"""Of gzip: 9 takes twice as long for one percent."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The data of a page.

    Attributes:
        html: Data blocks for the end of the body.
        clipped: How many texts were shortened.
        left_out: Characters left out by that.
        limit: Characters of the longest text; 0 when none was shortened.
        without_trace: Trials whose trace had no room at all.
    """

    html: str = field(repr=False)
    clipped: int
    left_out: int
    limit: int
    without_trace: int

    @property
    def notes(self) -> list[str]:
        """What a reader of the page has to know, one sentence each."""
        said = []
        if self.clipped:
            said.append(
                f"To keep this page small, {self.clipped:,} texts longer than {self.limit:,} characters are shortened "
                f"({self.left_out:,} characters); each place is marked. trials.jsonl has them whole."
            )
        if self.without_trace:
            said.append(
                f"The traces of {self.without_trace:,} trials had no room in this page (failed trials come first); "
                "their figures are here, and trials.jsonl has them whole."
            )
        return said


def embed(runs: Sequence[RunFolder], *, budget: int = BUDGET_BYTES) -> Embedded:
    """Put the trials of the runs into data blocks.

    Args:
        runs: The run, and perhaps its baseline.
        budget: Most bytes of all traces.

    Raises:
        ConfigError: A row has a trace that is none.
    """
    repeated = RepeatedTexts()
    for run in runs:
        for key, row in run.rows(list(run.results)):
            try:
                repeated.count(texts_of(row))
            except (ValueError, AttributeError, TypeError) as error:
                raise ConfigError(f"{run.path}/trials.jsonl:{run.places[key].line}: {error}") from error
    # What went wrong is what a reader wants to see: should room run out, it runs out for what went well.
    wanted = [(number, key) for number, run in enumerate(runs) for key in run.results]
    wanted.sort(key=lambda one: (one[0], bool(runs[one[0]].results[one[1]].passed)))
    for limit in LIMITS:
        packed = _Packed(runs, TextTable(repeated, limit), budget)
        if packed.fill(wanted, stop=limit != LIMITS[-1]):
            break
    table = packed.texts
    index = [
        _entry(run.results[key], number, run.places[key].line, packed.places.get((number, key)))
        for number, run in enumerate(runs)
        for key in run.results
    ]
    blocks = [("index", _packed(_json({"trials": index}))), ("shared", _packed(_json(table.shared)))]
    blocks += [(f"part-{number}", part) for number, part in enumerate(packed.parts)]
    html = "".join(f'<script type="text/plain" id="data-{name}">{data}</script>\n' for name, data in blocks)
    return Embedded(
        html, table.clipped, table.left_out, limit if table.clipped else 0, len(wanted) - len(packed.places)
    )


class _Packed:
    """Traces, packed in parts as long as there is room."""

    def __init__(self, runs: Sequence[RunFolder], texts: TextTable, budget: int) -> None:
        self._runs, self._budget = runs, budget
        self.texts = texts
        self.parts: list[str] = []
        self.places: dict[tuple[int, Key], tuple[int, int]] = {}
        self._size = 0
        self._open: list[str] = []
        self._open_size = 0

    def fill(self, wanted: Sequence[tuple[int, Key]], *, stop: bool) -> bool:
        """Pack these trials.

        Args:
            wanted: In order of importance.
            stop: Give up when they do not fit; else leave out those that do not.

        Returns:
            Whether it is done, all of them packed or not.
        """
        for number, run in enumerate(self._runs):
            for key, row in run.rows([key for of, key in wanted if of == number]):
                shown = _json(viewed(row, self.texts.text))
                self.places[number, key] = (len(self.parts), len(self._open))
                self._open.append(shown)
                self._open_size += len(shown)
                if self._open_size >= _PART_CHARACTERS:
                    self._close()
                    if self._size + self.texts.shared_bytes > self._budget:
                        return not stop
        self._close()
        return not stop or self._size + self.texts.shared_bytes <= self._budget

    def _close(self) -> None:
        if self._open:
            part = _packed(f"[{','.join(self._open)}]")
            self.parts.append(part)
            self._size += len(part)
            self._open, self._open_size = [], 0


def _entry(result: TrialResult, run: int, line: int, place: tuple[int, int] | None) -> list[Any]:
    return [
        run, result.case, result.arm, result.run, result.kind, result.passed, result.score, result.seconds,
        result.usage.total, result.tool_calls, result.error.get("kind"), line, *(place or (-1, -1)),
    ]  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode("ascii")
