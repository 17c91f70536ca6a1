"""The second act of ``adk-skills demo``: a hostile skill, and what the host saw of its attempts.

Nothing a script says about itself counts. Each attempt is judged by a fact of the host: a file that was written or not,
a connection that arrived or not, a process that is alive or not, a field of the result.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.cli.demo_agent import DemoRun, demo_model, examples_folder, run_demo
from adk_skills_agent.sandbox.contract import IsolationReport, SandboxPolicy

if TYPE_CHECKING:
    from adk_skills_agent.cli.demo_agent import DemoStep

QUESTION = "Please thank our customer with the free-gift skill."
_POLICY = SandboxPolicy(wall_seconds=1.5, term_grace_seconds=0.3, output_flood_bytes=8 << 20, pids=32)
_MOST_PROCESSES = 64
"""Twice what the policy allows: a level may count what it needs itself. The script tries 500."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attack and how it went.

    Attributes:
        what: The attack, in a few words.
        contained: Whether the host saw nothing of it.
        how: What the host saw.
        mechanism: Who contained it, from the isolation report.
    """

    what: str
    contained: bool
    how: str
    mechanism: str


@dataclass(slots=True)
class _Bait:
    """What the hostile skill is pointed at."""

    folder: Path
    listener: socket.socket
    mark: str

    @property
    def canary(self) -> str:
        return f"canary-{self.mark}"

    def environment(self) -> dict[str, str]:
        return {
            "DEMO_CANARY_FILE": str(self.folder / "api-key.txt"),
            "DEMO_OUTSIDE_FILE": str(self.folder / "outside.txt"),
            "DEMO_PORT": str(self.listener.getsockname()[1]),
            "DEMO_MARK": self.mark,
        }


async def attack(report: IsolationReport, show: Callable[[DemoStep], None]) -> tuple[list[Attempt], str]:
    """Let the rehearsed agent run the hostile skill, and judge each attempt.

    Args:
        report: What isolates scripts here; nothing weaker than ``landlock`` may run this.
        show: Called with each step of the agent.

    Returns:
        The attempts, and the agent's last word.
    """
    results: dict[str, dict[str, Any]] = {}
    last = ""
    with _bait() as bait, demo_model("rehearsed", "demo-hostile") as model:
        steps = run_demo(
            model,
            DemoRun(),
            QUESTION,
            skills=examples_folder("hostile-skills"),
            policy=_POLICY,
            env=bait.environment(),
        )
        async for step in steps:
            show(step)
            if step.kind == "result" and isinstance(step.content, dict) and "file_path" in step.content:
                results[str(step.content["file_path"]).partition("/")[2]] = step.content
            elif step.kind == "text":
                last = str(step.content)
        return list(_judged(bait, results, report.enforced)), last


@contextlib.contextmanager
def _bait() -> Iterator[_Bait]:
    mark = os.urandom(8).hex()
    with tempfile.TemporaryDirectory(prefix="adk-skills-bait-") as name, socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        bait = _Bait(Path(name), door, mark)
        # Readable and writable for everybody: only the sandbox keeps the script away, not the file's mode.
        bait.folder.chmod(0o777)
        (bait.folder / "api-key.txt").write_text(bait.canary)
        os.environ["ADK_SKILLS_DEMO_API_KEY"] = bait.canary
        try:
            yield bait
        finally:
            del os.environ["ADK_SKILLS_DEMO_API_KEY"]


def _judged(bait: _Bait, results: Mapping[str, dict[str, Any]], enforced: Mapping[str, str]) -> Iterator[Attempt]:
    def said(script: str) -> str:
        return str(results.get(script, {}).get("stdout", ""))

    everything = "".join(str(result) for result in results.values())
    stolen = bait.canary in everything
    yield Attempt(
        "read the host's secrets",
        not stolen,
        "the canary reached the model" if stolen else "the canary key in a file and in the environment stayed unread",
        f"files: {enforced['files']}",
    )
    outside = (bait.folder / "outside.txt").exists()
    yield Attempt(
        "write outside its workspace",
        not outside,
        "a file appeared beside the user's" if outside else "nothing was written outside, nor into the skill",
        f"files: {enforced['files']}",
    )
    called = _somebody_called(bait.listener)
    yield Attempt(
        "phone home",
        not called,
        "a connection arrived" if called else "no connection left the sandbox",
        f"network: {enforced['network']}",
    )
    numbers = re.findall(r"after (\d+) processes|started (\d+) processes", said("fork_bomb.py"))
    started = int(next(filter(None, numbers[0]))) if numbers else 0
    bounded = started <= _MOST_PROCESSES
    yield Attempt(
        "fork bomb",
        bounded,
        f"{started} of 500 processes started, then no more" if bounded else f"{started} processes started",
        f"pids: {enforced['pids']}",
    )
    flooded = results.get("flood.sh", {}).get("reason")
    kept = len(said("flood.sh"))
    yield Attempt(
        "flood the agent with output",
        flooded == "output_limit" and kept < 25_000,
        f"stopped at {(_POLICY.output_flood_bytes or 0) >> 20} MiB; the model got {kept:,} characters",
        "output_flood_bytes",
    )
    alive = _alive(bait.mark)
    late = results.get("linger.py", {}).get("reason")
    yield Attempt(
        "outlive its deadline",
        late == "timeout" and not alive,
        "a daemon is still alive" if alive else "the script and its daemon are gone",
        f"processes: {enforced['processes']}",
    )


def _somebody_called(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def _alive(mark: str) -> bool:
    """Whether a process of this machine has the mark in its arguments; waits a moment for the dying."""
    deadline = time.monotonic() + 1.0
    while True:
        if not any(_has_mark(folder, mark.encode()) for folder in Path("/proc").glob("[0-9]*")):
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)


def _has_mark(folder: Path, mark: bytes) -> bool:
    try:
        return mark in (folder / "cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return False
