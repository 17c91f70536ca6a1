"""Files that a script left in an executor of others, as artifacts, within google-adk's bounds (S0-66)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from google.genai import types

from adk_skills_agent.adk.foreign_program import MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.script_call import ScriptCall

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file a script left.

    Attributes:
        path: Relative to where it ran.
        content: All of it.
        mime_type: Its type.
    """

    path: str
    content: bytes
    mime_type: str


async def save_generated(tool_context: ToolContext, files: Sequence[GeneratedFile]) -> tuple[list[str], list[str]]:
    """Save files as artifacts.

    Returns:
        The names that were saved, and the paths that were not.
    """
    if files and tool_context.get_invocation_context().artifact_service is None:
        logger.warning("a script left %d file(s), and the application keeps no artifacts", len(files))
        return [], [file.path for file in files]
    saved: list[str] = []
    skipped: list[str] = []
    total = 0
    for file in files:
        size = len(file.content)
        fits = size <= MAX_FILE_BYTES and total + size <= MAX_TOTAL_BYTES and len(saved) < MAX_FILES
        path = PurePosixPath(file.path.replace("\\", "/"))
        # "user:" would share the file with all sessions of the user; a script must not choose that.
        is_safe = not path.is_absolute() and ".." not in path.parts and not str(path).startswith("user:") and path.name
        if fits and is_safe and await _save(tool_context, str(path), file.content, file.mime_type):
            saved.append(str(path))
            total += size
        else:
            skipped.append(file.path)
    return saved, skipped


async def save_stream(tool_context: ToolContext, call: ScriptCall, stream: str, text: str) -> str | None:
    """Save what a script printed, when it is too long for a model; the artifact's name, or None."""
    if tool_context.get_invocation_context().artifact_service is None:
        return None
    name = f"{call.skill.name}.{PurePosixPath(call.path).stem}.{stream}.txt"
    return name if await _save(tool_context, name, text.encode("utf-8", "replace"), "text/plain") else None


async def _save(tool_context: ToolContext, name: str, content: bytes, mime_type: str) -> bool:
    try:
        await tool_context.save_artifact(name, types.Part.from_bytes(data=content, mime_type=mime_type))
    except Exception:  # each artifact service has its own exceptions; the script's result must survive all of them
        logger.exception("artifact %r of %d bytes was not saved", name, len(content))
        return False
    return True
