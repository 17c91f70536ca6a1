"""Folders that belong to a user range: made and removed also by a caller who is none of its users."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench.user_range import UserRange

OPEN_TO_PASS = 0o711
_OPEN_TO_ALL = 0o1777


async def make_owned(folder: Path, names: Sequence[str], users: UserRange) -> None:
    """Make empty folders of the range's root, mode 0755, in a folder of the caller's.

    Args:
        folder: A folder of this user that nobody else knows the name of; it is open to pass afterwards.
        names: Of the folders in it.
        users: Whose root they get.

    Raises:
        SandboxError: They cannot be made.
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
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _paths_in(folder: Path) -> list[str]:
    try:
        return [str(path) for path in folder.iterdir()]
    except OSError:
        return []
