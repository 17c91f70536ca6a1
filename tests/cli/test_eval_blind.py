"""``adk-skills eval --blind``, as a person starts it: offline, with a model and a judge of rules (C46)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

MODEL = """\
rules:
  - when: {user_contains: data, skills: reporter}
    call: {name: load_skill, args: {skill_name: reporter}}
  - when: {user_contains: data, skills: reporter}
    text: "REPORT: North leads."
otherwise: {text: I cannot help.}
compare: [North leads]
"""
CASES = """\
skill: reporter
cases:
  - {id: totals, prompt: Summarise my data., answer_contains: [REPORT]}
  - {id: loads, prompt: Load my data., calls: [load_skill]}
  - {id: poem, prompt: Write a poem., should_trigger: false}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    skill = tmp_path / "skills/reporter"
    (skill / "evals").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: reporter\ndescription: Reports on data.\n---\nWrite REPORT.\n")
    (skill / "evals/cases.yaml").write_text(CASES)
    (tmp_path / "model.yaml").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def adk_skills(monkeypatch: pytest.MonkeyPatch, *arguments: str, status: int = 0) -> None:
    from adk_skills_agent.cli import main

    monkeypatch.setattr(sys, "argv", ["adk-skills", *arguments])
    assert main._run() == status


SCRIPTED = ("eval", "skills/reporter", "--model", "scripted:model.yaml", "--judge", "scripted:model.yaml", "--blind")


@pytest.mark.slow
def test_the_comparison_is_planned_run_printed_kept_and_shown(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    adk_skills(monkeypatch, *SCRIPTED, "--dry-run")
    printed, said = capfd.readouterr()
    assert "3 blind comparisons, each in both orders, 3 samples: 18 questions to the judge" in printed
    assert said.splitlines()[-1] == "adk-skills: loads is run in one arm only and is not compared."
    adk_skills(monkeypatch, *SCRIPTED, "--dry-run", "--json", "--runs", "2", "--judge-samples", "1")
    assert json.loads(capfd.readouterr().out)["blind"] == {"comparisons": 2, "questions": 4}
    assert not (project / "adk-skills-eval").exists()

    adk_skills(monkeypatch, *SCRIPTED, "--runs", "2", "--workspace", "w")
    printed, said = capfd.readouterr()
    sentence = (
        "blind comparison of with_skill with without_skill: 2 won, 0 tied, 0 lost; +100.0% (no interval: only one was "
        "measured); with_skill wins in 1 of 1 case; too few to be sure: p = 1.00"
    )
    assert sentence in printed
    assert "[2/2] totals run " in said
    assert "with_skill" not in "".join(line for line in said.splitlines() if "agree" in line)
    out = project / "adk-skills-eval"
    (figures,) = json.loads((out / "benchmark.json").read_text())["adk_skills"]["blind"]
    assert (figures["wins"], figures["comparisons"], figures["scores"]["with_skill"]["polish"]) == (2, 2, 5.0)
    assert figures["cases"][0]["runs"][1]["reasons"] == "Scripted: with_skill has 5 points, without_skill has 1." or (
        figures["cases"][0]["runs"][1]["reasons"] == "Scripted: without_skill has 1 points, with_skill has 5."
    )
    assert "Blind comparison" in (out / "report.html").read_text()
    assert len(list((project / "w/eval-totals").glob("comparison-*.json"))) == 2
    adk_skills(monkeypatch, "report", str(out), "--json")
    assert json.loads(capfd.readouterr().out)["blind"] == [figures]

    (out / "report.html").unlink()
    rows = (out / "comparisons.jsonl").read_text()
    adk_skills(monkeypatch, *SCRIPTED, "--runs", "2", "--resume", "--json")
    printed, said = capfd.readouterr()
    assert json.loads(printed)["adk_skills"]["blind"] == [figures]
    assert "agree" not in said
    assert (out / "comparisons.jsonl").read_text() == rows


def test_a_judge_that_gives_no_verdict_ends_with_exit_code_2_and_resume_asks_again(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "mute.yaml").write_text("rules: []\notherwise: {text: 'Winner: with_skill'}\n")
    mute = (*SCRIPTED[:5], "scripted:mute.yaml", "--blind", "--runs", "1", "--fail-under", "0")
    adk_skills(monkeypatch, *mute, status=2)
    printed, said = capfd.readouterr()
    assert "blind comparison of with_skill with without_skill: not measured" in printed
    assert "1 blind comparisons have no verdict (The judge gemini-2.5-flash was asked 3 times" in said
    assert "no winner" in said
    (project / "mute.yaml").write_text(MODEL)
    adk_skills(monkeypatch, *mute, "--resume")
    assert "1 won, 0 tied, 0 lost" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--judge", "none"), "--blind needs somebody to compare: name a model with --judge."),
        (("--arm", "with_skill"), "--blind has nothing to compare: no task is run in two arms."),
        (("--filter", "poem"), "--blind has nothing to compare: no task is run in two arms."),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_runs(
    arguments: tuple[str, ...], sentence: str, project: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    adk_skills(monkeypatch, *SCRIPTED, *arguments, status=2)
    assert sentence in capfd.readouterr().err
    assert not (project / "adk-skills-eval").exists()


@pytest.mark.slow
def test_the_page_shows_what_the_comparison_prints(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    repository = Path(__file__).resolve().parents[2]
    (project / "examples").symlink_to(repository / "examples")
    page = (repository / "docs/how-to/measure/evaluate-a-skill.md").read_text()
    command, printed = r"^(adk-skills eval [^\n]*--blind[^\n]*\n[^\n]*)\n```\n\n", r"prints[^\n]*\n\n```text\n(.*?)```"
    shown = re.search(command + printed, page, re.MULTILINE | re.DOTALL)
    assert shown is not None
    adk_skills(monkeypatch, *shown[1].replace("\\\n", " ").split()[1:])
    assert shown[2] in capfd.readouterr().out
