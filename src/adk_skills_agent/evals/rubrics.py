"""Rubrics: one statement each that a judge says yes or no to; and what makes a bad one, before it costs money."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.format.diagnostic import Diagnostic, Severity

FEWEST_RUBRICS = 2
"""Of a judged case; with one, a single misjudged statement decides everything (S0-152)."""
_MOST_WORDS = 60
_LONGEST_QUOTE = 40

_VAGUE = re.compile(
    r"\b(good|bad|nice|great|appropriate(?:ly)?|proper(?:ly)?|suitable|suitably|reasonable|reasonably|adequate(?:ly)?"
    r"|high[- ]quality|well[- ](?:written|done|structured)|correctly|helpful|useful|as expected|professional)\b",
    re.IGNORECASE,
)
_INWARD = re.compile(
    r"\b(understands?|understood|knows?|thinks?|realizes?|realises?|wants?|intends?|tries)\b", re.IGNORECASE
)
_TWO_CLAIMS = re.compile(
    r"(?:;\s|\band (?:also |then |it |the agent |must |should |does |is |has |calls? |runs? |loads? |reads? |writes? )"
    r"|\bas well as\b|\band/or\b)",
    re.IGNORECASE,
)
_NEGATIONS = re.compile(r"\b(?:not|no|never|without|n't|avoids?|fails?|lacks?)\b", re.IGNORECASE)
_QUOTE = re.compile(r"[\"“]([^\"”]*)[\"”]|'([^']{12,})'")


@dataclass(frozen=True, slots=True)
class Rubric:
    """A statement about what the agent did or said.

    Attributes:
        id: Its name in results; unique in its case.
        text: The statement, e.g. ``The answer names the region with the highest sales.``
        description: How it is meant, for the judge; may be empty.
    """

    id: str
    text: str
    description: str = ""


def check_ids(rubrics: Iterable[Rubric]) -> None:
    """Check that every rubric has an id of its own and says something.

    Raises:
        ConfigError: It is not so.
    """
    seen: set[str] = set()
    for rubric in rubrics:
        if not rubric.id or not rubric.text.strip():
            raise ConfigError(f"Rubric {rubric.id!r} needs an id and a text.")
        if rubric.id in seen:
            raise ConfigError(f"Two rubrics have the id {rubric.id!r}. Give each its own: a verdict belongs to an id.")
        seen.add(rubric.id)


def lint_rubrics(rubrics: Sequence[Rubric], *, file: str | None = None, line: int | None = None) -> list[Diagnostic]:
    """What makes these rubrics of one case hard to judge, each with what to write instead (S0-155).

    Args:
        rubrics: Of one case.
        file: Where they are, for the diagnostics.
        line: The line of the case.
    """
    found = [
        Diagnostic(code, Severity.WARNING, f"Rubric {rubric.id!r}: {problem}", file, line)
        for rubric in rubrics
        for code, problem in _problems(rubric.text)
    ]
    texts = [" ".join(rubric.text.lower().split()).rstrip(".") for rubric in rubrics]
    found += [
        Diagnostic(
            "rubric-repeated",
            Severity.WARNING,
            f"Rubric {rubric.id!r} says the same as {rubrics[texts.index(text)].id!r}. It counts twice; remove one.",
            file,
            line,
        )
        for number, (rubric, text) in enumerate(zip(rubrics, texts, strict=True))
        if text in texts[:number]
    ]
    if 0 < len(rubrics) < FEWEST_RUBRICS:
        found.append(
            Diagnostic(
                "rubric-alone",
                Severity.WARNING,
                f"The case has one rubric. Give it {FEWEST_RUBRICS} or more: one about the way, one about the answer.",
                file,
                line,
            )
        )
    return found


def _problems(text: str) -> Iterable[tuple[str, str]]:
    bare = _QUOTE.sub(" ", text)
    if match := _VAGUE.search(bare):
        yield (
            "rubric-vague",
            f"{match[0]!r} means something else to every judge. Say what can be seen: a number, a name, a part.",
        )
    if match := _INWARD.search(bare):
        yield (
            "rubric-unobservable",
            f"{match[0]!r} cannot be seen in a trace. Say what the agent does or writes when it is so.",
        )
    if match := _TWO_CLAIMS.search(bare):
        yield (
            "rubric-compound",
            f"It makes two claims ({match[0].strip()!r}). Write two rubrics: each gets its verdict.",
        )
    if len(_NEGATIONS.findall(bare)) > 1:
        yield "rubric-double-negation", "It denies twice, which judges misread. Say what is to be there."
    if text.rstrip().endswith("?"):
        yield "rubric-question", "It is a question. Write the statement that is true of a good run."
    if any(len(a or b) > _LONGEST_QUOTE for a, b in _QUOTE.findall(text)):
        yield "rubric-exact-words", "It asks for exact words; a correct answer may use others. Say what they must mean."
    if len(text.split()) > _MOST_WORDS:
        yield "rubric-long", f"It has more than {_MOST_WORDS} words. Say one thing in one sentence."
