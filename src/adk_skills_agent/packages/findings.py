"""A need found in one place of a skill's files, before it is merged with the other places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from adk_skills_agent.format.models import Diagnostic, Severity

MAX_FINDINGS = 5_000
"""Of one skill: the largest of 2,066 real skills has 400 files, and few of them have ten findings."""
MAX_PROBLEMS = 200
"""Of one skill; each is kept with what the skill needs (row 493)."""
MAX_NAME = 200


class NeedKind(StrEnum):
    """What is needed."""

    INTERPRETER = "interpreter"
    PYTHON_PACKAGE = "python-package"
    PYTHON_MODULE = "python-module"  # an import whose distribution is not known
    NODE_PACKAGE = "node-package"
    PROGRAM = "program"
    HOST = "host"
    ENVIRONMENT_KEY = "environment-key"


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that needs something."""

    kind: NeedKind  # what is needed
    name: str  # the distribution, program, host or variable
    place: str  # file and line: ``scripts/run.py:3``
    spec: str = ""  # the versions that will do, as declared (``>=2,<3``); empty for any
    # whether the author says so in a form for programs; else it is inferred from what the code does
    declared: bool = False
    optional: bool = False  # whether the skill goes on without it
    module: str = ""  # what is imported, for a package that was inferred from an import
    alternatives: tuple[str, ...] = ()  # other names, one of which is enough
    install: str = ""  # how the author says it is installed, such as ``brew install jq``


@dataclass(slots=True)
class Findings:
    """The findings so far, bounded."""

    found: list[Finding] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)  # what could not be read, for the owner
    # file to the names of the skill's own modules that it imports
    uses: dict[str, set[str]] = field(default_factory=dict)
    # names of functions that its shell scripts define; one may be sourced by another
    functions: set[str] = field(default_factory=set)
    # file that another file of requirements names by -r, to the place where it does
    included: dict[str, str] = field(default_factory=dict)
    parsed: int = 0  # characters of Python that went through the parser

    def add(self, finding: Finding) -> None:
        """Keep a finding; past the bound it is counted as one problem."""
        if not finding.name or len(finding.name) > MAX_NAME or not finding.name.isprintable():
            return
        if len(self.found) < MAX_FINDINGS:
            self.found.append(finding)
        elif len(self.found) == MAX_FINDINGS and not any(one.code == "too-many-needs" for one in self.problems):
            self.problem(
                "too-many-needs", f"More than {MAX_FINDINGS:,} needs were found; the rest is not listed.", None
            )

    def reached_from(self, script: str) -> frozenset[str]:
        """A script and the skill's own files that it imports, and those that they import."""
        modules = {path.rpartition("/")[2].removesuffix(".py"): set[str]() for path in self.uses}
        for path in self.uses:
            for name in (path.rpartition("/")[2].removesuffix(".py"), *path.split("/")[:-1]):
                modules.setdefault(name, set()).add(path)
        reached, waiting = {script}, [script]
        while waiting:
            for name in self.uses.get(waiting.pop(), ()):
                for path in modules.get(name, set()) - reached:
                    reached.add(path)
                    waiting.append(path)
        return frozenset(reached)

    def problem(self, code: str, message: str, place: str | None) -> None:
        """Note what could not be read; past the bound that there was more."""
        if len(self.problems) > MAX_PROBLEMS:
            return
        if len(self.problems) == MAX_PROBLEMS:
            code = "too-many-problems"
            message = f"More than {MAX_PROBLEMS} things cannot be read; the rest is not listed."
        file, _, line = (place or "").rpartition(":")
        known = Diagnostic(code, Severity.WARNING, message, file=file or place, line=int(line) if file else None)
        self.problems.append(known)


@dataclass(frozen=True, slots=True)
class SkillText:
    r"""One text file of a skill."""

    path: str  # relative to the skill's folder
    text: str  # its content, with ``\n`` as line end
    first_line: int = 1  # the line of the file its text begins with

    def place(self, line: int) -> str:
        """File and line of a 1-based line of the text."""
        return f"{self.path}:{line + self.first_line - 1}"


def word_set(text: str) -> frozenset[str]:
    """The words of a text: how the tables of this layer are written."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Fence:
    """A code fence of a Markdown text."""

    language: str  # what stands behind the opening mark, lower case, such as ``bash``; empty for none
    code: SkillText  # what is in it, with the line it begins with


def fences(markdown: SkillText) -> Iterator[Fence]:
    """The code fences of a Markdown text, in order; one that is not closed ends with the text."""
    mark, language, began = "", "", 0
    lines: list[str] = []
    for number, line in enumerate(markdown.text.split("\n"), 1):
        stripped = line.strip()
        if mark:
            if stripped.startswith(mark) and not stripped.strip(mark[0]):
                yield Fence(language, SkillText(markdown.path, "\n".join(lines), markdown.first_line + began))
                mark = ""
            else:
                lines.append(line)
        elif stripped.startswith(("```", "~~~")):
            mark = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
            rest = stripped[len(mark) :]
            if mark[0] == "`" and "`" in rest:  # code inside a line
                mark = ""
                continue
            words = rest.replace("{", " ").replace("}", " ").split()
            language, began, lines = (words[0].lower().strip(".") if words else ""), number, []
    if mark:
        yield Fence(language, SkillText(markdown.path, "\n".join(lines), markdown.first_line + began))
