"""Head, tail and spill."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.sandbox.output import Capture


@given(st.lists(st.binary(max_size=30), max_size=30), st.integers(0, 60))
def test_any_stream_keeps_three_quarters_from_its_start_and_one_from_its_end(chunks, limit):
    capture = Capture(limit)
    for chunk in chunks:
        capture.add(chunk)
    whole = b"".join(chunks)
    if len(whole) <= limit:
        assert capture.kept() == whole
        assert not capture.truncated
        assert capture.cut_at is None
    else:
        head = limit * 3 // 4
        tail = limit - head
        assert capture.kept() == whole[:head] + (whole[-tail:] if tail else b"")
        assert capture.cut_at == head


def test_a_spill_file_appears_only_when_needed_has_everything_and_is_bounded(tmp_path: Path):
    capture = Capture(10, tmp_path / "a" / "x", 25)
    capture.add(b"0123456789")
    assert not (tmp_path / "a").exists()
    capture.add(b"abcdefghij")
    capture.add(b"ABCDEFGHIJ")
    assert capture.finish() == tmp_path / "a" / "x"
    assert (tmp_path / "a" / "x").read_bytes() == b"0123456789abcdefghijABCDE"


def test_a_spill_file_never_replaces_a_file_or_follows_a_link(tmp_path: Path):
    (tmp_path / "x").write_text("mine")
    (tmp_path / "y").symlink_to(tmp_path / "z")
    for name in ("x", "y"):
        capture = Capture(1, tmp_path / name)
        capture.add(b"long")
        assert capture.finish() is None
        assert capture.problem is not None
        capture.discard()
    assert (tmp_path / "x").read_text() == "mine"
    assert not (tmp_path / "z").exists()


def test_a_discarded_spill_file_is_gone(tmp_path: Path):
    capture = Capture(1, tmp_path / "x")
    capture.add(b"long")
    assert (tmp_path / "x").exists()
    capture.discard()
    assert not (tmp_path / "x").exists()
