"""Taking the fields of a case out of located values: every complaint names file, line and field, and all are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from adk_skills_agent.evals.cases import CaseFile, Source
from adk_skills_agent.evals.formats.located import Node
from adk_skills_agent.format.diagnostic import Diagnostic, Severity

MAX_INPUT_BYTES = 128 * 1024 * 1024
"""Largest file that is given to an agent: each trial under way holds its own."""


class FieldReader:
    """Reads one file; what is wrong is kept in ``problems``, what is not used in ``notes``.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.notes: list[Diagnostic] = []

    def source(self, node: Node) -> Source:
        """Where a value is."""
        return Source(str(self.path), node.line)

    def problem(self, node: Node | int, field: str, message: str) -> None:
        """Something that keeps the file from being used."""
        line = node if isinstance(node, int) else node.line
        self.problems.append(f"{self.path}:{line}: {field}: {message}" if field else f"{self.path}:{line}: {message}")

    def note(self, node: Node, code: str, message: str, severity: Severity = Severity.WARNING) -> None:
        """Something of which the owner should know."""
        self.notes.append(Diagnostic(code, severity, message, str(self.path), node.line))

    def mapping(
        self,
        node: Node,
        field: str,
        known: Collection[str],
        *,
        required: Collection[str] = (),
        strict: bool = True,
    ) -> dict[str, Node]:
        """The fields of a mapping, empty when it is none.

        Args:
            node: The value.
            field: What it is called, e.g. ``evals[2]``; empty for the whole file.
            known: The fields there are.
            required: Those that must be there.
            strict: Whether an unknown field is a problem; it is a note otherwise.
        """
        if not isinstance(node.value, dict):
            self.problem(node, field, f"Expected a mapping, found {node.kind}.")
            return {}
        for name in required:
            if name not in node.value:
                self.problem(node, _below(field, name), "This field is missing.")
        for name, value in node.value.items():
            if name in known:
                continue
            if strict:
                self.problem(value, _below(field, name), f"There is no such field. Known are: {', '.join(known)}.")
            else:
                self.note(value, "unused-field", f"{_below(field, name)} is not used.", Severity.INFO)
        return {name: value for name, value in node.value.items() if name in known}

    def items(self, node: Node | None, field: str) -> list[Node]:
        """The items of a list; of nothing, none."""
        if node is None:
            return []
        if not isinstance(node.value, list):
            self.problem(node, field, f"Expected a list, found {node.kind}.")
            return []
        return node.value

    def text(self, node: Node | None, field: str, *, empty: bool = False) -> str:
        """A text; of nothing, an empty one."""
        if node is None:
            return ""
        if not isinstance(node.value, str):
            self.problem(node, field, f"Expected text, found {node.kind}.")
            return ""
        if not empty and not node.value.strip():
            self.problem(node, field, "This text is empty.")
        return node.value

    def texts(self, node: Node | None, field: str) -> tuple[str, ...]:
        """A list of texts, or one text."""
        if node is not None and isinstance(node.value, str):
            return (self.text(node, field),)
        return tuple(self.text(item, f"{field}[{number}]") for number, item in enumerate(self.items(node, field)))

    def identifier(self, node: Node | None, field: str) -> str:
        """A name or a whole number, as text."""
        if node is not None and isinstance(node.value, int) and not isinstance(node.value, bool):
            return str(node.value)
        return self.text(node, field)

    def truth(self, node: Node | None, field: str) -> bool | None:
        """True, false, or None for nothing."""
        if node is None:
            return None
        if not isinstance(node.value, bool):
            self.problem(node, field, f"Expected true or false, found {node.kind}.")
            return None
        return node.value

    def values(self, node: Node | None, field: str) -> Mapping[str, Any]:
        """A mapping of any JSON values."""
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.problem(node, field, f"Expected a mapping, found {node.kind}.")
            return {}
        plain = node.plain
        return plain if isinstance(plain, dict) else {}

    def input_files(self, node: Node | None, field: str, root: Path) -> tuple[CaseFile, ...]:
        """Files given to the agent, relative to ``root`` and inside of it."""
        found: dict[str, CaseFile] = {}
        for number, item in enumerate(self.items(node, field)):
            place = f"{field}[{number}]"
            text = self.text(item, place)
            if not text:
                continue
            relative = PurePosixPath(text)
            if relative.is_absolute() or ".." in relative.parts or "\\" in text or "\0" in text:
                self.problem(item, place, f"{text!r} is not inside {root}. Give a path relative to it.")
                continue
            path = root / relative
            if not path.is_file():
                self.problem(item, place, f"There is no file {path}. Paths are relative to {root}.")
            elif not path.resolve().is_relative_to(root.resolve()):
                self.problem(item, place, f"{text!r} is a link out of {root}.")
            elif path.stat().st_size > MAX_INPUT_BYTES:
                self.problem(item, place, f"{text!r} has more than {MAX_INPUT_BYTES:,} bytes, the most there may be.")
            elif path.name in found:
                self.problem(item, place, f"Two files are called {path.name!r}; the agent sees the names only.")
            else:
                found[path.name] = CaseFile(path.name, path)
        return tuple(found.values())


def _below(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name
