"""Did the agent leave the files it should?"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

from adk_skills_agent.evals.cases import ExpectedFile
from adk_skills_agent.evals.metrics.score import Score, not_evaluated, of_conversation
from adk_skills_agent.evals.trace import OutputFile, Trace


def score(actual: Trace, expected: Collection[ExpectedFile], *, threshold: float = 1.0) -> Score:
    """The share of expected files that are there and hold what they should.

    A name with ``*`` or ``?`` is satisfied by any file it fits. Without expected files it is not evaluated.
    """
    if not expected:
        return not_evaluated(actual, "The case expects no files.")
    problems = [problem for file in expected if (problem := _problem(actual, file))]
    value = (len(expected) - len(problems)) / len(expected)
    return of_conversation(actual, value, threshold, " ".join(problems))


def _problem(actual: Trace, wanted: ExpectedFile) -> str:
    pattern = wanted.name.replace("[", "[[]")  # only * and ? stand for something
    found = {name: file for name, file in actual.output_files.items() if fnmatch.fnmatchcase(name, pattern)}
    if not found:
        there = ", ".join(sorted(actual.output_files)) or "none"
        return f"No file {wanted.name!r}; what is there: {there}."
    objections = [_objection(name, file, wanted.contains) for name, file in sorted(found.items())]
    return "" if "" in objections else " ".join(objections)


def _objection(name: str, file: OutputFile, needles: Collection[str]) -> str:
    if not needles:
        return ""
    if file.content is None:
        return f"{name!r} ({file.size:,} bytes) was not kept, so what is in it is not known."
    text = file.content.decode(errors="replace")
    missing = [needle for needle in needles if needle not in text]
    return f"{name!r} does not hold {', '.join(map(repr, missing))}." if missing else ""
