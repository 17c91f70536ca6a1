"""Which trials a run has, in which order; and what keeps a case from being run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from adk_skills_agent.adk.skills.source import FolderVersion
from adk_skills_agent.catalog import CatalogReader, RegistryConfig, Skill, SkillsRegistry
from adk_skills_agent.catalog.index import IndexedSkill
from adk_skills_agent.catalog.view import SkillsView
from adk_skills_agent.errors import ConfigError, some_of
from adk_skills_agent.evals.cases import EvalCase
from adk_skills_agent.evals.metrics.registry import JUDGED, METRICS, applicable, vacuous
from adk_skills_agent.evals.metrics.score import Expectation
from adk_skills_agent.format.models import Diagnostic, Severity

Key = tuple[str, str, int]
_TRIGGER, _DISCOVERY = "skill_trigger_score", "skill_discovery_score"
_OF_THE_JUDGE = ("judge", "judge_samples")


@dataclass(frozen=True, slots=True)
class Trial:
    """One conversation of one case."""

    case: EvalCase
    arm: Arm
    run: int
    criteria: Mapping[str, Any]  # the metrics that are scored, with their criterion (None: the default)
    fingerprint: str  # of everything the result depends on and the user may change

    @property
    def key(self) -> Key:
        """What a result is found by."""
        return self.case.id, self.arm.name, self.run


def criteria_of(case: EvalCase, arm: Arm, *, judged: bool) -> dict[str, Any]:
    """The metrics of a case in an arm.

    Without the skill only what comes out is measured: the way there cannot be taken.
    """
    if case.criteria:
        named = dict(case.criteria)
        if case.kind == "trigger":  # what is said for a whole file must not leave a query without its question
            named.setdefault(_TRIGGER, None)
            if not case.should_trigger:
                named.pop(_DISCOVERY, None)
    else:
        names = applicable(Expectation.of(case))
        if case.kind == "trigger":
            names = tuple(name for name in names if name == _TRIGGER) or names
        else:  # a task that succeeds another way has succeeded; which skills were loaded is in the results anyway
            names = tuple(name for name in names if name != _TRIGGER)
        named = dict.fromkeys(names)
    if not judged:
        named.pop(JUDGED, None)
    if all(vacuous(name, criterion, Expectation.of(case)) for name, criterion in named.items()):
        return {}
    if not arm.has_skill:
        named = {name: criterion for name, criterion in named.items() if METRICS[name].outcome}
    return named


def not_measured(cases: Iterable[EvalCase], *, judged: bool) -> list[Diagnostic]:
    """What cases expect and their criteria leave out: a note for each file and metric."""
    left_out: dict[tuple[str, str], list[EvalCase]] = {}
    for case in cases:
        for name in applicable(Expectation.of(case)) if case.criteria else ():
            if name not in case.criteria and name != _TRIGGER and (judged or name != JUDGED):
                left_out.setdefault((case.source.file, name), []).append(case)
    return [
        Diagnostic(
            "not-in-criteria",
            Severity.INFO,
            f"`criteria` leaves out {name}, which {some_of([case.id for case in among], 1, repr)} could be measured "
            "by.",
            file,
            among[0].source.line,
        )
        for (file, name), among in left_out.items()
    ]


def asked_for(case: EvalCase, pattern: str) -> bool:
    """Whether ``--filter`` lets a case through: its id holds the pattern, or fits it (``*``, ``?``)."""
    return not pattern or pattern in case.id or fnmatchcase(case.id, pattern)


def usable_cases(
    cases: Iterable[EvalCase], arms: Sequence[Arm], *, judged: bool, pattern: str = ""
) -> tuple[list[EvalCase], list[Diagnostic]]:
    """The cases that can be run, and why the others cannot: each is said, the rest runs."""
    usable: dict[str, EvalCase] = {}
    skipped: list[Diagnostic] = []

    def skip(case: EvalCase, code: str, message: str) -> None:
        skipped.append(Diagnostic(code, Severity.ERROR, message, case.source.file, case.source.line))

    for case in cases:
        if not asked_for(case, pattern):
            continue
        unknown = sorted({name for arm in arms for name in case.skills if name not in arm.catalog})
        if case.id in usable:
            skip(case, "duplicate-id", _duplicate(case, usable[case.id]))
        elif unknown:
            skip(
                case,
                "unknown-skill",
                f"Case {case.id!r} is about {', '.join(map(repr, unknown))}, which is in no folder of skills. "
                "It is not run; name the folder with --dir.",
            )
        elif not any(criteria_of(case, arm, judged=judged) for arm in arms):
            why = " without a judge" if case.judged and not judged else ""
            skip(
                case,
                "nothing-to-measure",
                f"Case {case.id!r} expects nothing that can be measured{why}. It is not run.",
            )
        else:
            # As the catalog spells them: they are compared with what the agent loads, and hidden by name.
            names = tuple(arms[0].catalog.get_metadata(name).name for name in case.skills)
            usable[case.id] = replace(case, skills=names)
    return list(usable.values()), skipped


def _duplicate(case: EvalCase, first: EvalCase) -> str:
    """Why a case is left out that another one has the id of; what to do depends on where the id is from."""
    asked, asked_first = ([turn.user_text for turn in one.turns] for one in (case, first))
    if case.kind == first.kind == "trigger" and asked == asked_first:
        return f"The query {asked[0]!r} is there already, at {first.source}. It is not run; delete one of them."
    if case.kind == "trigger" and case.id.startswith(f"{case.skills[0]}/query/"):  # its id is made of its words
        return f"The query {asked[0]!r} differs only in signs from the one at {first.source}. It is not run; reword it."
    return f"Case {case.id!r} has the id of the case at {first.source}. It is not run; rename it."


def plan_trials(
    cases: Sequence[EvalCase], arms: Sequence[Arm], runs: int, settings: Mapping[str, Any], *, judged: bool
) -> list[Trial]:
    """Every trial; one run of all cases after the other, the arms of a case side by side, so that a stop leaves pairs.

    ``settings`` is what else a result depends on, such as the model's name; JSON values.
    """
    found = []
    for case in cases:
        for arm in arms:
            criteria = criteria_of(case, arm, judged=judged)
            if criteria:
                found.append((case, arm, criteria, _fingerprint(case, arm, criteria, settings)))
    return [
        Trial(case, arm, run, criteria, fingerprint)
        for run in range(1, runs + 1)
        for case, arm, criteria, fingerprint in found
    ]


def _fingerprint(case: EvalCase, arm: Arm, criteria: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    if JUDGED not in criteria or not case.judged:  # another judge changes nothing about it
        settings = {name: value for name, value in settings.items() if name not in _OF_THE_JUDGE}
    said = [case.expected.to_json(), [[asdict(rubric) for rubric in turn.rubrics] for turn in case.turns]]
    files = [(file.name, hashlib.sha256(file.path.read_bytes()).hexdigest()) for file in case.files]
    expected = [asdict(file) for file in case.expected_files]
    parts = [
        said,
        files,
        expected,
        case.should_trigger,
        dict(case.initial_state),
        dict(criteria),
        arm.digest(case),
        settings,
    ]
    if case.scenario is not None:
        parts.append(asdict(case.scenario))
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_plain).encode()).hexdigest()[:16]


def _plain(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


# The arms of a comparison: the same cases with the skill, without it, and with other versions of it.

WITH, WITHOUT = "with_skill", "without_skill"
ANSWERS = ("evals", "evals.json", "eval_queries.json")
"""What no agent may see of a skill: the cases and what is expected."""


class SkillsUnderTest(SkillsView):
    """A catalog whose skills hide their eval cases: an agent that reads the expected answers proves nothing."""

    def __init__(self, source: CatalogReader, private: Sequence[Path] = ()) -> None:
        super().__init__(source, include_disabled=True)
        self._private = tuple(private)
        self._shown: dict[str, tuple[Skill, Skill]] = {}

    def _load(self, entry: IndexedSkill) -> Skill:
        whole = super()._load(entry)
        made_from, shown = self._shown.get(entry.location, (None, whole))
        if made_from is not whole:  # a new object would read the skill anew
            shown = whole.excluding(unseen(Path(whole.skill_dir), self._private))
            self._shown[entry.location] = whole, shown
        return shown


def unseen(skill: Path, private: Sequence[Path]) -> tuple[str, ...]:
    """What no agent may see of a skill, relative to its folder: the cases, and results that are written into it."""
    inside = (path for path in map(Path.resolve, private) if path.is_relative_to(skill.resolve()))
    beside = (path.name for path in skill.glob("*.evalset.json"))
    return (*ANSWERS, *beside, *(str(path.relative_to(skill.resolve())) for path in inside))


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of the comparison."""

    name: str  # ``with_skill``, ``without_skill``, or the name of a version
    catalog: CatalogReader
    has_skill: bool = True  # whether the skill a case is about is among them
    _digests: dict[str, str] = field(default_factory=dict)

    def hidden(self, case: EvalCase) -> tuple[str, ...]:
        """Names that are absent from an agent that runs the case: those it is about, in the arm without."""
        if self.has_skill:
            return ()
        return case.skills or tuple(self.catalog)

    def digest(self, case: EvalCase) -> str:
        """What identifies the skills of the arm for a case: every name there is, every byte of those it is about."""
        hidden = self.hidden(case)
        names = [name for name in self.catalog if name not in hidden]
        about = [name for name in names if not case.skills or name in case.skills]
        parts = [*names, *(self._version(name) for name in about)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _version(self, name: str) -> str:
        if name not in self._digests:
            skill = self.catalog.load_skill(name)
            self._digests[name] = FolderVersion(str(skill.skill_dir), name, skill.without).now()
        return self._digests[name]


def make_arms(
    names: Sequence[str], dirs: Sequence[Path], versions: Mapping[str, Path], private: Sequence[Path] = ()
) -> list[Arm]:
    """The arms of a run.

    ``versions`` maps a name to the folder of another version, which takes the place of the skill of its name. Agents
    must not see what is ``private``: the results. Raises ``ConfigError`` when a name is unknown or given twice, or the
    folder of a version holds no skill of the names there are.
    """
    arms = []
    for name in names:
        if name in (WITH, WITHOUT):
            arms.append(Arm(name, _catalog(dirs, private), has_skill=name == WITH))
        elif name in versions:
            folder = versions[name]
            found = list(_catalog([folder], private))
            if not found:
                raise ConfigError(f"Version {name!r}: there is no skill in {folder}. Give the folder of the SKILL.md.")
            if not set(found) & set(_catalog(dirs, private)):
                raise ConfigError(
                    f"Version {name!r}: {folder} holds {', '.join(found)}; no skill to compare with is called so."
                )
            arms.append(Arm(name, _catalog([folder, *dirs], private)))
        else:
            raise ConfigError(
                f"There is no arm {name!r}. Take {WITH}, {WITHOUT}, or name a version: --version {name}=DIR."
            )
    if len({arm.name for arm in arms}) < len(arms):
        raise ConfigError("An arm is named twice. Name each once.")
    return arms


def _catalog(dirs: Sequence[Path], private: Sequence[Path]) -> CatalogReader:
    # No cache on the disk, and never looked at again: what is measured must not change in the middle.
    registry = SkillsRegistry(RegistryConfig(cache=False, refresh_interval=float("inf")))
    registry.discover(dirs)
    return SkillsUnderTest(registry, private)
