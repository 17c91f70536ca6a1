"""Which outputs are compared, and which of them is called A."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adk_skills_agent.evals.blind.verdict import A, B
from adk_skills_agent.evals.cases import EvalCase
from adk_skills_agent.evals.files_shown import files_shown
from adk_skills_agent.evals.judge_prompt import cut
from adk_skills_agent.evals.run.plan import Key, Trial
from adk_skills_agent.evals.trace import Trace

SEED = 0
PairKey = tuple[str, str, str, int]
"""Case, arm, the arm it is compared with, run."""
_MOST_TEXT_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Pair:
    """Two trials of one case.

    Attributes:
        case: What both were asked.
        arm: One arm.
        baseline: The other.
        run: Which repetition of both, from 1.
    """

    case: EvalCase
    arm: str
    baseline: str
    run: int

    @property
    def key(self) -> PairKey:
        """What a result is found by."""
        return self.case.id, self.arm, self.baseline, self.run

    @property
    def trials(self) -> tuple[Key, Key]:
        """The trials, that of ``arm`` first."""
        return (self.case.id, self.arm, self.run), (self.case.id, self.baseline, self.run)


def plan_pairs(trials: Sequence[Trial]) -> list[Pair]:
    """Every pair: each run of a task in the first arm that has the skill, with the same run in every other arm.

    Trigger queries are not compared: only what is loaded matters of them.
    """
    cases = {trial.case.id: trial.case for trial in trials if trial.case.kind == "task"}
    keys = {trial.key for trial in trials}
    arms = list(dict.fromkeys(trial.arm.name for trial in trials))
    first = next((trial.arm.name for trial in trials if trial.arm.has_skill), "")
    runs = max((trial.run for trial in trials), default=0)
    planned = [
        Pair(case, first, arm, run)
        for run in range(1, runs + 1)
        for case in cases.values()
        for arm in arms
        if arm != first
    ]
    return [pair for pair in planned if all(key in keys for key in pair.trials)]


def sides(key: PairKey, seed: int = SEED) -> dict[str, str]:
    """Which arm is A and which is B: drawn by the seed, the same each time."""
    case, arm, baseline, run = key
    drawn = hashlib.sha256("\0".join((str(seed), case, arm, baseline, str(run))).encode("utf-8", "surrogatepass"))
    return {A: arm, B: baseline} if drawn.digest()[0] % 2 else {A: baseline, B: arm}


def task_shown(case: EvalCase) -> str:
    """What was asked, as the judge reads it."""
    parts = [f"Message {number}: {turn.user_text}" for number, turn in enumerate(case.turns, 1)]
    if len(parts) == 1:
        parts = [case.turns[0].user_text]
    if case.scenario is not None:
        parts.append(f"What the user wanted of the conversation: {case.scenario.plan.get('conversation_plan')}")
    if case.files:
        parts.append(f"Files the user gave: {', '.join(file.name for file in case.files)}")
    if case.expected_output:
        parts.append(f"The author of the task describes a good outcome so: {case.expected_output}")
    return "\n\n".join(parts)


def output_shown(trace: Trace, *, talked: bool = False) -> str:
    """What came out, as the judge reads it: the answers and the files, and nothing of the way there.

    Args:
        trace: What happened.
        talked: Whether the user's messages came about in the conversation and are to be shown with it.
    """
    if talked:
        parts = [f"User: {turn.user_text}\n\nAnswer: {cut(turn.final_text, _MOST_TEXT_CHARS)}" for turn in trace.turns]
        return "\n\n".join([*(parts or ["(no answer)"]), *files_shown(trace)])
    texts = [cut(turn.final_text, _MOST_TEXT_CHARS) or "(no answer)" for turn in trace.turns]
    several = len(texts) > 1
    parts = [f"Answer to message {number}: {text}" if several else text for number, text in enumerate(texts, 1)]
    return "\n\n".join([*(parts or ["(no answer)"]), *files_shown(trace)])


def same_output(one: Trace, other: Trace) -> bool:
    """Whether nobody needs to be asked: the same answers and the same files, byte by byte."""
    answers = [[turn.final_text for turn in trace.turns] for trace in (one, other)]
    files = dict(one.output_files), dict(other.output_files)
    whole = all(file.content is not None for of in files for file in of.values())
    return answers[0] == answers[1] and files[0] == files[1] and whole


def names_in(text: str, names: Iterable[str]) -> list[str]:
    """Names of skills and arms that an output mentions: a judge who knows them could tell whose output it is."""
    return [
        name
        for name in dict.fromkeys(names)
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE)
    ]


def unblinded(row: Mapping[str, Any]) -> dict[str, str]:
    """A and B of a row of results, by name."""
    return sides((row["case"], row["arms"][0], row["arms"][1], row["run"]), row["seed"])
