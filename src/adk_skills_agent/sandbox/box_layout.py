"""Where a box has what the contract calls ``/work``, ``/skill`` and ``/tmp``.

A box is whatever runs the program of :mod:`.box_program`: a container, a pod, a folder on another service's machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from adk_skills_agent.sandbox.contract import WORK_DIR, ReadOnlyMount
from adk_skills_agent.sandbox.local.view import PathView

TMP_DIR = PurePosixPath("/tmp")  # noqa: S108  # the name in the sandbox's view, not a folder of the host


@dataclass(frozen=True, slots=True)
class BoxLayout:
    """The places of one box.

    Attributes:
        root: Folder below which they are, without a slash at its end; empty where the box has them at their own names.
        tmp: Its folder for temporary files; None is ``/tmp`` below ``root``.
        python: What is started instead of the agent's own interpreter, which the box has not got.
        path: The commands' PATH, unless the owner grants another.
        mounted: The box has the mounts at their places already; they are not sent.
        alone: Nothing but this run is in the box's process table: whatever is left over may be killed.
        batch: The box is one request with one answer: it gets an end of its input and must then still finish.
    """

    root: str = ""
    tmp: str | None = None
    python: str = "python3"
    path: str = "/usr/local/bin:/usr/bin:/bin"
    mounted: bool = False
    alone: bool = False
    batch: bool = False

    @property
    def work(self) -> str:
        """The workspace in the box."""
        return f"{self.root}{WORK_DIR}"

    @property
    def temporary(self) -> str:
        """The folder for temporary files in the box."""
        return self.tmp if self.tmp is not None else f"{self.root}{TMP_DIR}"

    def place(self, path: PurePosixPath) -> str:
        """Where the box has a mount."""
        return f"{self.root}{path}"

    def view(self, mounts: tuple[ReadOnlyMount, ...]) -> PathView:
        """Both directions of the mapping; does nothing where the box has the contract's own names."""
        if not self.root and self.tmp is None:
            return PathView(())
        pairs = [(mount.target, self.place(mount.target)) for mount in mounts]
        return PathView([*pairs, (WORK_DIR, self.work), (TMP_DIR, self.temporary)], root=self.root or None)
