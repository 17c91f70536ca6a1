"""``load_skill_resource``: read any file of a skill (S0-157, S0-161, C36, issue item 4).

Text comes in pages. A picture, a PDF, sound or film is put into the next request as it is, the way google-adk does it:
the answer says so, and the request gets the bytes. Any other binary file becomes an artifact of the session, because a
model's service refuses types it does not know.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from google.genai import types

from adk_skills_agent.adk.activation.instructions import fenced
from adk_skills_agent.adk.events.events import ResourceRead, origin_of
from adk_skills_agent.adk.guard import call_key
from adk_skills_agent.adk.permissions import permit_reading
from adk_skills_agent.adk.running.call import share_of_session
from adk_skills_agent.adk.skills.known import RESOURCE_FOLDERS, SKILL_FILE, KnownSkill, is_skill_file
from adk_skills_agent.adk.skills.resources import FileContent, is_for_a_model, mime_type_of, read_content
from adk_skills_agent.adk.tools.base import ToolsetTool, failure, required_texts, skill_name_schema, whole_number
from adk_skills_agent.errors import (
    InvalidArguments,
    InvalidResourcePath,
    RegistryError,
    ResourceNotFound,
    ScriptNotFound,
    SkillNotFound,
    SkillsError,
)
from adk_skills_agent.sandbox import SKILL_DIR, Semaphore, in_worker
from adk_skills_agent.scripts.plan import with_skill_path

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.activation.instructions import SkillText
    from adk_skills_agent.adk.runtime import SkillRuntime


logger = logging.getLogger(__name__)

LOAD_SKILL_RESOURCE = "load_skill_resource"
PAGE_CHARS = 20_000
"""Characters returned at once (C45); ``offset`` pages on."""
MAX_INLINE_BYTES = 14 << 20
"""Of a file that is put into a request: a request has at most 20 MB, and bytes become a third longer on the way."""
MAX_ARTIFACT_BYTES = 64 << 20
_SAVING = Semaphore(4, fair=True)
"""Files of skills that become artifacts at a time: a model may ask for any number of them in one answer (row 264)."""
_MARK = "adk_skills_sha256"
"""Metadata of such an artifact: the file is not saved again while it has these bytes."""
_INSTRUCTIVE = (".md", ".markdown", ".txt", ".rst")
"""The suffixes of instructions: in them a placeholder for the skill's folder becomes its path, and not in code."""
_ANSWERS = 256
"""With a binary file, of one turn: each is looked for among the session's last ones."""
_RESTORED = "__adk_internal_restored_event"
"""google-adk's mark in ``custom_metadata``; its name there is not public, and there is no other way to know."""
BINARY_FILE_STATUS = (
    "Binary file detected. The content has been injected into the conversation history for you to analyze."
)
"""google-adk's sentence; the request's preparation recognises it."""


class LoadSkillResourceTool(ToolsetTool):
    """Reads a file of a skill."""

    skill_argument = "skill_name"
    path_argument = "file_path"
    required: tuple[str, ...] = ("skill_name", "file_path")

    def __init__(self, runtime: SkillRuntime, name: str = LOAD_SKILL_RESOURCE, description: str = "") -> None:
        text = "Loads a file of a skill: a reference, an asset, a template or the source of a script."
        super().__init__(runtime, name, description or text)

    def properties(self) -> dict[str, dict[str, object]]:
        """Skill, path, and the page."""
        return {
            self.skill_argument: skill_name_schema(self.runtime.listing.names),
            self.path_argument: {
                "type": "string",
                "description": "The path relative to the skill, such as 'references/guide.md' or 'SKILL.md'.",
            },
            "offset": {
                "type": "integer",
                "description": "Character to start at, for the next page of a long file. Default 0.",
            },
            "limit": {"type": "integer", "description": f"Most characters to return. Default and most {PAGE_CHARS}."},
        }

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The file, or why it cannot be read."""
        guard = self.runtime.guard
        key = call_key(LOAD_SKILL_RESOURCE, args)
        refused = guard.refused(tool_context, "resource") or guard.refused(tool_context, "run", key)
        if refused is not None:
            return refused
        began = time.monotonic()
        try:
            return await self._answer(args, tool_context, began)
        except SkillsError as error:
            answer = failure(error, self.runtime.grants.forms)
            asked, skill = str(args.get(self.path_argument) or ""), self.skill_of(args)
            self._tell(tool_context, skill, asked, 0, began, error.code.value)
            if isinstance(error, SkillNotFound):
                return guard.miss(tool_context, "skill", answer, skill, skill)
            if isinstance(error, RegistryError):
                return guard.miss(tool_context, "registry", answer, skill, skill)
            if isinstance(error, ResourceNotFound):
                return guard.miss(tool_context, "resource", answer, asked, skill)
            return guard.miss(tool_context, "run", answer, key, skill)

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Declare the tool, and put the binary files that the last turn asked for into the request."""
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        if not llm_request.contents:
            return
        asked = [
            response.response
            for part in llm_request.contents[-1].parts or ()
            if (response := part.function_response) is not None
            and response.name == self.name
            and isinstance(response.response, dict)
            and response.response.get("status") == BINARY_FILE_STATUS
        ]
        room, seen = MAX_INLINE_BYTES, set[tuple[str, ...]]()
        given = _given_answers(tool_context, self.name) if asked else []
        if len(asked) > _ANSWERS:
            logger.warning("%d binary files of one turn are not put into the request", len(asked) - _ANSWERS)
        for told in asked[:_ANSWERS]:
            if told not in given:
                continue
            file = tuple(str(told.get(key)) for key in ("skill_name", "skill", "file_path", "reference"))
            if file in seen:
                continue  # it is there once
            seen.add(file)
            content, size = await self._injected(tool_context, told, room)
            room -= size
            if content is not None:
                llm_request.contents.append(content)

    def shown(self, skill: KnownSkill, path: str) -> dict[str, object]:
        """The beginning of an answer."""
        return {"skill_name": skill.name, "file_path": path}

    async def _answer(self, args: dict[str, Any], tool_context: ToolContext, began: float) -> dict[str, object]:
        runtime = self.runtime
        name, asked = required_texts(args, self.skill_argument, self.path_argument)
        offset, limit = whole_number(args, "offset"), whole_number(args, "limit", PAGE_CHARS)
        if not limit:
            raise InvalidArguments("'limit' must be at least 1.")
        if runtime.source.local(name) is None:
            refused = runtime.guard.refused_name(tool_context)
            if refused is not None:
                return refused
        skill = await runtime.skill(tool_context, name)
        path = await in_worker(_find, skill, asked)
        if runtime.require_activation:
            runtime.active.check(tool_context, skill.name, runtime.tool_name("load_skill"))
        pending = await permit_reading(runtime, tool_context, skill, path)
        if pending is not None:
            return pending
        in_force = await self._in_force(tool_context, skill) if is_skill_file(path) else None
        if in_force is not None and in_force.whole_chars is None:
            self._tell(tool_context, skill.name, path, 0, began)
            detail = "Its instructions are in force: they are in the system instruction. Follow them; do not read them."
            return self.shown(skill, path) | {"status": "active", "detail": detail}
        content = await in_worker(read_content, skill, path)
        if content.text is not None and PurePosixPath(path).suffix.lower() in _INSTRUCTIVE:
            content = replace(content, text=with_skill_path(content.text, runtime.skill_path_for_model(skill.name)))
        if in_force is not None and content.text is not None:
            begin = content.text.find(in_force.body)  # not found where the session's state was put in
            offset = max(offset, begin + len(in_force.body) if begin >= 0 else 0)
        if content.text is None:
            content = replace(content, data=b"")  # others wait for a place with it
            answer, size = await self._binary(tool_context, skill, content), content.size
        else:
            answer, size = self._page(skill, content, offset, min(limit, PAGE_CHARS))
        self._tell(tool_context, skill.name, path, size, began)
        return answer

    async def _in_force(self, tool_context: ToolContext, skill: KnownSkill) -> SkillText | None:
        """The system instruction about the skill; None while it is not active."""
        if skill.name not in self.runtime.active.active(tool_context):
            return None
        return await self.runtime.text(skill, tool_context)

    def _page(self, skill: KnownSkill, content: FileContent, offset: int, limit: int) -> tuple[dict[str, object], int]:
        text = content.text or ""
        page = text[offset : offset + limit]
        if offset and not page:
            raise InvalidArguments(f"'offset' {offset} is past the end; the file has {len(text)} characters.")
        shown = fenced(page) if is_skill_file(content.path) else page
        answer = self.shown(skill, content.path) | {"content": shown}
        if offset or len(page) < len(text):
            answer |= {"offset": offset, "total_chars": len(text)}
            if offset + len(page) < len(text):
                answer["next_offset"] = offset + len(page)
        if len(content.data) < content.size:
            answer["note"] = f"Only the first {len(content.data):,} of {content.size:,} bytes can be read here."
        return answer, len(page.encode("utf-8", "replace"))

    async def _binary(self, tool_context: ToolContext, skill: KnownSkill, content: FileContent) -> dict[str, object]:
        answer = self.shown(skill, content.path)
        if is_for_a_model(content.mime_type) and content.size <= MAX_INLINE_BYTES:
            return answer | {"status": BINARY_FILE_STATUS}
        answer |= {"mime_type": content.mime_type, "size": content.size}
        artifact = await self._as_artifact(tool_context, skill, content)
        if artifact is not None:
            answer["artifact"] = artifact
        where = f"its path there is {SKILL_DIR / content.path}"
        has_scripts = bool(await in_worker(lambda: skill.scripts))
        wish = f"A script of the skill can read it; {where}" if has_scripts else f"For a script {where}"
        saved = f" It is the artifact '{artifact}'." if artifact is not None else ""
        return answer | {"note": f"This file is not text, and too large or of no type you can read.{saved} {wish}."}

    async def _as_artifact(self, tool_context: ToolContext, skill: KnownSkill, content: FileContent) -> str | None:
        invocation = tool_context.get_invocation_context()
        if invocation.artifact_service is None or content.size > MAX_ARTIFACT_BYTES:
            return None
        name = f"{skill.name}/{content.path}".replace(":", "_")  # "user:" would share it with other sessions
        try:
            async with _SAVING.turn(share_of_session(tool_context)):
                data = await in_worker(skill.read_bytes, content.path)
                digest = await in_worker(lambda: hashlib.sha256(data).hexdigest())
                there = await tool_context.get_artifact_version(name)
                if there is None or (there.custom_metadata or {}).get(_MARK) != digest:
                    part = types.Part.from_bytes(data=data, mime_type=content.mime_type)
                    await tool_context.save_artifact(name, part, {_MARK: digest})
        except Exception:  # each artifact service has its own exceptions; the answer is of use without it
            logger.exception("artifact %r was not saved", name)
            return None
        return name

    async def _injected(
        self, tool_context: ToolContext, told: dict[str, Any], room: int
    ) -> tuple[types.Content | None, int]:
        """A binary file for the request, where it has room for it, and the bytes that it takes."""
        name, asked = told.get("skill_name") or told.get("skill"), told.get("file_path") or told.get("reference")
        if not isinstance(name, str) or not isinstance(asked, str):
            return None, 0
        try:
            skill = await self.runtime.skill(tool_context, name)
            path = await in_worker(_find, skill, asked)
            if await in_worker(skill.size, path) > room:  # of many files, or it grew
                text = f"The binary file '{asked}' is not here: it has no room beside the others. Read it alone."
                return types.Content(role="user", parts=[types.Part.from_text(text=text)]), 0
            data = await in_worker(skill.read_bytes, path, room)
        except SkillsError as error:
            logger.warning("a binary file could not be put into the request: %s", error.message)
            return None, 0
        blob = types.Blob(data=data, mime_type=mime_type_of(path, data))
        text = f"The content of binary file '{asked}' is:"
        return types.Content(role="user", parts=[types.Part.from_text(text=text), types.Part(inline_data=blob)]), len(
            data
        )

    def _tell(
        self, tool_context: ToolContext, skill: str, path: str, size: int, began: float, error_code: str = ""
    ) -> None:
        event = ResourceRead(
            origin=origin_of(tool_context),
            skill=skill,
            path=path,
            bytes=size,
            error_code=error_code,
            seconds=time.monotonic() - began,
        )
        self.runtime.events.emit(event)


def _given_answers(tool_context: ToolContext, name: str) -> list[dict[str, Any]]:
    """The answers with a binary file that a tool of this agent gave, the last ones first.

    A client may send one in its name, for any file (row 242), and so may another agent, at another place (row 407). A
    client may also make a session with events of anybody; google-adk marks those (row 287).
    """
    given = (
        one.response
        for event in reversed(tool_context.session.events)
        if event.author == tool_context.agent_name and not (event.custom_metadata or {}).get(_RESTORED)
        for one in event.get_function_responses()
        if one.name == name and isinstance(one.response, dict) and one.response.get("status") == BINARY_FILE_STATUS
    )
    return list(islice(given, _ANSWERS))


def _find(skill: KnownSkill, asked: str) -> str:
    """The path of a file; in google-adk's words when there is none."""
    if asked == SKILL_FILE:
        return asked
    if skill.in_memory and PurePosixPath(asked).parts[:1] not in {(folder,) for folder in RESOURCE_FOLDERS}:
        raise InvalidResourcePath("Path must start with 'references/', 'assets/', or 'scripts/'.")
    try:
        return skill.find(asked)
    except (ScriptNotFound, ResourceNotFound) as error:
        message = f"Resource '{asked}' not found in skill '{skill.name}'."
        if isinstance(error, ResourceNotFound) and "folder" in error.message:
            message = error.message  # it is a folder; the suggestions are its files
        raise ResourceNotFound(message, error.suggestions) from None


# ``read_reference``: ``load_skill_resource`` under the name and arguments of ``with_skills`` (S4-7, C36).

READ_REFERENCE = "read_reference"


class ReadReferenceTool(LoadSkillResourceTool):
    """Reads any file of a skill."""

    skill_argument = "skill"
    path_argument = "reference"
    required = ("skill", "reference")

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            description="Read a file of a skill: a reference, template, example or the source of a script. "
            "Use the paths the skill's instructions or its file list name. Not for files of the user.",
        )

    def shown(self, skill: KnownSkill, path: str) -> dict[str, object]:
        """The beginning of an answer."""
        return {"skill": skill.name, "reference": path}
