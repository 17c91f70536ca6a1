"""``adk-skills report``: the results of an evaluation or a benchmark as one page to look at."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, json_option
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.statistics import BETTER_OR_WORSE, interval_text, signed, verdict_text

EXAMPLES = """\b
Examples:
  adk-skills report run-2
  adk-skills report run-2 --baseline run-1
  adk-skills report run-2 --baseline run-1 --out compared.html --json
  adk-skills report bench-1

\b
The page is one file and needs no network: send it, keep it as an artifact of CI, open it from disk.
"""


@click.command("report", epilog=EXAMPLES)
@click.argument("run_dir", type=a_path, metavar="RUN_DIR")
@click.option("--baseline", type=a_path, metavar="RUN_DIR", help="An earlier run of the same cases, to compare with.")
@click.option("--out", type=a_path, metavar="FILE", help="The page. Default: report.html in RUN_DIR.")
@json_option
def command(run_dir: Path, baseline: Path | None, out: Path | None, as_json: bool) -> None:
    """Make the HTML report of a run: lift, triggering, tokens, time, every trace.

    RUN_DIR is the --out folder of adk-skills eval, which makes this report itself at its end; of a run that was
    interrupted the report has what there is. Of adk-skills bench it has each task in each arm and the lift.
    """
    from adk_skills_agent.evals.report.bench_page import is_bench_run
    from adk_skills_agent.evals.report.page import REPORT, build_report

    if out is not None and out.is_dir():
        raise ConfigError(f"--out {safe(str(out))} is a folder. Give the name of a file in it.")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"--out {safe(str(out))}: there is no folder {safe(str(out.parent))}.")
    if is_bench_run(run_dir):
        if baseline is not None:
            raise ConfigError(
                "--baseline is for two runs of adk-skills eval. The arms of a benchmark are in its report."
            )
        _bench(run_dir, run_dir / REPORT if out is None else out, as_json=as_json)
        return
    report = build_report(run_dir, baseline=baseline, out=out)
    for note in report.data.notes:
        print(f"adk-skills: {safe(note)}", file=sys.stderr)
    if as_json:
        print_json(report.to_json())
        return
    for note in report.run.notes:
        print(f"adk-skills: {safe(note)}", file=sys.stderr)
    for arm, lift in (report.comparison.arms if report.comparison is not None else {}).items():
        interval = interval_text(lift.low, lift.high, lift.no_interval, signed)
        said = verdict_text(lift.better, lift.worse, lift.equal, words=BETTER_OR_WORSE)
        print(f"{safe(arm)} since the baseline: {lift.mean:+.1%}{interval}; it {said}")
    print(f"report: {safe(str(report.path))} ({len(report.run.results):,} trials, {report.size:,} bytes)")


def _bench(run_dir: Path, out: Path, *, as_json: bool) -> None:
    from adk_skills_agent.evals.report.bench_page import build_bench_report

    report = build_bench_report(run_dir, out)
    for note in report.notes:
        print(f"adk-skills: {safe(note)}", file=sys.stderr)
    if as_json:
        print_json(report.to_json())
        return
    for lift in report.figures["lift"]:
        interval = interval_text(lift["low"], lift["high"], lift["no_interval"], signed)
        said = verdict_text(lift["better"], lift["worse"], lift["equal"], unit="task")
        print(
            f"lift of {safe(lift['arm'])} over {safe(lift['baseline'])} ({safe(lift['agent'])}): {lift['mean']:+.1%}"
            f"{interval}; it {said}"
        )
    print(f"report: {safe(str(report.path))} ({len(report.results):,} trials, {report.size:,} bytes)")
