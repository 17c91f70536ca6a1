"""The files an agent can reach by name: the session's workspace, its ``/tmp``, and the folders of active skills.

The model writes paths as its commands see them: relative to ``/work``, or absolute below ``/work``, ``/tmp`` or
``/skills/<name>``. On the host everything is reached without following a link.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from adk_skills_agent.adk.permissions import permit_reading
from adk_skills_agent.adk.running.runner import workspace_claim
from adk_skills_agent.adk.shell.skills import SKILLS_DIR, mounted_skills, skill_folder
from adk_skills_agent.errors import InvalidArguments, ResourceNotFound, SkillsError
from adk_skills_agent.executors.environment import inside, read, write
from adk_skills_agent.sandbox import HOME_DIR, MAX_DEPTH, TMP_DIR, WORK_DIR, in_worker
from adk_skills_agent.scripts.plan import check_text
from adk_skills_agent.scripts.workspaces import usage_of

if TYPE_CHECKING:
    from google.adk.environment import BaseEnvironment
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill
    from adk_skills_agent.sandbox import SandboxPolicy

_MAX_PATH_BYTES = 4_000
_Result = TypeVar("_Result")


class NeedsApproval(Exception):  # no error: the invocation pauses
    """A file may be read when the user says so; ``answer`` is what the tool answers meanwhile."""

    def __init__(self, answer: dict[str, object]) -> None:
        super().__init__("approval is needed")
        self.answer = answer


class ShellFiles(ABC):
    """The files of one call's session."""

    @abstractmethod
    async def read(self, path: str, use: Callable[[bytes], _Result]) -> _Result:
        """Read a file, and use its content where it was read: a caller that waits must not hold it (row 265).

        Returns what ``use`` returns, which may block.

        Raises:
            ResourceNotFound: There is no such file.
            InvalidArguments: The path is of no place that can be read, or of no regular file; or it is too large.
            NeedsApproval: The user has to be asked first.
            SkillsError: What ``use`` raises.
        """

    @abstractmethod
    async def edit(self, path: str, change: Callable[[bytes], tuple[str, _Result]]) -> tuple[_Result, Sequence[str]]:
        """Replace a file by what ``change`` makes of it; no other call of the session comes between.

        Returns what ``change`` returns behind the text, and sentences as :meth:`write`. Raises as :meth:`read` and
        :meth:`write` do.
        """

    @abstractmethod
    async def write(self, path: str, content: str) -> Sequence[str]:
        """Create or replace a file of the workspace or of ``/tmp``.

        Returns sentences for the model about what was not kept for other servers. Raises ``InvalidArguments`` when
        the path is of no place that can be written.
        """


@dataclass(frozen=True, slots=True)
class WorkspaceFiles(ShellFiles):
    """Files for the sandbox of this package: folders of this machine that runs copy in and bring back."""

    runtime: SkillRuntime
    context: ToolContext
    policy: SandboxPolicy  # its sizes bound what is read and written
    skill: str = ""  # whose workspace it is where each skill has its own; empty for the session's

    async def read(self, path: str, use: Callable[[bytes], _Result]) -> _Result:
        """See :meth:`ShellFiles.read`."""
        place, relative = _place(path)
        if place == SKILLS_DIR:
            return await self._of_skill(relative, use)
        async with workspace_claim(self.runtime, self.context, self.skill) as claim:
            workspace = await asyncio.to_thread(claim.open)
            root = workspace.path if place == WORK_DIR else workspace.tmp
            async with claim.turn(writes=False):
                return await in_worker(lambda: use(_read(root, place, relative, self.policy.file_bytes)))

    async def edit(self, path: str, change: Callable[[bytes], tuple[str, _Result]]) -> tuple[_Result, Sequence[str]]:
        """See :meth:`ShellFiles.edit`."""
        place, relative = _place(path)
        self._check_writable(place, relative)
        async with workspace_claim(self.runtime, self.context, self.skill) as claim:
            workspace = await asyncio.to_thread(claim.open)
            root = workspace.path if place == WORK_DIR else workspace.tmp

            def edit() -> _Result:
                text, told = change(_read(root, place, relative, self.policy.file_bytes))
                self._write(workspace.path, workspace.tmp, place, relative, text)
                return told

            async with claim.turn(call=f"editing the file {relative}"):
                told = await in_worker(edit)
        return told, claim.notes

    async def write(self, path: str, content: str) -> Sequence[str]:
        """See :meth:`ShellFiles.write`."""
        place, relative = _place(path)
        self._check_writable(place, relative)
        async with workspace_claim(self.runtime, self.context, self.skill) as claim:
            workspace = await asyncio.to_thread(claim.open)
            async with claim.turn(call=f"writing the file {relative}"):
                await in_worker(self._write, workspace.path, workspace.tmp, place, relative, content)
        return claim.notes

    @staticmethod
    def _check_writable(place: PurePosixPath, relative: PurePosixPath) -> None:
        if place == SKILLS_DIR:
            raise InvalidArguments(
                f"{_shown(place, relative)} is part of a skill, which cannot be changed. Copy it to {WORK_DIR} first."
            )

    def _write(self, work: Path, tmp: Path, place: PurePosixPath, relative: PurePosixPath, content: str) -> None:
        policy = self.policy
        root, most = (work, policy.workspace_bytes) if place == WORK_DIR else (tmp, policy.tmp_bytes)
        data = content.encode()
        if len(relative.parts) > MAX_DEPTH:  # what lies deeper is not copied into a run
            raise InvalidArguments(f"The path has {len(relative.parts)} folders; at most {MAX_DEPTH} are possible.")
        root.mkdir(mode=0o700, exist_ok=True)
        used = usage_of(root, but=str(relative))
        if not used.has_room(most, policy.workspace_inodes, data):
            raise InvalidArguments(
                f"{place} has no room for {_shown(place, relative)} of {len(data):,} bytes: {used.size:,} bytes in "
                f"{used.entries:,} files are there. Delete what you do not need, with execute."
            )
        try:
            write(root, relative, data, self.policy.file_bytes)
        except (ValueError, OSError) as error:
            raise InvalidArguments(_sentence(error, place, relative)) from None

    async def _of_skill(self, relative: PurePosixPath, use: Callable[[bytes], _Result]) -> _Result:
        folder, *rest = relative.parts
        mounted = await mounted_skills(self.runtime, self.context)
        for skill in mounted:
            if skill.folder == folder and rest:
                known = skill.skill
                path = await in_worker(known.find, "/".join(rest), ())
                pending = await permit_reading(self.runtime, self.context, known, path)
                if pending is not None:
                    raise NeedsApproval(pending)
                return await in_worker(_of_file, known, path, self.policy.file_bytes, use)
        active = [str(SKILLS_DIR / skill.folder) for skill in mounted]
        there = f"Skills there: {', '.join(active)}." if active else "No skill is active; load the skill first."
        withheld = [name for name in self.runtime.active.active(self.context) if skill_folder(name) == folder]
        if withheld and str(SKILLS_DIR / folder) not in active:
            there = "Its scripts may not run here, so it is not in the shell; read it with the tool for resources."
        raise ResourceNotFound(f"There is no file {_shown(SKILLS_DIR, relative)}. {there}", ())


@dataclass(frozen=True, slots=True)
class EnvironmentFiles(ShellFiles):
    """Files of a google-adk environment, which resolves their paths itself."""

    environment: BaseEnvironment
    most: int | None

    async def read(self, path: str, use: Callable[[bytes], _Result]) -> _Result:
        """See :meth:`ShellFiles.read`."""
        content = await self._content(path)
        return await in_worker(use, content)

    async def edit(self, path: str, change: Callable[[bytes], tuple[str, _Result]]) -> tuple[_Result, Sequence[str]]:
        """See :meth:`ShellFiles.edit`; an environment has no turns."""
        text, told = await self.read(path, change)
        return told, await self.write(path, text)

    async def _content(self, path: str) -> bytes:
        _check(path)
        try:
            content = await self.environment.read_file(Path(path))
        except FileNotFoundError:
            raise ResourceNotFound(f"There is no file '{path}'.", ()) from None
        except SkillsError:
            raise
        except Exception as error:  # each environment has its own exceptions
            raise InvalidArguments(f"'{path}' cannot be read: {_cause(error)}.") from error
        if self.most is not None and len(content) > self.most:
            raise InvalidArguments(f"'{path}' has {len(content):,} bytes; at most {self.most:,} can be read at once.")
        return bytes(content)

    async def write(self, path: str, content: str) -> Sequence[str]:
        """See :meth:`ShellFiles.write`."""
        _check(path)
        try:
            await self.environment.write_file(Path(path), content)
        except SkillsError:
            raise
        except Exception as error:  # each environment has its own exceptions
            raise InvalidArguments(f"'{path}' cannot be written: {_cause(error)}.") from error
        return ()


def _check(path: str) -> None:
    check_text(path, "'path'")
    if len(path.encode()) > _MAX_PATH_BYTES:
        raise InvalidArguments(f"'path' has {len(path.encode()):,} bytes; no file system has such a path.")
    if PurePosixPath(path).parts[:1] == ("~",):  # only a shell makes the home folder of it
        raise InvalidArguments(f"'{path[:100]}' is in the home folder. Give a path in the working directory.")


def _place(path: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Which of the three places a path is in, and where there.

    Raises ``InvalidArguments`` when it is in none of them.
    """
    _check(path)
    given = PurePosixPath(path)
    place = WORK_DIR
    for other in (TMP_DIR, SKILLS_DIR):
        if given.is_relative_to(other):
            place, given = other, given.relative_to(other)
    try:
        relative = inside(given if given.parts else "")
    except ValueError:
        raise InvalidArguments(
            f"'{path[:100]}' is not a file you can reach. Give a path relative to {WORK_DIR}, or below {TMP_DIR} or "
            f"{SKILLS_DIR}/<skill>."
        ) from None
    if (place / relative).is_relative_to(HOME_DIR):
        raise InvalidArguments(f"'{path[:100]}' is in the home folder, which is new in every run. Use {WORK_DIR}.")
    return place, relative


def _of_file(skill: KnownSkill, path: str, most: int | None, use: Callable[[bytes], _Result]) -> _Result:
    return use(skill.read_bytes(path, most))


def _read(root: Path, place: PurePosixPath, relative: PurePosixPath, most: int | None) -> bytes:
    try:
        return read(root, relative, most)
    except FileNotFoundError:
        raise ResourceNotFound(
            f"There is no file {_shown(place, relative)}.", _similar(root, place, relative)
        ) from None
    except (ValueError, OSError) as error:
        raise InvalidArguments(_sentence(error, place, relative)) from None


def _similar(root: Path, place: PurePosixPath, relative: PurePosixPath) -> tuple[str, ...]:
    """Paths of files that may be meant: of the same name, or of a similar one."""
    from adk_skills_agent.errors import nearest

    known: list[str] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = PurePosixPath(os.path.relpath(folder, root))
        known += [str(here / name) for name in files]
        if len(known) > _MOST_LOOKED_AT:
            break
    same = [path for path in known if PurePosixPath(path).name == relative.name]
    close = [path for path in same or nearest(str(relative), known) if path.isprintable()]
    return tuple(path if place == WORK_DIR else str(place / path) for path in close[:5])


_MOST_LOOKED_AT = 2_000


def _shown(place: PurePosixPath, relative: PurePosixPath) -> str:
    return f"'{relative}'" if place == WORK_DIR else f"'{place / relative}'"


def _sentence(error: OSError | ValueError, place: PurePosixPath, relative: PurePosixPath) -> str:
    """An error of the file system without a path of the host: :mod:`..executors.environment` spells ``/work``."""
    if isinstance(error, OSError):
        return f"{_shown(place, relative)} cannot be used: {error.strerror or 'the system refused it'}."
    text = str(error)
    return text if place == WORK_DIR else text.replace(f"{WORK_DIR}/", f"{place}/")


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__  # whoever answers cuts it, when there is no secret in it any more
