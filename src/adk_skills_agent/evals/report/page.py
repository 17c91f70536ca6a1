"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.figures import blind_figures
from adk_skills_agent.evals.report.comparison import Change, Comparison, compare
from adk_skills_agent.evals.report.embedding import Embedded, embed
from adk_skills_agent.evals.report.run_folder import RunFolder, read_run
from adk_skills_agent.evals.report.sections import (
    blind_section,
    cases_section,
    change_row,
    chart,
    duration,
    html_page,
    inline,
    introduction,
    lift_section,
    notes_box,
    percent,
    section,
    share,
    spread_section,
    table,
    tokens,
    trigger_section,
)
from adk_skills_agent.evals.statistics import BETTER_OR_WORSE, interval_text, verdict_text
from adk_skills_agent.evals.summary import NO_VARIATION
from adk_skills_agent.platforms import write_whole

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
    """The whole page."""
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
        '<option value="baseline">not passed in the '
        'baseline</option><option value="unmeasured">not measured</option></select></label></div>'
        '<p id="count" class="note" role="status">Opening the traces…</p>'
        '<div id="viewer"><div id="list" aria-label="Trials" role="group"></div>'
        '<article id="trial" tabindex="-1" aria-label="Trial"><p class="note">Choose a trial.</p></article></div>',
    )  # fmt: skip


def _comparison(comparison: Comparison, baseline: RunFolder) -> str:
    parts = []
    for arm, lift in comparison.arms.items():
        interval = interval_text(lift.low, lift.high, lift.no_interval, percent)
        parts.append(
            f"<h3>{inline(arm)}</h3><p>Since the baseline, {inline(arm)} "
            f"{verdict_text(lift.better, lift.worse, lift.equal, words=BETTER_OR_WORSE)}.</p>"
            f"<p>Pass rate <b>{percent(lift.mean)}</b>{interval} over {lift.pairs} cases.</p>"
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
    rows = [
        (
            inline(one.case),
            percent(one.after - one.before) + interval_text(one.low, one.high, NO_VARIATION, percent),
            f"{tokens(one.tokens[0])} → {tokens(one.tokens[1])}",
            f"{duration(one.seconds[0])} → {duration(one.seconds[1])}",
        )
        for one in changes
    ]
    figures = table(f"Figures of {inline(arm)}", ("Case", "Pass rate", "Tokens", "Time"), rows)
    return f"<details><summary>Figures</summary>{figures}</details>"


# From a results folder to ``report.html``.

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written."""

    path: Path
    size: int
    run: RunFolder
    data: Embedded
    comparison: Comparison | None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "report": str(self.path),
            "bytes": self.size,
            "trials": len(self.run.results),
            "cases": len(self.run.summary.cases),
            "arms": list(self.run.summary.arms),
            "shortened_texts": self.data.clipped,
            "characters_left_out": self.data.left_out,
            "traces_left_out": self.data.without_trace,
            "notes": [*self.data.notes, *self.run.notes],
            "lift": self.run.summary.lifts(),
            "blind": blind_figures(self.run.compared),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
        }


def build_report(
    run_dir: Path,
    *,
    baseline: Path | None = None,
    out: Path | None = None,
    benchmark: Mapping[str, Any] | None = None,
) -> Report:
    """Write the report of a run as one HTML file (issue 6, part 4).

    Traces that would make it too large are shortened; each place in the page says so, and so does the result.
    ``baseline`` is the folder of an earlier run of the same cases; ``out`` is ``report.html`` in ``run_dir`` by
    default. Raises ``ConfigError`` when a folder has no results, or rows that are none, or ``OSError`` when the file
    cannot be written.
    """
    run = read_run(run_dir, benchmark)
    earlier = None if baseline is None else read_run(baseline)
    if earlier is not None and earlier.path.resolve() == run.path.resolve():
        raise ConfigError(f"The baseline {baseline} is the run itself. Give the folder of an earlier run.")
    comparison = None if earlier is None else compare(run.summary, earlier.summary)
    data = embed([run] if earlier is None else [run, earlier])
    page = report_page(run, data, earlier, comparison).encode("utf-8", "replace")
    path = run_dir / REPORT if out is None else out
    write_whole(path, page)
    return Report(path, len(page), run, data, comparison)
