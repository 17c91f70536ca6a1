"""The blind comparison on the page: who won, case by case, why, and how each output was scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adk_skills_agent.evals.blind.prompt import CRITERIA
from adk_skills_agent.evals.report.html_page import inline
from adk_skills_agent.evals.report.sections import percent, section, share

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
    interval = f" [{percent(one['low'])}, {percent(one['high'])}]" if one["low"] is not None else ""
    about = [f"the judge's samples agree in {share(one['agreement'])}"] if one["samples"] else []
    if one["flips"]:
        about.append(f"in {one['flips']:,} of {one['samples']:,} samples it preferred a place, which is a tie")
    if one["same_output"]:
        about.append(f"{one['same_output']:,} outputs were the same")
    return [
        f"<p>{pair}: <b>{one['wins']:,} won</b>, {one['ties']:,} tied, {one['losses']:,} lost; preference "
        f"<b>{percent(one['preference'])}</b>{interval} over {len(one['cases']):,} cases; {one['better']} better, "
        f"{one['worse']} worse, {one['equal']} equal; sign test p={one['p_value']:.3f}.</p>",
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
        rows.append(
            f"<tr><td>{inline(case['case'])}</td><td>{case['wins']:,}</td><td>{case['ties']:,}</td>"
            f"<td>{case['losses']:,}</td><td><details><summary>Reasons</summary><ul>{''.join(shown)}{more}</ul></details>"
            "</td></tr>"
        )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Blind comparison with {inline(one["baseline"])}">'
        "<table><thead><tr><th>Case</th><th>Won</th><th>Tied</th><th>Lost</th><th>Why</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _scores(one: Mapping[str, Any]) -> str:
    given = {arm: scores for arm, scores in one["scores"].items() if scores is not None}
    if not given:
        return ""
    head = "".join(f"<th>{inline(arm)}</th>" for arm in given)
    rows = "".join(
        f"<tr><td>{name}</td>{''.join(f'<td>{scores[name]:.1f}</td>' for scores in given.values())}</tr>"
        for name in (*CRITERIA, "overall")
    )
    return (
        "<details><summary>Scores (1 to 5; over all 2 to 10)</summary>"
        '<div class="wide" tabindex="0" role="region" aria-label="Scores of the blind comparison"><table><thead><tr>'
        f"<th>Criterion</th>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )
