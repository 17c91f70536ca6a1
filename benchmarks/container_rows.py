"""Code in containers: our sessions and our fresh containers beside ``docker exec`` and google-adk, on one engine."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from accounts import this_user
from subjects import Effort, Side, in_turns
from table import Row, not_measured, say, times_faster

_SESSION_BAR = 20.0
_FRESH_BAR = 3.0
_ENGINE = "docker"  # google-adk's class does not start on Podman without a bridge


def container_rows(effort: Effort) -> list[Row]:
    """The engine that runs here, or one that is started for it."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    import container_engines

    problem = container_engines.missing(_ENGINE)
    if problem is not None:
        return [not_measured("trivial code in a container", problem)]
    engine = container_engines.shared(_ENGINE)
    say("trivial code in containers")
    with this_user() as account, ExitStack() as stack:
        options: dict[str, object] = {"url": engine.url, "image": engine.image}
        sides = [
            stack.enter_context(Side(account, "container_side.py", name, options))
            for name in ("session", "engine-exec", "google", "fresh")
        ]
        session, engine_exec, google, fresh = in_turns(*sides, effort=effort)
    warm = f"{fresh.count('warm')} of {len(fresh.samples)} had a container that waited"
    exact = f"{session.typical() * 1000:.2f} ms"
    return [
        times_faster(
            "trivial code in a session's container",
            session.typical(),
            engine_exec.typical(),
            _SESSION_BAR,
            against="`docker exec true`",
            note=exact,
        ),
        times_faster(
            "trivial code in a session's container", session.typical(), google.typical(), _SESSION_BAR, note=exact
        ),
        times_faster(
            "trivial code in a fresh container, two waiting",
            fresh.typical(),
            google.typical(),
            _FRESH_BAR,
            note=warm,
        ),
    ]
