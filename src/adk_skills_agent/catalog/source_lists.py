"""What a source listed last, kept in the user's cache: a source that is away when a process starts has a catalogue.

Only the list is kept, never a file of a skill. It is a stranger's text as it was when the source gave it, and it is
checked again when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adk_skills_agent.format.models import SkillMetadata
from adk_skills_agent.platforms import write_whole

MAX_AGE_SECONDS = 30 * 86_400.0
"""An older list is not shown: what its source took back must not come again for ever."""
MAX_BYTES = 32 << 20
_VERSION = 1
_TEXTS = ("license", "compatibility", "allowed_tools")


@dataclass(frozen=True, slots=True)
class KeptList:
    """A list that was read from the cache."""

    skills: tuple[SkillMetadata, ...]  # level 1 of each skill
    age: float  # seconds since its source gave it


class SourceLists:
    """The kept lists of one source.

    ``key`` is what the source is, so that another one of the same name does not get its list.
    """

    def __init__(self, cache: str, name: str, key: str) -> None:
        digest = hashlib.sha256(f"{name}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = Path(cache) / "sources" / f"{digest}.json"

    def save(self, skills: Sequence[SkillMetadata]) -> None:
        """Keep a list; nothing happens when the disk does not take it, or it cannot be written as JSON."""
        listed = [
            {
                "name": skill.name,
                "description": skill.description,
                **{key: value for key in _TEXTS if (value := getattr(skill, key)) is not None},
                "metadata": dict(skill.metadata),
                "extra": dict(skill.extra),
            }
            for skill in skills
        ]
        try:
            text = json.dumps({"version": _VERSION, "time": time.time(), "skills": listed}, default=str)
            if len(text) > MAX_BYTES:
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, text.encode("utf-8", "surrogateescape"), mode=0o600)
        except (OSError, ValueError, TypeError, RecursionError):
            return  # a cache: the next start asks the source, as this one did

    def load(self) -> KeptList | None:
        """The list that was kept last; None when there is none that can be used."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as stream:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    return None
                table = json.loads(stream.read(MAX_BYTES))
            age = max(0.0, time.time() - float(table["time"]))
            if table["version"] != _VERSION or age > MAX_AGE_SECONDS:
                return None
            return KeptList(tuple(_metadata(one) for one in table["skills"]), age)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def _metadata(one: Mapping[str, Any]) -> SkillMetadata:
    name, description, texts = one["name"], one["description"], {key: one.get(key) for key in _TEXTS}
    if not isinstance(name, str) or not isinstance(description, str):
        raise TypeError("a name or description is no text")
    if not all(value is None or isinstance(value, str) for value in texts.values()):
        raise TypeError("a field is no text")
    return SkillMetadata(
        name,
        description,
        license=texts["license"],
        compatibility=texts["compatibility"],
        allowed_tools=texts["allowed_tools"],
        metadata=dict(one["metadata"]),
        extra=dict(one["extra"]),
    )


def age_in_words(seconds: float) -> str:
    """``3 hours``, for a diagnostic."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return "less than a minute"
