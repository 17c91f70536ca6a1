"""What a tool answers when it cannot do what was asked: a code, a sentence and the nearest names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from adk_skills_agent.errors import (
    FormatError,
    InvalidArguments,
    ResourceNotFound,
    ScriptNotFound,
    SkillNotFound,
    SkillsError,
)
from adk_skills_agent.sandbox.redaction import redact_error

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.secret_forms import SecretForms

logger = logging.getLogger(__name__)

MAX_ERROR_CHARS = 200
"""Of a sentence for a model, which may quote what the model wrote, of any length."""

_HEAD_CHARS = 120  # the rest is of its end, which says what is wrong with what was quoted


def failure(error: SkillsError, secrets: SecretForms | None = None) -> dict[str, object]:
    """The tool response for an error of this package; it names no path of the host.

    Args:
        error: The error; secrets are taken out of it, too, for whoever else shows it.
        secrets: The owner's, which a model may have written into an argument; None for none.
    """
    redact_error(error, secrets)
    message = error.message
    if isinstance(error, FormatError):
        # Its sentence is for the owner and names the file on the host.
        logger.warning("a skill cannot be read: %s", message)
        message = "The skill's instructions cannot be read right now. Go on without it and tell the user."
    if len(message) > MAX_ERROR_CHARS:
        logger.info("an error was shortened for the model: %s", message)
        message = f"{message[:_HEAD_CHARS]}...{message[_HEAD_CHARS + 3 - MAX_ERROR_CHARS :]}"
    answer: dict[str, object] = {"error": message, "error_code": error.code.value}
    if isinstance(error, (SkillNotFound, ResourceNotFound, ScriptNotFound)) and error.suggestions:
        answer["suggestions"] = list(error.suggestions)
    return answer


def required_text(args: dict[str, object], name: str) -> str:
    """A required string argument of a tool call.

    Raises:
        InvalidArguments: It is missing, empty or not a string.
    """
    value = args.get(name)
    if value is None or value == "":
        raise InvalidArguments(f"Argument '{name}' is required.")
    if not isinstance(value, str):
        raise InvalidArguments(f"Argument '{name}' must be a string, got {type(value).__name__}.")
    return value


def required_texts(args: dict[str, object], *names: str) -> list[str]:
    """Required string arguments, with one sentence for each that is missing.

    Raises:
        InvalidArguments: One is missing, empty or not a string.
    """
    problems = []
    for name in names:
        try:
            required_text(args, name)
        except InvalidArguments as error:
            problems.append(error.message)
    if problems:
        raise InvalidArguments("\n".join(problems))
    return [str(args[name]) for name in names]
