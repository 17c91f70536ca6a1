"""``bench skillsbench --cluster``: what a node gets and does, and the same table as on one machine."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError, SandboxUnavailable
from adk_skills_agent.evals.cluster import Worker
from adk_skills_agent.evals.skillsbench.places import BenchJob, NodeBuilds, Place, bench_job
from adk_skills_agent.evals.skillsbench.results import BuildCounts
from adk_skills_agent.evals.skillsbench.runner import make_plan
from adk_skills_agent.evals.skillsbench.task import Task
from evals.skillsbench.bench_tasks import HostSandbox, make_task


class Picky(HostSandbox):
    """Runs no task called ``hard``."""

    def problem(self, task: Task) -> str | None:
        return "It needs a graphics processor." if task.name == "hard" else None


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    return [make_task(tmp_path / "tasks", name) for name in ("answer", "hard")]


@pytest.fixture
def no_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def none(_: Path) -> None:
        return None

    monkeypatch.setattr("adk_skills_agent.evals.skillsbench.places.uv_programs", none)
    monkeypatch.setattr(Place, "open", lambda _: Picky(tmp_path))


def job_for(tasks: list[Task], out: Path, **more: Any) -> BenchJob:
    return bench_job(Place("local", ("oracle", "nop"), **more), tasks, None, out)


@pytest.mark.usefixtures("no_downloads")
async def test_a_node_runs_the_tasks_it_is_sent_and_the_row_is_kept_here(tmp_path: Path, tasks: list[Task]) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("secret")
    (tasks[0].folder / "environment" / "out.txt").symlink_to(secret)
    git = tasks[0].folder / "environment" / ".git" / "HEAD"
    git.parent.mkdir()
    git.write_text("ref: refs/heads/main\n")
    out, counts = tmp_path / "out", BuildCounts()
    job = job_for(tasks, out)
    with tarfile.open(fileobj=io.BytesIO(job.bundle)) as bundle:  # what the fingerprint counts is there
        assert str(git).lstrip("/") in bundle.getnames()
    worker = Worker(job)
    answer = await worker.hello()
    assert (answer.problem, answer.level) == ("", "host")
    assert answer.cannot == {"hard": "It needs a graphics processor."}
    builds = NodeBuilds(counts)
    trials = make_plan(tasks[:1], ("with-skill",), ("oracle", "nop"), 1, {})
    shutil.rmtree(tmp_path / "tasks")  # the node has files of its own
    rows = []
    for trial in trials:
        row = await worker.run(trial.key)
        rows.append(builds.take(job.kept(trial, {**row, "ran_on": {**row["ran_on"], "node": "n"}})))
    assert [row["reward"] for row in rows] == [1.0, 0.0]
    assert [row["fingerprint"] for row in rows] == [trial.fingerprint for trial in trials]
    assert json.loads((out / rows[0]["trace"]).read_text())["command"] == "solve.sh"
    assert (counts.built, counts.failed) == (1, {})
    assert not {"kept_files", "builds_of_node"} & set(rows[0])
    assert all(b"secret" not in path.read_bytes() for path in tmp_path.rglob("*.txt") if not path.is_symlink())
    await worker.close()


async def test_a_node_without_the_sandbox_or_for_none_of_the_tasks_is_not_used(
    tmp_path: Path, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(_: Place) -> None:
        raise SandboxUnavailable("No container engine answers.")

    monkeypatch.setattr(Place, "open", unavailable)
    assert (await Worker(job_for(tasks, tmp_path)).hello()).problem == "No container engine answers"
    monkeypatch.setattr(Place, "open", lambda _: Picky(tmp_path))
    answer = await Worker(job_for(tasks[1:], tmp_path)).hello()
    assert answer.problem == "it can run none of the tasks: It needs a graphics processor"


def test_a_trial_that_no_node_finished_has_no_reward_and_runs_again(tmp_path: Path, tasks: list[Task]) -> None:
    (trial,) = make_plan(tasks[:1], ("with-skill",), ("nop",), 1, {})
    row = job_for(tasks, tmp_path).unmeasured(trial, "no node of the cluster is left")
    assert (row["reward"], row["error_kind"], row["error"]) == (None, "sandbox", "no node of the cluster is left")


def test_a_cache_folder_of_the_nodes_is_absolute(tmp_path: Path, tasks: list[Task]) -> None:
    with pytest.raises(ConfigError, match="give an absolute path"):
        job_for(tasks, tmp_path, store=Path("cache"))


# On real nodes.


def bench(folder: Path, store: Path, out: str, *more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-W", "ignore", "-m", "adk_skills_agent", "bench", "skillsbench", "--self-test"]
    line += ["--tasks-dir", "tasks", "--cache-dir", str(store), "--out", out, *more]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, timeout=1200, env=os.environ)


def said(folder: Path, out: str) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in (folder / out / "results.jsonl").read_text().splitlines()]
    return sorted(tuple(row[key] for key in ("task", "arm", "trial", "agent", "reward", "fingerprint")) for row in rows)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: the extra cluster")
@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="needs mmdebstrap, which makes the tasks' roots")
def test_the_rows_are_those_of_one_machine_and_are_continued(tmp_path: Path, tasks: list[Task], store: Path) -> None:
    here = bench(tmp_path, store, "here", "--trials", "2")
    there = bench(tmp_path, store, "there", "--trials", "1", "--cluster", "local:2")
    assert (here.returncode, there.returncode) == (0, 0), here.stderr + there.stderr
    assert "self-test: every oracle got 1 and every nop 0" in there.stdout
    again = bench(tmp_path, store, "there", "--trials", "2", "--cluster", "local:2", "--resume")
    assert again.returncode == 0, again.stderr
    assert "8 of 8 trials" in again.stdout
    assert said(tmp_path, "there") == said(tmp_path, "here")
    lacking = bench(tmp_path, store, "none", "--sandbox", "container", "--cluster", "local:1")
    if lacking.returncode == 2:  # no engine runs here
        assert "No node of the cluster can run trials" in lacking.stderr
        assert lacking.stderr.count("Traceback") == 0
