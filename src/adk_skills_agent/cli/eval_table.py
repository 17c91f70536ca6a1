"""The results of a run as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adk_skills_agent.cli.output import safe
from adk_skills_agent.evals.summary import CaseInArm, Summary


def print_summary(summary: Summary, content: Mapping[str, Any], written: Sequence[Path]) -> None:
    """Print what a person wants to know after a run.

    Args:
        summary: Of the results.
        content: Of ``benchmark.json``.
        written: The files of the run.
    """
    rows = [("case", *summary.arms, "score", "time", "tokens")]
    rows += [_row(summary, case.id) for case in summary.cases]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            f"{row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        print("  ".join(cells).rstrip())
    print()
    ours = content["adk_skills"]
    for arm in summary.arms:
        rate = ours["pass_rate"][arm]
        print(f"{safe(arm)}: pass rate {'not measured' if rate is None else f'{rate:.1%}'}")
    for lift in ours["lift"]:
        interval = f" [{lift['low']:+.1%}, {lift['high']:+.1%}]" if lift["low"] is not None else ""
        print(
            f"lift of {safe(lift['arm'])} over {safe(lift['baseline'])}: {lift['mean']:+.1%}{interval}, sign test "
            f"p={lift['p_value']:.3f} ({lift['better']} better, {lift['worse']} worse, {lift['equal']} equal)"
        )
    for one in ours["blind"]:
        print(_blind_line(one))
    for arm, counts in ours["trigger"].items():
        total = counts["total"]
        print(f"triggering in {safe(arm)}: precision {_share(total['precision'])}, recall {_share(total['recall'])}")
    cost = ours["cost_usd"]["total"]
    if cost:
        print(f"cost: ${cost:.4f}")
    for note in content["notes"]:
        print(f"note: {safe(note)}")
    print(f"results: {', '.join(safe(str(path)) for path in written)}")


def _blind_line(one: Mapping[str, Any]) -> str:
    pair = f"blind comparison of {safe(one['arm'])} with {safe(one['baseline'])}"
    if not one["comparisons"]:
        return f"{pair}: not measured"
    interval = f" [{one['low']:+.1%}, {one['high']:+.1%}]" if one["low"] is not None else ""
    return (
        f"{pair}: {one['wins']} won, {one['ties']} tied, {one['losses']} lost; {one['preference']:+.1%}{interval}, "
        f"sign test p={one['p_value']:.3f} ({one['better']} better, {one['worse']} worse, {one['equal']} equal)"
    )


def _row(summary: Summary, case: str) -> tuple[str, ...]:
    cells = [summary.cells.get((case, arm)) for arm in summary.arms]
    main = summary.cells.get((case, summary.main_arm))
    figures = main.to_json() if main is not None else {}
    score, seconds, tokens = figures.get("score"), figures.get("seconds"), figures.get("tokens")
    return (
        safe(case),
        *(_passed(cell) for cell in cells),
        "-" if score is None else f"{score:.2f}",
        "-" if seconds is None else f"{seconds:.1f} s",
        "-" if tokens is None else f"{tokens:,.0f}",
    )


def _passed(cell: CaseInArm | None) -> str:
    if cell is None:
        return "-"
    errors = cell.planned - len(cell.measured)
    return f"{cell.passed}/{len(cell.measured)}" + (f" ({errors} missing)" if errors else "")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
