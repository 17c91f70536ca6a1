"""The main process of a pod of ``sandbox="kubernetes"``: the HTTP API that k8s-agent-sandbox's client speaks.

Standard library only and no package of ours: deploy/kubernetes mounts this very file into any image with Python 3.8.
The endpoints are those of agent-sandbox's ``python-runtime`` (``/``, ``/execute``, ``/upload``, ``/download``,
``/list``, ``/exists``). Unlike that one it never waits for who holds a pipe, keeps memory bounded, and refuses what is
no regular file below its folder. What runs under ``/execute`` is the launcher of :mod:`.launcher_program`, which has
the limits of a run; the limits here are for everything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, Callable, Dict, Tuple

PORT = 8888
MOST_SECONDS = 3600.0
MOST_REQUEST_BYTES = 1 << 20
MOST_OUTPUT_BYTES = 8 << 20
MOST_UPLOAD_BYTES = 2 << 30
MOST_ENTRIES = 10_000
_BUSY = "A command is running."
_PR_SET_DUMPABLE = 4
_PIECE = 1 << 16
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Refused(Exception):
    """The request cannot be carried out; the first argument is the HTTP status, the second a sentence."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server_version = "adk-skills-pod"
    timeout = 600

    def do_GET(self) -> None:
        """Health, download, list, exists."""
        kind, _, rest = self.path.split("?", 1)[0].lstrip("/").partition("/")
        try:
            if kind == "":
                self._answer(200, {"status": "ok", "message": "Sandbox Runtime is active."})
            elif self._running.locked():
                raise Refused(409, _BUSY)
            elif kind == "download":
                self._download(_below(self._base, rest))
            elif kind == "list":
                self._answer(200, _entries(_below(self._base, rest)))
            elif kind == "exists":
                path = urllib.parse.unquote(rest)
                self._answer(200, {"path": path, "exists": os.path.exists(_below(self._base, rest))})
            else:
                raise Refused(404, "There is no such endpoint.")
        except Refused as refused:
            self._answer(refused.args[0], {"message": refused.args[1]})

    def do_POST(self) -> None:
        """Execute, upload."""
        try:
            length = int(self.headers.get("Content-Length") or -1)
            if length < 0:
                self.close_connection = True
                raise Refused(411, "The request must say its length.")
            if self._running.locked():
                self.close_connection = True
                raise Refused(409, _BUSY)
            if self.path == "/execute":
                self._execute(length)
            elif self.path == "/upload":
                self._upload(length)
            else:
                self.close_connection = True
                raise Refused(404, "There is no such endpoint.")
        except Refused as refused:
            self._answer(refused.args[0], {"message": refused.args[1]})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name for it
        """Say nothing: what runs here may be secret, and its paths are the caller's affair."""

    @property
    def _base(self) -> str:
        base: str = self.server.base  # type: ignore[attr-defined]
        return base

    @property
    def _running(self) -> threading.Lock:
        """Held while a command runs. It could ask for another one, which would outlive it without limits (row 285)."""
        held: threading.Lock = self.server.running  # type: ignore[attr-defined]
        return held

    def _answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _execute(self, length: int) -> None:
        if length > MOST_REQUEST_BYTES:
            self.close_connection = True
            raise Refused(413, "A command has at most {} bytes.".format(MOST_REQUEST_BYTES))
        try:
            asked = json.loads(self.rfile.read(length).decode("utf-8"))
            argv = shlex.split(asked["command"])
            seconds = float(asked.get("timeout_seconds") or MOST_SECONDS)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Refused(422, "A command needs the field 'command', a string.") from None
        if not argv:
            raise Refused(422, "The command is empty.")
        if not self._running.acquire(blocking=False):
            raise Refused(409, _BUSY)
        try:
            told = execute(argv, self._base, min(seconds, MOST_SECONDS))
        finally:
            self._running.release()
        self._answer(200, told)

    def _upload(self, length: int) -> None:
        found = re.search(r'boundary="?([^";]+)"?', self.headers.get("Content-Type") or "")
        if found is None or length > MOST_UPLOAD_BYTES:
            self.close_connection = True
            raise Refused(413 if found else 422, "An upload is multipart/form-data of one file.")
        body = _Body(self.rfile.read, length)
        try:
            name = _store(body, found[1].encode("latin-1"), self._base)
        except OSError as error:
            body.skip()
            raise Refused(507, "File upload failed: {}".format(error.strerror)) from None
        except Refused:
            body.skip()
            raise
        self._answer(200, {"message": "File '{}' uploaded successfully.".format(name)})

    def _download(self, path: str) -> None:
        try:
            descriptor = os.open(path, _FILE)
        except OSError:
            raise Refused(404, "File not found") from None
        with os.fdopen(descriptor, "rb") as source:
            info = os.fstat(source.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise Refused(404, "File not found")
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(info.st_size))
            self.end_headers()
            left = info.st_size
            while left > 0:
                piece = source.read(min(_PIECE, left))
                if not piece:
                    self.close_connection = True  # it shrank: the length that was told cannot be kept
                    return
                left -= len(piece)
                self.wfile.write(piece)


class _Body:
    """The bytes of a request, never more than it announced."""

    def __init__(self, read: Callable[[int], bytes], length: int) -> None:
        self._read = read
        self.left = length

    def read(self, most: int) -> bytes:
        data = self._read(min(most, self.left))
        self.left -= len(data)
        if not data:
            self.left = 0
        return data

    def skip(self) -> None:
        while self.left:
            self.read(_PIECE)


def execute(argv: list[str], folder: str, seconds: float) -> Dict[str, Any]:
    """Run a command; its output goes to files, so that nobody who keeps them open is waited for."""
    with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as err:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, start_new_session=True
            )
        except OSError as error:
            return _told("", "Failed to execute command: {}".format(error), 127)
        timed_out = False
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            _end(process.pid)
            code = process.wait()
        _end(process.pid)
        return _told(_text(out), _text(err), code, timed_out)


def _told(stdout: str, stderr: str, code: int, timed_out: bool = False) -> Dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "exit_code": code, "timed_out": timed_out}


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass


def _text(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read(MOST_OUTPUT_BYTES).decode("utf-8", "replace")


def _below(base: str, quoted: str) -> str:
    """The path of something below the folder; Refused when it is not below it."""
    asked = urllib.parse.unquote(quoted)
    if "\0" in asked:
        raise Refused(403, "Access denied")
    path = os.path.realpath(os.path.join(base, asked.lstrip("/")))
    if path != base and not path.startswith(base.rstrip("/") + "/"):
        raise Refused(403, "Access denied")
    return path


def _entries(folder: str) -> list[Dict[str, Any]]:
    try:
        scan = os.scandir(folder)
    except OSError:
        raise Refused(404, "Path is not a directory") from None
    found: list[Dict[str, Any]] = []
    with scan:
        for entry in scan:
            if len(found) >= MOST_ENTRIES:
                break
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            kind = "directory" if stat.S_ISDIR(info.st_mode) else "file"
            found.append({"name": entry.name, "size": info.st_size, "type": kind, "mod_time": info.st_mtime})
    return found


def _store(body: _Body, boundary: bytes, base: str) -> str:
    """Write the one file of a multipart body, piece by piece, aside and then renamed."""
    head, rest = _head(body)
    named = re.search(rb'filename="((?:[^"\\]|\\.)*)"', head)
    if named is None:
        raise Refused(422, "An upload is multipart/form-data of one file.")
    name = named[1].decode("utf-8", "replace").replace('\\"', '"')
    path = _below(base, urllib.parse.quote(name))
    if path == base:
        raise Refused(422, "The upload names no file.")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as target:
            end = b"\r\n--" + boundary
            held = rest
            while True:
                at = held.find(end)
                if at >= 0:
                    target.write(held[:at])
                    break
                keep = len(end) - 1
                target.write(held[: max(0, len(held) - keep)])
                held = held[max(0, len(held) - keep) :]
                piece = body.read(_PIECE)
                if not piece:
                    raise Refused(400, "The upload ended in the middle.")
                held += piece
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    body.skip()
    return name


def _head(body: _Body) -> Tuple[bytes, bytes]:
    held = b""
    while b"\r\n\r\n" not in held:
        piece = body.read(_PIECE)
        if not piece or len(held) > _PIECE:
            raise Refused(422, "An upload is multipart/form-data of one file.")
        held += piece
    head, _, rest = held.partition(b"\r\n\r\n")
    return head, rest


def main() -> None:
    """Serve until the pod ends."""
    base = os.path.realpath(os.environ.get("SANDBOX_BASE_DIR", "").strip() or "/sandbox")
    os.makedirs(base, mode=0o700, exist_ok=True)
    tempfile.tempdir = base
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "0.0.0.0:{}".format(PORT)).rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.daemon_threads = True
    server.base = base  # type: ignore[attr-defined]
    server.running = threading.Lock()  # type: ignore[attr-defined]
    with contextlib.suppress(OSError, AttributeError):  # what runs here has the same user, and no way into this process
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the kernel gives process 1 no default action
    # Who has to know the port when it was 0.
    sys.stdout.write(json.dumps({"port": server.server_address[1]}) + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
