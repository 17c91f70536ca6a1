"""A whole toolset: the tokens of its requests at 500 skills, and hundreds of sessions on it at the same time."""

from __future__ import annotations

import os
from pathlib import Path

from accounts import this_user
from subjects import HERE, Account, Effort, Side, in_turns
from table import Row, duration, say, share_of

_SESSIONS = 200
_SESSION_ROUNDS = 5
_THROUGHPUT_BAR = 0.7
_EAGER_BAR = 0.25
_RECALL_BAR = 0.90
_FLAT_BAR_MB = 10.0
_MIB = 1 << 20
_OWN = """\
import os, sys

print(sys.argv[1], [name for name in os.listdir(".") if name.startswith("mine-")])
open("mine-" + sys.argv[1], "w").close()
"""


def token_rows(effort: Effort) -> list[Row]:
    """What both toolsets add to a request at 500 skills, and whether our search finds the right one."""
    del effort  # nothing in it is a time
    corpus = Path(os.environ.get("ADK_SKILLS_CORPUS", HERE.parent.parent / "shared" / "corpus"))
    real = (corpus / "layout.jsonl").is_file()
    say(f"requests with 500 {'real' if real else 'made-up'} skills")
    with (
        this_user() as account,
        Side(account, "toolset_sides.py", "tokens", {"corpus": corpus if real else ""}) as side,
    ):
        said = {name: float(str(value)) for name, value in side.sample().items()}
    what = f"{said['skills']:.0f} {'real' if real else 'made-up'} skills"
    rows = [
        _fewer(f"{what}, EAGER: tokens of every request", said["our-eager"], said["adk-eager"], _EAGER_BAR),
        _fewer(
            f"{what}, LAZY: tokens of the instruction", said["our-lazy-instruction"], said["adk-lazy-instruction"], 1.0
        ),
        _fewer(f"{what}, LAZY: tokens of every request", said["our-lazy"], said["adk-lazy"], None),
    ]
    if real:
        what = f"{what}: recall@5 of `search_skills`, {said['asked']:.0f} held-out queries"
        held = said["recall"] >= _RECALL_BAR
        rows.append(Row(what, f"{said['recall']:.3f}", "no local search", "", f">= {_RECALL_BAR:.2f}", held))
    return rows


def session_rows(effort: Effort) -> list[Row]:
    """200 sessions that run a script at the same time, beside one after the other."""
    rounds = max(2, min(_SESSION_ROUNDS, effort.rounds // 8))
    cores = len(os.sched_getaffinity(0))
    say(f"{_SESSIONS} sessions at once on one toolset")
    with this_user() as account:
        skills = _session_skill(account)
        options: dict[str, object] = {"skills": skills, "sessions": _SESSIONS}
        with (
            Side(account, "toolset_sides.py", "our-sessions", options) as our,
            Side(account, "toolset_sides.py", "adk-sessions", options) as adk,
        ):
            ours, theirs = in_turns(our, adk, effort=Effort(rounds, effort.quantile), warm_up=1)
    ratios = [_SESSIONS * float(str(one["serial"])) / cores / float(str(one["seconds"])) for one in ours.samples]
    ratio = sorted(ratios)[len(ratios) // 2]
    mixed = ours.count("mixed")
    resident = [float(str(one["resident"])) for one in ours.samples]
    grown = (resident[-1] - resident[0]) / _MIB / (len(resident) - 1)
    what = f"{_SESSIONS} sessions at once, each runs a script"
    return [
        Row(
            f"{what}: runs a second, of cold runs one by one x {cores} cores",
            f"{_SESSIONS / ours.typical():.0f}/s",
            f"{cores / ours.typical('serial'):.0f}/s",
            f"{ratio:.2f}x",
            f">= {_THROUGHPUT_BAR}x",
            ratio >= _THROUGHPUT_BAR,
            against="itself",
        ),
        share_of(what, ours.typical(), theirs.typical(), None),
        share_of(f"{what}: 99 of 100 have ended after", ours.typical("p99"), theirs.typical("p99"), None),
        Row(
            f"{what}: memory added by each further {_SESSIONS} sessions",
            f"{grown:+.1f} MB",
            "",
            "",
            f"< {_FLAT_BAR_MB:g} MB",
            grown < _FLAT_BAR_MB,
            against="itself",
            note=f"{len(resident)} rounds of {_SESSIONS} new sessions, one of which takes {duration(ours.typical())}",
        ),
        Row(f"{what}: saw something of another session", str(mixed), "", "", "0", mixed == 0, against="itself"),
    ]


def _fewer(what: str, ours: float, theirs: float, bar: float | None) -> Row:
    ratio = ours / theirs
    held = None if bar is None else ratio <= bar
    return Row(what, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ratio:.1%}", "" if bar is None else f"<= {bar:.0%}", held)


def _session_skill(account: Account) -> Path:
    folder = account.folder / "session-skills"
    scripts = folder / "sessions" / "scripts"
    scripts.mkdir(parents=True)
    text = "---\nname: sessions\ndescription: Says who is there.\n---\n\nRun scripts/own.py.\n"
    (scripts.parent / "SKILL.md").write_text(text)
    (scripts / "own.py").write_text(_OWN)
    return folder
