"""Read the members of a tar archive that a stranger made, with headers that cost no more than others."""

from __future__ import annotations

import re
import tarfile
from typing import Any, Self

MOST_HEADER_BYTES = 1 << 20
"""Of a long name, or of whatever else an archive says about a member; ``tarfile`` reads it whole."""
_LONG_NUMBER = re.compile(rb"[0-9]{1000}")


class BoundedMember(tarfile.TarInfo):
    """The ``tarinfo`` of such an archive; ``tarfile.ReadError`` for a header that nobody makes.

    Python before 3.11.10 and 3.12.6 takes hours for one with many digits and holds its lock meanwhile (row 318).
    """

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Self:  # noqa: D102  # see TarInfo
        info = super().frombuf(buf, encoding, errors)
        if info.size < 0 or (not info.isfile() and info.size > MOST_HEADER_BYTES):
            raise tarfile.ReadError("a header in it says a size that nobody makes")
        return info

    def _proc_pax(self, archive: Any) -> Any:
        stream = archive.fileobj
        if hasattr(stream, "seek") and not isinstance(stream, tarfile._Stream):  # type: ignore[attr-defined]
            place = stream.tell()
            if _LONG_NUMBER.search(stream.read(self.size)):
                raise tarfile.ReadError("a header in it has a number that nothing has")
            stream.seek(place)
        return super()._proc_pax(archive)  # type: ignore[misc]
