"""One SkillsBench task folder, in either layout, as values (S0-126, S0-127; EVALUATION.md, *Task format*).

Harbor: ``instruction.md``, ``task.toml``, ``environment/``, ``tests/``, ``solution/``. BenchFlow: ``task.md``,
``environment/``, ``verifier/``, ``oracle/``. Where a name of the BenchFlow layout is there it wins, also when it is
empty: nothing falls back to the other layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.task_settings import TaskLimits, TaskSettings, from_mapping, read_toml
from adk_skills_agent.format.diagnostic import Diagnostic, Severity
from adk_skills_agent.format.yaml_nodes import YamlProblem, load_fields

_COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_PROMPT_HEADING = "## prompt"
_RESERVED_HEADINGS = (_PROMPT_HEADING, "## role:", "## scene:", "## user-persona")


@dataclass(frozen=True, slots=True)
class Task:
    """A task as its files say.

    Attributes:
        name: The folder's name; unique in a run.
        folder: The task's folder.
        layout: ``harbor`` or ``benchflow``.
        instruction: The prompt, verbatim.
        environment: Folder with the Dockerfile and the task's data.
        tests: Folder that is given to the verifier, never to the agent; its entry is ``test.sh``.
        solution: Folder of the reference solution (``solve.sh``), for the oracle only; None when there is none.
        settings: Time and size limits and what ``task.toml`` or the frontmatter say besides.
        unsupported: Why it cannot be run by this runner, one sentence each; empty when it can.
        diagnostics: What was repaired or replaced by a default while reading.
    """

    name: str
    folder: Path
    layout: str
    instruction: str
    environment: Path
    tests: Path
    solution: Path | None
    settings: TaskSettings
    unsupported: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def limits(self) -> TaskLimits:
        """Seconds and bytes of the agent, the verifier, the build and the environment."""
        return self.settings.limits

    @property
    def skills(self) -> Path:
        """The folder of the task's curated skills; it need not exist."""
        return self.environment / "skills"


@dataclass(frozen=True, slots=True)
class TaskSet:
    """What a folder of tasks holds. ``skipped`` maps the name of a folder that is no task to the reason."""

    tasks: tuple[Task, ...]
    skipped: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def read_tasks(folder: Path, *, containing: str = "") -> TaskSet:
    """The tasks below a folder, by name.

    Args:
        folder: Its folders with an ``instruction.md`` or a ``task.md`` are tasks.
        containing: Only tasks whose name contains this.

    Raises:
        ConfigError: The folder cannot be read, or has no such task.
    """
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise ConfigError(f"The folder of tasks {folder} cannot be read: {error.strerror}.") from error
    tasks: list[Task] = []
    skipped: dict[str, str] = {}
    for entry in entries:
        if containing not in entry.name:
            continue
        if not ((entry / "task.md").is_file() or (entry / "instruction.md").is_file()):
            skipped[entry.name] = "It has neither instruction.md nor task.md."
            continue
        try:
            tasks.append(read_task(entry))
        except ConfigError as error:
            skipped[entry.name] = error.message
    if not tasks:
        which = f" whose name contains {containing!r}" if containing else ""
        why = "".join(f" {name}: {reason}" for name, reason in list(skipped.items())[:3])
        raise ConfigError(
            f"{folder} has no task{which}: a task is a folder with an instruction.md (or a task.md), an environment "
            f"with a Dockerfile, and tests.{why}"
        )
    return TaskSet(tuple(tasks), MappingProxyType(skipped))


def read_task(folder: Path) -> Task:
    """One task.

    Raises:
        ConfigError: A file that every task has is missing or unreadable; says which.
    """
    native = (folder / "task.md").is_file()
    found: list[Diagnostic] = []
    if native:
        settings, instruction = _task_document(folder / "task.md", found)
    else:
        settings = read_toml(folder / "task.toml", found)
        instruction = _text(folder / "instruction.md")
    if not instruction.strip():
        raise ConfigError(f"The instruction of {folder.name} is empty.")
    tests = _either(folder, "verifier", "tests")
    if tests is None or not (tests / "test.sh").is_file():
        raise ConfigError(f"{folder.name} has no {'verifier' if native else 'tests'}/test.sh, so nothing can grade it.")
    environment = folder / "environment"
    if not (environment / "Dockerfile").is_file() and not settings.image:
        raise ConfigError(f"{folder.name} has neither environment/Dockerfile nor an image in its settings.")
    return Task(
        name=folder.name,
        folder=folder,
        layout="benchflow" if native else "harbor",
        instruction=instruction,
        environment=environment,
        tests=tests,
        solution=_either(folder, "oracle", "solution"),
        settings=settings,
        unsupported=_unsupported(environment, settings),
        diagnostics=tuple(found),
    )


def _unsupported(environment: Path, settings: TaskSettings) -> tuple[str, ...]:
    reasons = []
    compose = next((name for name in _COMPOSE_FILES if (environment / name).is_file()), None)
    if compose:
        reasons.append(f"It needs several containers (environment/{compose}); this runner starts one.")
    if settings.limits.gpus:
        reasons.append(f"It needs {settings.limits.gpus} GPU; this runner gives none.")
    return tuple(reasons)


def _either(folder: Path, native: str, alias: str) -> Path | None:
    return next((folder / name for name in (native, alias) if (folder / name).is_dir()), None)


def _task_document(path: Path, found: list[Diagnostic]) -> tuple[TaskSettings, str]:
    text = _text(path).lstrip("\ufeff")
    lines = text.splitlines(keepends=True)
    closing = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if not lines or lines[0].rstrip() != "---" or closing is None:
        raise ConfigError(f"{path}:1: task.md begins with a frontmatter between two lines of ---.")
    try:
        values: Mapping[str, Any] = load_fields("".join(lines[1:closing])).values
    except YamlProblem as error:
        found.append(
            Diagnostic(
                "task-frontmatter",
                Severity.WARNING,
                f"The frontmatter cannot be read, so every setting has its default: {error.message}.",
                str(path),
                (error.line or 0) + 2,
            )
        )
        values = {}
    return from_mapping(values, str(path), found), _prompt("".join(lines[closing + 1 :]))


def _prompt(body: str) -> str:
    """The whole body; or, in the older spelling, what is below ``## prompt`` up to the next reserved heading."""
    lines = body.splitlines(keepends=True)
    headings = [(number, line) for number, line in _headings(lines) if line.startswith(_RESERVED_HEADINGS)]
    first = next((number + 1 for number, line in headings if line == _PROMPT_HEADING), None)
    if first is None:  # a body without the heading is the prompt, up to the first role or scene
        first = 0
    last = next((number for number, line in headings if number >= first and line != _PROMPT_HEADING), len(lines))
    return "".join(lines[first:last]).strip("\n") + "\n"


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Second-level headings outside of code fences: line number and text in lower case."""
    fence = ""
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith(("```", "~~~")):
            fence = "" if text.startswith(fence or text[:3]) and fence else fence or text[:3]
        elif not fence and text.startswith("## "):
            yield number, text.lower()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
