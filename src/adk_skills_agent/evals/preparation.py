"""Everything that can be known before anything runs: the cases, the arms, the trials, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.errors import EvalFileError
from adk_skills_agent.evals.cases import EvalCase
from adk_skills_agent.evals.formats.reading import eval_files, read_eval_file
from adk_skills_agent.evals.judge import FEWEST_RUBRICS
from adk_skills_agent.evals.run.plan import (
    WITH,
    WITHOUT,
    Arm,
    Trial,
    asked_for,
    make_arms,
    not_measured,
    plan_trials,
    usable_cases,
)
from adk_skills_agent.format.models import Diagnostic, Severity

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Request:
    """What a user wants measured."""

    targets: tuple[Path, ...]  # files of cases, or folders of skills that hold them
    # folders of skills; the folders in which the files of cases lie, and targets that are folders, come after them
    dirs: tuple[Path, ...] = ()
    skill: str | None = None  # the skill the cases are about, whatever the files say
    arms: tuple[str, ...] = ()  # names of arms; empty: with, without, and every version
    # name to the folder of another version of the skill
    versions: Mapping[str, Path] = field(default_factory=lambda: _NOTHING)
    runs: int = 3
    pattern: str = ""
    judged: bool = True
    user_model: str = ""  # the model that plays the user of a ``conversation_scenario``, whatever the files say
    # what else a result depends on: the names of the models, say
    settings: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    # files and folders that agents must not see, should they lie in a skill: the results
    private: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What will be run."""

    files: tuple[Path, ...]
    cases: tuple[EvalCase, ...]
    arms: tuple[Arm, ...]
    trials: tuple[Trial, ...]
    skipped: tuple[Diagnostic, ...]
    notes: tuple[Diagnostic, ...]

    @property
    def judged(self) -> bool:
        """Whether a judge will be asked."""
        from adk_skills_agent.evals.metrics.registry import JUDGED

        return any(JUDGED in trial.criteria and trial.case.judged for trial in self.trials)


def prepare(request: Request) -> Prepared:
    """Read every file and plan every trial.

    Raises ``EvalFileError`` when a file cannot be read as one (every complaint of every file is in ``problems``), or
    there is no case at all, or ``ConfigError`` when an arm or a version is wrong.
    """
    problems: list[str] = []
    files: dict[Path, None] = {}
    for target in request.targets:
        try:
            files.update(dict.fromkeys(eval_files(target)))
        except EvalFileError as error:
            problems += error.problems
    read = []
    for path in files:
        try:
            read.append(read_eval_file(path, skill=request.skill))
        except EvalFileError as error:
            problems += error.problems
    if problems:
        raise EvalFileError(problems)
    if request.judged:
        alone = [case for one in read for case in one.cases if _has_one_rubric(case)]
        problems = [
            f"{case.source}: The case {case.id!r} has one rubric. Give it {FEWEST_RUBRICS} or more: one about the way, "
            "one about the answer. Without a judge (--judge none) it is not needed."
            for case in alone
        ]
        if problems:
            raise EvalFileError(problems)
    cases, without_user = _with_user([case for one in read for case in one.cases], request)
    notes = [note for one in read for note in one.diagnostics]
    not_run = [*(note for note in notes if note.severity is Severity.ERROR), *without_user]
    if not cases:
        raise EvalFileError([*map(str, not_run), *(f"{path}: There are no cases to run in it." for path in files)])
    names = request.arms or (WITH, WITHOUT, *request.versions)
    arms = make_arms(names, _dirs(request, cases), request.versions, (*request.private, *files))
    usable, skipped = usable_cases(cases, arms, judged=request.judged, pattern=request.pattern)
    trials = plan_trials(usable, arms, request.runs, request.settings, judged=request.judged)
    with_trials = {trial.arm.name for trial in trials}
    return Prepared(
        tuple(files),
        tuple(usable),
        tuple(arm for arm in arms if arm.name in with_trials),
        tuple(trials),
        (*not_run, *skipped),
        (
            *(note for note in notes if note.severity is not Severity.ERROR),
            *not_measured(usable, judged=request.judged),
        ),
    )


def _has_one_rubric(case: EvalCase) -> bool:
    # With a simulated user each turn is judged, so that one rubric is asked more than once.
    return case.scenario is None and sum(len(turn.rubrics) for turn in case.turns) == 1


def _with_user(cases: Sequence[EvalCase], request: Request) -> tuple[list[EvalCase], list[Diagnostic]]:
    """The cases, each with somebody to play its user; and those that have nobody."""
    found, without = [], []
    for case in cases:
        name = case.scenario and (request.user_model or case.scenario.model)
        if case.scenario is None:
            found.append(case)
        elif name:
            found.append(replace(case, scenario=replace(case.scenario, model=name)))
        elif asked_for(case, request.pattern):
            without.append(
                Diagnostic(
                    "no-user-model",
                    Severity.ERROR,
                    f"Case {case.id!r} has a conversation_scenario, whose user a model plays. It is not run; name the "
                    "model with --user-model, or in user_simulator_config of test_config.json.",
                    case.source.file,
                    case.source.line,
                )
            )
    return found, without


def _dirs(request: Request, cases: Sequence[EvalCase]) -> list[Path]:
    own = [case.skill_folder for case in cases if case.skill_folder is not None]
    folders = [target.resolve() for target in request.targets if target.is_dir()]
    return list(dict.fromkeys([*request.dirs, *own, *folders]))
