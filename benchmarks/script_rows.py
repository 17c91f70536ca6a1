"""One script at a time: the sandbox's price over a plain subprocess, and our tool beside the tools of others."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace

from accounts import plain_user, this_user
from opponents import pydantic_ai_python
from subjects import Account, Effort, Side, Taken, in_turns
from table import Row, not_measured, say, share_of, times_faster

_COLD_BARS = {("namespaces", ".py"): 1.6}
_TOOL_BARS = {".py": 4.0, ".sh": 4.0}
_WARM_BAR = 9.0
_ASSET_BAR = 20.0
_BURST = 500
_PLAIN = {".py": "plain `python -I`", ".sh": "plain `bash`"}
_NO_SLOTS = "this version has no warm slots"


def our_side(account: Account, name: str, skill: str, suffix: str, **options: object) -> Side:
    """Our side; see ``our_script_sides.py``."""
    script = f"scripts/trivial{suffix}"
    given = {"skills": account.folder / "skills", "skill": skill, "script": script} | options
    return Side(account, "our_script_sides.py", name, given)


def adk_side(account: Account, name: str, skill: str, suffix: str, **options: object) -> Side:
    """google-adk's side; see ``adk_script_sides.py``."""
    script = f"scripts/trivial{suffix}"
    given = {"skills": account.folder / "skills", "skill": skill, "script": script} | options
    return Side(account, "adk_script_sides.py", name, given)


def plain_side(account: Account, suffix: str) -> Side:
    """A plain subprocess."""
    interpreter = [account.python, "-I"] if suffix == ".py" else [shutil.which("bash") or "bash"]
    command = [*interpreter, account.folder / "skills" / "trivial" / "scripts" / f"trivial{suffix}"]
    return Side(account, "plain_side.py", "plain", {"command": [str(part) for part in command]})


def has_warm_slots() -> bool:
    """Whether the library under measurement has warm slots at all."""
    from adk_skills_agent import SandboxPolicy

    return "warm_slots" in SandboxPolicy.__dataclass_fields__


def cold_rows(effort: Effort) -> list[Row]:
    """A trivial script at the level chosen by default and at each level that works here."""
    from adk_skills_agent.sandbox import local_levels

    rows: list[Row] = []
    working = [level.level.value for level in local_levels() if level.problem() is None]
    missing = {level.level.value: level.problem() for level in local_levels() if level.problem() is not None}
    with this_user() as account:
        for suffix in (".py", ".sh"):
            say(f"trivial {suffix}, cold, at {', '.join(working)}")
            with ExitStack() as stack:
                plain = stack.enter_context(plain_side(account, suffix))
                sides = [
                    stack.enter_context(our_side(account, "our-sandbox", "trivial", suffix, level=level))
                    for level in ("auto", *working)
                ]
                theirs, *taken = in_turns(plain, *sides, effort=effort)
            for level, ours in zip(("auto", *working), taken, strict=True):
                chosen = ours.samples[0]["level"]
                name = f"by default ({chosen})" if level == "auto" else f"at {level}"
                what = f"trivial {suffix} cold, {name}"
                bar = _COLD_BARS.get((str(chosen), suffix))
                rows.append(share_of(what, ours.typical(), theirs.typical(), bar, against=_PLAIN[suffix]))
    return rows + [not_measured(f"trivial scripts at {name}", str(problem)) for name, problem in missing.items()]


def tool_rows(effort: Effort) -> list[Row]:
    """A trivial script through our tool and through google-adk's, as this user."""
    with this_user() as account:
        return _tool_rows(account, effort)


def plain_user_rows(effort: Effort) -> list[Row]:
    """The same as a user without privileges."""
    with plain_user() as account:
        if isinstance(account, str):
            return [not_measured("as a plain user", account)]
        return _tool_rows(account, effort)


def _tool_rows(account: Account, effort: Effort) -> list[Row]:
    rows: list[Row] = []
    who = " as a plain user" if account.uid is not None else ""
    warm = has_warm_slots()
    for suffix in (".py", ".sh"):
        say(f"trivial {suffix} through run_script and run_skill_script{who}")
        with ExitStack() as stack:
            enter = stack.enter_context
            sides = [
                enter(adk_side(account, "adk-tool", "trivial", suffix)),
                enter(plain_side(account, suffix)),
                enter(our_side(account, "our-tool", "trivial", suffix)),
            ]
            if warm:
                sides.append(enter(our_side(account, "our-tool", "trivial", suffix, warm_slots=2)))
                if suffix == ".sh":
                    sides.append(enter(our_side(account, "our-execute", "trivial", suffix, warm_slots=2)))
            theirs, plain, cold, *slots = in_turns(*sides, effort=effort)
        what = f"trivial {suffix} through the tool{who}"
        level = f"level {cold.samples[0]['level']}"
        rows.append(times_faster(f"{what}, cold", cold.typical(), theirs.typical(), _TOOL_BARS[suffix], note=level))
        if not slots:
            rows.append(not_measured(f"{what}, warm slot", _NO_SLOTS))
            continue
        note = _warm_note(slots[0])
        rows.append(times_faster(f"{what}, warm slot", slots[0].typical(), theirs.typical(), _WARM_BAR, note=note))
        bar = 0.6 if suffix == ".py" else None
        row = share_of(f"{what}, warm slot", slots[0].typical(), plain.typical(), bar, against=_PLAIN[suffix])
        rows.append(row)
        if len(slots) > 1:
            note = _warm_note(slots[1])
            row = share_of("`execute`, warm slot", slots[1].typical(), slots[0].typical(), 1.3, against="our warm .sh")
            rows.append(replace(row, note=note))
    return rows


def _warm_note(slots: Taken) -> str:
    return (
        f"level {slots.samples[0]['level']}; {slots.count('warm')} of {len(slots.samples)} samples were on a warm slot"
    )


def asset_rows(effort: Effort) -> list[Row]:
    """A skill with a binary asset of 10 MB, through both tools."""
    rows: list[Row] = []
    with this_user() as account:
        for suffix in (".py", ".sh"):
            say(f"trivial {suffix} of a skill with a 10 MB asset")
            with (
                adk_side(account, "adk-tool", "heavy", suffix) as theirs,
                our_side(account, "our-tool", "heavy", suffix) as ours,
            ):
                adk, cold = in_turns(
                    theirs, ours, effort=Effort(max(5, effort.rounds // 4), effort.quantile), warm_up=1
                )
            rows.append(
                times_faster(
                    f"trivial {suffix} through the tool, 10 MB asset, cold", cold.typical(), adk.typical(), _ASSET_BAR
                )
            )
    return rows


def burst_rows(effort: Effort) -> list[Row]:
    """500 calls one right after the other on 2 slots."""
    what = f"{_BURST} trivial .py back to back on 2 warm slots, median"
    if not has_warm_slots():
        return [not_measured(what, _NO_SLOTS)]
    say(what)
    with (
        this_user() as account,
        plain_side(account, ".py") as plain,
        our_side(account, "our-burst", "trivial", ".py", warm_slots=2, count=_BURST) as ours,
    ):
        before = in_turns(plain, effort=effort)[0]
        burst = ours.sample(seconds=300)
        after = in_turns(plain, effort=effort)[0]
    theirs = Taken(effort.quantile, before.samples + after.samples).typical()
    note = f"{burst['warm']} of {_BURST} were on a warm slot; mean {float(str(burst['mean'])) * 1000:.1f} ms"
    return [share_of(what, float(str(burst["seconds"])), theirs, 1.8, against=_PLAIN[".py"], note=note)]


def pydantic_ai_rows(effort: Effort) -> list[Row]:
    """pydantic-ai-skills runs a script without any isolation; we on a warm slot through our tool."""
    python, problem = pydantic_ai_python()
    rows: list[Row] = []
    with this_user() as account:
        for suffix in (".py", ".sh"):
            what = f"trivial {suffix} through the tool, warm slot"
            if python is None:
                rows.append(not_measured(what, problem))
                continue
            say(f"trivial {suffix} beside pydantic-ai-skills")
            options: dict[str, object] = {"skills": account.folder / "skills", "skill": "trivial"}
            options["script"] = f"scripts/trivial{suffix}"
            slots = 2 if has_warm_slots() else 0
            with (
                Side(account, "pydantic_ai_side.py", "pydantic-ai", options, python=python) as theirs,
                our_side(account, "our-tool", "trivial", suffix, warm_slots=slots) as ours,
            ):
                unsandboxed, taken = in_turns(theirs, ours, effort=effort)
            against = "pydantic-ai-skills"
            if slots:
                note = _warm_note(taken)
            else:
                what, note = f"trivial {suffix} through the tool, cold", _NO_SLOTS
            bar = 1.0 if slots else None
            rows.append(times_faster(what, taken.typical(), unsandboxed.typical(), bar, against=against, note=note))
    return rows
