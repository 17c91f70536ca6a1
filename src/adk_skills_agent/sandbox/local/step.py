"""What nobody foresaw becomes a :class:`SandboxError` that names the step: a bug here must not end an agent's run."""

from __future__ import annotations

import logging
from types import TracebackType

from adk_skills_agent.errors import SandboxError, SkillsError

_logger = logging.getLogger("adk_skills_agent.sandbox")


class Step:
    """``with Step("end the run"):``; what is typed already passes, as do cancellations and warnings made errors.

    Args:
        doing: Completes "The sandbox could not".
        passing: Further exceptions that mean something to the caller.
    """

    __slots__ = ("_doing", "_passing")

    def __init__(self, doing: str, *passing: type[Exception]) -> None:
        self._doing = doing
        self._passing = (SkillsError, Warning, *passing)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return
        _logger.error("The sandbox could not %s.", self._doing, exc_info=error)
        # Only the class: the text may hold a path of the host, and the sentence may reach a model.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"an unexpected {kind.__name__}"  # type: ignore[union-attr]
        raise SandboxError(
            f"The sandbox could not {self._doing}: {reason}. The agent's log has the details."
        ) from error
