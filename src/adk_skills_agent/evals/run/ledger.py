"""``trials.jsonl``: a row for each finished trial, written whole or not at all, read again by ``--resume``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        fingerprints = {key: trial.fingerprint for key, trial in trials.items()}
        rows = self.latest(result_of, fingerprints, "another version of the case, the skill, the model or the judge")
        self._unjudged = {key: start for key, (start, row) in rows.items() if row.error.get("kind") == "judge"}
        return {key: row for key, (_, row) in rows.items() if row.measured}

    def unjudged(self, key: Key) -> dict[str, Any] | None:
        """The row of a trial that only its judge failed, so that its conversation need not be held again."""
        start = self._unjudged.get(key)
        if start is None:
            return None
        with self.path.open("rb") as file:
            file.seek(start)
            row = json.loads(file.readline())
        return row if isinstance(row, dict) else None
