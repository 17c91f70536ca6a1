"""A user's type checker sees our keywords: right ones pass, each wrong one is an error (issue 17, item 3)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RIGHT = """
from pathlib import Path

from google.adk.agents import LlmAgent

from adk_skills_agent import Network, SandboxPolicy, SkillToolset, run, with_skills

policy = SandboxPolicy(network="none", wall_seconds=5)
network: Network = policy.network
toolset = SkillToolset.from_dirs(
    ["skills", Path("more")], relative_to=__file__, missing="warn", policy=policy, shell=True, grants={"a": {"B": "c"}}
)
agent = with_skills(LlmAgent(name="a"), ["skills"], policy="strict", workspace="skill", env={"A": "b"})
text: str = run(agent, "Hello").text
for problem in toolset.diagnostics:
    print(problem.severity, problem.message)
"""

WRONG = """
from google.adk.agents import LlmAgent

from adk_skills_agent import SandboxPolicy, SkillsRegistry, SkillToolset, with_skills

SkillToolset.from_dirs(["skills"], polcy="strict")
SkillToolset.from_dirs(["skills"], budget_tokens="many")
SkillToolset.from_catalog(SkillsRegistry(), require_activation="yes")
with_skills(LlmAgent(name="a"), ["skills"], permisions={})
SandboxPolicy(network="internet")
SkillToolset.from_dirs(["skills"], dependencies="asx")
SkillToolset.from_dirs(["skills"], discovery_mode="eagre")
SkillToolset.from_dirs(["skills"], policy="strickt")
SkillToolset.from_dirs(["skills"], workspace="skills")
"""
WRONG_LINES = [number for number, line in enumerate(WRONG.splitlines(), 1) if line and "import" not in line]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project; it has nothing of ours but the installed package."""
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


def test_mypy_finds_each_wrong_argument_and_nothing_else(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", project / "cache", "."],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert [(file, int(line)) for file, line, _ in errors] == [("wrong.py", line) for line in WRONG_LINES], done.stdout
    assert 'did you mean "policy"?' in errors[0][2]


def test_pyright_finds_each_wrong_argument_and_nothing_else(project: Path) -> None:
    pyright = Path(sys.executable).with_name("basedpyright")
    if not pyright.exists():
        pytest.fail("basedpyright is missing; make test-slow installs it")
    (project / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    done = subprocess.run(
        [pyright, "--pythonpath", sys.executable, "--outputjson", "right.py", "wrong.py"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NODE_OPTIONS": ""},
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = sorted(
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in found if one["severity"] == "error"
    )
    assert errors == [("wrong.py", line) for line in WRONG_LINES], done.stdout
