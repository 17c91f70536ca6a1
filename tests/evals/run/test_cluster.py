"""Trials on a Ray cluster: the same rows as on one machine, whoever is killed; every node is a real one (part H)."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from adk_skills_agent import __version__
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.cluster import Cluster, Job, Needs, Worker, _local_nodes, job_of, joined, unpacked, workers
from adk_skills_agent.evals.preparation import Request, prepare
from adk_skills_agent.evals.run.settings import ModelNames
from adk_skills_agent.sandbox import temporary_prefix
from adk_skills_agent.testing import Answer, GeminiServer, Refusal, Rule, RuleModel
from adk_skills_agent.testing.request import ModelRequest
from evals.eval_folders import make_skill
from ray_nodes import shared_nodes

CASES = """\
skill: reporter
cases:
  - id: totals
    prompt: Summarise my data.
    calls: [{name: load_skill, args: {skill_name: reporter}}]
    answer_contains: [REPORT]
  - {id: data-query, prompt: Tell me of my data., should_trigger: true}
  - {id: poem, prompt: Write a poem., should_trigger: false}
"""
RULES = """\
rules:
  - when: {user_contains: [data], skills: [reporter]}
    call: {name: load_skill, args: {skill_name: reporter}}
  - when: {user_contains: [data], skills: [reporter]}
    text: "REPORT: North leads."
otherwise: {text: I cannot help.}
"""
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: the extra cluster")
AGENT = (sys.executable, "-W", "ignore", "-m", "adk_skills_agent", "eval", "cases.yaml")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_skill(tmp_path / "skills")
    make_skill(tmp_path / "skills", "gardener")
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path


def command(out: str, *more: str, runs: int = 4) -> list[str]:
    line = [*AGENT, "--dir", "skills", "--model", "scripted:rules.yaml", "--judge", "none", "--fail-under", "0"]
    line += ["--policy", "trusted"]  # no script is run: where trials run is the same on a machine without sandboxes
    return [*line, "--runs", str(runs), "--out", out, *more]


def done(project: Path, *line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, cwd=project, capture_output=True, text=True, check=False, timeout=280)


def rows(project: Path, out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project / out / "trials.jsonl").read_text().splitlines()]


def said(found: list[dict[str, Any]]) -> list[Any]:
    """What a row says of a trial, whoever ran it and how long it took."""
    return sorted(
        [row[key] for key in ("case", "arm", "run", "passed", "score", "fingerprint", "source", "skills_loaded")]
        for row in found
    )


# Without a cluster.


def request_of(project: Path, **more: Any) -> Request:
    found = Request(targets=(project / "cases.yaml",), dirs=(project / "skills",), judged=False)
    return dataclasses.replace(found, **more)


def job(project: Path, names: ModelNames | None = None) -> Job:
    request = request_of(project)
    return job_of(
        prepare(request), request, names or ModelNames(f"scripted:{project / 'rules.yaml'}", policy="trusted")
    )


def test_a_node_gets_the_skills_and_the_cases_and_nothing_else(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skill = project / "skills" / "reporter"
    (skill / "run.sh").write_text("echo")
    (skill / "run.sh").chmod(0o755)
    (skill / "inside.sh").symlink_to("run.sh")
    (skill / "__pycache__").mkdir()
    (skill / "__pycache__" / "x.pyc").write_text("compiled")
    (project / ".env").write_text("KEY=secret")
    (project / "id_rsa").write_text("secret")
    (skill / "out.txt").symlink_to(project / "id_rsa")
    (project / "old").mkdir()
    (project / "old" / "trials.jsonl").write_text("{}")
    there = tmp_path_factory.mktemp("node")
    planned = prepare(unpacked(job(project), there))
    here = prepare(request_of(project))
    assert [trial.key for trial in planned.trials] == [trial.key for trial in here.trials]
    sent = {path.name for path in there.rglob("*") if path.is_file()}
    assert sent == {"cases.yaml", "rules.yaml", "SKILL.md", "run.sh", "inside.sh"}
    assert next(there.rglob("run.sh")).stat().st_mode & 0o111
    assert next(there.rglob("rules.yaml")).read_text() == RULES


def test_too_much_for_a_cluster_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adk_skills_agent.evals.cluster._MOST_BUNDLE_BYTES", 100)
    with pytest.raises(ConfigError, match="larger than 0 MiB"):
        job(project)


def test_how_many_trials_fit_on_a_node() -> None:
    node = {"CPU": 8.0, "memory": 16e9, "GPU": 1.0, "container": 1.0}
    assert Needs().slots(node) == 8
    assert Needs(cpus=3).slots(node) == 2
    assert Needs(memory_bytes=4_000_000_000).slots(node) == 4
    assert Needs(gpus=0.5).slots(node) == 2
    assert Needs(labels={"container": 1.0}).slots(node) == 1
    assert Needs(labels={"other": 1.0}).slots(node) == 0


@pytest.mark.parametrize("address", ["local:0", "local:x", "local:65", "local:-1", "local:"])
def test_a_wrong_number_of_nodes_is_said(address: str) -> None:
    with pytest.raises(ConfigError, match="write local or local:NODES"):
        _local_nodes(address)
    assert _local_nodes("local:3") == 3


async def test_a_node_says_why_it_cannot_run_trials(project: Path) -> None:
    answer = await Worker(dataclasses.replace(job(project), version="0.0.1", python="3.9")).hello()
    assert f"it has adk-skills-runtime {__version__} on Python" in answer.problem
    assert "here is 0.0.1 on 3.9" in answer.problem
    names = ModelNames(f"scripted:{project / 'rules.yaml'}", agent="no_such_module:agent", policy="trusted")
    worker = Worker(job(project, names))
    assert "no_such_module" in (await worker.hello()).problem
    await worker.close()


async def test_a_worker_runs_the_trial_it_is_named(project: Path) -> None:
    worker = Worker(job(project))
    assert (await worker.hello()).problem == ""
    trial = prepare(request_of(project)).trials[0]
    assert "knows no trial" in (await worker.run(("nobody", "with_skill", 1)))["refused"]
    row = await worker.run(trial.key)
    assert (row["case"], row["error"]) == (trial.case.id, None)
    await worker.close()


async def test_the_files_of_a_node_that_is_killed_are_removed_by_the_next_agent(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They were never: their folder had no name that says whose it is."""
    place = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    worker = Worker(job(project))
    assert (await worker.hello()).problem == ""
    folders = [path.name for path in place.iterdir() if "cluster" in path.name]
    assert len(folders) == 1
    assert folders[0].startswith(temporary_prefix("cluster"))  # tests/sandbox/files/test_abandoned.py: such a one goes
    await worker.close()
    assert not list(place.glob("*cluster*"))


def test_without_ray_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    before = dict(os.environ)
    with pytest.raises(ConfigError, match="--cluster needs Ray"), joined("local", Needs()):
        pass
    assert dict(os.environ) == before  # a token for nobody would be asked of the next cluster of this process


@needs_ray
def test_a_cluster_that_does_not_start_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(**_: object) -> None:
        raise Exception("The current node timed out during startup.")  # noqa: TRY002  # as Ray does

    monkeypatch.setattr("ray.cluster_utils.Cluster", late)
    with (
        pytest.raises(ConfigError, match=r"cannot be started: Exception: The current node timed out"),
        joined("local", Needs()),
    ):
        pass


@needs_ray
def test_sigterm_while_a_cluster_starts_is_no_missed_pass_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(**_: object) -> None:
        sys.exit(1)  # as Ray's handler of the signal

    monkeypatch.setattr("ray.cluster_utils.Cluster", ended)
    with pytest.raises(SystemExit) as caught, joined("local", Needs()):
        pass
    assert caught.value.code == 143


# On real nodes.


@needs_ray
@pytest.mark.slow
def test_the_rows_are_those_of_one_machine(project: Path) -> None:
    here = done(project, *command("here"))
    there = done(project, *command("there", "--cluster", "local:2"))
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert said(rows(project, "there")) == said(rows(project, "here"))
    nodes = {row["ran_on"]["node"] for row in rows(project, "there")}
    assert len(nodes) == 2
    assert "the trials run on" in there.stderr
    assert any(level in there.stderr for level in ("namespaces", "landlock", "process"))


@needs_ray
@pytest.mark.slow
async def test_two_runs_share_what_a_node_has(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waited two minutes for the whole node, and said that the node did not answer."""
    monkeypatch.setattr("adk_skills_agent.evals.cluster._FREE_SECONDS", 2.0)
    ray = shared_nodes().ray
    async with workers(ray, job(project), Needs(cpus=3)) as one:
        assert [node.slots for node in one.nodes] == [1]
        with pytest.raises(ConfigError, match=r"is not used: other work takes what it has\. `ray status` shows"):
            await Cluster(ray, job(project), Needs(cpus=2)).start()
        async with workers(ray, job(project), Needs(cpus=0.5)) as two:
            assert [node.slots for node in two.nodes] == [2]
            trial = prepare(request_of(project)).trials[0]
            assert (await two.run(trial))["error"] is None


@needs_ray
@pytest.mark.slow
def test_what_no_node_has_is_said_before_anything_runs(project: Path) -> None:
    ended = done(project, *command("out", "--cluster", "local:1", "--trial-memory", "9000000"))
    assert ended.returncode == 2
    assert "No node of the cluster can run trials" in ended.stderr
    assert "a trial needs more than it has" in ended.stderr
    assert "Traceback" not in ended.stderr
    ended = done(project, *command("out", "--cluster", "127.0.0.1:1"))
    assert ended.returncode == 2
    assert "cannot be joined" in ended.stderr
    assert "Traceback" not in ended.stderr


@needs_ray
@pytest.mark.slow
def test_who_listens_and_says_nothing_is_not_waited_for_without_end(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ended = done(project, *command("out", "--cluster", f"127.0.0.1:{silent.getsockname()[1]}"))
    assert ended.returncode == 2
    assert "cannot be joined" in ended.stderr
    assert "Traceback" not in ended.stderr


class Running:
    """A run on a cluster of this machine, while it goes on."""

    def __init__(self, project: Path, out: str, *more: str, runs: int) -> None:
        self.project, self.out = project, out
        self.log = (project / f"{out}.log").open("w+")
        line = command(out, *more, runs=runs)
        self.process = subprocess.Popen(line, cwd=project, stdout=self.log, stderr=self.log, start_new_session=True)
        self.begun: list[psutil.Process] = []

    def until(self, finished: int) -> None:
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and self.process.poll() is None:
            path = self.project / self.out / "trials.jsonl"
            if path.exists() and path.read_bytes().count(b"\n") >= finished:
                self.begun = psutil.Process(self.process.pid).children(recursive=True)
                return
            time.sleep(0.05)
        raise AssertionError(self.said())

    def said(self) -> str:
        return (self.project / f"{self.out}.log").read_text()

    def end(self, seconds: float = 200) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            self.log.close()

    def left(self) -> list[str]:
        """What of it still runs a while after its end."""
        deadline = time.monotonic() + 150  # agents of Ray look after their raylet once in a while
        while (alive := [one for one in self.begun if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.2)
        return [one.name() for one in alive]


@needs_ray
@pytest.mark.slow
def test_a_node_that_is_killed_loses_no_trial_and_counts_none_twice(project: Path) -> None:
    plain = done(project, *command("plain", runs=150))
    assert plain.returncode == 0, plain.stderr
    run = Running(project, "killed", "--cluster", "local:2", runs=150)
    run.until(4)
    raylets = [one for one in run.begun if "raylet" in one.name()]
    assert len(raylets) == 3
    lost = max(raylets, key=lambda one: one.create_time())
    for process in (*lost.children(recursive=True), lost):  # a machine that is gone takes all of them along
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert run.end() == 0, run.said()
    assert said(rows(project, "killed")) == said(rows(project, "plain"))
    assert "its trials ran elsewhere" in run.said()


@needs_ray
@pytest.mark.slow
def test_nobody_else_may_use_a_cluster_of_this_machine(project: Path) -> None:
    run = Running(project, "out", "--cluster", "local:1", runs=3_000)
    run.until(2)
    raylet = next(one for one in run.begun if "raylet" in one.name())
    own = {name: value for name, value in raylet.environ().items() if name.startswith("RAY_AUTH_")}
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    address = next(word.partition("=")[2] for word in raylet.cmdline() if word.startswith("--gcs-address="))
    code = f"import ray; ray.init({address!r}, log_to_driver=False, _node_ip_address='127.0.0.2'); print('joined')"

    def joins(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", code]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60, env=env)

    assert joins(others | own).stdout.endswith("joined\n")
    refused = joins(others)
    assert (refused.returncode != 0, "joined" in refused.stdout) == (True, False)
    assert "uthentication" in refused.stderr, refused.stderr[-500:]
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130, run.said()


@needs_ray
@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again(project: Path) -> None:
    run = Running(project, "killed", "--cluster", "local:1", runs=20)
    run.until(4)
    process = rows(project, "killed")[0]["ran_on"]["process"]
    assert psutil.Process(process).nice() == psutil.Process().nice()  # as important as --parallel would be
    os.kill(process, signal.SIGKILL)
    assert run.end() == 0, run.said()
    found = rows(project, "killed")
    assert len({(row["case"], row["arm"], row["run"]) for row in found}) == len(found)
    assert {row["ran_on"]["process"] for row in found} > {process}


@needs_ray
@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_with_resume(project: Path) -> None:
    plain = done(project, *command("plain", runs=12))
    run = Running(project, "out", "--cluster", "local:2", runs=12)
    run.until(5)
    run.process.kill()
    run.end()
    assert run.left() == []
    kept = len(rows(project, "out"))
    again = done(project, *command("out", "--cluster", "local:2", "--resume", runs=12))
    assert (plain.returncode, again.returncode) == (0, 0), again.stderr
    assert said(rows(project, "out")) == said(rows(project, "plain"))
    assert kept >= 5


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("KILLED_RUNS", "3"))))
def test_nodes_and_drivers_killed_at_random_leave_the_table_of_an_uninterrupted_run(project: Path, seed: int) -> None:
    """50 of them: ``KILLED_RUNS=50 pytest -m slow -k killed_at_random``."""
    chance = random.Random(seed)
    plain = done(project, *command("plain", "--parallel", "3", runs=24))
    assert plain.returncode == 0, plain.stderr
    wanted = rows(project, "plain")
    victims = chance.choice((["node"], ["driver"], ["node", "driver"], ["driver", "driver"]))
    more: list[str] = []
    for victim in [*victims, ""]:
        run = Running(project, "killed", "--cluster", "local:3", *more, runs=24)
        more = ["--resume"]
        if victim:
            before = len(rows(project, "killed")) if (project / "killed/trials.jsonl").exists() else 0
            run.until(chance.randint(before + 1, len(wanted) - 1) if before < len(wanted) - 1 else before)
        if victim == "node":
            raylets = sorted((one for one in run.begun if "raylet" in one.name()), key=lambda one: one.create_time())
            lost = chance.choice(raylets[1:])  # the first is the head
            for process in (*lost.children(recursive=True), lost):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        if victim == "driver":
            run.process.kill()
            run.end()  # the next run begins while parts of this one's cluster still end
        else:
            assert run.end() == 0, run.said()
    assert said(rows(project, "killed")) == said(wanted)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_nodes_and_keeps_what_is_done(project: Path, number: signal.Signals) -> None:
    run = Running(project, "out", "--cluster", "local:2", runs=50)
    run.until(3)
    run.process.send_signal(number)
    assert run.end() == 128 + number, run.said()
    assert "--resume continues" in run.said()
    assert "Traceback" not in run.said()
    assert len(rows(project, "out")) >= 3
    assert run.left() == []


@needs_ray
@pytest.mark.slow
def test_three_nodes_together_do_not_pass_a_limit_of_requests_a_minute(project: Path) -> None:
    arrived: list[float] = []

    def answer(request: ModelRequest) -> Answer | Refusal:  # a rule is told of it
        arrived.append(time.monotonic())
        return Refusal(429, "RESOURCE_EXHAUSTED", "Too many.") if len(arrived) == 3 else Answer("REPORT")

    with GeminiServer(RuleModel([Rule(answer)])) as server:
        line = [*AGENT, "--dir", "skills", "--model", "gemini-2.5-flash", "--judge", "none", "--fail-under", "0"]
        line += ["--policy", "trusted", "--arm", "with_skill", "--runs", "4", "--out", "out", "--cluster", "local:3"]
        ended = subprocess.run(
            [*line, "--requests-per-minute", "7"],
            cwd=project,
            env={**os.environ, **server.environment()},
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
    assert ended.returncode == 0, ended.stderr
    assert len(rows(project, "out")) == 12
    assert len({row["ran_on"]["node"] for row in rows(project, "out")}) > 1
    assert len(arrived) == 13  # one was refused, and asked again
    assert all(sum(start <= at < start + 60 for at in arrived) <= 7 for start in arrived)
    after = [at for at in arrived if arrived[2] < at]
    assert min(after) - arrived[2] < 60  # the service's being busy makes everybody wait, not for the rest of the minute
