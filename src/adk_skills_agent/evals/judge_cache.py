"""Answers of a judge that were already given, by content: the same question is not paid twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class JudgeCache:
    """Answers by the content of the question; JSON values.

    Args:
        path: A JSON Lines file that keeps them; None keeps them in memory. A line that cannot be read is passed over:
            the judge is then asked again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.hits = 0
        self._answers: dict[str, Any] = {}
        if path is not None and path.is_file():
            for line in path.read_bytes().splitlines():
                try:
                    entry = json.loads(line)
                    self._answers[entry["key"]] = entry["votes"]
                except (ValueError, KeyError, TypeError):
                    continue

    def get(self, key: str) -> Any:
        """The answer given to a question, or None."""
        answer = self._answers.get(key)
        self.hits += answer is not None
        return answer

    def put(self, key: str, answer: Any) -> None:
        """Keep the answer given to a question."""
        self._answers[key] = answer
        if self.path is not None:
            line = json.dumps({"key": key, "votes": answer}) + "\n"
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)


def question_key(model: str, settings: Mapping[str, Any], identity: Sequence[Any]) -> str:
    """What identifies a question: the model, and everything it would be told except the random key."""
    asked = [model, dict(settings), list(identity)]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()
