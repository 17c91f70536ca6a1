"""The results of a run in the folders agentskills.io describes, for tools that read those (skill-creator's viewer)."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.figures import overall
from adk_skills_agent.evals.blind.prompt import CONTENT, STRUCTURE
from adk_skills_agent.evals.blind.rows import Compared, read_comparisons
from adk_skills_agent.evals.run.ledger import NAME, read_rows
from adk_skills_agent.evals.run.plan import Key
from adk_skills_agent.evals.run.result import result_of, trace_of
from adk_skills_agent.evals.whole_file import write_whole

_NOT_A_NAME = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 60
"""Characters; a folder's name may have 255 bytes."""
_ANSWER = "answer.md"


def write_workspace(run: Path, folder: Path) -> int:
    """Write ``eval-<id>/<arm>/run-<n>/`` with ``timing.json``, ``grading.json`` and ``outputs/`` for each trial (C46).

    A blind comparison becomes ``eval-<id>/comparison-<n>.json``, as skill-creator's comparator writes it.

    Args:
        run: Folder of the results.
        folder: Where to; made when it is missing, files that are there are written again.

    Returns:
        How many trials were written.

    Raises:
        ConfigError: The results cannot be read.
        OSError: The disk did not take them.
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
        outputs = place / "outputs"
        outputs.mkdir(parents=True, exist_ok=True)
        _write(place / "timing.json", _timing(row))
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
            path = folder / f"eval-{case_names[case]}" / f"comparison-{numbers[case]}.json"
            _write(path, _comparison(compared, expectations))
    return len(written)


def _timing(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"total_tokens": row["usage"]["total"], "duration_ms": round(row["seconds"] * 1000)}


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
