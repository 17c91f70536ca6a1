"""What tells that a file or a folder is unchanged, and when that can be believed."""

from __future__ import annotations

import os

NO_STAMP = 0
"""The stamp of what is read again every time."""

_SECOND = 1_000_000_000
_FINE_WINDOW_NS = 100_000_000  # the kernel's clock for time stamps ticks every 1 to 10 ms
_COARSE_WINDOW_NS = 2 * _SECOND  # FAT and some network file systems keep whole seconds, or every other one


def stamp_of(status: os.stat_result) -> int:
    """One number for size, mtime, ctime and inode: thousands are kept, and compared at each look.

    The ctime is in it because a program can set the mtime back, but not the ctime. The hash of a tuple of integers is
    the same in every process of one Python version, which the index on disk notes.
    """
    return hash((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)) or 1


def stamp_of_link(link: os.stat_result, target: os.stat_result) -> int:
    """The stamp of a file that is reached by a link: it changes when either does."""
    return hash((stamp_of(link), stamp_of(target))) or 1


def is_settled(status: os.stat_result, read_at_ns: int) -> bool:
    """Whether a later change is sure to give another stamp.

    A file that is changed twice within one tick of the file system's clock can have the same stamp both times, so
    what was read that soon after its last change must be read again (git calls such entries racy).

    Args:
        status: The stat from before reading.
        read_at_ns: Wall clock before reading, in nanoseconds.
    """
    changed = status.st_ctime_ns
    window = _COARSE_WINDOW_NS if changed % _SECOND == 0 else _FINE_WINDOW_NS
    return max(changed, status.st_mtime_ns) < read_at_ns - window
