"""Frontmatter that is YAML, but that others read differently or its author probably meant differently.

To add a check: write a function, name it in TEXT_CHECKS. They run for every skill, so each begins with a quick test.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from adk_skills_agent.format.diagnostic import Severity
from adk_skills_agent.format.fences import Finding
from adk_skills_agent.format.yaml_nodes import YamlProblem, load_fields, plain_values

_COMMENT = re.compile(r"^[ \t]*+[^\s#][^\n]*?[ \t]#", re.MULTILINE)  # or a ` #` in quotes: the YAML parser knows
_REST_IS_COMMENT = re.compile(r"[ \t]+#")
_PROSE = frozenset({"description", "compatibility"})


def fence_inside_value(text: str) -> Finding | None:
    """``---`` somewhere in a line, where skills-ref and google-adk end the frontmatter (L1, 14b)."""
    if "---" not in text:
        return None
    line = text.count("\n", 0, text.index("---"))
    message = "`---` inside the frontmatter is text here; skills-ref and google-adk cut the frontmatter there."
    return Finding("fence-inside-value", Severity.INFO, message, line)


def comment_in_prose(text: str) -> Finding | None:
    """`` #`` in a plain description or compatibility, which YAML takes for the start of a comment."""
    if "#" not in text or _COMMENT.search(text) is None:
        return None
    cut: list[str] = []
    line = 0
    try:
        for key, end in plain_values(text):
            if key.strip().lower() in _PROSE and _REST_IS_COMMENT.match(text, end):
                line = line or text.count("\n", 0, end)
                cut.append(key.strip().lower())
    except YamlProblem:  # salvaged line by line, comments and all
        return None
    if not cut:
        return None
    fields = " and the ".join(dict.fromkeys(cut))
    message = f"What follows ` #` in the {fields} is a comment in YAML and was not read; put the value in quotes."
    return Finding("comment-in-value", Severity.WARNING, message, line)


def tabs(text: str) -> Finding | None:
    """Tabs that libyaml reads as spaces and other parsers, skills-ref's among them, refuse."""
    if "\t" not in text:
        return None
    try:
        load_fields(text, libyaml=False)
    except YamlProblem as problem:
        return Finding(
            "tab-indentation", Severity.INFO, "A tab where YAML wants spaces; not every parser reads it.", problem.line
        )
    return None


TEXT_CHECKS: tuple[Callable[[str], Finding | None], ...] = (fence_inside_value, comment_in_prose, tabs)
"""Every check, in the order in which they run. The lines of their findings are 0-based in the text."""
