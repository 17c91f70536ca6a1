"""What an active skill says to the model: its body, cut to the budget, its files and scripts (C32 to C35)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.known_skill import SKILL_FILE
from adk_skills_agent.adk.script_usage import HEAD_BYTES, usage_line
from adk_skills_agent.catalog.tokens import UNITS_PER_TOKEN, estimate_tokens, size_units
from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox.contract import SKILL_DIR

if TYPE_CHECKING:
    from adk_skills_agent.adk.known_skill import KnownSkill

MAX_USAGES = 20
"""Scripts whose first lines are read for a usage line."""

_OWN_TAG = re.compile(r"<(?=\s*/?\s*(?:active_skills|skill_content|skill_resources|available_skills)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SkillText:
    """An active skill as a model reads it.

    Attributes:
        name: The skill.
        body: Its instructions, cut to the budget, state injected.
        digest: Of the whole instructions as they are in the file.
        files: ``path`` or ``path: usage``, at most as many as are listed.
        more_files: How many files are not listed.
        compatibility: What the author says it needs, or None.
        whole_chars: Length of the body before it was cut; None when it was not.
        usages_of: Paths of the scripts whose first lines were read.
    """

    name: str
    body: str
    digest: str
    files: tuple[str, ...] = ()
    more_files: int = 0
    compatibility: str | None = None
    whole_chars: int | None = None
    usages_of: tuple[str, ...] = ()

    @property
    def instructions(self) -> str:
        """The body as a model may read it: without tags of ours."""
        return _fenced(self.body)

    @property
    def tokens(self) -> int:
        """Of the block in the system instruction."""
        return estimate_tokens(self.block())

    def block(self, resource_tool: str = "load_skill_resource", changed: bool = False) -> str:
        """The skill between ``<skill_content>`` tags (C33).

        Args:
            resource_tool: The tool that reads the rest of a body that was cut.
            changed: Whether the model has to be told that the text is not the one it knows.
        """
        attributes = ' changed="true"' if changed else ""
        parts = [f'<skill_content name="{escape(self.name)}"{attributes}>', _fenced(self.body.strip())]
        if self.whole_chars is not None:
            parts.append(self.cut_note(resource_tool))
        parts.append("")
        if self.compatibility:
            parts.append(f"Compatibility: {_fenced(self.compatibility)}")
        parts += [
            f"Skill directory: {SKILL_DIR}",
            "Relative paths in this skill are relative to the skill directory.",
        ]
        if self.files:
            parts.append("<skill_resources>")
            parts += [f"<file>{escape(file, quote=False)}</file>" for file in self.files]
            if self.more_files:
                parts.append(f"<!-- {self.more_files} more files are not listed -->")
            parts.append("</skill_resources>")
        parts.append("</skill_content>")
        return "\n".join(parts)

    def cut_note(self, resource_tool: str) -> str:
        """What the model does about a body that was cut."""
        return (
            f"[The instructions are cut here: {len(self.body)} of {self.whole_chars} characters. Read on with "
            f"{resource_tool}, file {SKILL_FILE}.]"
        )


def _fenced(text: str) -> str:
    """A skill's text without our own tags: it can neither end its block nor pose as another skill."""
    return _OWN_TAG.sub("&lt;", text)


def fenced(value: Any) -> Any:
    """A skill's own text without our tags, as in the system instruction; also what is inside lists and mappings."""
    if isinstance(value, str):
        return _fenced(value)
    if isinstance(value, dict):
        return {fenced(key): fenced(one) for key, one in value.items()}
    return [fenced(one) for one in value] if isinstance(value, list) else value


def text_digest(instructions: str) -> str:
    """What tells one version of a body from another, short enough for the session's state."""
    return hashlib.sha256(instructions.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def skill_text(
    skill: KnownSkill, instructions: str, injected: str, *, budget_tokens: int | None, manifest_files: int
) -> SkillText:
    """Put together what a skill says. May block.

    Args:
        skill: The skill.
        instructions: Its body as it is in the file.
        injected: The same with the session's state put in.
        budget_tokens: Most tokens of the body; None for all of it.
        manifest_files: Most files to list.
    """
    body = cut_text(injected, budget_tokens)
    files = skill.files() if manifest_files else ()
    return SkillText(
        name=skill.name,
        body=body,
        digest=text_digest(instructions),
        files=_with_usage(skill, files[:manifest_files]),
        more_files=max(0, len(files) - manifest_files),
        compatibility=skill.compatibility,
        whole_chars=len(injected) if len(body) < len(injected) else None,
        usages_of=tuple(path for path in files[:manifest_files] if path.startswith("scripts/"))[:MAX_USAGES],
    )


def cut_text(text: str, budget_tokens: int | None) -> str:
    """The beginning of a text that fits a budget, whole lines where possible."""
    if budget_tokens is None or size_units(text) <= budget_tokens * UNITS_PER_TOKEN:
        return text
    low, high = 0, len(text)
    while low < high:  # the longest beginning that fits
        middle = (low + high + 1) // 2
        if size_units(text[:middle]) <= budget_tokens * UNITS_PER_TOKEN:
            low = middle
        else:
            high = middle - 1
    line = text.rfind("\n", 0, low)
    return text[: line + 1] if line > low // 2 else text[:low]


def _with_usage(skill: KnownSkill, files: Sequence[str]) -> tuple[str, ...]:
    shown = []
    left = MAX_USAGES
    for path in files:
        usage = ""
        if path.startswith("scripts/") and left:
            left -= 1
            try:
                usage = usage_line(path, skill.read_bytes(path, HEAD_BYTES))
            except SkillsError:
                pass  # a file that cannot be read is listed without a line; reading it will say why
        shown.append(f"{path}: {usage}" if usage else path)
    return tuple(shown)
