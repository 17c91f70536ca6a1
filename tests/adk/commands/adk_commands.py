"""google-adk's own command line, as a user starts it, with a rehearsed model on the loopback interface."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import preloaded
from adk_skills_agent.testing import GeminiServer

REPOSITORY = Path(__file__).resolve().parents[3]
ADK = preloaded.program("adk")
INSTALLED = Path(sys.executable).parent / "adk"
_START_SECONDS = 90.0

FIBONACCI = """
name: fibonacci
turns:
  - when: {user_contains: Fibonacci, tools: [load_skill, run_skill_script]}
    call: {name: load_skill, args: {skill_name: python-helper}}
  - when: {last_tool: load_skill, system_contains: Do not compute these things yourself}
    call:
      name: run_skill_script
      args: {skill_name: python-helper, file_path: scripts/fibonacci.py, args: {count: 10}}
  - when: {last_tool: run_skill_script, tool_result: {status: success}, tool_result_contains: '"last": 34'}
    text: The tenth is 34.
"""


def environment(server: GeminiServer) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "XDG_CACHE_HOME") if name in os.environ}
    return {**kept, **server.environment(), "PYTHONWARNINGS": "ignore"}


def adk(
    server: GeminiServer, *arguments: str | Path, stdin: str = "", cwd: Path, program: Path = ADK
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=cwd,
        env=environment(server),
    )


@dataclass
class Served:
    """A running ``adk api_server`` or ``adk web``."""

    url: str

    def call(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def ask(self, agent: str, question: str, session: str = "s1") -> list[dict[str, Any]]:
        """One message in a session, which is made when it is new."""
        with contextlib.suppress(urllib.error.HTTPError):
            self.call(f"/apps/{agent}/users/user/sessions/{session}", {})
        answer: list[dict[str, Any]] = self.call(
            "/run",
            {
                "appName": agent,
                "userId": "user",
                "sessionId": session,
                "newMessage": {"role": "user", "parts": [{"text": question}]},
            },
        )
        return answer


@contextlib.contextmanager
def serving(server: GeminiServer, command: str, agents: Path) -> Iterator[Served]:
    """Start google-adk's server on a free port, and end it with everything it started."""
    log = agents.parent / f"{command}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [ADK, command, "--port", "0", agents],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(server),
            cwd=agents.parent,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not (found := re.search(r"Uvicorn running on (http://[\d.]+:\d+)", log.read_text(errors="replace"))):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"adk {command} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        yield Served(found[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [part["text"] for event in events for part in event.get("content", {}).get("parts", []) if "text" in part]
