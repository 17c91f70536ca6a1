"""A sandbox with a lasting workspace as a google-adk environment: for ``SkillToolset(environment=...)`` and
``EnvironmentToolset(environment=...)``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import stat
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from google.adk.environment import BaseEnvironment
from google.adk.environment import ExecutionResult as CommandResult

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.executors.code_values import (
    current_invocation,
    exit_code,
    failure_lines,
    share_of_invocation,
    streams_of,
)
from adk_skills_agent.format.reading import find_skill_md
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, write_below
from adk_skills_agent.sandbox import (
    MAX_WAITING,
    SKILL_DIR,
    WHOSE,
    WORK_DIR,
    EnvValue,
    ExecutionRequest,
    ExecutionResult,
    ReadOnlyMount,
    Sandbox,
    SandboxPolicy,
    Semaphore,
    check_policy,
    policy_of,
    sandbox_of,
    temporary_folder,
)
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS

logger = logging.getLogger(__name__)

SKILLS = "skills"
"""google-adk's toolset puts skills into this folder of the working directory."""

_MOST_WAITING = 1_024
_MOST_LINES = 100_000
_ALIKE_LINES, _MOST_COMPARED = 8, 20_000_000
_WORK_PATH = re.compile(rf"(?<![\w./-]){re.escape(str(WORK_DIR))}(?![\w.-])")
_HERE = "@adk-workspace@"
_WITH_HERE = 'exec bash -c "${1//$2/$PWD}" bash'


class SandboxEnvironment(BaseEnvironment):
    """Runs shell commands in this machine's sandbox, in a workspace that lasts until :meth:`close`.

    The model knows the workspace as ``/work``; no path of the host is shown. Commands of one environment take turns.
    Files under ``/work/skills`` are read-only for commands; :meth:`write_file` can change them.

    Args:
        policy: The limits of each command, or the name of a preset; None takes ``SandboxPolicy()``.
        min_isolation: Below this level commands are refused; None takes the policy's.
        workspace: A host folder to keep, made when it is missing; None makes a temporary one.
        skills: Skill folders that are put under ``/work/skills/<folder name>`` completely, with the files google-adk's
            loader leaves out and with their executable bits.
        env: Variables given to every command; a :class:`~adk_skills_agent.Secret` is kept out of what comes back.
        max_output_chars: Most characters of each stream in a result; None keeps what the policy keeps.
        on_output: Called in the event loop with ``("stdout" | "stderr", chunk)`` as output arrives.
        sandbox: Where commands run: a name (``"auto"``, ``"local"``, ``"container"``, ``"kubernetes"``, ``"ray"``) or
            an object.

    Raises:
        ConfigError: The policy has impossible values, two skills have the same folder name, or one has no SKILL.md.
    """

    def __init__(
        self,
        *,
        policy: SandboxPolicy | str | None = None,
        min_isolation: str | None = None,
        workspace: Path | str | None = None,
        skills: Sequence[Path | str] = (),
        env: Mapping[str, EnvValue] | None = None,
        max_output_chars: int | None = MODEL_STREAM_CHARS,
        on_output: Callable[[str, bytes], None] | None = None,
        sandbox: Sandbox | str | None = None,
    ) -> None:
        # super().__init__ has nothing but google-adk's notice that the base class is experimental.
        policy = policy_of(policy)
        if min_isolation is not None:
            policy = replace(policy, min_isolation=min_isolation)
        self._policy = check_policy(policy)
        self._skills = {Path(folder).name: Path(folder) for folder in skills}
        if len(self._skills) < len(skills):
            raise ConfigError("Two of the skills have the same folder name; in /work/skills only one can have it.")
        for folder in self._skills.values():
            if find_skill_md(folder) is None:
                raise ConfigError(f"skills: {str(folder)!r} is no skill's folder; there is no SKILL.md in it.")
        self._given = None if workspace is None else Path(workspace)
        self._env = dict(env or {})
        self._max_output_chars = max_output_chars
        self._on_output = on_output
        self._owns_sandbox = not isinstance(sandbox, Sandbox)
        self._sandbox = sandbox_of(sandbox)
        # Users and sessions in turn (row 362), and a bound where google-adk's own tools do not say whose a call is.
        self._turn = Semaphore(1, fair=True, most_waiting=MAX_WAITING, most_in_all=_MOST_WAITING)
        self._root: Path | None = None
        self._cleanup: weakref.finalize[..., object] | None = None
        self._is_initialized = False
        self._closed = False
        self.last_result: ExecutionResult | None = None

    @property
    def working_dir(self) -> Path:
        """``/work``: where the workspace is for commands and for the model, not on the host."""
        return Path(WORK_DIR)

    @property
    def workspace(self) -> Path:
        """The workspace's folder on the host. Raises ``RuntimeError`` when the environment is not initialized."""
        return self._given if self._given is not None else self._folder / "work"

    async def initialize(self) -> None:
        """Make the workspace. Does nothing when it is there.

        The first use does it too (google-adk's SkillToolset never initializes an environment); after :meth:`close` only
        this does. Raises ``OSError`` when the workspace, or a skill's folder, cannot be used.
        """
        async with self._turn:
            self._closed = False
            await self._make_ready()

    async def close(self) -> None:
        """Delete the workspace, unless it was given, after the running command. Safe to call twice."""
        async with self._turn:
            cleanup, self._cleanup, self._root = self._cleanup, None, None
            self._closed = True
            self._is_initialized = False
            if cleanup is not None:
                await asyncio.to_thread(cleanup)
        if self._owns_sandbox:
            await self._sandbox.close()

    async def execute(self, command: str, *, timeout: float | None = None) -> CommandResult:  # noqa: ASYNC109
        """Run ``command`` with bash in the workspace.

        Args:
            command: A shell command; it reaches bash inside the sandbox and no shell outside of it.
            timeout: Seconds; None takes the policy's ``wall_seconds`` (which may be None, no limit), 0 is legal.

        Returns:
            What it did; ``exit_code`` is -1 after a timeout and minus the signal when one ended it. The whole result,
            with the isolation report, is in ``last_result``.

        Raises:
            RuntimeError: The environment is closed.
            SandboxUnavailable: No isolation level that works here meets the policy.
            SandboxError: The sandbox itself failed.
            ValueError: The command cannot be given to a process (a NUL byte, more than 128 KiB).
        """
        policy = self._policy if timeout is None else check_policy(replace(self._policy, wall_seconds=timeout))
        share = share_of_invocation(current_invocation())
        async with self._turn.turn(share):
            await self._make_ready()
            request = ExecutionRequest(
                argv=_argv(command),
                policy=policy,
                env=self._env,
                workspace=self.workspace,
                mounts=self._mounts(),
                on_output=self._on_output,
                label="command",
                share=share,
            )
            result = await self._sandbox.run(request)
        self.last_result = result
        return self._answer(result, policy)

    async def read_file(self, path: Path | str) -> bytes:
        """The bytes of a file of the workspace.

        Args:
            path: Relative to the workspace, or absolute under ``/work``.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is outside the workspace, a link or no regular file, or larger than ``file_bytes``; or it has
                more than 100,000 lines, each of which google-adk's tools make an object in the event loop (row 299).
                This package's own tools read a page of it.
        """
        place = inside(path)
        most_lines = None if WHOSE.get() else _MOST_LINES
        async with self._turn.turn(share_of_invocation(current_invocation())):
            await self._make_ready()
            return await asyncio.to_thread(_with_lines, self._host(place), place, self._policy.file_bytes, most_lines)

    async def write_file(self, path: Path | str, content: str | bytes) -> None:
        """Create or replace a file of the workspace; what begins with ``#!`` becomes executable.

        Raises:
            ValueError: It is outside the workspace, something else is in the way, or it is larger than ``file_bytes``.
        """
        place = inside(path)
        data = content.encode() if isinstance(content, str) else content
        async with self._turn.turn(share_of_invocation(current_invocation())):
            await self._make_ready()
            host, most = self._host(place), self._policy.file_bytes
            await asyncio.to_thread(write, host, place, data, most)

    @property
    def _folder(self) -> Path:
        if self._root is None:
            raise RuntimeError("The SandboxEnvironment is not initialized: await its initialize() first.")
        return self._root

    async def _make_ready(self) -> None:
        if self._root is None:
            if self._closed:
                raise RuntimeError("This SandboxEnvironment is closed: await its initialize() to use it again.")
            await asyncio.to_thread(self._make)
            self._is_initialized = True

    def _make(self) -> None:
        folder, cleanup = temporary_folder("environment", self)
        try:
            (folder / "work").mkdir(0o700)
            (folder / "read-only").mkdir(0o700)
            if self._given is not None:
                self._given.mkdir(parents=True, exist_ok=True)
            for name, source in self._skills.items():
                left_out = copy_tree(source, folder / "read-only" / SKILLS / name)
                for path in left_out:
                    logger.warning(
                        "Skill %r: %r was left out: it is a link or no regular file, or cannot be read.", name, path
                    )
        except BaseException:
            cleanup()
            raise
        self._root, self._cleanup = folder, cleanup

    def _host(self, place: PurePosixPath) -> Path:
        """The host folder ``place`` is relative to. Skills are kept apart, so that they can be mounted read-only."""
        folder = self._folder
        return folder / "read-only" if place.parts[0] == SKILLS and len(place.parts) > 1 else self.workspace

    def _mounts(self) -> tuple[ReadOnlyMount, ...]:
        # Linked: /work/skills leads to /skill/skills.
        source = self._folder / "read-only"
        return (ReadOnlyMount(source, SKILL_DIR),) if (source / SKILLS).is_dir() else ()

    def _answer(self, result: ExecutionResult, policy: SandboxPolicy) -> CommandResult:
        stdout, stderr = (stream.shown(self._max_output_chars) for stream in streams_of(result))
        code = exit_code(result)
        added = failure_lines(result, policy, stdout + stderr) if code != 0 else list(result.notes)
        if code != 0 or added:
            stderr = "\n".join([*([stderr.rstrip()] if stderr.strip() else []), *added])
        return CommandResult(exit_code=code, stdout=stdout, stderr=stderr, timed_out=result.timed_out)


def _with_lines(root: Path, place: PurePosixPath, most_bytes: int | None, most_lines: int | None) -> bytes:
    content = read(root, place, most_bytes)
    if most_lines is None:
        return content
    how = f"Read or change a part of it with a command such as sed -n '1,200p' {place}."
    if content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n") > most_lines:
        raise ValueError(f"'{WORK_DIR / place}' has more than {most_lines:,} lines. {how}")
    if _is_like_itself(content):
        raise ValueError(f"'{WORK_DIR / place}' has the same lines again and again. {how}")
    return content


def _is_like_itself(content: bytes) -> bool:
    """Whether a search for lines of it takes long: where they begin the same, each place is compared to its end.

    google-adk's EditFile makes an expression of what is looked for, and searches in the event loop (row 479).
    """
    lines = content.splitlines()
    windows: Sequence[object] = lines
    compared = 0
    # Places that agree in 8 lines, in 64, in 512: those of one that are none of the next agree in less than that.
    for step, longest in ((1, 64), (8, 512), (64, len(lines))):
        numbers: dict[tuple[object, ...], int] = {}
        joined = zip(*(windows[first * step :] for first in range(_ALIKE_LINES)), strict=False)
        windows = [numbers.setdefault(window, len(numbers)) for window in joined]
        alike = max(Counter(windows).values(), default=0)
        if compared + alike * len(lines) <= _MOST_COMPARED:
            return False
        compared += alike * longest
    return compared > _MOST_COMPARED


def _argv(command: str) -> tuple[str, ...]:
    """``bash -c``. Where the sandbox has no ``/work`` of its own, the path inside the command is put right by the shell
    that starts in the workspace; the levels translate whole arguments only.
    """
    if "\0" in command:
        raise ValueError("The command contains a NUL byte; no shell can receive one.")
    marked = _WORK_PATH.sub(_HERE, command)
    if marked == command:
        return ("bash", "-c", command)
    return ("bash", "-c", _WITH_HERE, "bash", marked, _HERE)


# Read and write files of an environment, confined to its folder whatever links and names are in the way.

_READ = os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
_FOLDER = os.O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC


def inside(path: str | Path | PurePosixPath) -> PurePosixPath:
    """``path`` relative to the workspace. Raises ``ValueError`` when it is outside."""
    text = os.fspath(path)
    given = PurePosixPath(text)
    if given.is_absolute() and given.is_relative_to(WORK_DIR):
        given = given.relative_to(WORK_DIR)
    parts: list[str] = []
    leaves = False
    for part in given.parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            leaves = True
    if not parts or given.is_absolute() or leaves or "\0" in text:
        raise ValueError(f"{text!r} is not a file inside {WORK_DIR}.")
    return PurePosixPath(*parts)


def read(root: Path, path: PurePosixPath, most: int | None) -> bytes:
    """The bytes of a regular file.

    Raises ``FileNotFoundError`` when there is no such file, or ``ValueError`` when it is a link, a folder or another
    special file, or larger than ``most``.
    """
    with _folder_of(root, path, make=False) as folder, _described(path):
        descriptor = os.open(path.name, _READ, dir_fd=folder)
    info = _regular(descriptor, path)
    with open(descriptor, "rb") as file:
        if most is not None and info.st_size > most:
            raise ValueError(f"{_shown(path)!r} has {info.st_size:,} bytes; at most {most:,} can be read at once.")
        return file.read(info.st_size)


def write(root: Path, path: PurePosixPath, content: bytes, most: int | None) -> None:
    """Create or replace a regular file, and the folders it is in. What begins with ``#!`` becomes executable.

    Raises:
        ValueError: A link, a folder or a special file is in the way, or ``content`` is larger than ``most`` bytes.
    """
    if most is not None and len(content) > most:
        raise ValueError(f"{_shown(path)!r} would have {len(content):,} bytes; a file has at most {most:,} here.")
    # Without the bit a script that was handed over as text could not be started by its name (row E8).
    mode = 0o700 if content.startswith(b"#!") else 0o600
    with _folder_of(root, path, make=True) as folder, _described(path):
        # When the disk is full, what was there stays.
        write_below(folder, path.name, content, mode | _mode_of(folder, path.name) & 0o100)


def _mode_of(folder: int, name: str) -> int:
    """The mode of the file that is about to be replaced; 0 for none. Raises ``OSError`` when it is no regular file."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(info.st_mode):
        kinds = {stat.S_IFLNK: errno.ELOOP, stat.S_IFDIR: errno.EISDIR}
        raise OSError(kinds.get(stat.S_IFMT(info.st_mode), errno.ENXIO), "it is not a regular file")
    return info.st_mode


def copy_tree(source: Path, target: Path) -> list[str]:
    """Copy a folder's regular files with their executable bits.

    Links, special files and what cannot be read are left out. Returns the relative paths that were left out. Raises
    ``OSError`` when ``source`` itself cannot be read, or ``target`` is already there.
    """
    left_out: list[str] = []
    target.mkdir(parents=True)

    def unreadable(error: OSError) -> None:
        here = Path(error.filename)
        if here == source:
            raise error
        left_out.append(here.relative_to(source).as_posix())

    for folder, folders, files in os.walk(source, onerror=unreadable):
        here = Path(folder)
        for name in [*folders, *files]:
            item = here / name
            relative = item.relative_to(source)
            mode = item.lstat().st_mode
            if stat.S_ISDIR(mode):
                (target / relative).mkdir()
            elif stat.S_ISREG(mode):
                try:
                    descriptor = os.open(item, _READ)
                except PermissionError:
                    left_out.append(relative.as_posix())
                    continue
                with open(descriptor, "rb") as file:
                    write(target, PurePosixPath(relative.as_posix()), file.read(), None)
                if mode & 0o100:
                    (target / relative).chmod(0o700)
            else:
                left_out.append(relative.as_posix())
    return left_out


@contextlib.contextmanager
def _folder_of(root: Path, path: PurePosixPath, *, make: bool) -> Iterator[int]:
    """A descriptor of the folder a file is in, reached without following a link."""
    descriptor = os.open(root, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        for part in path.parts[:-1]:
            with _described(path):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=descriptor)
                deeper = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _described(path: PurePosixPath) -> Iterator[None]:
    """Errors of the system as sentences with the path the model knows, not the host's."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "There is no such file", _shown(path)) from None
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, "A part of the path is no folder", _shown(path)) from None
    except OSError as error:
        reason = {errno.ELOOP: "it is a symbolic link", errno.EISDIR: "it is a folder", errno.ENXIO: "it is a pipe"}
        because = reason.get(error.errno or 0, error.strerror or "the system refused it")
        raise ValueError(f"{_shown(path)!r} cannot be used: {because}.") from None
    except ValueError:
        raise ValueError(f"{_shown(path)!r} is no valid path.") from None


def _regular(descriptor: int, path: PurePosixPath) -> os.stat_result:
    """The open file if it is a regular one; otherwise closes it again."""
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(info.st_mode) else "no regular file"
        raise ValueError(f"{_shown(path)!r} cannot be used: it is {kind}.")
    return info


def _shown(path: PurePosixPath) -> str:
    return str(WORK_DIR / path)
