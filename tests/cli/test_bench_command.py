from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import preloaded
from evals.skillsbench.bench_tasks import make_task

PROGRAM = Path(sys.executable).parent / "adk-skills"
RULES = """\
rules:
  - call: {name: load_skill, args: {skill_name: answering}}
    when: {skills: [answering]}
  - call: {name: bash, args: {command: echo 42 > answer.txt}}
    when: {skills: [answering]}
otherwise: {text: That is all.}
"""


def bench(*words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [preloaded.program("adk-skills"), "bench", "skillsbench", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        **more,
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    named = os.environ.get("ADK_SKILLS_TEST_STORE")
    return Path(named) if named else tmp_path / "store"


def test_tasks_that_cannot_run_are_listed_with_the_reason(tmp_path: Path) -> None:
    make_task(tmp_path / "tasks", "composed", **{"environment/docker-compose.yaml": "services: {}\n"})
    make_task(tmp_path / "tasks", "staged", environment__Dockerfile="FROM debian:12 AS a\nFROM debian:12\n")
    make_task(tmp_path / "tasks", "strange", environment__Dockerfile="FROM suricata:7\n")
    make_task(tmp_path / "tasks", "drawn", task_DOT_toml="[environment]\ngpus = 1\n")
    (tmp_path / "tasks" / "no-task").mkdir()
    done = bench(
        "--tasks-dir", tmp_path / "tasks", "--agent", "nop", "--out", tmp_path / "out", "--cache-dir", tmp_path
    )
    assert done.returncode == 2
    for line in (
        "left out: composed: It needs several containers (environment/docker-compose.yaml)",
        "left out: staged: line 2 begins a second stage",
        "left out: strange: Local mode has nothing that stands for the base image 'suricata:7'",
        "left out: drawn: It needs 1 GPU",
        "left out: no-task: It has neither instruction.md nor task.md.",
        "None of the 5 tasks can run here",
    ):
        assert line in done.stderr
    assert not (tmp_path / "out" / "results.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--arm", "self-gen", "--agent", "oracle"], "--arm self-gen needs an agent that can write skills"),
        (["--skip-tests", "--agent", "nop"], "--skip-tests looks at how skills were used"),
        (["--filter", "nothing-like-it", "--agent", "nop"], "has no task whose name contains 'nothing-like-it'"),
        (["--wheels", "/nonexistent", "--agent", "nop"], "there is no folder /nonexistent"),
        (["--bases", "packages", "--build-arg", "A=b"], "--bases, --build-arg: for --sandbox container only"),
        (["--sandbox", "container", "--base-image", "ubuntu"], "--base-image 'ubuntu' is not NAME=IMAGE"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    make_task(tmp_path / "tasks")
    done = bench("--tasks-dir", tmp_path / "tasks", "--out", tmp_path / "out", "--cache-dir", tmp_path, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    done = bench("--tasks-dir", tmp_path / "missing")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"The folder of tasks {tmp_path / 'missing'} cannot be read" in done.stderr


@pytest.mark.slow
@pytest.mark.requirement("S0-124", "S0-139")
def test_the_self_test_runs_without_an_engine(tmp_path: Path, store: Path) -> None:
    make_task(tmp_path / "tasks")
    make_task(tmp_path / "tasks", "lazy", solution__solve_DOT_sh="true\n")
    words = ("--tasks-dir", tmp_path / "tasks", "--self-test", "--cache-dir", store, "--json")
    failed = bench(*words, "--out", tmp_path / "both", "--parallel", "2")
    assert failed.returncode == 1
    content = json.loads(failed.stdout)
    assert content["self_test"] == ["lazy: oracle got 0 instead of 1"]
    assert (content["planned"], content["finished"], content["not_measured"]) == (4, 4, [])
    passed = bench(*words, "--out", tmp_path / "one", "--filter", "answer")
    assert passed.returncode == 0, passed.stderr
    assert "] answer oracle PASS (1 skills, " in passed.stderr


@pytest.mark.slow
@pytest.mark.requirement("S0-124", "S0-128", "S0-129", "S0-139")
def test_environments_are_built_alone_and_a_run_ends_with_a_summary(tmp_path: Path, store: Path) -> None:
    make_task(tmp_path / "tasks")
    words = ("--tasks-dir", tmp_path / "tasks", "--cache-dir", store, "--out", tmp_path / "out", "--agent", "nop")
    for more, counted in ((("--rebuild",), "1 built, 0 from the cache"), ((), "0 built, 1 from the cache")):
        alone = bench(*words, "--build-only", *more)
        assert alone.returncode == 0, alone.stderr
        assert f"environments: {counted}, 0 failed" in alone.stdout
        assert not (tmp_path / "out" / "results.jsonl").exists()
    run = bench(*words, "--timeout", "60")
    assert run.returncode == 0, run.stderr
    head, row = run.stdout.strip().splitlines()[:2]
    assert head.split()[:3] == ["agent", "arm", "tasks"]
    assert row.split()[:3] == ["nop", "with-skill", "1"]
    assert "0.0%" in row
    assert "local sandbox: 1 of 1 trials, skills loadable in 1 tasks" in run.stdout


@pytest.mark.slow
@pytest.mark.requirement("S0-139")
def test_a_scripted_agent_shows_the_lift_of_a_skill_in_a_real_box(tmp_path: Path, store: Path) -> None:
    make_task(tmp_path / "tasks")
    (tmp_path / "model.yaml").write_text(RULES)
    words = ("--tasks-dir", tmp_path / "tasks", "--cache-dir", store, "--out", tmp_path / "out", "--json")
    done = bench(*words, "--model", f"scripted:{tmp_path / 'model.yaml'}", "--trials", "2")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    (lift,) = content["lift"]
    assert (lift["mean"], lift["tasks"]) == (1.0, 1)
    assert "] answer with-skill adk PASS (answering, " in done.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_resume_runs_the_rest(tmp_path: Path, store: Path) -> None:
    make_task(tmp_path / "tasks", "a-quick")
    make_task(tmp_path / "tasks", "b-slow", solution__solve_DOT_sh="[ -e /tmp/x ] || sleep 600\n")
    words: list[str | Path] = [PROGRAM, "bench", "skillsbench", "--tasks-dir", tmp_path / "tasks", "--agent", "oracle"]
    words += ["--cache-dir", store, "--out", tmp_path / "out"]
    results = tmp_path / "out" / "results.jsonl"
    with subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 300
        while not (results.exists() and results.read_text().count("\n") == 1):
            assert running.poll() is None, running.stderr
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1.0)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "1 of 2 trials are done and kept" in said
    done = bench(*words[3:], "--resume", "--timeout", "61")
    assert done.returncode == 2  # another time limit is another measurement
    make_task(tmp_path / "tasks", "b-slow", solution__solve_DOT_sh="echo 42 > answer.txt\n")
    done = bench(*words[3:], "--resume", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["resumed"], content["finished"]) == (1, 2)
    assert results.read_text().count("\n") == 2
