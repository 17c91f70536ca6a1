"""Answers of a judge that were already given, by content: the same question is not paid twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.judge_prompt import VERSION, content
from adk_skills_agent.evals.rubrics import Rubric
from adk_skills_agent.evals.trace import Turn

Votes = Mapping[str, tuple[bool, str]]


class JudgeCache:
    """Votes by the content of the question.

    Args:
        path: A JSON Lines file that keeps them; None keeps them in memory. A line that cannot be read is passed over:
            the judge is then asked again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.hits = 0
        self._votes: dict[str, Votes] = {}
        if path is not None and path.is_file():
            for line in path.read_bytes().splitlines():
                try:
                    entry = json.loads(line)
                    self._votes[entry["key"]] = {
                        name: (vote[0] is True, str(vote[1])) for name, vote in entry["votes"].items()
                    }
                except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                    continue

    def get(self, key: str) -> Votes | None:
        """The votes given for a question, or None."""
        votes = self._votes.get(key)
        self.hits += votes is not None
        return votes

    def put(self, key: str, votes: Votes) -> None:
        """Keep the votes given for a question."""
        self._votes[key] = votes
        if self.path is not None:
            line = json.dumps({"key": key, "votes": {name: list(vote) for name, vote in votes.items()}}) + "\n"
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)


def question_key(
    model: str, settings: Mapping[str, Any], turns: Sequence[Turn], rubrics: Sequence[Rubric], context: str, sample: int
) -> str:
    """What identifies a question: everything the judge would be told except the random key, and which sample it is."""
    asked = [VERSION, model, dict(settings), content(turns, context), [asdict(rubric) for rubric in rubrics], sample]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()
