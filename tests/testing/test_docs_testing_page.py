"""Every Python block of docs/how-to/measure/testing.md runs by itself; every YAML block is a conversation."""

import re
import subprocess
from pathlib import Path

import pytest

import preloaded
from adk_skills_agent.testing import parse_conversation

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "measure" / "testing.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.splitlines()[0])
def test_a_python_block_runs(code):
    options = ["-W", "error", "-W", r"ignore:\[EXPERIMENTAL\]:UserWarning"]
    options += ["-W", "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"]  # google-genai, with aiohttp
    done = subprocess.run(
        [preloaded.program("python"), *options, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", blocks("yaml"), ids=lambda text: text.splitlines()[0])
def test_a_yaml_block_is_a_conversation(text):
    assert parse_conversation(text).turns
