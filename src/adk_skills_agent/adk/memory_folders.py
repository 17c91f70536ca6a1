"""Skills that exist only in memory, put on the disk once so that they can be mounted and run."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path

from adk_skills_agent.errors import CatalogError
from adk_skills_agent.sandbox.local.own_folder import own_folder


class MemoryFolders:
    """A private folder with one subfolder for each version of a skill; removed by :meth:`close` or with the object.

    May be used by several threads. In a forked child it starts anew: the folders are its parent's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._pid = os.getpid()
        self._removal: weakref.finalize[..., object] | None = None

    def folder(self, name: str, version: str, files: Mapping[str, bytes]) -> Path:
        """The folder of one version; written at the first call.

        Args:
            name: The skill's name, the last part of the folder's path.
            version: The skill's version: another content is another folder.
            files: Content by path relative to the folder; the paths were checked.

        Raises:
            CatalogError: It cannot be written.
        """
        try:
            with self._lock:
                parent = self._own_root() / version[:32]
                final = parent / name
                if not final.is_dir():
                    parent.mkdir(exist_ok=True)
                    part = Path(tempfile.mkdtemp(dir=parent))
                    for path, content in files.items():
                        target = part / path
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(content)
                    part.rename(final)
                return final
        except OSError as error:
            raise CatalogError(f"The skill {name!r} cannot be written to disk: {error.strerror or error}.") from error

    def close(self) -> None:
        """Remove everything; a later use starts anew."""
        with self._lock:
            removal, self._removal, self._root = self._removal, None, None
        if removal is not None:
            removal()

    def _own_root(self) -> Path:
        if self._pid != os.getpid():
            self._pid, self._root = os.getpid(), None
        if self._root is None or not self._root.is_dir():
            self._root, self._removal = own_folder("memory", self)
        return self._root
