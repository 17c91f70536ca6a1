"""The figures of a log as one HTML page: charts in inline SVG, nothing fetched, readable on a phone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from adk_skills_agent.cli.output import safe
from adk_skills_agent.cli.usage_figures import duration

if TYPE_CHECKING:
    from adk_skills_agent.cli.usage_figures import SkillFigures
    from adk_skills_agent.cli.usage_log import Reading

CHARTED = 15
"""Skills in each chart; the table has all of them."""
_STYLE = """
:root { color-scheme: light dark; --bar: #1a73e8; --bad: #d93025; --soft: #5f6368; }
@media (prefers-color-scheme: dark) { :root { --bar: #8ab4f8; --bad: #f28b82; --soft: #9aa0a6; } }
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
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

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
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Use of skills</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>Use of skills</h1>{_introduction(figures, reading)}\n{body}{_table(figures)}</body></html>\n"
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
