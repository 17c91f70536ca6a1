"""Replicas of examples/serve as processes, and a client that knows what was acknowledged to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from adk_skills_agent.testing import Answer, Call, GeminiServer, Rule, RuleModel
from adk_skills_agent.testing.request import ModelRequest

SERVE = Path(__file__).resolve().parents[2] / "examples" / "serve"


def answer(request: ModelRequest) -> Answer:
    """A model that does what it is told: `note X` runs the script once, then says what it printed."""
    contents = request.contents
    last = max(at for at, one in enumerate(contents) if one["role"] == "user" and "text" in one["parts"][-1])
    said = contents[last]["parts"][-1]["text"]
    results = [part for one in contents[last:] for part in one["parts"] if "functionResponse" in part]
    if said.startswith("slow"):
        time.sleep(1.0)
    if not results and said != "what happened":
        args = {"skill_name": "notes", "file_path": "scripts/note.py", "args": [said] if said != "read" else []}
        return Answer(calls=(Call("run_skill_script", args, undeclared=True),))
    if said == "what happened":
        results = [part for one in contents for part in one["parts"] if "functionResponse" in part]
    return Answer(json.dumps(results[-1]["functionResponse"]["response"] if results else {}).replace("{", "<"))


def model() -> GeminiServer:
    return GeminiServer(RuleModel([Rule(answer)]), remember=10)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@dataclass
class Replica:
    environment: dict[str, str]
    log: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(SERVE / "main.py")],
                env={**os.environ, **self.environment, "PORT": str(self.port), "HOST": "127.0.0.1"},
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
            )

    def wait_until_ready(self) -> None:
        until = time.monotonic() + 90
        while time.monotonic() < until:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()[-3_000:]
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/readyz", timeout=30).status_code == 200:
                    return
            time.sleep(0.2)
        raise AssertionError(self.log.read_text()[-3_000:])

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(60)


@contextlib.contextmanager
def replicas(folder: Path, server: GeminiServer, count: int = 2, **settings: str) -> Iterator[list[Replica]]:
    environment = {
        **server.environment(),
        "SESSION_DB": f"sqlite:///{folder}/sessions.db",
        "WORKSPACE_STORE": str(folder / "store"),
        "MIN_ISOLATION": "process",
        "LEASE_SECONDS": "1.5",
        "DRAIN_SECONDS": "0.5",
        **settings,
    }
    started = [Replica(environment, folder / f"replica-{number}.log") for number in range(count)]
    try:
        for one in started:
            one.start()
        for one in started:
            one.wait_until_ready()
        yield started
    finally:
        for one in started:
            if one.process is not None and one.process.poll() is None:
                one.kill()


@dataclass
class Talk:
    """One conversation: what was asked, what was acknowledged, and what was not."""

    name: str
    client: httpx.Client
    acknowledged: list[str] = field(default_factory=list)
    unacknowledged: list[str] = field(default_factory=list)

    def begin(self, url: str) -> None:
        place = f"{url}/apps/desk/users/ada-lovelace/sessions/{self.name}"
        self.client.post(place, json={}, timeout=60).raise_for_status()

    def send(self, url: str, text: str) -> dict[str, Any]:
        """The script's answer as the model was told it."""
        body = {
            "appName": "desk",
            "userId": "ada-lovelace",
            "sessionId": self.name,
            "newMessage": {"role": "user", "parts": [{"text": text}]},
        }
        answered = self.client.post(f"{url}/run", json=body, timeout=90)
        answered.raise_for_status()
        said = [part["text"] for event in answered.json() for part in event["content"]["parts"] if "text" in part]
        found: dict[str, Any] = json.loads(said[-1].replace("<", "{"))
        return found

    def note(self, url: str, text: str) -> dict[str, Any] | None:
        try:
            found = self.send(url, text)
        except httpx.HTTPError:
            self.unacknowledged.append(text)
            return None
        if found.get("status") == "success":
            self.acknowledged.append(text)
        return found

    def check(self, url: str) -> None:
        """All that was acknowledged is there once, in order; nothing is there twice."""
        found = self.send(url, "read")
        assert found["status"] == "success", found
        notes = [] if "There are no notes" in found["stdout"] else found["stdout"].split()
        assert [note for note in notes if note not in self.unacknowledged] == self.acknowledged, (self.name, notes)
        assert len(set(notes)) == len(notes)


def in_threads(jobs: list[Any], count: int) -> None:
    """Do jobs, so many at a time; the first failure is raised."""
    failures: list[BaseException] = []
    left = list(reversed(jobs))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not left or failures:
                    return
                job = left.pop()
            try:
                job()
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
