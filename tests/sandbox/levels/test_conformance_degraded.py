"""The conformance suite once more on machines that lack something, forced by a filter over the whole test session.

Docker's default profile forbids namespaces and mounts: landlock is what is left. Inside gVisor, and on old kernels,
there is no Landlock either. As a plain user: test_as_plain_user.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
LAUNCHER = Path(__file__).with_name("degradations.py")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("degradation", "levels"),
    [("docker-default", "landlock"), ("no-landlock", "namespaces"), ("gvisor", "process")],
)
def test_every_row_of_what_is_left_holds(degradation: str, levels: str, tmp_path: Path) -> None:
    pytest_line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/t"]
    done = subprocess.run(
        [
            sys.executable,
            LAUNCHER,
            degradation,
            *pytest_line,
            "tests/sandbox/conformance",
            "-k",
            levels,
            "-m",
            "not slow",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) > 50
