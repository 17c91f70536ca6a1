"""``trials.jsonl``: a row for each finished trial, written whole or not at all, read again by ``--resume``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.row_file import RowFile, read_rows
from adk_skills_agent.evals.run.plan import Key, Trial
from adk_skills_agent.evals.run.result import TrialResult, result_of

__all__ = ["NAME", "Ledger", "read_rows"]

NAME = "trials.jsonl"


class Ledger(RowFile):
    """The trials of one output folder; see :class:`RowFile`."""

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        super().__init__(folder, NAME, resume=resume)
        self._unjudged: dict[Key, int] = {}

    def finished(self, trials: Mapping[Key, Trial]) -> dict[Key, TrialResult]:
        """The results there are already, of the trials asked for; the last row of a trial counts.

        A torn row at the end (the process was killed while it wrote) is cut off. Rows of trials that were not measured
        are not results: the trial is run again, or only judged again (:meth:`unjudged`).

        Raises:
            ConfigError: A row is no result, or was measured with another version of the case, the skill or the model.
        """
        self.cut_torn_row()
        found: dict[Key, TrialResult] = {}
        changed: dict[str, None] = {}
        others = 0
        for number, start, line in self.lines():
            try:
                result = result_of(json.loads(line))
            except ValueError as error:
                raise ConfigError(f"{self.path}:{number}: {error}. Repair the line, or give another --out.") from error
            trial = trials.get(result.key)
            if trial is None:
                others += 1
            elif trial.fingerprint == result.fingerprint:
                found[result.key] = result
                self._unjudged.pop(result.key, None)
                if result.error.get("kind") == "judge":
                    self._unjudged[result.key] = start
            elif result.measured:
                changed[result.case] = None
        if changed:
            names = ", ".join(list(changed)[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
            raise ConfigError(
                f"{self.path} was measured with another version of the case, the skill, the model or the judge: "
                f"{names}. Results of both cannot be put together; give another --out."
            )
        if others:
            self.notes.append(f"{others} rows of {self.path} are of trials not asked for now: kept, and not counted.")
        return {key: result for key, result in found.items() if result.measured}

    def unjudged(self, key: Key) -> dict[str, Any] | None:
        """The row of a trial that only its judge failed, so that its conversation need not be held again."""
        start = self._unjudged.get(key)
        if start is None:
            return None
        with self.path.open("rb") as file:
            file.seek(start)
            row = json.loads(file.readline())
        return row if isinstance(row, dict) else None
