"""The framed channel between host, supervisor and kernel process: u32 length, then a JSON object (SANDBOX.md 4.4).

Every side uses this very file: its text is part of the program in the sandbox (:mod:`.program`). So it imports nothing
of this package and runs on Python 3.8.

Host to supervisor (``t`` is the kind; what has a default may be left out):

====================  ==================================================================================================
``hello``             ``proto``; the first frame, may come again. ``limits``: resource limits by name (``NOFILE``), or
                      the soft and the hard one. ``alone``: every process in the sandbox is its own, and may be
                      killed. ``inodes``: most files below each of these paths. ``sockets``: most in its network,
                      ``socket_bytes``: most in those for TCP and datagrams. ``terminals``: most of them. ``tasks``:
                      most processes and threads. ``watches``: most files watched (epoll) or locked. ``nice``:
                      niceness of what it starts. ``batch``: ``close`` waits for what runs.
``put``               ``path`` below the working directory, or absolute; ``kind`` ``file`` | ``folder`` | ``link``,
                      ``mode``, ``b64`` (the content, or the next piece of it), ``more`` (another piece follows),
                      ``target`` (of a link). Not answered, unless it fails: ``failed``.
``part``              ``of`` ``code`` | ``stdin``, ``b64``: a piece of what the next ``exec`` uses, for more than fits.
``exec``              ``id`` (increasing), ``kind`` ``code`` | ``argv``, ``code`` or ``argv``, ``cwd``, ``env`` (for
                      ``argv`` the whole environment, for ``code`` what is added), ``deadline_ms`` (null: none),
                      ``grace_ms``, ``flood`` (bytes per stream, null: none), ``files`` (``count``, ``each``, ``total``;
                      null: collect none), ``cpu_seconds``, ``pids`` (of ``argv``), ``restrict`` (of ``code``: fewer
                      builtins), ``last`` (of ``argv``: nothing comes after it, ``bye`` follows its ``done``).
``interrupt``         ``id``: SIGINT to what runs, as at the deadline.
``ping``              ``n``
``close``             end everything and exit.
====================  ==================================================================================================

Supervisor to host:

====================  ==================================================================================================
``ready``             answers ``hello``: ``pid``, ``proto``, ``python`` (its version), ``guarded`` (nothing there can
                      look into the supervisor).
``out``               ``id``, ``s`` (1 stdout, 2 stderr), ``b64``; ``late`` when an earlier exec's processes wrote it.
``file``              ``id``, ``path``, ``mode``, ``b64``, ``more``: a file the exec added or changed; ``same``
                      instead of ``b64``: another name of that one, sent before.
``skip``              ``id``, ``path``, ``reason``: one that is not sent.
``gone``              ``id``, ``path``: one that it removed.
``done``              ``id``, ``exit`` and ``signal`` (one is null), ``ms``, ``timed_out``, ``interrupted``, ``flood``
                      (1 or 2: that stream was too much), ``lost`` (a clause: why the Python state is gone; null: it is
                      there), ``started`` (false: the command could not be started, ``reason`` says why), ``cpu_ms``,
                      ``out_of_cpu``, ``oom`` (the kernel ended a process for its memory; with ``sockets`` it was in
                      these), ``disk`` (where too many files were), ``terminals``, ``tasks`` and ``watches`` (there
                      were more), ``waits`` (who looks at these was kept waiting),
                      ``killed`` (processes left by a command), ``unlisted`` (files neither sent nor named), ``cut``
                      (only so many entries were looked at). The last frame of its id.
``failed``            ``of`` (a kind), ``reason``: a ``put`` or a frame could not be carried out.
``pong``              ``n``
``bye``               answers ``close``, and follows the ``done`` of the ``last`` one: nothing is left but the
                      supervisor, which ends with the channel. Not in a batch.
====================  ==================================================================================================

The supervisor passes ``part`` and ``exec`` of code on to the kernel process, with a ``token`` and, beside the first
bytes, the descriptors of its output. The kernel answers with ``done``: ``token``, ``exit``, ``interrupted``,
``out_of_cpu`` and ``cpu_ms``.
"""

from __future__ import annotations

import binascii
import json
import os
from typing import Any, Dict, Iterator

PROTOCOL = 1
"""The version of this protocol; both sides must have the same."""
MOST_BYTES = 1 << 20
"""Largest frame, in bytes of JSON."""
PIECE_BYTES = 512 << 10
"""Raw bytes of content that surely fit in one frame once they are base64."""

_LENGTH_BYTES = 4
_MOST_KIND_CHARS = 20  # it is in sentences for the model and the log
# Made once: json.dumps() makes one each time. And code of a session may replace what is in the module.
_as_json, _from_json = json.JSONEncoder(separators=(",", ":")).encode, json.JSONDecoder().decode
Frame = Dict[str, Any]


class FrameError(ValueError):
    """What came is not a frame of this protocol. Nothing after it can be trusted: the channel is to be closed."""


def encode(frame: Frame) -> bytes:
    """One frame as bytes."""
    data = _as_json(frame).encode("utf-8", "surrogatepass")
    if len(data) > MOST_BYTES:
        raise FrameError(f"A frame of kind {frame.get('t')!r} has {len(data):,} bytes; {MOST_BYTES:,} are possible.")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def decode(data: bytes) -> Frame:
    """The frame in ``data``, which is what follows a length."""
    try:
        frame = _from_json(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"A frame is not JSON: {type(error).__name__}.") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("t"), str) or len(frame["t"]) > _MOST_KIND_CHARS:
        raise FrameError("A frame is not an object with a kind.")
    return frame


class FrameReader:
    """Takes bytes as they come and gives frames. Holds at most one incomplete frame."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._held = bytearray()
        self._most = most

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing of a next frame has come yet."""
        return not self._held

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes, in order; what is left over is kept.

        A FrameError says that a length is 0 or above ``most``, before its bytes are taken, or is :func:`decode`'s.
        """
        held = self._held
        held += data
        at = 0
        try:
            while len(held) - at >= _LENGTH_BYTES:
                length = int.from_bytes(held[at : at + _LENGTH_BYTES], "big")
                if not 0 < length <= self._most:
                    raise FrameError(f"A frame announces {length:,} bytes; 1 to {self._most:,} are possible.")
                end = at + _LENGTH_BYTES + length
                if len(held) < end:
                    break
                piece = bytes(held[at + _LENGTH_BYTES : end])
                at = end
                yield decode(piece)
        finally:
            del held[:at]


def text(frame: Frame, name: str, default: Any = None) -> str:
    """A field that must be a string."""
    found: str = field(frame, name, str, default)
    return found


def number(frame: Frame, name: str, default: Any = None) -> int:
    """A field that must be a whole number; see :func:`field`."""
    found: int = field(frame, name, int, default)
    return found


def flag(frame: Frame, name: str) -> bool:
    """A field that is true or false, false when it is left out; see :func:`field`."""
    found: bool = field(frame, name, bool, default=False)
    return found


def field(frame: Frame, name: str, kind: type[Any], default: Any = None) -> Any:
    """A field of a frame; a FrameError when it is missing or something else."""
    value = frame.get(name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FrameError(f"A frame of kind {frame['t']!r} has no usable {name!r}.")
    return value


def content(frame: Frame, name: str = "b64") -> bytes:
    """The bytes of a base64 field, none when it is left out."""
    try:
        return binascii.a2b_base64(text(frame, name, ""))
    except ValueError as error:
        raise FrameError(f"A frame of kind {frame['t']!r} has no usable {name!r}.") from error


def base64(data: bytes | bytearray) -> str:
    """Bytes as a field."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def pieces(data: bytes | bytearray) -> list[tuple[bytes | bytearray, bool]]:
    """Content in pieces that fit in a frame each, with whether another follows; one empty piece for no content."""
    starts = range(0, max(len(data), 1), PIECE_BYTES)
    return [(data[at : at + PIECE_BYTES], at + PIECE_BYTES < len(data)) for at in starts]


def read_pieces(descriptor: int, most: int) -> Iterator[tuple[bytes, bool]]:
    """A file's content in such pieces; no piece follows once ``most`` bytes were read."""
    piece, count = os.read(descriptor, PIECE_BYTES), 0
    while True:
        count += len(piece)
        following = os.read(descriptor, PIECE_BYTES) if piece and count <= most else b""
        yield piece, bool(following)
        if not following:
            return
        piece = following


def parts(of: str, data: bytes | bytearray) -> Iterator[bytes]:
    """The ``part`` frames, encoded, of what may be too long for one frame."""
    for piece, _ in pieces(data):
        yield encode({"t": "part", "of": of, "b64": base64(piece)})
