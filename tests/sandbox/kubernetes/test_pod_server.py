"""The main process of a pod: the HTTP API of agent-sandbox, over real requests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopback_cluster import SERVER

Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    base = tmp_path / "base"
    base.mkdir()
    line = [sys.executable, "-I", str(SERVER), "127.0.0.1:0"]
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, env={"SANDBOX_BASE_DIR": str(base), "PATH": "/bin:/usr/bin"}
    )
    assert process.stdout is not None
    port = json.loads(process.stdout.readline())["port"]

    def send(path: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    yield send
    process.kill()
    process.wait()
    process.stdout.close()


def upload(name: str, content: bytes) -> tuple[bytes, str]:
    boundary = "x1y2"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return head + content + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def execute(ask: Ask, command: str, **more: object) -> dict[str, object]:
    status, body = ask("/execute", json.dumps({"command": command, **more}).encode())
    assert status == 200
    told: dict[str, object] = json.loads(body)
    return told


def test_a_file_goes_up_is_listed_and_comes_down_as_it_was(ask: Ask):
    content = bytes(range(256)) * 1000 + b"\r\n--x1y"  # nearly the boundary
    body, kind = upload("data/in put.bin", content)
    assert ask("/upload", body, **{"Content-Type": kind})[0] == 200
    where = urllib.parse.quote("data/in put.bin", safe="")
    assert ask(f"/download/{where}") == (200, content)
    (entry,) = json.loads(ask("/list/data")[1])
    assert (entry["name"], entry["size"], entry["type"]) == ("in put.bin", len(content), "file")
    assert json.loads(ask(f"/exists/{where}")[1])["exists"] is True
    assert json.loads(ask("/")[1])["status"] == "ok"


@pytest.mark.parametrize("path", ["../secret", "../../etc/passwd", "link/secret", "a%00b"])
def test_nothing_outside_of_its_folder_is_read_or_written(ask: Ask, tmp_path: Path, path: str):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "base" / "link").symlink_to(tmp_path)
    quoted = path if "%" in path else urllib.parse.quote(path, safe="")
    assert ask(f"/download/{quoted}")[0] == 403
    body, kind = upload(path.replace("%00", "\0"), b"changed")
    assert ask("/upload", body, **{"Content-Type": kind})[0] == 403
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_pipe_is_not_waited_for(ask: Ask, tmp_path: Path):
    import os

    os.mkfifo(tmp_path / "base" / "pipe")
    assert ask("/download/pipe")[0] == 404


def test_a_command_gives_its_streams_and_exit_code(ask: Ask):
    told = execute(ask, "sh -c 'echo out; echo err >&2; exit 7'")
    assert told == {"stdout": "out\n", "stderr": "err\n", "exit_code": 7, "timed_out": False}
    assert execute(ask, "nosuchcommand")["exit_code"] == 127


def test_a_deadline_ends_a_command_with_what_it_started_and_keeps_its_output(ask: Ask):
    before = time.monotonic()
    told = execute(ask, "sh -c 'echo before; sleep 60 & sleep 60'", timeout_seconds=2)
    assert (told["timed_out"], told["stdout"]) == (True, "before\n")
    assert time.monotonic() - before < 30


def test_who_leaves_the_session_and_holds_the_output_is_not_waited_for(ask: Ask):
    before = time.monotonic()
    assert execute(ask, "sh -c 'setsid sleep 60 & echo done'")["stdout"] == "done\n"
    assert time.monotonic() - before < 30


def test_row_285_a_command_cannot_ask_for_another_one_that_outlives_it(ask: Ask, tmp_path: Path):
    """Seen: a script had the server start a process without limits, and that changed the answer on its way."""
    refusals = []

    def asks() -> None:
        while not (tmp_path / "base" / "started").exists():
            time.sleep(0.01)
        body, kind = upload("planted", b"x")
        refusals.extend(
            (
                ask("/execute", b'{"command": "true"}')[0],
                ask("/upload", body, **{"Content-Type": kind})[0],
                ask("/download/started")[0],
                ask("/list/")[0],
                ask("/")[0],
            )
        )
        (tmp_path / "base" / "go").touch()

    asking = threading.Thread(target=asks)
    asking.start()
    assert execute(ask, "sh -c 'touch started; until [ -e go ]; do sleep 0.02; done'")["exit_code"] == 0
    asking.join()
    assert refusals == [409, 409, 409, 409, 200]
    assert ask("/download/started")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/execute", b"{}", 422),
        ("/execute", b"[]", 422),
        ("/execute", b"\xff", 422),
        ("/execute", b'{"command": ""}', 422),
        ("/execute", b'{"command": "sh \'open"}', 422),
        ("/execute", b" " * (2 << 20), 413),
        ("/upload", b"no form", 422),
        ("/nothing", b"{}", 404),
    ],
    ids=["empty", "list", "bytes", "no command", "open quote", "too large", "no form", "no endpoint"],
)
def test_what_cannot_be_meant_is_refused_and_the_next_request_is_served(ask: Ask, path: str, body: bytes, status: int):
    try:
        assert ask(path, body)[0] == status
    except urllib.error.URLError:
        assert status == 413  # it did not read so much, and the connection was closed under the sender
    assert ask("/")[0] == 200
