"""Files of results that others may be reading: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write beside, then rename: a reader never sees half a file.

    Raises:
        OSError: The disk did not take it; what was there stays.
    """
    # A new file of a random name: nobody can have put a link in its place, and no name is too long for it.
    descriptor, aside = tempfile.mkstemp(prefix=".adk-skills-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(aside).chmod(0o666 & ~umask)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
