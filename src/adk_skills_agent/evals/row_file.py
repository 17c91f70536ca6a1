"""A file of results, one JSON object a line, appended whole or not at all and continued after any end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from adk_skills_agent.errors import ConfigError, SkillsError, some_of
from adk_skills_agent.platforms import open_regular
from adk_skills_agent.settings import parsed_json

MAX_ROW_BYTES, MAX_ROW_VALUES = 512 << 20, 2_000_000
"""Of one row: its trace has the texts and files of a trial."""
_Key = TypeVar("_Key", bound=tuple[Any, ...])
_Key_co = TypeVar("_Key_co", bound=tuple[Any, ...], covariant=True)


class TrialRow(Protocol[_Key_co]):
    """The result of one trial, read from its row."""

    @property
    def key(self) -> _Key_co:
        """What identifies the trial, for a person first."""

    @property
    def fingerprint(self) -> str:
        """Of everything the result depends on and the user may change."""

    @property
    def measured(self) -> bool:
        """Whether it says anything about the agent."""


_Row = TypeVar("_Row", bound=TrialRow[Any])


class RowFile:
    """The rows of one output folder, for one process at a time.

    Raises:
        ConfigError: There are rows and ``resume`` is off, another process writes here, or the folder cannot be used.
    """

    def __init__(self, folder: Path, name: str, *, resume: bool = False) -> None:
        import fcntl

        self.path = folder / name
        self.notes: list[str] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            # A link would be a repository's: rows with its words would be appended to what it leads to (row 186).
            self._descriptor = os.open(self.path, flags | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise ConfigError(f"Results cannot be written to {folder}: {error.strerror or error}.") from error
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):  # a pipe would be waited for
                raise ConfigError(f"Results cannot be written to {self.path}: it is no file.")
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

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row. Raises ``OSError`` when the disk did not take it."""
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

    def cut_torn_row(self) -> None:
        """Cut off a last row that was not written to its end (the process was killed), and note it."""
        size = os.fstat(self._descriptor).st_size
        end = sum(len(line) for _, _, line in lines_of(self.path))
        if size > end:
            os.ftruncate(self._descriptor, end)
            self.notes.append(
                f"The last row of {self.path} was not written to its end; it was cut off ({size - end:,} bytes)."
            )

    def latest(
        self, read: Callable[[Any], _Row], fingerprints: Mapping[_Key, str], depends_on: str
    ) -> dict[_Key, tuple[int, _Row]]:
        """The last row of each trial asked for, and the place in the file where it begins.

        A torn row at the end is cut off. What else is not taken is noted. ``depends_on`` is what a fingerprint is of,
        as ``it was measured with ...`` can have it. Raises ``ConfigError`` when a line is wrong, or was measured with
        something else.
        """
        self.cut_torn_row()
        found: dict[_Key, tuple[int, _Row]] = {}
        changed: dict[str, None] = {}
        others = 0
        for number, start, line in lines_of(self.path):
            try:
                result = read(parsed_json(line, MAX_ROW_VALUES))
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{self.path}:{number}: {error}. Repair the line, or give another --out.") from error
            fingerprint = fingerprints.get(result.key)
            if fingerprint is None:
                others += 1
            elif result.fingerprint == fingerprint:
                found[result.key] = start, result
            elif result.measured:
                changed[str(result.key[0])] = None
        if changed:
            raise ConfigError(
                f"{self.path} was measured with {depends_on}: {some_of(list(changed), 5)}. Results of both cannot be "
                "put together; give another --out."
            )
        if others:
            self.notes.append(f"{others} rows of {self.path} are of trials not asked for now: kept, and not counted.")
        return found


def lines_of(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, first byte and bytes of each line of a file that was written to its end.

    Raises ``OSError`` when it cannot be read, or ``ConfigError`` when a line is longer than any row (row 230).
    """
    start, number = 0, 0
    with open_regular(path) as file:
        while line := file.readline(MAX_ROW_BYTES + 1):
            number += 1
            if len(line) > MAX_ROW_BYTES:
                raise ConfigError(f"{path}:{number}: this is no row of results: it has over {MAX_ROW_BYTES:,} bytes.")
            if line.endswith(b"\n"):
                yield number, start, line
            start += len(line)


def row_at(path: Path, start: int) -> Any:
    """The row that begins at a byte of a file."""
    with open_regular(path) as file:
        file.seek(start)
        return parsed_json(file.readline(MAX_ROW_BYTES), MAX_ROW_VALUES)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a results file, one at a time; of several rows of one trial, all. A torn last line is left out.

    Raises ``ConfigError`` when it cannot be read, or a line is no row.
    """
    try:
        for number, _, line in lines_of(path):
            try:
                row = parsed_json(line, MAX_ROW_VALUES)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}:{number}: this is no row of results: {error}.") from error
            if not isinstance(row, dict):
                raise ConfigError(f"{path}:{number}: this is no row of results.")
            yield row
    except OSError as error:
        raise ConfigError(f"The results {path} cannot be read: {error.strerror or error}.") from error


# A few workers that take from one queue.

OUTAGE_TRIALS = 3
"""Items in a row whose model, judge or sandbox could not be used: the next ones would fare the same."""
Item = TypeVar("Item")


class Stopped(StrEnum):
    """Why a run ended before its last trial."""

    BUDGET = "budget"
    OUTAGE = "outage"
    INTERRUPTED = "interrupted"


async def work_off(
    items: Iterable[Item],
    do: Callable[[Item], Awaitable[bool]],
    *,
    parallel: int,
    affordable: Callable[[], bool] = lambda: True,
) -> Stopped | None:
    """Do what is waiting, several at a time.

    ``do`` says whether its item could be measured; ``affordable`` whether one more may start. Returns why it ended
    early, or None. What a worker raises first cancels the others.
    """
    waiting = deque(items)
    failures = running = 0
    stopped: Stopped | None = None
    ended = asyncio.Condition()

    async def may_start() -> bool:
        """After one that could not be measured, one at a time until one can: an outage fails few, not many."""
        async with ended:
            await ended.wait_for(lambda: stopped is not None or not failures or not running)
        return bool(waiting) and stopped is None

    async def work() -> None:
        nonlocal failures, running, stopped
        while await may_start():
            if not affordable():
                stopped = Stopped.BUDGET
                return
            running += 1
            try:
                measured = await do(waiting.popleft())
            finally:
                running -= 1
            failures = 0 if measured else failures + 1
            if failures >= OUTAGE_TRIALS:
                stopped = Stopped.OUTAGE
            async with ended:
                ended.notify_all()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(max(parallel, 1), max(len(waiting), 1))):
                group.create_task(work())
    except ExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, SkillsError | OSError):
            raise first from None  # one worker's sentence, not the tree of all
        raise
    return stopped
