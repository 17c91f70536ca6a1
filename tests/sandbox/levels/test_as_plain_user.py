"""The conformance suite once more, as a user without privileges: the way most agents outside of containers run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plain_user import PLAIN_USER, python_of_plain_user, readable_copy, readable_packages

REPOSITORY = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user; else all tests are as that user"),
]


@pytest.fixture(scope="module")
def python() -> str:
    return python_of_plain_user()


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="plain-user-") as folder:
        os.chown(folder, PLAIN_USER, PLAIN_USER)
        yield Path(folder)


def run_suite(
    python: str, home: Path, *arguments: str, degradation: str | None = None
) -> subprocess.CompletedProcess[str]:
    """A copy, because the repository may be in a private folder; on a machine that lacks something, when asked."""
    for name in ("src", "tests"):
        readable_copy(REPOSITORY / name, home / name)
    shutil.copy(REPOSITORY / "pyproject.toml", home)
    packages = readable_packages(home)
    launcher = home / "tests" / "sandbox" / "levels" / "degradations.py"
    before = [] if degradation is None else [python, str(launcher), degradation]
    return subprocess.run(
        [*before, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", f"--basetemp={home}/t", *arguments],
        user=PLAIN_USER,
        group=PLAIN_USER,
        extra_groups=[],
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": f"{home}/src:{packages}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_every_row_holds_for_an_agent_without_privileges(python, home, level):
    done = run_suite(python, home, "tests/sandbox/conformance", "-k", level, "-m", "not slow or every_level")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) > 100


@pytest.mark.parametrize("start", ["namespaces-zygote", "namespaces-slots"])
def test_every_row_holds_for_it_however_a_sandbox_is_started(python, home, start):
    """These are slow for being more of the same; what takes minutes each, of every level, is left out."""
    long = [f"--ignore=tests/sandbox/conformance/test_{name}.py" for name in ("leaks", "queue", "gigabyte")]
    done = run_suite(python, home, "tests/sandbox/conformance", "-k", start, *long)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) > 100


@pytest.mark.parametrize(
    ("degradation", "levels"),
    [("docker-default", "landlock"), ("no-landlock", "namespaces"), ("gvisor", "process")],
)
def test_every_row_holds_for_it_on_a_machine_that_lacks_something(python, home, degradation, levels):
    """Docker's default profile; Landlock answering ENOSYS; both."""
    done = run_suite(python, home, "tests/sandbox/conformance", "-k", levels, "-m", "not slow", degradation=degradation)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) > 60


def test_the_special_cases_of_the_namespaces_level_hold_too(python, home):
    done = run_suite(
        python,
        home,
        "tests/sandbox/levels/test_namespaces_level.py",
        "tests/sandbox/starting/test_agent_keeper.py",
        "-m",
        "not slow",
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
