"""What code gets: google-adk's ``File`` and ``CodeExecutionInput`` with the fields they lack (S0-22, S0-23, S0-71)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import PurePosixPath

from google.adk.code_executors import code_execution_utils as google

from adk_skills_agent.sandbox.contract import WORK_DIR, InputFile


@dataclass(frozen=True)
class File(google.File):
    """google-adk's ``File`` with a place.

    Attributes:
        path: Where the file goes, relative to the working directory; None takes ``name`` (S0-24).
    """

    path: str | None = None


@dataclass
class CodeExecutionInput(google.CodeExecutionInput):
    """google-adk's ``CodeExecutionInput`` with settings of one call; every executor of this package honours them.

    Attributes:
        timeout_seconds: Seconds of wall time; None leaves it to the executor, 0 is legal (S0-71, S0-73).
        working_dir: Folder the code starts in, relative to the workspace or absolute under ``/work``; made when it is
            missing. ``input_files`` are placed in it.
    """

    timeout_seconds: float | None = None
    working_dir: str | None = None


def call_timeout(code_input: google.CodeExecutionInput) -> float | None:
    """The call's own timeout in seconds, or None when it has none; any input with that attribute counts."""
    return getattr(code_input, "timeout_seconds", None)


def working_folder(code_input: google.CodeExecutionInput) -> PurePosixPath:
    """The folder the code starts in, relative to the workspace; ``.`` is the workspace itself.

    Raises:
        ValueError: It is not inside the workspace.
    """
    asked = getattr(code_input, "working_dir", None)
    if asked is None:
        return PurePosixPath()
    folder = PurePosixPath(str(asked))
    if folder.is_absolute() and folder.is_relative_to(WORK_DIR):
        folder = folder.relative_to(WORK_DIR)
    if folder.is_absolute() or ".." in folder.parts or "\0" in str(asked):
        raise ValueError(f"working_dir {str(asked)!r} must be inside {WORK_DIR}: relative, and without '..'.")
    return folder


def input_files(code_input: google.CodeExecutionInput) -> tuple[InputFile, ...]:
    """The files of a call, as the sandbox takes them; of two at one place the later one wins, as in google-adk's own.

    Raises:
        ValueError: The content of one is neither bytes nor text.
    """
    folder = working_folder(code_input)
    placed: dict[str, InputFile] = {}
    for file in code_input.input_files or ():
        path = getattr(file, "path", None)
        place = str(folder / (path if path is not None else file.name))
        placed[place] = InputFile(place, file_content(file))
    return tuple(placed.values())


def file_content(file: google.File) -> bytes:
    """What is in a file.

    Bytes are meant as they are. Text is base64 when it is exactly that, as google-adk passes it, else UTF-8.

    Raises:
        ValueError: It is neither.
    """
    content: object = file.content  # a dataclass checks nothing
    if isinstance(content, bytes):
        return content
    if not isinstance(content, str):
        kind = type(content).__name__
        raise ValueError(f"The content of input file {file.name!r} must be bytes or text, not {kind}.")  # noqa: TRY004
    try:
        raw = content.encode()
        decoded = base64.b64decode(raw, validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return content.encode("utf-8", "surrogatepass")
    return decoded if base64.b64encode(decoded) == raw else raw
