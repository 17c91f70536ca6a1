"""Local mode for a user who is not root and has a range of ids, as on most machines with rootless containers."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.local.namespaces import bubblewrap
from evals.skillsbench.bench_tasks import make_task
from plain_user import SOURCES, readable_copy, readable_packages

REPOSITORY = Path(__file__).resolve().parents[3]
FIRST, COUNT = 0x70010000, 65536
"""Beyond the ids that boxes of root get."""
DOCKERFILE = """FROM debian:12
WORKDIR /app
COPY skills /root/.claude/skills
COPY data.txt .
RUN useradd somebody && su somebody -c 'touch /tmp/his' && chown somebody data.txt && chmod 600 data.txt
"""
RANGES = 'mount --bind "$1" /etc/subuid && mount --bind "$1" /etc/subgid && shift && exec setpriv "$@"'
"""For these commands only: in a mount namespace of their own, where the user has a range of ids."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user; else all tests are as that user"),
]


@pytest.fixture
def home() -> Iterator[Path]:
    """Where the plain user may write; nothing of the ids may be left in it at the end."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="plain-user-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_plain_user_gets_the_same_rewards_and_leaves_only_the_cache(home: Path) -> None:
    if missing := bubblewrap.missing():
        pytest.skip(missing)
    for program in ("newuidmap", "mmdebstrap", "setpriv", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(python).exists():
        pytest.skip(f"there is no {python}, a Python that other users may run")
    user = pwd.getpwnam("nobody")
    make_task(home / "tasks", environment__Dockerfile=DOCKERFILE)
    readable_copy(SOURCES, home / "src")
    (home / "ranges").write_text(f"{user.pw_name}:{FIRST}:{COUNT}\n")
    (home / "own").mkdir()
    os.chown(home / "own", user.pw_uid, user.pw_gid)
    bench = ["bench", "skillsbench", "--tasks-dir", home / "tasks", "--self-test", "--json"]
    bench += ["--cache-dir", home / "own" / "store", "--out", home / "own" / "out"]
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", RANGES, "sh", home / "ranges"),
            *(f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", python, "-m", "adk_skills_agent"),
            *bench,
        ],
        cwd="/",
        env={
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(home / "own"),
            "PYTHONPATH": f"{home}/src:{readable_packages(home)}",
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr + (home / "own" / "out" / "results.jsonl").read_text()
    content = json.loads(done.stdout)
    assert (content["self_test"], content["finished"], content["not_measured"]) == ([], 2, [])
    assert not list((home / "own" / "store" / "trials").iterdir())
    assert not list((home / "own" / "store" / "layers").glob("new-*"))
    owners = {path.lstat().st_uid for path in (home / "own" / "store" / "layers").rglob("*") if path.name == "data.txt"}
    assert min(owners) == FIRST  # root of the box, who copied it
    assert FIRST < max(owners) < FIRST + COUNT  # somebody, who got it
