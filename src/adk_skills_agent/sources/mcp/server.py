"""A catalogue as an MCP server with the skills extension (SEP-2640), over stdio or streamable HTTP."""

from __future__ import annotations

import base64
import hmac
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from adk_skills_agent.errors import ConfigError, SkillsError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sandbox import Semaphore
from adk_skills_agent.sources.tree import SkillTree, read_tree

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from adk_skills_agent.catalog import CatalogReader

logger = logging.getLogger(__name__)

EXTENSION = "io.modelcontextprotocol/skills"
MAX_FILES = 512
MAX_BYTES = 16 << 20
"""Of one skill, as the extension has it; larger ones are not offered."""
PAGE = 50
TTL_MS = 60_000
MOST_REQUESTS = 16
"""That are answered at a time: an answer has up to 16 MiB, several times, until its client has read it (row 262)."""

REQUEST_SECONDS, BODY_SECONDS, ANSWER_SECONDS = 10.0, 30.0, 300.0
"""Until a connection has sent the head of a request, then its body, and until one that was posted is answered (row
284)."""
LAST_SECONDS = 5.0
"""Until a connection has its answer when the server is to end; streams that listen have none."""
MOST_BODY = 64 << 10
"""Bytes of a request, which names a skill or a page of a list: while one is parsed, nobody else is answered (row 381).
"""
MOST_WAITING = 128
"""Connections without a request; who comes with one more ends the oldest."""
MOST_ASKED, MOST_LISTENING = 256, 16
"""Requests of one client that are not answered yet, from their head on, and its streams that listen: each has an open
file, of which the server has a number for all clients (row 384)."""
_FILES_BESIDES = 256

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def skill_uri(name: str, path: str = "SKILL.md") -> str:
    """The URI of a file of a skill."""
    return f"skill://{quote(name)}/{quote(path)}"


@dataclass(frozen=True)
class ServedSkill:
    """A skill as a server offers it."""

    name: str
    frontmatter: Mapping[str, Any]
    tree: SkillTree

    def entry(self) -> dict[str, Any]:
        """As ``skills/list`` has it."""
        return {
            "uri": skill_uri(self.name, self.tree.skill_file),
            "frontmatter": dict(self.frontmatter),
            "resources": [
                {"uri": skill_uri(self.name, path), "digest": file.digest, "size": len(file.data)}
                for path, file in self.tree.files.items()
            ],
        }


class ServedCatalog:
    """The skills of a catalogue that may be served, read when they are asked for."""

    def __init__(self, catalog: CatalogReader) -> None:
        self._catalog = catalog
        self._told: dict[str, str] = {}

    async def names(self) -> list[str]:
        """Of all skills, as of the last look at the disk."""
        await self._catalog.refresh_if_due()
        return [item.name for item in self._catalog.list_metadata()]

    async def skill(self, name: str) -> ServedSkill | None:
        """One skill; None when there is none, it cannot be read, or is larger than the extension allows."""
        import asyncio

        return await asyncio.to_thread(self._read, name)

    def _read(self, name: str) -> ServedSkill | None:
        try:
            skill = self._catalog.load_skill(name)
            # Skills in its folder that this client must not see are no part of it (row 185).
            tree = read_tree(skill.skill_dir, f"The skill {name!r}", without=skill.without)
        except SkillsError as error:
            self._left_out(name, error.message)
            return None
        if len(tree.files) > MAX_FILES or tree.size > MAX_BYTES:
            self._left_out(name, f"It has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB.")
            return None
        self._told.pop(name, None)
        level1 = skill.metadata
        told = {
            "name": level1.name,
            "description": level1.description,
            "license": level1.license,
            "compatibility": level1.compatibility,
            "allowed-tools": level1.allowed_tools,
            "metadata": dict(level1.metadata) or None,
            **level1.extra,
        }
        return ServedSkill(name, {key: value for key, value in told.items() if value is not None}, tree)

    def _left_out(self, name: str, why: str) -> None:
        """Tell the owner once."""
        if self._told.get(name) != why:
            self._told[name] = why
            logger.warning("The skill %s is not offered: %s", name, why)


def skills_server(catalog: CatalogReader, version: str = "") -> Server[Any]:
    """An MCP server that offers the skills of a catalogue.

    Raises ``ConfigError`` when the package ``mcp`` is missing.
    """
    types, server_class, error_class = _mcp()
    served = ServedCatalog(catalog)

    class UriParams(types.RequestParams):  # type: ignore[name-defined, misc]  # imported only here
        uri: str

    def wrong(message: str) -> Exception:
        made: Exception = error_class(code=-32602, message=message)
        return made

    async def listed(_context: Any, params: Any) -> dict[str, Any]:
        names = await served.names()
        try:
            start = int(params.cursor or 0)
        except ValueError:
            raise wrong("That is no cursor of this server. List from the beginning.") from None
        entries = []
        for name in names[start : start + PAGE]:  # a skill may have 16 MiB: one at a time
            skill = await served.skill(name)
            if skill is not None:
                entries.append(skill.entry())
                del skill
        answer: dict[str, Any] = {"skills": entries}
        if start + PAGE < len(names):
            answer["nextCursor"] = str(start + PAGE)
        return answer | _cacheable()

    async def got(_context: Any, params: Any) -> dict[str, Any]:
        skill, _ = await _find(params.uri)
        return {"skill": skill.entry()} | _cacheable()

    async def _find(uri: str) -> tuple[ServedSkill, str]:
        name, _, path = unquote(uri.removeprefix("skill://")).partition("/")
        skill = await served.skill(name) if uri.startswith("skill://") and name in await served.names() else None
        if skill is None or path not in skill.tree.files:
            raise wrong(f"There is no {uri[:200]}. Ask for skills/list.")
        return skill, path

    async def resources(_context: Any, params: Any) -> Any:
        del params
        items = [
            types.Resource(uri=skill_uri(name), name=name, mime_type="text/markdown") for name in await served.names()
        ]
        return types.ListResourcesResult(resources=items, ttl_ms=TTL_MS)

    async def read(_context: Any, params: Any) -> Any:
        skill, path = await _find(str(params.uri))
        data = skill.tree.files[path].data
        try:
            content = types.TextResourceContents(uri=str(params.uri), text=data.decode("utf-8"))
        except UnicodeDecodeError:
            content = types.BlobResourceContents(uri=str(params.uri), blob=base64.b64encode(data).decode())
        return types.ReadResourceResult(contents=[content])

    server: Server[Any] = server_class(
        "adk-skills", version=version, on_list_resources=resources, on_read_resource=read
    )
    server.extensions[EXTENSION] = {"directoryRead": False}
    server.add_request_handler("skills/list", types.PaginatedRequestParams, listed)
    server.add_request_handler("skills/get", UriParams, got)
    return server


def _cacheable() -> dict[str, Any]:
    return {"ttlMs": TTL_MS, "cacheScope": "private", "resultType": "complete"}


def _mcp() -> tuple[Any, Any, Any]:
    try:
        import mcp_types
        from mcp import MCPError
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise ConfigError(f"Skills over MCP need the MCP SDK, version 2. Install it: {install_hint('mcp')}.") from error
    return mcp_types, Server, MCPError


async def serve_stdio(catalog: CatalogReader, version: str = "") -> None:
    """Serve one client over this process's standard input and output, until it hangs up.

    Raises ``ConfigError`` when the package ``mcp`` is missing.
    """
    server = skills_server(catalog, version)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class TokenGate:
    """An ASGI application that gives each client, by its bearer token, a server of its own.

    ``catalogs`` maps a token to what its client may see. Raises ``ConfigError`` when there is no token, or one is too
    short.
    """

    def __init__(self, catalogs: Mapping[str, CatalogReader], version: str = "", path: str = "/mcp") -> None:
        if not catalogs or not all(len(token) >= 16 for token in catalogs):
            raise ConfigError("Serving over HTTP needs a token of at least 16 characters for each client.")
        self._apps = [
            # The gate itself checks who comes: with a token, a foreign page in a browser gets nowhere.
            # Without sessions, of which a client could make thousands: no answer depends on an earlier one.
            (
                token.encode(),
                skills_server(catalog, version).streamable_http_app(
                    streamable_http_path=path, host="", stateless_http=True
                ),
            )
            for token, catalog in catalogs.items()
        ]
        self._open: Counter[tuple[int, bool]] = Counter()
        self._most_asked, self._most_listening = _most_open(len(catalogs))
        self._places = Semaphore(MOST_REQUESTS, fair=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        app = self._app_for(scope.get("headers") or ())
        if scope["type"] != "http" or app is None:
            await _refuse(send)
            return
        is_asking = scope["method"] == "POST"  # else it listens, and is told nothing
        kind = (id(app), is_asking)
        if self._open[kind] >= (self._most_asked if is_asking else self._most_listening):
            what = b"requests" if is_asking else b"streams"
            await _refuse(send, 429, b'{"error": "Too many %s of this client at a time. Wait for some to end."}' % what)
            return
        self._open[kind] += 1
        try:
            await (self._answer(app, scope, receive, send) if is_asking else app(scope, receive, send))
        finally:
            self._open[kind] -= 1

    async def _answer(self, app: Any, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            await _refuse(
                send, 413, b'{"error": "A request may have at most %d bytes. Send a shorter one."}' % MOST_BODY
            )
            return
        async with self._places.turn((str(id(app)),)):
            await app(scope, _once_more(body, receive), send)

    def _app_for(self, headers: Iterable[tuple[bytes, bytes]]) -> Any:
        given = next((value for name, value in headers if name.lower() == b"authorization"), b"")
        kind, _, token = given.partition(b" ")
        found = None
        for known, app in self._apps:  # all are compared, so that the time says nothing
            if hmac.compare_digest(known, token.strip()) and kind.lower() == b"bearer":
                found = app
        return found

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            for _, app in self._apps:
                await stack.enter_async_context(app.router.lifespan_context(app))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def _body(receive: Receive) -> bytes | None:
    """What a client posts; None when it is too much, or the client has gone."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BODY or message["type"] != "http.request":
            return None
        if not message.get("more_body"):
            return bytes(body)


def _once_more(body: bytes, receive: Receive) -> Receive:
    waiting = [body]

    async def received() -> MutableMapping[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return received


def _most_open(clients: int) -> tuple[int, int]:
    """Requests and streams that one of so many clients may have, so that all together stay below what this process may
    have open.
    """
    if sys.platform == "win32":
        return MOST_ASKED, MOST_LISTENING
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST_ASKED, MOST_LISTENING
    share = (files - _FILES_BESIDES) // clients
    listening = max(1, min(MOST_LISTENING, share // 4))
    return max(1, min(MOST_ASKED, share - listening)), listening


_NO_TOKEN = b'{"error": "A bearer token is needed. Ask the operator of this server."}'


async def _refuse(send: Send, status: int = 401, body: bytes = _NO_TOKEN) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="skills"'))
    if status == 429:
        headers.append((b"retry-after", b"1"))
    if status != 413:  # a close before all of a long body has come lets its sender see no answer
        headers.append((b"connection", b"close"))  # else the next request is begun, with no end (row 386)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def http_protocol() -> type[Any]:
    """The HTTP of uvicorn with what it lacks: an end of connections that say nothing.

    Else anybody, without a token, holds as many as this process may have, for ever (row 284).
    """
    import asyncio

    # With h11 and not httptools, which uvicorn prefers where it is installed: that has no limit for headers (row 263).
    from uvicorn.protocols.http.h11_impl import H11Protocol

    waiting: dict[Any, None] = {}  # the oldest first

    class PatientProtocol(H11Protocol):
        ends: asyncio.TimerHandle | None = None
        is_sending = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            self.wait()

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            self.end_after(None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.is_asked and self in waiting:
                del waiting[self]
                self.is_sending = True
                self.end_after(BODY_SECONDS)
            if self.is_asked and self.is_sending and not self.cycle.more_body:
                self.is_sending = False
                self.end_after(ANSWER_SECONDS if self.scope["method"] == "POST" else None)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.wait()

        def shutdown(self) -> None:
            super().shutdown()
            if self.is_asked:  # a client that does not send or read, or that listens, would keep the server for ever
                self.end_after(LAST_SECONDS)

        @property
        def is_asked(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def wait(self) -> None:
            if self.transport.is_closing():  # what it has not read keeps it open
                self.end_after(LAST_SECONDS)
                return
            if self.is_asked:  # the next request was there already
                return
            waiting[self] = None
            self.end_after(REQUEST_SECONDS)
            if len(waiting) > MOST_WAITING:
                oldest = next(iter(waiting))
                del waiting[oldest]  # at once: it is lost in the loop's next turn, and many may come in this one
                oldest.transport.abort()

        def end_after(self, seconds: float | None) -> None:
            if self.ends is not None:
                self.ends.cancel()
            self.ends = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    return PatientProtocol
