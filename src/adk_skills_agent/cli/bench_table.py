"""What a benchmark run prints for a person: a line for each trial, tables at the end (S0-139)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adk_skills_agent.cli.output import safe
from adk_skills_agent.evals.skillsbench.results import BenchResult

_SAID = {True: "PASS", False: "FAIL", None: "ERROR"}


def trial_line(number: int, planned: int, result: BenchResult, row: Mapping[str, Any], *, alone: bool) -> str:
    """``[i/n] name PASS/FAIL (skills, secs | error)``.

    Args:
        number: How many are done.
        planned: Of how many.
        result: The trial's.
        row: The same with all fields.
        alone: Whether there is one arm only, which need not be named.
    """
    which = "" if alone else f" {result.arm}"
    partial = f" {result.reward:g}" if result.reward is not None and 0 < result.reward < 1 else ""
    skills = ", ".join(map(safe, result.skills_used)) or f"{len(result.skills_available)} skills"
    seconds = result.seconds + float(row.get("verifier_seconds") or 0)
    problem = f" | {safe(result.error)[:200]}" if result.error else ""
    return (
        f"[{number}/{planned}] {safe(result.task)}{which} {result.agent} {_SAID[result.passed]}{partial} "
        f"({skills}, {seconds:.1f} s{problem})"
    )


def print_builds(builds: Mapping[str, Any]) -> None:
    """One line of how the builds went, and one for each that failed."""
    print(
        f"environments: {builds['built']} built, {builds['cached']} from the cache, {len(builds['failed'])} failed, "
        f"{builds['retried']} tried again, {builds['seconds']:.0f} s"
    )
    for task, reason in builds["failed"].items():
        print(f"  {safe(task)}: {safe(reason)}")


def print_summary(content: Mapping[str, Any]) -> None:
    """Print what a person wants to know after a run.

    Args:
        content: What ``--json`` prints.
    """
    head = ("agent", "arm", "tasks", "trials", "not measured", "score", "mean reward", "skill used", "time")
    print()
    _table([head, *(_cells(side)[:9] for side in content["arms"])])
    if len(content["domains"]) > len(content["arms"]):
        print()
        rows = [(safe(side["domain"]), *_cells(side)) for side in content["domains"]]
        _table([("domain", *head), *rows])
    print()
    for lift in content["lift"]:
        interval = f" [{lift['low']:+.1%}, {lift['high']:+.1%}]" if lift["low"] is not None else ""
        print(
            f"lift of {lift['arm']} over {lift['baseline']}: {lift['mean']:+.1%}{interval} of {lift['tasks']} tasks, "
            f"sign test p={lift['p_value']:.3f} ({lift['better']} better, {lift['worse']} worse, {lift['equal']} equal)"
        )
    for problem in content["not_measured"]:
        print(f"not measured: {safe(problem['task'])} {problem['arm']} {problem['trial']}: {safe(problem['error'])}")
    for problem in content["self_test"] or ():
        print(f"self-test: {safe(problem)}")
    if content["self_test"] == [] and content["finished"] == content["planned"]:
        print("self-test: every oracle got 1 and every nop 0")
    print_builds(content["builds"])
    model = f"{safe(content['model'])}, " if content["model"] else ""
    loadable = max((side["tasks_with_skills"] for side in content["arms"]), default=0)
    print(
        f"{model}{content['framework']}, {content['sandbox']} sandbox: {content['finished']} of {content['planned']} "
        f"trials, skills loadable in {loadable} tasks, {content['elapsed_seconds']:.0f} s"
    )
    if content["left_out"]:
        print(f"{len(content['left_out'])} tasks were left out, see the start")
    print(f"results: {safe(content['results'])}")


def _cells(side: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        side["agent"],
        side["arm"],
        str(side["tasks"]),
        str(side["trials"]),
        str(side["errors"]),
        _share(side["pass_rate"]),
        "-" if side["mean_reward"] is None else f"{side['mean_reward']:.3f}",
        _share(side["skill_used"]),
        "-" if side["mean_seconds"] is None else f"{side['mean_seconds']:.1f} s",
    )


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
