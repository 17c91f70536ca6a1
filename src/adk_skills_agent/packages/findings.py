"""A need found in one place of a skill's files, before it is merged with the other places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from adk_skills_agent.format.models import Diagnostic, Severity

MAX_FINDINGS = 5_000
"""Of one skill: the largest of 2,066 real skills has 400 files, and few of them have ten findings."""
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
    """One place that needs something.

    Attributes:
        kind: What is needed.
        name: The distribution, program, host or variable.
        place: File and line: ``scripts/run.py:3``.
        spec: The versions that will do, as declared (``>=2,<3``); empty for any.
        declared: Whether the author says so in a form for programs; else it is inferred from what the code does.
        optional: Whether the skill goes on without it.
        module: What is imported, for a package that was inferred from an import.
        alternatives: Other names, one of which is enough.
        install: How the author says it is installed, such as ``brew install jq``.
    """

    kind: NeedKind
    name: str
    place: str
    spec: str = ""
    declared: bool = False
    optional: bool = False
    module: str = ""
    alternatives: tuple[str, ...] = ()
    install: str = ""


@dataclass(slots=True)
class Findings:
    """The findings so far, bounded.

    Attributes:
        problems: What could not be read, for the owner.
        uses: File to the names of the skill's own modules that it imports.
        functions: Names of functions that its shell scripts define; one may be sourced by another.
        parsed: Characters of Python that went through the parser.
    """

    found: list[Finding] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    uses: dict[str, set[str]] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    parsed: int = 0

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
        """Note what could not be read."""
        file, _, line = (place or "").rpartition(":")
        known = Diagnostic(code, Severity.WARNING, message, file=file or place, line=int(line) if file else None)
        self.problems.append(known)


@dataclass(frozen=True, slots=True)
class SkillText:
    r"""One text file of a skill.

    Attributes:
        path: Relative to the skill's folder.
        text: Its content, with ``\n`` as line end.
        first_line: The line of the file its text begins with.
    """

    path: str
    text: str
    first_line: int = 1

    def place(self, line: int) -> str:
        """File and line of a 1-based line of the text."""
        return f"{self.path}:{line + self.first_line - 1}"


def word_set(text: str) -> frozenset[str]:
    """The words of a text: how the tables of this layer are written."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Fence:
    """A code fence of a Markdown text.

    Attributes:
        language: What stands behind the opening mark, lower case, such as ``bash``; empty for none.
        code: What is in it, with the line it begins with.
    """

    language: str
    code: SkillText


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
