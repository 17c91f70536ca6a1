"""Results folders with known figures, for the tests of the report: rows as ``adk-skills eval`` writes them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.blind.comparison import CRITERIA, sides

WORDS = ("the", "report", "names", "region", "highest", "sales", "total", "revenue", "of", "each", "product", "north")
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">\u202e<b>bold</b>"
"""What an agent, a tool or a judge could write to break out of the page."""


def words(seed: object, count: int) -> str:
    draw = random.Random(str(seed))
    return " ".join(draw.choice(WORDS) if draw.random() < 0.7 else f"{draw.random():.6f}" for _ in range(count))


def a_row(
    case: str = "totals",
    arm: str = "with_skill",
    run: int = 1,
    *,
    passed: bool | None = True,
    expected_trigger: bool | None = None,
    loaded: tuple[str, ...] = ("csv-report",),
    tokens: int = 5_000,
    seconds: float = 1.5,
    stdout: str = '{"rows": 48}',
    instructions: str = "# CSV report\n\nRun the script, then answer.\n" * 6,
    answer: str = "South leads with 34,966. The report is in report.md.",
    rationale: str = "The answer says South.",
    error: dict[str, str] | None = None,
    source: str = "evals/evals.json:12",
    **more: Any,
) -> dict[str, Any]:
    score = None if passed is None else float(passed)
    calls = [
        {"name": "load_skill", "args": {"skill_name": name}, "response": {"instructions": instructions}, "id": "1"}
        for name in loaded
    ]
    if loaded:
        calls.append(
            {
                "name": "run_skill_script",
                "args": {"skill_name": loaded[0], "file_path": "scripts/report.py", "args": {"group-by": "region"}},
                "response": {
                    "status": "success" if passed else "error",
                    "return_code": 0 if passed else 2,
                    "stdout": stdout,
                    "stderr": "" if passed else 'No column "Region".\n',
                },
                "id": "2",
            }
        )
    usage = {"prompt": tokens - 80, "output": 80, "total": tokens, "cached": 0}
    turn = {
        "user_text": f"Summarise the sales of {case}.",
        "calls": calls,
        "final_text": answer,
        "usage": usage,
        "seconds": seconds,
        "error": "",
    }
    return {
        "schema": 1, "case": case, "kind": "task" if expected_trigger is None else "trigger",
        "skills": ["csv-report"], "arm": arm, "run": run, "source": source, "fingerprint": "0cd870c1f9ad857f",
        "started": "2026-11-21T12:00:00.000Z", "seconds": seconds, "overhead_seconds": 0.001,
        "expected_trigger": expected_trigger, "split": None, "skills_available": ["csv-report", "log-triage"],
        "skills_loaded": list(loaded), "error": error, "usage": usage, "cost_usd": 0.001,
        "trace": {
            "turns": [turn], "output_files": {"report.md": {"size": 9, "text": "# Report\n"}}, "activated": [],
            "skills_loaded": list(loaded),
        },
        "passed": passed, "outcome_passed": passed if expected_trigger is None else None, "score": score,
        "outcome": score,
        "scores": [
            {
                "metric": "instruction_adherence_score", "value": score, "passed": passed, "threshold": 0.75,
                "outcome": True, "per_turn": [{"value": score, "detail": "", "rubrics": []}],
                "detail": "" if passed else "Does not hold: region.",
            }
        ],
        "verdicts": [
            {
                "turn": 1, "rubric": "region", "text": "The answer names the region that leads.", "met": bool(passed),
                "agreement": 2 / 3, "samples": 3, "rationale": rationale,
            }
        ],
        "judge_usage": {"prompt": 900, "output": 100, "total": 1000, "cached": 0}, "judge_cost_usd": 0.0004,
        **more,
    }  # fmt: skip


def a_comparison(case: str, run: int, winner: str | None, *, reasons: str = "output A is complete.") -> dict[str, Any]:
    """A blind comparison of ``with_skill`` with ``without_skill``."""
    arms = ("with_skill", "without_skill")
    side = {arm: side for side, arm in sides((case, *arms, run)).items()}
    error = None if winner is not None else {"kind": "judge", "message": "The judge is away: 503."}
    return {
        "schema": 1, "case": case, "arms": list(arms), "run": run, "seed": 0, "fingerprint": "8a",
        "winner": side.get(winner, "TIE") if winner is not None else None, "agreement": 1.0, "flips": int(winner == ""),
        "samples": 3, "reasons": reasons, "scores": {of: dict.fromkeys(CRITERIA, 3.0) for of in "AB"},
        "names_skill": None, "votes": [], "judge_usage": {"prompt": 9, "output": 1, "total": 10, "cached": 0},
        "judge_cost_usd": 0.0001, "error": error,
    }  # fmt: skip


def compared(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    (folder / "comparisons.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def a_run(folder: Path, rows: Iterable[dict[str, Any]], *, benchmark: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "trials.jsonl").open("w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    if benchmark is not None:
        (folder / "benchmark.json").write_text(json.dumps(benchmark))
    return folder


def a_benchmark(**ours: Any) -> dict[str, Any]:
    return {
        "metadata": {"executor_model": "gemini-2.5-flash", "judge_model": "gemini-2.5-pro",
                     "timestamp": "2026-11-21T12:10:00Z"},
        "notes": [],
        "adk_skills": {"arms": ["with_skill", "without_skill"], "cases": [], "skipped": [], "not_run": [],
                       "stopped": None, **ours},
    }  # fmt: skip


def mixed_rows(cases: int, runs: int, *, size: int = 60, better: float = 0.0) -> Iterable[dict[str, Any]]:
    """Tasks in two arms and some trigger queries, with results that differ and are the same each time."""
    for number in range(cases):
        case = f"case-{number:03}-{('sales', 'costs', 'orders')[number % 3]}"
        for run in range(1, runs + 1):
            for arm, rate in (("with_skill", 0.35 + 0.6 * ((number * 7) % 10) / 10 + better), ("without_skill", 0.4)):
                draw = random.Random(f"{case}{arm}{run}")
                skilled = arm == "with_skill"
                yield a_row(
                    case, arm, run,
                    passed=draw.random() < rate,
                    loaded=("csv-report",) if skilled else (),
                    tokens=int(draw.gauss(5_500 if skilled else 1_200, 300)),
                    seconds=max(0.1, draw.gauss(2.2 if skilled else 0.8, 0.3)),
                    stdout=words((case, arm, run), size),
                    source=f"evals/evals.json:{10 + number}",
                )  # fmt: skip
    for number, (should, loaded) in enumerate(((True, ("csv-report",)), (False, ()), (True, ("log-triage",)))):
        for run in range(1, runs + 1):
            right = (loaded == ("csv-report",)) == should
            yield a_row(
                f"query-{number}", "with_skill", run, passed=right, expected_trigger=should, loaded=loaded, tokens=900,
                seconds=0.3, source=f"evals/eval_queries.json:{number + 2}", verdicts=[], split="train",
            )  # fmt: skip
