"""A user namespace with a whole range of user ids, kept open by one small process, in which environments are made.

A root file system has files of many users. In here they are all some of the host's otherwise unused ids, so root of a
environment is nobody on the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent import sandbox
from adk_skills_agent.errors import SandboxError, SandboxUnavailable

COUNT = 65536
_FIRST_FOR_ROOT = 0x70000000
"""Beyond what systemd and shadow hand out; 65,536 ids from here belong to environments when the agent is root."""

_HOLD = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):
    os.write(1, os.strerror(ctypes.get_errno()).encode() + b"\\n")
    sys.exit(1)
os.write(1, b"ready\\n")
while os.read(0, 100): pass
"""
"""A program that ends when its standard input does: with the agent, however that ends."""


@dataclass(slots=True)
class UserRange:
    """The namespace, open until :meth:`close`."""

    first: int
    _holder: subprocess.Popen[bytes]

    @property
    def namespace(self) -> str:
        """The file that stands for it."""
        return f"/proc/{self._holder.pid}/ns/user"

    @property
    def entering(self) -> list[str]:
        """What is put before a command to run it in the namespace, as its root."""
        return ["nsenter", f"--user={self.namespace}", "-S", "0", "-G", "0", "--"]

    def close(self) -> None:
        """End the process that keeps it open."""
        assert self._holder.stdin is not None  # noqa: S101  # it was started with a pipe
        with contextlib.suppress(OSError):
            self._holder.stdin.close()
        if self._holder.stdout is not None:
            self._holder.stdout.close()
        self._holder.kill()
        self._holder.wait()


def open_user_range() -> UserRange:
    """Make the namespace.

    Raises:
        SandboxUnavailable: This machine gives no user namespace, or no range of ids to this user; says what to do.
    """
    first = _FIRST_FOR_ROOT if os.geteuid() == 0 else _own_first_id()
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={},
        cwd="/",
        start_new_session=True,  # a Ctrl-C is the runner's to answer
    )
    found = UserRange(first, holder)
    assert holder.stdout is not None  # noqa: S101  # it was started with a pipe
    answer = holder.stdout.readline().decode("utf-8", "replace").strip()
    problem = f"user namespaces cannot be made here ({answer})" if answer != "ready" else _map(holder.pid, first)
    if problem:
        found.close()
        raise SandboxUnavailable(f"Tasks cannot run in local mode: {problem}.", (problem,))
    return found


def _map(pid: int, first: int) -> str | None:
    if os.geteuid() == 0:
        try:
            for kind in ("uid", "gid"):
                Path(f"/proc/{pid}/{kind}_map").write_text(f"0 {first} {COUNT}\n")
        except OSError as error:
            return f"user ids cannot be mapped ({error.strerror})"
        return None
    for program in ("newuidmap", "newgidmap"):
        done = subprocess.run(
            [program, str(pid), "0", str(first), str(COUNT)], capture_output=True, check=False, timeout=10
        )
        if done.returncode:
            return f"{program} refuses the range ({done.stderr.decode('utf-8', 'replace').strip()})"
    return None


def _own_first_id() -> int:
    """The first of a plain user's own range of 65,536 ids, which has to be the same for users and groups."""
    if shutil.which("newuidmap") is None:
        raise SandboxUnavailable("Tasks cannot run in local mode: newuidmap is missing. Install the package uidmap.")
    import pwd

    user = pwd.getpwuid(os.geteuid())
    ranges = [_ranges(Path(file), (user.pw_name, str(user.pw_uid))) for file in ("/etc/subuid", "/etc/subgid")]
    both = ranges[0] & ranges[1]
    if not both:
        raise SandboxUnavailable(
            f"Tasks cannot run in local mode: {user.pw_name} has no range of {COUNT} ids in /etc/subuid and "
            f"/etc/subgid. As root: usermod --add-subuids 200000-{200000 + COUNT - 1} --add-subgids "
            f"200000-{200000 + COUNT - 1} {user.pw_name}"
        )
    return min(both)


def _ranges(file: Path, names: tuple[str, ...]) -> set[int]:
    found = set()
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return set()
    for line in lines:
        name, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if name in names and first.isdigit() and count.isdigit() and int(count) >= COUNT:
            found.add(int(first))
    return found


OPEN_TO_PASS = 0o711
_OPEN_TO_ALL = 0o1777


async def make_owned(folder: Path, names: Sequence[str], users: UserRange) -> None:
    """Make empty folders of the range's root, mode 0755, in a folder of the caller's.

    Nobody else may know the name of ``folder``; it is open to pass afterwards. Raises ``SandboxError`` when they
    cannot be made.
    """
    if os.geteuid() == 0:
        _give_away(folder, names, users)
        return
    # A plain user cannot give folders away; those who are to have them make them, where all may for that moment.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fchmod(descriptor, _OPEN_TO_ALL)
        places = [f"/proc/self/fd/{descriptor}/{name}" for name in names]
        process = await asyncio.create_subprocess_exec(
            *(*users.entering, "mkdir", "-m", "755", *places), stderr=asyncio.subprocess.PIPE, pass_fds=(descriptor,)
        )
        _, said = await process.communicate()
    finally:
        os.fchmod(descriptor, OPEN_TO_PASS)
        os.close(descriptor)
    if process.returncode:
        why = said.decode("utf-8", "replace").strip()[-300:]
        raise SandboxError(f"Folders of the user range cannot be made in {folder}: {why}")


def _give_away(folder: Path, names: Sequence[str], users: UserRange) -> None:
    for name in names:
        (folder / name).mkdir()
        (folder / name).chmod(0o755)
        os.chown(folder / name, users.first, users.first)
    folder.chmod(OPEN_TO_PASS)


async def remove_tree(folder: Path, users: UserRange) -> None:
    """Remove a folder of the caller's in which folders belong to the range; what is not there is no error."""
    if os.geteuid() != 0:
        # The range may pass the folder but not list it.
        inside = await asyncio.to_thread(_paths_in, folder)
        process = await asyncio.create_subprocess_exec(
            *(*users.entering, "rm", "-rf", "--one-file-system", "--", *inside),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,  # it cannot remove the emptied folders themselves; their owner can
        )
        await process.wait()
    await asyncio.to_thread(sandbox.remove_tree, str(folder))  # of any depth: what is in it a task made (row 226)


def _paths_in(folder: Path) -> list[str]:
    try:
        return [str(path) for path in folder.iterdir()]
    except OSError:
        return []
