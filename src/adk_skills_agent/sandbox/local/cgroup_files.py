"""Read and write the one-line files control groups are made of."""

from __future__ import annotations

import os

_MOST_BYTES = 1 << 16
_PAGE_BYTES = 1 << 12


def put(path: str, text: str) -> None:
    """Write a setting, in one piece as the kernel demands.

    Raises:
        OSError: The kernel refused it, or the file is not there or read-only.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def get(path: str) -> str:
    """The content of a file.

    Raises:
        OSError: It is not there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        said = b""
        while data := os.read(descriptor, _MOST_BYTES):
            said += data
    finally:
        os.close(descriptor)
    return said.decode("ascii", "replace")


def number(path: str) -> int:
    """A file that holds one number.

    Raises:
        OSError: It is not there.
        ValueError: It holds something else.
    """
    return int(get(path))


def opened(path: str) -> int:
    """A descriptor for :func:`now`.

    Raises:
        OSError: It is not there.
    """
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def now(descriptor: int) -> str:
    """What a file of less than a page holds at this moment, however often it is asked: a quarter of :func:`get`'s time.

    Raises:
        OSError: Its group is gone.
    """
    return os.pread(descriptor, _PAGE_BYTES, 0).decode("ascii", "replace")


def value(path: str, key: str) -> int:
    """The number after a key in a file of ``key number`` lines; 0 when there is no such line.

    Raises:
        OSError: It is not there.
    """
    return value_in(get(path), key)


def value_in(text: str, key: str) -> int:
    """The same for what such a file holds."""
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == key:
            return int(rest)
    return 0


def processes(folder: str) -> list[int]:
    """The processes of a group, those of groups below it not included.

    Raises:
        OSError: The group is not there.
    """
    return [int(line) for line in get(f"{folder}/cgroup.procs").split()]
