"""Putting files that a script produced onto the user's disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from adk_skills_agent.cli.output import safe
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.whole_file import write_whole


def check_output_folder(folder: Path) -> None:
    """Find out before anything runs whether files can be put there.

    Raises:
        ConfigError: It is no folder, or cannot be made or written.
    """
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ConfigError(f"--output {safe(str(folder))}: {safe(str(nearest))} is not a folder. Give another one.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"--output {safe(str(folder))} cannot be written. Give a folder that you may write to.")


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write each file below ``folder``, aside first and then renamed; never through a link that leads out of it.

    A file that cannot be written is said on stderr and left out of the result.

    Args:
        folder: Made when it does not exist and there is something to write.
        files: Relative path to content.

    Returns:
        The paths written, in order.
    """
    written = []
    for name, content in files.items():
        target = folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.parent.resolve() != folder.resolve() / Path(name).parent:
                raise OSError(0, f"a link leads out of {folder}")
            write_whole(target, content)
        except OSError as error:
            print(f"adk-skills: not written: {safe(str(target))}: {safe(error.strerror or '')}", file=sys.stderr)
        else:
            written.append(str(target))
    return written
