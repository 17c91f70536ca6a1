"""What the supervisor of a box knows about the execution in flight.

Part of the program in a box (:mod:`.box_program`).
"""

from __future__ import annotations

import os
import time
from typing import Any

from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.box_inputs import Parts
from adk_skills_agent.sandbox.box_process import Started, ending

_DRAIN_SECONDS = 0.5
_OWN_SECONDS = 2.0  # what a kernel does itself before and after its code may take so long beyond the deadline, each
_AGAIN_SECONDS = 0.01
_UNHEARD_SECONDS = 0.002  # each line, and the end of an old pipe, wakes the supervisor; most code ends sooner


class Running:
    """The execution in flight."""

    def __init__(self, frame: frames.Frame, process: Started, is_code: bool) -> None:
        self.id = frames.number(frame, "id")
        self.is_code = is_code
        self.is_last = frames.flag(frame, "last")
        self.process = process
        self.began = time.monotonic()
        self.hear_at: float | None = self.began + (_UNHEARD_SECONDS if is_code else 0)
        deadline = frame.get("deadline_ms")
        self.deadline: float | None = None if deadline is None else self.began + deadline / 1000
        self.grace = frames.number(frame, "grace_ms", 1000) / 1000
        self.flood: int | None = frame.get("flood")
        self.files: dict[str, int] | None = frame.get("files")
        self.written = [0, 0, 0]
        self.asked: float | None = None  # when its end was first wanted
        self.ask_again: float | None = None
        self.kill_at: float | None = None
        self.is_spared = False
        self.drain_until: float | None = None
        self.status: int | None = None  # of a command that has ended
        self.done: dict[str, Any] = {}
        self.lost: str | None = None
        self.link_lost = False

    def times(self) -> list[float]:
        """When it has to be looked at."""
        times = (self.hear_at, self.deadline, self.ask_again, self.kill_at, self.drain_until)
        return [when for when in times if when is not None]

    def is_to_be_heard(self, now: float) -> bool:
        """Whether what it writes is to be watched from now on; once."""
        if self.hear_at is None or now < self.hear_at:
            return False
        self.hear_at = None
        return True

    def waits_to_begin(self, has_begun: bool) -> bool:
        """Whether to ask again a little later for its end, because its code has not begun; not for ever."""
        now, self.ask_again = time.monotonic(), None
        self.asked = now if self.asked is None else self.asked
        if self.is_code and not has_begun and now < self.asked + _OWN_SECONDS:
            self.ask_again = now + _AGAIN_SECONDS
        return self.ask_again is not None

    def is_given_time(self, has_ended: bool) -> bool:
        """Whether it is not killed yet, because its code has ended in time and only the kernel is late; once."""
        if not has_ended or self.is_spared or self.link_lost or not self.is_code or self.kill_at is None:
            return False
        self.is_spared = True
        self.kill_at += _OWN_SECONDS
        return True

    def ended(self, status: int) -> None:
        """It is a command, and its process has ended; its output may go on for a moment."""
        self.status = status
        code, number = ending(status)
        self.done.update(exit=code, signal=number)
        self.drain_until = time.monotonic() + (0 if self.lost or "timed_out" in self.done else _DRAIN_SECONDS)


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
