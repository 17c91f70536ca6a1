"""What process 1 of a sandbox tells the agent is bounded: a module that was imported ahead may say it (row 125)."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from adk_skills_agent.sandbox.local.init.control import InitControl


@pytest.mark.parametrize("piece", [b"x" * 4096, b"ended 0\n" * 512, b"used 1 1\n" * 400])
def test_row_125_one_who_never_stops_talking_keeps_nobody(piece: bytes) -> None:
    """Seen: a loop without an end in the agent, whose memory grew."""
    here, there = socket.socketpair()
    control = InitControl(here)

    def talk() -> None:
        with contextlib.suppress(OSError):
            while True:
                there.sendall(piece)

    thread = threading.Thread(target=talk)
    thread.start()
    time.sleep(0.05)
    listening = threading.Thread(target=control.wait_until_used, args=(20.0,), daemon=True)
    listening.start()
    listening.join(15.0)
    is_done = not listening.is_alive()
    control.close()
    there.close()
    thread.join()
    assert is_done
    assert len(control._said) < 100_000


@pytest.mark.parametrize(
    "line", [b"ended x", b"ended " + b"9" * 5000, b"used 1 -", b"failed step x", b"\xff \xfe", b""]
)
def test_row_125_what_is_no_number_is_not_heard(line: bytes) -> None:
    here, there = socket.socketpair()
    control = InitControl(here)
    there.sendall(line + b"\nended 256\nused 5 7\n")
    there.close()
    control.listen()
    control.close()
    assert control.failure is None
    assert control.status == 256
    assert control.used == (5e-6, 7 << 10)


def test_what_a_supervisor_tells_of_a_run_without_namespaces_is_heard_too() -> None:
    here, there = socket.socketpair()
    control = InitControl(here)
    there.sendall(b"failed exec 2\nended 32512\nswept 4\nused 300000 300\n")
    control.listen()
    assert (control.failure, control.status, control.swept) == (("exec", 2), 32512, 4)
    assert control.used == (0.3, 300 << 10)
    there.close()
    control.close()
