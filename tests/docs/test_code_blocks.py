"""Every Python block of README and docs runs; the README's shell walk too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import preloaded

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def blocks(language: str) -> list[pytest.ParameterSet]:
    found = []
    for page in PAGES:
        for match in re.finditer(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            line = page.read_text()[: match.start()].count("\n") + 1
            found.append(pytest.param(match[1], id=f"{page.relative_to(REPOSITORY)}:{line}"))
    return found


@pytest.mark.parametrize("source", blocks("python"))
def test_a_python_block_runs(source: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    python = preloaded.program("python")
    run = subprocess.run(
        [python, "-W", "ignore", "-c", source],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("source", blocks("sh"))
def test_a_walk_with_the_command_line_works(source: str, tmp_path: Path) -> None:
    if "make " in source:
        pytest.skip("set-up of the repository, which is what runs this test")
    for folder in ("examples", "benchmarks"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    program = preloaded.program("adk-skills")
    path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-euc", source],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
    )
    assert run.returncode == 0, run.stdout + run.stderr


def anchors(page: Path) -> set[str]:
    """What a page's headings are called in links, as the site's generator makes it of them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    named = set(re.findall(r"(?:id=\"|\{ *#)([\w-]+)", prose))
    return named | {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


def test_every_link_between_the_pages_leads_to_a_file_and_a_heading() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            if anchor and there.suffix == ".md":
                assert anchor in anchors(there), f"{page.name} links to {target}#{anchor}"
