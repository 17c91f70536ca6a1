"""``adk-skills report``, as a person starts it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from adk_skills_agent.cli import main
from evals.report.result_rows import a_benchmark, a_row, a_run, mixed_rows


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object, status: int = 0) -> Done:
        monkeypatch.setattr(sys, "argv", ["adk-skills", "report", *map(str, arguments)])
        code = main._run()
        done = Done(*capfd.readouterr())
        assert code == status, (code, done)
        assert "Traceback" not in done.stderr
        return done

    return command


def test_the_report_of_a_run_is_written_beside_its_results(tmp_path: Path, run: Run) -> None:
    folder = a_run(tmp_path / "run-1", mixed_rows(2, 2), benchmark=a_benchmark())
    done = run(folder)
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert done.stdout.startswith(f"report: {folder}/report.html (14 trials, ")
    assert done.stderr == ""
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_what_is_missing_in_a_run_is_said_on_stderr(tmp_path: Path, run: Run) -> None:
    skipped = [{"message": "The skill csv is in no folder.", "file": "/x/evals.json", "line": 3}]
    folder = a_run(tmp_path, [a_row()], benchmark=a_benchmark(skipped=skipped, not_run=[["a", "b", 1]]))
    said = run(folder).stderr
    assert "adk-skills: Skipped (evals.json:3): The skill csv is in no folder." in said
    assert "1 planned trials were not run" in said


def test_two_runs_are_compared_in_words_in_the_page_and_as_json(tmp_path: Path, run: Run) -> None:
    before = a_run(tmp_path / "run-1", [a_row(case, passed=False) for case in "abcdef"], benchmark=a_benchmark())
    now = a_run(tmp_path / "run-2", [a_row(case) for case in "abcdef"], benchmark=a_benchmark())
    said = run(now, "--baseline", before, "--out", tmp_path / "compared.html").stdout
    assert (
        "with_skill since the baseline: +100.0% (no interval: all 6 differ by the same amount); it is better in 6 of 6 "
        "cases; more than chance: p = 0.03"
    ) in said
    assert "Compared with the baseline" in (tmp_path / "compared.html").read_text()
    assert not (now / "report.html").exists()
    found = json.loads(run(now, "--baseline", before, "--json").stdout)
    assert found["report"] == str(now / "report.html")
    assert found["bytes"] == (now / "report.html").stat().st_size
    assert (found["trials"], found["cases"], found["shortened_texts"], found["traces_left_out"]) == (6, 6, 0, 0)
    assert found["comparison"]["arms"]["with_skill"]["mean"] == 1.0
    assert [change["before"] for change in found["comparison"]["changes"]] == [0.0] * 6


def test_wrong_usage_is_one_sentence_and_exit_code_2(tmp_path: Path, run: Run) -> None:
    assert "cannot be read" in run(tmp_path / "nowhere", status=2).stderr
    folder = a_run(tmp_path / "run", [a_row()])
    assert "is the run itself" in run(folder, "--baseline", folder, status=2).stderr
    assert "is a folder" in run(folder, "--out", tmp_path, status=2).stderr
    assert "there is no folder" in run(folder, "--out", tmp_path / "a" / "b.html", status=2).stderr
    (folder / "trials.jsonl").write_text("{}\n")
    done = run(folder, status=2)
    assert "trials.jsonl:1: this is no row of results" in done.stderr
    assert done.stdout == ""


def a_bench_row(
    task: str, arm: str, reward: float | None, trial: int = 1, error: str | None = None
) -> dict[str, object]:
    return {
        "task": task, "arm": arm, "trial": trial, "agent": "adk", "reward": reward,
        "passed": None if reward is None else reward >= 1.0, "error": error, "error_kind": "build" if error else None,
        "seconds": 2.0, "category": "office", "fingerprint": "f", "usage": {"total": 100},
    }  # fmt: skip


def test_a_benchmark_has_a_report_too_each_task_in_each_arm_and_the_lift(tmp_path: Path, run: Run) -> None:
    rows = [
        a_bench_row("pdf", "no-skill", 0.0),
        a_bench_row("pdf", "with-skill", None),
        a_bench_row("pdf", "with-skill", 1.0),  # run again: the last row counts
        a_bench_row("xlsx", "no-skill", 0.5),
        a_bench_row("xlsx", "with-skill", 0.5),
        a_bench_row("xlsx", "with-skill", 1.0, 2),
        a_bench_row("<b>broken</b>", "with-skill", None, error="<script>alert(1)</script>"),
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn')
    done = run(tmp_path)
    lift = (
        "lift of with-skill over no-skill (adk): +62.5% [+25.0%, +100.0%]; it helps in 2 of 2 tasks; too few to "
        "be sure: p = 0.50"
    )
    assert lift in done.stdout
    assert "1 of 6 trials have no reward and count in no figure" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "<tr><td>pdf</td><td>0.00 (1)</td><td>1.00 (1)</td><td>office</td></tr>" in page
    assert "<tr><td>xlsx</td><td>0.50 (1)</td><td>0.75 (2)</td><td>office</td></tr>" in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    told = json.loads(run(tmp_path, "--json", "--out", tmp_path / "other.html").stdout)
    assert (told["trials"], told["tasks"], told["lift"][0]["mean"]) == (6, 3, 0.625)
    assert (tmp_path / "other.html").read_text() == page
    assert "--baseline is for two runs of adk-skills eval" in run(tmp_path, "--baseline", tmp_path, status=2).stderr
    (tmp_path / "results.jsonl").write_text('{"task": "pdf"}\n')
    assert "results.jsonl:1: this is no row of results" in run(tmp_path, status=2).stderr
    (tmp_path / "results.jsonl").write_text("")
    assert "has no results yet. Run adk-skills bench" in run(tmp_path, status=2).stderr
