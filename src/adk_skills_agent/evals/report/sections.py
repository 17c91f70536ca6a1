"""The parts of the page that are there without any script: figures, lift, cases, triggering, tokens and time."""

from __future__ import annotations

import base64
import hashlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from adk_skills_agent.errors import in_one_line
from adk_skills_agent.evals.blind.comparison import CRITERIA
from adk_skills_agent.evals.report.run_folder import RunFolder
from adk_skills_agent.evals.run.result import TrialResult
from adk_skills_agent.evals.statistics import interval_text, spread, verdict_text
from adk_skills_agent.evals.summary import CaseInArm, Summary

_DEGREES = 5
"""Shades in the confusion matrix."""


def section(name: str, title: str, about: str, body: str) -> str:
    """A part of the page that the navigation leads to."""
    note = f'<p class="note">{about}</p>' if about else ""
    heading = f'<h2 id="{name}-title">{title}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{note}{body}</section>\n'


def table(label: str, head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of HTML cells that may be scrolled."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table><thead><tr>'
        f"{''.join(f'<th>{name}</th>' for name in head)}</tr></thead><tbody>{body}</tbody></table></div>"
    )


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
        interval = interval_text(lift["low"], lift["high"], lift["no_interval"], percent)
        parts.append(
            f"<p>{inline(lift['verdict'])}</p><p>Lift of <b>{inline(lift['arm'])}</b> over "
            f"<b>{inline(lift['baseline'])}</b>: <b>{percent(lift['mean'])}</b>{interval}, the mean of "
            f"{lift['pairs']} case{'s' if lift['pairs'] != 1 else ''}.</p>"
        )
        cases = sorted(lift["cases"], key=lambda one: one["lift"])
        parts.append(
            chart(
                [
                    interval_row(
                        case["case"], case["lift"], case["low"], case["high"],
                        percent(case["lift"]) + interval_text(case["low"], case["high"], "", percent),
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
        "case's runs; the interval of the mean is over the cases. A dot without a bar has no interval: the runs of "
        "each arm all ended alike.",
        "".join(parts),
    )  # fmt: skip


def cases_section(summary: Summary) -> str:
    """All cases in a table; each cell leads to its trials."""
    arms = [inline(arm).replace("_", "_<wbr>") for arm in summary.arms]
    rows = []
    for case in summary.cases:
        cells = [summary.cells.get((case.id, arm)) for arm in summary.arms]
        main = next((cell for cell in cells if cell is not None), None)
        runs = main.measured if main is not None else ()
        scores = spread([result.score for result in runs if result.score is not None])
        flaky = ", ".join(cell.arm for cell in cells if cell is not None and cell.flaky)
        rows.append(
            (
                inline(case.id),
                *(_passed(cell, summary.baseline) for cell in cells),
                "-" if scores is None else f"{scores.mean:.2f}",
                _mean(runs, lambda result: result.usage.total, tokens),
                _mean(runs, lambda result: result.seconds, duration),
                f"{case.kind}{f'; flaky in {inline(flaky)}' if flaky else ''}",
            )
        )
    return section(
        "cases", "Cases",
        f"Passed of measured runs; press to see them. Score, tokens and time: mean in {inline(summary.arms[0])}, or "
        "the first arm the case has.",
        table("Cases", ("Case", *arms, "Score", "Tokens", "Time", "Kind"), rows),
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
        known = lift["low"] is not None
        interval = f"{percent(lift['low'])} to {percent(lift['high'])}" if known else "no interval"
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


def _passed(cell: CaseInArm | None, baseline: str) -> str:
    if cell is None:
        return "-"
    missing = cell.planned - len(cell.measured)
    worst = "none" if cell.arm == baseline else "bad"
    kind = "none" if cell.succeeded is None else "good" if cell.succeeded == 1 else worst
    return (
        f'<button class="link {kind}" data-case="{inline(cell.case.id)}" data-arm="{inline(cell.arm)}">'
        f"{cell.passed}/{len(cell.measured)}</button>{f' ({missing} missing)' if missing else ''}"
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


# Rows of a chart: a name, a drawing over the whole width in percent (so it fits every screen), the value as text.

CHARTED = 30
"""Rows that are seen at once; the others unfold."""
_DOTS = 20
"""Runs that are drawn one by one; of more, the middle half and the extremes."""


def chart(rows: Sequence[str]) -> str:
    """The rows, the later ones folded away."""
    more = len(rows) - CHARTED
    folded = f"<details><summary>{more:,} more</summary>{''.join(rows[CHARTED:])}</details>" if more > 0 else ""
    return f'<div class="chart">{"".join(rows[:CHARTED])}{folded}</div>'


def interval_row(name: str, value: float, low: float | None, high: float | None, label: str) -> str:
    """A difference with its interval on an axis from -1 to 1."""
    kind = "up" if value > 0 else "down" if value < 0 else "even"
    shapes = ['<line class="axis" x1="50%" x2="50%" y1="0" y2="100%"/>']
    if low is not None and high is not None:
        left, right = _side(low), _side(high)
        shapes += [
            f'<line class="span {kind}" x1="{left}" x2="{right}" y1="50%" y2="50%"/>',
            *(f'<line class="span {kind}" x1="{end}" x2="{end}" y1="30%" y2="70%"/>' for end in (left, right)),
        ]
    shapes.append(f'<circle class="{kind}" cx="{_side(value)}" cy="50%" r="5"/>')
    return _row(name, _drawing(f"{name}: {label}", "".join(shapes)), label)


def change_row(name: str, before: float, after: float, label: str) -> str:
    """Two rates from 0 to 1: where it was (a ring) and where it is (a dot)."""
    kind = "up" if after > before else "down" if after < before else "even"
    shapes = (
        '<line class="axis" x1="2%" x2="98%" y1="50%" y2="50%"/>'
        f'<line class="span {kind}" x1="{_share(before)}" x2="{_share(after)}" y1="50%" y2="50%"/>'
        f'<circle class="ring" cx="{_share(before)}" cy="50%" r="5"/>'
        f'<circle class="{kind}" cx="{_share(after)}" cy="50%" r="5"/>'
    )
    return _row(name, _drawing(f"{name}: {label}", shapes), label)


def spread_row(name: str, arms: Sequence[tuple[int, str, Sequence[float], str]], longest: float) -> str:
    """The runs of a case on an axis from 0 to ``longest``, a line for each arm.

    ``arms`` has number (for its colour), name, values, and the median as text.
    """
    drawings, labels = [], []
    for number, arm, values, label in arms:
        if not values:
            continue
        ordered = sorted(values)
        middle = statistics.median(ordered)
        colour = f"arm{min(number, 4)}"
        shapes = [
            '<line class="axis" x1="2%" x2="98%" y1="50%" y2="50%"/>',
            f'<line class="whisker {colour}" x1="{_share(ordered[0] / longest)}" '
            f'x2="{_share(ordered[-1] / longest)}" y1="50%" y2="50%"/>',
        ]
        if len(ordered) <= _DOTS:
            shapes += [f'<circle class="dot {colour}" cx="{_share(v / longest)}" cy="50%" r="3.5"/>' for v in ordered]
        else:
            low, _, high = statistics.quantiles(ordered, n=4)
            shapes.append(
                f'<line class="box {colour}" x1="{_share(low / longest)}" x2="{_share(high / longest)}" '
                'y1="50%" y2="50%"/>'
            )
        at = _share(middle / longest)
        shapes.append(f'<line class="middle {colour}" x1="{at}" x2="{at}" y1="10%" y2="90%"/>')
        drawings.append(_drawing(f"{name}, {arm}: median {label} of {len(ordered)} runs", "".join(shapes)))
        labels.append(label)
    return _row(name, "".join(drawings), " · ".join(labels))


def _row(name: str, drawing: str, label: str) -> str:
    return (
        f'<div class="row"><span class="name">{inline(name)}</span><span class="draw">{drawing}</span>'
        f'<span class="value">{inline(label)}</span></div>'
    )


def _drawing(label: str, shapes: str) -> str:
    return f'<svg class="line" role="img" aria-label="{inline(label)}">{shapes}</svg>'


def _side(value: float) -> str:
    return f"{50 + 48 * max(-1.0, min(1.0, value)):.2f}%"


def _share(value: float) -> str:
    return f"{2 + 96 * max(0.0, min(1.0, value)):.2f}%"


# The blind comparison on the page: who won, case by case, why, and how each output was scored.

_MOST_REASONS = 200
_MOST_CHARS = 600


def blind_section(figures: Sequence[Mapping[str, Any]]) -> str:
    """What a judge preferred who did not know which arm made what; empty without such comparisons."""
    if not figures:
        return ""
    return section(
        "blind",
        "Blind comparison",
        "A judge saw two outputs of the same case, in both orders, without knowing which arm made which. Who wins in "
        "both orders in most samples has won. The interval is over the cases.",
        "".join(part for one in figures for part in _of_pair(one)),
    )


def _of_pair(one: Mapping[str, Any]) -> list[str]:
    pair = f"<b>{inline(one['arm'])}</b> with <b>{inline(one['baseline'])}</b>"
    undecided = [
        f'<p class="note">No verdict for {inline(error["case"])} run {error["run"]}: {inline(error["message"])}</p>'
        for error in one["errors"][:_MOST_REASONS]
    ]
    if not one["comparisons"]:
        return [f"<p>{pair}: not measured.</p>", *undecided]
    interval = interval_text(one["low"], one["high"], one["no_interval"], percent)
    about = [f"the judge's samples agree in {share(one['agreement'])}"] if one["samples"] else []
    if one["flips"]:
        about.append(f"in {one['flips']:,} of {one['samples']:,} samples it preferred a place, which is a tie")
    if one["same_output"]:
        about.append(f"{one['same_output']:,} outputs were the same")
    return [
        f"<p>{pair}: <b>{one['wins']:,} won</b>, {one['ties']:,} tied, {one['losses']:,} lost; preference "
        f"<b>{percent(one['preference'])}</b>{interval} over {len(one['cases']):,} cases. {inline(one['arm'])} "
        f"{verdict_text(one['better'], one['worse'], one['equal'], words=('wins', 'loses'))}.</p>",
        f'<p class="note">{inline("; ".join(about).capitalize())}.</p>' if about else "",
        _cases(one),
        _scores(one),
        *undecided,
    ]


def _cases(one: Mapping[str, Any]) -> str:
    rows, left = [], _MOST_REASONS
    for case in sorted(one["cases"], key=lambda case: case["preference"]):
        shown = [
            f"<li>Run {run['run']}: {inline(run['winner'] or 'a tie')}. {inline(run['reasons'][:_MOST_CHARS])}</li>"
            for run in case["runs"][: max(left, 0)]
        ]
        left -= len(shown)
        rest = len(case["runs"]) - len(shown)
        more = f"<li>{rest:,} more in comparisons.jsonl</li>" if rest else ""
        why = f"<details><summary>Reasons</summary><ul>{''.join(shown)}{more}</ul></details>"
        counts = (f"{case[kind]:,}" for kind in ("wins", "ties", "losses"))
        rows.append((inline(case["case"]), *counts, why))
    label = f"Blind comparison with {inline(one['baseline'])}"
    return table(label, ("Case", "Won", "Tied", "Lost", "Why"), rows)


def _scores(one: Mapping[str, Any]) -> str:
    given = {arm: scores for arm, scores in one["scores"].items() if scores is not None}
    if not given:
        return ""
    rows = [(name, *(f"{scores[name]:.1f}" for scores in given.values())) for name in (*CRITERIA, "overall")]
    shown = table("Scores of the blind comparison", ("Criterion", *map(inline, given)), rows)
    return f"<details><summary>Scores (1 to 5; over all 2 to 10)</summary>{shown}</details>"


# The shell of every HTML page we write: one file, nothing fetched, light and dark, and no code but its own.

BASE_STYLE = """
:root { color-scheme: light dark; --bar: #1a73e8; --bad: #d93025; --good: #188038; --soft: #5f6368; }
@media (prefers-color-scheme: dark) { :root { --bar: #8ab4f8; --bad: #f28b82; --good: #81c995; --soft: #9aa0a6; } }
* { box-sizing: border-box; }
body { font: 1rem/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } .note { color: var(--soft); font-size: .875rem; }
.bar { margin: .4rem 0; } .bar div { display: flex; gap: 1rem; justify-content: space-between; font-size: .875rem; }
.bar span:first-child { overflow-wrap: anywhere; } .bar span:last-child { white-space: nowrap; }
svg { display: block; height: .75rem; width: 100%; } rect.ok { fill: var(--bar); } rect.bad { fill: var(--bad); }
rect.soft { fill: var(--bar); opacity: .35; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; width: 100%; }
th, td { border-bottom: 1px solid color-mix(in srgb, var(--soft) 40%, transparent); padding: .35rem .5rem; }
th, td { text-align: right; white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
td:last-child, th:last-child { text-align: left; white-space: normal; }
"""
"""What our pages have in common."""


def html_page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole page.

    The page's policy names its style and its script by their hashes: whatever else got into the page as code would not
    run, and nothing is fetched or sent. ``title`` is plain text; in ``body`` what is a stranger's is escaped.
    """
    whole_style = BASE_STYLE + style
    policy = [
        "default-src 'none'", f"style-src {_hash(whole_style)}", *([f"script-src {_hash(script)}"] if script else []),
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{inline(title)}</title><style>{whole_style}</style></head><body>\n{body}"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def inline(text: str) -> str:
    """A stranger's text within HTML: on one line, escaped, without characters that turn the direction of what follows
    or cannot be seen.
    """
    return escape(in_one_line(text))


def _hash(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
