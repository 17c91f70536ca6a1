"""The nearest names to a wrong one, so that a model can correct itself in one step."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_LENGTH = 200  # what is longer is no slip of the pen, and comparing it would take long
_MAX_CANDIDATES = 5_000
_CUTOFF = 0.5


def nearest(wanted: str, candidates: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The candidates most like what was asked for, best first.

    Args:
        wanted: What was asked for.
        candidates: What there is.
        limit: How many at most.

    Returns:
        Candidates with the same last part first (``guide.md`` for ``docs/guide.md``), then those spelled alike.
    """
    from difflib import get_close_matches

    wanted = wanted[:_MAX_LENGTH].lower()
    known: dict[str, str] = {}
    for candidate in candidates:
        known.setdefault(candidate.lower(), candidate)
        if len(known) >= _MAX_CANDIDATES:
            break
    last = wanted.rpartition("/")[2]
    same_last = [full for low, full in known.items() if last and low.rpartition("/")[2] == last]
    containing = [full for low, full in known.items() if len(last) >= 3 and last in low] if not same_last else []
    alike = [known[low] for low in get_close_matches(wanted, known, n=limit, cutoff=_CUTOFF)]
    return tuple(dict.fromkeys([*same_last, *alike, *containing]))[:limit]
