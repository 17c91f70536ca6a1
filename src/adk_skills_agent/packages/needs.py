"""The needs of a skill: interpreters, packages, programs, hosts, environment keys, and whether they are met here.

Read from what its author declares (:mod:`.declarations`) and from what its code does (:mod:`.inference`). Nothing of
the skill is run. Every text is a stranger's: sizes are bounded and what cannot be read is a diagnostic.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from adk_skills_agent.errors import SkillsError, some_of
from adk_skills_agent.format.models import Diagnostic
from adk_skills_agent.packages.declarations import (
    inline_script_metadata,
    install_lines,
    node_manifest,
    python_project,
    requirements_file,
    skill_metadata,
)
from adk_skills_agent.packages.distributions import debian_package
from adk_skills_agent.packages.findings import Fence, Finding, Findings, NeedKind, SkillText, fences
from adk_skills_agent.packages.inference import modules_of, node_code, python_code, shell_code
from adk_skills_agent.packages.npm import NODE_DIR, node_requirement
from adk_skills_agent.platforms import typed_path
from adk_skills_agent.sandbox import search_path

if TYPE_CHECKING:
    from pathlib import Path

    from adk_skills_agent.catalog import Skill

MAX_FILE_BYTES = 512 << 10
"""Of one file: the largest real script of 6,082 has 190 KB; what is behind it is said not to have been read."""
MAX_TOTAL_BYTES = 16 << 20
_PLACES = 5  # named of one need; the others are only counted

_PYTHON_SUFFIXES = (".py",)
_NODE_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx")
_SHELL_SUFFIXES = (".sh", ".bash")
_INTERPRETERS = {
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".ts": "node",
    ".mts": "node",
    ".rb": "ruby",
    ".pl": "perl",
    ".r": "Rscript",
    ".ps1": "pwsh",
    ".lua": "lua",
    ".php": "php",
}
_SHELLS = frozenset({"bash", "sh", "dash"})
_SHELL_FENCES = frozenset({"bash", "sh", "shell", "console", "zsh", "shell-session"})
_PYTHON_FENCES = frozenset({"python", "py", "python3"})
# Not everything below a skill is its own code: tests and samples of inputs need what the skill itself does not.
_NOT_RUN = re.compile(
    r"(?:^|/)(?:tests?|evals?|__tests__|fixtures|node_modules)/|(?:^|/)(?:test_[^/]*|[^/]*_test|conftest)\.py$"
)


@dataclass(frozen=True, slots=True)
class Need:
    """One thing a skill needs."""

    kind: NeedKind  # what it is
    name: str  # the distribution, program, host or variable
    spec: str = ""  # the versions that will do (``>=2,<3``); empty for any
    places: tuple[str, ...] = ()  # where it is said or used, ``file:line``, at most five
    declared: bool = False  # whether the author says so where a program can read it; else it is inferred
    optional: bool = False  # whether the skill goes on without it
    present: bool | None = None  # whether this machine has it; None where only the policy of a run decides (hosts)
    supply: str = ""  # the command or grant that would supply it; empty when it is present
    module: str = ""  # for a package that was inferred, what is imported
    alternatives: tuple[str, ...] = ()  # other programs, one of which is enough

    @property
    def missing(self) -> bool:
        """Whether the skill cannot do without it and this machine does not have it."""
        return self.present is False and not self.optional

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "kind": self.kind.value,
            "name": self.name,
            "spec": self.spec,
            "where": list(self.places),
            "declared": self.declared,
            "optional": self.optional,
            "present": self.present,
            "supply": self.supply,
            **({"module": self.module} if self.module else {}),
            **({"alternatives": list(self.alternatives)} if self.alternatives else {}),
        }


@dataclass(frozen=True, slots=True)
class Needs:
    """Everything a skill needs.

    Attributes:
        skill: The skill's name.
        needs: Sorted by kind and name; what the skill cannot do without comes first.
        problems: What could not be read.
    """

    skill: str
    needs: tuple[Need, ...]
    problems: tuple[Diagnostic, ...] = ()

    def of(self, *kinds: NeedKind) -> tuple[Need, ...]:
        """The needs of some kinds."""
        return tuple(need for need in self.needs if need.kind in kinds)

    @property
    def missing(self) -> tuple[Need, ...]:
        """The essential needs that this machine does not meet."""
        return tuple(need for need in self.needs if need.missing)

    def requirements(self, *, optional: bool = False) -> tuple[str, ...]:
        """The packages of Python as requirements, sorted.

        Args:
            optional: Also those the skill goes on without.
        """
        wanted = [need for need in self.of(NeedKind.PYTHON_PACKAGE) if optional or not need.optional]
        return tuple(sorted(_requirement(need.name, need.spec) for need in wanted))

    def node_requirements(self, *, optional: bool = False) -> tuple[str, ...]:
        """The packages of npm as requirements, sorted; what names a place of its own is not among them.

        Args:
            optional: Also those the skill goes on without.
        """
        wanted = [need for need in self.of(NeedKind.NODE_PACKAGE) if optional or not need.optional]
        return tuple(sorted(filter(None, (node_requirement(need.name, need.spec) for need in wanted))))

    @property
    def python_spec(self) -> str:
        """The versions of Python that will do; empty for any."""
        return next((need.spec for need in self.of(NeedKind.INTERPRETER) if need.name == "python"), "")

    def summary(self) -> str:
        """One line for a person: what is missing, or that nothing is."""
        missing = self.missing
        if not self.needs:
            return "nothing beyond Python and a shell"
        if not missing:
            return f"{len(self.needs)} found, none missing"
        named = some_of([need.name for need in missing], 5)
        return f"{len(self.needs)} found, {len(missing)} missing: {named}"


def _requirement(name: str, spec: str) -> str:
    return f"{name} {spec}".rstrip() if spec.startswith("@") else f"{name}{spec}"


def read_needs(skill: Skill, *, python: str | None = None, site: Path | None = None) -> Needs:
    """Find out what a skill needs and which of that this machine has. Reads the skill's files; blocks.

    Args:
        skill: The skill.
        python: The interpreter its scripts get; None for the one that runs this.
        site: The folder of modules of the environment that was prepared for it, if any.

    Raises:
        SkillsError: The SKILL.md cannot be read.
    """
    return supplied(skill, find_needs(skill), python=python, site=site)


def find_needs(skill: Skill) -> Findings:
    """The needs that a skill's files state, place by place, without looking at this machine.

    Raises ``SkillsError`` when the SKILL.md cannot be read.
    """
    findings = Findings()
    metadata = skill.metadata
    for table in (metadata.metadata, metadata.extra):
        skill_metadata(table, f"{skill.location.name}:1", findings)
    paths = [file.path for file in skill.files()]
    bundled = modules_of(paths)
    left = MAX_TOTAL_BYTES
    for path in paths:
        if _NOT_RUN.search(path):
            continue
        reader = _reader_of(path, bundled)
        if reader is None and PurePosixPath(path).suffix:
            continue
        if left <= 0:
            findings.problem("too-much-to-read", f"More than {MAX_TOTAL_BYTES >> 20} MiB; the rest is not read.", path)
            break
        text = _text(skill, path, findings, min(left, MAX_FILE_BYTES if reader else 256))
        if text is not None and reader is None and text.startswith("#!"):  # only this line tells that it is a script
            text = _text(skill, path, findings, min(left, MAX_FILE_BYTES))
        if text is None:
            continue
        left -= len(text)
        _read_file(SkillText(path, text), reader, bundled, findings)
    _read_included(skill, paths, findings)
    body = SkillText(skill.location.name, skill.instructions, skill.body_line)
    _read_instructions(body, bundled, findings)
    is_node = NeedKind.NODE_PACKAGE
    findings.found = [one for one in findings.found if one.kind is not is_node or not _brings(skill, one)]
    return findings


def _brings(skill: Skill, finding: Finding) -> bool:
    """Whether the skill has the npm package in a ``node_modules`` of its own where Node.js looks for it from there."""
    name = PurePosixPath(finding.name)
    if name.is_absolute() or ".." in name.parts:
        return False
    real = skill.skill_dir.resolve()
    stated_in = PurePosixPath(finding.place.rpartition(":")[0])
    for folder in dict.fromkeys((*stated_in.parents, PurePosixPath(), PurePosixPath("scripts"))):
        package = (real / folder / "node_modules" / name / "package.json").resolve()
        if package.is_relative_to(real) and package.is_file():
            return True
    return False


def _read_included(skill: Skill, paths: Sequence[str], findings: Findings) -> None:
    """The files that ``requirements*.txt`` name by ``-r`` and that are not read for their own name."""
    read = {path for path in paths if _reader_of(path, ()) is requirements_file and not _NOT_RUN.search(path)}
    while waiting := [path for path in findings.included if path not in read]:
        for path in waiting:
            read.add(path)
            if path not in paths:
                place = findings.included[path]
                findings.problem("requirements-missing", f"'{path[:80]}', which -r names, is not there.", place)
            elif (text := _text(skill, path, findings, MAX_FILE_BYTES)) is not None:
                requirements_file(SkillText(path, text), findings)


def _text(skill: Skill, path: str, findings: Findings, limit: int) -> str | None:
    try:
        data = skill.read_bytes(path, limit + 1)
    except SkillsError as error:
        findings.problem("file-unreadable", error.message, path)
        return None
    if len(data) > limit > 256:
        findings.problem("file-cut", f"Only its first {limit:,} bytes are read.", path)
        data = data[: data.rfind(b"\n", 0, limit) + 1]
    return data[:limit].decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\0", "")


_Reader = Callable[[SkillText, Findings], None]


def _reader_of(path: str, bundled: Collection[str]) -> _Reader | None:
    name = PurePosixPath(path)
    suffix = name.suffix.lower()
    if name.name == "package.json":
        return node_manifest
    if name.name == "pyproject.toml":
        return python_project
    if suffix == ".txt" and name.name.lower().startswith("requirements"):
        return requirements_file
    if suffix in _PYTHON_SUFFIXES:
        return lambda text, findings: _python_script(text, bundled, findings)
    if suffix in _SHELL_SUFFIXES:
        return _shell_script
    if suffix in _NODE_SUFFIXES:
        return lambda text, findings: None if text.path.endswith(".d.ts") else node_code(text, findings)
    if suffix in _INTERPRETERS:
        return lambda _text, _findings: None
    return None


def _python_script(text: SkillText, bundled: Collection[str], findings: Findings) -> None:
    inline_script_metadata(text, findings)
    python_code(text, bundled, findings)


def _shell_script(text: SkillText, findings: Findings) -> None:
    shell_code(text, findings)
    install_lines(text, findings)


def _read_file(text: SkillText, reader: _Reader | None, bundled: Collection[str], findings: Findings) -> None:
    """By its ``#!`` line where it has one, else by its suffix."""
    program = _first_program(text.text)
    suffix = PurePosixPath(text.path).suffix.lower()
    if program.startswith("python") and suffix not in _PYTHON_SUFFIXES:
        reader = _reader_of("x.py", bundled)
    elif program in _SHELLS:
        reader = _shell_script
    elif program in {"node", "tsx", "ts-node", "bun", "deno"} or (
        program and not program.startswith("python") and program not in {"uv", "uvx"}
    ):
        findings.add(Finding(NeedKind.INTERPRETER, program, text.place(1)))
    elif not program and suffix in _INTERPRETERS and not text.path.endswith(".d.ts"):
        findings.add(Finding(NeedKind.INTERPRETER, _INTERPRETERS[suffix], text.place(1)))
    if reader is not None:
        reader(text, findings)


def runs_on_node(path: str) -> bool:
    """Whether a script's suffix says JavaScript or TypeScript."""
    return PurePosixPath(path).suffix.lower() in _NODE_SUFFIXES


def _first_program(text: str) -> str:
    if not text.startswith("#!"):
        return ""
    words = text[2:258].split("\n", 1)[0].split()
    if words and PurePosixPath(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if [PurePosixPath(word).name for word in words[:2]] in (["uv", "run"], ["pipx", "run"]):
        return "python"
    return PurePosixPath(words[0]).name if words else ""


def _read_instructions(body: SkillText, bundled: Collection[str], findings: Findings) -> None:
    """The code fences of the SKILL.md, which a model follows, and the install lines that its text quotes."""
    for fence in fences(body):
        _read_fence(fence, bundled, findings)
    for number, line in enumerate(body.text.split("\n"), 1):
        if "`" in line and len(line) <= 2_000:
            for quoted in re.findall(r"`([^`]{1,300})`", line):
                install_lines(SkillText(body.path, quoted, body.first_line + number - 1), findings)


def _read_fence(fence: Fence, bundled: Collection[str], findings: Findings) -> None:
    code = fence.code
    if fence.language in _PYTHON_FENCES:
        python_code(code, bundled, findings, strict=False)
    elif fence.language in _SHELL_FENCES:
        # Of a session only what is typed is code. Not \s, which goes on from each line end to the last (row 380).
        if re.search(r"^[^\S\n]*+[$>] ", code.text, re.MULTILINE):
            typed = [
                line.lstrip()[2:] if line.lstrip().startswith(("$ ", "> ")) else "" for line in code.text.split("\n")
            ]
            code = SkillText(code.path, "\n".join(typed), code.first_line)
        shell_code(code, findings)
        install_lines(code, findings)


# Put together, and compared with this machine.


def supplied(skill: Skill, findings: Findings, *, python: str | None = None, site: Path | None = None) -> Needs:
    """The needs of a skill, one for each thing, with whether this machine has it and what would supply it.

    ``python`` None is the interpreter that runs this; ``site`` has the modules of the environment that was prepared for
    the skill.
    """
    groups: dict[tuple[NeedKind, str], list[Finding]] = {}
    for found in findings.found:
        name = found.name
        if found.kind is NeedKind.PROGRAM and name in findings.functions and not found.declared:
            continue
        if found.kind is NeedKind.PYTHON_PACKAGE:
            name = canonicalize_name(name.partition("[")[0])
        groups.setdefault((found.kind, name), []).append(found)
    interpreters = {name for kind, name in groups if kind is NeedKind.INTERPRETER}
    machine = _Machine(python, site)
    needs = [
        machine.look(_joined(group), skill)
        for (kind, name), group in groups.items()
        if not (kind is NeedKind.PROGRAM and name in interpreters)
    ]
    order = list(NeedKind)
    needs.sort(key=lambda need: (need.optional, order.index(need.kind), need.name.lower()))
    return Needs(skill.name, tuple(needs), tuple(findings.problems))


def _joined(group: Iterable[Finding]) -> Need:
    """One need of all its findings: declared where one is, optional where all are."""
    found = list(group)
    first = next((one for one in found if one.declared), found[0])
    declared = [one for one in found if one.declared]
    # An author who declares a package says how it is needed; the guards of the code say less.
    optional = all(one.optional for one in declared or found)
    name, spec = first.name, first.spec
    if first.kind is NeedKind.PYTHON_PACKAGE:
        extras = sorted(
            {extra for one in found for extra in one.name.partition("[")[2].rstrip("]").split(",") if extra}
        )
        name = first.name.partition("[")[0] + (f"[{','.join(extras)}]" if extras else "")
        specs = dict.fromkeys(one.spec for one in found if one.spec)
        spec = next((one for one in specs if one.startswith("@")), "") or ",".join(specs)
    return Need(
        kind=first.kind,
        name=name,
        spec=spec,
        places=tuple(dict.fromkeys(one.place for one in found))[:_PLACES],
        declared=bool(declared),
        optional=optional,
        supply=next((one.install for one in found if one.install), ""),
        module=next((one.module for one in found if one.module), ""),
        alternatives=first.alternatives,
    )


class _Machine:
    """What is here."""

    def __init__(self, python: str | None, site: Path | None) -> None:
        self._prepared = {
            canonicalize_name(one.metadata["Name"] or ""): one.version
            for one in (importlib.metadata.distributions(path=[str(site)]) if site is not None else ())
        }
        self._modules = site.parents[2] / NODE_DIR / "node_modules" if site is not None else None
        self._own = python is None or os.path.realpath(python) == os.path.realpath(sys.executable)
        self._path = search_path(python)

    def look(self, need: Need, skill: Skill) -> Need:
        """The need with what is known of this machine."""
        from dataclasses import replace

        present = self._has(need)
        return replace(need, present=present, supply=_supply(need, skill) if present is not True else "")

    def _has(self, need: Need) -> bool | None:
        if need.kind is NeedKind.PYTHON_PACKAGE:
            prepared = self._prepared.get(canonicalize_name(need.name.partition("[")[0]))
            if prepared is not None and _satisfies(prepared, need.spec):
                return True
            return self._own and is_installed(need.name, need.spec)
        if need.kind is NeedKind.PYTHON_MODULE:
            return self._own and is_importable(need.module)
        if need.kind is NeedKind.INTERPRETER and need.name == "python":
            return _satisfies(".".join(map(str, sys.version_info[:3])), need.spec)
        if need.kind in {NeedKind.PROGRAM, NeedKind.INTERPRETER}:
            return any(shutil.which(name, path=self._path) for name in (need.name, *need.alternatives))
        if need.kind is NeedKind.ENVIRONMENT_KEY:
            return bool(os.environ.get(need.name))
        if need.kind is NeedKind.NODE_PACKAGE:
            return self._modules is not None and self._modules.joinpath(need.name).is_dir()
        return None


def is_installed(name: str, spec: str = "") -> bool:
    """Whether this Python has a distribution in a version that will do."""
    try:
        version = importlib.metadata.version(name.partition("[")[0])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    return not spec.startswith("@") and _satisfies(version, spec)


def is_importable(module: str) -> bool:
    """Whether this Python has a module of that name; nothing is imported."""
    from importlib.machinery import PathFinder

    try:
        return PathFinder.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _satisfies(version: str, spec: str) -> bool:
    try:
        return SpecifierSet(spec).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def as_requirement(text: str) -> Requirement | None:
    """A requirement that an index can answer; None for one that names another place, or none at all."""
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None
    return None if requirement.url else requirement


_SUPPLY: Mapping[NeedKind, str] = {
    NeedKind.PYTHON_PACKAGE: "adk-skills prepare {folder}",
    NeedKind.NODE_PACKAGE: "adk-skills prepare {folder}",
    NeedKind.PYTHON_MODULE: "declare its distribution in a requirements.txt of the skill",
    NeedKind.HOST: 'grants={{"{skill}": Grant(hosts=["{name}"])}}',
    NeedKind.ENVIRONMENT_KEY: 'grants={{"{skill}": Grant(env={{"{name}": Secret(...)}})}}',
}


def _supply(need: Need, skill: Skill) -> str:
    if need.kind is NeedKind.INTERPRETER and need.name == "python":
        return f"a Python {need.spec}: SandboxPolicy(python=...)"
    if need.kind in {NeedKind.PROGRAM, NeedKind.INTERPRETER}:
        if need.supply:
            return need.supply
        package = debian_package(need.name)
        return f"apt-get install {package}" if package else f"install the program {need.name}"
    return _SUPPLY[need.kind].format(skill=skill.name, name=need.name, folder=typed_path(skill.skill_dir))
