"""What a session believes of what comes from its box: nothing that is not its protocol. The box is a script here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import IsolationLevel, IsolationReport, SandboxPolicy, Status
from adk_skills_agent.sandbox.sessions.session import PythonSession, SandboxEnd, SessionRequest, SessionState
from adk_skills_agent.sandbox.supervisor import frames

READY = {"t": "ready", "pid": 1, "proto": frames.PROTOCOL, "python": "3.11.2", "guarded": True}


class WrittenBox:
    """A channel that says what it was told to, one piece for each receive; then nothing, or the end."""

    isolation = IsolationReport(IsolationLevel.PROCESS, {})
    view = None
    is_open = True

    def __init__(self, *said: bytes | dict[str, Any] | None, end: SandboxEnd | None = None) -> None:
        self._said = [frames.encode(one) if isinstance(one, dict) else one for one in said]
        self._end = SandboxEnd() if end is None else end
        self._killed = asyncio.Event()
        self.sent = b""
        self.closed = 0

    async def start(self, policy: SandboxPolicy) -> WrittenBox:
        return self

    async def keeps_limits(self, cpu_seconds: float | None) -> bool:
        return True

    async def send(self, data: bytes) -> None:
        self.sent += data

    async def receive(self) -> bytes:
        if self._killed.is_set():
            return b""
        if self._said:
            piece = self._said.pop(0)
            return b"" if piece is None else piece
        await self._killed.wait()
        return b""

    def kill(self) -> None:
        self._killed.set()

    async def close(self) -> SandboxEnd:
        self.closed += 1
        return self._end


async def started(
    *said: bytes | dict[str, Any] | None, end: SandboxEnd | None = None
) -> tuple[PythonSession, WrittenBox]:
    box = WrittenBox(READY, *said, end=end)
    session = PythonSession("a", box)
    assert session.state is SessionState.NEW
    await session.start(SandboxPolicy())
    assert session.state is SessionState.READY
    return session, box


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({**READY, "proto": 99}, "speaks protocol 99, this agent 1"),
        ({"t": "failed", "of": "frame", "reason": "The sandbox speaks protocol 2, the host 1."}, "refused to work"),
        ({"t": "done", "id": 1}, "protocol None"),
        (b"Welcome to Alpine Linux 3.20\n", "does not speak our protocol"),
        (None, "ended before it was ready"),
    ],
    ids=["version", "refusal", "other-frame", "banner", "end"],
)
async def test_a_box_that_is_not_ours_is_refused_and_closed(said: Any, sentence: str) -> None:
    box = WrittenBox(said)
    session = PythonSession("a", box)
    with pytest.raises(SandboxError, match=sentence):
        await session.start(SandboxPolicy())
    assert (session.state, box.closed) == (SessionState.CLOSED, 1)


async def test_a_box_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adk_skills_agent.sandbox.sessions.session._READY_SECONDS", 0.1)
    session = PythonSession("a", WrittenBox())
    with pytest.raises(SandboxError, match=r"did not answer within 0\.1 s"):
        await session.start(SandboxPolicy())


async def test_row_424_others_go_on_while_a_box_always_has_more_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: sessions that print a byte at a time kept all code executions of all users for 30 s."""
    taken = 0

    class Talkative(WrittenBox):
        async def receive(self) -> bytes:
            nonlocal taken
            taken += 1
            if taken == 1:
                return frames.encode(READY)
            return frames.encode({"t": "done" if over else "out", "id": 1, "s": 1, "b64": "eA==", "exit": 0})

    async def others() -> None:
        nonlocal over
        for _ in range(40):
            turns.append(taken)
            await asyncio.sleep(0)
        over = True

    over, turns = False, list[int]()
    session = PythonSession("a", Talkative())
    await session.start(SandboxPolicy())
    async with asyncio.timeout(60):
        result, _ = await asyncio.gather(session.execute(SessionRequest("")), others())
    assert result.stdout == b"x" * (taken - 2)
    assert turns[-1] - turns[1] < 80, turns  # a piece at a time, and not all of them


WRONG = {
    "gigabyte": (1 << 30).to_bytes(4, "big"),
    "text": b"Killed\n",
    "other-execution": {"t": "done", "id": 7, "exit": 0},
    "unknown-kind": {"t": "surprise", "id": 1},
    "third-stream": {"t": "out", "id": 1, "s": 3, "b64": ""},
    "no-stream": {"t": "out", "id": 1, "b64": ""},
    "outside-file": {"t": "file", "id": 1, "path": "../../etc/passwd", "b64": ""},
    "absolute-file": {"t": "file", "id": 1, "path": "/etc/passwd", "b64": ""},
    "endless-file": {"t": "file", "id": 1, "path": "a", "b64": frames.base64(bytes(5000)), "more": True},
    "host-at-fault": {"t": "failed", "of": "frame", "reason": "Execution 1 cannot begin now."},
}


@pytest.mark.parametrize("said", WRONG.values(), ids=list(WRONG))
@pytest.mark.requirement("S0-111")
async def test_what_breaks_the_protocol_ends_the_session_and_is_no_result_of_the_code(said: Any) -> None:
    endless = isinstance(said, dict) and said.get("more")
    session, box = await started(*([said] * 200 if endless else [said]))
    with pytest.raises(SandboxError, match="broke its protocol"):
        await session.execute(SessionRequest("1", SandboxPolicy(max_file_bytes=100_000)))
    assert (session.state, box.closed) == (SessionState.UNHEALTHY, 1)
    with pytest.raises(SandboxError, match="cannot run code now: it is unhealthy"):
        await session.execute(SessionRequest("1"))
    assert await session.is_alive() is False


async def test_an_end_without_an_answer_is_told_with_the_limit_that_caused_it() -> None:
    end = SandboxEnd(Status.OUT_OF_MEMORY, ("Stopped: too much memory.",), cpu_ms=5.0, max_rss_bytes=7)
    session, _ = await started({"t": "out", "id": 1, "s": 1, "b64": frames.base64(b"before")}, None, end=end)
    result = await session.execute(SessionRequest("1"))
    assert (result.status, result.oom_killed, result.signal, result.stdout) == ("oom", True, 9, b"before")
    assert (result.cpu_ms, result.max_rss_bytes) == (5.0, 7)
    assert result.notes[0] == "Stopped: too much memory."
    assert "is lost: its sandbox ended" in result.notes[1]
    assert session.lost == "its sandbox ended"


async def test_a_box_that_does_not_keep_the_deadline_is_ended_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adk_skills_agent.sandbox.sessions.session._LATE_SECONDS", 0.1)
    session, box = await started()
    policy = SandboxPolicy(wall_seconds=0.1, term_grace_seconds=0.1)
    result = await session.execute(SessionRequest("while True: pass", policy))
    assert (result.status, result.timed_out, session.state) == ("timeout", True, SessionState.UNHEALTHY)
    assert box.closed == 1


async def test_a_box_that_floods_although_it_should_not_is_ended_by_the_host() -> None:
    piece = {"t": "out", "id": 1, "s": 1, "b64": frames.base64(bytes(700_000))}
    session, _ = await started(*[piece] * 20)
    result = await session.execute(SessionRequest("1", SandboxPolicy(output_flood_bytes=1000, output_bytes=10)))
    assert (result.status, len(result.stdout), session.state) == ("output_limit", 10, SessionState.UNHEALTHY)


async def test_more_files_than_agreed_are_left_out_with_a_reason() -> None:
    said = [
        {"t": "file", "id": 1, "path": f"{n}.txt", "b64": frames.base64(bytes(60)), "more": False} for n in range(4)
    ]
    session, _ = await started(*said, {"t": "done", "id": 1, "exit": 0, "signal": None, "lost": None})
    policy = SandboxPolicy(max_files=3, max_file_bytes=60, max_total_file_bytes=130)
    result = await session.execute(SessionRequest("1", policy))
    assert [file.path for file in result.files] == ["0.txt", "1.txt"]
    assert [name for name, _ in result.skipped_files] == ["2.txt", "3.txt"]


async def test_code_that_was_not_run_is_an_error_of_the_sandbox_and_the_session_goes_on() -> None:
    session, _ = await started({"t": "done", "id": 1, "started": False, "reason": "No space left on device"})
    with pytest.raises(SandboxError, match=r"The code was not run: No space left on device\."):
        await session.execute(SessionRequest("1"))
    assert session.state is SessionState.READY


async def test_two_executions_at_once_in_one_session_are_refused() -> None:
    session, box = await started()
    first = asyncio.create_task(session.execute(SessionRequest("1")))
    await asyncio.sleep(0)
    with pytest.raises(SandboxError, match="it is busy"):
        await session.execute(SessionRequest("2"))
    box.kill()
    assert (await first).status == "error"


async def test_an_interrupt_goes_to_the_execution_in_flight_only() -> None:
    session, box = await started()
    await session.interrupt()
    assert b"interrupt" not in box.sent
    running = asyncio.create_task(session.execute(SessionRequest("1")))
    await asyncio.sleep(0.01)
    await session.interrupt()
    assert session.state is SessionState.BUSY
    assert b'{"t":"interrupt","id":1}' in box.sent
    box.kill()
    await running
    await session.close()
    assert session.state is SessionState.CLOSED
