"""Head, tail and spill; and how output is read."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.sandbox import LocalSandbox
from adk_skills_agent.sandbox.output import Capture, OutputFilter, PathMapping, open_captures
from adk_skills_agent.sandbox.process.supervise import Stream, streams_of
from adk_skills_agent.sandbox.supervisor.channel import Answer
from adk_skills_agent.sandbox.supervisor.frames import base64
from adk_skills_agent.sandbox.threads import Turns


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


async def test_row_415_runs_whose_output_takes_long_to_search_rest_and_lose_nothing(monkeypatch: pytest.MonkeyPatch):
    """Seen: 40 runs that print a byte at a time, beside 20 secrets, and the agent's event loop was 1 to 5 s late."""
    rests: list[float] = []

    def slow(self: OutputFilter, chunk: bytes) -> bytes:
        until = time.thread_time() + 0.003
        while time.thread_time() < until:
            pass
        return chunk

    def rest(self: Turns, stream: Stream, took: float, user: str) -> float:
        rests.append(took)
        return 0.05

    monkeypatch.setattr(OutputFilter, "feed", slow)
    monkeypatch.setattr(Turns, "rest_of", rest)
    code = "import os, time\nfor _ in range(300): os.write(1, b'.'); time.sleep(0.002)"
    policy = SandboxPolicy(min_isolation="process", isolation="process", warm_slots=0, wall_seconds=60)
    requests = [ExecutionRequest((sys.executable, "-c", code), policy) for _ in range(6)]
    results = await asyncio.gather(*map(LocalSandbox().run, requests))
    assert [result.stdout for result in results] == [b"." * 300] * 6
    assert len(rests) >= 6
    assert min(rests) > 0.002


async def test_row_415_output_of_a_session_that_waits_is_searched_at_once():
    fed = []

    class Slow:
        total, name = 0, "stdout"

        def feed(self, data: bytes) -> float:
            fed.append(data)
            return 0.25

    answer = Answer(1, SandboxPolicy(output_flood_bytes=None), {1: Slow()}, lambda _: None)  # type: ignore[dict-item]
    for byte in b"abc":
        assert not answer.take({"t": "out", "id": 1, "s": 1, "b64": base64(bytes([byte]))})
    assert fed == []
    assert answer.pass_on() == 0.25
    assert answer.pass_on() == 0
    answer.take({"t": "out", "id": 1, "s": 1, "b64": base64(b"d")})
    assert answer.take({"t": "done", "id": 1, "exit": 0})
    assert fed == [b"abc", b"d"]


async def test_row_415_both_streams_come_out_in_their_order_unless_they_take_turns_all_the_time():
    """Seen: of output that comes at once, as from a pod, all of stdout came before stderr."""
    fed = []

    class Kept:
        total = 0

        def __init__(self, name: str) -> None:
            self.name = name

        def feed(self, data: bytes) -> float:
            fed.append((self.name, data))
            return 0.0

    streams = {1: Kept("out"), 2: Kept("err")}
    answer = Answer(1, SandboxPolicy(), streams, lambda _: None)  # type: ignore[arg-type]
    for number, data in ((1, b"one"), (2, b"two"), (1, b"thr"), (1, b"ee")):
        answer.take({"t": "out", "id": 1, "s": number, "b64": base64(data)})
    answer.pass_on()
    assert fed == [("out", b"one"), ("err", b"two"), ("out", b"three")]
    fed.clear()
    for number in range(400):
        answer.take({"t": "out", "id": 1, "s": 1 + number % 2, "b64": base64(b".")})
    answer.pass_on()
    assert len(fed) < 20
    assert sum(len(data) for name, data in fed if name == "err") == 200


def test_row_415_who_is_alone_need_not_wait_and_others_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("adk_skills_agent.sandbox.process.supervise.time.monotonic", lambda: now[0])
    turns, streams = Turns(0.5), [object() for _ in range(3)]
    assert turns.rest_of(streams[0], 0.01) == 0
    waits = [turns.rest_of(stream, 0.01) for stream in streams[1:] + streams]
    assert waits == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    now[0] += 60
    assert turns.rest_of(streams[1], 0.01) == 0


def test_row_421_what_nobody_has_used_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("adk_skills_agent.sandbox.process.supervise.time.monotonic", lambda: now[0])
    turns, ones = Turns(0.1, ahead=1.0), [object() for _ in range(13)]
    rests = [turns.rest_of(one, 0.01) for one in ones]  # the first one is alone
    assert rests == pytest.approx([0.0] * 11 + [0.1, 0.2])
    now[0] += 60
    assert turns.rest_of(ones[0], 0.5) == 0
    assert [turns.rest_of(one, 0.06) for one in ones[1:3]] == pytest.approx([0, 0.2])


def test_row_421_users_have_equal_parts_of_half_of_the_loops_time(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("adk_skills_agent.sandbox.process.supervise.time.monotonic", lambda: now[0])
    turns, streams = Turns(0.5), [object() for _ in range(101)]
    many = [turns.rest_of(stream, 0.01, "hostile") for stream in streams[:-1]]
    assert many[-1] == pytest.approx(2 * 0.01 * 99)
    assert turns.rest_of(streams[-1], 0.01, "other") == pytest.approx(0.04)  # of two users
    assert turns.rest_of(streams[0], 0.01, "hostile") == pytest.approx(many[-1] + 0.04)
    now[0] += 60
    assert turns.rest_of(streams[-1], 0.01, "other") == 0


def test_row_442_output_of_many_runs_of_one_user_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch):
    """Seen: 40 runs that print beside 20 secrets, and another user's run of 1.3 s ended at its deadline of 60 s."""

    def slow(self: OutputFilter, chunk: bytes) -> bytes:
        until = time.thread_time() + 0.003
        while time.thread_time() < until:
            pass
        return b""

    def streams(user: str) -> tuple[Stream, Stream]:
        request = ExecutionRequest(("true",), share=(user, "session"))
        captures = open_captures(None, request.policy, user)
        return streams_of(request, request.policy, captures, PathMapping(()), None)

    monkeypatch.setattr(OutputFilter, "feed", slow)
    monkeypatch.setattr("adk_skills_agent.sandbox.process.supervise.OUTPUT_TURNS", Turns(0.5))
    monkeypatch.setattr("adk_skills_agent.sandbox.process.supervise.time.monotonic", lambda: 100.0)
    ann = [stream for _ in range(20) for stream in streams("ann")]
    rests = [stream.feed(b"x") for stream in ann]
    bob = streams("bob")[0]
    assert bob.feed(b"x") < rests[-1] / 4
    assert 0 < ann[0].more_rest() < rests[-1] / 4  # what has rested waits for the last one of its user, not for all


def test_row_442_what_comes_late_is_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("adk_skills_agent.sandbox.process.supervise.time.monotonic", lambda: now[0])
    turns, ones = Turns(0.5), [object() for _ in range(4)]
    for one in ones:
        turns.rest_of(one, 0.01, "ann")
    now[0] += 1  # all have rested
    assert turns.more_rest("ann") <= 0
    turns.rest_of(ones[0], 0.01, "ann")
    assert turns.more_rest("ann") == pytest.approx(0.02)
    assert turns.more_rest("bob") <= 0
