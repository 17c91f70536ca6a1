"""What the supervisor of a box knows about the execution in flight.

Part of the program in a box (:mod:`.box_program`).
"""

from __future__ import annotations

import os
import time
from typing import Any

from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.box_inputs import Parts
from adk_skills_agent.sandbox.box_process import Started


class Running:
    """The execution in flight."""

    def __init__(self, frame: frames.Frame, process: Started, is_code: bool) -> None:
        self.id = frames.number(frame, "id")
        self.is_code = is_code
        self.process = process
        self.began = time.monotonic()
        deadline = frame.get("deadline_ms")
        self.deadline: float | None = None if deadline is None else self.began + deadline / 1000
        self.grace = frames.number(frame, "grace_ms", 1000) / 1000
        self.flood: int | None = frame.get("flood")
        self.files: dict[str, int] | None = frame.get("files")
        self.written = [0, 0, 0]
        self.kill_at: float | None = None
        self.drain_until: float | None = None
        self.status: int | None = None  # of a command that has ended
        self.done: dict[str, Any] = {}
        self.lost: str | None = None
        self.link_lost = False


def code_job(frame: frames.Frame, parts: Parts, root: str) -> dict[str, Any]:
    """What the kernel gets of an ``exec`` of code.

    Args:
        frame: The ``exec``.
        parts: What came ahead of it.
        root: The working directory of the box.

    Raises:
        FrameError: Its fields are no good.
    """
    cwd = frame.get("cwd")
    return {
        "id": frames.number(frame, "id"),
        "code": parts["code"].decode("utf-8", "surrogatepass") if "code" in parts else frames.text(frame, "code"),
        "env": frame.get("env") or {},
        "cwd": None if cwd is None else os.path.join(root, cwd),
        "restrict": frames.flag(frame, "restrict"),
        "cpu_seconds": frame.get("cpu_seconds"),
    }
