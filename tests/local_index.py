"""A package index on loopback with wheels made on the spot; it can hang, lie and withdraw versions."""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import html
import io
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol, TypeVar


def wheel(
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    *,
    commands: Mapping[str, str] | None = None,
    record_extra: Sequence[str] = (),
) -> bytes:
    """The bytes of a wheel: its files as they are given, ``*.data`` folders among them."""
    info = f"{name}-{version}.dist-info"
    content = dict(files if files is not None else {f"{name}.py": f"VERSION = {version!r}\n"})
    content[f"{info}/METADATA"] = "".join(
        [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", *(f"Requires-Dist: {one}\n" for one in requires)]
    )
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if commands:
        content[f"{info}/entry_points.txt"] = "[console_scripts]\n" + "".join(
            f"{command} = {target}\n" for command, target in commands.items()
        )
    record = []
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text.encode())}")
    record += [*record_extra, f"{info}/RECORD,,"]
    content[f"{info}/RECORD"] = "\n".join(record) + "\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return stream.getvalue()


@functools.cache
def _known_interpreters() -> Path:
    import uv

    folder = Path(tempfile.mkdtemp(prefix="interpreters-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    python = os.path.realpath(sys.executable)
    line = [uv.find_uv_bin(), "python", "find", "--no-project", f"--cache-dir={folder}", python]
    subprocess.run(line, check=True, capture_output=True)
    (found,) = folder.glob("interpreter-*")
    return found


def knows_this_interpreter(cache: Path) -> Path:
    """The same folder, as a cache that was used before: in an empty one uv starts the interpreter to ask what it is.

    That is a tenth of a second of processor time.
    """
    for folder in (cache, cache / "uv"):
        shutil.copytree(_known_interpreters(), folder / _known_interpreters().name)
    return cache


@dataclass
class LocalIndex:
    """What the server has, and how it behaves.

    Attributes:
        url: Of the index.
        files: File name to bytes.
        yanked: Names of files that were withdrawn.
        lies: Names of files that are sent with other bytes than the index says.
        hangs: Set while no request is answered.
        requests: The paths asked for.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    yanked: set[str] = field(default_factory=set)
    lies: set[str] = field(default_factory=set)
    hangs: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    slow_files: float = 0.0

    def add(self, name: str, version: str = "1.0", **how: object) -> str:
        file = f"{name}-{version}-py3-none-any.whl"
        self.files[file] = wheel(name, version, **how)  # type: ignore[arg-type]
        return file

    @property
    def downloads(self) -> list[str]:
        """The wheels that were fetched."""
        return [path for path in self.requests if path.startswith("/files/")]

    def page(self, project: str) -> str | None:
        links = []
        for file, data in self.files.items():
            if re.sub(r"[-_.]+", "-", file.split("-")[0]).lower() == project:
                digest = hashlib.sha256(data).hexdigest()
                yanked = ' data-yanked="broken"' if file in self.yanked else ""
                links.append(f'<a href="/files/{file}#sha256={digest}"{yanked}>{html.escape(file)}</a>')
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>" if links else None

    def answer(self, path: str) -> tuple[str, bytes | None]:
        if path.startswith("/simple/"):
            page = self.page(path.removeprefix("/simple/").strip("/"))
            return "text/html", page.encode() if page is not None else None
        if not path.startswith("/files/"):
            return "text/html", None
        if self.slow_files:
            self.goes_on.wait(self.slow_files)
        name = path.removeprefix("/files/")
        body = self.files.get(name)
        if body is not None and name in self.lies:
            project, version = name.split("-")[:2]
            body = wheel(project, version, {f"{project}.py": "VERSION = 'of somebody else'\n"})
        return "application/octet-stream", body

    def located(self, address: str) -> None:
        self.url = f"{address}/simple/"


class Served(Protocol):
    """What :func:`serving` needs of an index or a registry."""

    hangs: threading.Event
    goes_on: threading.Event
    requests: list[str]

    def answer(self, path: str) -> tuple[str, bytes | None]: ...

    def located(self, address: str) -> None: ...


Kind = TypeVar("Kind", bound=Served)


@contextmanager
def serving(index: Kind, certificate: Path | None = None) -> Iterator[Kind]:
    """Answers on loopback; with a folder of ``cert.pem`` and ``key.pem`` by https."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            index.requests.append(self.path)
            if index.hangs.is_set():
                index.goes_on.wait(60)
            kind, body = index.answer(self.path.split("#")[0])
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if body and self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Who does not trust the certificate hangs up."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    index.located(f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}")
    try:
        yield index
    finally:
        index.goes_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
