"""The tutorial, done as it says: its files are written, its commands run in turn, its output is what came."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import preloaded

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "tutorial" / "first-agent.md"
_BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)

LIST_APPS = """
from fastapi.testclient import TestClient
from google.adk.cli.fast_api import get_fast_api_app

print(TestClient(get_fast_api_app(agents_dir=".", web=True)).get("/list-apps").json())
"""


@dataclass(frozen=True)
class Done:
    commands: int
    files: int
    outputs: int


def do(page: str, folder: Path, environment: dict[str, str], *, installed: bool) -> Done:
    """Do what a page says.

    Args:
        page: Its text.
        folder: An empty one.
        environment: Of every command.
        installed: Whether what installs is left out, because it is there.
    """
    commands = files = outputs = 0
    printed = ""
    for block in _BLOCK.finditer(page):
        text, language = block["text"], block["language"]
        if block["file"]:
            path = folder / block["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            files += 1
        elif language == "bash":
            if installed and "pip install" in text:
                continue
            run = subprocess.run(
                ["bash", "-euc", text], capture_output=True, text=True, check=False, cwd=folder, env=environment
            )
            assert run.returncode == 0, f"{text}\n{run.stdout}\n{run.stderr}"
            printed = run.stdout
            commands += 1
        elif language == "text":
            lines = printed.splitlines()
            for line in text.splitlines():
                assert line in lines, f"{line!r} is not in:\n{printed}"
                lines = lines[lines.index(line) + 1 :]  # in this order
            outputs += 1
    return Done(commands, files, outputs)


@pytest.mark.slow
def test_the_tutorial_can_be_done_with_what_is_installed_here(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = do(PAGE.read_text(), tmp_path, {**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"}, installed=True)
    assert (done.commands, done.files, done.outputs) == (5, 10, 3)
    assert (tmp_path / "run-1" / "report.html").is_file()
    found = "from assistant.agent import root_agent; print(root_agent.tools[0].skill_names())"
    started = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import os, sys; sys.path.insert(0, os.pardir); {found}"],
        capture_output=True, text=True, check=False, cwd=tmp_path / "assistant",
    )  # fmt: skip
    assert "order-totals" in started.stdout, started.stderr
    offered = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIST_APPS],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert offered.stdout.strip() == "['assistant']", offered.stderr  # `adk web .` takes a folder with agent.py as one


def test_the_file_of_grants_can_be_tried_as_its_page_says(tmp_path: Path) -> None:
    """Without the host, which needs a level that not every machine has."""
    page = (REPOSITORY / "docs/how-to/secrets-and-hosts.md").read_text().replace("    hosts: [api.example.org]\n", "")
    path = f"{preloaded.program('adk-skills').parent}:{os.environ['PATH']}"
    done = do(page, tmp_path, {**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"}, installed=True)
    assert (done.commands, done.files, done.outputs) == (2, 2, 1)


@pytest.mark.slow
def test_the_tutorials_program_shows_what_went_wrong(tmp_path: Path) -> None:
    """A typing error in conversation.yaml: the script's error and the server's sentence are on the screen."""
    page = PAGE.read_text().replace("args: [uploads/orders.csv]}", "args: [uploads/order.csv]}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with pytest.raises(AssertionError) as failed:
        do(page, tmp_path, {**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"}, installed=True)
    assert "uploads/order.csv" in str(failed.value)
    assert "Ada: 140.00" in str(failed.value)
    assert "AttributeError" not in str(failed.value)


@pytest.mark.slow
def test_the_tutorial_can_be_done_with_the_wheel_alone(tmp_path: Path) -> None:
    """No checkout, no key, and no network but the package index."""
    uv = Path(sys.executable).parent / "uv"
    trusting = {**os.environ, "UV_SYSTEM_CERTS": "1"}
    subprocess.run(
        [uv, "build", "--wheel", "--quiet", "-o", tmp_path / "dist"], check=True, cwd=REPOSITORY, env=trusting
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    environment = tmp_path / "environment"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True, env=trusting)
    install = [uv, "pip", "install", "--quiet", "--python", environment / "bin" / "python", wheel]
    subprocess.run(install, check=True, env=trusting)
    work = tmp_path / "work"
    work.mkdir()
    clean = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(work), "PYTHONWARNINGS": "ignore"}
    assert do(PAGE.read_text(), work, clean, installed=True).commands == 5
