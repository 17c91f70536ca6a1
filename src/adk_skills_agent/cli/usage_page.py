"""The figures of a log as one HTML page: charts in inline SVG, nothing fetched, readable on a phone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from adk_skills_agent.cli.output import safe
from adk_skills_agent.cli.usage import duration
from adk_skills_agent.evals.report.sections import html_page

if TYPE_CHECKING:
    from adk_skills_agent.cli.usage import Reading, SkillFigures

CHARTED = 15
"""Skills in each chart; the table has all of them."""
_Part = tuple[float, str]
"""A length and the class it is drawn in."""


def usage_page(figures: Sequence[SkillFigures], reading: Reading) -> str:
    """The whole page."""
    charts = [
        _chart(
            "Activations",
            "How often a skill's instructions came into force.",
            figures,
            lambda one: ([(one.activations, "ok")], f"{one.activations:,}"),
        ),
        _chart(
            "Script runs",
            "Failed runs in the second colour.",
            figures,
            lambda one: (
                [(one.runs - one.failed_runs, "ok"), (one.failed_runs, "bad")],
                f"{one.runs:,}" + (f", {one.failed_runs:,} failed" if one.failed_runs else ""),
            ),
        ),
        _chart("Failures", "Of runs, reads and activations, by reason.", figures, _failures),
        _chart("Latency", "Median of the runs' wall time; pale: up to the 95th percentile.", figures, _time),
        _chart(
            "Tokens of instructions",
            "What every request pays for while the skill is active (estimated).",
            figures,
            lambda one: ([(one.tokens, "ok")], f"{one.tokens:,}"),
        ),
    ]
    body = "".join(charts) if figures else "<p>There is no event in the log.</p>"
    return html_page(
        "Use of skills", f"<h1>Use of skills</h1>{_introduction(figures, reading)}\n{body}{_table(figures)}"
    )


def _introduction(figures: Sequence[SkillFigures], reading: Reading) -> str:
    period = ""
    if reading.first is not None and reading.last is not None:
        period = f", {reading.first:%Y-%m-%d %H:%M} to {reading.last:%Y-%m-%d %H:%M} UTC"
    sentences = [f"{reading.events:,} events of {len(figures):,} skills{period}."]
    if reading.skipped:
        sentences.append(f"{reading.skipped:,} lines were no events and are left out.")
    if reading.lost:
        sentences.append(f"{reading.lost:,} events are missing in the log.")
    logs = ", ".join(path.name for path in reading.files)
    return f'<p>{escape(" ".join(sentences))}</p><p class="note">{escape(safe(logs))}</p>'


def _chart(
    title: str,
    about: str,
    figures: Sequence[SkillFigures],
    bar: Callable[[SkillFigures], tuple[list[_Part], str]],
) -> str:
    bars = [(one.name, *bar(one)) for one in figures]
    bars = [(name, parts, label) for name, parts, label in bars if sum(length for length, _ in parts) > 0]
    if not bars:
        return ""
    bars.sort(key=lambda one: -sum(length for length, _ in one[1]))
    longest = sum(length for length, _ in bars[0][1])
    drawn = "\n".join(_bar(name, parts, label, longest) for name, parts, label in bars[:CHARTED])
    more = f'<p class="note">And {len(bars) - CHARTED:,} more; see the table.</p>' if len(bars) > CHARTED else ""
    return f'<section><h2>{title}</h2><p class="note">{about}</p>\n{drawn}{more}</section>\n'


def _bar(name: str, parts: Sequence[_Part], label: str, longest: float) -> str:
    rects, start = [], 0.0
    for length, kind in parts:
        width = 100 * length / longest
        if width > 0:
            rects.append(f'<rect class="{kind}" x="{start:.3f}" y="0" width="{width:.3f}" height="10"/>')
        start += width
    text = escape(safe(name))
    return (
        f'<div class="bar"><div><span>{text}</span><span>{escape(safe(label))}</span></div>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{text}: {escape(safe(label))}">'
        f"{''.join(rects)}</svg></div>"
    )


def _failures(one: SkillFigures) -> tuple[list[_Part], str]:
    count = one.failures.total()
    return [(count, "bad")], ", ".join(f"{reason} {times:,}" for reason, times in one.failures.most_common(4))


def _time(one: SkillFigures) -> tuple[list[_Part], str]:
    median, p95 = one.median_seconds or 0.0, one.p95_seconds or 0.0
    return [(median, "ok"), (max(p95 - median, 0), "soft")], f"{duration(median)}, p95 {duration(p95)}"


def _table(figures: Sequence[SkillFigures]) -> str:
    if not figures:
        return ""
    heads = ("Skill", "Activations", "Sessions", "Dropped", "Reads", "Runs", "Failed", "Median", "p95", "Tokens")
    rows = []
    for one in figures:
        failures = ", ".join(f"{reason} {count:,}" for reason, count in one.failures.most_common())
        counts = (one.activations, len(one.sessions), one.drops.total(), one.reads, one.runs, one.failed_runs)
        cells = (
            one.name,
            *(f"{count:,}" for count in counts),
            duration(one.median_seconds),
            duration(one.p95_seconds),
            f"{one.tokens:,}",
            failures,
        )
        rows.append("<tr>" + "".join(f"<td>{escape(safe(cell))}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in (*heads, "Failures by reason"))
    return (
        f'<section><h2>All skills</h2><div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>'
        f"{''.join(rows)}</tbody></table></div></section>\n"
    )
