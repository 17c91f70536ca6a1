"""The sandbox's view of paths where it has no file system of its own: ``/skill`` and ``/work`` to the host and back.

Arguments are translated to the host before the run; output is translated back before it is kept, so that no host path
of the workspace or of a mount reaches the model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from adk_skills_agent.sandbox.files.walk import portable

# The folders of a run have random names, so they are recognised wherever they occur. A host path of a mount ends
# where a file name cannot go on: "/x/pdf" in "/x/pdf-tools" is another folder, the same in "/x/pdf." at the end of a
# sentence is not.
_LOOK_AHEAD = 2
_BOUNDARY = rb"(?![A-Za-z0-9_\-\x80-\xff]|\.[A-Za-z0-9_])"


class PathMapping:
    """Both directions of one run's path mapping.

    Args:
        pairs: ``(sandbox path, host path)``; of nested paths the longest wins.
        root: The run's own host folder, with a random name; in output it becomes ``/``.
    """

    def __init__(self, pairs: Iterable[tuple[PurePosixPath, str]], *, root: str | None = None) -> None:
        # Host paths as UTF-8 text like everything that travels; the agent's locale decides nothing (row 54).
        known = ((str(inside), portable(host)) for inside, host in pairs)
        self._to_host = sorted(known, key=lambda pair: -len(pair[0]))
        needles: dict[bytes, bytes] = {}
        for inside, host in self._to_host:
            raw = host.encode("utf-8", "surrogateescape")
            for spelling in (raw, os.path.realpath(raw)):
                if spelling not in {b"/", inside.encode()}:
                    needles.setdefault(spelling, inside.encode())
        own: tuple[bytes, ...] = ()
        if root is not None:
            raw = portable(root).encode("utf-8", "surrogateescape")
            own = (raw, os.path.realpath(raw))
            for spelling in own:
                needles.setdefault(spelling, b"/")
                needles.setdefault(spelling + b"/", b"/")
        self._needles = needles
        ordered = sorted(needles, key=len, reverse=True)
        self._longest = len(ordered[0]) if ordered else 0
        patterns = (re.escape(needle) + (b"" if needle.startswith(own) else _BOUNDARY) for needle in ordered)
        self._pattern = re.compile(b"|".join(patterns)) if ordered else None

    def argument(self, value: str) -> str:
        """A host path for an argument that is, or starts with, a path of the sandbox; else the argument as it is."""
        if value[:1] == "/":
            for inside, host in self._to_host:
                if value == inside or value.startswith(f"{inside}/"):
                    return host + value[len(inside) :]
        return value

    def directory(self, value: PurePosixPath) -> str:
        """The host path of a folder of the sandbox.

        Raises:
            ValueError: It is not in the workspace or a mount.
        """
        text = str(value)
        host = self.argument(text)
        if host == text or ".." in value.parts or "\0" in text:
            known = ", ".join(inside for inside, _ in sorted(self._to_host))
            raise ValueError(f"cwd {text!r} is not inside the sandbox; use a folder under {known}.")
        return host

    def text(self, data: bytes) -> bytes:
        """Output with host paths replaced by the sandbox's."""
        if self._pattern is None or not any(needle in data for needle in self._needles):
            return data
        return self._pattern.sub(lambda match: self._needles[match.group()], data)

    def stream(self) -> PathMappingStream:
        """The same for a stream that arrives in pieces."""
        return PathMappingStream(self)

    def split(self, data: bytes) -> int:
        """Where to cut ``data`` so that no host path, or what decides whether it ends there, is torn apart."""
        start = max(0, len(data) - self._longest - _LOOK_AHEAD)
        while (start := data.find(b"/", start)) >= 0:
            rest = data[start:]
            for needle in self._needles:
                if needle.startswith(rest) or (rest.startswith(needle) and len(rest) < len(needle) + _LOOK_AHEAD):
                    return self._before_match(data, start)
            start += 1
        return len(data)

    def _before_match(self, data: bytes, cut: int) -> int:
        """The same place, or the start of the host path it is inside: a path may contain the beginning of another."""
        if self._pattern is not None:
            for match in self._pattern.finditer(data):
                if match.start() >= cut:
                    break
                if match.end() > cut:
                    return match.start()
        return cut


class PathMappingStream:
    """Replaces paths in a stream; holds back at most one path's length until the next piece."""

    __slots__ = ("_held", "_view")

    def __init__(self, view: PathMapping) -> None:
        self._view = view
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        data = self._held + chunk if self._held else chunk
        cut = self._view.split(data)
        self._held = data[cut:]
        return self._view.text(data[:cut] if self._held else data)

    def close(self) -> bytes:
        """What was held back."""
        data, self._held = self._held, b""
        return self._view.text(data)
