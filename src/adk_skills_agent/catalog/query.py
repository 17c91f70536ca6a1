"""A model's words into search terms: any string is a legal query, and none of it is ever syntax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from adk_skills_agent.catalog.words import asked_words

MAX_QUERY_CHARS = 4_000
"""Characters of a query that are looked at: a task description fits, a pasted file does not."""

MAX_TERMS = 32
"""Distinct terms of a query that are searched, the first ones: bounds the time of any query."""

_MIN_PREFIX = 3  # a shorter beginning matches everything
_MIN_SPELLING = 5  # a shorter word has too many neighbours

_MAX_RESPELLED = 8
"""Unknown words of a query that are looked up among near spellings, the first ones: the slowest part of a search."""

_SAYS_NOTHING = """
    a about all also an and any are as at be but by can could do does for from get give had has have he help her him
    his how i if in into is it its just let like may me my need of on or our out please she should so some than
    that the their them then there these they this those to us use used using via want was we were what when where
    which while who why will with would you your s t re ve ll
"""
_STOP_WORDS = frozenset(_SAYS_NOTHING.split())

# Spellings people use for one another everywhere; each word also finds the others of its line.
_SAME = tuple(
    tuple(line.split())
    for line in """
    k8s kubernetes
    js javascript
    ts typescript
    py python
    db database
    repo repository
    auth authentication
    config configuration
    docs documentation
    env environment
    perf performance
    infra infrastructure
    postgres postgresql
    a11y accessibility
    i18n internationalization
    l10n localization
    ppt pptx powerpoint
    xls xlsx excel
    golang go
    ci continuous-integration
    pr pull-request
    ml machine-learning
    llm language-model
    iac infrastructure-as-code
    tdd test-driven-development
    e2e end-to-end
    """.strip().splitlines()
)
_SYNONYMS: dict[str, tuple[tuple[str, ...], ...]] = {
    word: tuple(tuple(other.split("-")) for other in line if other != word)
    for line in _SAME
    for word in line
    if "-" not in word
}


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for.

    Attributes:
        words: Consecutive words.
        prefix: The last word is only the beginning of one.
        alternative: Not what was asked, but perhaps what was meant; it counts for less.
    """

    words: tuple[str, ...]
    prefix: bool = False
    alternative: bool = False


def search_terms(
    query: str, knows: Callable[[Term], bool], spellings: Callable[[str], list[str]]
) -> list[tuple[Term, ...]]:
    """Turn a query into the terms to rank by, each with its alternatives; a skill need not match all of them.

    Words that say nothing are dropped, unless there is nothing else. A word no skill has is widened: to the words it
    begins, else to words spelled nearly like it. Neighbours may also be written as one word (``front end``), and a
    few abbreviations stand for what they abbreviate.

    Args:
        query: Any text; the first ``MAX_QUERY_CHARS`` characters and ``MAX_TERMS`` distinct words count.
        knows: Whether any skill has a term.
        spellings: Words of the index that are spelled nearly like a given one.

    Returns:
        For each word of the query, in its order, the terms that at least one skill has, the asked one first.
    """
    asked = list(dict.fromkeys(asked_words(query[:MAX_QUERY_CHARS])))
    asked = ([words for words in asked if words[0] not in _STOP_WORDS] or asked)[:MAX_TERMS]
    found: list[dict[Term, None]] = []
    unknown = 0
    for words in asked:
        terms = [term] if knows(term := Term(words)) else []
        if not terms:
            unknown += 1
            terms = _widened(words, knows, spellings if unknown <= _MAX_RESPELLED else _none)
        if len(words) == 1:
            terms += [term for other in _SYNONYMS.get(words[0], ()) if knows(term := Term(other, alternative=True))]
        found.append(dict.fromkeys(terms))
    for at, (left, right) in enumerate(pairwise(asked)):
        if len(left) == len(right) == 1 and knows(joined := Term((left[0] + right[0],), alternative=True)):
            found[at][joined] = found[at + 1][joined] = None
    return [tuple(terms) for terms in found if terms]


def _widened(
    words: tuple[str, ...], knows: Callable[[Term], bool], spellings: Callable[[str], list[str]]
) -> list[Term]:
    word = words[0]
    if len(words) > 1:
        return []
    if len(word) >= _MIN_PREFIX and knows(begun := Term((word,), prefix=True)):
        return [begun]
    if len(word) < _MIN_SPELLING or not word.isalpha():
        return []
    # The index holds stems, so a near spelling is the beginning of a word.
    return [term for near in spellings(word) if knows(term := Term((near,), prefix=True, alternative=True))]


def _none(word: str) -> list[str]:  # noqa: ARG001 - stands in for ``spellings``
    return []
