"""``read_reference``: read one of a skill's files (S4-7, C36)."""

from __future__ import annotations

import asyncio
import mimetypes
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.answers import required_text
from adk_skills_agent.adk.declarations import skill_name_schema
from adk_skills_agent.adk.tools.skill_tool import SkillTool
from adk_skills_agent.errors import InvalidArguments
from adk_skills_agent.sandbox.contract import SKILL_DIR

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.listing import SkillListing
    from adk_skills_agent.catalog import Skill

NAME = "read_reference"
PAGE_CHARS = 20_000
"""Characters returned at once (C45); ``offset`` pages on."""
MAX_TEXT_BYTES = 4 << 20
"""Largest file that is read as text; a script can read anything."""


class ReadReferenceTool(SkillTool):
    """Reads any text file of a skill, a page at a time."""

    required = ("skill", "reference")

    def __init__(self, listing: SkillListing) -> None:
        super().__init__(
            NAME,
            "Read a file of a skill: a reference, template, example or the source of a script. "
            "Use the paths the skill's instructions or its file list name. Not for files of the user.",
            listing,
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """Skill, path and the place to start at."""
        return {
            "skill": skill_name_schema(self.listing.names),
            "reference": {
                "type": "string",
                "description": "Path relative to the skill directory, such as 'references/guide.md'.",
            },
            "offset": {
                "type": "integer",
                "description": "Character to start at, for the next page of a long file. Default 0.",
            },
        }

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """The file's text, or what it is when it is no text."""
        name, reference = required_text(args, "skill"), required_text(args, "reference")
        return await asyncio.to_thread(self._read, name, reference, _offset(args.get("offset")))

    def _read(self, name: str, reference: str, offset: int) -> dict[str, object]:
        skill = self.listing.skills.load_skill(name)
        path = skill.find(reference, ("references", "assets", "scripts"))
        answer: dict[str, object] = {"skill": skill.name, "reference": path}
        size = skill.resolve(path).stat().st_size
        data = skill.read_bytes(path, limit=MAX_TEXT_BYTES)
        text = _as_text(data)
        if text is None:
            return answer | _not_text(skill, path, size)
        page = text[offset : offset + PAGE_CHARS]
        if offset and not page:
            raise InvalidArguments(f"'offset' {offset} is past the end; '{path}' has {len(text)} characters.")
        answer["content"] = page
        if offset or len(page) < len(text):
            answer |= {"offset": offset, "total_chars": len(text)}
            if offset + len(page) < len(text):
                answer["next_offset"] = offset + len(page)
        if size > MAX_TEXT_BYTES:
            answer["note"] = f"Only the first {MAX_TEXT_BYTES:,} of {size:,} bytes can be read here."
        return answer


def _offset(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON numbers may arrive as 20000.0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArguments(f"'offset' must be a whole number of characters from 0 on, got {value!r}.")
    return value


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A multi-byte character cut by the size bound is no reason to call the file binary.
        if len(data) == MAX_TEXT_BYTES and error.start >= len(data) - 4:
            return data[: error.start].decode("utf-8-sig")
    return data.decode("latin-1") if _mostly_printable(data) else None


def _mostly_printable(data: bytes) -> bool:
    """Old single-byte encodings are text too; binary formats are full of control bytes."""
    sample = data[:4096]
    control = sum(byte < 9 or 13 < byte < 32 for byte in sample)
    return control * 100 <= len(sample)


def _not_text(skill: Skill, path: str, size: int) -> dict[str, object]:
    mime_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    wish = "A script of the skill can read it" if skill.has_scripts else "It cannot be shown as text"
    return {
        "mime_type": mime_type,
        "size": size,
        "note": f"This file is not text. {wish}; its path there is {SKILL_DIR / path}.",
    }
