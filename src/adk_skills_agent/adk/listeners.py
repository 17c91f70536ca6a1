"""Who is told what happens with skills, from the owner's settings of a toolset."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.audit_log import AuditLog
from adk_skills_agent.adk.events import Events, Listener
from adk_skills_agent.adk.telemetry import Telemetry
from adk_skills_agent.errors import ConfigError

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.secret_forms import SecretForms


def events_for(
    on_event: Callable[[Any], object] | Sequence[Callable[[Any], object]] = (),
    audit_log: str | os.PathLike[str] | AuditLog | None = None,
    secrets: SecretForms | None = None,
) -> Events:
    """The events of one toolset: OpenTelemetry always, the owner's listeners, the audit log where one is wanted.

    Args:
        on_event: One listener or several, plain or ``async``.
        audit_log: A file, or a log with settings of its own, which several toolsets may share.
        secrets: What is taken out of every text before anybody sees it.

    Raises:
        ConfigError: A listener cannot be called, or the file cannot be written.
    """
    given: tuple[Listener, ...] = (on_event,) if callable(on_event) else tuple(on_event)
    for listener in given:
        if not callable(listener):
            raise ConfigError(f"on_event takes functions, not {type(listener).__name__}.")
    log: tuple[Listener, ...] = ()
    if audit_log is not None:
        log = (audit_log if isinstance(audit_log, AuditLog) else AuditLog(audit_log),)
    return Events((Telemetry(), *given, *log), redact=secrets.text if secrets is not None else None)
