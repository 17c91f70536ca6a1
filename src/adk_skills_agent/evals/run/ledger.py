"""``trials.jsonl``: a row for each finished trial, written whole or not at all, read again by ``--resume``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.run.plan import Key, Trial
from adk_skills_agent.evals.run.result import TrialResult, result_of

NAME = "trials.jsonl"


class Ledger:
    """The rows of one output folder, for one process at a time.

    Args:
        folder: Made when it is missing.
        resume: Whether rows may be there already.

    Raises:
        ConfigError: There are rows and ``resume`` is off, another process writes here, or the folder cannot be used.
    """

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        self.path = folder / NAME
        self.notes: list[str] = []
        self._unjudged: dict[Key, int] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"Results cannot be written to {folder}: {error.strerror or error}.") from error
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigError(f"Another run writes to {folder}. Wait for it, or give another --out.") from error
            if not resume and os.fstat(self._descriptor).st_size:
                raise ConfigError(f"{folder} has results already. Continue them with --resume, or give another --out.")
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write here."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def finished(self, trials: Mapping[Key, Trial]) -> dict[Key, TrialResult]:
        """The results there are already, of the trials asked for; the last row of a trial counts.

        A torn row at the end (the process was killed while it wrote) is cut off. Rows of trials that were not measured
        are not results: the trial is run again, or only judged again (:meth:`unjudged`).

        Raises:
            ConfigError: A row is no result, or was measured with another version of the case, the skill or the model.
        """
        self._cut_torn_row()
        found: dict[Key, TrialResult] = {}
        changed: dict[str, None] = {}
        others = 0
        for number, start, line in self._lines():
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

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row.

        Raises:
            OSError: The disk did not take it.
        """
        data = json.dumps(row, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        start = os.fstat(self._descriptor).st_size
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
        except BaseException:
            if done:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, start)
            raise

    def _cut_torn_row(self) -> None:
        size = os.fstat(self._descriptor).st_size
        end = 0
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    end += len(line)
        if size > end:
            os.ftruncate(self._descriptor, end)
            self.notes.append(
                f"The last row of {self.path} was not written to its end; it was cut off ({size - end:,} bytes)."
            )

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Number, place in the file and content of each line."""
        start = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, start, line
                start += len(line)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a results file, one at a time; of several rows of one trial, all. A torn last line is left out.

    Raises:
        ConfigError: It cannot be read, or a line is no row.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ConfigError(f"{path}:{number}: this is no row of results: {error}.") from error
                if not isinstance(row, dict):
                    raise ConfigError(f"{path}:{number}: this is no row of results.")
                yield row
    except OSError as error:
        raise ConfigError(f"The results {path} cannot be read: {error.strerror or error}.") from error
