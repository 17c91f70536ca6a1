"""Putting files that a script produced onto the user's disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write each file below ``folder``, aside first and then renamed; never through a link that leads out of it.

    Args:
        folder: Made when it does not exist and there is something to write.
        files: Relative path to content.

    Returns:
        The paths written, in order.
    """
    written = []
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent.resolve() != folder.resolve() / Path(name).parent:
            print(f"adk-skills: not written, a link leads out of {folder}: {name}", file=sys.stderr)
            continue
        aside = target.with_name(f".{target.name[:200]}.part")
        aside.write_bytes(content)
        aside.replace(target)
        written.append(str(target))
    return written
