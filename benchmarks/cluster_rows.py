"""Trials on a cluster beside trials on one machine: the same rows, how fast, and what a trial costs beside its agent.

Both sides are the installed command with the same cases, scripted rules and number of trials at once, in turns: one
process with ``--parallel`` here, three nodes of a Ray cluster of this machine there.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from subjects import Effort
from table import Row, duration, not_measured, say

_TRIALS = 1000
_CASES = 20
_NODES = 3
_ROUNDS = 3
_LEAST_RATE = 0.8
_MOST_OURS_SECONDS = 0.015
_SECONDS = 1800
_RULES = """\
rules:
  - when: {user_contains: [data], skills: [reporter]}
    call: {name: load_skill, args: {skill_name: reporter}}
  - when: {user_contains: [data], skills: [reporter]}
    call: {name: load_skill_resource, args: {skill_name: reporter, file_path: references/guide.md}}
  - when: {user_contains: [data], skills: [reporter]}
    text: "REPORT: North leads."
otherwise: {text: I cannot help.}
"""
_CALLS = "calls: [{name: load_skill, args: {skill_name: reporter}}, load_skill_resource], answer_contains: [REPORT]"


@dataclass(frozen=True, slots=True)
class _Took:
    """One run.

    Attributes:
        rows: What it says of each trial, whoever ran it.
        places: How many ran at once; fewer than there are nodes where one did not start in time.
        rate: Trials a second, from the first one's start to the last row.
        agent: Seconds of an agent, mean.
        ours: Seconds that a trial held its place beside its agent, mean.
    """

    rows: list[list[object]]
    places: int
    rate: float
    agent: float
    ours: float


def make_cases(folder: Path, cases: int = _CASES) -> None:
    """A skill, cases about it, and the rules of a model that follows it."""
    skill = folder / "skills" / "reporter"
    (skill / "references").mkdir(parents=True)
    text = "---\nname: reporter\ndescription: Reports on data.\n---\nRead references/guide.md, then write REPORT.\n"
    (skill / "SKILL.md").write_text(text)
    (skill / "references" / "guide.md").write_text("Name the region that leads.\n" * 100)
    lines = [f"  - {{id: case-{number}, prompt: Summarise my data {number}., {_CALLS}}}" for number in range(cases)]
    (folder / "cases.yaml").write_text("\n".join(["skill: reporter", "cases:", *lines]) + "\n")
    (folder / "rules.yaml").write_text(_RULES)


def _took(folder: Path, out: str, *where: str) -> _Took:
    line = [sys.executable, "-W", "ignore", "-m", "adk_skills_agent", "eval", "cases.yaml", "--dir", "skills"]
    line += ["--model", "scripted:rules.yaml", "--judge", "none", "--policy", "trusted", "--arm", "with_skill"]
    line += ["--runs", str(_TRIALS // _CASES), "--out", out, *where]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    path = folder / out / "trials.jsonl"
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    begun = min(dt.datetime.fromisoformat(row["started"]).timestamp() for row in rows)
    span = path.stat().st_mtime - begun
    nodes = len({row["ran_on"]["node"] for row in rows}) if "ran_on" in rows[0] else _NODES
    agent = statistics.fmean(row["seconds"] for row in rows)
    names = ("case", "arm", "run", "passed", "score", "fingerprint", "source", "skills_loaded")
    said = sorted(([row[name] for name in names] for row in rows), key=json.dumps)
    return _Took(said, nodes, len(rows) / span, agent, nodes * span / len(rows) - agent)


def cluster_rows(effort: Effort) -> list[Row]:
    """A thousand trials of a scripted agent on three nodes, and on one machine with as many at once."""
    del effort  # a thousand trials say it
    what = f"{_TRIALS:,} trials of a scripted agent on {_NODES} nodes"
    if importlib.util.find_spec("ray") is None:
        return [not_measured(what, "the extra cluster is not installed")]
    say(f"{what} of this machine, and by one process with --parallel {_NODES}, in turns, {_ROUNDS} times")
    there: list[_Took] = []
    here: list[_Took] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_cases(folder)
        try:
            for number in range(_ROUNDS):
                here.append(_took(folder, f"here-{number}", "--parallel", str(_NODES)))
                there.append(_took(folder, f"there-{number}", "--cluster", f"local:{_NODES}"))
                say(_shown(here[-1], there[-1]))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return [not_measured(what, str(error))]
    return _rows(what, here, there)


def _shown(here: _Took, there: _Took) -> str:
    return (
        f"one process {here.rate:.1f}/s, ours {duration(here.ours)}; {there.places} nodes {there.rate:.1f}/s, "
        f"ours {duration(there.ours)}; load {os.getloadavg()[0]:.1f}"
    )


def _rows(what: str, here: Sequence[_Took], there: Sequence[_Took]) -> list[Row]:
    same = all(run.rows == here[0].rows for run in (*here, *there))
    ratio = statistics.median(b.rate / a.rate for a, b in zip(here, there, strict=True))
    ours = statistics.median(run.ours for run in there)
    against = f"one process, --parallel {_NODES}"
    return [
        Row(f"{what}: the same rows", "yes" if same else "no", "", "", "yes", same, against),
        Row(
            f"{what}: trials a second",
            f"{statistics.median(run.rate for run in there):.1f}",
            f"{statistics.median(run.rate for run in here):.1f}",
            f"{ratio:.2f}",
            f">= {_LEAST_RATE:g}",
            ratio >= _LEAST_RATE,
            against,
            f"on {min(run.places for run in there)} nodes or more; load {os.getloadavg()[0]:.1f} at the end",
        ),
        Row(
            f"{what}: a place's time beside its agent's, each trial",
            duration(ours),
            duration(statistics.median(run.ours for run in here)),
            "",
            f"<= {duration(_MOST_OURS_SECONDS)}",
            ours <= _MOST_OURS_SECONDS,
            against,
            f"the agent took {duration(statistics.median(run.agent for run in there))}",
        ),
    ]
