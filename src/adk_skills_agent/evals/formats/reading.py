"""Reading a file of eval cases, whichever format it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.errors import EvalFileError
from adk_skills_agent.evals.cases import EvalCase, EvalFile
from adk_skills_agent.evals.formats import agentskills, google_adk, yaml_file
from adk_skills_agent.evals.formats.located import (
    MAX_BYTES,
    FieldReader,
    Node,
    Unreadable,
    json_document,
    yaml_document,
)
from adk_skills_agent.evals.judge import lint_rubrics


@dataclass(frozen=True, slots=True)
class EvalFormat:
    """A kind of file."""

    name: str
    fits: Callable[[Node], bool]  # whether a document is of this kind, by its form alone
    # Its cases; what is wrong goes to the reader. The last argument is the skill they are about, when the user names
    # one.
    read: Callable[[FieldReader, Node, str | None], list[EvalCase]]


FORMATS = (
    EvalFormat("google-adk EvalSet (a mapping with eval_cases)", google_adk.fits, google_adk.read),
    EvalFormat("agentskills evals.json (a mapping with evals)", agentskills.is_evals, agentskills.read_evals),
    EvalFormat(
        "trigger queries (a list of query and should_trigger)", agentskills.is_queries, agentskills.read_queries
    ),
    EvalFormat("our YAML (a mapping with cases)", yaml_file.fits, yaml_file.read),
)
"""Every kind that is read; the first that fits counts. To add one, write a module with ``fits`` and ``read``."""

NAMES_IN_A_SKILL = ("evals.json", "eval_queries.json", "*.evalset.json", "*.yaml", "*.yml")
"""What is taken from the ``evals`` folder of a skill."""


def read_eval_file(path: str | Path, *, skill: str | None = None) -> EvalFile:
    """Read a file of eval cases.

    ``skill`` is the one they are about, whatever the file says. Raises ``EvalFileError`` when it cannot be read as one;
    ``problems`` has every complaint, with file, line and field.
    """
    path = Path(path)
    document = _document(path)
    format_ = next((one for one in FORMATS if one.fits(document)), None)
    if format_ is None:
        kinds = "; ".join(one.name for one in FORMATS)
        raise EvalFileError([f"{path}:{document.line}: This is no file of eval cases. Known are: {kinds}."])
    reader = FieldReader(path)
    cases = format_.read(reader, document, skill)
    if reader.problems:
        raise EvalFileError(reader.problems)
    lints = [
        finding
        for case in cases
        for turn in case.turns
        for finding in lint_rubrics(turn.rubrics, file=case.source.file, line=case.source.line)
    ]
    return EvalFile(path, tuple(cases), (*reader.notes, *lints))


def eval_files(path: Path) -> list[Path]:
    """The files of cases a path stands for: itself, or those in the ``evals`` folder of a skill (and beside SKILL.md).

    Raises ``EvalFileError`` when there is nothing at the path, or no file of cases in the folder.
    """
    if path.is_file() and path.name.lower() != "skill.md":
        return [path]
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        raise EvalFileError([f"{path}: There is no such file or folder."])
    found = [
        file
        for place in (folder / "evals", folder)
        for pattern in NAMES_IN_A_SKILL
        for file in sorted(place.glob(pattern))
        if place.name == "evals" or not pattern.startswith("*.y")  # other YAML may lie beside a SKILL.md
    ]
    if not found:
        raise EvalFileError([f"{folder}: There are no eval cases. Write them in {folder / 'evals' / 'cases.yaml'}."])
    return list(dict.fromkeys(found))


def _document(path: Path) -> Node:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise EvalFileError([f"{path}: It cannot be read: it is no file."])
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise EvalFileError([f"{path}: It has {size:,} bytes; {MAX_BYTES:,} is the most that is read."])
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise EvalFileError([f"{path}: It is not UTF-8 text (byte {error.start:,})."]) from error
    except OSError as error:
        raise EvalFileError([f"{path}: It cannot be read: {error.strerror or error}."]) from error
    try:
        return yaml_document(text) if path.suffix.lower() in (".yaml", ".yml") else json_document(text)
    except Unreadable as error:
        raise EvalFileError([f"{path}:{error.line}: {error.message}"]) from error
