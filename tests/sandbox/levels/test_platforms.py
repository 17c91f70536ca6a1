"""Systems that are not Linux: a sentence and a way out, never a weaker run in silence (S0-94, S0-95)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adk_skills_agent.sandbox.local.levels.base import unsupported


def told_on(system: str, code: str) -> str:
    """What code prints on a machine that says it is another system; nothing of this one's is imported before."""
    # Interpreters of other systems are not at hand; what is asked is only the name the interpreter gives its system.
    head = f"import asyncio, sys, warnings, platform, importlib.metadata\nsys.platform = {system!r}\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.requirement("S0-95")
def test_windows_is_told_to_use_a_container() -> None:
    """S0-95: not NotImplementedError but the tree's own error, which names the container backend."""
    code = """
from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox.local import local_sandbox
try:
    local_sandbox()
except SandboxUnavailable as error:
    print(error.message, error.reasons)
"""
    said = told_on("win32", code)
    assert "Linux container" in said
    assert "Windows has no" in said


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_no_level_of_linux_works_elsewhere_and_each_says_why(level: str) -> None:
    code = f"""
from adk_skills_agent.sandbox.local.levels.base import local_levels
found = [each for each in local_levels() if each.level.value == {level!r}]
print(found[0].problem(), found[0].remedy()) if found else print("feature of Linux")
"""
    said = told_on("darwin", code)
    assert "Linux" in said
    assert "apt-get" not in said


def test_here_they_can_be_tried() -> None:
    if sys.platform == "linux":
        assert unsupported() is None
