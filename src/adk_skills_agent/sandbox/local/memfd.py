"""A file in memory with a given content, to be handed to another process."""

from __future__ import annotations

import os


def memory_file(content: bytes) -> int:
    """A descriptor of such a file, at its start, which a new program does not get by itself.

    Raises:
        OSError: No descriptor or memory is left.
    """
    return filled(os.memfd_create("adk-skills", os.MFD_CLOEXEC), content)


def filled(descriptor: int, content: bytes) -> int:
    """Write all of it into an empty file and go back to the start; the descriptor is closed when that fails.

    Raises:
        OSError: No memory or room is left.
    """
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
