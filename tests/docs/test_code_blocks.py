"""Every Python block of README and docs runs; the README's shell walk too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def blocks(language: str) -> list[pytest.ParameterSet]:
    found = []
    for page in PAGES:
        for match in re.finditer(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            line = page.read_text()[: match.start()].count("\n") + 1
            found.append(pytest.param(match[1], id=f"{page.relative_to(REPOSITORY)}:{line}"))
    return found


# An interpreter that has imported google-adk, which takes seconds, runs every block in a fork of its own: blocks share
# nothing but its start, and each has a folder of its own to work in. One line in asks for a block, one out has its end.
INTERPRETER = """
import google.adk.agents, google.adk.runners, json, os, sys, types
import adk_skills_agent.adk, adk_skills_agent.executors
for line in sys.stdin:
    source, name, folder = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        said = os.open("said", os.O_WRONLY | os.O_CREAT)
        for stream in 1, 2:
            os.dup2(said, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "ignore", "-c", INTERPRETER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("source", blocks("python"))
def test_a_python_block_runs(
    interpreter: subprocess.Popen[str], source: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    assert interpreter.stdin is not None
    assert interpreter.stdout is not None
    interpreter.stdin.write(json.dumps([source, request.node.name, str(tmp_path)]) + "\n")
    interpreter.stdin.flush()
    assert interpreter.stdout.readline() == "0\n", (tmp_path / "said").read_text()


@pytest.mark.parametrize("source", blocks("sh"))
def test_a_walk_with_the_command_line_works(source: str, tmp_path: Path) -> None:
    if "make " in source:
        pytest.skip("set-up of the repository, which is what runs this test")
    for folder in ("examples", "benchmarks"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-euc", source],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_link_between_the_pages_leads_to_a_file() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
