"""Two tasks of a public copy of SkillsBench, which is not part of this repository, in both modes.

``ADK_SKILLS_TEST_SKILLSBENCH`` names the folder ``tasks`` of a copy. In container mode the engine is the one that
``DOCKER_HOST`` names, which must have a network, else a Podman that is started here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import container_engines

pytestmark = pytest.mark.slow

TASKS = ("3d-scan-calc", "civ6-adjacency-optimizer")
"""Ubuntu with packages of its own and pip in the verifier; Python, where the environment installs nothing."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture
def public() -> Path:
    named = os.environ.get("ADK_SKILLS_TEST_SKILLSBENCH")
    if not named:
        pytest.skip("ADK_SKILLS_TEST_SKILLSBENCH names no folder of tasks of a public copy of SkillsBench")
    return Path(named)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("sandbox", ["local", "container"])
def test_a_public_task_gives_the_oracle_one_and_nobody_zero(
    public: Path, store: Path, tmp_path: Path, sandbox: str, task: str
) -> None:
    assert (public / task).is_dir(), f"{public} has no task {task}"
    environment = dict(os.environ)
    words: list[str | Path] = ["--tasks-dir", public, "--filter", task, "--self-test", "--sandbox", sandbox, "--json"]
    words += ["--cache-dir", store, "--out", tmp_path / "out"]
    if sandbox == "container":
        pytest.importorskip("docker")
        environment.setdefault("DOCKER_HOST", container_engines.require("podman").url)
        words += ["--bases", "packages", *(["--ca-certificates", CERTIFICATES] if CERTIFICATES.is_file() else [])]
    program = Path(sys.executable).parent / "adk-skills"
    done = subprocess.run(
        [program, "bench", "skillsbench", *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["self_test"], content["finished"], content["not_measured"]) == ([], 2, [])
