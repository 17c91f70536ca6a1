"""The results folder of ``adk-skills eval``, as the report reads it: figures in memory, traces by their place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.comparison import PairKey
from adk_skills_agent.evals.blind.run import Compared, read_comparisons
from adk_skills_agent.evals.cases import EvalCase, Source
from adk_skills_agent.evals.row_file import MAX_ROW_VALUES, lines_of, row_at
from adk_skills_agent.evals.run.plan import Key
from adk_skills_agent.evals.run.result import TrialResult, result_of
from adk_skills_agent.evals.summary import CaseInArm, Summary
from adk_skills_agent.platforms import open_regular
from adk_skills_agent.settings import parsed_json

TRIALS, BENCHMARK = "trials.jsonl", "benchmark.json"
_WITHOUT = "without_skill"
_MAX_BENCHMARK_BYTES = 256 << 20  # of 100,000 runs


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is: 1-based line, first byte."""

    line: int
    start: int


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run."""

    path: Path
    results: Mapping[Key, TrialResult]  # by trial, in the order of the cases, arms and runs
    places: Mapping[Key, Place]
    summary: Summary
    benchmark: Mapping[str, Any]  # what ``benchmark.json`` holds; empty when the run did not come to its end
    notes: tuple[str, ...]  # what is not in the results, and why; one sentence each
    compared: Mapping[PairKey, Compared]  # the blind comparisons; none without ``--blind``

    @property
    def about(self) -> Mapping[str, Any]:
        """``metadata`` of the benchmark."""
        return _mapping(self.benchmark.get("metadata"))

    @property
    def ours(self) -> Mapping[str, Any]:
        """``adk_skills`` of the benchmark."""
        return _mapping(self.benchmark.get("adk_skills"))

    def rows(self, keys: list[Key]) -> Iterator[tuple[Key, dict[str, Any]]]:
        """The whole rows of these trials, one at a time, traces included."""
        for key in keys:
            yield key, row_at(self.path / TRIALS, self.places[key].start)


def read_run(folder: Path, benchmark: Mapping[str, Any] | None = None) -> RunFolder:
    """Read a run; of several rows of one trial (``--resume`` ran it again) the last counts.

    The results in ``benchmark``, where a driver has just measured them, are taken instead of a second copy. Raises
    ``ConfigError`` when the folder has no results, or a row is malformed; the sentence names the line.
    """
    path = folder / TRIALS
    known = {result.key: result for result in (benchmark or {}).get("runs", ()) if isinstance(result, TrialResult)}
    results: dict[Key, TrialResult] = {}
    places: dict[Key, Place] = {}
    cases: dict[str, EvalCase] = {}
    notes: list[str] = []
    again = 0
    try:
        end, number = 0, 0
        for number, start, line in lines_of(path):
            result, case = _read(path, number, line)
            result = known.get(result.key, result)
            again += result.key in results
            results[result.key], places[result.key] = result, Place(number, start)
            cases[case.id] = case
            end = start + len(line)
        if path.stat().st_size > end:
            notes.append(f"The last row of {TRIALS} (line {number + 1}) was not written to its end and is left out.")
    except OSError as error:
        raise ConfigError(
            f"The results {path} cannot be read: {error.strerror or error}. Give the --out folder of adk-skills eval "
            "or adk-skills bench."
        ) from error
    if not results:
        raise ConfigError(f"{path} has no results yet. Run adk-skills eval with --out {folder} first.")
    if again:
        notes.append(f"{again:,} rows were run again later (--resume); the last row of a trial counts.")
    if benchmark is None:
        benchmark = _benchmark(folder / BENCHMARK, notes)
    try:
        summary = _summary(results, cases, benchmark)
        notes += _missing(benchmark)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{folder / BENCHMARK} is not as adk-skills eval writes it ({type(error).__name__}: {error}). Remove it, "
            "or run adk-skills eval --resume."
        ) from error
    compared = dict(sorted(read_comparisons(folder).items()))
    in_order = {result.key: result for cell in summary.cells.values() for result in cell.results}
    return RunFolder(folder, in_order, places, summary, benchmark, tuple(notes), compared)


def _read(path: Path, number: int, line: bytes) -> tuple[TrialResult, EvalCase]:
    try:
        row = parsed_json(line, MAX_ROW_VALUES)
        result = result_of(row)
        file, _, at = str(row["source"]).rpartition(":")
        case = EvalCase(
            id=result.case,
            turns=(),
            source=Source(file, int(at)) if at.isdecimal() else Source(str(row["source"]), 0),
            skills=tuple(map(str, row["skills"])),
            should_trigger=row["expected_trigger"],
            split=row["split"] or "",
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path}:{number}: this is no row of results ({type(error).__name__}: {error}). Repair or remove the line."
        ) from error
    return result, case


def _benchmark(path: Path, notes: list[str]) -> Mapping[str, Any]:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_BENCHMARK_BYTES + 1)
        if len(data) > _MAX_BENCHMARK_BYTES:
            raise ValueError(f"it has more than {_MAX_BENCHMARK_BYTES:,} bytes")
        # Its runs are known from their rows: 100,000 of them are not kept twice.
        content = json.loads(data, object_hook=lambda found: None if "run_number" in found else found)
    except FileNotFoundError:
        notes.append(f"There is no {BENCHMARK}: the run is not at its end. This page has the trials there are.")
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. Remove it, or run adk-skills eval --resume.") from error
    return _mapping(content)


def _summary(
    results: Mapping[Key, TrialResult], cases: Mapping[str, EvalCase], benchmark: Mapping[str, Any]
) -> Summary:
    ours = _mapping(benchmark.get("adk_skills"))
    planned = {
        (one["case"], arm): figures["planned"] for one in ours.get("cases", ()) for arm, figures in one["arms"].items()
    }
    first = [one["case"] for one in ours.get("cases", ()) if one["case"] in cases]
    rest = sorted(cases.keys() - set(first), key=lambda name: (cases[name].source.file, cases[name].source.line, name))
    found = {result.arm for result in results.values()}
    arms = [arm for arm in ours.get("arms", ()) if arm in found]
    arms += sorted(found - set(arms), key=lambda arm: (arm == _WITHOUT, arm))
    by_cell: dict[tuple[str, str], list[TrialResult]] = {}
    for result in results.values():
        by_cell.setdefault((result.case, result.arm), []).append(result)
    cells = {}
    for name in (*first, *rest):
        for arm in arms:
            there = tuple(sorted(by_cell.get((name, arm), ()), key=lambda result: result.run))
            if there:
                cells[name, arm] = CaseInArm(cases[name], arm, max(planned.get((name, arm), 0), len(there)), there)
    return Summary(cells, tuple(arms))


def _missing(benchmark: Mapping[str, Any]) -> list[str]:
    ours = _mapping(benchmark.get("adk_skills"))
    said = [str(note) for note in benchmark.get("notes", ())]
    if ours.get("stopped"):
        said.append(f"The run was stopped before its end ({ours['stopped']}); --resume continues it.")
    if ours.get("not_run"):
        said.append(f"{len(ours['not_run']):,} planned trials were not run.")
    for problem in ours.get("skipped", ()):
        place = f" ({Path(problem['file']).name}:{problem['line']})" if problem.get("file") else ""
        said.append(f"Skipped{place}: {problem.get('message')}")
    return said


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
