"""Scripts on a Ray cluster: what the way to a worker adds to a warm run, and whether many sessions get the same."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys

from subjects import HERE, Effort
from table import Row, duration, not_measured, say

_MOST_ADDED_SECONDS = 0.006
_LEAST_SHARE = 0.8
_SESSIONS = 500
_SECONDS = 90


def ray_rows(effort: Effort) -> list[Row]:
    """A trivial warm .py on a worker of the same machine, and 500 sessions at the same time."""
    if importlib.util.find_spec("ray") is None:
        return [not_measured('sandbox="ray"', "the extra cluster is not installed")]
    say(f'a trivial .py, warm, sandbox="ray" and local in turns; then {_SESSIONS} sessions for {_SECONDS} s')
    line = [sys.executable, str(HERE / "ray_side.py"), str(effort.rounds), str(_SESSIONS), str(_SECONDS)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        return [not_measured('sandbox="ray"', (done.stderr.strip().splitlines() or ["it failed"])[-1])]
    found = json.loads(done.stdout.splitlines()[-1])
    ours, theirs = statistics.median(found["ray"]), statistics.median(found["local"])
    got, load = found["sessions"], f"load {found['load']:.1f} at the end"
    share = got["fewest"] / got["most"]
    return [
        Row(
            'a trivial .py, warm, with sandbox="ray" on this machine',
            duration(ours),
            duration(theirs),
            f"+{(ours - theirs) * 1000:.1f} ms",
            f"<= +{_MOST_ADDED_SECONDS * 1000:g} ms",
            ours - theirs <= _MOST_ADDED_SECONDS,
            "local, warm",
            load,
        ),
        Row(
            f"{_SESSIONS} sessions at once, {got['runs']} runs in {_SECONDS} s: the least that one got, of the most",
            str(got["fewest"]),
            str(got["most"]),
            f"{share:.2f}",
            f">= {_LEAST_SHARE:g}",
            share >= _LEAST_SHARE,
            "the most",
            f"99 of 100 runs were over after {duration(got['wait'])}",
        ),
    ]
