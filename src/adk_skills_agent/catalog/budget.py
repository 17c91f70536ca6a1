"""The catalog inside a budget of tokens: shorten before dropping, and say what was cut (C22, S4-2, S4-4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from adk_skills_agent.errors import some_of
from adk_skills_agent.format import to_available_skills_xml
from adk_skills_agent.format.models import Diagnostic, Severity, SkillMetadata

# How many tokens a text takes, and how many a model can read: estimates, without any tokenizer.

UNITS_PER_TOKEN = 8
"""Sizes are added up in eighths of a token, so that parts can be summed without rounding each."""

UNKNOWN_CONTEXT_TOKENS = 200_000
"""The context assumed of a model that is not in the table."""

# Input contexts in tokens by the beginning of a model's name; the longest beginning wins. Families, not versions: a
# new member gets the size of its family, and a wrong guess only makes the catalog a little shorter or longer.
_CONTEXTS = {
    "gemini-": 1_048_576,
    "gemini-1.0": 32_760,
    "gemini-1.5-pro": 2_097_152,
    "gemini-2.5-flash-image": 32_768,
    "gemini-3-pro-image": 65_536,
    "gemini-live": 131_072,
    "gemini-pro": 32_760,
    "gemma": 131_072,
    "gemma-2": 8_192,
    "gemma2": 8_192,
    "claude": 200_000,
    "claude-2.0": 100_000,
    "claude-instant": 100_000,
    "chatgpt-4o": 128_000,
    "gpt-3.5": 16_385,
    "gpt-35": 16_385,
    "gpt-4": 8_192,
    "gpt-4-0125": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4-vision": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-4o": 128_000,
    "gpt-5": 272_000,
    "gpt-oss": 131_072,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    "codestral": 32_768,
    "command-r": 128_000,
    "deepseek": 65_536,
    "grok-": 131_072,
    "grok-4": 256_000,
    "llama-3": 8_192,
    "llama3": 8_192,
    "llama-3.": 131_072,
    "llama3.": 131_072,
    "llama3-": 8_192,
    "llama-4": 1_000_000,
    "llama4": 1_000_000,
    "mistral": 32_768,
    "mistral-large": 131_072,
    "mistral-medium": 131_072,
    "mixtral": 32_768,
    "qwen": 32_768,
    "qwen3": 131_072,
}
# A family begins the name or a part of it: ``models/gemini-…``, ``openrouter/anthropic/claude-…``,
# ``bedrock/us.anthropic.claude-…``, ``bedrock/meta.llama3-…``.
_FAMILY = re.compile(
    "(?:^|[/.:@])(" + "|".join(re.escape(family) for family in sorted(_CONTEXTS, key=len, reverse=True)) + ")"
)


def size_units(text: str) -> int:
    """Return the size of a text in eighths of a token; the size of a whole is the sum of its parts.

    A character takes as many eighths as thrice its UTF-8 bytes less one: ASCII 1/4 of a token (four characters to a
    token), Latin with accents, Greek, Cyrillic, Arabic 5/8, Chinese, Japanese, Korean 1, emoji 11/8. Rather over
    than under what the tokenizers of today's models take.
    """
    if text.isascii():
        return 2 * len(text)
    return 3 * len(text.encode("utf-8", "surrogatepass")) - len(text)


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text, rounded up (see :func:`size_units`)."""
    return -(-size_units(text) // UNITS_PER_TOKEN)


def context_tokens(model: str | None) -> int:
    """Return the input context of a model in tokens; ``UNKNOWN_CONTEXT_TOKENS`` when its name says nothing.

    ``model`` is a name as ADK or LiteLLM has it: ``gemini-2.5-flash``, ``openai/gpt-4o``, or a resource path.
    """
    families = _FAMILY.findall((model or "").lower())
    return _CONTEXTS[families[-1]] if families else UNKNOWN_CONTEXT_TOKENS


CONTEXT_SHARE = 0.02
"""Share of a model's context that the catalog may take."""
MAX_CATALOG_TOKENS = 8_000
"""More is not read with care by any model, whatever its context."""
MIN_DESCRIPTION_TOKENS = 15
"""A description is not shortened below this (60 ASCII characters): less does not say when to use a skill."""

_OPEN = "<available_skills>\n"
_CLOSE = "</available_skills>"
_OPEN_NAMES = "<names_only>\n"
_CLOSE_NAMES = "</names_only>\n"
_ELLIPSIS = " …"
_NAMES_IN_DIAGNOSTIC = 20
# The least that the specification's form adds to a name and a description, in units; saves rendering what cannot fit.
_FULL_FORM_UNITS = size_units("<skill>\n<name>\n\n</name>\n<description>\n\n</description>\n</skill>\n")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]")
_LEAST_OF_CUT = 0.6  # a shortened text ends with a sentence when that keeps so much of the room


@dataclass(frozen=True, slots=True)
class CatalogText:
    """The catalogue text for a model.

    Attributes:
        text: The catalog, never more than the budget; empty when the budget cannot hold anything.
        tokens: Its estimated size (``tokens.estimate_tokens``).
        shown: Names in the text, in the order of the catalog, with or without a description.
        shortened: Those of them whose description was cut, or left out.
        dropped: Names that are not in the text: always the last ones.
        diagnostics: ``catalog-shortened`` and ``catalog-dropped``, for the owner.
    """

    text: str
    tokens: int
    shown: tuple[str, ...]
    shortened: tuple[str, ...]
    dropped: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]


def catalog_budget_tokens(model: str | None) -> int:
    """Return the most tokens a catalog may take: 2 % of the model's context, at most ``MAX_CATALOG_TOKENS``."""
    return min(int(context_tokens(model) * CONTEXT_SHARE), MAX_CATALOG_TOKENS)


def fit_catalog(items: Sequence[SkillMetadata], budget_tokens: int, *, search_hint: str | None = None) -> CatalogText:
    """Write the catalog so that as many skills as possible are in it, in their order, within a budget.

    The first of these that fits:

    1. the specification's form, whole (``format.to_available_skills_xml``);
    2. one line a skill, ``<skill name="x">description</skill>``, with descriptions whole;
    3. the same with the longest descriptions cut to one length, at a sentence or a word, down to
       ``MIN_DESCRIPTION_TOKENS``;
    4. the first skills so, the others by name only, one a line, in ``<names_only>``;
    5. the first names; the other skills are dropped, and a last line says how many.

    Args:
        items: The skills, most important first.
        budget_tokens: The most tokens the text may take (``tokens.catalog_budget_tokens``).
        search_hint: Name of the tool that finds skills; the text tells the model to use it for what is cut.

    Returns:
        The text and what was cut. Equal arguments give equal results.
    """
    budget = max(budget_tokens, 0) * UNITS_PER_TOKEN
    full = _whole(items, budget)
    if full is not None:
        return CatalogText(full, estimate_tokens(full), tuple(item.name for item in items), (), (), ())
    lines = [_Line(item) for item in items]
    described, cap, listed = _plan(lines, budget, search_hint)
    return _written(lines, described, cap, listed, budget, search_hint)


class _Line:
    """One skill of the compact form, with its sizes."""

    __slots__ = ("description", "frame_units", "head", "name", "name_line", "units")

    def __init__(self, item: SkillMetadata) -> None:
        self.name = item.name
        self.description = _escaped(_one_line(item.description))
        name = _one_line(item.name)
        self.name_line = _escaped(name) + "\n"
        self.head = f'<skill name="{escape(name)}">'
        self.frame_units = size_units(self.head) + _TAIL_UNITS
        self.units = size_units(self.description)


_TAIL = "</skill>\n"
_TAIL_UNITS = size_units(_TAIL)


def _whole(items: Sequence[SkillMetadata], budget: int) -> str | None:
    least = sum(2 * (len(item.name) + len(item.description)) + _FULL_FORM_UNITS for item in items)
    if least > budget:
        return None
    text = to_available_skills_xml(items)
    return text if size_units(text) <= budget else None


def _plan(lines: Sequence[_Line], budget: int, search_hint: str | None) -> tuple[int, int, int]:
    """The number of lines with a description, their maximum length in units, and the number of lines in all."""
    room = budget - size_units(_OPEN + _CLOSE)
    frames = sum(line.frame_units for line in lines)
    sizes = sorted(line.units for line in lines)
    note = size_units(_note(0, 0, len(lines), search_hint))
    if frames + sum(sizes) <= room:
        return len(lines), sizes[-1] if sizes else 0, len(lines)
    cap = _even_cap(sizes, room - note - frames)
    least = MIN_DESCRIPTION_TOKENS * UNITS_PER_TOKEN
    if cap >= least:
        return len(lines), cap, len(lines)
    # From here on some are names only; the note is counted at its longest.
    all_of = len(lines)
    notes = _note(all_of, 0, 0, search_hint), _note(0, all_of, all_of, search_hint)
    room -= size_units(_OPEN_NAMES + _CLOSE_NAMES) + max(map(size_units, notes))
    names = list(accumulate(size_units(line.name_line) for line in lines))
    listed = sum(size <= room for size in names)
    if listed < len(lines):
        return 0, 0, listed
    room -= names[-1] if names else 0
    described = 0
    for line in lines:
        room -= line.frame_units + min(line.units, least) - size_units(line.name_line)
        if room < 0:
            break
        described += 1
    return described, least, listed


def _even_cap(sizes: Sequence[int], room: int) -> int:
    """The largest cap for which the sizes (ascending), each cut to the cap, fit in the room; below 0: none."""
    left = room
    for position, size in enumerate(sizes):
        remaining = len(sizes) - position
        if size * remaining > left:
            return left // remaining
        left -= size
    return sizes[-1] if sizes else 0


def _written(
    lines: Sequence[_Line], described: int, cap: int, listed: int, budget: int, search_hint: str | None
) -> CatalogText:
    parts = [_OPEN]
    shortened = []
    for line in lines[:described]:
        description = line.description
        if line.units > cap:
            description = _cut(description, cap)
            shortened.append(line.name)
        parts += [line.head, description, _TAIL]
    if listed > described:
        parts += [_OPEN_NAMES, *(line.name_line for line in lines[described:listed]), _CLOSE_NAMES]
        shortened += [line.name for line in lines[described:listed]]
    parts.append(_CLOSE)
    note = _note(len(lines) - listed, listed - described, len(shortened), search_hint)
    text = "".join(parts) + note
    if not listed or size_units(text) > budget:
        # Not even the frame fits, or nothing is in it.
        listed, shortened = 0, []
        text = _note(len(lines), 0, 0, search_hint).strip()
        if size_units(text) > budget:
            text = ""
    return CatalogText(
        text,
        estimate_tokens(text),
        tuple(line.name for line in lines[:listed]),
        tuple(shortened),
        tuple(line.name for line in lines[listed:]),
        _diagnostics(lines, listed, len(shortened), budget // UNITS_PER_TOKEN),
    )


def _note(dropped: int, names_only: int, shortened: int, search_hint: str | None) -> str:
    """The note to the model about cuts, with what it can do."""
    if dropped:
        return f"\n{dropped} more skills are not listed" + (
            f"; find them with {search_hint}(query)." if search_hint else "."
        )
    if not search_hint or not shortened:
        return ""
    if names_only:
        return f"\n{names_only} skills are listed by name only; {search_hint}(query) tells what they do."
    return f"\nDescriptions that end in{_ELLIPSIS} are shortened; {search_hint}(query) shows them whole."


def _diagnostics(lines: Sequence[_Line], listed: int, shortened: int, budget_tokens: int) -> tuple[Diagnostic, ...]:
    found = []
    remedy = "raise the catalog budget, or give the agent fewer skills."
    if shortened:
        found.append(
            Diagnostic(
                "catalog-shortened",
                Severity.WARNING,
                f"{shortened} of {len(lines)} skill descriptions are shortened or left out to keep the catalog within "
                f"{budget_tokens} tokens; shorten the descriptions, {remedy}",
            )
        )
    dropped = [line.name for line in lines[listed:]]
    if dropped:
        found.append(
            Diagnostic(
                "catalog-dropped",
                Severity.WARNING,
                f"{len(dropped)} of {len(lines)} skills are not in the catalog of {budget_tokens} tokens and can only "
                f"be found by search: {some_of(dropped, _NAMES_IN_DIAGNOSTIC)}; {remedy}",
            )
        )
    return tuple(found)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    # Between tags quotes need no escape, and each would cost a token.
    return escape(text, quote=False)


def _cut(escaped: str, units: int) -> str:
    """Cut an escaped text to a size, ellipsis included, at the end of a sentence or else of a word."""
    room = max(units - size_units(_ELLIPSIS), 0)
    head = escaped[: room // 2]  # no character takes less than 2 units
    while (excess := size_units(head) - room) > 0:
        head = head[: -max(1, excess // 16)]  # no character takes more than 11 units: this never removes too much
    entity = head.rfind("&")
    if entity >= 0 and ";" not in head[entity:]:
        head = head[:entity]
    least = int(len(head) * _LEAST_OF_CUT)
    sentences = [match.end() for match in _SENTENCE_END.finditer(head, least)]
    if sentences:
        return head[: sentences[-1]] + _ELLIPSIS
    space = head.rfind(" ", least)
    # Not ";": it may close an entity.
    return (head[:space] if space >= 0 else head).rstrip(" ,:-") + _ELLIPSIS
