"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from adk_skills_agent.evals.blind.figures import blind_figures
from adk_skills_agent.evals.report.blind_section import blind_section
from adk_skills_agent.evals.report.charts import change_row, chart
from adk_skills_agent.evals.report.comparison import Change, Comparison
from adk_skills_agent.evals.report.embedding import Embedded
from adk_skills_agent.evals.report.html_page import html_page, inline
from adk_skills_agent.evals.report.run_folder import RunFolder
from adk_skills_agent.evals.report.sections import (
    cases_section,
    duration,
    introduction,
    lift_section,
    notes_box,
    percent,
    section,
    share,
    spread_section,
    tokens,
    trigger_section,
)

_LINKS = {
    "compare": "Compared",
    "lift": "Lift",
    "blind": "Blind",
    "cases": "Cases",
    "trigger": "Triggering",
    "cost": "Tokens and time",
    "trials": "Trials",
}


def report_page(run: RunFolder, data: Embedded, baseline: RunFolder | None, comparison: Comparison | None) -> str:
    """The whole page.

    Args:
        run: What it is about.
        data: The trials of both runs.
        baseline: An earlier run.
        comparison: Of both.
    """
    lifts = run.summary.lifts()
    parts = {
        "compare": _comparison(comparison, baseline) if comparison is not None and baseline is not None else "",
        "lift": lift_section(lifts),
        "blind": blind_section(blind_figures(run.compared)),
        "cases": cases_section(run.summary),
        "trigger": trigger_section(run.summary),
        "cost": spread_section(run.summary),
        "trials": _trials(baseline is not None),
    }
    links = "".join(f'<a href="#{name}">{_LINKS[name]}</a>' for name, part in parts.items() if part)
    earlier = [f"Baseline: {note}" for note in baseline.notes] if baseline is not None else []
    notes = [*data.notes, *run.notes, *earlier]
    code = files("adk_skills_agent.evals.report")
    skills = ", ".join(dict.fromkeys(name for case in run.summary.cases for name in case.skills))
    return html_page(
        f"Evaluation of {skills or 'skills'}",
        f'<a class="skip" href="#trials">To the trials</a><header>{introduction(run, lifts)}</header>'
        f'<nav aria-label="Parts of the report">{links}</nav>\n<main>{notes_box(notes)}{"".join(parts.values())}'
        f"</main>\n{data.html}",
        style=code.joinpath("viewer.css").read_text(encoding="utf-8"),
        script=code.joinpath("viewer.js").read_text(encoding="utf-8"),
    )


def _trials(with_baseline: bool) -> str:
    runs = (
        '<label>Run <select id="of"><option value="0">this one</option><option value="1">baseline</option></select>'
        "</label>"
    )
    return section(
        "trials", "Trials", "",
        '<noscript><p>The traces need JavaScript; the same is in trials.jsonl.</p></noscript>'
        '<div id="filters" role="search">'
        f'{runs if with_baseline else ""}<label>Case <select id="case"></select></label>'
        '<label>Arm <select id="arm"></select></label><label>Result <select id="result">'
        '<option value="">all</option><option value="failed">failed</option><option value="passed">passed</option>'
        '<option value="unmeasured">not measured</option></select></label></div>'
        '<p id="count" class="note" role="status">Opening the traces…</p>'
        '<div id="viewer"><div id="list" aria-label="Trials" role="group"></div>'
        '<article id="trial" tabindex="-1" aria-label="Trial"><p class="note">Choose a trial.</p></article></div>',
    )  # fmt: skip


def _comparison(comparison: Comparison, baseline: RunFolder) -> str:
    parts = []
    for arm, lift in comparison.arms.items():
        interval = (
            f" [{percent(lift.low)}, {percent(lift.high)}]" if lift.low is not None and lift.high is not None else ""
        )
        parts.append(
            f"<h3>{inline(arm)}</h3><p>Pass rate <b>{percent(lift.mean)}</b>{interval} over {lift.pairs} cases; "
            f"{lift.better} better, {lift.worse} worse, {lift.equal} equal; sign test p={lift.p_value:.3f}.</p>"
        )
        changes = sorted(
            (change for change in comparison.changes if change.arm == arm), key=lambda one: one.after - one.before
        )
        parts.append(
            chart(
                [
                    change_row(one.case, one.before, one.after, f"{share(one.before)} → {share(one.after)}")
                    for one in changes
                ]
            )
        )
        parts.append(_change_table(arm, changes))
    if not parts:
        parts = ["<p>No case was measured in the same arm of both runs.</p>"]
    for names, where in ((comparison.only_now, "this run"), (comparison.only_before, "the baseline")):
        if names:
            parts.append(f'<p class="note">Only in {where}: {inline(", ".join(names))}.</p>')
    return section(
        "compare", "Compared with the baseline",
        f"{inline(baseline.path.resolve().name)}, {inline(str(baseline.about.get('timestamp') or 'not finished'))}. "
        "Ring: the baseline's pass rate; dot: this run's. Intervals are 95 % bootstrap intervals of the difference.",
        "".join(parts),
    )  # fmt: skip


def _change_table(arm: str, changes: Sequence[Change]) -> str:
    rows = "".join(
        f"<tr><td>{inline(one.case)}</td><td>{percent(one.after - one.before)} "
        f"[{percent(one.low)}, {percent(one.high)}]</td>"
        f"<td>{tokens(one.tokens[0])} → {tokens(one.tokens[1])}</td>"
        f"<td>{duration(one.seconds[0])} → {duration(one.seconds[1])}</td></tr>"
        for one in changes
    )
    return (
        f'<details><summary>Figures</summary><div class="wide" tabindex="0" role="region" aria-label="Figures of '
        f'{inline(arm)}"><table><thead><tr><th>Case</th><th>Pass rate</th><th>Tokens</th><th>Time</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )
