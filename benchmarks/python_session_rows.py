"""Stateful Python: code in a session against a fresh interpreter, the least that code without state costs."""

from __future__ import annotations

from contextlib import ExitStack

from accounts import this_user
from script_rows import plain_side
from subjects import Effort, Side, in_turns
from table import Row, say, share_of, times_faster

_SESSION_BAR = 8.0
"""A fresh ``python -I`` takes 10 to 15 ms, ``docker exec`` 60 to 110: 20 times faster than that is 3 ms at most."""


def python_session_rows(effort: Effort) -> list[Row]:
    """Trivial code in a session that is there, and in a new one, at the level chosen by default."""
    say("trivial code in a Python session")
    with this_user() as account, ExitStack() as stack:
        sides = [
            stack.enter_context(plain_side(account, ".py")),
            *(
                stack.enter_context(Side(account, "python_session_side.py", name, {"level": "auto"}))
                for name in ("in-a-session", "in-a-new-session")
            ),
        ]
        plain, warm, new = in_turns(*sides, effort=effort)
    against = "plain `python -I`"
    note = f"level {warm.samples[0]['level']}; {warm.typical() * 1000:.2f} ms"
    return [
        times_faster(
            "trivial code in a session", warm.typical(), plain.typical(), _SESSION_BAR, against=against, note=note
        ),
        share_of(
            "trivial code in a new session, its start included", new.typical(), plain.typical(), None, against=against
        ),
    ]
