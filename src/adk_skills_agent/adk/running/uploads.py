"""Files of the user: what is attached to a message lies in ``uploads/`` of the workspace before any tool runs.

A file comes with a message (inline data, as ``adk web`` and ``adk api_server`` send it) or as an artifact that no tool
of this session made (saved by the application, or by google-adk's ``SaveFilesAsArtifactsPlugin``). Each is copied once.
The model is told of them in one line of the system instruction. A media type that models do not take, such as a
spreadsheet, is replaced in the request by the place of its copy: models refuse a request that has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import mimetypes
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from google.genai import types

from adk_skills_agent.adk.events.events import FileReceived, origin_of
from adk_skills_agent.adk.running.runner import workspace_claim
from adk_skills_agent.errors import SkillsError
from adk_skills_agent.executors.environment import read
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, write_below
from adk_skills_agent.recent import Recent
from adk_skills_agent.sandbox import distinct_name, in_worker, safe_name
from adk_skills_agent.scripts.plan import workspace_key
from adk_skills_agent.scripts.workspaces import usage_of

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.sandbox import SandboxPolicy

logger = logging.getLogger(__name__)

FOLDER = "uploads"
MAX_UPLOADS = 100
"""Files of one session."""
MAX_SOURCES = 1_000
"""Attachments and artifacts of one session that are looked at, the first ones: a message may have any number."""
MAX_UPLOAD_BYTES = 64 << 20
"""Of one file, where the policy allows no less."""
_MAX_NAME_CHARS = 100
_MAX_NAME_BYTES = 200
_MOST_CHARS = 600  # of a name and a problem together, from a store that anybody may write to
_TOLD = 20  # names in the system instruction
_SESSIONS = 256  # remembered, as many as there are workspaces; a forgotten one finds its files in the folder
_INVOCATIONS = 64
_READABLE = ("image/", "audio/", "video/", "text/", "application/pdf")
_SUFFIXES = {
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/octet-stream": ".bin",
    "text/plain": ".txt",
    "image/jpeg": ".jpg",
}
_TYPES = mimetypes.MimeTypes()  # Python's own table: the machine's would make names differ between machines


@dataclass(frozen=True, slots=True)
class Upload:
    """One file of the user."""

    path: str  # where it is in the workspace, or what it was called when it was not copied
    size: int
    problem: str = ""  # why it was not copied, or empty
    digest: bytes = b""  # the sha256 of its bytes, when it was copied


@dataclass(slots=True)
class _Session:
    """The uploads that one workspace has."""

    folder: Path | None = None  # the workspace; another one has nothing yet
    uploads: dict[str, Upload] = field(default_factory=dict)  # by where each came from


@dataclass(frozen=True, slots=True)
class _Source:
    key: str
    name: str
    mime_type: str
    data: bytes | None = None  # None for an artifact


class Uploads:
    """The uploads of all sessions in this process: agents of one session share its workspace, and so these."""

    def __init__(self) -> None:
        self._sessions: Recent[str, _Session] = Recent(_SESSIONS)
        self._looked: Recent[str, None] = Recent(_INVOCATIONS)  # invocations whose artifacts were listed

    async def bring(self, runtime: SkillRuntime, tool_context: ToolContext, llm_request: LlmRequest) -> str:
        """Copy what is new into the session's workspace.

        Returns the line for the system instruction; empty without uploads. What cannot be copied is said in it.
        """
        session = tool_context.session
        key = workspace_key(session.app_name, session.user_id, session.id)
        known = self._sessions.get(key)
        sources = _attached(tool_context)[:MAX_SOURCES]
        looks = tool_context.invocation_id not in self._looked
        artifacts = await _artifacts(tool_context) if looks else []
        self._looked[tool_context.invocation_id] = None
        if not sources and not artifacts and known is None:
            return ""
        known = self._sessions[key] = known or _Session()
        problems = ""
        try:
            problems = " ".join(await self._copy_new(runtime, tool_context, known, sources, artifacts))
        except SkillsError as error:  # a full disk, too many runs: the turn goes on, and the next request tries again
            logger.warning("the user's files were not copied into the workspace: %s", error.message)
            problems = "Files that the user attached are not in the working directory yet; try again later."
        await _replace_unreadable(llm_request, known.uploads)
        return " ".join(part for part in (_line(list(known.uploads.values())), problems) if part)

    async def _copy_new(
        self,
        runtime: SkillRuntime,
        tool_context: ToolContext,
        known: _Session,
        sources: list[_Source],
        artifacts: list[_Source],
    ) -> list[str]:
        async with workspace_claim(runtime, tool_context, "") as claim:
            opened = await asyncio.to_thread(claim.open)
            if known.folder != opened.path and not artifacts:
                artifacts = await _artifacts(tool_context)  # a new folder has none of the earlier ones
            if known.folder == opened.path and all(one.key in known.uploads for one in (*sources, *artifacts)):
                return []
            async with claim.turn(call="copying the user's files"):
                if known.folder != opened.path:
                    known.folder, known.uploads = opened.path, {}
                known.uploads |= _from_json(claim.facts.get(FOLDER))  # what another server has copied
                for source in (*sources, *artifacts):
                    if source.key not in known.uploads:
                        await self._copy(runtime, tool_context, source, known)
                if known.uploads:
                    claim.remember(FOLDER, _to_json(known.uploads))
        return claim.notes

    async def _copy(self, runtime: SkillRuntime, tool_context: ToolContext, source: _Source, known: _Session) -> None:
        data = source.data
        name = upload_name(source.name, source.mime_type, len(known.uploads) + 1)
        if data is None:
            try:
                part = await tool_context.load_artifact(source.name)
            except Exception:  # each artifact service has its own exceptions; the next request tries again
                logger.exception("the artifact %r was not copied into the workspace", source.name)
                return
            inline = part.inline_data if part is not None else None
            data = (inline.data or b"") if inline is not None else ((part.text or "") if part else "").encode()
            if inline is not None and "." not in name:
                name = upload_name(source.name, inline.mime_type or "", len(known.uploads) + 1)
        digest = b""
        policy = runtime.settings.policy
        problem = await in_worker(_too_much, data, tuple(known.uploads.values()), policy, known.folder)
        path = f"{FOLDER}/{name}"
        if not problem and known.folder is not None:
            taken = {one.path.rpartition("/")[2].casefold() for one in known.uploads.values() if not one.problem}
            try:
                path = await in_worker(_write, known.folder, name, data, taken)
                digest = await in_worker(lambda: hashlib.sha256(data).digest())
            except OSError as error:
                logger.exception("the upload %s was not copied into the workspace", name)
                problem = f"it cannot be written ({error.strerror})"
        if problem:
            logger.warning("the upload %s of %d bytes was not copied: %s", name, len(data), problem)
        known.uploads[source.key] = Upload(path, len(data), problem, digest)
        runtime.events.emit(
            FileReceived(
                origin=origin_of(tool_context),
                path=path,
                bytes=len(data),
                source="artifact" if source.data is None else "message",
                problem=problem,
            )
        )


SHARED_UPLOADS = Uploads()
"""The uploads of this process, as ``SHARED_WORKSPACES``: several agents of one session must not copy a file twice."""


def _to_json(uploads: dict[str, Upload]) -> dict[str, list[object]]:
    return {key: [one.path, one.size, one.problem, one.digest.hex()] for key, one in uploads.items()}


def _from_json(fact: object) -> dict[str, Upload]:
    """What :func:`_to_json` made; nothing of what has another form: then a file is copied again."""
    found: dict[str, Upload] = {}
    for key, value in fact.items() if isinstance(fact, dict) else ():
        with contextlib.suppress(TypeError, ValueError):
            path, size, problem, digest = value
            if len(path) + len(problem) <= _MOST_CHARS:
                found[str(key)] = Upload(str(path), int(size), str(problem), bytes.fromhex(digest))
    return found


def upload_name(name: str, mime_type: str, number: int) -> str:
    """The name a file of the user gets in the workspace: one part, printable, with a suffix, of bounded length."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].removeprefix("user:").lstrip(".").strip()
    if not last:
        plain = mime_type.partition(";")[0].strip().lower()
        suffix = _SUFFIXES.get(plain) or _TYPES.guess_extension(plain) or ".bin"
        return f"upload-{number}{suffix}"
    last = last.encode("utf-8", "replace").decode()
    stem, dot, suffix = last.rpartition(".")
    if not stem or len(suffix) > 10:
        stem, dot, suffix = last, "", ""
    stem = stem[: _MAX_NAME_CHARS - len(suffix) - 1]
    while len(f"{stem}{dot}{suffix}".encode()) > _MAX_NAME_BYTES and len(stem) > 1:
        stem = stem[:-1]
    safe = safe_name(f"{stem}{dot}{suffix}") or f"upload-{number}.bin"
    return f"_{safe[1:]}" if safe.startswith(".") else safe  # a blank was before the dot


def _attached(tool_context: ToolContext) -> list[_Source]:
    """The inline data of the user's messages in this session."""
    found = []
    seen = False
    for event in tool_context.session.events:
        if event.author != "user" or event.content is None:
            continue
        seen = seen or event.invocation_id == tool_context.invocation_id
        found += _inline(event.content, event.id)
    if not seen and tool_context.user_content is not None:  # an application may keep only some events
        found += _inline(tool_context.user_content, tool_context.invocation_id)
    return found


def _inline(content: types.Content, where: str) -> list[_Source]:
    return [
        _Source(f"message:{where}:{index}", blob.display_name or "", blob.mime_type or "", blob.data)
        for index, part in enumerate(content.parts or ())
        if (blob := part.inline_data) is not None and blob.data is not None
    ]


async def _artifacts(tool_context: ToolContext) -> list[_Source]:
    """The artifacts of the session that no tool made, each in its newest version."""
    if tool_context.get_invocation_context().artifact_service is None:
        return []
    made = {
        name
        for event in tool_context.session.events
        if event.get_function_responses()
        for name in event.actions.artifact_delta
    }
    found = []
    try:
        names = [name for name in await tool_context.list_artifacts() if name not in made]
        for name in names[:MAX_UPLOADS]:
            if not name.startswith("user:"):  # of all sessions of the user, not of this one
                version = await tool_context.get_artifact_version(name)
                found.append(_Source(f"artifact:{name}:{version.version if version else 0}", name, ""))
    except Exception:  # as in load_artifact: without its service a session still works
        logger.exception("the artifacts of the session cannot be listed, so uploads among them are not copied")
    return found


def _too_much(data: bytes, before: Iterable[Upload], policy: SandboxPolicy, workspace: Path | None) -> str:
    """Why a file has no room in the workspace; empty when it has. Blocks."""
    uploads = [one for one in before if not one.problem]
    most = min(MAX_UPLOAD_BYTES, policy.file_bytes if policy.file_bytes is not None else MAX_UPLOAD_BYTES)
    if len(data) > most:
        return f"it is larger than {most:,} bytes"
    if len(uploads) >= MAX_UPLOADS:
        return f"there are {MAX_UPLOADS} uploads already"
    room = None if policy.workspace_bytes is None else policy.workspace_bytes // 2
    if room is not None and sum(one.size for one in uploads) + len(data) > room:
        return f"all uploads together would be larger than {room:,} bytes, half of the workspace"
    if workspace is not None and not usage_of(workspace).has_room(
        policy.workspace_bytes, policy.workspace_inodes, data
    ):
        return "the workspace has no room for it; delete files there"
    return ""


def _write(workspace: Path, name: str, data: bytes, taken: set[str]) -> str:
    """Put one file into the folder for uploads; blocks. A script may have put anything there: no link is followed."""
    top = os.open(workspace, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        folder = _open_uploads(top)
    finally:
        os.close(top)
    try:
        present = {each.casefold() for each in os.listdir(folder)}  # noqa: PTH208
        taken |= present - {name.casefold()} if _is_there(workspace, name, data) else present
        final = distinct_name(name, taken)
        write_below(folder, final, data, 0o644)
    finally:
        os.close(folder)
    return f"{FOLDER}/{final}"


def _open_uploads(top: int) -> int:
    """The folder, made when it is missing; what a script has put in its place is moved aside."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(FOLDER, dir_fd=top, follow_symlinks=False).st_mode):
            aside = f"{FOLDER}.moved-{os.urandom(4).hex()}"
            os.rename(FOLDER, aside, src_dir_fd=top, dst_dir_fd=top)
            logger.warning("what was called %s in a workspace is called %s now", FOLDER, aside)
    with contextlib.suppress(FileExistsError):
        os.mkdir(FOLDER, 0o755, dir_fd=top)
    return os.open(FOLDER, os.O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=top)


def _is_there(workspace: Path, name: str, data: bytes) -> bool:
    """Whether a file is there already with these bytes; then it is written once more in its place."""
    try:
        return read(workspace, PurePosixPath(FOLDER, name), len(data)) == data
    except (OSError, ValueError):
        return False


async def _replace_unreadable(llm_request: LlmRequest, uploads: dict[str, Upload]) -> None:
    """Name the copy of an attachment that models do not take; the session's own message stays as it is."""
    copies: dict[bytes, str] = {}
    sizes: set[int] = set()
    for upload in uploads.values():
        if not upload.problem:
            copies.setdefault(upload.digest, upload.path)
            sizes.add(upload.size)
    parts = (part for content in llm_request.contents for part in content.parts or ())
    unreadable = [data for part in parts if (data := _unreadable(part))]
    # A conversation may have gigabytes of them, and each request to the model has all (row 366).
    alike = {id(data): data for data in unreadable if len(data) in sizes}
    if not alike:
        return
    digests = await in_worker(lambda: {key: hashlib.sha256(data).digest() for key, data in alike.items()})
    paths = {key: copies[digest] for key, digest in digests.items() if digest in copies}
    for position, content in enumerate(llm_request.contents):
        named = [_named(part, paths) for part in content.parts or ()]
        if any(new is not old for new, old in zip(named, content.parts or (), strict=True)):
            llm_request.contents[position] = types.Content(role=content.role, parts=named)


def _unreadable(part: types.Part) -> bytes | None:
    """The attachment that models do not take; None for any other part."""
    blob = part.inline_data
    return None if blob is None or (blob.mime_type or "").startswith(_READABLE) else blob.data


def _named(part: types.Part, paths: dict[int, str]) -> types.Part:
    path = paths.get(id(_unreadable(part)))
    return part if path is None else types.Part(text=f"[Attached file: {path}]")


def _line(uploads: Sequence[Upload]) -> str:
    copied = [f"{one.path} ({one.size:,} bytes)" for one in uploads if not one.problem]
    refused = [f"{one.path.rpartition('/')[2]} was not copied: {one.problem}" for one in uploads if one.problem]
    sentences = []
    if copied:
        more = f" and {len(copied) - _TOLD} more in {FOLDER}/" if len(copied) > _TOLD else ""
        sentences.append(f"Files of the user in the working directory: {', '.join(copied[-_TOLD:])}{more}.")
    if refused:
        sentences.append(f"Of the user's files {'; '.join(refused[-_TOLD:])}. Tell the user.")
    return " ".join(sentences)
