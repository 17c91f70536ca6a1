"""``adk-skills eval``: does an agent find the skill, follow it, and do better with it than without?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from adk_skills_agent.cli.output import print_aligned, print_diagnostics, print_json, refuse_links, safe, share
from adk_skills_agent.cli.sources import a_path, cluster_options, json_option, needs_of
from adk_skills_agent.cli.terminal import unprotected
from adk_skills_agent.errors import ConfigError, EvalFileError
from adk_skills_agent.evals.statistics import BETTER_OR_WORSE, interval_text, signed, verdict_text
from adk_skills_agent.evals.summary import CaseInArm, Summary
from adk_skills_agent.sandbox import PRESETS

if TYPE_CHECKING:
    from adk_skills_agent.evals.blind.comparison import Pair
    from adk_skills_agent.evals.blind.run import BlindState, Compared
    from adk_skills_agent.evals.preparation import Prepared
    from adk_skills_agent.evals.run.plan import Trial
    from adk_skills_agent.evals.run.result import TrialResult
    from adk_skills_agent.evals.run.schedule import RunState
    from adk_skills_agent.evals.trace import ToolCall


EXAMPLES = """\b
Examples:
  adk-skills eval ./skills/csv-report --dry-run
  adk-skills eval ./skills/csv-report --model gemini-2.5-flash --runs 5 --out run-1
  adk-skills eval cases.yaml -d ./skills --judge none --fail-under 0.8 --json
  adk-skills eval ./skills/csv-report --version old=./snapshot/csv-report --arm with_skill --arm old --blind
  adk-skills eval ./skills/csv-report --model scripted:model.yaml --judge none

\b
Exit codes: 0 the pass rate with the skill reaches --fail-under; 1 it does not, or cases were skipped;
2 wrong usage, a malformed file, or a run that could not be measured to its end; 130 interrupted.
"""


def _complete_judge(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return ["none"] if "none".startswith(incomplete) else []


@click.command("eval", epilog=EXAMPLES)
@click.argument("targets", nargs=-1, type=a_path, metavar="TARGETS...")
@click.option("--eval-set", "eval_sets", multiple=True, type=a_path, hidden=True)  # google-adk's samples say it so
@click.option("--num-runs", default=None, type=click.IntRange(1), hidden=True)
@click.option(
    "--dir",
    "-d",
    "dirs",
    multiple=True,
    type=a_path,
    help="Folder of skills the agent has (repeatable). A skill whose folder holds the cases is added without it.",
)
@click.option("--skill", default=None, help="The skill that the cases are about; overrides the files.")
@click.option(
    "--model",
    default=None,
    help="The agent's model: a name google-adk knows, provider/model (LiteLLM), module:attribute, or scripted:FILE "
    "(rules, offline).  [default: gemini-2.5-flash, or the model of --agent]",
)
@click.option("--agent", default=None, help="module:attribute of your own LlmAgent; its skills are those of the arm.")
@click.option(
    "--judge",
    default="gemini-2.5-flash",
    show_default=True,
    shell_complete=_complete_judge,
    help="The model that judges rubrics, written as --model; 'none' leaves rubrics out.",
)
@click.option(
    "--user-model",
    default=None,
    help="The model that plays the user of a google-adk conversation_scenario, written as --model.  "
    "[default: that of user_simulator_config in test_config.json]",
)
@click.option("--judge-samples", default=3, show_default=True, type=click.IntRange(1), help="How often it is asked.")
@click.option(
    "--arm",
    "arms",
    multiple=True,
    help="with_skill, without_skill or the name of a --version (repeatable).  [default: all of them]",
)
@click.option("--version", "versions", multiple=True, help="NAME=DIR: another version of the skill (repeatable).")
@click.option(
    "--blind",
    is_flag=True,
    help="Let the judge also compare the outputs of the first arm with those of each other arm, in both orders, "
    "without knowing which is which. Asks 2 x --judge-samples questions for each pair of runs.",
)
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1), help="Repetitions of each case.")
@click.option(
    "--parallel",
    default=None,
    type=click.IntRange(1),
    help="Trials at once.  [default: 4, or as many as the --cluster has room for]",
)
@cluster_options
@click.option("--filter", "pattern", default="", help="Only cases whose id contains this text, or matches it (*, ?).")
@click.option("--timeout", default=600.0, show_default=True, type=click.FloatRange(0.1), help="Seconds for a trial.")
@click.option(
    "--policy",
    default=None,
    type=click.Choice(list(PRESETS)),
    help="Limits of the skill's scripts.  [default: default]",
)
@click.option(
    "--requests-per-minute",
    default=None,
    type=click.IntRange(1),
    help="Limit of requests, for all models of the run and all nodes of a --cluster together.",
)
@click.option("--tokens-per-minute", default=None, type=click.IntRange(1), help="The same limit for tokens.")
@click.option("--budget-usd", default=None, type=click.FloatRange(0, min_open=True), help="Stop before this is spent.")
@click.option("--price", default=None, help="PROMPT,OUTPUT[,CACHED] of --model, in USD for a million tokens.")
@click.option("--judge-price", default=None, help="The same for --judge.")
@click.option("--user-price", default=None, help="The same for --user-model.")
@click.option(
    "--fail-under",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Pass rate below which the exit code is 1.",
)
@click.option("--out", default="adk-skills-eval", show_default=True, type=a_path, help="Folder of the results.")
@click.option("--workspace", default=None, type=a_path, help="Folder for the results in agentskills' layout, too.")
@click.option("--resume", is_flag=True, help="Continue the results in --out: only what is missing is run.")
@click.option("--dry-run", is_flag=True, help="Check every file and print the plan; nothing is run or written.")
@json_option
def command(
    targets: tuple[Path, ...],
    eval_sets: tuple[Path, ...],
    num_runs: int | None,
    dirs: tuple[Path, ...],
    skill: str | None,
    model: str | None,
    agent: str | None,
    judge: str,
    user_model: str | None,
    judge_samples: int,
    arms: tuple[str, ...],
    versions: tuple[str, ...],
    blind: bool,
    runs: int,
    parallel: int | None,
    cluster: str | None,
    trial_cpus: float,
    trial_memory: int,
    trial_gpus: float,
    labels: tuple[str, ...],
    pattern: str,
    timeout: float,
    policy: str | None,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    budget_usd: float | None,
    price: str | None,
    judge_price: str | None,
    user_price: str | None,
    fail_under: float,
    out: Path,
    workspace: Path | None,
    resume: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Measure skills: run eval cases with and without them.

    TARGETS are files of cases (google-adk EvalSet, agentskills evals.json and eval_queries.json, our YAML) or folders
    of skills that have them in evals/. Each result is written to --out at once: trials.jsonl, then
    benchmark.json, junit.xml and report.html.
    """
    from adk_skills_agent.evals.blind.comparison import plan_pairs
    from adk_skills_agent.evals.preparation import Request, prepare

    targets, runs = (*targets, *eval_sets), num_runs or runs
    if not targets:
        raise click.UsageError("Missing argument 'TARGETS...'.")
    judged = judge != "none"
    if blind and not judged:
        raise ConfigError("--blind needs somebody to compare: name a model with --judge.")
    model_name = model or ("" if agent else "gemini-2.5-flash")
    request = Request(
        targets=targets,
        dirs=tuple(_folder(folder) for folder in dirs),
        skill=skill,
        arms=arms,
        versions=_versions(versions),
        runs=runs,
        pattern=pattern,
        judged=judged,
        user_model=user_model or "",
        settings={
            "model": model_name,
            "agent": agent,
            "judge": judge if judged else None,
            "judge_samples": judge_samples if judged else None,
            "policy": policy,
        },
        private=(out, *([workspace] if workspace is not None else ())),
    )
    try:
        prepared = prepare(request)
    except EvalFileError as error:
        for problem in error.problems:
            print(f"adk-skills: {safe(problem)}", file=sys.stderr)
        raise click.exceptions.Exit(2) from None
    print_diagnostics([*prepared.skipped, *prepared.notes], all_of_them=True)
    needs = needs_of(cluster, trial_cpus, trial_memory, trial_gpus, labels)
    if not prepared.trials:
        raise ConfigError(f"There is nothing to run{f' that fits --filter {pattern}' if pattern else ''}.")
    pairs = plan_pairs(prepared.trials) if blind else []
    if blind:
        _check_pairs(prepared, pairs)
    for option, folder in (("--out", out), ("--workspace", workspace)):
        if folder is not None:
            refuse_links(folder, option)
    if dry_run:
        _print_plan(prepared, runs, len(pairs) if blind else None, judge_samples, as_json=as_json)
        raise click.exceptions.Exit(1 if prepared.skipped else 0)
    from adk_skills_agent.cli.eval_run import Elsewhere, Options, run_eval
    from adk_skills_agent.evals.pace import Limits
    from adk_skills_agent.evals.run.settings import ModelNames

    elsewhere = Elsewhere(cluster, needs, request) if cluster is not None and needs is not None else None
    try:
        code = run_eval(
            prepared,
            Options(
                ModelNames(
                    model=model_name,
                    agent=agent,
                    policy=policy,
                    judge=judge if prepared.judged or blind else "",
                    judge_samples=judge_samples,
                    timeout=timeout,
                    price=price,
                    judge_price=judge_price,
                    user_price=user_price,
                    limits=Limits(requests_per_minute, tokens_per_minute),
                ),
                runs=runs,
                parallel=parallel,
                elsewhere=elsewhere,
                budget_usd=budget_usd,
                fail_under=fail_under,
                out=out,
                workspace=workspace,
                resume=resume,
                as_json=as_json,
            ),
            pairs if blind else None,
        )
    except BrokenPipeError:
        raise
    except OSError as error:  # exit code 1 would say that the skill is not good enough
        where = f" {safe(str(error.filename))}:" if error.filename else ""
        kept = f"The results so far are in {safe(str(out))}; --resume continues."
        raise ConfigError(f"The run cannot go on:{where} {error.strerror or error}. {kept}") from error
    raise click.exceptions.Exit(code)


def _folder(folder: Path) -> Path:
    place = folder.expanduser()
    if not place.exists():
        raise ConfigError(f"No such folder: {safe(str(folder))}. Give the folder that holds your skills.")
    return place


def _versions(given: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not name or not equals or not folder or name in ("with_skill", "without_skill"):
            raise ConfigError(f"--version {safe(text)}: write NAME=DIR, with a name of its own.")
        if name in found:
            raise ConfigError(f"--version {safe(name)} is given twice.")
        found[name] = _folder(Path(folder))
    return found


def _check_pairs(prepared: Prepared, pairs: list[Pair]) -> None:
    """Say which tasks --blind leaves out; that it leaves out all of them is wrong usage."""
    compared = {pair.case.id for pair in pairs}
    if not compared:
        raise ConfigError(
            "--blind has nothing to compare: no task is run in two arms. Name another --arm or --version; the arm "
            "without the skill runs only tasks with an outcome to measure (a reference, expected files, rubrics)."
        )
    for case in prepared.cases:
        if case.kind == "task" and case.id not in compared:
            print(f"adk-skills: {safe(case.id)} is run in one arm only and is not compared.", file=sys.stderr)


def _print_plan(prepared: Prepared, runs: int, pairs: int | None, samples: int, *, as_json: bool) -> None:
    """Print what would be run."""
    arms = [arm.name for arm in prepared.arms]
    planned: dict[str, list[Trial]] = {}
    for trial in prepared.trials:
        planned.setdefault(trial.case.id, []).append(trial)
    questions = 2 * samples * (pairs or 0)
    if as_json:
        print_json(
            {
                "files": [str(path) for path in prepared.files],
                "cases": [
                    {
                        "case": case.id,
                        "kind": case.kind,
                        "skills": list(case.skills),
                        "source": str(case.source),
                        "arms": sorted({one.arm.name for one in planned.get(case.id, ())}, key=arms.index),
                        "metrics": sorted({name for one in planned.get(case.id, ()) for name in one.criteria}),
                    }
                    for case in prepared.cases
                ],
                "arms": arms,
                "runs": runs,
                "trials": len(prepared.trials),
                "blind": None if pairs is None else {"comparisons": pairs, "questions": questions},
                "skipped": [problem.to_dict() for problem in prepared.skipped],
                "notes": [note.to_dict() for note in prepared.notes],
            }
        )
        return
    width = max(len(safe(case.id)) for case in prepared.cases)
    for case in prepared.cases:
        metrics = dict.fromkeys(name for trial in planned.get(case.id, ()) for name in trial.criteria)
        print(f"{safe(case.id):<{width}}  {case.kind:<7}  {', '.join(name.removesuffix('_score') for name in metrics)}")
    print(
        f"{len(prepared.cases)} cases, arms {', '.join(map(safe, arms))}, {runs} runs: {len(prepared.trials)} trials"
        + (f"; {len(prepared.skipped)} skipped" if prepared.skipped else "")
    )
    if pairs is not None:
        print(f"{pairs} blind comparisons, each in both orders, {samples} samples: {questions} questions to the judge")


# How a run is going, on stderr: a live display on a terminal, a line for each trial elsewhere.


class Progress:
    """Shows a run."""

    def __init__(self, state: RunState, baseline: str = "") -> None:
        self._baseline = baseline
        self._display: Any = None
        self._task: Any = None
        self._begun = time.monotonic()
        if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._display, self._task = _display(state.planned)

    def __enter__(self) -> Self:
        if self._display is not None:
            self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the display away."""
        if self._display is not None:
            self._display.stop()
            self._display = None

    def __call__(self, state: RunState, result: TrialResult | None) -> None:
        """Take a trial's start (no result) or end."""
        done = len(state.results)
        if self._display is not None:
            now = ", ".join(f"{safe(case)} {arm} {run}" for case, arm, run in list(state.running)[:2])
            spent = f" ${state.spent:.4f}" if state.spent else ""
            self._display.update(
                self._task, completed=done, description=f"{_counts(state, self._baseline)}{spent}  {now}"
            )
        elif result is not None:
            print(f"[{done}/{state.planned}] {_line(result, self._baseline)}", file=sys.stderr, flush=True)

    def compared(self, state: BlindState, result: Compared | None) -> None:
        """Take a blind comparison's start (no result) or end. Who won is not said before all are done."""
        done = len(state.results)
        if self._display is not None:
            spent = f" ${state.spent:.4f}" if state.spent else ""
            self._display.update(self._task, total=state.planned, completed=done, description=f"compared blind{spent}")
        elif result is not None:
            case, _, _, run = result.key
            said = f"compared, {result.agreement:.0%} agree" if result.measured else f"no verdict: {safe(result.error)}"
            print(f"[{done}/{state.planned}] {safe(case)} run {run}: {said}", file=sys.stderr, flush=True)


def _display(planned: int) -> tuple[Any, Any]:
    """A progress bar of rich; nothing where rich is not installed (it comes with the extra eval)."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None, None
    bar = Bar(
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(file=unprotected(sys.stderr)),
        redirect_stdout=False,  # rich would pass links of others on
        redirect_stderr=False,
        transient=True,
    )
    return bar, bar.add_task("", total=planned)


def _counts(state: RunState, baseline: str) -> str:
    passed = sum(count for (arm, what), count in state.ended.items() if arm != baseline and what is True)
    failed = sum(count for (arm, what), count in state.ended.items() if arm != baseline and what is False)
    errors = sum(count for (_, what), count in state.ended.items() if what is None)
    return f"{passed} passed, {failed} failed" + (f", {errors} not measured" if errors else "")


def _line(result: TrialResult, baseline: str) -> str:
    failed = "did not pass (the baseline)" if result.arm == baseline else "failed"
    said = {True: "passed", False: failed, None: "not measured"}[result.passed]
    cost = f" ${result.spent:.4f}" if result.spent else ""
    why = f": {safe(result.error['message'])}" if result.error else ""
    return f"{safe(result.case)} {safe(result.arm)} run {result.run}: {said}, {result.seconds:.1f} s{cost}{why}"


# The results of a run as a table for a terminal.


def print_summary(summary: Summary, content: Mapping[str, Any], written: Sequence[Path]) -> None:
    """Print what a person wants to know after a run."""
    metrics = [name for name in _COLUMNS if any(name in result.scores for result in _of_main_arm(summary))]
    rows = [("case", *summary.arms, *(_COLUMNS[name] for name in metrics), "time", "tokens")]
    rows += [_row(summary, case.id, metrics) for case in summary.cases]
    print_aligned(rows, range(1, len(rows[0])))
    print()
    _print_failures(summary, written)
    ours = content["adk_skills"]
    for arm in summary.arms:
        rate = ours["pass_rate"][arm]
        shown = "not measured" if rate is None else f"{rate:.1%}"
        print(f"{safe(arm)}{' (the baseline)' if arm == summary.baseline else ''}: pass rate {shown}")
    for lift in ours["lift"]:
        interval = interval_text(lift["low"], lift["high"], lift["no_interval"], signed)
        print(f"lift of {safe(lift['arm'])} over {safe(lift['baseline'])}: {lift['mean']:+.1%}{interval}")
        print(safe(lift["verdict"]))
    for one in ours["blind"]:
        print(_blind_line(one))
    for arm, counts in ours["trigger"].items():
        total = counts["total"]
        print(f"triggering in {safe(arm)}: precision {share(total['precision'])}, recall {share(total['recall'])}")
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
    interval = interval_text(one["low"], one["high"], one["no_interval"], signed)
    return (
        f"{pair}: {one['wins']} won, {one['ties']} tied, {one['losses']} lost; {one['preference']:+.1%}{interval}; "
        f"{safe(one['arm'])} {verdict_text(one['better'], one['worse'], one['equal'], words=('wins', 'loses'))}"
    )


_COLUMNS = {
    "tool_invocation_score": "tools",
    "tool_args_score": "args",
    "instruction_adherence_score": "adhere",
    "skill_discovery_score": "discovery",
    "skill_trigger_score": "trigger",
    "reference_match_score": "reference",
    "output_files_score": "files",
}
_SHOWN_FAILURES = 20
_CALL_CHARS = 100


def _of_main_arm(summary: Summary) -> Iterator[TrialResult]:
    return (result for cell in summary.of_arm(summary.main_arm) for result in cell.measured)


def _print_failures(summary: Summary, written: Sequence[Path]) -> None:
    """The first failing run of each case with the skill: its scores, the calls made, and what was missing."""
    from adk_skills_agent.evals.row_file import read_rows
    from adk_skills_agent.evals.run.plan import WITHOUT
    from adk_skills_agent.evals.run.result import NAME, trace_of

    failing = {
        (result.case, result.arm): result.run
        for cell in summary.of_arm(summary.main_arm)
        for result in reversed(cell.measured)
        if not result.passed
    }
    if not failing or summary.main_arm == WITHOUT:
        return
    ledger = next((path for path in written if path.name == NAME), None)
    rows = {(row["case"], row["arm"], row["run"]): row for row in read_rows(ledger)} if ledger is not None else {}
    for (case, arm), run in list(failing.items())[:_SHOWN_FAILURES]:
        row = rows.get((case, arm, run))
        if row is None:
            continue
        scores = [
            f"{_COLUMNS.get(one['metric'], one['metric'])} {one['value']:.2f}"
            for one in row["scores"]
            if one["value"] is not None
        ]
        print(f"{safe(case)}, {safe(arm)} run {run} failed: {', '.join(scores)}")
        calls = [call for turn in trace_of(row, f"{ledger}").turns for call in turn.calls]
        print(f"  calls: {', '.join(_call(call) for call in calls) or 'none'}")
        for one in row["scores"]:
            for said in dict.fromkeys(turn["detail"] for turn in one["per_turn"] if turn["detail"]):
                print(f"  {_COLUMNS.get(one['metric'], one['metric'])}: {safe(said)}")
        for verdict in row["verdicts"]:
            if not verdict["met"]:
                print(f"  not met: {safe(verdict['text'])} -- {safe(verdict['rationale'])}")
    if len(failing) > _SHOWN_FAILURES:
        print(f"{len(failing) - _SHOWN_FAILURES} more cases failed; the report has them all.")
    print()


def _call(call: ToolCall) -> str:
    told = ", ".join(f"{key}={value!r}" for key, value in call.args.items())
    text = safe(f"{call.name}({told})")
    return text if len(text) <= _CALL_CHARS else f"{text[: _CALL_CHARS - 3]}..."


def _row(summary: Summary, case: str, metrics: Sequence[str]) -> tuple[str, ...]:
    cells = [summary.cells.get((case, arm)) for arm in summary.arms]
    main = summary.cells.get((case, summary.main_arm))
    figures = main.to_json() if main is not None else {}
    seconds, tokens = figures.get("seconds"), figures.get("tokens")
    scores = []
    for name in metrics:
        values = [one.scores.get(name) for one in (main.measured if main is not None else ())]
        known = [value for value in values if value is not None]
        scores.append(f"{sum(known) / len(known):.2f}" if known else "-")
    return (
        safe(case),
        *(_passed(cell) for cell in cells),
        *scores,
        "-" if seconds is None else f"{seconds:.1f} s",
        "-" if tokens is None else f"{tokens:,.0f}",
    )


def _passed(cell: CaseInArm | None) -> str:
    if cell is None:
        return "-"
    errors = cell.planned - len(cell.measured)
    return f"{cell.passed}/{len(cell.measured)}" + (f" ({errors} missing)" if errors else "")


# ``adk-skills report``: the results of an evaluation or a benchmark as one page to look at.

_REPORT_EXAMPLES = """\b
Examples:
  adk-skills report run-2
  adk-skills report run-2 --baseline run-1
  adk-skills report run-2 --baseline run-1 --out compared.html --json
  adk-skills report bench-1

\b
The page is one file and needs no network: send it, keep it as an artifact of CI, open it from disk.
"""


@click.command("report", epilog=_REPORT_EXAMPLES)
@click.argument("run_dir", type=a_path, metavar="RUN_DIR")
@click.option("--baseline", type=a_path, metavar="RUN_DIR", help="An earlier run of the same cases, to compare with.")
@click.option("--out", type=a_path, metavar="FILE", help="The page. Default: report.html in RUN_DIR.")
@json_option
def report_command(run_dir: Path, baseline: Path | None, out: Path | None, as_json: bool) -> None:
    """Make the HTML report of a run: lift, triggering, tokens, time, every trace.

    RUN_DIR is the --out folder of adk-skills eval, which makes this report itself at its end; of a run that was
    interrupted the report has what there is. For adk-skills bench it shows each task in each arm and the lift.
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
        _report_bench(run_dir, run_dir / REPORT if out is None else out, as_json=as_json)
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


def _report_bench(run_dir: Path, out: Path, *, as_json: bool) -> None:
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
