"""One SkillsBench task folder, in either layout, as values (S0-126, S0-127; EVALUATION.md, *Task format*).

Harbor: ``instruction.md``, ``task.toml``, ``environment/``, ``tests/``, ``solution/``. BenchFlow: ``task.md``,
``environment/``, ``verifier/``, ``oracle/``. Where a name of the BenchFlow layout is there it wins, also when it is
empty: nothing falls back to the other layout.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.catalog import CatalogReader, RegistryConfig, SkillsRegistry
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.format.models import Diagnostic, Severity
from adk_skills_agent.format.yaml_fields import YamlProblem, load_fields
from adk_skills_agent.platforms import extract_below
from adk_skills_agent.settings import parsed_toml
from adk_skills_agent.sources.tree import read_regular
from adk_skills_agent.storage.tar_members import BoundedMember

_MOST_FOLDERS = 100
"""In folders."""
_MAX_CATEGORY_CHARS = 100  # it is in each row of the results
_MOST_BYTES_OF_FILES = 32 << 30
_COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_PROMPT_HEADING = "## prompt"
_RESERVED_HEADINGS = (_PROMPT_HEADING, "## role:", "## scene:", "## user-persona")


@dataclass(frozen=True, slots=True)
class Task:
    """A task as its files say."""

    name: str  # the folder's name; unique in a run
    folder: Path
    layout: str  # ``harbor`` or ``benchflow``
    instruction: str
    environment: Path  # folder with the Dockerfile and the task's data
    tests: Path  # folder that is given to the verifier, never to the agent; its entry is ``test.sh``
    # folder of the reference solution (``solve.sh``), for the oracle only; None when there is none
    solution: Path | None
    settings: TaskSettings  # time and size limits and what ``task.toml`` or the frontmatter say besides
    unsupported: tuple[str, ...] = ()  # why it cannot be run by this runner, one sentence each; empty when it can
    diagnostics: tuple[Diagnostic, ...] = ()  # what was repaired or replaced by a default while reading

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
    """The tasks below a folder, by name. Raises ``ConfigError`` when there is none."""
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
    """One task. Raises ``ConfigError`` when a file that every task has is missing or unreadable; says which."""
    _check_links(folder)
    _check_files(folder)
    native = (folder / "task.md").is_file()
    found: list[Diagnostic] = []
    if native:
        settings, instruction = _task_document(folder / "task.md", found)
    else:
        settings = read_toml(folder / "task.toml", found)
        instruction = text_of(folder / "instruction.md")
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


def _check_links(folder: Path) -> None:
    """What is read, and given to an environment, is of the tasks: no link may lead to the host's files (row 154)."""
    environment = folder / "environment"
    tests = ((folder / name / "test.sh") for name in ("tests", "verifier"))  # which is read beforehand
    for entry in (*folder.iterdir(), environment / "Dockerfile", environment / "skills", *tests):
        if entry.is_symlink() and not entry.resolve().is_relative_to(folder.resolve().parent):
            raise ConfigError(f"{entry.relative_to(folder.parent)} is a link out of the folder of tasks.")


def _check_files(folder: Path) -> None:
    """What is not too large or too deep to be looked at: sparse files take no room, and any time (row 286)."""
    size, pending = 0, [(str(folder), 0)]
    while pending:
        place, depth = pending.pop()
        if depth > _MOST_FOLDERS:
            raise ConfigError(f"{folder.name} has more than {_MOST_FOLDERS} folders in folders.")
        with contextlib.suppress(PermissionError), os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, depth + 1))
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    if size > _MOST_BYTES_OF_FILES:
        raise ConfigError(f"The files of {folder.name} have {size:,} bytes, more than {_MOST_BYTES_OF_FILES:,}.")


def _task_document(path: Path, found: list[Diagnostic]) -> tuple[TaskSettings, str]:
    text = text_of(path).lstrip("\ufeff")
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


def text_of(path: Path) -> str:
    """A text file of a task. Raises ``ConfigError`` when it cannot be read, or is too large."""
    try:
        # Of any size it would fill the memory (row 232).
        return read_regular(path).decode("utf-8", errors="replace").replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


# What a SkillsBench task says of its time, size and surroundings: ``task.toml``, or the frontmatter of ``task.md``.
#
# A value that cannot be used is replaced by its default with a diagnostic; a task is never lost to it (S0-127).

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SIZE = re.compile(r"(?i)\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*\Z")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SHELL_DEFAULT = re.compile(r"\A\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-(.*))?\}\Z", re.DOTALL)
_MOST_BYTES = 1 << 50
MAX_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Seconds and sizes of a task; the defaults are Harbor's (S0-127)."""

    agent_seconds: float = 900.0
    verifier_seconds: float = 900.0
    build_seconds: float = 600.0
    cpus: float = 1.0
    memory_bytes: int = 2 << 30
    storage_bytes: int = 10 << 30
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Everything a task's settings say."""

    limits: TaskLimits = field(default_factory=TaskLimits)
    allow_internet: bool = True
    image: str | None = None  # the image it starts from when it has no Dockerfile
    # variables of the verifier, ``${NAME}`` and ``${NAME:-default}`` as written
    verifier_env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    # variables of the reference solution, likewise
    solution_env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def category(self) -> str:
        """The task's category, or ``uncategorised``; the table per domain is made by it."""
        told = self.metadata.get("category")
        return told[:_MAX_CATEGORY_CHARS] if isinstance(told, str) and told else "uncategorised"


def read_toml(path: Path, found: list[Diagnostic]) -> TaskSettings:
    """The settings of a ``task.toml``; the defaults, with a diagnostic, when it is missing or no TOML."""
    try:
        values = parsed_toml(read_regular(path).decode("utf-8"))
    except FileNotFoundError:
        message = "There is no task.toml, so every setting has its default."
    except OSError as error:
        message = f"It cannot be read ({error.strerror}), so every setting has its default."
    except (ValueError, RecursionError) as error:
        message = f"It is no TOML ({error}), so every setting has its default."
    else:
        return from_mapping(values, str(path), found)
    found.append(Diagnostic("task-settings", Severity.WARNING, message, str(path)))
    return TaskSettings()


def from_mapping(values: Mapping[str, Any], file: str, found: list[Diagnostic]) -> TaskSettings:
    """Settings from the tables of either layout; ``sandbox`` is BenchFlow's name for ``environment``."""
    reader = _Reader(file, found)
    environment = {**reader.table(values, "environment"), **reader.table(values, "sandbox")}
    verifier = reader.table(values, "verifier")
    solution = {**reader.table(values, "solution"), **reader.table(values, "oracle")}
    default = TaskLimits()
    limits = TaskLimits(
        agent_seconds=reader.seconds(reader.table(values, "agent"), "timeout_sec", default.agent_seconds),
        verifier_seconds=reader.seconds(verifier, "timeout_sec", default.verifier_seconds),
        build_seconds=reader.seconds(environment, "build_timeout_sec", default.build_seconds),
        cpus=reader.number(environment, "cpus", default.cpus),
        memory_bytes=reader.size(environment, "memory", default.memory_bytes),
        storage_bytes=reader.size(environment, "storage", default.storage_bytes),
        gpus=math.ceil(reader.number(environment, "gpus", 0.0, zero=True)),
    )
    image = environment.get("docker_image") or environment.get("image")
    return TaskSettings(
        limits=limits,
        allow_internet=_allows_internet(environment),
        image=str(image) if image else None,
        verifier_env=reader.variables(verifier),
        solution_env=reader.variables(solution),
        metadata=MappingProxyType(dict(reader.table(values, "metadata"))),
    )


def filled(variables: Mapping[str, str], host: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables with ``${NAME}`` and ``${NAME:-default}`` taken from the host; and what of it is missing.

    ``host`` has those that the owner gives to tasks, and none besides.
    """
    result = {}
    missing = []
    for name, value in variables.items():
        reference = _SHELL_DEFAULT.match(value)
        if reference is None:
            result[name] = value
        elif host.get(reference[1]):
            result[name] = host[reference[1]]
        elif reference[2] is not None:
            result[name] = reference[2]
        else:
            missing.append(reference[1])
    return result, tuple(missing)


def _allows_internet(environment: Mapping[str, Any]) -> bool:
    if str(environment.get("network_mode", "")).lower() in {"none", "no-network"}:
        return False
    return str(environment.get("allow_internet", True)).lower() not in {"false", "0", "no", "off"}


@dataclass(frozen=True, slots=True)
class _Reader:
    file: str
    found: list[Diagnostic]

    def table(self, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = values.get(key)
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return value
        self._replaced(key, value, "nothing", "a table")
        return {}

    def seconds(self, table: Mapping[str, Any], key: str, default: float) -> float:
        return min(self.number(table, key, default), MAX_SECONDS)

    def number(self, table: Mapping[str, Any], key: str, default: float, *, zero: bool = False) -> float:
        value = table.get(key)
        if value is None:
            return default
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if math.isfinite(number) and (number > 0 or (zero and number == 0)):
            return number
        self._replaced(key, value, f"{default:g}", "a number above 0")
        return default

    def size(self, table: Mapping[str, Any], key: str, default: int) -> int:
        """``memory_mb = 4096``, or the older ``memory = "4G"``."""
        if table.get(f"{key}_mb") is not None:
            return int(min(self.number(table, f"{key}_mb", default >> 20) * (1 << 20), _MOST_BYTES))
        value = table.get(key)
        if value is None:
            return default
        match = _SIZE.match(str(value))
        size = int(min(float(match[1]) * _UNITS[match[2].lower()], _MOST_BYTES)) if match else 0
        if size > 0:
            return size
        self._replaced(key, value, f"{default >> 20} MB", 'a size such as "4G"')
        return default

    def variables(self, table: Mapping[str, Any]) -> Mapping[str, str]:
        given = self.table(table, "env")
        return MappingProxyType({str(name): str(value) for name, value in given.items()})

    def _replaced(self, key: str, value: object, default: str, wanted: str) -> None:
        self.found.append(
            Diagnostic(
                "task-settings",
                Severity.WARNING,
                f"{key} is {value!r:.60}, not {wanted}; {default} is used.",
                self.file,
            )
        )


MAX_SKILLS_BYTES = 8 << 20
"""Of a tar of skills an agent wrote."""


@dataclass(frozen=True, slots=True)
class TaskSkills:
    """Skills of a folder."""

    folder: Path
    catalog: CatalogReader
    names: tuple[str, ...]  # of those that could be loaded
    found: int  # how many SKILL.md there are
    repairs: tuple[str, ...]  # everything that was repaired or refused, one sentence each


def load_skills(folder: Path) -> TaskSkills | None:
    """The skills of a folder of skills; None when it is missing or holds none that can be loaded."""
    if not folder.is_dir():
        return None
    # No cache on the disk, and never looked at again: what is measured must not change in the middle.
    registry = SkillsRegistry(RegistryConfig(cache=False, refresh_interval=float("inf")))
    registry.discover([folder])
    names = tuple(registry)
    found = sum(1 for entry in folder.iterdir() if any((entry / name).is_file() for name in ("SKILL.md", "skill.md")))
    repairs = tuple(str(diagnostic) for diagnostic in registry.diagnostics)
    return TaskSkills(folder, registry, names, found, repairs) if found else None


def unpack_skills(packed: bytes, folder: Path) -> None:
    """Unpack a tar that came out of an environment: files and folders that stay below ``folder``, nothing else.

    Raises ``tarfile.TarError`` or ``ValueError`` when it is none that can be.
    """
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:", tarinfo=BoundedMember) as archive:
        for member in archive:
            if member.name.count("/") > _MOST_FOLDERS:
                raise ValueError("it has too many folders in folders")
            if member.isfile() or member.isdir():
                extract_below(archive, member, folder)
