"""The results of a run in the folders agentskills.io describes, for tools that read those (skill-creator's viewer)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from adk_skills_agent.evals.run.ledger import NAME, read_rows
from adk_skills_agent.evals.trace import OutputFile

_NOT_A_NAME = re.compile(r"[^\w.-]+")


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
    written = set()
    for row in read_rows(run / NAME):
        place = folder / f"eval-{_name(row['case'])}" / _name(row["arm"]) / f"run-{row['run']}"
        outputs = place / "outputs"
        outputs.mkdir(parents=True, exist_ok=True)
        _write(place / "timing.json", _timing(row))
        _write(place / "grading.json", _grading(row))
        turns = row["trace"]["turns"]
        (outputs / "answer.md").write_text("\n\n".join(turn["final_text"] for turn in turns), encoding="utf-8")
        for name, data in row["trace"]["output_files"].items():
            content = OutputFile.from_json(data).content
            if content is not None:
                (outputs / _file_name(name)).write_bytes(content)
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


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("-", text).strip(".-") or "unnamed"


def _file_name(name: str) -> str:
    """A name for one file in one folder; artifacts may be called like paths."""
    return _name("-".join(part for part in PurePosixPath(name).parts if part not in ("/", "..", ".")))


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
