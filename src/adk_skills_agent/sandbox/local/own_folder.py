"""A private temporary folder: it goes with its holder, and with the next agent when this one is killed (row 31)."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from adk_skills_agent.sandbox.local.abandoned import own_prefix


def own_folder(kind: str, holder: object) -> tuple[Path, weakref.finalize[..., object]]:
    """Make one.

    Args:
        kind: What it is for, in small letters; a part of its name.
        holder: The folder is removed when this is garbage and when the interpreter ends, but never by a forked child.

    Returns:
        Its path, and what removes it earlier.

    Raises:
        OSError: The disk is full, or the folder for temporary files cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix=own_prefix(kind)))
    return folder, weakref.finalize(holder, _remove, folder, os.getpid())


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not take its parent's files away
        shutil.rmtree(folder, ignore_errors=True)
