"""Both sides of a measurement: fresh processes that are asked in turns, one sample each."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).resolve().parent
_START_SECONDS = 120.0
_SAMPLE_SECONDS = 120.0


@dataclass(frozen=True)
class Account:
    """Who runs a side, with which interpreter and which environment; ``uid`` None is the current user."""

    python: str
    env: dict[str, str]
    folder: Path
    uid: int | None = None

    @property
    def benchmarks(self) -> Path:
        """Where this account finds the sides."""
        return HERE if self.uid is None else self.folder / "benchmarks"


class SideFailed(Exception):
    """A side ended or did not answer; the text is what it said."""


class Side:
    """One process. Use it in a ``with`` statement."""

    def __init__(
        self, account: Account, program: str, name: str, options: dict[str, object], *, python: str | None = None
    ) -> None:
        self.name = name
        self._errors = account.folder / f"errors-{name}-{time.monotonic_ns()}"
        user = {} if account.uid is None else {"user": account.uid, "group": account.uid, "extra_groups": []}
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [python or account.python, account.benchmarks / program, name, json.dumps(options, default=str)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=account.env,
                cwd=account.folder,
                **user,
            )
        self._buffer = b""

    def __enter__(self) -> Side:
        self._line(_START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def sample(self, seconds: float = _SAMPLE_SECONDS) -> dict[str, object]:
        """One sample; raises :class:`SideFailed` when there is none in so many seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return self._line(seconds)

    def _line(self, seconds: float) -> dict[str, object]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(descriptor, 1 << 20) if ready else b""
            if not data:
                self._process.kill()
                said = self._errors.read_text(errors="replace")[-2000:]
                raise SideFailed(f"{self.name} {'ended' if ready else f'gave no answer in {seconds:.0f} s'}: {said}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return dict(json.loads(line))


@dataclass(frozen=True)
class Effort:
    """How often each side is asked, and which of its samples counts.

    Attributes:
        rounds: Samples of each side.
        quantile: 0.5 is the median. A smaller one, the same for all sides, leaves out what other work on a busy machine
            has disturbed.
    """

    rounds: int
    quantile: float = 0.5


@dataclass
class Taken:
    """The samples of one side, and which of them counts."""

    quantile: float = 0.5
    samples: list[dict[str, object]] = field(default_factory=list)

    def typical(self, key: str = "seconds") -> float:
        """The quantile over the samples; by default their median."""
        values = sorted(float(str(sample[key])) for sample in self.samples)
        position = self.quantile * (len(values) - 1)
        below = math.floor(position)
        above = min(below + 1, len(values) - 1)
        return values[below] + (values[above] - values[below]) * (position - below)

    def count(self, key: str) -> int:
        """Samples in which ``key`` is true."""
        return sum(bool(sample.get(key)) for sample in self.samples)


def in_turns(*sides: Side, effort: Effort, warm_up: int = 3) -> list[Taken]:
    """Each side in turn, round after round; the order turns around each round, the first rounds only warm up."""
    taken = [Taken(effort.quantile) for _ in sides]
    for number in range(effort.rounds + warm_up):
        order = list(zip(sides, taken, strict=True))
        for side, found in order if number % 2 else reversed(order):
            sample = side.sample()
            if number >= warm_up:
                found.samples.append(sample)
    return taken
