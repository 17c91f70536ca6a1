"""What a run with a file system of its own is to start, as the sandbox sees it, checked as far as can be."""

from __future__ import annotations

import errno
import functools
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local.command import check_argv, encode, find_command, spelling
from adk_skills_agent.sandbox.local.python_view import shown_at
from adk_skills_agent.sandbox.local.run import TMP_DIR
from adk_skills_agent.sandbox.local.view import PathView
from adk_skills_agent.sandbox.local.workspace import Workspace, about

_OWN_PLACES = ((WORK_DIR, "/"), (TMP_DIR, "/"))
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF})


@dataclass(frozen=True, slots=True)
class InnerCommand:
    """A command.

    Attributes:
        argv: As the sandbox sees it.
        on_host: Its first element as the host sees it.
        shown: The same as a sentence may show it.
    """

    argv: tuple[str, ...]
    on_host: str
    shown: str


def check_sources(request: ExecutionRequest, policy: SandboxPolicy, uid: int | None) -> None:
    """Say in a sentence what bubblewrap or the command could not read.

    Args:
        request: Its mounts.
        policy: Its further folders.
        uid: The user the command runs as when the agent is root.

    Raises:
        SandboxError: A folder is not there or cannot be read.
    """
    shown = [(str(mount.target), os.fspath(mount.source), True) for mount in request.mounts]
    for name, path, is_mount in (*shown, *((path, path, False) for path in policy.extra_ro)):
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116
        except OSError as error:
            if is_mount and error.errno in _NOT_THERE:
                raise about(SandboxError(f"The folder for {name} is not there."), path) from error
            raise about(SandboxError(f"{name!r} cannot be shown to the script: {error.strerror}."), path) from error
        if is_mount and not stat.S_ISDIR(mode):
            raise about(SandboxError(f"The folder for {name} is not there."), path)
        needed = 0o005 if stat.S_ISDIR(mode) else 0o004
        if uid is not None and mode & needed != needed:
            raise about(
                SandboxError(
                    f"{name!r} cannot be read by user {uid}, as which scripts run when the agent is root. "
                    "Make it readable for others (chmod o+rX)."
                ),
                path,
            )


def mounted(request: ExecutionRequest) -> tuple[tuple[PurePosixPath, str], ...]:
    """Where each mount is inside, and on the host."""
    mounts = request.mounts
    here = "/" if all(os.fspath(mount.source)[:1] == "/" for mount in mounts) else os.getcwd()  # noqa: PTH109
    return _mounted(mounts, here)


@functools.lru_cache(maxsize=64)
def _mounted(mounts: tuple[ReadOnlyMount, ...], here: str) -> tuple[tuple[PurePosixPath, str], ...]:
    return tuple((mount.target, os.path.normpath(os.path.join(here, mount.source))) for mount in mounts)  # noqa: PTH118


@functools.lru_cache(maxsize=64)
def view_of(places: tuple[tuple[PurePosixPath, str], ...]) -> PathView:
    """The mapping between places inside and on the host; looked at once, since it takes a moment."""
    return PathView(places)


def inner_command(
    request: ExecutionRequest, policy: SandboxPolicy, path: str, shown: tuple[tuple[PurePosixPath, str], ...]
) -> InnerCommand:
    """The command as the sandbox sees it; one given by a path is looked at when the workspace is there.

    Args:
        request: Its ``argv``.
        policy: Names the interpreter.
        path: The run's PATH.
        shown: See :func:`mounted`.

    Raises:
        SandboxError: There is no such command.
        ValueError: It cannot be expressed.
    """
    argv = request.argv
    check_argv(argv)
    if "\0" in str(request.cwd):
        raise ValueError(f"cwd {str(request.cwd)!r} contains a NUL byte; no folder can be called so.")
    places = view_of((*shown, *_OWN_PLACES))
    spelled = spelling(argv[0], places.argument(argv[0]))
    if argv[0] in {policy.python, sys.executable}:
        return InnerCommand((shown_at(argv[0]), *argv[1:]), argv[0], spelled)
    if "/" in argv[0]:
        return InnerCommand(tuple(argv), places.argument(argv[0]), spelled)
    on_host = os.fsdecode(find_command(argv[0], argv[0], path=encode(path), cwd=b"/"))
    return InnerCommand((shown_at(on_host), *argv[1:]), on_host, spelled)


def check_inside(request: ExecutionRequest, policy: SandboxPolicy, workspace: Workspace, path: str) -> None:
    """Say in a sentence what can be known of the command and its folder before it starts.

    Args:
        request: Its ``argv`` and ``cwd``.
        policy: Names the interpreter.
        workspace: As the run will find it.
        path: The run's PATH.

    Raises:
        SandboxError: The command cannot be started.
        ValueError: The folder is not there.
    """
    name = request.argv[0]
    by_path = "/" in name and name not in {policy.python, sys.executable}
    if not by_path and request.cwd == WORK_DIR:
        return
    linked: dict[str, str] = {}
    for mount in request.mounts:
        source = os.path.abspath(mount.source)  # noqa: PTH100
        for entry in workspace.links if mount.linked else ():
            if entry not in linked and os.path.lexists(encode(f"{source}/{entry}")):
                linked[entry] = f"{source}/{entry}"
    outside = PathView(
        [
            *mounted(request),
            (WORK_DIR, workspace.work),
            (TMP_DIR, workspace.tmp),
            *((WORK_DIR / entry, where) for entry, where in linked.items()),
        ]
    )
    if not os.path.isdir(encode(outside.directory(request.cwd))):  # noqa: PTH112
        raise ValueError(f"cwd {str(request.cwd)!r} does not exist in the sandbox.")
    if not by_path:
        return
    where = os.path.normpath(name if name.startswith("/") else str(request.cwd / name))
    find_command(name, outside.argument(where), path=encode(path), cwd=b"/")
