"""The architecture page: the way of one call as it is, every name on it there."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import preloaded

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "adk_skills_agent"
PAGE = REPOSITORY / "docs" / "explanation" / "architecture.md"
MOST_FILES = 35
UNTIL_ONE_WAITS = {
    "sandbox/local/namespaces/bubblewrap.py",
    "sandbox/process/seccomp.py",
    "sandbox/process/shortage.py",
    "sandbox/process/stalls.py",
}
"""Passed on a busy machine, while the zygote or a sandbox that waits is on its way, or a thread or a call waits."""


def named_files() -> set[str]:
    """The files of the package that the page names, as paths below the package."""
    return set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE.read_text()))


def test_every_file_the_page_names_is_there() -> None:
    assert [name for name in sorted(named_files()) if not (PACKAGE / name).is_file()] == []


def test_every_layer_has_its_place_in_the_chain_and_every_folder_a_row() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    order = [name.strip() for layer in layers for name in layer.split("|")]
    page = PAGE.read_text()
    chain = re.search(r"holds it: `([^`]+)`", page)
    assert chain is not None
    assert re.findall(r"\w+", chain[1]) == order
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == folders


def test_one_call_passes_the_files_that_the_page_draws_and_no_others(make_skill: Callable[..., Path]) -> None:
    skills = make_skill("tools", files={"scripts/hello.py": "print('hello')\n"}).parent
    done = subprocess.run(
        [preloaded.program("python"), Path(__file__).with_name("call_path.py"), preloaded.program("python"), skills],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    passed = set(json.loads(done.stdout))
    assert passed <= named_files(), sorted(passed - named_files())
    assert len(passed - UNTIL_ONE_WAITS) <= MOST_FILES, "\n".join(sorted(passed))
