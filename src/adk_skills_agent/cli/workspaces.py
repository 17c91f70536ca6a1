"""``adk-skills workspaces``: the sessions whose files are in a store, and what an operator does with them."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import print_json, print_table, safe
from adk_skills_agent.cli.sources import json_option
from adk_skills_agent.errors import ConfigError

if TYPE_CHECKING:
    from adk_skills_agent.scripts.workspace_store import StoredSession, WorkspaceStore

_KEY_VARIABLE = "ADK_SKILLS_WORKSPACE_KEY"
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    envvar="ADK_SKILLS_WORKSPACE_STORE",
    required=True,
    help="The store, as workspace_store= has it: a folder, s3://bucket/prefix, gs://bucket/prefix.",
    show_envvar=True,
)
key_option = click.option(
    "--key-env",
    metavar="NAME",
    default=_KEY_VARIABLE,
    show_default=True,
    help="The environment variable with the store's key; several keys are separated by commas.",
)


@click.group("workspaces", short_help="List and remove the files of sessions in a store.")
def command() -> None:
    """List and remove the files of sessions in a store.

    A toolset with workspace_store= keeps the files of each session in a store that its servers share.
    """


_LS_EXAMPLES = """\b
Examples:
  adk-skills workspaces ls --store s3://agents/sessions
  adk-skills workspaces ls --store /mnt/sessions --json
"""


@command.command("ls", epilog=_LS_EXAMPLES)
@store_option
@key_option
@json_option
def ls_command(url: str, key_env: str, as_json: bool) -> None:
    """List the sessions of a store.

    With their files, sizes, when each was used last, and which server works on it. Exit code 1 when a session cannot be
    read.
    """
    from adk_skills_agent.scripts.workspace_store import stored_session

    store = _store(url, key_env)
    sessions = [stored_session(log) for log in store.logs()]
    if as_json:
        print_json([session.to_dict() for session in sessions])
    elif not sessions:
        print(f"The store {safe(store.objects.shown)} has no sessions.")
    else:
        headings = ("SESSION", "APP", "USER", "ID", "FILES", "BYTES", "STORED", "USED", "SERVER")
        print_table(headings, [_row(session) for session in sessions])
        for session in sessions:
            if session.problem:
                click.echo(safe(f"{session.name}: {session.problem}"), err=True)
    if any(session.problem for session in sessions):
        raise click.exceptions.Exit(1)


def _row(session: StoredSession) -> tuple[str, ...]:
    used = datetime.fromtimestamp(session.saved, UTC).strftime("%Y-%m-%d %H:%M") if session.saved is not None else "-"
    owner = session.owner
    return (
        session.name,
        owner.app or "-",
        owner.user or "-",
        owner.session or "-",
        f"{session.files:,}",
        f"{session.size:,}",
        f"{session.stored:,}",
        used,
        session.holder or "-",
    )


_RM_EXAMPLES = """\b
Examples:
  adk-skills workspaces rm 3f9ab2c4d5e6f708192a3b4c5d6e7f80 --store s3://agents/sessions
"""


@command.command("rm", epilog=_RM_EXAMPLES)
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@store_option
@key_option
@json_option
def rm_command(sessions: tuple[str, ...], url: str, key_env: str, as_json: bool) -> None:
    """Remove sessions from a store.

    SESSION is the first column of `adk-skills workspaces ls`. A server that meets the session again starts it with an
    empty working directory, and its model is told. Exit code 1 when a server works on one: it is not removed.
    """
    from adk_skills_agent.scripts.workspace_store import remove_session

    store = _store(url, key_env)
    removed: list[str] = []
    busy: list[str] = []
    for name in sessions:
        (removed if remove_session(store, name) else busy).append(name)
    if as_json:
        print_json({"removed": removed, "busy": busy})
    else:
        for name in removed:
            print(f"Removed {name}.")
        for name in busy:
            click.echo(f"{name} was not removed: a server works on it. Try again when its call has ended.", err=True)
    if busy:
        raise click.exceptions.Exit(1)


_GC_EXAMPLES = """\b
Examples:
  adk-skills workspaces gc --store s3://agents/sessions
  adk-skills workspaces gc --store s3://agents/sessions --older-than 30d
"""


@command.command("gc", epilog=_GC_EXAMPLES)
@store_option
@click.option("--older-than", metavar="TIME", help="Also remove sessions nobody used for so long: 90m, 12h, 30d, 8w.")
@key_option
@json_option
def gc_command(url: str, older_than: str | None, key_env: str, as_json: bool) -> None:
    """Remove what a store no longer needs.

    Earlier versions of files, and what killed servers left half saved. Sessions that a server works on are left alone.
    Run it from time to time, with --older-than for how long conversations are kept. Exit code 1 when a session cannot
    be read.
    """
    from adk_skills_agent.scripts.workspace_store import collect_garbage

    seconds = _seconds(older_than) if older_than is not None else None
    began = time.monotonic()
    done = collect_garbage(_store(url, key_env), seconds)
    if as_json:
        print_json(done.to_dict())
    else:
        took = time.monotonic() - began
        print(
            f"Removed {len(done.removed):,} sessions and {done.objects:,} objects that nothing needs, {done.freed:,} "
            f"bytes, in {took:.1f} s. {len(done.busy):,} sessions are in use."
        )
        for problem in done.problems:
            click.echo(safe(problem), err=True)
    if done.problems:
        raise click.exceptions.Exit(1)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"\s*(\d{1,6})\s*([smhdw])\s*", text)
    if found is None:
        raise ConfigError(f"--older-than must be a number and a unit, such as 12h, 30d or 8w, not {text[:40]!r}.")
    return float(found[1]) * _SECONDS[found[2]]


def _store(url: str, key_env: str) -> WorkspaceStore:
    from adk_skills_agent.scripts.workspace_store import WorkspaceStore

    value = os.environ.get(key_env, "")
    if not value and key_env != _KEY_VARIABLE:
        raise ConfigError(f"The environment variable {key_env} is not set. Set it to the store's key.")
    keys = [part.strip() for part in value.split(",") if part.strip()]
    store = WorkspaceStore(url, key=keys or None)
    if "://" not in url and not Path(url).expanduser().is_dir():
        click.echo(
            f"note: There is no folder {safe(url)} yet; the first agent that stores something makes it.", err=True
        )
    return store
