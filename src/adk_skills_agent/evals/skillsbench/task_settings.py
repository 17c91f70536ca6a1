"""What a SkillsBench task says of its time, size and surroundings: ``task.toml``, or the frontmatter of ``task.md``.

A value that cannot be used is replaced by its default with a diagnostic; a task is never lost to it (S0-127).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.format.diagnostic import Diagnostic, Severity

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SIZE = re.compile(r"(?i)\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*\Z")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SHELL_DEFAULT = re.compile(r"\A\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-(.*))?\}\Z", re.DOTALL)
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
    """Everything a task's settings say.

    Attributes:
        limits: See :class:`TaskLimits`.
        allow_internet: Whether the task may use a network.
        image: The image it starts from when it has no Dockerfile.
        verifier_env: Variables of the verifier, ``${NAME}`` and ``${NAME:-default}`` as written.
        solution_env: Variables of the reference solution, likewise.
        metadata: Difficulty, category, tags and the like.
    """

    limits: TaskLimits = field(default_factory=TaskLimits)
    allow_internet: bool = True
    image: str | None = None
    verifier_env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    solution_env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def category(self) -> str:
        """The task's category, or ``uncategorised``; the table per domain is made by it."""
        return str(self.metadata.get("category") or "uncategorised")


def read_toml(path: Path, found: list[Diagnostic]) -> TaskSettings:
    """The settings of a ``task.toml``; the defaults, with a diagnostic, when it is missing or no TOML."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        message = "There is no task.toml, so every setting has its default."
    except OSError as error:
        message = f"It cannot be read ({error.strerror}), so every setting has its default."
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
    """Variables with ``${NAME}`` and ``${NAME:-default}`` taken from the host; and the names nothing was found for.

    Only the variables a task's own settings name are ever taken from the host.
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
            missing.append(name)
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
            return int(self.number(table, f"{key}_mb", default >> 20) * (1 << 20))
        value = table.get(key)
        if value is None:
            return default
        match = _SIZE.match(str(value))
        size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
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
