"""Locks: the exact packages of a skill, with the hash of every file that may be installed, and how they are found.

A lock is a file, ``adk-skills.lock``, beside a skill or in a project. Two skills that resolve alike have locks with
the same packages, and share one environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from adk_skills_agent.errors import ConfigError, PackageError
from adk_skills_agent.packages.needs import as_requirement
from adk_skills_agent.packages.npm import PREFIX, checked_lock, is_node_requirement, locked_packages, resolve_node
from adk_skills_agent.packages.skill_environments import PRESETS
from adk_skills_agent.packages.uv import Index, Progress, failure, run_uv
from adk_skills_agent.platforms import open_regular, write_whole
from adk_skills_agent.sandbox import temporary_prefix

RESOLVE_SECONDS = 120.0
SETTLED = timedelta(days=3)
"""Of PyPI only what is older is taken: most malicious uploads are found within days."""

_FORMAT = 1
_MAX_LOCK_BYTES = 4 << 20
_MOST_BUILDS = 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,99}")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One package in one version."""

    name: str  # the distribution; ``npm:`` before it for one of npm
    version: str  # exactly this one
    hashes: tuple[str, ...]  # SHA-256 of each wheel that may be installed, sorted; of an npm package its one SHA-512
    size: int = 0  # bytes of the largest of these wheels; 0 when the index does not say

    def __str__(self) -> str:
        kind = "sha512" if is_node_requirement(self.name) else "sha256"
        return f"{self.name}=={self.version} ({kind} {self.hashes[0][:8]}...)"


@dataclass(frozen=True)
class Lock:
    """The exact packages of an environment."""

    packages: tuple[LockedPackage, ...]  # those of Python, then those of npm, sorted by name
    requirements: tuple[str, ...] = ()  # what was asked for; ``npm:`` before what npm answers
    python: str = ""  # the version of Python they are for: ``3.11``
    platform: str = ""  # the machine they are for: ``linux-x86_64``
    made: str = ""  # when it was resolved, in UTC
    node: str = ""  # the package-lock of the npm packages as JSON; empty where there are none
    source: str = field(default="", compare=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what is installed: of packages, Python and platform, not of when and why."""
        content = [self.python, self.platform, [(one.name, one.version, one.hashes) for one in self.packages]]
        content += [self.node] if self.node else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def python_packages(self) -> tuple[LockedPackage, ...]:
        """The packages that uv installs."""
        return tuple(one for one in self.packages if not is_node_requirement(one.name))

    @property
    def download_bytes(self) -> int:
        """The largest possible download, in bytes."""
        return sum(package.size for package in self.packages)

    def pip_requirements(self) -> str:
        """The packages as a requirements file with hashes."""
        lines = []
        for package in self.python_packages:
            hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in package.hashes)
            lines.append(f"{package.name}=={package.version}{hashes}\n")
        return "".join(lines)

    def answers(self, requirements: Sequence[str]) -> bool:
        """Whether it was made for these requirements, so that nothing has to be resolved."""
        return set(requirements) <= set(self.requirements)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form: the content of the file."""
        node = {"node": json.loads(self.node)} if self.node else {}
        return {
            "format": _FORMAT,
            "python": self.python,
            "platform": self.platform,
            "made": self.made,
            "requirements": list(self.requirements),
            "packages": [
                {"name": one.name, "version": one.version, "size": one.size, "sha256": list(one.hashes)}
                for one in self.python_packages
            ],
            **node,
        }

    def text(self) -> str:
        """The content of the file."""
        return json.dumps(self.to_dict(), indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class PythonVersion:
    """An interpreter as an environment depends on it."""

    path: str  # the interpreter, without links
    version: str  # ``3.11.7``

    @property
    def minor(self) -> str:
        """``3.11``."""
        return ".".join(self.version.split(".")[:2])


def python_of(path: str | None) -> PythonVersion:
    """The facts about an interpreter; None means the one that runs this.

    Raises ``PackageError`` when it does not start.
    """
    if path is None or path == sys.executable:
        return PythonVersion(_real(sys.executable), platform.python_version())
    status = Path(path)
    try:
        stamp = status.stat().st_mtime_ns
    except OSError as error:
        raise failure(
            "The packages of the skill cannot be prepared here. Tell the user.",
            f"The Python {path} cannot be used: {error.strerror}. Name another one.",
        ) from error
    return _asked(path, stamp)


@lru_cache(maxsize=16)
def _asked(path: str, stamp: int) -> PythonVersion:
    del stamp  # another file at the same path is another interpreter
    code = "import platform, os, sys; print(platform.python_version()); print(os.path.realpath(sys.executable))"
    try:
        done = subprocess.run(
            [os.path.abspath(path), "-I", "-S", "-c", code],  # noqa: PTH100 - a link is what makes it a venv's
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            stdin=subprocess.DEVNULL,
            cwd="/",  # not in the user's folder: managers of versions obey files of a repository there
        )
        version, real = done.stdout.split("\n")[:2]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise failure(
            "The packages of the skill cannot be prepared here. Tell the user.",
            f"The Python {path} cannot be used: {error}. Name another one.",
        ) from error
    return PythonVersion(real, version)


def _real(path: str) -> str:
    return str(Path(path).resolve())


def this_platform() -> str:
    """The kind of machine a wheel is for, as far as environments cannot be shared between two."""
    libc = "-musl" if sys.platform == "linux" and platform.libc_ver()[0] != "glibc" else ""
    return f"{sys.platform}-{platform.machine().lower()}{libc}"


def resolve(
    requirements: Sequence[str],
    *,
    cache: Path,
    python: str | None = None,
    index: Index | None = None,
    exclude_newer: datetime | None = None,
    what: str = "the packages",
    seconds: float = RESOLVE_SECONDS,
    progress: Progress | None = None,
    node_lock: bytes | None = None,
) -> Lock:
    """Find exact versions for requirements, with the hashes of their files. Asks the indexes; blocks.

    ``requirements`` are as PEP 508 writes them; npm's as :func:`~adk_skills_agent.packages.npm.node_requirement` does.
    Only files published before ``exclude_newer`` count; None is three days ago on PyPI and no bound on other indexes.
    ``node_lock`` is the author's ``package-lock.json``, whose versions stay where they will do. ``progress`` is called
    with each line uv and npm say; ``what`` they are is for sentences. Raises ``PackageError`` when there is no
    solution, or the index does not answer.
    """
    index = index or Index()
    for_node = tuple(sorted({text for text in requirements if is_node_requirement(text)}))
    wanted = check_requirements([text for text in requirements if not is_node_requirement(text)], what)
    interpreter = python_of(python)
    before = exclude_newer or (datetime.now(UTC) - SETTLED if index.is_public else None)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    node = ""
    node_packages: tuple[LockedPackage, ...] = ()
    if for_node:
        node, node_packages = _resolved_for_node(for_node, node_lock, cache, index, exclude_newer, what, progress)
    if not wanted:
        return Lock(node_packages, for_node, interpreter.minor, this_platform(), now, node)
    arguments = ["pip", "compile", "--format=pylock.toml", "--generate-hashes", "--only-binary=:all:", "--no-header"]
    arguments += ["--no-annotate", f"--python={interpreter.path}", "--no-config", *index.options()]
    if before is not None:
        arguments.append(f"--exclude-newer={before.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}")
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("resolve")) as folder:
        listed = Path(folder, "requirements.in")
        listed.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        places: list[str] = []
        while True:
            try:
                line = [*arguments, *places, str(listed)]
                text = run_uv(line, cache=cache, seconds=seconds, what=what, progress=progress)
                break
            except PackageError as error:
                places.append(_built_place(error, wanted, places, cache, python, index, before, what, progress))
    packages = sorted(_packages(text, what), key=lambda package: package.name)
    return Lock((*packages, *node_packages), (*wanted, *for_node), interpreter.minor, this_platform(), now, node)


def _built_place(
    error: PackageError,
    wanted: Sequence[str],
    places: Sequence[str],
    cache: Path,
    python: str | None,
    index: Index,
    before: datetime | None,
    what: str,
    progress: Progress | None,
) -> str:
    """An option of uv for the wheel of the package that a resolution had no wheel of; else its error again."""
    if not index.builds or len(places) >= _MOST_BUILDS:
        raise error
    from adk_skills_agent.packages.builds import build, may_build, source_only

    found = source_only(error, wanted)
    if found is None or not may_build(found.name, index.builds):
        raise error
    folder = build(
        found,
        cache=cache.parent,
        python=python,
        index=replace(index, builds=False),  # what a build needs is not built itself
        before=before,
        what=what,
        progress=progress,
    )
    place = f"--find-links={folder}"
    if place in places:
        raise error
    return place


def _resolved_for_node(
    requirements: Sequence[str],
    node_lock: bytes | None,
    cache: Path,
    index: Index,
    exclude_newer: datetime | None,
    what: str,
    progress: Progress | None,
) -> tuple[str, tuple[LockedPackage, ...]]:
    known = None
    if node_lock is not None:
        with contextlib.suppress(ValueError, RecursionError, PackageError):  # npm finds versions itself, then
            known = checked_lock(json.loads(node_lock), what)
    before = exclude_newer or (None if index.npm_registry else datetime.now(UTC) - SETTLED)
    table = resolve_node(
        requirements,
        cache=npm_cache(cache.parent),
        index=index,
        exclude_newer=before,
        what=what,
        seconds=RESOLVE_SECONDS,
        progress=progress,
        known=known,
    )
    return json.dumps(table, sort_keys=True), _node_packages(table)


def _node_packages(table: Mapping[str, Any]) -> tuple[LockedPackage, ...]:
    return tuple(LockedPackage(f"{PREFIX}{name}", version, (sha,)) for name, version, sha in locked_packages(table))


def npm_cache(cache: Path) -> Path:
    """The folder of npm's cache in the cache of packages."""
    return cache / "npm"


def check_requirements(requirements: Sequence[str], what: str) -> tuple[str, ...]:
    """The requirements, sorted and each once.

    Raises ``PackageError`` when one names a URL, a path or a repository: only the configured indexes are asked.
    """
    for text in requirements:
        if as_requirement(text) is None:
            raise failure(
                f"{what[:1].upper()}{what[1:]} cannot be installed: one of them is not from a package index. "
                "Do it without them, or tell the user.",
                f"{text[:120]!r} names a place of its own. Only the configured indexes are asked.",
            )
    return tuple(sorted(dict.fromkeys(requirements)))


def _packages(text: str, what: str) -> list[LockedPackage]:
    found = []
    for package in tomllib.loads(text).get("packages", []):
        wheels = package.get("wheels") or []
        hashes = sorted({wheel["hashes"]["sha256"] for wheel in wheels if "sha256" in wheel.get("hashes", {})})
        if not hashes or "version" not in package:
            raise failure(
                f"{what[:1].upper()}{what[1:]} cannot be installed: one of them has no wheel with a hash. "
                "Do it without them, or tell the user.",
                f"{package.get('name')} has no wheel with a SHA-256 in the index.",
            )
        size = max((int(wheel.get("size") or 0) for wheel in wheels), default=0)
        found.append(LockedPackage(canonicalize_name(package["name"]), package["version"], tuple(hashes), size))
    return found


def read_lock(path: Path) -> Lock | None:
    """The lock in a file; None when there is no such file.

    Raises ``ConfigError`` when it cannot be read, or is no lock.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(_MAX_LOCK_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"The lock {path} cannot be read: {error.strerror}.") from error
    return parse_lock(data, str(path))


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock aside, then rename: a reader never sees half of it. Raises ``ConfigError`` when the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lock.text().encode(), mode=0o644)
    except OSError as error:
        raise ConfigError(f"The lock {path} cannot be written: {error.strerror}.") from error


def parse_lock(data: bytes, where: str) -> Lock:
    """The lock that a file holds. It may be a stranger's: each name, version and hash is checked.

    Raises ``ConfigError`` when it is no lock.
    """
    wrong = ConfigError(f"{where} is not a lock of packages. Make it again: adk-skills prepare --upgrade.")
    if len(data) > _MAX_LOCK_BYTES:
        raise wrong
    try:
        table = json.loads(data)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(table, Mapping) or table.get("format") != _FORMAT or not isinstance(table.get("packages"), list):
        raise wrong
    packages = tuple(_locked(one, wrong) for one in table["packages"])
    node = ""
    if "node" in table:
        try:
            checked = checked_lock(table["node"], "the packages")
        except PackageError:
            raise wrong from None
        node = json.dumps(checked, sort_keys=True)
        packages += _node_packages(checked)
    requirements = table.get("requirements")
    if not isinstance(requirements, list) or not all(isinstance(text, str) for text in requirements):
        raise wrong
    python, machine, made = (table.get(key, "") for key in ("python", "platform", "made"))
    if not (isinstance(python, str) and isinstance(machine, str) and isinstance(made, str)):
        raise wrong
    return Lock(packages, tuple(requirements), python, machine, made, node, source=where)


def _locked(entry: object, wrong: ConfigError) -> LockedPackage:
    if not isinstance(entry, Mapping):
        raise wrong
    name, version, hashes, size = (entry.get(key) for key in ("name", "version", "sha256", "size"))
    if (
        not (isinstance(name, str) and _NAME.fullmatch(name))
        or not (isinstance(version, str) and _VERSION.fullmatch(version))
        or not (isinstance(hashes, list) and hashes)
        or not all(isinstance(one, str) and _SHA256.fullmatch(one) for one in hashes)
    ):
        raise wrong
    return LockedPackage(name, version, tuple(sorted(hashes)), size if isinstance(size, int) and size >= 0 else 0)


def check_fits(lock: Lock, python: str | None) -> None:
    """Refuse a lock that was made for another Python or machine. Raises ``PackageError`` when it was."""
    here = (python_of(python).minor, this_platform())
    if (lock.python, lock.platform) != here:
        raise failure(
            "The packages of the skill are not prepared for this machine. Tell the user.",
            f"{lock.source or 'The lock'} is for Python {lock.python} on {lock.platform}, and this is Python {here[0]} "
            f"on {here[1]}. Make it again here: adk-skills prepare.",
        )


def preset_requirements(name: str) -> tuple[str, ...]:
    """The requirements of a preset, in exact versions. Raises ``ConfigError`` when there is no preset of that name."""
    if name not in PRESETS:
        raise ConfigError(f"There is no environment {name!r}. Known: {', '.join(PRESETS)}.")
    text = resources.files("adk_skills_agent.packages").joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))
