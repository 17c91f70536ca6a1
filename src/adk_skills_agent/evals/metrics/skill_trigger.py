"""Did the right skills come into force, and no others? Of one conversation; ``confusion.py`` is for many."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from adk_skills_agent.evals.metrics.score import Score, not_evaluated, of_conversation
from adk_skills_agent.evals.trace import Trace


def score(
    actual: Trace,
    expected: Collection[str] | None,
    *,
    watched: Collection[str] = (),
    threshold: float = 1.0,
) -> Score:
    """How well the loaded skills are the expected ones: the harmonic mean of precision and recall (F1).

    ``figures`` has ``precision`` (the share of loaded skills that were expected) and ``recall`` (the share of expected
    skills that were loaded). Where none is expected, loading none is 1 and loading any is 0. Only the ``watched``
    skills count; empty: every skill. A trigger query says about one skill whether it should be loaded, and nothing
    about the others.
    """
    if expected is None:
        return not_evaluated(actual, "The case does not say which skills should be loaded.")
    loaded = seen(actual.skills_loaded, watched)
    wanted = set(expected)
    hits = len(loaded & wanted)
    precision = hits / len(loaded) if loaded else float(not wanted)
    recall = hits / len(wanted) if wanted else float(not loaded)
    value = 2 * hits / (len(loaded) + len(wanted)) if loaded or wanted else 1.0
    missing, others = sorted(wanted - loaded), sorted(loaded - wanted)
    detail = [f"Not loaded: {', '.join(missing)}."] if missing else []
    detail += [f"Loaded without need: {', '.join(others)}."] if others else []
    return of_conversation(actual, value, threshold, " ".join(detail), {"precision": precision, "recall": recall})


def seen(loaded: Iterable[str], watched: Collection[str]) -> set[str]:
    """The loaded skills that count."""
    return {name for name in loaded if not watched or name in watched}
