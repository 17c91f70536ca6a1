"""The help text is the documentation: ``docs/reference/cli.md`` is made from it, and this test compares them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import preloaded
from adk_skills_agent.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
PROGRAM = preloaded.program("adk-skills")
COMMANDS = (
    "init",
    "examples",
    "list",
    "info",
    "validate",
    "new",
    "search",
    "add",
    "remove",
    "outdated",
    "update",
    "sync",
    "verify",
    "why",
    "pack",
    "serve",
    "needs",
    "prepare",
    "run",
    "eval",
    "report",
    "bench",
    "trust",
    "approvals",
    "usage",
    "workspaces",
    "doctor",
    "demo",
    "completion",
)


PARTS = (("bench", "skillsbench"), ("workspaces", "ls"), ("workspaces", "rm"), ("workspaces", "gc"))


def help_of(*command: str) -> str:
    run = subprocess.run(
        [PROGRAM, *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
    )
    return "\n".join(line.rstrip() for line in run.stdout.strip().splitlines())


def page() -> str:
    parts = ["# Command line", "", "The output of `--help` of every command.", ""]
    for command in ((), *((name,) for name in COMMANDS), *PARTS):
        title = " ".join(["adk-skills", *command])
        parts += [f"## {title}", "", "```text", help_of(*command), "```", ""]
    return "\n".join(parts)


def test_the_page_of_the_command_line_is_its_help() -> None:
    made = page()
    if os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "run: ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest tests/cli/test_help.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_in_its_help(command: str) -> None:
    assert f"adk-skills {command}" in help_of(command)


def test_each_line_of_the_list_is_that_of_the_command() -> None:
    """The list is written down, so that ``--help`` imports no command."""
    assert tuple(main.COMMANDS) == COMMANDS
    for name, (_, line) in main.COMMANDS.items():
        command = main.app.get_command(click.Context(main.app), name)
        assert command is not None
        assert (name, command.get_short_help_str(200)) == (name, line)


def test_the_help_imports_no_command_and_no_google_adk() -> None:
    code = "import sys; had = set(sys.modules); from adk_skills_agent.cli import main; "
    code += "main.app(['--help'], standalone_mode=False); "
    code += "new = sys.modules.keys() - had; "
    code += "print(sorted(name for name in new if name.startswith(('google', 'adk_skills_agent.', 'asyncio'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(
        [
            "adk_skills_agent.cli",
            "adk_skills_agent.cli.main",
            "adk_skills_agent.cli.terminal",
            "adk_skills_agent.errors",
        ]
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_completion_script(shell: str) -> None:
    run = subprocess.run([PROGRAM, "completion", shell], capture_output=True, text=True, check=False)
    assert "_ADK_SKILLS_COMPLETE" in run.stdout
