"""One trial of a task from its environment to its row: the agent's work, then the verifier's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError, SandboxError
from adk_skills_agent.evals.skillsbench.agents import ORACLE, Assignment, BenchAgent, Worked
from adk_skills_agent.evals.skillsbench.environment import (
    LOGS,
    BuildError,
    BuiltImage,
    Images,
    Phase,
    TaskEnvironment,
    TaskSandbox,
)
from adk_skills_agent.evals.skillsbench.results import NOT_MEASURED, SELF_GEN, WITH_SKILL, Key
from adk_skills_agent.evals.skillsbench.task import Task, TaskSkills, filled, load_skills, text_of, unpack_skills
from adk_skills_agent.evals.skillsbench.verifier_tools import TOOLS, WHEELS, tool_environment
from adk_skills_agent.platforms import make_folder_below, write_whole
from adk_skills_agent.sandbox import Secret, forms_of, looks_secret, temporary_prefix

_OWN_SKILLS = ("/root/.claude/skills", "/root/.agents/skills")
"""Where the skills an agent wrote itself are in its second environment, as curated ones are."""


_MOST_NAMES, _MAX_NAME_CHARS = 20, 100  # of variables in a row


@dataclass(frozen=True, slots=True)
class BenchTrial:
    """One attempt."""

    task: Task
    arm: str
    number: int
    agent: str
    fingerprint: str = ""  # of everything the result depends on and the user may change

    @property
    def key(self) -> Key:
        """What a result is found by."""
        return self.task.name, self.arm, self.number, self.agent


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What all trials of a run share."""

    sandbox: TaskSandbox
    images: Images
    agents: Mapping[str, BenchAgent]
    out: Path  # folder of the results; traces and reports go below it
    tools: Path  # folder of the commands for verifiers (``verifier_tools.py``)
    wheels: Path | None = None  # folder of wheels for verifiers without a network
    agent_network: bool = True  # whether the agent's commands have a network, where the task allows one
    verifier_network: bool = True  # whether the verifier has one
    skip_tests: bool = False  # judge by what the agent did instead of by the tests (S0-137)
    # Of the host, that tasks may ask for. They are strangers', and have a network: no others are theirs (row 153).
    variables: Mapping[str, str] = field(default_factory=dict)


async def run_trial(trial: BenchTrial, settings: BenchSettings) -> dict[str, Any]:
    """Run a trial and grade it.

    Returns:
        Its row for ``results.jsonl``. Whatever fails in it is in the row; nothing is raised but what ends the program.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    with_skills = trial.arm == WITH_SKILL
    image: BuiltImage | None = None
    skills: TaskSkills | None = None
    worked, given = Worked(0.0), Grade(None)
    try:
        image = await settings.images.get(trial.task, with_skills=with_skills)
        if with_skills:
            skills = await asyncio.to_thread(load_skills, trial.task.skills)
        if trial.arm == SELF_GEN:
            with tempfile.TemporaryDirectory(prefix=temporary_prefix("bench")) as folder:
                first, skills = await _skills_of_its_own(trial, settings, image, Path(folder))
                worked, given = await _attempt(trial, settings, image, skills)
                worked = _both(first, worked)
        else:
            worked, given = await _attempt(trial, settings, image, skills)
    except BuildError as error:
        worked = replace(worked, error=("build", error.message))
        given = Grade(None, error.message, error.output)
    except SandboxError as error:
        worked = replace(worked, error=("sandbox", error.message))
        given = Grade(None, error.message)
    told = _without_secrets(settings)
    row = _row(trial, settings, worked, given) | {
        "started": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "total_seconds": round(time.monotonic() - begun, 3),
        "build_seconds": round(image.seconds, 3) if image else None,
        "skills_available": list(skills.names) if skills else [],
        "skills_found": skills.found if skills else 0,
        "skill_repairs": [repair.replace(f"{skills.folder}/", "") for repair in skills.repairs] if skills else [],
        "notes": [
            *(image.notes if image else ()),
            *(str(found) for found in trial.task.diagnostics),
            *_not_given(trial, settings),
        ],
        "trace": await asyncio.to_thread(_keep, trial, settings.out, "traces", worked.trace, told),
        "ctrf": await asyncio.to_thread(_keep, trial, settings.out, "ctrf", given.report, told),
    }
    return {key: told(value) if isinstance(value, str) else value for key, value in row.items()}


async def _attempt(
    trial: BenchTrial, settings: BenchSettings, image: BuiltImage, skills: TaskSkills | None
) -> tuple[Worked, Grade]:
    task, agent = trial.task, settings.agents[trial.agent]
    folders = tuple((place, skills.folder) for place in _OWN_SKILLS) if skills and trial.arm == SELF_GEN else ()
    environment = await settings.sandbox.open(task, image)
    try:
        worked = await agent.work(task, environment, _assignment(trial, settings, skills, folders))
        if worked.error and worked.error[0] in NOT_MEASURED:
            return worked, Grade(None, worked.error[1])
        if settings.skip_tests:
            if worked.heuristic is None:
                return worked, Grade(None, f"The agent {agent.name} can only be graded by the tests.")
            return worked, Grade(float(worked.heuristic))
        return worked, await grade(task, environment, _verifier_phase(task, image, settings))
    finally:
        await asyncio.shield(environment.close())


async def _skills_of_its_own(
    trial: BenchTrial, settings: BenchSettings, image: BuiltImage, folder: Path
) -> tuple[Worked, TaskSkills | None]:
    environment = await settings.sandbox.open(trial.task, image)
    try:
        agent = settings.agents[trial.agent]
        worked, packed = await agent.write_skills(trial.task, environment, _assignment(trial, settings, None, ()))
    finally:
        await asyncio.shield(environment.close())
    if packed is None:
        return worked, None
    try:
        await asyncio.to_thread(unpack_skills, packed, folder)
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        return replace(worked, error=worked.error or ("agent", f"Its skills cannot be unpacked: {error}")), None
    return worked, await asyncio.to_thread(load_skills, folder)


def _assignment(
    trial: BenchTrial, settings: BenchSettings, skills: TaskSkills | None, folders: tuple[tuple[str, Path], ...]
) -> Assignment:
    network = settings.agent_network and trial.task.settings.allow_internet
    return Assignment(trial.task.limits.agent_seconds, trial.number, network, skills, folders, settings.variables)


def _not_given(trial: BenchTrial, settings: BenchSettings) -> list[str]:
    asked = trial.task.settings
    wanted = {**(asked.solution_env if trial.agent == ORACLE else {}), **asked.verifier_env}
    missing = dict.fromkeys(filled(wanted, settings.variables)[1])
    names = [name[:_MAX_NAME_CHARS] for name in missing][:_MOST_NAMES]
    return [f"The task asks for {name} of the host, which it was not given; see --env." for name in names]


def _without_secrets(settings: BenchSettings) -> Callable[[str], str]:
    """What takes keys out of what is kept: those of the environment's proxies, and those that tasks were given."""
    found = []
    for name, value in settings.variables.items():
        with contextlib.suppress(ConfigError):  # too short to be one
            found += [(name, Secret(value))] if looks_secret(name) else []
    forms = forms_of(tuple(found))
    told = settings.sandbox.without_secrets
    return told if forms is None else lambda text: forms.text(told(text))


def _both(first: Worked, second: Worked) -> Worked:
    """The work on the task, with time and tokens of writing skills, whose failure is told when nothing worse came."""
    usage = {name: first.usage.get(name, 0) + second.usage.get(name, 0) for name in {*first.usage, *second.usage}}
    trace = {"writing_skills": first.trace, "task": second.trace}
    return replace(
        second, seconds=first.seconds + second.seconds, usage=usage, trace=trace, error=second.error or first.error
    )


def _verifier_phase(task: Task, image: BuiltImage, settings: BenchSettings) -> Phase:
    network = settings.verifier_network
    variables, _ = filled(task.settings.verifier_env, settings.variables)
    folders: list[tuple[str, Path]] = []
    env: dict[str, str] = {}
    if not network or _mentions_uv(task):
        folders.append((TOOLS, settings.tools))
        env = dict(tool_environment(image.env.get("PATH", ""), network=network, wheels=settings.wheels is not None))
    if settings.wheels is not None:
        folders.append((WHEELS, settings.wheels))
    return Phase(network, tuple(folders), tuple({**env, **variables}.items()))


def _mentions_uv(task: Task) -> bool:
    with contextlib.suppress(ConfigError):
        return "uv" in text_of(task.tests / "test.sh")
    return False


def _row(trial: BenchTrial, settings: BenchSettings, worked: Worked, given: Grade) -> dict[str, Any]:
    kind, error = worked.error or (None, None)
    if given.reward is None and kind not in NOT_MEASURED:  # the agent's error goes on to be told below
        kind, error = "verifier", given.error or "The verifier left no reward."
    return {
        "task": trial.task.name,
        "arm": trial.arm,
        "trial": trial.number,
        "agent": trial.agent,
        "reward": given.reward,
        "passed": given.passed,
        "error": error,
        "seconds": round(worked.seconds, 3),
        "error_kind": kind,
        "agent_error": worked.error[1] if worked.error else None,
        "agent_timed_out": bool(worked.error and worked.error[0] == "timeout"),
        "category": trial.task.settings.category,
        "fingerprint": trial.fingerprint,
        "graded_by": "heuristic" if settings.skip_tests else "tests",
        "sandbox": settings.sandbox.name,
        "skills_loaded": list(worked.skills_loaded),
        "skills_read": list(worked.skills_read),
        "scripts_run": list(worked.scripts_run),
        "usage": dict(worked.usage),
        "verifier_seconds": round(given.seconds, 3),
        "verifier_timed_out": given.timed_out,
        "verifier_output": given.output,
    }


def _keep(
    trial: BenchTrial, out: Path, kind: str, content: Mapping[str, Any] | str | None, told: Callable[[str], str]
) -> str | None:
    """Write a file of a trial; returns its name, relative to the results."""
    if content is None:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    name = f"{kind}/{trial.task.name}/{trial.agent}-{trial.arm}-{trial.number}.json"
    write_kept(out, {name: told(text)})
    return name


def kept_files(out: Path, row: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the files that a row names, by their names."""
    return {name: (out / name).read_text("utf-8") for name in (row["trace"], row["ctrf"]) if name is not None}


def write_kept(out: Path, files: Mapping[str, str]) -> None:
    """Write files of a trial below the folder of the results, each aside and then renamed."""
    for name, text in files.items():
        write_whole(make_folder_below(out, Path(name).parent) / Path(name).name, text.encode())


# Grading a trial: the tests go in only now, run under their own limits, and leave a reward.
#
# Before that the agent's processes are ended, and ``/tests`` and ``/logs/verifier`` are emptied, so that nothing the
# agent left there counts. What the verifier's exit code is does not matter; the reward file does (S0-135).

TESTS, VERIFIER = "/tests", "/verifier"
VERIFIER_LOGS = f"{LOGS}/verifier"
_MAX_REWARD_BYTES = 64 << 10
_MAX_REPORT_BYTES = 1 << 20
_LAST_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Grade:
    """What the verifier said."""

    reward: float | None  # between 0 and 1; None when there is none, which is an error and not a zero
    error: str | None = None
    output: str = ""  # the end of what the verifier wrote
    timed_out: bool = False
    seconds: float = 0.0
    report: str | None = None  # its CTRF report, as it wrote it; None when there is none

    @property
    def passed(self) -> bool | None:
        """Whether everything was right; None without a reward."""
        return None if self.reward is None else self.reward >= 1.0


async def grade(task: Task, environment: TaskEnvironment, phase: Phase) -> Grade:
    """Run a task's verifier. Raises ``SandboxError`` when the environment failed before the tests could run."""
    where = VERIFIER if task.layout == "benchflow" and task.tests.name == "verifier" else TESTS
    await environment.end_processes()
    for folder in (TESTS, VERIFIER, VERIFIER_LOGS):
        await environment.empty(folder)
    whole = Phase(
        phase.network,
        (*phase.folders, (where, task.tests)),
        (*phase.env, ("BENCHFLOW_VERIFIER_DIR", where)),
    )
    ran = await environment.run(
        ("bash", f"{where}/test.sh"), seconds=task.limits.verifier_seconds, phase=whole, cwd=environment.workdir
    )
    await environment.end_processes()
    output = ran.text[-_LAST_CHARACTERS:]
    text = await environment.read(f"{VERIFIER_LOGS}/reward.txt", _MAX_REWARD_BYTES)
    named = await environment.read(f"{VERIFIER_LOGS}/reward.json", _MAX_REWARD_BYTES) if text is None else None
    report = await environment.read(f"{VERIFIER_LOGS}/ctrf.json", _MAX_REPORT_BYTES)
    reward, problem = reward_of(text, named)
    if reward is None and ran.timed_out:
        problem = f"The verifier took longer than {task.limits.verifier_seconds:g} seconds and left no reward."
    elif reward is None and text is None and named is None:
        problem = f"The verifier ended with code {ran.exit_code} and left no reward."
    return Grade(
        reward,
        problem,
        output,
        ran.timed_out,
        ran.seconds,
        report.decode("utf-8", "replace") if report is not None else None,
    )


def reward_of(text: bytes | None, named: bytes | None) -> tuple[float | None, str | None]:
    """The reward in ``reward.txt``, else in ``reward.json`` (its ``reward``, or the mean of named rewards).

    Returns the reward, or None and the reason.
    """
    if text is not None:
        return _number(text.decode("utf-8", "replace").strip(), "reward.txt")
    if named is None:
        return None, "There is neither reward.txt nor reward.json."
    try:
        values = json.loads(named)
    except (ValueError, RecursionError) as error:
        return None, f"reward.json is no JSON: {error}."
    if isinstance(values, dict) and "reward" in values:
        values = values["reward"]
    if isinstance(values, dict):
        if not values:
            return None, "reward.json names no reward."
        found = [_number(value, f"{name} in reward.json") for name, value in values.items()]
        problem = next((problem for _, problem in found if problem), None)
        if problem:
            return None, problem
        return sum(reward for reward, _ in found if reward is not None) / len(found), None
    return _number(values, "reward.json")


def _number(value: object, where: str) -> tuple[float | None, str | None]:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if math.isnan(number) or not 0.0 <= number <= 1.0:
        return None, f"{where} has {str(value)[:60]!r}, which is no number from 0 to 1."
    return number, None
