"""One call of a skill's script, checked, and what came of it; the same for every backend."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from google.genai import types

from adk_skills_agent.adk.skills.known import SKILL_FILE
from adk_skills_agent.errors import CHANGED, InvalidArguments, SkillChanged, TooManyRuns
from adk_skills_agent.sandbox import InputFile, Semaphore, in_worker, more_for, portable
from adk_skills_agent.scripts.plan import check_text, share_of

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.skills.known import KnownSkill
    from adk_skills_agent.scripts import HostRules, ScriptArguments, ScriptOutcome
    from adk_skills_agent.scripts.outcome import RefusedHost
    from adk_skills_agent.scripts.workspaces import WorkspaceClaim


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """The model's request."""

    skill: KnownSkill
    path: str  # the script, relative to the skill's root (``scripts/run.py``)
    asked: str  # the path as the model wrote it
    arguments: ScriptArguments
    inputs: tuple[InputFile, ...] = ()  # artifacts of the session that it wants to find in the working directory
    command: object = None  # a shell command, google-adk's way to call a script in an environment; None for none
    claim: WorkspaceClaim | None = None  # to the session's workspace, for a run in our sandbox
    version: str = ""  # the version of the skill that the user approved for this call; empty when nobody had to
    hosts: HostRules | None = None  # what rules and answers say of hosts; for our sandbox
    on_output: Callable[[str, bytes], None] | None = None  # called with output as it arrives; for our sandbox
    packages: tuple[str, ...] = ()  # digests of locks whose packages the user approved for this call

    def check_version(self) -> None:
        """For a backend that reads the skill's files itself: call it when they are read. Blocks.

        Raises ``SkillChanged`` when they are not those that the user approved.
        """
        if self.version and self.skill.version() != self.version:
            raise SkillChanged(CHANGED)


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """The outcome of a run."""

    answer: dict[str, object]
    exit_code: int | None = None  # None when nothing reported one
    stdout_bytes: int = 0  # of its output, all
    stderr_bytes: int = 0  # of its messages, all
    files: int = 0
    level: str = ""  # the isolation level, or empty where it is not known
    refused: tuple[RefusedHost, ...] = ()  # hosts it tried to reach and might not

    @property
    def status(self) -> str:
        """``success``, ``warning`` or ``error``."""
        return str(self.answer.get("status") or "error")

    @property
    def reason(self) -> str:
        """Why it failed, or empty."""
        return str(self.answer.get("reason") or "")


# Files between a session's artifacts and a script's workspace (S0-66, row 22).

logger = logging.getLogger(__name__)

MAX_INPUTS = 1_000
"""Artifacts that one call may name."""
MAX_INPUT_BYTES = 1 << 30
"""Of them together, where the policy does not bound the workspace."""
MAX_HELD_BYTES = 1 << 30
"""Of all calls that run or wait, unless one call alone may have more: a model makes any number of calls at once."""
_LOADING = Semaphore(8, fair=True)
"""Artifacts that are loaded at a time: the size of one is known when it is there."""
_MAX_NAME_BYTES = 255  # of one part of a path, on every usual file system
_MAX_NAME_CHARS = 1_024


@dataclass(frozen=True, slots=True)
class SavedOutputs:
    """The parts of a script's output that are artifacts now."""

    files: Mapping[str, str] = field(default_factory=dict)  # output path to artifact name
    streams: Mapping[str, str] = field(default_factory=dict)  # ``stdout`` or ``stderr`` to artifact name
    # of these, those whose artifact is not the whole stream, to the bytes it has
    beginnings: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # a sentence for each thing that could not be saved

    def answer_of(self, outcome: ScriptOutcome, notes: Sequence[str]) -> dict[str, object]:
        """The model's answer about the run that had this output."""
        answer = outcome.to_model(artifacts=self.files, streams=self.streams, beginnings=self.beginnings, notes=notes)
        if self.files or self.streams:
            answer["saved_artifacts"] = [*self.files.values(), *self.streams.values()]
        return answer


class HeldInputs:
    """The bytes of artifacts that calls have in the memory of this process, of each user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def of_call(self, user: str, most: int) -> AsyncIterator[Callable[[int], None]]:
        """What counts the bytes of one call, as they come, to its end; ``most`` is what a call may have.

        It raises ``TooManyRuns`` when there is no room beside other calls (rows 81 and 260).
        """
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            with self._lock:
                own, others = self._held[user] - mine, self._held.total() - mine
                if others and more_for(own, max(MAX_HELD_BYTES, most) - others - mine, size) < 1:
                    raise TooManyRuns(
                        f"Other calls with artifacts run or wait: {others:,} bytes are in memory. Wait until some of "
                        "them have ended, then try again."
                    )
                mine += size
                self._held[user] += size

        try:
            yield take
        finally:
            with self._lock:
                self._held[user] -= mine
                if not self._held[user]:
                    del self._held[user]


def share_of_session(context: ReadonlyContext) -> tuple[str, str]:
    """Whose the runs and the disk work of a turn are."""
    session = context.session
    return share_of(session.app_name, session.user_id, session.id)


HELD_INPUTS = HeldInputs()
"""Those of this process."""


def check_input_names(inputs: Sequence[InputFile], skill: KnownSkill) -> None:
    """Refuse artifacts that would stand in the place of a skill's own files, or be a program's settings (row 335).

    For runs with keys, hosts or programs: another skill, or a client, may have made them. What no list of files shows
    is the skill's own, too: ``node_modules``, what a link leads to (row 343). Raises ``SkillsError``. Blocks.
    """
    own = {SKILL_FILE, *(path.partition("/")[0] for path in skill.files())}
    if not skill.in_memory:
        own.update(portable(name) for name in os.listdir(skill.local().skill_dir))  # noqa: PTH208
    for file in inputs:
        first = file.path.partition("/")[0]
        if first in own:
            raise InvalidArguments(
                f"The artifact '{file.path[:80]}' would take the place of the skill's own '{first[:80]}', and the "
                "skill has keys, hosts or programs. Save it under another name."
            )
        if any(part.startswith(".") for part in file.path.split("/")):
            raise InvalidArguments(
                f"The artifact '{file.path[:80]}' is hidden, as settings of programs are, and not for a skill that has "
                "keys, hosts or programs. Save it under a name that does not begin with a dot."
            )


async def load_inputs(
    tool_context: ToolContext, names: object, most: int, take: Callable[[int], None]
) -> tuple[InputFile, ...]:
    """The artifacts a call asks for, as files for the workspace.

    ``most`` is for all of them together, in bytes; ``take`` is told the size of each (:meth:`HeldInputs.of_call`).
    Raises ``InvalidArguments`` when ``names`` is no list of names, two of them would be one file, they are too many or
    too large, or the session has no such artifact; and what ``take`` raises.
    """
    if names is None:
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArguments("'files' must be a list of artifact names.")
    if not names:
        return ()
    if len(names) > MAX_INPUTS:
        raise InvalidArguments(f"'files' has {len(names):,} names; one call takes at most {MAX_INPUTS:,}.")
    if tool_context.get_invocation_context().artifact_service is None:
        raise InvalidArguments("This application keeps no artifacts, so 'files' cannot be used.")
    paths = {name: _file_name(name) for name in dict.fromkeys(names)}
    taken = set(paths.values())
    counts = Counter(paths.values())
    for path in paths.values():
        inner = next((folder for folder in _folders(path) if folder in taken), None)
        if counts[path] > 1 or inner is not None:
            twice = inner or path
            raise InvalidArguments(f"'files' names two artifacts that would both be '{twice}'. Give one of them.")
    share = share_of_session(tool_context)
    found: list[InputFile] = []
    room = most
    for name, path in paths.items():
        async with _LOADING.turn(share):
            content = await _load(tool_context, name)
            room -= len(content)
            if room < 0:
                raise InvalidArguments(f"The artifacts in 'files' have more than {most:,} bytes together. Name fewer.")
            take(len(content))
        found.append(InputFile(path, content))
    return tuple(found)


def _folders(path: str) -> Iterator[str]:
    """The folders that a path lies in."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


async def save_outputs(tool_context: ToolContext, outcome: ScriptOutcome, stream_chars: int) -> SavedOutputs:
    """Keep what a script produced as artifacts of the session: its files, and each stream too long for a model.

    Of a stream no more than the policy's ``max_file_bytes`` is read and kept, its beginning; the model is told so.
    A file that cannot be saved is said in ``notes``; the result of the script is never lost for it.
    """
    result = outcome.result
    long = [
        (stream, kept, spill)
        for stream, text, kept, spill in (
            ("stdout", outcome.stdout, result.stdout, result.stdout_spill),
            ("stderr", outcome.stderr, result.stderr, result.stderr_spill),
        )
        if len(text) > stream_chars or spill is not None
    ]
    if not long and not result.files:
        return SavedOutputs()  # the usual case; asking google-adk for its service copies a whole model
    if tool_context.get_invocation_context().artifact_service is None:
        return SavedOutputs()
    files: dict[str, str] = {}
    streams: dict[str, str] = {}
    beginnings: dict[str, int] = {}
    notes: list[str] = []
    for file in result.files:
        name = await _save(tool_context, file.path, file.content, file.mime_type, notes)
        if name:
            files[file.path] = name
    policy = outcome.plan.request.policy
    for stream, kept, spill in long:
        if not policy.max_file_bytes:
            notes.append(f"The full text of {stream} is not kept: the policy allows no files.")
            continue
        content, size = kept[: policy.max_file_bytes], len(kept)
        if spill is not None:
            content, size = await in_worker(_beginning, spill, policy.max_file_bytes)
        name = await _save(tool_context, _stream_name(outcome, stream, files), content, "text/plain", notes)
        if not name:
            continue
        streams[stream] = name
        ended = policy.output_flood_bytes is not None and size >= policy.output_flood_bytes  # the spill has no more
        if len(content) < size or ended:
            beginnings[stream] = len(content)
            notes.append(f"The artifact '{name}' has only the first {len(content):,} bytes of {stream}.")
    return SavedOutputs(files, streams, beginnings, tuple(notes))


def _beginning(spill: Path, limit: int) -> tuple[bytes, int]:
    """The first bytes of a file, and its size: a flood must not fill the agent's memory."""
    with spill.open("rb", buffering=0) as file:
        return file.read(limit), os.fstat(file.fileno()).st_size


def _stream_name(outcome: ScriptOutcome, stream: str, taken: Mapping[str, str]) -> str:
    name = f"{outcome.plan.skill_name}.{PurePosixPath(outcome.plan.path).stem}.{stream}.txt"
    return name if name not in taken.values() else f"output-of.{name}"


async def saved_artifact(tool_context: ToolContext, name: str, content: bytes, mime_type: str) -> bool:
    """Save an artifact of the session; whether that worked."""
    try:
        await tool_context.save_artifact(name, types.Part.from_bytes(data=content, mime_type=mime_type))
    except Exception:  # each artifact service has its own exceptions; the script's result must survive all of them
        logger.exception("artifact %r of %d bytes was not saved", name, len(content))
        return False
    return True


async def _save(tool_context: ToolContext, path: str, content: bytes, mime_type: str, notes: list[str]) -> str | None:
    # A name that starts with "user:" would be shared by all sessions of the user; a script must not choose that.
    name = path.replace(":", "_")
    if await saved_artifact(tool_context, name, content, mime_type):
        return name
    notes.append(f"'{path}' could not be saved as an artifact; it is still in the working directory.")
    return None


async def _load(tool_context: ToolContext, name: str) -> bytes:
    try:
        part = await tool_context.load_artifact(name)
        known = None if part is not None else await tool_context.list_artifacts()
    except Exception as error:  # as in _save: a name the service refuses must not end the invocation
        logger.exception("artifact %r was not loaded", name)
        raise InvalidArguments(f"The artifact '{name}' cannot be loaded. Name one that the session has.") from error
    if part is None:
        raise InvalidArguments(
            f"The session has no artifact '{name}'. Its artifacts: {', '.join(known or ()) or 'none'}."
        )
    if part.inline_data is not None and part.inline_data.data is not None:
        return part.inline_data.data
    return (part.text or "").encode()


def _file_name(artifact: str) -> str:
    check_text(artifact, "An artifact name in 'files'")
    if len(artifact) > _MAX_NAME_CHARS:
        raise InvalidArguments(f"An artifact name in 'files' has more than {_MAX_NAME_CHARS:,} characters.")
    parts = [piece for piece in artifact.removeprefix("user:").split("/") if piece not in ("", ".", "..")]
    if not parts or any(len(piece.encode()) > _MAX_NAME_BYTES for piece in parts):
        raise InvalidArguments(f"The artifact name {artifact[:80]!r} cannot be used as a file name.")
    return "/".join(parts)
