"""Advice of the specification that a valid skill may still not follow (S9, S14-S16). Never errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from adk_skills_agent.format.diagnostic import Diagnostic, Severity
from adk_skills_agent.format.models import ParsedSkill

MAX_LINES = 500
"""Lines of a SKILL.md (S15)."""
MAX_BODY_TOKENS = 5_000
"""Tokens of a body (S14)."""
CHARACTERS_PER_TOKEN = 4
"""The usual estimate for English."""
MAX_LINKS = 1_000
"""Different links of a body that are looked up; no real skill has a tenth of that."""
# Each part ends where the next link may begin, and nothing is tried twice: linear on any text.
_LINK = re.compile(r"(?<!\!)\[[^\[\]\n]*+\]\(<?([^()\s>]++)>?(?:\s++\"[^\"\n]*+\")?\)")
_CODE = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#")
_WHEN = re.compile(
    r"\b(?:when|whenever|if|before|after|while|during|for|use (?:this|it|to)|trigger\w*|asks?|mentions?)\b",
    re.IGNORECASE,
)


def lint_skill(parsed: ParsedSkill, folder: Path) -> tuple[Diagnostic, ...]:
    """Look at a skill as a careful reviewer would.

    Args:
        parsed: The whole SKILL.md.
        folder: The skill's folder, to look up the files that the body links to.

    Returns:
        One finding per piece of advice, links one each.
    """
    file = parsed.metadata.file
    found: list[Diagnostic] = []

    def note(code: str, message: str, line: int | None = None) -> None:
        found.append(Diagnostic(code, Severity.INFO, message, file, line))

    lines = parsed.body_line + parsed.body.count("\n")
    if lines > MAX_LINES:
        note("long-file", f"SKILL.md has {lines} lines; keep it under {MAX_LINES} and move detail into references/.")
    tokens = len(parsed.body) // CHARACTERS_PER_TOKEN
    if tokens > MAX_BODY_TOKENS:
        note("large-body", f"The body has about {tokens} tokens; under {MAX_BODY_TOKENS} is recommended.")
    if not parsed.body:
        note("empty-body", "The body is empty; the agent gets no instructions from this skill.")
    description = parsed.metadata.description
    if description.isascii() and not _WHEN.search(description):
        note("description-without-when", "The description does not say when to use the skill; add `Use when ...`.")
    _lint_links(parsed, folder, note)
    return tuple(found)


def _lint_links(parsed: ParsedSkill, folder: Path, note: Callable[[str, str, int | None], None]) -> None:
    prose = _CODE.sub(lambda match: "\n" * match.group().count("\n"), parsed.body)
    seen: set[str] = set()
    counted = 0
    line = parsed.body_line
    for match in _LINK.finditer(prose):
        target = match.group(1).split("#", 1)[0].split("?", 1)[0]
        if not target or _URL.match(target) or target in seen:
            continue
        seen.add(target)
        line += prose.count("\n", counted, match.start())
        counted = match.start()
        if len(seen) > MAX_LINKS:
            note("many-links", f"The body links to more than {MAX_LINKS} files; the rest was not looked up.", line)
            return
        parts = [part for part in target.split("/") if part != "."]
        if target.startswith("/") or ".." in parts:
            note("reference-outside", f"{target!r} is not inside the skill; link files relative to its folder.", line)
        elif not _exists(folder, target):
            note("missing-reference", f"{target!r} is linked but not in the skill.", line)
        elif len(parts) > 2:
            note("deep-reference", f"{target!r} is more than one folder deep; keep references one level deep.", line)


def _exists(folder: Path, target: str) -> bool:
    from urllib.parse import unquote

    try:
        return (folder / target).exists() or (folder / unquote(target)).exists()
    except (OSError, ValueError):
        return False
