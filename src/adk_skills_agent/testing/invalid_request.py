"""A request that Gemini would refuse."""

from __future__ import annotations


class InvalidRequest(Exception):
    """Gemini would refuse this request; ``message`` is close to what it says.

    Attributes:
        code: The HTTP status.
        status: Google's name for it.
    """

    def __init__(self, message: str, code: int = 400, status: str = "INVALID_ARGUMENT") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
