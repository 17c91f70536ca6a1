"""The results of ``adk-skills bench`` as one HTML page: what each task got in each arm, what the skills are worth."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.report.sections import (
    chart,
    duration,
    html_page,
    inline,
    interval_row,
    notes_box,
    percent,
    section,
    share,
    table,
)
from adk_skills_agent.evals.row_file import read_rows
from adk_skills_agent.evals.skillsbench.results import NAME, BenchResult, Key, result_of, summarise
from adk_skills_agent.evals.statistics import interval_text, verdict_text
from adk_skills_agent.platforms import write_whole

_ARMS = ("no-skill", "with-skill", "self-gen")
_MOST_ERRORS = 200


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A page that was written."""

    path: Path
    size: int
    results: tuple[BenchResult, ...]
    figures: Mapping[str, Any]  # by arm and domain, and the lift, as ``adk-skills bench --json`` has them
    notes: tuple[str, ...]  # what is not in it, one sentence each

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "report": str(self.path),
            "bytes": self.size,
            "trials": len(self.results),
            "tasks": len({result.task for result in self.results}),
            "notes": list(self.notes),
            **self.figures,
        }


def is_bench_run(folder: Path) -> bool:
    """Whether the folder has results of the benchmark and none of ``adk-skills eval``."""
    return (folder / NAME).is_file() and not (folder / "trials.jsonl").exists()


def build_bench_report(folder: Path, out: Path) -> BenchReport:
    """Write the page.

    Raises:
        ConfigError: The folder has no results, or a row is malformed; the sentence names the line.
        OSError: The file cannot be written.
    """
    path = folder / NAME
    found: dict[Key, BenchResult] = {}
    for number, row in enumerate(read_rows(path), 1):
        try:
            result = result_of(row)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: {error}. Repair or remove the line.") from error
        found[result.key] = result
    if not found:
        raise ConfigError(f"{path} has no results yet. Run adk-skills bench with --out {folder} first.")
    results = sorted(found.values(), key=lambda one: (one.task, one.agent, _place(one.arm), one.trial))
    arms = sorted({result.arm for result in results}, key=_place)
    agents = sorted({result.agent for result in results})
    figures = summarise(results, arms, agents)
    unmeasured = sum(not result.measured for result in results)
    notes = (f"{unmeasured:,} of {len(results):,} trials have no reward and count in no figure.",) if unmeasured else ()
    page = _page(folder, results, figures, notes).encode("utf-8", "replace")
    write_whole(out, page)
    return BenchReport(out, len(page), tuple(results), figures, notes)


def _page(folder: Path, results: Sequence[BenchResult], figures: Mapping[str, Any], notes: Sequence[str]) -> str:
    tasks = len({result.task for result in results})
    parts = [_lift(lift) for lift in figures["lift"]] or [
        "<p>There is nothing to compare: a lift needs tasks with a reward with and without skills (--arm no-skill).</p>"
    ]
    body = (
        f"<header><h1>Benchmark</h1><p>{len(results):,} trials of {tasks:,} tasks.</p>"
        f'<p class="note">{inline(folder.resolve().name)}</p></header>\n<main>{notes_box(notes)}'
        + section(
            "lift", "Lift", "Mean reward of each task less that without skills; the interval is over the tasks.",
            "".join(parts),
        )
        + section("arms", "Arms", "A task counts once, however often it was run.", _sides(figures["arms"]))
        + section("tasks", "Tasks", "Mean reward; in brackets how many trials have one.", _tasks(results))
        + _errors(results)
        + "</main>\n"
    )  # fmt: skip
    style = files("adk_skills_agent.evals.report").joinpath("viewer.css").read_text(encoding="utf-8")
    return html_page("Benchmark of skills", body, style=style)


def _lift(lift: Mapping[str, Any]) -> str:
    interval = interval_text(lift["low"], lift["high"], lift["no_interval"], percent)
    by_task = sorted(lift["by_task"].items(), key=lambda one: (one[1], one[0]))
    rows = [interval_row(task, value, None, None, percent(value)) for task, value in by_task]
    return (
        f"<p><b>{inline(lift['arm'])}</b> over <b>{inline(lift['baseline'])}</b> ({inline(lift['agent'])}): "
        f"<b>{percent(lift['mean'])}</b>{interval} over {lift['tasks']:,} tasks. It "
        f"{verdict_text(lift['better'], lift['worse'], lift['equal'], unit='task')}.</p>{chart(rows)}"
    )


def _sides(sides: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            side["agent"],
            side["arm"],
            f"{side['tasks']:,}",
            f"{side['trials']:,}",
            f"{side['errors']:,}",
            share(side["pass_rate"]),
            _number(side["mean_reward"]),
            share(side["skill_used"]),
            "-" if side["mean_seconds"] is None else duration(side["mean_seconds"]),
        )
        for side in sides
        if side["trials"]
    ]
    head = ("Agent", "Arm", "Tasks", "Trials", "Not measured", "Passed", "Mean reward", "Skill used", "Time")
    return table("Arms", head, (map(inline, row) for row in rows))


def _tasks(results: Sequence[BenchResult]) -> str:
    sides = sorted({(result.agent, result.arm) for result in results}, key=lambda side: (side[0], _place(side[1])))
    several = len({agent for agent, _ in sides}) > 1
    cells: dict[tuple[str, str, str], list[BenchResult]] = {}
    domains: dict[str, str] = {}
    for result in results:
        cells.setdefault((result.task, result.agent, result.arm), []).append(result)
        domains[result.task] = result.category
    rows = [(task, *(_cell(cells.get((task, *side), ())) for side in sides), domains[task]) for task in domains]
    head = ("Task", *(f"{agent} {arm}" if several else arm for agent, arm in sides), "Domain")
    return table("Tasks", list(map(inline, head)), (map(inline, row) for row in rows))


def _cell(results: Sequence[BenchResult]) -> str:
    rewards = [result.reward for result in results if result.reward is not None]
    if not results:
        return "-"
    return f"{statistics.fmean(rewards):.2f} ({len(rewards)})" if rewards else "not measured"


def _errors(results: Sequence[BenchResult]) -> str:
    said = [
        f"<li>{inline(one.task)} {inline(one.arm)} {one.trial} ({inline(one.error_kind or 'note')}): "
        f"{inline(one.error[:600])}</li>"
        for one in results
        if one.error
    ]
    if not said:
        return ""
    more = f"<li>{len(said) - _MOST_ERRORS:,} more in {NAME}</li>" if len(said) > _MOST_ERRORS else ""
    return section("errors", "What went wrong", "", f"<ul>{''.join(said[:_MOST_ERRORS])}{more}</ul>")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _place(arm: str) -> tuple[int, str]:
    return (_ARMS.index(arm) if arm in _ARMS else len(_ARMS), arm)
