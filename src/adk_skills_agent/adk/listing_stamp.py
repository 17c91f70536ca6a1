"""Whether what a skill shows of its folder may have changed, found without a look at every file.

A list of files changes only with a folder, whose own stamp then moves; so there are as many looks as the skill has
folders and links, and one for each file whose content is shown.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

from adk_skills_agent.catalog.files import MAX_FOLDERS
from adk_skills_agent.catalog.ignore import NOT_LISTED

SETTLED_NS = 2_000_000_000
"""What changed that shortly before it was read may change again and keep its stamp: file systems count in ticks."""

_Mark = tuple[int, int, int, int, int]


class ListingStamp:
    """Of one skill's folder. May be used by several threads.

    Args:
        folder: Absolute path.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._places: tuple[str, ...] = ()
        self._marks: tuple[_Mark | None, ...] = ()

    def now(self, read: Sequence[str], since: int) -> int | None:
        """Equal to the last one while the list of files and the content of some of them are the same.

        Args:
            read: Relative paths of those whose content counts.
            since: When reading them began, by ``time.time_ns()``.

        Returns:
            None when a change may be missed, because something changed just before, or is not there.
        """
        try:
            with self._lock:
                marks = tuple(map(_mark, self._places))
                if not marks or marks != self._marks:
                    self._places = places = tuple(_places(self._folder))
                    self._marks = marks = tuple(map(_mark, places))
                places = self._places
            contents = [_mark(f"{self._folder}/{path}") for path in read]
        except OSError:
            return None
        latest = max((max(mark[3], mark[4]) for mark in (*marks, *contents) if mark is not None), default=0)
        if None in contents or len(places) > MAX_FOLDERS or latest >= since - SETTLED_NS:
            return None
        return hash((places, marks, tuple(contents)))


def _mark(path: str) -> _Mark | None:
    """What moves when a folder's entries or a file's content change; None for a link that leads nowhere."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _places(folder: str) -> Iterator[str]:
    """The folder, the folders below it that are listed, and the links in them.

    Raises:
        OSError: The folder itself cannot be read.
    """
    pending = [folder]
    count = 0
    while pending and count <= MAX_FOLDERS:
        here = pending.pop()
        count += 1
        yield here
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        count += 1
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in NOT_LISTED:
                        pending.append(entry.path)
        except OSError:
            if here == folder:
                raise
