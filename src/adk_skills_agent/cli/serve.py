"""``adk-skills serve``: the local skills for others, over MCP or as files of a web site."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json, safe
from adk_skills_agent.cli.sources import a_path, dirs_option, json_option, open_registry, trust_option
from adk_skills_agent.errors import ConfigError

if TYPE_CHECKING:
    from adk_skills_agent.catalog import CatalogReader, SkillsRegistry

MIN_TOKEN_CHARS = 16
TOKEN_VARIABLE = "ADK_SKILLS_SERVE_TOKEN"  # noqa: S105 - the name of a variable

_EXAMPLES = f"""\b
Examples:
  adk-skills serve -d ./skills
  {TOKEN_VARIABLE}=... adk-skills serve -d ./skills --http 127.0.0.1:8765
  adk-skills serve -d ./skills --http 127.0.0.1:8765 --tokens tokens.txt
  adk-skills serve -d ./skills --well-known ./public

\b
Without --http and --well-known it talks MCP on standard input and output, for one client that starts it.
A line of the tokens file is a token and, after it, the names its client may see (wildcards; none for all).
HTTP is not encrypted here: put a proxy with TLS in front of it.
"""


@click.command("serve", epilog=_EXAMPLES)
@dirs_option
@click.option("--allow", multiple=True, metavar="PATTERN", help="Only skills with such a name (repeatable): 'db-*'.")
@click.option("--deny", multiple=True, metavar="PATTERN", help="No skill with such a name (repeatable).")
@click.option("--http", metavar="HOST:PORT", help="Serve over streamable HTTP at /mcp, with a bearer token.")
@click.option("--tokens", type=a_path, help=f"File of tokens and what each may see; else {TOKEN_VARIABLE}.")
@click.option("--well-known", "site", type=a_path, help="Write a static site into this folder instead.")
@json_option
@trust_option
def serve_command(
    dirs: tuple[Path, ...],
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    http: str | None,
    tokens: Path | None,
    site: Path | None,
    as_json: bool,
    trust_project: bool,
) -> None:
    """Offer the local skills to other agents.

    As an MCP server with the skills extension, or as files with an index at .well-known/agent-skills/ that any web
    server can serve.
    """
    from adk_skills_agent import __version__

    if site is not None and (http is not None or tokens is not None):
        raise click.UsageError("--well-known writes files and serves nothing. Leave out --http and --tokens.")
    registry = open_registry(dirs, trust_project=trust_project)
    view = registry.view(allow, deny)
    if site is not None:
        _write_site(site, view, as_json=as_json)
        return
    if as_json:
        raise click.UsageError("--json goes with --well-known only.")
    if not view.list_metadata():
        click.echo("note: there is no skill to serve so far; see: adk-skills list --diagnostics", err=True)
    if http is None:
        from adk_skills_agent.sources.mcp.server import serve_stdio

        if sys.stdin.isatty():
            click.echo(
                "note: an MCP client starts this and speaks over standard input; there is nothing to type here. "
                "End it with Ctrl-C. For HTTP: --http 127.0.0.1:8765",
                err=True,
            )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
        asyncio.run(serve_stdio(view, __version__))
        return
    _serve_http(http, _clients(tokens, registry, allow, deny), __version__)


def _end(number: int, _frame: object) -> None:
    """End at once: the thread that reads standard input cannot be interrupted, and nothing is half done."""
    os.write(2, b"adk-skills: interrupted\n" if number == signal.SIGINT else b"adk-skills: ended by SIGTERM\n")
    os._exit(128 + number)


def _write_site(site: Path, view: CatalogReader, *, as_json: bool) -> None:
    from adk_skills_agent.sources import read_tree
    from adk_skills_agent.sources.well_known import write_site

    skills = []
    for item in view.list_metadata():
        skill = view.load_skill(item.name)
        tree = read_tree(skill.skill_dir, f"The skill {item.name!r}", without=skill.without)
        skills.append((item.name, item.description, tree))
    if not skills:
        raise ConfigError("There is no skill to publish. Name folders with --dir.")
    written = write_site(site, skills)
    if as_json:
        print_json({"site": str(site), "files": [str(path) for path in written], "skills": [one[0] for one in skills]})
    else:
        print(f"{len(skills)} skills written to {safe(str(written[-1].parent))}")


def _clients(
    tokens: Path | None, registry: SkillsRegistry, allow: tuple[str, ...], deny: tuple[str, ...]
) -> dict[str, CatalogReader]:
    if tokens is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise ConfigError(f"Serving over HTTP needs a token. Set {TOKEN_VARIABLE}, or name a file with --tokens.")
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(f"{TOKEN_VARIABLE} has less than {MIN_TOKEN_CHARS} characters. Set a longer one.")
        return {token: registry.view(allow, deny)}
    try:
        status = tokens.stat()
        lines = tokens.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The tokens {safe(str(tokens))} cannot be read: {error}.") from error
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"The tokens {safe(str(tokens))} can be read by others. Give the file the mode 0600.")
    clients: dict[str, CatalogReader] = {}
    for number, line in enumerate(lines, 1):
        token, *patterns = line.split()[:100] or [""]
        if not token or token.startswith("#"):
            continue
        if token in clients or len(token) < MIN_TOKEN_CHARS:
            what = "has a token a second time" if token in clients else f"has less than {MIN_TOKEN_CHARS} characters"
            raise ConfigError(f"The tokens {safe(str(tokens))}: line {number} {what}. Give each client a long one.")
        clients[token] = registry.view(allow, deny).view(patterns)
    if not clients:
        raise ConfigError(f"The tokens {safe(str(tokens))} have no line with a token. Write one for each client.")
    return clients


def _serve_http(place: str, clients: dict[str, CatalogReader], version: str) -> None:
    from adk_skills_agent.platforms import allow_many_files
    from adk_skills_agent.sources.mcp.server import TokenGate, http_protocol

    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--http {place!r} is no address. Write 127.0.0.1:8765.")
    allow_many_files()
    gate = TokenGate(clients, version)
    import uvicorn

    host = host.strip("[]")
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, int(port)), family=family)
    except OSError as error:
        raise ConfigError(f"Nothing can be served at {place}: {error.strerror}. Choose another --http.") from error
    if host not in {"127.0.0.1", "::1", "localhost"}:
        print("HTTP is not encrypted here: put a proxy with TLS in front of it.", file=sys.stderr)
    server = uvicorn.Server(uvicorn.Config(gate, http=http_protocol(), ws="none", log_level="warning", lifespan="on"))
    at = f"{place.rpartition(':')[0]}:{listening.getsockname()[1]}"
    print(f"Serving at http://{at}/mcp", file=sys.stderr, flush=True)
    server.run(sockets=[listening])
