"""The program of a box, run by hand in a folder: what it does without any sandbox around it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.program import program_text

HANG_SECONDS = 30.0


class DirectBox:
    """The program and both ends of its channel."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", program_text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), "HOME": str(folder), **environment},
            bufsize=0,
        )
        self.late = b""
        self._number = 0
        self._frames: deque[frames.Frame] = deque()
        self._reader = frames.FrameReader()

    def send(self, frame: str, /, **fields: Any) -> None:
        self.send_bytes(frames.encode({"t": frame, **fields}))

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def next(self) -> frames.Frame | None:
        """The next frame; None at the end."""
        assert self.process.stdout is not None
        while not self._frames:
            ready, _, _ = select.select([self.process.stdout], [], [], HANG_SECONDS)
            assert ready, "the program hangs"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return None
            self._frames.extend(self._reader.feed(data))
        return self._frames.popleft()

    def hello(self, **fields: Any) -> frames.Frame:
        self.send("hello", proto=frames.PROTOCOL, **fields)
        ready = self.next()
        assert ready is not None
        assert ready["t"] == "ready"
        return ready

    def run(self, code: str = "", **fields: Any) -> dict[str, Any]:
        """``done`` of one execution, with ``stdout``, ``stderr``, ``files``, ``skipped`` and ``gone`` in it."""
        self._number += 1
        kind = fields.pop("kind", "code")
        self.send("exec", id=self._number, kind=kind, **({"code": code} if kind == "code" else {}), **fields)
        return self.answer()

    def send_code(self, code: str, **fields: Any) -> None:
        """The same, and :meth:`answer` later."""
        self._number += 1
        self.send("exec", id=self._number, kind="code", code=code, **fields)

    def answer(self) -> dict[str, Any]:
        """The answer to what runs."""
        streams, files, skipped, gone = {1: b"", 2: b""}, {}, {}, []
        while (frame := self.next()) is not None:
            if frame["t"] == "out" and frame.get("late"):
                self.late += frames.content(frame)
            elif frame["t"] == "out":
                streams[frame["s"]] += frames.content(frame)
            elif frame["t"] == "file":
                same = files[frame["same"]] if "same" in frame else b""
                files[frame["path"]] = files.get(frame["path"], same) + frames.content(frame)
            elif frame["t"] == "skip":
                skipped[frame["path"]] = frame["reason"]
            elif frame["t"] == "gone":
                gone.append(frame["path"])
            elif frame["t"] == "done":
                out, err = streams[1].decode(), streams[2].decode()
                return {**frame, "stdout": out, "stderr": err, "files": files, "skipped": skipped, "gone": gone}
        raise EOFError

    def close(self) -> int:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        return self.process.wait(HANG_SECONDS)
