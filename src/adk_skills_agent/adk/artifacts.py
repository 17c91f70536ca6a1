"""Files between a session's artifacts and a script's workspace (S0-66, row 22)."""

from __future__ import annotations

import logging
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from google.genai import types

from adk_skills_agent.errors import InvalidArguments
from adk_skills_agent.sandbox.contract import InputFile

if TYPE_CHECKING:
    from pathlib import Path

    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.scripts import ScriptOutcome

logger = logging.getLogger(__name__)


async def load_inputs(tool_context: ToolContext, names: object) -> tuple[InputFile, ...]:
    """The artifacts a call asks for, as files for the workspace.

    Raises:
        InvalidArguments: ``names`` is no list of names, or the session has no such artifact.
    """
    if names is None:
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArguments("'files' must be a list of artifact names.")
    if not names:
        return ()
    if tool_context.get_invocation_context().artifact_service is None:
        raise InvalidArguments("This application keeps no artifacts, so 'files' cannot be used.")
    inputs = []
    for name in names:
        part = await tool_context.load_artifact(name)
        if part is None:
            known = ", ".join(await tool_context.list_artifacts()) or "none"
            raise InvalidArguments(f"The session has no artifact '{name}'. Its artifacts: {known}.")
        inputs.append(InputFile(_file_name(name), _content(part)))
    return tuple(inputs)


async def save_outputs(tool_context: ToolContext, outcome: ScriptOutcome, stream_chars: int) -> dict[str, str]:
    """Keep what a script produced as artifacts of the session: its files, and each stream too long for a model.

    Returns:
        Output path, ``stdout`` or ``stderr``, to the artifact's name. Empty when the application keeps no artifacts.
    """
    if tool_context.get_invocation_context().artifact_service is None:
        return {}
    saved: dict[str, str] = {}
    for file in outcome.result.files:
        await _save(tool_context, file.path, file.content, file.mime_type, saved, file.path)
    result = outcome.result
    streams = (
        ("stdout", outcome.stdout, result.stdout, result.stdout_spill),
        ("stderr", outcome.stderr, result.stderr, result.stderr_spill),
    )
    for stream, text, kept, spill in streams:
        if len(text) <= stream_chars and spill is None:
            continue
        content = await _read(spill) if spill is not None else kept
        name = f"{outcome.plan.skill_name}.{PurePosixPath(outcome.plan.path).stem}.{stream}.txt"
        await _save(tool_context, name, content, "text/plain", saved, stream)
    return saved


async def _save(
    tool_context: ToolContext, name: str, content: bytes, mime_type: str, saved: dict[str, str], key: str
) -> None:
    # A name that starts with "user:" would be shared by all sessions of the user; a script must not choose that.
    name = name.replace(":", "_")
    try:
        await tool_context.save_artifact(name, types.Part.from_bytes(data=content, mime_type=mime_type))
    except (OSError, ValueError, RuntimeError) as error:
        logger.warning("artifact %r of %d bytes was not saved: %s", name, len(content), error)
        return
    saved[key] = name


async def _read(path: Path) -> bytes:
    import asyncio

    return await asyncio.to_thread(path.read_bytes)


def _content(part: types.Part) -> bytes:
    if part.inline_data is not None and part.inline_data.data is not None:
        return part.inline_data.data
    return (part.text or "").encode()


def _file_name(artifact: str) -> str:
    name = artifact.removeprefix("user:")
    parts = [piece for piece in name.split("/") if piece not in ("", ".", "..")]
    if not parts or "\0" in name:
        raise InvalidArguments(f"The artifact name {artifact!r} cannot be used as a file name.")
    return "/".join(parts)
