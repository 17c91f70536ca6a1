"""Connections to an engine: whole in both directions, cancelled without loss, closed with or without their loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adk_skills_agent.errors import EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container import streams as attaching
from adk_skills_agent.sandbox.container.container import ContainerChannel
from adk_skills_agent.sandbox.container.engine import Engine, EngineInfo
from adk_skills_agent.sandbox.container.removals import Removals
from adk_skills_agent.sandbox.container.streams import attach, open_wire
from adk_skills_agent.sandbox.contract import IsolationLevel, IsolationReport
from certificates import Authority

Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture(params=["plain", "tls"])
def serve(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """An engine of one connection, which a function of the test plays."""
    threads = []
    context = None
    if request.param == "tls":
        Authority(tmp_path).give_to_both("127.0.0.1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "client"))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "server" / "ca.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(tmp_path / "server" / "cert.pem", tmp_path / "server" / "key.pem")
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    else:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(tmp_path / "s"))
        url = f"unix://{tmp_path / 's'}"
    listening.listen()

    def start(play: Callable[[socket.socket], None]) -> str:
        def once() -> None:
            connection, _ = listening.accept()
            with contextlib.suppress(OSError), connection:  # a client that goes away breaks it off
                if context is None:
                    play(connection)
                else:
                    with context.wrap_socket(connection, server_side=True) as secured:
                        play(secured)

        threads.append(threading.Thread(target=once))
        threads[-1].start()
        return url

    yield start
    for thread in threads:
        thread.join(20)
    listening.close()
    assert not any(thread.is_alive() for thread in threads)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(1 << 16):
        connection.sendall(data)


async def test_much_goes_through_whole_while_the_other_side_is_slow(serve: Serve) -> None:
    data = os.urandom(4 << 20)
    wire = await open_wire(serve(echo))
    sending = asyncio.create_task(wire.send(data))
    got = bytearray()
    while len(got) < len(data):
        got += await wire.receive()
    await sending
    assert bytes(got) == data
    wire.close()
    assert await wire.receive() == b""


async def test_a_cancelled_receive_and_a_cancelled_send_lose_nothing(serve: Serve) -> None:
    data = os.urandom(4 << 20)
    wire = await open_wire(serve(echo))
    receiving = asyncio.create_task(wire.receive())
    sending = asyncio.create_task(wire.send(data))
    await asyncio.sleep(0)
    receiving.cancel()
    sending.cancel()
    await asyncio.wait([receiving, sending])
    got = bytearray(receiving.result() if not receiving.cancelled() else b"")
    while len(got) < len(data):
        got += await wire.receive()
    assert bytes(got) == data
    wire.close()


async def test_closing_wakes_who_waits_and_may_happen_twice_and_in_another_thread(serve: Serve) -> None:
    wire = await open_wire(serve(echo))
    receiving = asyncio.create_task(wire.receive())
    await asyncio.sleep(0.01)
    assert not wire.ended
    await asyncio.to_thread(wire.close)
    async with asyncio.timeout(10):
        assert await receiving == b""
    wire.close()
    assert wire.ended


def test_a_connection_whose_loop_was_thrown_away_is_closed_without_a_warning(serve: Serve) -> None:
    ended = threading.Event()

    def listen(connection: socket.socket) -> None:
        try:
            echo(connection)
        finally:
            ended.set()

    loop = asyncio.new_event_loop()
    wire = loop.run_until_complete(open_wire(serve(listen)))
    waiting = loop.create_task(wire.receive())
    loop.run_until_complete(asyncio.sleep(0.01))
    waiting._log_destroy_pending = False
    loop.close()
    wire.close()
    del wire, waiting, loop
    gc.collect()
    assert ended.wait(30)


async def test_an_engine_that_refuses_to_attach_is_quoted(serve: Serve) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b'HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\n\r\n{"message":"not running"}')

    with pytest.raises(SandboxError, match="not running"):
        await attach(serve(refuse), "abc", "Docker")


async def test_an_engine_has_as_long_to_attach_as_for_any_other_question_and_not_longer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        time.sleep(0.3)
        connection.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n")

    # TLS is agreed on in that time, too: a bound that only catches a limit that is the wrong one.
    monkeypatch.setattr(attaching, "_CONNECT_SECONDS", 5.0)
    (await attach(serve(late), "abc", "Podman")).close()
    monkeypatch.setattr(attaching, "ANSWER_SECONDS", 0.1)
    with pytest.raises(EngineUnavailable, match=r"Podman did not attach to the container within 0\.1 s"):
        await attach(serve(late), "abc", "Podman")


async def test_what_comes_right_behind_the_consent_is_the_first_of_the_stream(serve: Serve) -> None:
    def consent(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n\x01\0\0\0\0\0\0\x05hel")
        connection.sendall(b"lo\x02\0\0\0\0\0\0\x02no")

    stream = await attach(serve(consent), "abc", "Docker")
    got: dict[int, bytes] = {}
    while (piece := await stream.receive()) is not None:
        got[piece[0]] = got.get(piece[0], b"") + piece[1]
    assert got == {1: b"hello", 2: b"no"}
    assert stream.ended
    stream.close()


async def test_the_end_of_the_other_side_is_known_without_a_read_and_what_came_before_is_not_lost(serve: Serve) -> None:
    closed = threading.Event()

    def say(connection: socket.socket) -> None:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        closed.set()
        connection.recv(1)

    wire = await open_wire(serve(say))
    await asyncio.to_thread(closed.wait, 20)
    assert not wire.ended
    got = b""
    while data := await wire.receive():
        assert not got.endswith(b"words")
        got += data
    assert got == b"last words"
    assert wire.ended
    wire.close()


async def test_an_engine_with_a_certificate_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    if "DOCKER_CERT_PATH" not in os.environ:
        pytest.skip("a socket of this machine has no certificate")
    (tmp_path / "others").mkdir()
    Authority(tmp_path / "others").give_to_both("127.0.0.1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "others" / "client"))
    with pytest.raises(ssl.SSLCertVerificationError):
        await open_wire(serve(echo))


@pytest.mark.parametrize("engine_ends", [False, True])
async def test_the_end_of_a_container_is_told_from_that_of_its_engine(tmp_path: Path, engine_ends: bool) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        asked = asyncio.create_task(attach(f"unix://{path}", "abc", "Docker"))
        connection = await asyncio.to_thread(lambda: listening.accept()[0])
        with connection:
            connection.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n\x01\0\0\0\0\0\0\x05hello")
            stream = await asked
        if engine_ends:
            listening.close()
        engine = Engine(f"unix://{path}", None, EngineInfo("docker", "20"))  # type: ignore[arg-type]
        box = ContainerChannel(engine, "abc", stream, IsolationReport(IsolationLevel.CONTAINER, {}, ()), Removals())
        assert await box.receive() == b"hello"
        if engine_ends:
            with pytest.raises(EngineUnavailable, match=r"Docker 20 at unix://.* broke.*start it again"):
                await box.receive()
        else:
            assert await box.receive() == b""
        stream.close()
