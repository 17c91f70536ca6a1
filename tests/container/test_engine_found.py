"""Which engine is taken, and what is said when none can be: typed, in seconds, with what to do."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError, EngineUnavailable
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sandbox.container import ContainerSandbox, engine
from adk_skills_agent.sandbox.container import engine as engine_errors
from adk_skills_agent.sandbox.container.engine import connect_now, engine_urls
from adk_skills_agent.sandbox.contract import ExecutionRequest


def test_what_is_named_is_the_only_place() -> None:
    environment = {"DOCKER_HOST": "unix:///docker", "CONTAINER_HOST": "unix:///podman"}
    assert engine_urls("unix:///own", environment) == ("unix:///own",)
    assert engine_urls(None, environment) == ("unix:///docker",)
    assert engine_urls(None, {"CONTAINER_HOST": "unix:///podman"}) == ("unix:///podman",)


def test_sockets_that_exist_are_taken_in_order(tmp_path: Path) -> None:
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman" / "podman.sock").touch()
    (tmp_path / ".docker" / "run").mkdir(parents=True)
    (tmp_path / ".docker" / "run" / "docker.sock").touch()
    found = engine_urls(None, {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)})
    own = [url for url in found if str(tmp_path) in url]
    assert own == [f"unix://{tmp_path}/.docker/run/docker.sock", f"unix://{tmp_path}/podman/podman.sock"]


@pytest.mark.parametrize("url", ["ssh://me@host", "/var/run/docker.sock", "unix://", "ftp://host"])
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        engine_urls(url, {})


async def test_without_the_sdk_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(EngineUnavailable, match=re.escape(install_hint("container"))):
        await ContainerSandbox(base_url="unix:///nowhere").run(ExecutionRequest(("true",)))


def test_without_an_engine_the_error_says_what_to_install_or_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setattr(engine_errors.shutil, "which", lambda _name: None)
    with pytest.raises(EngineUnavailable, match="apt-get install podman"):
        connect_now(())
    monkeypatch.setattr(engine_errors.shutil, "which", lambda name: name if name == "podman" else None)
    with pytest.raises(EngineUnavailable, match=r"Podman is installed but not running\. Start it"):
        connect_now(())
    monkeypatch.setattr(engine_errors.shutil, "which", lambda name: name)
    with pytest.raises(EngineUnavailable, match=r"Podman and Docker are installed but not running\. Start one"):
        connect_now(())


def test_an_engine_that_is_down_is_said_with_its_socket(tmp_path: Path) -> None:
    pytest.importorskip("docker")
    path = tmp_path / "gone.sock"
    with pytest.raises(EngineUnavailable, match=r"no such socket.*Start it"):
        connect_now((f"unix://{path}",))
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.close()  # the file stays, and nobody listens
    with pytest.raises(EngineUnavailable, match=r"nobody listens there.*Start it") as caught:
        connect_now((f"unix://{path}",))
    assert caught.value.reasons == (f"unix://{path}: nobody listens there",)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_socket_that_may_not_be_used_is_said_with_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("docker")
    folder = tmp_path
    while str(folder) not in {"/", "/tmp"}:
        folder.chmod(0o755)
        folder = folder.parent
    with serving(tmp_path / "engine.sock", lambda _connection: None) as url:
        os.chmod(tmp_path / "engine.sock", 0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(EngineUnavailable, match=r"permission denied.*group docker"):
                connect_now((url,))
        finally:
            os.seteuid(0)


def test_an_engine_that_never_answers_is_given_up_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 0.5)
    held: list[socket.socket] = []
    with serving(tmp_path / "engine.sock", held.append) as url:
        began = time.monotonic()
        with pytest.raises(EngineUnavailable, match=r"does not answer.*restart it"):
            connect_now((url,))
        assert time.monotonic() - began < 20
    for connection in held:
        connection.close()


def test_what_listens_and_is_no_engine_is_said(tmp_path: Path) -> None:
    pytest.importorskip("docker")

    def hang_up(connection: socket.socket) -> None:
        connection.close()

    with (
        serving(tmp_path / "engine.sock", hang_up) as url,
        pytest.raises(EngineUnavailable, match="No container engine"),
    ):
        connect_now((url,))


@contextmanager
def serving(path: Path, answer: object) -> Iterator[str]:
    """Something that listens on a socket and does with each connection what it is told."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    server.settimeout(0.05)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                continue
            answer(connection)  # type: ignore[operator]

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"unix://{path}"
    finally:
        over.set()
        thread.join()
        server.close()


async def test_an_answer_nobody_waits_for_any_more_is_not_reported_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    def refuse() -> None:
        go_on.wait(20)
        raise EngineUnavailable("too late")

    asked = engine.submit(refuse)
    waiting = asyncio.ensure_future(asyncio.shield(asked))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await asyncio.wait([asked])
    await asyncio.sleep(0)
    del asked
    gc.collect()
    assert caplog.text == ""
