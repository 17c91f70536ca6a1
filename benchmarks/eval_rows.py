"""What ``adk-skills eval`` adds to the agents it runs: time beside theirs, and memory over a thousand trials."""

from __future__ import annotations

from accounts import this_user
from subjects import Effort, Side
from table import Row, duration, say

_TRIALS = 1000
_TIME_BAR = 0.10
_FLAT_BAR_MB = 10.0
_SECONDS = 900.0


def trial_rows(effort: Effort) -> list[Row]:
    """A thousand trials of a scripted agent that loads a skill, reads a file of it and answers."""
    del effort  # one run of a thousand trials says it
    say(f"{_TRIALS} trials of a scripted agent")
    with this_user() as account, Side(account, "eval_sides.py", "trials", {"trials": _TRIALS}) as side:
        said = side.sample(_SECONDS)
    agent, whole = float(str(said["agent"])), float(str(said["seconds"]))
    resident = [float(size) for size in said["resident"]]  # type: ignore[attr-defined]
    grown = resident[-1] - resident[0]
    overhead = (whole - agent) / agent
    what = f"{_TRIALS:,} trials of a scripted agent"
    return [
        Row(
            f"{what}: our time for each, beside the agent's own",
            duration((whole - agent) / _TRIALS),
            duration(agent / _TRIALS),
            f"{overhead:.1%}",
            f"<= {_TIME_BAR:.0%}",
            overhead <= _TIME_BAR,
            against="the agent",
            note="planning, preparing, scoring, rows, benchmark.json and junit.xml are ours",
        ),
        Row(
            f"{what}: memory added from trial {_TRIALS // 5} to {_TRIALS:,}",
            f"{grown:+.1f} MB",
            "",
            "",
            f"< {_FLAT_BAR_MB:g} MB",
            grown < _FLAT_BAR_MB,
            against="itself",
        ),
    ]
