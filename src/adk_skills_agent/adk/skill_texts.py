"""What active skills say, put together once and again only when something of the skill changed.

Every request to the model says it anew, so it has to cost no more than a look at the stamps of the files.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from adk_skills_agent.adk.skill_text import SkillText, skill_text

if TYPE_CHECKING:
    from adk_skills_agent.adk.known_skill import KnownSkill

_KEPT = 64


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
        self._known: OrderedDict[str, tuple[KnownSkill, object, str, str, SkillText]] = OrderedDict()

    def text(self, skill: KnownSkill, instructions: str, injected: str) -> SkillText:
        """What a skill says. May block.

        Args:
            skill: The skill.
            instructions: Its body as it is in the file.
            injected: The same with the session's state put in.

        Raises:
            SkillsError: It cannot be read.
        """
        stamp = skill.stamp()
        with self._lock:
            known = self._known.get(skill.name)
        same = known is not None and known[0] is skill and known[1:4] == (stamp, instructions, injected)
        if known is not None and same and stamp is not None:
            return known[4]
        text = skill_text(skill, instructions, injected, budget_tokens=self._budget, manifest_files=self._files)
        if stamp is not None and skill.stamp() == stamp:
            with self._lock:
                self._known.pop(skill.name, None)
                self._known[skill.name] = (skill, stamp, instructions, injected, text)
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return text
