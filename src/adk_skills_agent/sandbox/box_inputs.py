"""What the host sends ahead of an execution: files, and pieces of code or standard input that are long.

Part of the program in a box (:mod:`.box_program`); see :mod:`.supervisor`.
"""

from __future__ import annotations

from typing import Dict

from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.box_files import Workspace

Parts = Dict[str, bytearray]


class Inputs:
    """What the next execution gets.

    Args:
        workspace: Where files go.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._parts: Parts = {}
        self._problem: str | None = None

    def put(self, frame: frames.Frame) -> str | None:
        """Carry out a ``put`` frame; why it could not be, for the first that could not.

        Raises:
            FrameError: Its fields are no good.
        """
        try:
            self._workspace.put(frame)
        except OSError as error:
            if self._problem is None:
                name = frames.text(frame, "path")
                self._problem = f"{name!r} could not be put into the box: {error.strerror}"
                return self._problem
        return None

    def keep(self, frame: frames.Frame) -> None:
        """Hold the bytes of a ``part`` frame.

        Raises:
            FrameError: Its fields are no good.
        """
        if self._problem is not None:
            return
        try:
            self._parts.setdefault(frames.text(frame, "of"), bytearray()).extend(frames.content(frame))
        except MemoryError:
            self._parts.clear()
            self._problem = "its input does not fit into the memory of the sandbox"

    def take(self) -> tuple[Parts, str | None]:
        """The parts that were held, and why the execution cannot begin; nothing is left for the next one."""
        self._workspace.drop_unfinished()
        found = self._parts, self._problem
        self._parts, self._problem = {}, None
        return found
