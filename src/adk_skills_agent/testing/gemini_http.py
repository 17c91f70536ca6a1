"""Gemini's REST and SSE endpoints over HTTP: paths, keys, bodies and chunks. What to answer is asked of the server."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from adk_skills_agent.testing.conversation import Mismatch, Refusal
from adk_skills_agent.testing.gemini_protocol import (
    answer_body,
    count_body,
    error_body,
    model_body,
    parse_request,
    stream_bodies,
)
from adk_skills_agent.testing.request import InvalidRequest, JsonObject

if TYPE_CHECKING:
    from adk_skills_agent.testing.server import GeminiServer

MAX_BODY_BYTES = 20 << 20  # Gemini's own limit for a request
_TOO_LARGE = f"Request payload size exceeds the limit: {MAX_BODY_BYTES} bytes."
_LINE_BYTES = 1 << 10  # of the lines between chunks
_IDLE_SECONDS = 30.0  # a connection that sends nothing for so long is dropped
_PATH = re.compile(
    r"/v\d\w*/(?:(?:projects/[\w.:-]+/locations/[\w-]+/)?publishers/google/)?"  # what Vertex AI puts before it
    r"models/(?P<model>[A-Za-z0-9._-]+)(?::(?P<method>\w+))?"
)
_METHODS = ("generateContent", "streamGenerateContent", "countTokens")


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One thread a connection, all of them ended and joined by ``server_close``."""

    allow_reuse_address = True
    daemon_threads = False  # the threading mix-in joins only such threads
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], gemini: GeminiServer) -> None:
        self.gemini = gemini
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Remember the connection, and serve it in a thread."""
        if isinstance(request, socket.socket):
            with self._open_lock:
                self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Forget the connection, and close it."""
        if isinstance(request, socket.socket):
            with self._open_lock:
                self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        """Wake every thread that still waits for its client."""
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  (the base class's)
        """A client that goes away is its own business; anything else is a bug here, and shown in ``mismatches``."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.gemini.refuse(f"The rehearsed server itself failed: {error!r}")


class Handler(BaseHTTPRequestHandler):
    """One request a connection: nothing stays open that a client could forget to close."""

    server: Listener
    protocol_version = "HTTP/1.1"
    server_version = "GeminiServer"
    sys_version = ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer a call of a method."""
        gemini = self.server.gemini
        url = urlsplit(self.path)
        try:
            body = self._read_body()
            self._check_key(url.query)
            model, method = self._target(url.path)
            if method not in _METHODS:
                raise InvalidRequest(f"The method {method!r} of {url.path} is not rehearsed.", 404, "NOT_FOUND")
            request = parse_request(method, model, body)
        except InvalidRequest as error:
            gemini.refuse(f"Gemini refuses this request: {error.message}")
            self._send(error.code, error_body(error.code, error.status, error.message))
            return
        if method == "countTokens":
            gemini.count(request)
            self._send(200, count_body(request))
            return
        try:
            reply, response_id = gemini.respond(request)
        except Mismatch as mismatch:
            self._send(400, error_body(400, "FAILED_PRECONDITION", mismatch.message))
            return
        if isinstance(reply, Refusal):
            self._send(reply.code, error_body(reply.code, reply.status, reply.message))
        elif method == "generateContent":
            self._send(200, answer_body(reply, request, response_id))
        else:
            chunks = stream_bodies(reply, request, response_id)
            if parse_qs(url.query).get("alt") == ["sse"]:
                self._send_events(chunks)
            else:
                self._send(200, list(chunks))

    def do_GET(self) -> None:
        """Answer a question about a model."""
        url = urlsplit(self.path)
        try:
            self._check_key(url.query)
            model, method = self._target(url.path)
            if method:
                raise InvalidRequest(f"{method} needs POST.", 405, "INVALID_ARGUMENT")
        except InvalidRequest as error:
            self.server.gemini.refuse(f"Gemini refuses this request: {error.message}")
            self._send(error.code, error_body(error.code, error.status, error.message))
            return
        self._send(200, model_body(model))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is the base class's)
        """Say nothing: what happened is in ``requests`` and ``mismatches``."""

    @staticmethod
    def _target(path: str) -> tuple[str, str]:
        match = _PATH.fullmatch(path)
        if match is None:
            raise InvalidRequest(f"Requested entity was not found: {path}", 404, "NOT_FOUND")
        return match["model"], match["method"] or ""

    def _check_key(self, query: str) -> None:
        if not (self.headers.get("x-goog-api-key") or parse_qs(query).get("key")):
            raise InvalidRequest(
                "Method doesn't allow unregistered callers (callers without established identity). Please use API "
                "Key or other form of API consumer identity to call this API.",
                403,
                "PERMISSION_DENIED",
            )

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise InvalidRequest("The request has no usable Content-Length.", 411)
        size = int(length)
        if size > MAX_BODY_BYTES:
            # Read it all the same: a client that is still sending would not see the answer.
            while size > 0 and (chunk := self.rfile.read(min(size, 1 << 20))):
                size -= len(chunk)
            raise InvalidRequest(_TOO_LARGE)
        return self._read_exactly(size)

    def _read_chunks(self) -> bytes:
        body, total = bytearray(), 0
        while size := self._chunk_size():
            chunk = self._read_exactly(size)
            total += size
            if total <= MAX_BODY_BYTES:
                body += chunk
            self.rfile.readline(_LINE_BYTES)
        while self.rfile.readline(_LINE_BYTES).strip():  # trailers
            pass
        if total > MAX_BODY_BYTES:
            raise InvalidRequest(_TOO_LARGE)
        return bytes(body)

    def _chunk_size(self) -> int:
        line = self.rfile.readline(_LINE_BYTES).partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,7}", line):
            raise InvalidRequest("The chunks of the request cannot be read.")
        return int(line, 16)

    def _read_exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionError(f"the client sent {len(data)} of {size} bytes")
        return data

    def _send(self, code: int, body: JsonObject | list[JsonObject]) -> None:
        data = json.dumps(body).encode()
        self._head(code, "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_events(self, bodies: Iterable[JsonObject]) -> None:
        self._head(200, "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for body in bodies:
            event = b"data: " + json.dumps(body).encode() + b"\r\n\r\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def _head(self, code: int, content_type: str) -> None:
        self.close_connection = True
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")
