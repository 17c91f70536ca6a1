"""``adk-skills doctor`` on this machine, as root and as a plain user, and on machines that lack something."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import preloaded
from adk_skills_agent.cli.doctor import _tasks_check, _watches_check
from adk_skills_agent.sandbox import this_machine
from adk_skills_agent.sandbox.contract import CONCERNS as ALL_CONCERNS
from adk_skills_agent.sandbox.contract import IsolationLevel
from plain_user import PLAIN_USER, SOURCES, python_of_plain_user, readable_copy, readable_packages

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALLED = Path(sys.executable).parent / "adk-skills"
PROGRAM = preloaded.program("adk-skills")
LAUNCHER = REPOSITORY / "tests" / "sandbox" / "levels" / "degradations.py"
CONCERNS = set(ALL_CONCERNS)


def doctor(*arguments: str, before: Sequence[str] = (), **settings: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*before, str(INSTALLED if before else PROGRAM), "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        **settings,  # type: ignore[call-overload]
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 1}
    return done


def diagnosis(before: Sequence[str] = (), **settings: object) -> tuple[dict[str, object], int]:
    done = doctor("--json", before=before, **settings)
    return json.loads(done.stdout), done.returncode


def levels_of(told: dict[str, object]) -> dict[str, dict[str, object]]:
    return {level["level"]: level for level in told["levels"]}


def test_the_page_says_of_each_level_whether_it_works_and_who_enforces_what() -> None:
    said = doctor().stdout
    told, _ = diagnosis()
    table = said.partition("Isolation levels")[2]
    for level in levels_of(told).values():
        line = next(line for line in table.splitlines() if line.startswith(f"  {level['level']} "))
        assert ("works" in line) if level["works"] else (f"no: {level['reason']}"[:60] in line)
    for name in ("runs as", "kernel", "landlock", "user namespaces", "cgroup", "bubblewrap", "python", *CONCERNS):
        assert f"\n  {name} " in said
    for sentence in told["isolation"]["degraded"]:
        assert sentence.partition(": ")[2] in said


def serving(*before: str, **settings: object) -> tuple[dict[str, dict[str, object]], int]:
    done = doctor("--serve", "--json", before=before, **settings)
    told = json.loads(done.stdout)
    assert told["may_serve"] == (done.returncode == 0)
    return {check["name"]: check for check in told["checks"]}, done.returncode


def test_serve_says_of_this_machine_whether_strangers_may_be_let_in_and_what_to_change() -> None:
    told, _ = diagnosis()
    checks, code = serving()
    works = levels_of(told)["namespaces"]["works"]
    assert list(checks)[:6] == ["level", "user namespaces", "maker", "system calls", "memory", "pids"]
    assert {"user", "kernel"} < set(checks)
    assert (checks["level"]["verdict"], code) == (("holds", 0) if works else ("fails", 1))
    by_group = works and levels_of(told)["namespaces"]["enforced"]["memory"].startswith("cgroup")
    assert checks["memory"]["verdict"] == ("holds" if by_group else "degraded" if works else "fails")
    assert checks["user"]["verdict"] == ("degraded" if os.geteuid() == 0 else "holds")
    for check in checks.values():
        assert (check["change"] is None) == (check["verdict"] == "holds"), check
    said = doctor("--serve").stdout
    for check in checks.values():
        assert f"\n  {check['name']} " in said
        assert f"{check['verdict']}: " in said
    assert ("min_isolation='namespaces'" in said) == works


@pytest.mark.parametrize(
    ("most", "user", "verdict", "change"),
    [
        (65_536, 0, "holds", None),
        (0, 0, "holds", None),
        (5_491_533, 0, "degraded", "sysctl -w fs.epoll.max_user_watches=65536: each run is another user"),
        (5_491_533, 1000, "degraded", "give each tenant a machine of its own"),
    ],
)
def test_row_373_serve_says_whether_the_kernel_bounds_what_a_script_watches(
    most: int, user: int, verdict: str, change: str | None
) -> None:
    """Seen: 643,500 watches (epoll) of instances that were on their way through a socket, where nobody sees them."""
    check = _watches_check(replace(this_machine(), user=user, user_watches=most))
    assert (check.verdict, (check.change or "").startswith(change or "")) == (verdict, True)
    assert (check.change is None) == (change is None)


@pytest.mark.parametrize(
    ("most", "runs", "verdict", "said"),
    [
        (None, 64, "holds", "64 scripts run at a time"),
        (4915, 64, "holds", "may have 4,915 processes"),
        (1024, 11, "degraded", "11 scripts of 64 processes run at a time"),
    ],
)
def test_row_411_serve_says_what_a_limit_of_processes_leaves(
    most: int | None, runs: int, verdict: str, said: str
) -> None:
    check = _tasks_check(replace(this_machine(), most_tasks=most, most_runs=runs))
    assert check.verdict == verdict
    assert said in check.found
    assert ("podPidsLimit" in (check.change or "")) == (verdict == "degraded")


@pytest.mark.parametrize(
    "degradation",
    ["docker-default", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gvisor", "no-seccomp"))],
)
def test_serve_refuses_where_no_namespaces_can_be_had(degradation: str) -> None:
    checks, code = serving(sys.executable, str(LAUNCHER), degradation)
    assert code == 1
    assert {name for name, check in checks.items() if check["verdict"] == "fails"} >= {"level", "user namespaces"}
    assert checks["level"]["change"].startswith("start the container with --security-opt")


def test_serve_is_about_this_machine_alone() -> None:
    done = subprocess.run([PROGRAM, "doctor", "--serve", "--container"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--serve is about this machine" in done.stderr


def test_the_json_has_the_same_names_on_every_machine() -> None:
    told, code = diagnosis()
    names = "versions system machine scripts_user levels isolation min_isolation trial_problem default_policy_holds"
    assert list(told) == [*names.split(), "sandbox", "elsewhere", "scripts_run"]
    machine = "system user landlock_abi landlock_problem seccomp bubblewrap bubblewrap_path user_namespaces"
    assert (
        list(told["machine"])
        == f"{machine} control_groups python python_path bash user_watches most_tasks most_runs".split()
    )
    assert set(told["versions"]) == {"adk-skills-runtime", "google-adk", "google-genai", "pyyaml", "sqlite"}
    assert set(told["machine"]["user_namespaces"]) == {"allowed", "reason", "fix"}
    assert set(told["machine"]["control_groups"]) == {"version", "writable"}
    known = [level.value for level in IsolationLevel]
    assert [name for name in known if name in levels_of(told)] == [level["level"] for level in told["levels"]]
    for level in told["levels"]:
        assert set(level) == {"level", "works", "reason", "fix", "enforced", "degraded"}
        assert (level["reason"] is None) == level["works"]
        assert set(level["enforced"]) == (CONCERNS if level["works"] else set())
    assert set(told["isolation"]) == {"level", "enforced", "degraded", "reasons"}
    strength = IsolationLevel(told["isolation"]["level"]).strength
    assert told["default_policy_holds"] == (strength >= IsolationLevel(told["min_isolation"]).strength)
    assert code == (0 if told["default_policy_holds"] else 1)


def test_an_empty_environment_changes_nothing() -> None:
    there, _ = diagnosis()
    for environment in ({}, {"PATH": ""}, {"PATH": "/nonexistent", "HOME": "/nonexistent"}):
        told, _ = diagnosis(env=environment)
        assert told["levels"] == there["levels"]
        assert told["machine"] == there["machine"]


@pytest.mark.parametrize(
    ("degradation", "best", "code"),
    [
        ("docker-default", "landlock", 0),
        pytest.param("gvisor", "process", 1, marks=pytest.mark.slow),
        pytest.param("no-seccomp", "process", 1, marks=pytest.mark.slow),
    ],
)
def test_a_machine_that_lacks_something_is_told_what_is_left_and_why(degradation: str, best: str, code: int) -> None:
    before = [sys.executable, str(LAUNCHER), degradation]
    told, returned = diagnosis(before)
    assert told["isolation"]["level"] == best
    assert returned == code
    assert told["machine"]["user_namespaces"]["allowed"] is False
    for level in told["levels"]:
        if level["level"] == best:
            break
        assert level["reason"]
        assert level["enforced"] == {}
    assert levels_of(told)["namespaces"]["fix"].startswith("start the container with --security-opt")
    page = doctor(before=before)
    assert "fix: start the container" in page.stdout
    assert ("refuses to run scripts here" in page.stderr) == (code == 1)
    for sandbox in ("auto", "local"):  # a trial that works, but below the default policy, is no success
        tried = doctor("--sandbox", sandbox, before=before)
        assert tried.returncode == code
        assert (f"scripts get only '{best}' in it" in tried.stderr) == (code == 1)


def in_a_world_where(change: str) -> list[str]:
    """A command prefix: mounts of its own, changed by a shell command."""
    line = ["unshare", "-m", "sh", "-c", f'{change} && exec "$@"', "sh"]
    if subprocess.run([*line, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    return line


@pytest.mark.slow
def test_without_bubblewrap_one_command_installs_it() -> None:
    hide = "for f in /usr/bin/bwrap /usr/local/bin/bwrap; do ! [ -e $f ] || mount --bind /dev/null $f; done"
    told, code = diagnosis(in_a_world_where(hide))
    assert (told["isolation"]["level"], code) == ("landlock", 0)
    assert told["machine"]["bubblewrap"] is None
    fix = levels_of(told)["namespaces"]["fix"]
    assert fix.split()[-1] == "bubblewrap"
    assert shutil.which(fix.split()[0]) is not None


@pytest.mark.parametrize(
    "change",
    [
        "umount -l /proc",
        pytest.param("mount -t tmpfs none /sys/fs/cgroup", marks=pytest.mark.slow),
        pytest.param("mount -o bind,ro /tmp /tmp", marks=pytest.mark.slow),
        pytest.param("mount --bind /bin/false $(command -v bwrap)", marks=pytest.mark.slow),
        pytest.param("for p in setpriv bash; do mount --bind /dev/null $(command -v $p); done", marks=pytest.mark.slow),
        pytest.param("ulimit -n 14", marks=pytest.mark.slow),
    ],
)
def test_whatever_is_broken_the_rest_is_told(change: str) -> None:
    told, code = diagnosis(in_a_world_where(change))
    assert told["levels"]
    assert levels_of(told)["process"]["works"]
    assert code == (0 if told["default_policy_holds"] else 1)
    doctor(before=in_a_world_where(change))


@pytest.fixture(scope="module")
def plain_users_copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="plain-doctor-") as folder:
        home = Path(folder)
        shutil.copyfile(LAUNCHER, home / LAUNCHER.name)  # without its mode, which may be private
        home.chmod(0o755)
        readable_copy(SOURCES, home / "src")
        readable_packages(home)
        yield home


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user; else all tests are as that user")
@pytest.mark.parametrize("degradation", [None, pytest.param("docker-default", marks=pytest.mark.slow)])
def test_a_plain_user_is_told_that_scripts_run_as_that_user(plain_users_copy: Path, degradation: str | None) -> None:
    python = python_of_plain_user()
    before = [] if degradation is None else [python, str(plain_users_copy / LAUNCHER.name), degradation]
    done = subprocess.run(
        [*before, python, "-m", "adk_skills_agent", "doctor", "--json"],
        user=PLAIN_USER,
        group=PLAIN_USER,
        extra_groups=[],
        cwd="/",
        env={"PATH": "", "PYTHONPATH": f"{plain_users_copy}/src:{plain_users_copy}/packages"},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert "Traceback" not in done.stderr, done.stderr
    told = json.loads(done.stdout)
    assert (told["machine"]["user"], told["scripts_user"]) == (PLAIN_USER, PLAIN_USER)
    levels = levels_of(told)
    assert levels["landlock"]["works"], levels
    assert told["default_policy_holds"]
    if degradation is not None:
        assert told["isolation"]["level"] == "landlock"
    if levels["namespaces"]["works"] and "cgroup" not in levels["namespaces"]["enforced"]["memory"]:
        assert any("no control group for the run (" in sentence for sentence in levels["namespaces"]["degraded"])
