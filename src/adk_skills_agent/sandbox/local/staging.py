"""What comes before every level: the folders a run reads are read-only copies of what they were when it began."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

from adk_skills_agent.errors import CHANGED, SkillChanged
from adk_skills_agent.sandbox.contract import ExecutionRequest, ReadOnlyMount
from adk_skills_agent.sandbox.local.skill_cache import Materialised, materialise


@dataclass(frozen=True, slots=True)
class Staged:
    """A request whose mounts lead into the skill cache.

    Attributes:
        request: The same request otherwise.
        notes: What of the folders was left out, one sentence each.
    """

    request: ExecutionRequest
    notes: tuple[str, ...]
    _copies: tuple[Materialised, ...]

    def release(self) -> None:
        """The run is over."""
        for copy in self._copies:
            copy.release()


@functools.lru_cache(maxsize=256)
def _with_source(mount: ReadOnlyMount, source: Path) -> ReadOnlyMount:
    """One object for all runs of a skill: what is remembered about a mount is then found sooner."""
    return replace(mount, source=source)


def stage(request: ExecutionRequest) -> Staged:
    """Put the copies of a request's mounts in their place. Blocking: call it in a worker thread.

    Raises:
        SandboxError: A folder is not there, too large, or cannot be copied.
        SkillChanged: A folder does not hold what it must.
    """
    copies: list[Materialised] = []
    mounts = []
    try:
        for mount in request.mounts:
            if mount.copied:
                copies.append(materialise(mount.source, without=mount.without))
                if mount.digest and copies[-1].digest != mount.digest:
                    raise SkillChanged(CHANGED)
                mounts.append(_with_source(mount, copies[-1].path))
            else:
                mounts.append(mount)
    except BaseException:
        for copy in copies:
            copy.release()
        raise
    notes = tuple(note for copy in copies for note in copy.notes)
    return Staged(replace(request, mounts=tuple(mounts)), notes, tuple(copies))
