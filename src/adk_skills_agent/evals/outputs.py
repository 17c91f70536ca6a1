"""The files of a run besides its rows: ``benchmark.json`` for people and viewers, ``junit.xml`` for CI."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import statistics
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from adk_skills_agent import __version__
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.comparison import CONTENT, STRUCTURE
from adk_skills_agent.evals.blind.figures import blind_figures, blind_notes, overall
from adk_skills_agent.evals.blind.run import BlindState, Compared, read_comparisons
from adk_skills_agent.evals.row_file import read_rows
from adk_skills_agent.evals.run.plan import Key, Trial
from adk_skills_agent.evals.run.result import NAME, TrialResult, result_of, trace_of
from adk_skills_agent.evals.run.schedule import RunState
from adk_skills_agent.evals.summary import CaseInArm, Summary, run_summary
from adk_skills_agent.format.models import Diagnostic
from adk_skills_agent.platforms import make_folder_below, write_whole

BENCHMARK, JUNIT = "benchmark.json", "junit.xml"
_PARTS_AT_ONCE = 10_000
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is said about a run besides its results."""

    model: str
    judge: str
    runs: int
    skipped: tuple[Diagnostic, ...] = ()
    notes: tuple[str, ...] = ()


def benchmark(
    summary: Summary, trials: Sequence[Trial], state: RunState, facts: RunFacts, blind: BlindState | None = None
) -> dict[str, Any]:
    """What ``benchmark.json`` holds: skill-creator's schema, and below ``adk_skills`` what it has no place for (C46).

    Its ``runs`` are results, which :func:`json_of` writes in that schema one by one.
    """
    compared = blind_figures(blind.results, blind.not_compared) if blind is not None else []
    skills = list(dict.fromkeys(name for case in summary.cases for name in case.skills))
    kinds = {case.kind for case in summary.cases}
    results = [state.results[trial.key] for trial in trials if trial.key in state.results]
    agent = [result.cost_usd for result in results if result.cost_usd is not None]
    judge = [result.judge_cost_usd for result in results if result.judge_cost_usd is not None]
    judge += [one.cost_usd for one in (blind.results.values() if blind else ()) if one.cost_usd is not None]
    users = [result.user_cost_usd for result in results if result.user_cost_usd is not None]
    measured = [result for result in results if result.measured]
    return {
        "metadata": {
            "skill_name": ", ".join(skills),
            "executor_model": facts.model,
            "judge_model": facts.judge or None,
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "evals_run": [case.id for case in summary.cases],
            "runs_per_configuration": facts.runs,
            "version": __version__,
        },
        "runs": results,  # see ``json_of``
        "run_summary": run_summary(summary, "task" if "task" in kinds else "trigger"),
        "notes": [*summary.notes(), *blind_notes(compared), *facts.notes],
        "adk_skills": {
            "arms": list(summary.arms),
            "pass_rate": {arm: summary.pass_rate(arm) for arm in summary.arms},
            "cases": [
                {
                    "case": case.id,
                    "kind": case.kind,
                    "source": str(case.source),
                    "skills": list(case.skills),
                    "should_trigger": case.should_trigger,
                    "arms": {
                        arm: summary.cells[case.id, arm].to_json()
                        for arm in summary.arms
                        if (case.id, arm) in summary.cells
                    },
                }
                for case in summary.cases
            ],
            "lift": summary.lifts(),
            "blind": compared,
            "trigger": summary.trigger(),
            "trigger_summary": run_summary(summary, "trigger") if "trigger" in kinds else {},
            "flaky": [{"case": cell.case.id, "arm": cell.arm} for cell in summary.cells.values() if cell.flaky],
            "skipped": [problem.to_dict() for problem in facts.skipped],
            "not_run": [list(trial.key) for trial in trials if trial.key not in state.results],
            "errors": [
                {"case": result.case, "arm": result.arm, "run": result.run, **result.error}
                for result in results
                if result.error
            ],
            "stopped": state.stopped or (blind.stopped if blind is not None else None),
            "cost_usd": {
                "agent": sum(agent) if agent else None,
                "judge": sum(judge) if judge else None,
                "simulated_user": sum(users) if users else None,
                "total": sum((*agent, *judge, *users)) if agent or judge or users else None,
            },
            "seconds": {
                "agent": sum(result.seconds for result in measured),
                "overhead": sum(result.overhead_seconds for result in measured),
            },
        },
    }


def write_outputs(folder: Path, content: Mapping[str, Any], summary: Summary, facts: RunFacts) -> list[Path]:
    """Write both files, each whole or not at all. Raises ``OSError`` when the disk did not take them."""
    write_whole(folder / BENCHMARK, (part.encode() for part in json_of(content)))
    write_whole(folder / JUNIT, junit(summary, facts))
    return [folder / BENCHMARK, folder / JUNIT]


def json_of(content: Mapping[str, Any]) -> Iterator[str]:
    """What :func:`benchmark` gives as the text of a JSON document, in parts: whole, 100,000 runs take 500 MB."""
    parts = json.JSONEncoder(indent=2, default=_run).iterencode(content)
    while part := "".join(itertools.islice(parts, _PARTS_AT_ONCE)):
        yield part
    yield "\n"


def junit(summary: Summary, facts: RunFacts) -> bytes:
    """JUnit XML: a test for each case in each arm that has the skill; what was skipped is a skipped test.

    The arm without the skill is the baseline: it is expected to fail, so it is no test.
    """
    root = ET.Element("testsuites", name="adk-skills eval")
    for arm in summary.arms:
        if arm == summary.baseline:
            continue
        cells = summary.of_arm(arm)
        suite = ET.SubElement(root, "testsuite", name=arm)
        counts = {"tests": len(cells), "failures": 0, "errors": 0, "skipped": 0}
        seconds = 0.0
        for cell in cells:
            spent = sum(result.seconds for result in cell.results)
            seconds += spent
            test = ET.SubElement(
                suite, "testcase", classname=f"adk-skills.{arm}", name=_text(cell.case.id), time=f"{spent:.3f}"
            )
            kind, message = _outcome(cell)
            if kind:
                counts["failures" if kind == "failure" else "errors"] += 1
                ET.SubElement(test, kind, message=_text(message)).text = _text(_details(cell))
        suite.attrib.update({name: str(count) for name, count in counts.items()}, time=f"{seconds:.3f}")
    if facts.skipped:
        suite = ET.SubElement(
            root, "testsuite", name="skipped", tests=str(len(facts.skipped)), failures="0", errors="0",
            skipped=str(len(facts.skipped)),
        )  # fmt: skip
        for problem in facts.skipped:
            test = ET.SubElement(
                suite, "testcase", classname="adk-skills.skipped", name=_text(f"{problem.file}:{problem.line}")
            )
            ET.SubElement(test, "skipped", message=_text(problem.message))
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _outcome(cell: CaseInArm) -> tuple[str, str]:
    missing = cell.planned - len(cell.measured)
    if cell.succeeded is not None and cell.succeeded < 1:
        return "failure", f"{cell.passed} of {len(cell.measured)} runs passed"
    if missing:
        return "error", f"{missing} of {cell.planned} runs could not be measured"
    return "", ""


def _details(cell: CaseInArm) -> str:
    lines = [f"{cell.case.source}"]
    for result in cell.results:
        if result.passed:
            continue
        scores = ", ".join(f"{name} {value:.2f}" for name, value in result.scores.items() if value is not None)
        lines.append(f"run {result.run}: {result.error.get('message') or scores}")
        lines += [
            f"  {verdict['rubric']}: {verdict['text']} -- {verdict['rationale']}"
            for verdict in result.verdicts
            if not verdict["met"]
        ]
    return "\n".join(lines)


def _run(result: TrialResult) -> dict[str, Any]:
    """A run in skill-creator's schema."""
    if result.verdicts:
        expectations = [
            {"text": verdict["text"], "passed": verdict["met"], "evidence": verdict["rationale"]}
            for verdict in result.verdicts
        ]
    else:
        expectations = [
            {"text": name, "passed": value == 1.0, "evidence": f"score {value:.2f}"}
            for name, value in result.scores.items()
            if value is not None
        ]
    passed = sum(bool(one["passed"]) for one in expectations)
    return {
        "eval_id": result.case,
        "eval_name": result.case,
        "configuration": result.arm,
        "run_number": result.run,
        "result": {
            "pass_rate": None if result.passed is None else float(result.passed),
            "passed": passed,
            "failed": len(expectations) - passed,
            "total": len(expectations),
            "time_seconds": result.seconds,
            "tokens": result.usage.total,
            "tool_calls": result.tool_calls,
            "errors": int(bool(result.error)),
        },
        "expectations": expectations,
        "notes": [result.error["message"]] if result.error else [],
    }


def _text(value: str) -> str:
    """Text XML can hold."""
    return _NOT_XML.sub("\ufffd", value)


# The results of a run in the folders agentskills.io describes, for tools that read those (skill-creator's viewer).

_NOT_A_NAME = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 60
"""Characters; a folder's name may have 255 bytes."""
_ANSWER = "answer.md"


def write_workspace(run: Path, folder: Path) -> int:
    """Write ``eval-<id>/<arm>/run-<n>/`` with ``timing.json``, ``grading.json`` and ``outputs/`` for each trial (C46).

    A blind comparison becomes ``eval-<id>/comparison-<n>.json``, as skill-creator's comparator writes it; the run's
    ``benchmark.json`` is written there too. Returns how many trials were written. Raises ``ConfigError`` when the
    results cannot be read, or ``OSError`` when the disk did not take them.
    """
    cases: dict[str, None] = {}
    arms: dict[str, None] = {}
    comparisons = read_comparisons(run)
    expectations: dict[Key, list[dict[str, Any]]] = {}
    for number, row in enumerate(read_rows(run / NAME), 1):
        try:
            key = result_of(row).key
        except ValueError as error:
            raise ConfigError(
                f"{run / NAME}:{number}: {error}. Remove the line; --resume runs the trial again."
            ) from error
        cases[row["case"]] = arms[row["arm"]] = None
        if comparisons:
            expectations[key] = _expectations(row)
    case_names, arm_names = _distinct(cases, _name), _distinct(arms, _name)
    written = set()
    for number, row in enumerate(read_rows(run / NAME), 1):
        trace = trace_of(row, f"{run / NAME}:{number}")
        place = folder / f"eval-{case_names[row['case']]}" / arm_names[row["arm"]] / f"run-{row['run']}"
        outputs = make_folder_below(folder, place.relative_to(folder) / "outputs")
        timing = {"total_tokens": row["usage"]["total"], "duration_ms": round(row["seconds"] * 1000)}
        _write(place / "timing.json", timing)
        _write(place / "grading.json", _grading(row))
        answer = "\n\n".join(turn.final_text for turn in trace.turns)
        write_whole(outputs / _ANSWER, answer.encode("utf-8", "replace"))
        file_names = _distinct(trace.output_files, _file_name, taken=(_ANSWER,))
        for name, file in trace.output_files.items():
            if file.content is not None:
                write_whole(outputs / file_names[name], file.content)
        written.add(place)
    numbers: Counter[str] = Counter()
    for _, compared in sorted(comparisons.items()):
        case = compared.key[0]
        if compared.measured and case in case_names:
            numbers[case] += 1
            place = make_folder_below(folder, f"eval-{case_names[case]}")
            _write(place / f"comparison-{numbers[case]}.json", _comparison(compared, expectations))
    if (run / BENCHMARK).is_file():
        write_whole(folder / BENCHMARK, (run / BENCHMARK).read_bytes())
    return len(written)


def _expectations(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"text": verdict["text"], "passed": verdict["met"], "evidence": verdict["rationale"]}
        for verdict in row["verdicts"]
    ]


def _comparison(compared: Compared, expectations: Mapping[Key, list[dict[str, Any]]]) -> dict[str, Any]:
    """As skill-creator's comparator writes it; which arm made which is below ``adk_skills``."""
    case, _, _, run = compared.key
    content: dict[str, Any] = {"winner": compared.winner, "reasoning": compared.reasons}
    if compared.scores:
        content["rubric"] = {
            side: {
                "content": {name: scores[name] for name in CONTENT},
                "structure": {name: scores[name] for name in STRUCTURE},
                "content_score": statistics.fmean(scores[name] for name in CONTENT),
                "structure_score": statistics.fmean(scores[name] for name in STRUCTURE),
                "overall_score": overall(scores),
            }
            for side, scores in compared.scores.items()
        }
    checked = {side: expectations.get((case, arm, run), []) for side, arm in compared.arms.items()}
    if all(checked.values()):
        content["expectation_results"] = {
            side: {
                "passed": (passed := sum(bool(one["passed"]) for one in details)),
                "total": len(details),
                "pass_rate": passed / len(details),
                "details": [{"text": one["text"], "passed": one["passed"]} for one in details],
            }
            for side, details in checked.items()
        }
    content["adk_skills"] = {**compared.arms, "run": run, "agreement": compared.agreement, "flips": compared.flips}
    return content


def _grading(row: Mapping[str, Any]) -> dict[str, Any]:
    results = _expectations(row)
    judged = {"instruction_adherence_score"} if results else set()
    results += [
        {"text": score["metric"], "passed": score["passed"], "evidence": score["detail"] or f"score {score['value']}"}
        for score in row["scores"]
        if score["passed"] is not None and score["metric"] not in judged
    ]
    passed = sum(bool(result["passed"]) for result in results)
    total = len(results)
    summary = {
        "passed": passed,
        "failed": total - passed,
        "total": total,
        "pass_rate": passed / total if total else None,
    }
    # skill-creator calls the list ``expectations``.
    return {"assertion_results": results, "expectations": results, "summary": summary, "error": row["error"]}


def _distinct(texts: Iterable[str], name: Callable[[str], str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A name on the disk for each text; those that would share one, or are too long, get a part of their hash."""
    names = {text: name(text) for text in texts}
    # Some disks do not tell A from a.
    counts = Counter(one.casefold() for one in (*names.values(), *taken))
    return {
        text: one if counts[one.casefold()] == 1 and len(one) <= _LONGEST_NAME else _hashed(one, text)
        for text, one in names.items()
    }


def _hashed(name: str, text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{digest}-{name[-_LONGEST_NAME:]}"  # the end says what kind of file it is


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("-", text).strip(".-") or "unnamed"


def _file_name(name: str) -> str:
    """A name for one file in one folder; artifacts may be called like paths."""
    return _name("-".join(part for part in PurePosixPath(name).parts if part not in ("/", "..", ".")))


def _write(path: Path, value: object) -> None:
    write_whole(path, (json.dumps(value, indent=2) + "\n").encode())
