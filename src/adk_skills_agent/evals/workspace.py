"""The results of a run in the folders agentskills.io describes, for tools that read those (skill-creator's viewer)."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from adk_skills_agent.evals.run.ledger import NAME, read_rows
from adk_skills_agent.evals.trace import OutputFile
from adk_skills_agent.evals.whole_file import write_whole

_NOT_A_NAME = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 60
"""Characters; a folder's name may have 255 bytes."""
_ANSWER = "answer.md"


def write_workspace(run: Path, folder: Path) -> int:
    """Write ``eval-<id>/<arm>/run-<n>/`` with ``timing.json``, ``grading.json`` and ``outputs/`` for each trial (C46).

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
    for row in read_rows(run / NAME):
        cases[row["case"]] = arms[row["arm"]] = None
    case_names, arm_names = _distinct(cases, _name), _distinct(arms, _name)
    written = set()
    for row in read_rows(run / NAME):
        place = folder / f"eval-{case_names[row['case']]}" / arm_names[row["arm"]] / f"run-{row['run']}"
        outputs = place / "outputs"
        outputs.mkdir(parents=True, exist_ok=True)
        _write(place / "timing.json", _timing(row))
        _write(place / "grading.json", _grading(row))
        answer = "\n\n".join(turn["final_text"] for turn in row["trace"]["turns"])
        write_whole(outputs / _ANSWER, answer.encode("utf-8", "replace"))
        files = row["trace"]["output_files"]
        file_names = _distinct(files, _file_name, taken=(_ANSWER,))
        for name, data in files.items():
            content = OutputFile.from_json(data).content
            if content is not None:
                write_whole(outputs / file_names[name], content)
        written.add(place)
    return len(written)


def _timing(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"total_tokens": row["usage"]["total"], "duration_ms": round(row["seconds"] * 1000)}


def _grading(row: Mapping[str, Any]) -> dict[str, Any]:
    results = [
        {"text": verdict["text"], "passed": verdict["met"], "evidence": verdict["rationale"]}
        for verdict in row["verdicts"]
    ]
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
