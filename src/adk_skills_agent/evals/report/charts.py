"""Rows of a chart: a name, a drawing over the whole width in percent (so it fits every screen), the value as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from adk_skills_agent.evals.report.html_page import inline

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

    Args:
        name: Of the case.
        arms: Number (for its colour), name, the values, the median as text.
        longest: Where the axis ends.
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
