"""The digest of everything in a skill's folder, also of what no list shows: a script can read and run all of it."""

from __future__ import annotations

import stat
import threading
import time

from adk_skills_agent.adk.listing_stamp import SETTLED_NS
from adk_skills_agent.errors import CatalogError
from adk_skills_agent.sandbox.local.skill_copy import Snapshot, copy_skill, snapshot

_TRIES = 3


class FolderVersion:
    """Computes the digest that the sandbox gives its copy of the folder; again only when the stamp of a file moved.

    Hidden files, ``node_modules``, ``.git`` and files too many to list count too. May be used by several threads.

    Args:
        folder: Absolute path.
        name: The skill's name, for sentences.
        without: Folders below it that the sandbox's copy leaves out.
    """

    def __init__(self, folder: str, name: str, without: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._name = name
        self._without = without
        self._lock = threading.Lock()
        self._known: tuple[Snapshot, str] | None = None

    def now(self) -> str:
        """The sha256 of this moment, in hexadecimal.

        Raises:
            CatalogError: The folder cannot be read, or does not stop changing.
            SandboxError: It holds too much to be run at all.
        """
        try:
            for _ in range(_TRIES):
                looked_at = time.time_ns()
                before = snapshot(self._folder)
                with self._lock:
                    if self._known is not None and self._known[0] == before:
                        return self._known[1]
                digest = copy_skill(self._folder, None, self._without).digest
                if snapshot(self._folder) == before:
                    if all(_is_settled(stamp, looked_at) for stamp in before):
                        with self._lock:
                            self._known = (before, digest)
                    return digest
        except OSError as error:
            raise CatalogError(f"Skill '{self._name}' cannot be read: {error.strerror}.") from error
        raise CatalogError(f"Skill '{self._name}' is being changed just now. Try again in a moment.")


def _is_settled(stamp: tuple[str, int, int, int, int, int, int], looked_at: int) -> bool:
    _, mode, _, mtime, ctime, _, _ = stamp
    return stat.S_ISDIR(mode) or max(mtime, ctime) < looked_at - SETTLED_NS
