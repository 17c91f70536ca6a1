"""A sandbox with a lasting workspace as a google-adk environment: for ``SkillToolset(environment=...)`` and
``EnvironmentToolset(environment=...)``.
"""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from google.adk.environment import BaseEnvironment
from google.adk.environment import ExecutionResult as CommandResult

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.executors import workspace_files
from adk_skills_agent.executors.code_result import exit_code, failure_lines
from adk_skills_agent.format.skill_file import find_skill_md
from adk_skills_agent.sandbox.choose import sandbox_of
from adk_skills_agent.sandbox.contract import (
    SKILL_DIR,
    WORK_DIR,
    ExecutionRequest,
    ExecutionResult,
    ReadOnlyMount,
    Sandbox,
    SandboxPolicy,
)
from adk_skills_agent.sandbox.local.own_folder import own_folder
from adk_skills_agent.sandbox.local.turns import Turns
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.presets import policy_of
from adk_skills_agent.sandbox.secrets import EnvValue
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS, cut

logger = logging.getLogger(__name__)

SKILLS = "skills"
"""google-adk's toolset puts skills into this folder of the working directory."""

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
        sandbox: Where commands run: a name (``"auto"``, ``"local"``, ``"container"``, ``"kubernetes"``) or an object.

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
        self._turn = Turns(1)
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
        """The workspace's folder on the host.

        Raises:
            RuntimeError: The environment is not initialized.
        """
        return self._given if self._given is not None else self._folder / "work"

    async def initialize(self) -> None:
        """Make the workspace. Does nothing when it is there.

        The first use does it too (google-adk's SkillToolset never initializes an environment); after :meth:`close` only
        this does.

        Raises:
            OSError: The workspace, or a skill's folder, cannot be used.
        """
        async with self._turn.place():
            self._closed = False
            await self._make_ready()

    async def close(self) -> None:
        """Delete the workspace, unless it was given, after the running command. Safe to call twice."""
        async with self._turn.place():
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
        async with self._turn.place():
            await self._make_ready()
            request = ExecutionRequest(
                argv=_argv(command),
                policy=policy,
                env=self._env,
                workspace=self.workspace,
                mounts=self._mounts(),
                on_output=self._on_output,
                label="command",
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
            ValueError: It is outside the workspace, a link or no regular file, or larger than ``file_bytes``.
        """
        place = workspace_files.inside(path)
        async with self._turn.place():
            await self._make_ready()
            return await asyncio.to_thread(workspace_files.read, self._host(place), place, self._policy.file_bytes)

    async def write_file(self, path: Path | str, content: str | bytes) -> None:
        """Create or replace a file of the workspace; what begins with ``#!`` becomes executable.

        Raises:
            ValueError: It is outside the workspace, something else is in the way, or it is larger than ``file_bytes``.
        """
        place = workspace_files.inside(path)
        data = content.encode() if isinstance(content, str) else content
        async with self._turn.place():
            await self._make_ready()
            host, most = self._host(place), self._policy.file_bytes
            await asyncio.to_thread(workspace_files.write, host, place, data, most)

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
        folder, cleanup = own_folder("environment", self)
        try:
            (folder / "work").mkdir(0o700)
            (folder / "read-only").mkdir(0o700)
            if self._given is not None:
                self._given.mkdir(parents=True, exist_ok=True)
            for name, source in self._skills.items():
                left_out = workspace_files.copy_tree(source, folder / "read-only" / SKILLS / name)
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
        texts = []
        for kept, total, truncated, at in (
            (result.stdout, result.stdout_total, result.stdout_truncated, result.stdout_cut_at),
            (result.stderr, result.stderr_total, result.stderr_truncated, result.stderr_cut_at),
        ):
            text = kept.decode("utf-8", "replace").replace("\0", "\ufffd")
            missing = total - len(kept) if truncated else 0
            place = None if at is None else len(kept[:at].decode("utf-8", "replace"))
            limit = len(text) if self._max_output_chars is None else self._max_output_chars
            texts.append(cut(text, limit, missing_bytes=missing, cut_at=place))
        stdout, stderr = texts
        code = exit_code(result)
        if code != 0:
            stderr = "\n".join(
                [*([stderr.rstrip()] if stderr.strip() else []), *failure_lines(result, policy, stdout + stderr)]
            )
        elif result.notes:
            stderr = "\n".join([*([stderr.rstrip()] if stderr.strip() else []), *result.notes])
        return CommandResult(exit_code=code, stdout=stdout, stderr=stderr, timed_out=result.timed_out)


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
