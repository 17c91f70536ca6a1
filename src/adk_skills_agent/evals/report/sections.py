"""The parts of the page that are there without any script: figures, lift, cases, triggering, tokens and time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adk_skills_agent.evals.report.charts import chart, interval_row, spread_row
from adk_skills_agent.evals.report.html_page import inline
from adk_skills_agent.evals.report.run_folder import RunFolder
from adk_skills_agent.evals.run.result import TrialResult
from adk_skills_agent.evals.statistics import spread
from adk_skills_agent.evals.summary import CaseInArm, Summary

_DEGREES = 5
"""Shades in the confusion matrix."""


def section(name: str, title: str, about: str, body: str) -> str:
    """A part of the page that the navigation leads to."""
    note = f'<p class="note">{about}</p>' if about else ""
    heading = f'<h2 id="{name}-title">{title}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{note}{body}</section>\n'


def introduction(run: RunFolder, lifts: Sequence[Mapping[str, Any]]) -> str:
    """Title, what was run, and the figures that matter most."""
    skills = ", ".join(dict.fromkeys(name for case in run.summary.cases for name in case.skills)) or "an agent's skills"
    facts = [f"{len(run.results):,} trials of {len(run.summary.cases):,} cases"]
    for name, label in (("executor_model", "model"), ("judge_model", "judge")):
        if run.about.get(name):
            facts.append(f"{label} {run.about[name]}")
    if run.about.get("timestamp"):
        facts.append(str(run.about["timestamp"]).replace("T", " ").replace("Z", " UTC"))
    return (
        f"<h1>Evaluation of {inline(skills)}</h1><p>{inline('; '.join(facts))}.</p>"
        f'<p class="note">{inline(run.path.resolve().name)}</p><div class="tiles">{"".join(_tiles(run, lifts))}</div>'
    )


def notes_box(notes: Sequence[str]) -> str:
    """What a reader has to know before the figures."""
    if not notes:
        return ""
    shown = "".join(f"<li>{inline(note)}</li>" for note in notes[:6])
    rest = "".join(f"<li>{inline(note)}</li>" for note in notes[6:])
    more = f"<details><summary>{len(notes) - 6} more notes</summary><ul>{rest}</ul></details>" if rest else ""
    return f'<aside class="notes" aria-label="Notes"><ul>{shown}</ul>{more}</aside>'


def lift_section(lifts: Sequence[Mapping[str, Any]]) -> str:
    """What the skill adds to the outcome, case by case."""
    parts = []
    for lift in lifts:
        interval = f" [{percent(lift['low'])}, {percent(lift['high'])}]" if lift["low"] is not None else ""
        parts.append(
            f"<p><b>{inline(lift['arm'])}</b> over <b>{inline(lift['baseline'])}</b>: "
            f"<b>{percent(lift['mean'])}</b>{interval} over {lift['pairs']} cases; {lift['better']} better, "
            f"{lift['worse']} worse, {lift['equal']} equal; sign test p={lift['p_value']:.3f}.</p>"
        )
        cases = sorted(lift["cases"], key=lambda one: one["lift"])
        parts.append(
            chart(
                [
                    interval_row(
                        case["case"], case["lift"], case["low"], case["high"],
                        f"{percent(case['lift'])} [{percent(case['low'])}, {percent(case['high'])}]",
                    )
                    for case in cases
                ]
            )
        )  # fmt: skip
        parts.append(_scale("worse: -100%", "no difference", "better: +100%"))
    if not parts:
        parts = [
            "<p>There is nothing to compare: a lift needs a task that two arms have run, with a criterion of the "
            "outcome (a reference, expected files or rubrics).</p>"
        ]
    return section(
        "lift", "Lift",
        "Share of runs with the right outcome, less the share in the other arm. Bars: 95 % bootstrap interval of the "
        "case's runs; the interval of the mean is over the cases.",
        "".join(parts),
    )  # fmt: skip


def cases_section(summary: Summary) -> str:
    """All cases in a table; each cell leads to its trials."""
    head = "".join(f"<th>{inline(arm).replace('_', '_<wbr>')}</th>" for arm in summary.arms)
    rows = []
    for case in summary.cases:
        cells = [summary.cells.get((case.id, arm)) for arm in summary.arms]
        main = next((cell for cell in cells if cell is not None), None)
        runs = main.measured if main is not None else ()
        scores = spread([result.score for result in runs if result.score is not None])
        flaky = ", ".join(cell.arm for cell in cells if cell is not None and cell.flaky)
        rows.append(
            f"<tr><td>{inline(case.id)}</td>"
            + "".join(_passed(cell) for cell in cells)
            + f"<td>{'-' if scores is None else f'{scores.mean:.2f}'}</td>"
            f"<td>{_mean(runs, lambda result: result.usage.total, tokens)}</td>"
            f"<td>{_mean(runs, lambda result: result.seconds, duration)}</td>"
            f"<td>{case.kind}{f'; flaky in {inline(flaky)}' if flaky else ''}</td></tr>"
        )
    return section(
        "cases", "Cases",
        f"Passed of measured runs; press to see them. Score, tokens and time: mean in {inline(summary.arms[0])}, or "
        "the first arm the case has.",
        '<div class="wide" tabindex="0" role="region" aria-label="Cases"><table><thead><tr><th>Case</th>'
        f"{head}<th>Score</th><th>Tokens</th><th>Time</th><th>Kind</th></tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></div>",
    )  # fmt: skip


def trigger_section(summary: Summary) -> str:
    """Which skill was loaded where which was expected; empty without trigger queries."""
    parts = []
    for arm, counts in summary.trigger().items():
        total = counts["total"]
        parts.append(
            f"<h3>{inline(arm)}</h3><p>Precision {share(total['precision'])}, recall {share(total['recall'])}: "
            f"{total['hits']:,} hits, {total['misses']:,} misses, {total['false_alarms']:,} false alarms.</p>"
        )
        names = [name or "(none)" for name in counts["names"]]
        head = "".join(f'<th scope="col">{inline(name)}</th>' for name in names)
        rows = []
        for row, (name, numbers) in enumerate(zip(names, counts["matrix"], strict=True)):
            most = max(1, sum(numbers))
            cells = "".join(
                f'<td class="{_heat(number / most, right=row == column)}">{number:,}</td>'
                for column, number in enumerate(numbers)
            )
            figures = counts["skills"].get(counts["names"][row], {})
            rows.append(
                f'<tr><th scope="row">{inline(name)}</th>{cells}<td>{share(figures.get("precision"))}</td>'
                f"<td>{share(figures.get('recall'))}</td></tr>"
            )
        parts.append(
            f'<div class="wide" tabindex="0" role="region" aria-label="Confusion matrix of {inline(arm)}">'
            f'<table class="matrix"><thead><tr><th scope="col">expected ↓ loaded →</th>{head}'
            f'<th scope="col">Precision</th><th scope="col">Recall</th></tr></thead><tbody>{"".join(rows)}</tbody>'
            "</table></div>"
        )
        parts += [
            f"<p>{split}: {counted['right']:,} of {counted['measured']:,} queries right.</p>"
            for split, counted in counts["splits"].items()
        ]
    if not parts:
        return ""
    return section(
        "trigger", "Triggering",
        "Runs of trigger queries: the row is the skill that should be loaded, the column the one that was. "
        "Green is right, red is wrong.",
        "".join(parts),
    )  # fmt: skip


def spread_section(summary: Summary) -> str:
    """Tokens and time of every case's runs, by arm."""
    legend = "".join(
        f'<li><svg class="key" aria-hidden="true"><circle class="dot arm{min(number, 4)}" cx="50%" cy="50%" r="5"/>'
        f"</svg>{inline(arm)}</li>"
        for number, arm in enumerate(summary.arms)
    )
    plots = ""
    figures: tuple[tuple[str, Callable[[TrialResult], float], Callable[[float], str]], ...] = (
        ("Tokens", lambda result: float(result.usage.total), tokens),
        ("Time", lambda result: result.seconds, duration),
    )
    for title, value, shown in figures:
        plots += f"<h3>{title}</h3>{_plot(summary, value, shown)}"
    return section(
        "cost", "Tokens and time",
        "Of the agent, a run each; the upright line is the median, which the figures at the side name in the order of "
        "the colours.",
        f'<ul class="legend">{legend}</ul>{plots}',
    )  # fmt: skip


def percent(value: float) -> str:
    """A difference of shares, with its sign."""
    points = round(100 * value)
    return f"{points:+d}%" if points else "0%"


def share(value: float | None) -> str:
    """A share, or a dash."""
    return "-" if value is None else f"{value:.0%}"


def tokens(value: float) -> str:
    """Tokens, rounded."""
    return f"{value:,.0f}"


def duration(value: float) -> str:
    """Seconds as people write them."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"


def _tiles(run: RunFolder, lifts: Sequence[Mapping[str, Any]]) -> list[str]:
    summary = run.summary
    tiles = [_tile(f"pass rate {arm}", share(summary.pass_rate(arm))) for arm in summary.arms]
    for lift in lifts[:1]:
        interval = f"{percent(lift['low'])} to {percent(lift['high'])}" if lift["low"] is not None else "one case"
        tiles.append(_tile("lift", percent(lift["mean"]), interval))
    for counts in list(summary.trigger().values())[:1]:
        total = counts["total"]
        tiles.append(_tile("trigger precision", share(total["precision"]), f"recall {share(total['recall'])}"))
    measured = [result for result in run.results.values() if result.passed is not None]
    if measured:
        tiles.append(
            _tile(
                "tokens a run",
                tokens(sum(result.usage.total for result in measured) / len(measured)),
                f"{duration(sum(result.seconds for result in measured) / len(measured))} a run",
            )
        )
    spent = sum(result.spent for result in run.results.values())
    if spent:
        tiles.append(_tile("cost", f"${spent:,.2f}" if spent >= 0.01 else f"${spent:.4f}"))
    unmeasured = len(run.results) - len(measured)
    if unmeasured:
        tiles.append(_tile("not measured", f"{unmeasured:,}", "errors of the run"))
    return tiles


def _tile(name: str, value: str, more: str = "") -> str:
    return (
        f'<div class="tile"><span>{inline(name)}</span><b>{inline(value)}</b>'
        f"{f'<span>{inline(more)}</span>' if more else ''}</div>"
    )


def _passed(cell: CaseInArm | None) -> str:
    if cell is None:
        return "<td>-</td>"
    missing = cell.planned - len(cell.measured)
    kind = "none" if cell.succeeded is None else "good" if cell.succeeded == 1 else "bad"
    return (
        f'<td><button class="link {kind}" data-case="{inline(cell.case.id)}" data-arm="{inline(cell.arm)}">'
        f"{cell.passed}/{len(cell.measured)}</button>{f' ({missing} missing)' if missing else ''}</td>"
    )


def _mean(runs: Sequence[TrialResult], value: Callable[[TrialResult], Any], shown: Callable[[float], str]) -> str:
    return shown(sum(value(result) for result in runs) / len(runs)) if runs else "-"


def _plot(summary: Summary, value: Callable[[TrialResult], float], shown: Callable[[float], str]) -> str:
    longest = max((value(result) for cell in summary.cells.values() for result in cell.measured), default=0.0)
    if longest <= 0:
        return '<p class="note">Not known.</p>'
    rows = []
    for case in summary.cases:
        arms = []
        for number, arm in enumerate(summary.arms):
            cell = summary.cells.get((case.id, arm))
            values = [value(result) for result in cell.measured] if cell is not None else []
            if values:
                arms.append((number, arm, values, shown(statistics.median(values))))
        if arms:
            rows.append(spread_row(case.id, arms, longest))
    return chart(rows) + _scale("0", "", shown(longest))


def _scale(left: str, middle: str, right: str) -> str:
    return (
        '<div class="row scale" aria-hidden="true"><span class="name"></span><span class="draw">'
        f"<span>{left}</span><span>{middle}</span><span>{right}</span></span><span></span></div>"
    )


def _heat(part: float, *, right: bool) -> str:
    degree = 0 if part <= 0 else 1 + min(_DEGREES - 1, int(part * _DEGREES))
    return f"heat{degree} {'right' if right else 'wrong'}" if degree else "heat0"
