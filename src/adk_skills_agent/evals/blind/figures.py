"""What all comparisons say, unblinded: wins, ties and losses of the first arm, and how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from adk_skills_agent.evals.blind.comparison import CONTENT, CRITERIA, STRUCTURE, PairKey
from adk_skills_agent.evals.blind.run import Compared
from adk_skills_agent.evals.statistics import CONFIDENCE, paired_lift


def blind_figures(
    compared: Mapping[PairKey, Compared], not_compared: Sequence[PairKey] = (), errors: bool = True
) -> list[dict[str, Any]]:
    """One entry for each two arms (C46).

    A case counts once, whatever its runs: its wins less its losses, as a share of its runs. The interval is a bootstrap
    over the cases, the sign test counts the cases that are won and those that are lost. Of the pairs in
    ``not_compared`` a trial has no result.
    """
    arms = list(dict.fromkeys((key[1], key[2]) for key in sorted((*compared, *not_compared))))
    return [
        _figures(
            arm,
            baseline,
            [compared[key] for key in sorted(compared) if key[1:3] == (arm, baseline)],
            sum(key[1:3] == (arm, baseline) for key in not_compared),
            errors=errors,
        )
        for arm, baseline in arms
    ]


def overall(scores: Mapping[str, float]) -> float:
    """skill-creator's overall score, 2 to 10: the mean of the content and the mean of the structure, together."""
    return statistics.fmean(scores[name] for name in CONTENT) + statistics.fmean(scores[name] for name in STRUCTURE)


def _figures(arm: str, baseline: str, of: Sequence[Compared], missing: int, *, errors: bool) -> dict[str, Any]:
    said = [one for one in of if one.measured]
    cases: dict[str, list[Compared]] = {}
    for one in said:
        cases.setdefault(one.key[0], []).append(one)
    wins, losses = _count(said, arm), _count(said, baseline)
    counts = {case: (_count(runs, arm), _count(runs, baseline), len(runs)) for case, runs in cases.items()}
    lift = paired_lift([(won / all_, lost / all_) for won, lost, all_ in counts.values()])
    nothing = dict.fromkeys(("mean", "low", "high", "p_value")) | {
        "no_interval": "",
        "better": 0,
        "worse": 0,
        "equal": 0,
    }
    figures: dict[str, Any] = nothing if lift is None else asdict(lift)
    figures.pop("pairs", None)
    preference = figures.pop("mean")
    samples = sum(one.samples for one in said)
    return {
        "arm": arm,
        "baseline": baseline,
        "comparisons": len(said),
        "wins": wins,
        "ties": len(said) - wins - losses,
        "losses": losses,
        "win_rate": (wins + (len(said) - wins - losses) / 2) / len(said) if said else None,
        "preference": preference,
        **figures,
        "confidence": CONFIDENCE,
        "agreement": statistics.fmean(one.agreement for one in said) if said else None,
        "samples": samples,
        "flips": sum(one.flips for one in said),
        "same_output": sum(not one.samples for one in said),
        "names_skill": sum(bool(one.names_skill) for one in said),
        "scores": {name: _scores(said, name) for name in (arm, baseline)},
        "cases": [
            {
                "case": case,
                "wins": won,
                "ties": all_ - won - lost,
                "losses": lost,
                "preference": (won - lost) / all_,
                "runs": [
                    {"run": one.key[3], "winner": one.winning_arm or None, "reasons": one.reasons_by_arm}
                    for one in cases[case]
                ],
            }
            for case, (won, lost, all_) in counts.items()
        ],
        "not_compared": missing,
        "errors": [
            {"case": one.key[0], "run": one.key[3], "message": one.error} for one in of if errors and not one.measured
        ],
    }


def blind_notes(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """What to know before the figures are believed, one sentence each."""
    said = []
    for one in figures:
        pair = f"{one['arm']} and {one['baseline']}"
        if one["names_skill"]:
            said.append(
                f"Blind comparison of {pair}: in {one['names_skill']} of {one['comparisons']} only one output names "
                "the skill, so that the judge could tell whose it is."
            )
        if one["samples"] and one["flips"] * 4 >= one["samples"]:
            said.append(
                f"Blind comparison of {pair}: in {one['flips']} of {one['samples']} samples the judge preferred a "
                "place, whatever stood there; they count as ties. Another --judge may see more."
            )
        if one["not_compared"]:
            said.append(
                f"Blind comparison of {pair}: {one['not_compared']} pairs are not compared, because a trial has no "
                "result."
            )
    return said


def _count(of: Sequence[Compared], arm: str) -> int:
    return sum(one.winning_arm == arm for one in of)


def _scores(of: Sequence[Compared], arm: str) -> dict[str, float] | None:
    """Mean by criterion, of the comparisons in which somebody was asked."""
    given = [scores for one in of for side, scores in one.scores.items() if one.arms[side] == arm]
    if not given:
        return None
    means = {name: statistics.fmean(scores[name] for scores in given) for name in CRITERIA}
    return {**means, "overall": overall(means)}
