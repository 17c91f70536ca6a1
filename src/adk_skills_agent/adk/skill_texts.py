"""What active skills say, put together once and again only when something of the skill changed.

Every request to the model says it anew, so it has to cost no more than a look at the stamps of the folders.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adk_skills_agent.adk.skill_text import SkillText, skill_text

if TYPE_CHECKING:
    from adk_skills_agent.adk.known_skill import KnownSkill

_KEPT = 64


@dataclass(frozen=True, slots=True)
class _Known:
    skill: KnownSkill
    made_of: tuple[str, str]
    stamp: object
    text: SkillText


class SkillTexts:
    """The texts of the skills of one toolset. May be used by several threads.

    Args:
        budget_tokens: Most tokens of a body; None for all of it.
        manifest_files: Most files to list.
    """

    def __init__(self, budget_tokens: int | None, manifest_files: int) -> None:
        self._budget = budget_tokens
        self._files = manifest_files
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def text(self, skill: KnownSkill, instructions: str, injected: str) -> SkillText:
        """What a skill says. May block.

        Args:
            skill: The skill.
            instructions: Its body as it is in the file.
            injected: The same with the session's state put in.

        Raises:
            SkillsError: It cannot be read.
        """
        with self._lock:
            known = self._known.get(skill.name)
        since = time.time_ns()
        same = known is not None and known.skill is skill and known.made_of == (instructions, injected)
        if known is not None and same and skill.stamp(known.text.usages_of, since) == known.stamp:
            return known.text
        text = skill_text(skill, instructions, injected, budget_tokens=self._budget, manifest_files=self._files)
        stamp = skill.stamp(text.usages_of, since)
        if stamp is not None:
            with self._lock:
                self._known.pop(skill.name, None)
                self._known[skill.name] = _Known(skill, (instructions, injected), stamp, text)
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return text
