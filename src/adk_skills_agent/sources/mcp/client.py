"""Skills of an MCP server with the skills extension: listed, then fetched lazily; every digest is checked."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from adk_skills_agent.errors import ConfigError, ParseError, SourceError, said_by
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sources.tree import MAX_FILE_BYTES, SkillTree, TreeFile, check_paths, tree_of

EXTENSION = "io.modelcontextprotocol/skills"
MAX_FILES = 512
MAX_BYTES = 16 << 20
MAX_SKILLS = 5_000
MAX_ANSWER_BYTES = 32 << 20
"""Of one answer over HTTP: a file of 16 MiB in base64, and more. A server over stdio is a program of the user's."""
MAX_ANSWER_VALUES = 1_000_000
"""Of one answer: each takes a hundred bytes of memory and more, also when it is two in the answer (row 228)."""
MAX_RECEIVED_BYTES = 256 << 20
"""Of all answers in one connection, as much as an archive unpacks to."""
MAX_RECEIVED_VALUES = 2 * MAX_ANSWER_VALUES
"""The same for values: a list comes in many answers (row 414)."""
SECONDS = 60.0
"""For one request."""
TOKEN_VARIABLE = "ADK_SKILLS_MCP_TOKEN"  # noqa: S105 - the name of a variable
"""Bearer tokens for servers over HTTP, each behind its server: ``https://HOST=TOKEN``, with blanks between several.

With a path, ``https://HOST/acme/mcp=TOKEN``, it is for that address and those below it.
They are never kept. One without a server would go to every other server, too, that a lock or an agent names (row 455).
"""


class McpSkills:
    """The skills of one server.

    ``location`` is the URL of a server over streamable HTTP, or the command of one over stdio.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._entries: dict[str, Mapping[str, Any]] | None = None
        self._trees: dict[str, SkillTree] = {}

    def folders(self) -> list[str]:
        """Where the server has skills, as its URIs say: ``a/b`` for ``skill://a/b/SKILL.md``."""
        if self._entries is None:
            self._entries = _run(self._list())
        return list(self._entries)

    def skill_files(self, folders: Sequence[str]) -> Mapping[str, bytes]:
        """The SKILL.md of some skills."""
        return {folder: tree.files[tree.skill_file].data for folder, tree in self.trees(folders).items()}

    def trees(self, folders: Sequence[str]) -> Mapping[str, SkillTree]:
        """All files of some skills, checked against the digests of the server's list.

        Raises:
            SourceError: A file is not what the list says, the frontmatter differs, or the files are not listed.
        """
        self.folders()
        missing = [folder for folder in folders if folder not in self._trees]
        if missing:
            self._trees |= _run(self._read(missing))
        return {folder: self._trees[folder] for folder in folders}

    def other_file(self, path: str) -> bytes | None:
        """None: a server offers skills alone."""
        del path
        return None

    def what(self) -> str:
        """The server, for sentences, without arguments that may hold a secret."""
        if "://" in self._location:
            return f"The MCP server {urlsplit(self._location)._replace(query='', fragment='').geturl()}"
        return f"The MCP server {shlex.split(self._location)[0]}"

    async def _list(self) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        async with self._connected() as ask:
            cursor: str | None = None
            for _ in range(MAX_SKILLS):
                answer = await ask("skills/list", {"cursor": cursor} if cursor else {})
                for entry in answer.get("skills") or ():
                    found[self._folder(entry)] = _needed(entry)
                    if len(found) > MAX_SKILLS:
                        raise SourceError(f"{self.what()} lists more than {MAX_SKILLS:,} skills.")
                following = answer.get("nextCursor")
                if not following or following == cursor:
                    return found
                cursor = str(following)
        raise SourceError(f"{self.what()} has a list without an end.")

    def _folder(self, entry: object) -> str:
        uri = entry.get("uri") if isinstance(entry, Mapping) else None
        if not isinstance(uri, str) or not uri.startswith("skill://"):
            raise SourceError(f"{self.what()} lists a skill without a skill:// URI.")
        folder, _, name = unquote(uri.removeprefix("skill://")).rpartition("/")
        if name.lower() != "skill.md" or not folder:
            raise SourceError(f"{self.what()} lists {uri[:120]!r}, which is no SKILL.md.")
        check_paths([f"{folder}/{name}"], self.what())
        return folder

    async def _read(self, folders: Sequence[str]) -> dict[str, SkillTree]:
        async with self._connected() as ask:
            return {folder: await self._tree(ask, folder) for folder in folders}

    async def _tree(self, ask: Any, folder: str) -> SkillTree:
        entries = self._entries or {}
        entry = entries[folder]
        what = f"{self.what()}, skill {folder!r},"
        listed = entry.get("resources")
        if not isinstance(listed, list):
            raise SourceError(f"{what} does not list its files, so they cannot be pinned.")
        paths = self._paths(listed, folder, what)
        files: dict[str, TreeFile] = {}
        for path, (uri, digest, size) in paths.items():
            data = _content(await ask("resources/read", {"uri": uri}), what)
            file = TreeFile(data, executable=data[:2] == b"#!")
            if len(data) != size or file.digest != digest:
                raise SourceError(f"{what} sends other bytes for {path!r} than its list says. Tell its operator.")
            files[path] = file
        tree = tree_of(files, what)
        self._check_frontmatter(entry, tree, folder, what)
        return tree

    def _paths(self, listed: Sequence[Any], folder: str, what: str) -> dict[str, tuple[str, str, int]]:
        paths: dict[str, tuple[str, str, int]] = {}
        total = 0
        for one in listed:
            uri, digest, size = (
                (one.get(key) for key in ("uri", "digest", "size")) if isinstance(one, Mapping) else ("",) * 3
            )
            plain = unquote(str(uri)).removeprefix("skill://")
            if not plain.startswith(f"{folder}/") or not isinstance(digest, str) or not isinstance(size, int):
                raise SourceError(f"{what} lists a file without a digest and a size, or outside the skill.")
            total += size
            if len(listed) > MAX_FILES or total > MAX_BYTES or size > MAX_FILE_BYTES:
                raise SourceError(f"{what} has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB.")
            paths[plain[len(folder) + 1 :]] = (str(uri), digest, size)
        check_paths(paths, what)
        return paths

    def _check_frontmatter(self, entry: Mapping[str, Any], tree: SkillTree, folder: str, what: str) -> None:
        told = entry.get("frontmatter")
        try:
            metadata = tree.parsed(folder.rpartition("/")[2]).metadata
        except ParseError as error:
            raise SourceError(f"{what} {error.message}") from error
        for key, value in (("name", metadata.original_name or metadata.name), ("description", metadata.description)):
            said = told.get(key) if isinstance(told, Mapping) else None
            if said is not None and " ".join(str(said).split()) not in {" ".join(value.split()), metadata.name}:
                raise SourceError(f"{what} has another {key} in its list than in its SKILL.md. Tell its operator.")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        """A function that sends one request and gives the result as a mapping."""
        try:
            import mcp_types
            from mcp import Client, MCPError, StdioServerParameters
            from mcp.client.streamable_http import streamable_http_client
            from mcp.shared._httpx_utils import create_mcp_http_client  # the public one takes no headers
            from pydantic import TypeAdapter
        except ImportError as error:
            raise ConfigError(
                f"Skills over MCP need the MCP SDK, version 2. Install it: {install_hint('mcp')}."
            ) from error
        answers: Any = TypeAdapter(dict[str, Any])
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(_sdk_without_tracebacks())
                server: Any
                if "://" in self._location:
                    token = _token_for(self._location)
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    http = await stack.enter_async_context(
                        create_mcp_http_client(headers={**headers, "Accept-Encoding": "identity"})
                    )
                    http.event_hooks = {"response": [self._bound()]}
                    server = streamable_http_client(self._location, http_client=http)
                else:
                    command, *arguments = shlex.split(self._location)
                    server = StdioServerParameters(command=command, args=arguments)
                client = await stack.enter_async_context(Client(server, read_timeout_seconds=SECONDS, cache=None))
                declared = client.server_capabilities.extensions or {}
                if EXTENSION not in declared:
                    raise SourceError(f"{self.what()} has no skills: it does not declare the extension {EXTENSION}.")

                async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
                    request = mcp_types.Request[dict[str, Any], str](method=method, params=params)
                    answer: dict[str, Any] = await client.session.send_request(request, answers)
                    return answer

                yield ask
        except FileNotFoundError as error:
            said = f"there is no program {str(error.filename)!r}. Check its name and PATH."
            raise SourceError(f"{self.what()} cannot be started: {said}") from error
        except (MCPError, OSError, TimeoutError) as error:
            raise SourceError(f"{self.what()} cannot be asked: {said_by(error)}.") from error
        except BaseExceptionGroup as group:
            raise self._plain(group) from group

    def _bound(self) -> Callable[[Any], Awaitable[None]]:
        """A hook that bounds the answers of a connection while they come: the SDK reads them to their end (row 149)."""
        from httpx2 import AsyncByteStream

        what, received, counted = self.what(), 0, 0

        class Bounded(AsyncByteStream):
            def __init__(self, stream: Any) -> None:
                self._stream = stream

            async def __aiter__(self) -> AsyncIterator[bytes]:
                nonlocal received, counted
                left, values, before = MAX_ANSWER_BYTES, _Values(), counted
                async for part in self._stream:
                    left, received = left - len(part), received + len(part)
                    now = values.after(part)
                    counted = before + now
                    if now > MAX_ANSWER_VALUES:
                        raise SourceError(f"{what} sends more than {MAX_ANSWER_VALUES:,} values at once.")
                    if counted > MAX_RECEIVED_VALUES:
                        raise SourceError(f"{what} sends more than {MAX_RECEIVED_VALUES:,} values.")
                    if left < 0 or received > MAX_RECEIVED_BYTES:
                        most = MAX_ANSWER_BYTES if left < 0 else MAX_RECEIVED_BYTES
                        raise SourceError(f"{what} sends more than {most:,} bytes, so it is not taken.")
                    yield part

            async def aclose(self) -> None:
                await self._stream.aclose()

        async def bound(answer: Any) -> None:
            if answer.status_code in (401, 403):  # the SDK says only that there was an error
                token = f"does not take the bearer token of {TOKEN_VARIABLE}. Ask its operator for another"
                if not _token_for(self._location):
                    token = (
                        "wants a bearer token. Ask its operator for one, and set "
                        f"{TOKEN_VARIABLE}={_server(self._location)}=TOKEN"
                    )
                raise SourceError(f"{what} {token} ({answer.status_code}).")
            if answer.headers.get("content-encoding", "identity") != "identity":  # unpacking it would have no bound
                raise SourceError(f"{what} sends an answer that is compressed, which nobody asked for.")
            answer.stream = Bounded(answer.stream)

        return bound

    def _plain(self, group: BaseExceptionGroup[BaseException]) -> BaseException:
        """The one error in the groups that task groups make of it."""
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        if isinstance(error, SourceError | ConfigError) or not isinstance(error, Exception):
            return error
        return SourceError(f"{self.what()} cannot be asked: {said_by(error)}.")


def _token_for(url: str) -> str:
    """The token that the user has for a server; empty for none. Raises ``ConfigError`` when one has no server."""
    found, length = "", -1
    path = urlsplit(url).path.rstrip("/")
    if not {".", ".."}.isdisjoint(unquote(path).replace("\\", "/").split("/")):
        path = "/"  # it may lead out of whatever it begins with (row 455)
    for word in os.environ.get(TOKEN_VARIABLE, "").split():
        server, _, token = word.partition("=")
        try:
            place = _server(server) if "://" in server and token else ""
        except ValueError:  # https://[::1
            place = ""
        if not place:
            raise ConfigError(
                f"A token in {TOKEN_VARIABLE} does not say for which server it is. Write https://HOST=TOKEN, and "
                "blanks between several."
            )
        below = urlsplit(server).path.rstrip("/")  # servers of several people may be on one host (row 455)
        if place == _server(url) and (path == below or path.startswith(f"{below}/")) and len(below) > length:
            found, length = token, len(below)
    return found


def _server(url: str) -> str:
    """Scheme, host and port of a URL, as a user would write them."""
    parts = urlsplit(url.lower())
    usual = {"https": ":443", "http": ":80"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].removesuffix(usual)}"


def _needed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is read of an entry later: whatever else a server puts there would be kept until the end."""

    def plain(values: object, *keys: str) -> dict[str, Any]:
        found = {key: values.get(key) for key in keys} if isinstance(values, Mapping) else {}
        told = {key: value for key, value in found.items() if value is not None}
        return {key: value if isinstance(value, str | int | float) else "" for key, value in told.items()}

    listed = entry.get("resources")
    return {
        "frontmatter": plain(entry.get("frontmatter"), "name", "description"),
        "resources": [plain(one, "uri", "digest", "size") for one in listed[: MAX_FILES + 1]]
        if isinstance(listed, list)
        else None,
    }


class _Values:
    """Counts the values of a JSON document while it comes, before there is an object for each.

    In a stream of events a comment could lead it astray; there the SDK takes at most 1 MiB for an event.
    """

    def __init__(self) -> None:
        self._in_text = False
        self._rest = b""
        self._count = 0

    def after(self, part: bytes) -> int:
        """How many there were with this part."""
        part = self._rest + part
        whole = part if (len(part) - len(part.rstrip(b"\\"))) % 2 == 0 else part[:-1]  # no half of an escape
        self._rest = part[len(whole) :]
        pieces = _ESCAPE.sub(b"", whole).split(b'"')
        outside = pieces[1 if self._in_text else 0 :: 2]
        self._in_text ^= len(pieces) % 2 == 0
        self._count += sum(piece.count(mark) for piece in outside for mark in (b",", b"[", b"{"))
        return self._count


_ESCAPE = re.compile(rb"\\.", re.DOTALL)


@contextmanager
def _sdk_without_tracebacks() -> Iterator[None]:
    """The SDK logs a traceback for each line that is no message; programs that print a banner are common."""

    def without(record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True

    sdk = logging.getLogger("mcp.client.stdio")
    sdk.addFilter(without)
    try:
        yield
    finally:
        sdk.removeFilter(without)


def _content(answer: Mapping[str, Any], what: str) -> bytes:
    contents = answer.get("contents")
    if not isinstance(contents, list) or len(contents) != 1 or not isinstance(contents[0], Mapping):
        raise SourceError(f"{what} sends no single content for a file.")
    one = contents[0]
    if isinstance(one.get("text"), str):
        return str(one["text"]).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(str(one.get("blob", "")), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SourceError(f"{what} sends a file that is no base64.") from error


def _run(work: Any) -> Any:
    """Run a coroutine to its end; from a thread of its own where a loop runs in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
