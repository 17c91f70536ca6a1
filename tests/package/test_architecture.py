"""The architecture page: the way of one call as it is, every name on it there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "adk_skills_agent"
PAGE = REPOSITORY / "docs" / "explanation" / "architecture.md"
MOST_FILES = 40


def named_files() -> set[str]:
    """The files of the package that the page names, as paths below the package."""
    return set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE.read_text()))


def test_every_file_the_page_names_is_there() -> None:
    assert [name for name in sorted(named_files()) if not (PACKAGE / name).is_file()] == []


def test_one_call_passes_the_files_that_the_page_draws_and_no_others(make_skill: Callable[..., Path]) -> None:
    skills = make_skill("tools", files={"scripts/hello.py": "print('hello')\n"}).parent
    done = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).with_name("call_path.py"), skills],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    passed = set(json.loads(done.stdout))
    assert passed <= named_files(), sorted(passed - named_files())
    assert len(passed) <= MOST_FILES, sorted(passed)
