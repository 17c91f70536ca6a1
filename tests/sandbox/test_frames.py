"""The protocol between host and box: bytes in, frames out, and nothing that came wrong is believed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adk_skills_agent.sandbox.supervisor import frames

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_FRAMES = st.builds(
    lambda rest, kind: {**rest, "t": kind}, st.dictionaries(st.text(), _VALUES, max_size=4), st.text(max_size=20)
)


@settings(max_examples=20)
@given(st.lists(_FRAMES, max_size=4), st.lists(st.integers(1, 40), max_size=60))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(sent: list[frames.Frame], cuts: list[int]) -> None:
    data = b"".join(map(frames.encode, sent))
    reader = frames.FrameReader()
    found: list[frames.Frame] = []
    for size in [*cuts, len(data)]:
        found.extend(reader.feed(data[:size]))
        data = data[size:]
    assert found == sent
    assert reader.is_between_frames


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error_of_the_protocol(data: bytes) -> None:
    reader = frames.FrameReader()
    try:
        for frame in reader.feed(data):
            assert isinstance(frame["t"], str)
    except frames.FrameError:
        pass


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((1 << 30).to_bytes(4, "big"), "announces 1,073,741,824 bytes"),
        ((frames.MOST_BYTES + 1).to_bytes(4, "big"), "announces"),
        (bytes(4), "announces 0 bytes"),
        ((2).to_bytes(4, "big") + b"{]", "not JSON"),
        ((2).to_bytes(4, "big") + b"\xff\xff", "not JSON"),
        ((2).to_bytes(4, "big") + b"[]", "not an object"),
        ((2).to_bytes(4, "big") + b"{}", "not an object with a kind"),
        ((7).to_bytes(4, "big") + b'{"t":1}', "not an object with a kind"),
        ((108).to_bytes(4, "big") + b'{"t":"' + b"k" * 100 + b'"}', "not an object with a kind"),
        ((100_000).to_bytes(4, "big") + b"[" * 100_000, "not JSON"),
    ],
    ids=["gigabyte", "one-too-many", "empty", "broken", "bytes", "list", "no-kind", "number-kind", "long-kind", "deep"],
)
def test_row_164_what_is_no_frame_is_refused_before_it_is_taken(data: bytes, reason: str) -> None:
    with pytest.raises(frames.FrameError, match=reason):
        list(frames.FrameReader().feed(data))


def test_frames_before_a_wrong_one_still_come() -> None:
    found = frames.FrameReader().feed(frames.encode({"t": "pong", "n": 1}) + bytes(4))
    assert next(found) == {"t": "pong", "n": 1}
    with pytest.raises(frames.FrameError):
        next(found)


def test_a_frame_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(frames.FrameError, match="1,048,5"):
        frames.encode({"t": "out", "b64": "x" * frames.MOST_BYTES})


@pytest.mark.parametrize("size", [0, 1, frames.PIECE_BYTES, frames.PIECE_BYTES + 1, 3 * frames.PIECE_BYTES])
def test_content_of_any_size_fits_into_frames(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    content = content[:size]
    pieces = frames.pieces(content)
    assert [more for _, more in pieces] == [True] * (len(pieces) - 1) + [False]
    sent = [frames.encode({"t": "put", "path": "x", "b64": frames.base64(piece)}) for piece, _ in pieces]
    found = [frames.content(frame) for frame in frames.FrameReader().feed(b"".join(sent))]
    assert b"".join(found) == content


@pytest.mark.parametrize("value", [None, "1", 1.5, True, [1]])
def test_a_field_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(frames.FrameError, match="'done' has no usable 'id'"):
        frames.number({"t": "done", "id": value}, "id")
    with pytest.raises(frames.FrameError):
        frames.content({"t": "out", "b64": 1})
