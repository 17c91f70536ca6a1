"""Serving skills to others: MCP over stdio and HTTP with tokens, static sites; our client against our server."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from repositories import Run, skill_text

import preloaded
from adk_skills_agent.cli.serve import serve_command
from adk_skills_agent.cli.sources import open_registry
from adk_skills_agent.errors import ConfigError, SourceError
from adk_skills_agent.sources import fetch, well_known
from adk_skills_agent.sources import http as web
from adk_skills_agent.sources.fetch import fetch_skills
from adk_skills_agent.sources.mcp import client, server
from adk_skills_agent.sources.mcp.client import McpSkills
from adk_skills_agent.sources.mcp.server import ServedCatalog
from adk_skills_agent.sources.origin import read_origin
from adk_skills_agent.sources.tree import read_tree

COMMAND = [preloaded.program("adk-skills")]


@pytest.fixture(autouse=True, scope="module")
def sdk() -> None:
    """Imported with the first test that runs: each worker collects all of them."""
    pytest.importorskip("mcp.client.extension", reason="the MCP SDK 2 is not installed")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder with the skills pdf (with binary and text files), csv and secret."""
    folder = tmp_path / "served"
    for name in ("pdf", "csv", "secret"):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(skill_text(name, "Größe.\n"))
    (folder / "pdf/scripts").mkdir()
    (folder / "pdf/scripts/count.py").write_text("print('pages')\n")
    (folder / "pdf/assets").mkdir()
    (folder / "pdf/assets/a b.bin").write_bytes(bytes(range(256)))
    return folder


@contextmanager
def serving(*arguments: str | Path, **environment: str) -> Iterator[str]:
    """A server process over HTTP; gives its URL when it listens."""
    process = subprocess.Popen(
        [*COMMAND, "serve", *map(str, arguments), "--http", "127.0.0.1:0"],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("Serving at http://"), said  # it listens by then
        yield said.split()[2]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()


def test_our_client_gets_the_same_bytes_from_our_server_over_stdio(served: Path):
    location = f"{COMMAND[0]} serve --dir {served} --deny secret"
    (pdf,) = fetch_skills(read_origin(f"mcp:{location}"), ["pdf"])
    assert pdf.tree.digests == read_tree(served / "pdf", "x").digests
    assert McpSkills(location).folders() == ["csv", "pdf"]
    with pytest.raises(SourceError, match="has no skill 'secret'"):
        fetch_skills(read_origin(f"mcp:{location}"), ["secret"])


def test_over_http_each_token_sees_its_part_and_no_token_nothing(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tokens = tmp_path / "tokens"
    tokens.write_text("# who\nfirst-token-0123456789\nsecond-token-0123456789 csv p*\n")
    tokens.chmod(0o600)
    with serving("--dir", served, "--tokens", tokens) as url:
        here = url.removesuffix("/mcp")
        monkeypatch.setenv("ADK_SKILLS_MCP_TOKEN", f"{here}=first-token-0123456789")
        assert McpSkills(url).folders() == ["csv", "pdf", "secret"]
        monkeypatch.setenv("ADK_SKILLS_MCP_TOKEN", f"{here}=x {url}/=first-token-0123456789")
        assert McpSkills(url).folders() == ["csv", "pdf", "secret"]
        others = "https://127.0.0.1=other http://127.0.0.1=another"
        monkeypatch.setenv("ADK_SKILLS_MCP_TOKEN", f"{others} {here}=second-token-0123456789")
        skills = McpSkills(url)
        assert skills.folders() == ["csv", "pdf"]
        assert skills.trees(["pdf"])["pdf"].digests == read_tree(served / "pdf", "x").digests
        for wrong, said in (
            (f"{here}=first-token-012345678", r"does not take the bearer token of ADK_SKILLS_MCP_TOKEN.* \(401\)\.$"),
            ("", rf"wants a bearer token.*, and set ADK_SKILLS_MCP_TOKEN={here}=TOKEN \(401\)\.$"),
            (others, "wants a bearer token"),  # row 455: what is set for another server is not sent
            (f"{here}/acme/mcp=first-token-0123456789", "wants a bearer token"),  # nor for another one of its host
        ):
            monkeypatch.setenv("ADK_SKILLS_MCP_TOKEN", wrong)
            with pytest.raises(SourceError, match=said):
                McpSkills(url).folders()
        for nobodys in (
            "first-token-0123456789",
            "abc==",
            "https://[::1=abc",
            f"{here}=",
            f"{here}=first-token-0123456789 other",
        ):
            monkeypatch.setenv("ADK_SKILLS_MCP_TOKEN", nobodys)
            with pytest.raises(ConfigError, match="does not say for which server it is"):
                McpSkills(url).folders()


@pytest.mark.parametrize("way", ["/../../bad/mcp", "/%2e%2e/%2E%2e/bad/mcp", "/./../x", "/..\\..\\bad/mcp"])
def test_row_455_a_token_of_one_path_does_not_go_up_from_it(way: str, monkeypatch: pytest.MonkeyPatch):
    """Seen: ``/acme/mcp/../../bad/mcp`` begins with ``/acme/mcp``, and httpx asks for ``/bad/mcp``."""
    monkeypatch.setenv("ADK_SKILLS_MCP_TOKEN", "https://h.example/acme/mcp=acmes")
    assert client._token_for("https://h.example/acme/mcp/v1") == "acmes"
    assert client._token_for(f"https://h.example/acme/mcp{way}") == ""
    monkeypatch.setenv("ADK_SKILLS_MCP_TOKEN", "https://h.example=hosts https://h.example/acme/mcp=acmes")
    assert client._token_for(f"https://h.example/acme/mcp{way}") == "hosts"


async def test_clients_that_read_no_answer_do_not_fill_the_memory_with_them(served: Path):
    """Row 262: only so many requests are answered at a time, and each token has a share of them."""
    greedy, other = "first-token-0123456789", "second-token-0123456789"
    catalog = open_registry((served,), trust_project=False).view((), ())
    gate = server.TokenGate({greedy: catalog, other: catalog})
    life: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    ready, answering = asyncio.Event(), 0

    async def alive(_message: MutableMapping[str, Any]) -> None:
        ready.set()

    async def post(token: str) -> None:
        body: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": INITIALIZE}]

        async def receive() -> MutableMapping[str, Any]:
            return body.pop() if body else await asyncio.Event().wait() or {}

        async def send(_message: MutableMapping[str, Any]) -> None:
            nonlocal answering
            answering += 1
            await asyncio.Event().wait()

        headers = {"host": "x", "authorization": f"Bearer {token}", "content-type": "application/json", **ACCEPTS}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "raw_path": b"/mcp", "query_string": b""}
        await gate({**scope, "headers": raw, "asgi": {"version": "3.0"}, "http_version": "1.1"}, receive, send)

    async def answered(least: int) -> int:
        async with asyncio.timeout(10):
            while answering < least:
                await asyncio.sleep(0.01)
        for _ in range(50):  # nothing more comes
            await asyncio.sleep(0.01)
        return answering

    life.put_nowait({})
    living = asyncio.create_task(gate({"type": "lifespan"}, life.get, alive))
    await ready.wait()
    posts = [asyncio.create_task(post(greedy)) for _ in range(3 * server.MOST_REQUESTS)]
    try:
        share = await answered(1)
        assert share < server.MOST_REQUESTS
        posts.append(asyncio.create_task(post(other)))
        assert await answered(share + 1) == share + 1
    finally:
        for task in posts:
            task.cancel()
        await asyncio.gather(*posts, return_exceptions=True)
        life.put_nowait({})
        await living


ACCEPTS = {"accept": "application/json, text/event-stream"}
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "greedy", "version": "1"},
        },
    }
).encode()


async def test_row_381_a_request_of_many_values_is_refused_before_it_is_parsed(served: Path):
    """Seen: twelve connections with 3.9 MB of lists in lists kept all other clients waiting for 20 to 52 s."""
    import httpx

    token = "first-token-0123456789"
    headers = {"Authorization": f"Bearer {token}", "Accept": ACCEPTS["accept"]}
    lists = b"[" + (b"[" * 150 + b"]" * 150 + b",") * 13_000 + b"1]"
    asked = b'{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"_meta":{"x":%b}}}'
    with serving("--dir", served, ADK_SKILLS_SERVE_TOKEN=token) as url:
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            refused = await http.post(url, content=asked % lists, headers={"Content-Type": "application/json"})
            assert refused.status_code == 413
            assert refused.json() == {"error": "A request may have at most 65536 bytes. Send a shorter one."}

            async def in_parts() -> AsyncIterator[bytes]:
                for _ in range(200):
                    yield b"[" * 1_000

            in_chunks = await http.post(url, content=in_parts(), headers={"Content-Type": "application/json"})
            assert in_chunks.status_code == 413
            small = await http.post(
                url, content=asked % (b'"' + b"x" * 60_000 + b'"'), headers={"Content-Type": "application/json"}
            )
            assert small.status_code == 200, small.text


def test_the_server_bounds_the_headers_of_a_request_whatever_is_installed(
    served: Path, monkeypatch: pytest.MonkeyPatch
):
    """Row 263: httptools, which uvicorn takes where it is there, keeps headers without end."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    configs: list[uvicorn.Config] = []

    class NotServed(uvicorn.Server):
        def run(self, sockets: list[socket.socket] | None = None) -> None:
            configs.append(self.config)
            for one in sockets or ():
                one.close()

    monkeypatch.setattr(uvicorn, "Server", NotServed)
    # It closes the handlers of all of this process, and absl's, where a test imported it, then closes sys.stderr.
    monkeypatch.setattr(uvicorn.Config, "configure_logging", lambda _: None)
    monkeypatch.setenv("ADK_SKILLS_SERVE_TOKEN", "first-token-0123456789")
    done = CliRunner().invoke(serve_command, ["--dir", str(served), "--http", "127.0.0.1:0"])
    assert done.exit_code == 0, done.output
    (config,) = configs
    assert isinstance(config.http, type)
    assert issubclass(config.http, H11Protocol)
    assert config.ws == "none"


def is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def test_row_284_connections_that_say_nothing_do_not_keep_others_from_the_server(
    served: Path, monkeypatch: pytest.MonkeyPatch
):
    """Seen: 1,020 connections of anybody with half of a request were all that the process may have, for ever."""
    import uvicorn

    monkeypatch.setattr(server, "MOST_WAITING", 8)
    monkeypatch.setattr(server, "BODY_SECONDS", 0.2)
    token = "first-token-0123456789"
    catalog = open_registry((served,), trust_project=False).view((), ())
    config = uvicorn.Config(server.TokenGate({token: catalog}), http=server.http_protocol(), ws="none", lifespan="on")
    running = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    life = asyncio.create_task(running.serve(sockets=[listening]))
    headers = {"Host": "x", "Authorization": f"Bearer {token}", "Content-Type": "application/json", **ACCEPTS}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    posts = f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(INITIALIZE)}\r\n\r\n".encode()
    writers = []

    async def asked(data: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        writers.append(writer)
        writer.write(data)
        return reader

    async with asyncio.timeout(20):
        silent = [await asked(b"GET / HTTP/1.1\r\nHost: x\r\nX: ") for _ in range(9)]
        with contextlib.suppress(ConnectionError):
            assert not await silent[0].read()  # the oldest ended for the last
        address = listening.getsockname()[:2]
        with contextlib.ExitStack() as opened:  # while the server has no turn, so that it finds all of them at once
            at_once = [opened.enter_context(socket.create_connection(address)) for _ in range(40)]
            for one in at_once:
                one.setblocking(False)
            async with asyncio.timeout(server.REQUEST_SECONDS / 2):  # after which they end in any case
                while sum(is_open(one) for one in at_once) > server.MOST_WAITING:
                    await asyncio.sleep(0.01)
        answered = await asked(posts + INITIALIZE)
        told = await answered.readuntil(b"\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 200")
        assert b"session" not in told.lower(), "a client could make any number of them"
        slow = await asked(posts)
        with contextlib.suppress(ConnectionError):
            assert not await slow.read()
        for writer in writers:
            writer.close()
        running.should_exit = True
        await life


async def read_by_the_server_at(port: int | None) -> None:
    """Wait until the server has taken all connections and read what came by them."""
    while True:
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        if not any(one[1].endswith(f":{port:04X}") and int(one[4].partition(":")[2], 16) for one in lines):
            return
        await asyncio.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at what the server has yet to read")
async def test_row_384_requests_without_an_end_of_one_client_do_not_keep_others_from_the_server(served: Path):
    """Seen: 1,024 requests of one client, without a body or with an answer it did not read, were all open files."""
    greedy, other = "first-token-0123456789", "other-token-0123456789"
    tokens = served.parent / "tokens"
    tokens.write_text(f"{greedy}\n{other}\n")
    tokens.chmod(0o600)
    headers = {"Host": "x", "Content-Type": "application/json", "Connection": "close", **ACCEPTS}

    async def asked(url: str, token: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        told = "".join(
            f"{name}: {value}\r\n" for name, value in (headers | {"Authorization": f"Bearer {token}"}).items()
        )
        writer.write(f"POST /mcp HTTP/1.1\r\n{told}Content-Length: {len(INITIALIZE)}\r\n\r\n".encode() + body)
        return reader, writer

    with serving("--dir", served, "--tokens", tokens) as url:
        async with asyncio.timeout(60), contextlib.AsyncExitStack() as open_connections:
            unfinished = []
            for number in range(server.MOST_ASKED + 8):
                if number % (server.MOST_WAITING // 2) == 0:  # else the server ends the oldest before it has read them
                    await read_by_the_server_at(urlsplit(url).port)
                reader, writer = await asked(url, greedy, b"")
                open_connections.callback(writer.close)
                unfinished.append(asyncio.create_task(reader.readline()))
            done, waiting = set[asyncio.Task[bytes]](), set(unfinished)
            while len(done) < 8:
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            more, waiting = await asyncio.wait(waiting, timeout=0.5)  # time for one too many
            done |= more
            assert {task.result() for task in done} == {b"HTTP/1.1 429 Too Many Requests\r\n"}
            assert len(waiting) == server.MOST_ASKED
            reader, writer = await asked(url, other, INITIALIZE)
            open_connections.callback(writer.close)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            for task in waiting:
                task.cancel()
    # Those requests are still open; the server ends all the same (serving() waits 20 s for it).


def test_row_386_who_has_no_token_gets_one_answer_and_no_second_request(served: Path):
    """Seen: 3,000 requests in one go, whose answers nobody read, kept a connection for ever; 1,100 were all files."""
    with serving("--dir", served, ADK_SKILLS_SERVE_TOKEN="first-token-0123456789") as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=20) as made:
            made.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
            told = b"".join(iter(lambda: made.recv(65536), b""))
    assert told.count(b"HTTP/1.1 401") == 1
    assert b"connection: close" in told.lower()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows counts no open files")
def test_row_384_all_clients_together_have_fewer_requests_than_the_server_may_have_files(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert server._most_open(1) == (server.MOST_ASKED, server.MOST_LISTENING)
    for clients in (10, 40, 300):
        assert clients * sum(server._most_open(clients)) + server.MOST_WAITING < 1024
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert server._most_open(10_000) == (server.MOST_ASKED, server.MOST_LISTENING)


def test_a_file_of_tokens_that_others_can_read_is_refused(served: Path, tmp_path: Path, run: Run):
    tokens = tmp_path / "tokens"
    tokens.write_text("first-token-0123456789\n")
    tokens.chmod(0o644)
    done = run("serve", "--dir", served, "--http", "127.0.0.1:1", "--tokens", tokens)
    assert done.returncode == 2
    assert "0600" in done.stderr
    assert "first-token" not in done.stderr
    assert "needs a token" in run("serve", "--dir", served, "--http", "127.0.0.1:1").stderr
    short = run("serve", "--dir", served, "--http", "127.0.0.1:1", env={"ADK_SKILLS_SERVE_TOKEN": "short"})
    assert "ADK_SKILLS_SERVE_TOKEN has less than 16 characters" in short.stderr
    tokens.chmod(0o600)
    for text, said in (
        ("first-token-0123456789\nshort csv\n", "line 2 has less than 16 characters"),
        ("first-token-0123456789\n\nfirst-token-0123456789 csv\n", "line 3 has a token a second time"),
        ("# nobody\n", "no line with a token"),
    ):
        tokens.write_text(text)
        assert said in run("serve", "--dir", served, "--http", "127.0.0.1:1", "--tokens", tokens).stderr


@pytest.mark.parametrize(
    ("place", "said"),
    [("127.0.0.1:99999", "is no address"), ("192.0.2.1:8765", "Nothing can be served at 192.0.2.1:8765")],
)
def test_an_address_that_cannot_be_served_at_is_one_sentence(place: str, said: str, served: Path, run: Run):
    done = run("serve", "--dir", served, "--http", place, env={"ADK_SKILLS_SERVE_TOKEN": "first-token-0123456789"})
    assert done.returncode == 2
    assert said in done.stderr
    assert "Serving at" not in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_server_whose_client_says_nothing(served: Path):
    with subprocess.Popen(
        [*COMMAND, "serve", "--dir", str(served), "--allow", "no-such"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        assert "there is no skill to serve so far" in server.stderr.readline()
        time.sleep(2)  # it reads by then
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
        assert server.stderr.read().endswith("adk-skills: interrupted\n")


def test_a_skill_that_is_not_offered_is_told_to_the_owner(served: Path, caplog: pytest.LogCaptureFixture):
    (served / "pdf/out").symlink_to("/etc/passwd")
    catalog = ServedCatalog(open_registry([served]))
    assert asyncio.run(catalog.skill("pdf")) is None
    assert asyncio.run(catalog.skill("pdf")) is None
    assert [record.message for record in caplog.records if "not offered" in record.message] == [
        "The skill pdf is not offered: The skill 'pdf' has a link 'out' that leaves it. Put a copy in its place."
    ]


def test_row_185_a_skill_that_a_client_must_not_see_is_no_part_of_the_one_it_lies_in(
    served: Path, tmp_path: Path, run: Run
):
    """Seen: with --deny, or another token's names, all of its files came with the skill around it."""
    shutil.move(served / "secret", served / "pdf" / "secret")
    (served / "pdf" / "notes.md").symlink_to("secret/SKILL.md")
    view = open_registry((served,), trust_project=False).view((), ("secret",))
    skill = asyncio.run(ServedCatalog(view).skill("pdf"))
    assert skill is not None
    assert sorted(skill.tree.files) == ["SKILL.md", "assets/a b.bin", "scripts/count.py"]
    run("serve", "--dir", served, "--deny", "secret", "--well-known", tmp_path / "site")
    (archive,) = (tmp_path / "site/.well-known/agent-skills").glob("pdf-*.tar.gz")
    with tarfile.open(archive) as packed:
        assert sorted(packed.getnames()) == ["SKILL.md", "assets/a b.bin", "scripts/count.py"]


@pytest.mark.requirement("S4-30")
def test_skills_of_a_server_are_installed_pinned_and_restored(served: Path, run: Run, tmp_path: Path):
    source = f"mcp:{COMMAND[0]} serve --dir {served}"
    done = run("add", source, "--skill", "pdf", "--yes")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "project/.agents")
    shutil.rmtree(tmp_path / "home/.local")
    strangers = run("sync", "--frozen")  # row 138: the lock of a project may be anybody's, and the server is a program
    assert strangers.returncode == 1
    assert "adk-skills trust" in strangers.stderr
    outdated = run("outdated", "--json")  # the skills of other sources are answered for all the same
    assert [one["state"] for one in json.loads(outdated.stdout)["skills"]] == ["unavailable"]
    assert run("trust").returncode == 0
    assert run("sync", "--frozen").returncode == 0
    (served / "pdf/scripts/count.py").write_text("import evil\n")
    shutil.rmtree(tmp_path / "project/.agents")
    shutil.rmtree(tmp_path / "home/.local")
    changed = run("sync", "--frozen")
    assert changed.returncode == 1
    assert "other bytes" in changed.stderr


LIAR = """
import asyncio, base64
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
ENTRY = {entry}
TEXT = {text!r}
async def listed(context, params):
    return {{"skills": [ENTRY], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}}
async def read(context, params):
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=str(params.uri), text=TEXT)])
async def main():
    server = Server("liar", on_read_resource=read)
    server.extensions["io.modelcontextprotocol/skills"] = {{}}
    server.add_request_handler("skills/list", types.PaginatedRequestParams, listed)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
asyncio.run(main())
"""
GOOD = skill_text("pdf")


def entry_of(text: str, **change: object) -> dict[str, object]:
    import hashlib

    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    resource = {"uri": "skill://a/pdf/SKILL.md", "digest": digest, "size": len(text)}
    made: dict[str, object] = {"uri": "skill://a/pdf/SKILL.md", "frontmatter": {"name": "pdf"}, "resources": [resource]}
    return made | change


LIES = [
    (entry_of(GOOD, frontmatter={"name": "trusted"}), GOOD, "another name"),
    (entry_of(GOOD, frontmatter={"description": "Harmless."}), GOOD, "another description"),
    (entry_of(GOOD, resources="dynamic"), GOOD, "cannot be pinned"),
    (entry_of(GOOD, resources=[{"uri": "skill://a/../x", "digest": "d", "size": 1}]), GOOD, "outside the skill"),
    (entry_of(GOOD, resources=[{"uri": "skill://a/pdf/../x", "digest": "d", "size": 1}]), GOOD, "leaves the skill"),
    (entry_of(GOOD, uri="file:///etc/passwd"), GOOD, "without a skill:// URI"),
    (entry_of(GOOD, uri="skill://../../x/SKILL.md"), GOOD, "leaves the skill"),
    (
        entry_of(GOOD, resources=[{"uri": f"skill://a/pdf/{n}", "digest": "d", "size": 1} for n in range(600)]),
        GOOD,
        "more than 512 files",
    ),
]


@pytest.mark.parametrize(
    ("entry", "text", "said"),
    [
        (entry_of(GOOD), GOOD, None),
        (entry_of(GOOD), GOOD + "more", "other bytes"),
        *(pytest.param(*lie, marks=pytest.mark.slow) for lie in LIES),  # a server each
    ],
)
def test_a_server_that_lies_is_caught(entry: dict[str, object], text: str, said: str | None, tmp_path: Path):
    script = tmp_path / "liar.py"
    script.write_text(LIAR.format(entry=entry, text=text))
    skills = McpSkills(f"{preloaded.program('python')} {script}")
    if said is None:
        assert list(skills.trees(["a/pdf"])["a/pdf"].files) == ["SKILL.md"]
        return
    with pytest.raises(SourceError, match=said):
        skills.trees(skills.folders())


def test_a_server_that_prints_a_banner_is_asked_and_told_in_a_line(served: Path, run: Run, tmp_path: Path):
    """Before, a traceback of the SDK for each line."""
    program = tmp_path / "server.sh"
    program.write_text(f"#!/bin/sh\necho 'Welcome!'\nexec {COMMAND[0]} serve --dir {served}\n")
    program.chmod(0o755)
    done = run("add", f"mcp:{program}", "--skill", "pdf", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Failed to parse" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_without_the_extension_and_none_at_all_are_said(tmp_path: Path):
    script = tmp_path / "plain.py"
    script.write_text(LIAR.format(entry={}, text="").replace('server.extensions["io', 'server.extensions["x'))
    with pytest.raises(SourceError, match="does not declare the extension"):
        McpSkills(f"{preloaded.program('python')} {script}").folders()
    with pytest.raises(SourceError, match=r"there is no program '/nonexistent/server'\. Check its name") as refused:
        McpSkills("/nonexistent/server --token=geheim").folders()
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("encoding", "piece", "said"),
    [
        ("identity", b" " * 65_536, "sends more than"),
        ("gzip", gzip.compress(bytes(1 << 20)), "compressed"),
        ("identity", b'{"":[' * 10_000, "values at once"),  # row 228; seen: 3.6 GB of memory for 32 MB
    ],
)
def test_row_149_an_answer_of_an_mcp_server_is_bounded_while_it_comes(
    encoding: str, piece: bytes, said: str, monkeypatch: pytest.MonkeyPatch
):
    """Seen: the client took what came until the memory was full; 1 MB in gzip was 1 GB."""
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1 << 20)
    monkeypatch.setattr(client, "MAX_ANSWER_VALUES", 10_000, raising=False)
    sent = 0

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal sent
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", encoding)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client has gone
                while sent < 32 << 20:
                    self.wfile.write(piece)
                    sent += len(piece)

        def log_message(self, *_: object) -> None:
            pass

    with at_loopback(Endless) as url, pytest.raises(SourceError, match=said):
        McpSkills(url).folders()
    assert sent < 32 << 20


def test_row_414_the_values_of_all_answers_are_bounded_and_only_what_is_read_is_kept(monkeypatch: pytest.MonkeyPatch):
    """Seen: each page of a list within its bound, and all of them kept: 2.2 GB of memory for 84 MiB."""
    monkeypatch.setattr(client, "MAX_ANSWER_VALUES", 10_000)
    monkeypatch.setattr(client, "MAX_RECEIVED_VALUES", 20_000)
    pages, junk = 0, [[]] * 1_000

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal pages
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            extensions = {"io.modelcontextprotocol/skills": {}}
            result: dict[str, object] = {"serverInfo": {"name": "x", "version": "1"}}
            if asked["method"] == "initialize":
                version = asked["params"]["protocolVersion"]
                result |= {"protocolVersion": version, "capabilities": {"extensions": extensions}}
            else:
                pages += 1
                resources = [{"uri": "u", "digest": junk, "size": 1, "junk": junk}]
                entry = {"uri": f"skill://s{pages}/SKILL.md", "resources": resources, "junk": junk}
                result = {"skills": [entry | {"frontmatter": {"name": 5, "junk": junk}}], "nextCursor": str(pages)}
            told = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": result}).encode()
            self.send_response(200 if "id" in asked else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            pass

    kept = {"frontmatter": {"name": 5}, "resources": [{"uri": "u", "digest": "", "size": 1}]}
    with at_loopback(Pages) as url, pytest.raises(SourceError, match="more than 20,000 values"):
        McpSkills(url).folders()
    assert pages < 6  # of eight thousand each
    assert client._needed({"uri": "x", **kept, "junk": junk}) == kept


@pytest.mark.parametrize("length", [1, 2, 7, 100_000])
def test_row_228_what_is_in_texts_are_no_values(length: int):
    answer = json.dumps({"contents": [{"text": 'a,b\\,"[{\\"\n' * 1_000}, ["\\", "\\\\"]]}).encode()
    counted = client._Values()
    for at in range(0, len(answer), length):
        found = counted.after(answer[at : at + length])
    assert found == 6  # four lists and mappings, and two commas
    assert len(answer) > 16_000


# Static sites


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A private authority and a certificate for 127.0.0.1; the folder with ca.pem, cert.pem and key.pem."""
    folder = tmp_path / "tls"
    folder.mkdir()
    about = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -days 2"
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem"
    subprocess.run(f"openssl req -x509 {key} {about}".split(), cwd=folder, check=True, capture_output=True)
    return folder


@contextmanager
def site_at(
    folder: Path, authority: Path | None = None, redirect: str = "", headers: Mapping[str, str] | None = None
) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if redirect:
                self.send_response(302)
                self.send_header("Location", redirect + self.path)
                self.end_headers()
                return
            super().do_GET()

        def end_headers(self) -> None:
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with at_loopback(Handler, authority) as url:
        yield url


@contextmanager
def at_loopback(handler: type[http.server.BaseHTTPRequestHandler], authority: Path | None = None) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if authority else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_site_is_written_and_installed_from_over_tls(served: Path, tmp_path: Path, run: Run, authority: Path):
    public = tmp_path / "public"
    done = run("serve", "--dir", served, "--well-known", public, "--json")
    assert json.loads(done.stdout)["skills"] == ["csv", "pdf", "secret"]
    before = sorted((path.name, path.read_bytes()) for path in public.rglob("*") if path.is_file())
    run("serve", "--dir", served, "--well-known", public)
    assert sorted((path.name, path.read_bytes()) for path in public.rglob("*") if path.is_file()) == before
    with site_at(public, authority) as url:
        stranger = run("add", url, "--skill", "pdf", "--yes")
        assert stranger.returncode == 1
        assert "SSL_CERT_FILE" in stranger.stderr
        known = run("add", url, "--skill", "pdf", "--yes", env={"SSL_CERT_FILE": str(authority / "cert.pem")})
        assert known.returncode == 0, known.stderr
    installed = read_tree(tmp_path / "project/.agents/skills/pdf", "x")
    assert installed.digest == read_tree(served / "pdf", "x").digest


def test_row_200_a_site_is_not_written_through_a_link(served: Path, tmp_path: Path, run: Run):
    """Seen: a repository has public/.well-known/agent-skills -> ~/.claude/agents, where a SKILL.md is an agent."""
    public = tmp_path / "public"
    (public / ".well-known").mkdir(parents=True)
    (public / ".well-known/agent-skills").symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = run("serve", "--dir", served, "--well-known", public)
    assert done.returncode == 1
    assert "a link leads out of" in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_row_162_the_skills_of_a_site_do_not_fill_the_memory_together(
    served: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    """Seen: for a name that no folder has all skills of a site were kept, 5,000 of 64 MiB."""
    public = tmp_path / "public"
    for name in ("csv", "secret"):
        (served / name / "data.bin").write_bytes(os.urandom(1_000))
    run("serve", "--dir", served, "--well-known", public)
    monkeypatch.setattr(fetch, "MAX_HELD_BYTES", 1_500)
    with site_at(public) as url:
        assert [skill.name for skill in fetch_skills(read_origin(url), ["csv"])] == ["csv"]
        with pytest.raises(SourceError, match="Name those you want"):
            fetch_skills(read_origin(url), ["other"])


def test_row_462_the_files_of_one_skill_of_a_site_do_not_fill_the_memory_together(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Seen: all of them were kept before they were counted, 2,000 of 32 MiB."""
    public = tmp_path / "public"
    place = public / ".well-known/skills"
    (place / "csv").mkdir(parents=True)
    files = ["SKILL.md", *(f"{number}.bin" for number in range(9))]
    for name in files:
        (place / "csv" / name).write_bytes(b"x" * 1_000)
    (place / "index.json").write_text(json.dumps({"skills": [{"name": "csv", "description": "d", "files": files}]}))
    asked: list[str] = []
    real = web.WebClient.get

    def get(client: Any, url: str, most: int, **options: Any) -> bytes:
        asked.append(url)
        return real(client, url, most, **options)

    monkeypatch.setattr(web.WebClient, "get", get)
    monkeypatch.setattr(well_known, "MAX_TREE_BYTES", 2_500)
    with site_at(public) as url, pytest.raises(SourceError, match="Ask its author to make it smaller"):
        fetch_skills(read_origin(url), ["csv"])
    assert sum(one.endswith(".bin") for one in asked) == 2


def index_of(folder: Path) -> Path:
    return folder / ".well-known/agent-skills/index.json"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda index: index["skills"][0].update(digest="sha256:" + "0" * 64), "its index says"),
        (lambda index: index["skills"][0].update(digest="md5:0"), "no sha256 digest"),
        (lambda index: index["skills"][0].update(type="script"), "not known here"),
        (lambda index: index.update({"$schema": "https://schemas.agentskills.io/discovery/9/schema.json"}), "schema"),
        (lambda index: index["skills"][0].update(name="../x"), "usable name"),
        (lambda index: index["skills"][0].update(url="file:///etc/passwd"), "no web address"),
        (lambda index: index["skills"][0].update(url="https://[bad/x"), "address that cannot be used"),
        (lambda index: index["skills"][0].update(url="https://h.example:99999/x"), "cannot be fetched"),
        (lambda index: index.pop("skills"), "no index"),
    ],
)
def test_an_index_that_is_wrong_is_refused(served: Path, tmp_path: Path, run: Run, change, said: str):
    public = tmp_path / "public"
    run("serve", "--dir", served, "--allow", "pdf", "--well-known", public)
    index = json.loads(index_of(public).read_text())
    change(index)
    index_of(public).write_text(json.dumps(index))
    with site_at(public) as url, pytest.raises(SourceError, match=said):
        fetch_skills(read_origin(url), everything=True)


def test_an_index_of_version_one_lists_files(served: Path, tmp_path: Path):
    public = tmp_path / "public/.well-known/skills"
    shutil.copytree(served / "pdf", public / "pdf")
    (public / "pdf/assets/c#1?.md").write_text("a name with what has a meaning in a URL")
    files = ["SKILL.md", "scripts/count.py", "assets/a b.bin", "assets/c#1?.md"]
    (public / "index.json").write_text(json.dumps({"skills": [{"name": "pdf", "description": "x", "files": files}]}))
    with site_at(tmp_path / "public") as url:
        (pdf,) = fetch_skills(read_origin(url))
    assert pdf.tree.digests == read_tree(public / "pdf", "x").digests


def test_a_redirect_to_no_address_is_one_sentence(tmp_path: Path):
    with site_at(tmp_path, redirect="http://[bad") as url, pytest.raises(SourceError, match="cannot be fetched"):
        fetch_skills(read_origin(url), everything=True)


def test_a_server_does_not_lead_into_a_private_network_unasked(served: Path, tmp_path: Path, run: Run):
    public = tmp_path / "public"
    run("serve", "--dir", served, "--allow", "pdf", "--well-known", public)
    with site_at(public) as inner, site_at(public, redirect=inner) as outer:
        with pytest.raises(SourceError, match="private address"):
            fetch_skills(read_origin(outer), everything=True)
        (pdf,) = fetch_skills(read_origin(outer), everything=True, allow_private=True)
        assert pdf.name == "pdf"


def test_row_147_nothing_is_sent_to_a_private_address_that_a_name_gets_after_it_was_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Seen: one GET reached a service of this machine, which may act on it; only its answer was not used."""
    from adk_skills_agent.sources.http import WebClient

    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinds(host: str | bytes, *more: object, **how: object) -> list[tuple[object, ...]]:
        if host not in {"rebind.example", b"rebind.example"}:
            return real(host, *more, **how)  # type: ignore[arg-type, return-value]
        asked.append("rebind.example")
        return real("192.0.43.8" if len(asked) == 1 else "127.0.0.1", *more, **how)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(socket, "getaddrinfo", rebinds)
    with site_at(tmp_path) as inner:
        seen: list[str] = []
        monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "do_GET", lambda handler: seen.append(handler.path))
        port = inner.rpartition(":")[2]
        leads = site_at(tmp_path, redirect=f"http://rebind.example:{port}")
        with leads as outer, WebClient(outer) as client, pytest.raises(SourceError, match="private address"):
            client.get(f"{outer}/deploy?now=1", 1_000)
    assert len(asked) == 2
    assert seen == []


@pytest.mark.parametrize("address", ["64:ff9b::a00:1", "2002:7f00:1::1", "fec0::1", "::ffff:10.0.0.1"])
def test_row_159_a_private_address_inside_of_another_is_private(address: str):
    """Seen: the address that a gateway makes 10.0.0.1 of (NAT64, 6to4) was a public one."""
    from adk_skills_agent.sources.http import WebClient

    with WebClient("") as client, pytest.raises(SourceError, match="private address"):
        client.get(f"http://[{address}]/x", 1_000)


def test_an_answer_without_end_is_cut_off(tmp_path: Path):
    from adk_skills_agent.sources.http import WebClient

    (tmp_path / "large").write_bytes(bytes(3 << 20))
    with site_at(tmp_path) as url, WebClient(url) as client, pytest.raises(SourceError, match="more than 1,000"):
        client.get(f"{url}/large", 1_000)


def test_row_140_an_answer_is_not_unpacked_by_the_client(tmp_path: Path):
    """Seen: 26 KB, packed twice, took 6 GB of memory and more before their size was looked at."""
    from adk_skills_agent.sources.http import WebClient

    packed = gzip.compress(gzip.compress(bytes(1 << 20)))
    (tmp_path / "packed").write_bytes(packed)
    with site_at(tmp_path, headers={"Content-Encoding": "gzip, gzip"}) as url, WebClient(url) as client:
        assert client.get(f"{url}/packed", len(packed)) == packed
