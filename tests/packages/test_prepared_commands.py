"""The uv, uvx and pip of an environment: the lines of documents that call them work without an index."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.packages.environments import Environment, prepare
from adk_skills_agent.packages.lock import resolve
from adk_skills_agent.packages.uv import Index
from local_index import LocalIndex, serving

Say = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One that has ``alpha``."""
    cache = tmp_path_factory.mktemp("cache")
    with serving(LocalIndex()) as index:
        index.add("alpha", "1.0")
        where = Index((index.url,))
        lock = resolve(("alpha",), cache=cache / "uv", index=where, what="the packages")
        return prepare(lock, cache=cache, index=where)


@pytest.fixture
def say(environment: Environment, tmp_path: Path) -> Say:
    """Runs a line of a document in the environment; its PATH has no uv and no pip of the machine."""
    (tmp_path / "run.py").write_text("import alpha, sys\nprint(alpha.VERSION, *sys.argv[1:])\n")
    (tmp_path / "requirements.txt").write_text("# what it needs\nalpha>=1\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "realpath"):
        (tools / name).symlink_to(f"/usr/bin/{name}")

    def run(line: str, **more: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(environment.bin), str(tools), *more.values()])
        command = ["/bin/sh", "-c", line]
        return subprocess.run(command, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    "line",
    [
        "uv run run.py a --with b",
        "uv run --with alpha run.py a --with b",
        "uv run --with 'alpha>=1' --python 3.12 --no-project -- python run.py a --with b",
        "uv run --quiet --script run.py a --with b",
        "uv run python3 run.py a --with b",
        "uv run --with=alpha -m run a --with b",
        "uvx --from alpha python run.py a --with b",
        "uv tool run python@3.12 run.py a --with b",
        "cat run.py 2>/dev/null; uv run - a --with b < run.py",
    ],
)
def test_a_line_of_uv_runs_what_is_prepared(say: Say, line: str) -> None:
    done = say(line)
    assert done.stdout.endswith("1.0 a --with b\n"), done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "pip install alpha",
        "pip3 install -q 'alpha>=1'",
        "python -m pip install --upgrade alpha",
        "pip install -r requirements.txt",
        "uv pip install --system alpha",
        "uv add alpha",
        "uv sync",
        "pip show alpha",
        "pip --version",
    ],
)
def test_to_install_what_is_there_is_done_at_once(say: Say, line: str) -> None:
    done = say(line)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("pip install alpha gamma", "gamma"),
        ("uv run --with gamma run.py", "gamma"),
        ("uvx gamma --help", "gamma"),
        ("uv tool install gamma", "gamma"),
        ("pip install .", "."),
        ("pip uninstall alpha", "uninstall"),
        ("uv python install 3.9", "python"),
        ("uv", "uv"),
    ],
)
def test_what_is_not_prepared_is_named(say: Say, line: str, named: str) -> None:
    done = say(line)
    assert done.returncode == 2
    assert named in done.stderr
    assert "prepared before" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_uv_of_the_machine_does_the_rest(say: Say, tmp_path: Path) -> None:
    other = tmp_path / "machine"
    other.mkdir()
    (other / "uv").write_text('#!/bin/sh\necho machine "$@"\n')
    (other / "uv").chmod(0o755)
    assert say("uv run --with gamma run.py", path=str(other)).stdout == "machine run --with gamma run.py\n"
    assert say("uv run run.py", path=str(other)).stdout == "1.0\n"
