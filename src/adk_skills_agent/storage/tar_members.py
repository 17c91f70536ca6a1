"""Read the members of a tar archive that a stranger made, with headers that cost no more than others."""

from __future__ import annotations

import re
import tarfile
from typing import Any

_MOST_HEADER_BYTES = 8 << 10  # of a long name, or of whatever else an archive says about one member
_MOST_GLOBAL_BYTES = 1 << 10  # of what it says about all, of which each member gets a copy; git says its commit
_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_LONG_NUMBER = re.compile(rb"[0-9]{60}")
_LENGTH = re.compile(rb"([0-9]{1,5}) ")


class BoundedMember(tarfile.TarInfo):
    """The ``tarinfo`` of such an archive; ``tarfile.ReadError`` for a header that nobody makes.

    ``tarfile`` believes what the records of a header say about their lengths: where they overlap, it keeps the square
    of the header (row 320). Before Python 3.11.10 and 3.12.6 it takes hours for many digits, with its lock held
    (row 318).
    """

    def _proc_member(self, archive: Any) -> Any:
        # Every header of an archive passes here in all versions; some updates of Python read it without frombuf().
        if self.size < 0:
            raise tarfile.ReadError("a member says a size that nothing has")
        if self.type in _EXTENDED and self.size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError("it has a header longer than any that is made")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _proc_pax(self, archive: Any) -> Any:
        if self.type == tarfile.XGLTYPE and (self.size > _MOST_GLOBAL_BYTES or archive.pax_headers):
            raise tarfile.ReadError("it says more about all of its members than any that is made")
        stream = archive.fileobj
        header = stream.read(self._block(self.size))  # type: ignore[attr-defined]
        if _LONG_NUMBER.search(header) or not _is_whole(header[: self.size]):
            raise tarfile.ReadError("it has a header with records that nobody makes")
        archive.fileobj = _Again(header, stream)
        try:
            return super()._proc_pax(archive)  # type: ignore[misc]
        finally:
            archive.fileobj = stream


class _Again:
    """A stream from which something was read already, which the first read gives."""

    def __init__(self, first: bytes, stream: Any) -> None:
        self._first: bytes | None = first
        self._stream = stream

    def read(self, size: int) -> bytes:
        first, self._first = self._first, None
        return self._stream.read(size) if first is None else first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_whole(header: bytes) -> bool:
    """Whether it is records ``LENGTH KEY=VALUE`` and a line end, one behind the other."""
    place = 0
    while place < len(header) and header[place]:
        found = _LENGTH.match(header, place)
        end = place + int(found[1]) if found is not None else place
        if found is None or b"=" not in header[found.end() : end] or header[end - 1 : end] != b"\n":
            return False
        place = end
    return True
