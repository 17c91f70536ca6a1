"""Take secrets out of a finished result, whichever backend it comes from."""

from __future__ import annotations

from dataclasses import replace

from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox.contract import ExecutionResult
from adk_skills_agent.sandbox.secret_forms import SecretForms


def redacted(result: ExecutionResult, secrets: SecretForms | None) -> ExecutionResult:
    """The same result without secrets: ``[secret NAME]`` in texts, and a file that contains one left out with a reason.

    A file is not redacted but left out, because a changed byte would break most formats. Spill files are the backend's
    to redact while it writes them.
    """
    if secrets is None:
        return result
    stdout, stdout_cut_at = _stream(result.stdout, result.stdout_cut_at, secrets)
    stderr, stderr_cut_at = _stream(result.stderr, result.stderr_cut_at, secrets)
    files, skipped = [], [(secrets.text(name), secrets.text(reason)) for name, reason in result.skipped_files]
    for file in result.files:
        reason = withheld(secrets.found_in(file.path.encode("utf-8", "replace")) or secrets.found_in(file.content))
        if reason is None:
            files.append(file)
        else:
            skipped.append((secrets.text(file.path), reason))
    return replace(
        result,
        stdout=stdout,
        stderr=stderr,
        stdout_cut_at=stdout_cut_at,
        stderr_cut_at=stderr_cut_at,
        files=tuple(files),
        skipped_files=tuple(skipped),
        notes=tuple(secrets.text(note) for note in result.notes),
        network=tuple(
            replace(decision, host=secrets.host_name(decision.host), reason=secrets.text(decision.reason))
            for decision in result.network
        ),
    )


def withheld(name: str | None) -> str | None:
    """Why a file that contains the secret of that name is neither collected nor kept."""
    return None if name is None else f"it contains the secret {name!r}, which stays in the run"


def redact_error(error: SkillsError, secrets: SecretForms | None) -> None:
    """Take secrets out of an error's sentence and notes, in place."""
    if secrets is None:
        return
    error.message = secrets.text(error.message)
    error.args = (error.message, *error.args[1:])
    if getattr(error, "__notes__", None):
        error.__notes__ = [secrets.text(note) for note in error.__notes__]


def _stream(data: bytes, cut_at: int | None, secrets: SecretForms) -> tuple[bytes, int | None]:
    if cut_at is None:
        return secrets.redact(data), None
    head = secrets.redact(data[:cut_at])
    return head + secrets.redact(data[cut_at:]), len(head)
