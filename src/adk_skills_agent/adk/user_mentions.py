"""``$skill-name`` and ``/skill-name`` in what a user writes (C30)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.genai import types

MAX_MENTIONS = 5
_MENTION = re.compile(r"(?:^|(?<=[\s(\"'`,;]))[$/]([^\W_][\w-]{0,63})(?![\w/-])")
"""At the beginning or after a space or bracket, and not the beginning of a path such as ``/usr/bin``."""


def mentioned_skills(content: types.Content | None, known: Callable[[str], bool]) -> list[str]:
    """The skills a message names, in its order.

    Args:
        content: The user's message.
        known: Whether there is a skill of that name; ``$HOME`` and ``/tmp`` are none.
    """
    names: dict[str, None] = {}
    for part in (content.parts or []) if content is not None else []:
        for found in _MENTION.finditer(part.text or ""):
            name = found.group(1).rstrip("-")
            if name not in names and known(name):
                names[name] = None
                if len(names) == MAX_MENTIONS:
                    return list(names)
    return list(names)
