"""Triggering over many conversations: precision and recall of each skill, and which skill is taken for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from adk_skills_agent.evals.metrics.skill_trigger import seen

NONE = ""
"""In a confusion matrix: no skill."""


@dataclass(frozen=True, slots=True)
class Triggering:
    """What one conversation showed."""

    expected: tuple[str, ...]
    loaded: tuple[str, ...]
    watched: tuple[str, ...] = ()  # only these skills count; empty: every skill


@dataclass(frozen=True, slots=True)
class SkillCounts:
    """How often a skill was loaded when it should be (hits), when it should not (false alarms), and not loaded when it
    should be (misses).
    """

    hits: int = 0
    false_alarms: int = 0
    misses: int = 0

    @property
    def precision(self) -> float | None:
        """The share of its loadings that were right; None when it was never loaded."""
        loaded = self.hits + self.false_alarms
        return self.hits / loaded if loaded else None

    @property
    def recall(self) -> float | None:
        """The share of conversations that needed it in which it was loaded; None when none needed it."""
        needed = self.hits + self.misses
        return self.hits / needed if needed else None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "precision": self.precision, "recall": self.recall}


@dataclass(frozen=True, slots=True)
class Confusion:
    """Triggering over many conversations."""

    skills: Mapping[str, SkillCounts]
    total: SkillCounts
    # How often the first was expected and the second loaded; ``""`` is no skill. A conversation that needed none and
    # loaded none is in ``("", "")``.
    matrix: Mapping[tuple[str, str], int]

    @property
    def names(self) -> list[str]:
        """The rows and columns of the matrix: skills by name, then no skill."""
        return [*sorted(self.skills), NONE]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; the matrix as rows of expected skills."""
        rows = [[self.matrix.get((row, column), 0) for column in self.names] for row in self.names]
        return {
            "skills": {name: self.skills[name].to_json() for name in sorted(self.skills)},
            "total": self.total.to_json(),
            "names": self.names,
            "matrix": rows,
        }


def confusion(conversations: Iterable[Triggering]) -> Confusion:
    """Count over conversations.

    A skill loaded instead of a missing one counts in the cell of the two; one loaded beside every expected one, or
    where none was expected, in the row of no skill; a missing one for which nothing came in the column of no skill.
    """
    hits: Counter[str] = Counter()
    alarms: Counter[str] = Counter()
    misses: Counter[str] = Counter()
    matrix: Counter[tuple[str, str]] = Counter()
    for one in conversations:
        loaded, expected = seen(one.loaded, one.watched), set(one.expected)
        right, missing, others = loaded & expected, expected - loaded, loaded - expected
        hits.update(right)
        alarms.update(others)
        misses.update(missing)
        matrix.update((name, name) for name in right)
        matrix.update((row, column) for row in missing or {NONE} for column in others)
        if not others:
            matrix.update((name, NONE) for name in missing)
        if not loaded and not expected:
            matrix[NONE, NONE] += 1
    names = sorted({*hits, *alarms, *misses})
    return Confusion(
        {name: SkillCounts(hits[name], alarms[name], misses[name]) for name in names},
        SkillCounts(hits.total(), alarms.total(), misses.total()),
        dict(matrix),
    )
