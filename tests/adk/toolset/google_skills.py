"""Skills as google-adk's objects, a registry that answers as a test wants, and models that call in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from google.adk.skills import SkillRegistry, models


def skill(name: str, *, scripts: dict[str, str] | None = None, **more: Any) -> models.Skill:
    """A skill whose body is ``BODY-<name>``."""
    return models.Skill(
        frontmatter=models.Frontmatter(name=name, description=f"Does {name}.", **more),
        instructions=f"BODY-{name}",
        resources=models.Resources(
            references={"guide.md": "guide"},
            scripts={path: models.Script(src=text) for path, text in (scripts or {"go.py": "print('hi')"}).items()},
        ),
    )


class Answering(SkillRegistry):
    """A registry that answers with what it was made with, whatever that is; an exception is raised."""

    def __init__(self, *, skills: dict[str, Any] | None = None, found: Any = ()) -> None:
        self.skills = skills or {}
        self.found = found

    async def get_skill(self, *, name: str) -> Any:
        return _or_raise(self.skills.get(name))

    async def search_skills(self, *, query: str) -> Any:
        return _or_raise(list(self.found) if isinstance(self.found, tuple) else self.found)

    def search_tool_description(self) -> str | None:
        return None


def _or_raise(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "undeclared": True}


def in_turn(*calls: Any, texts: Sequence[str] = ("done",) * 5, when: dict[str, str] | None = None) -> str:
    """A model that makes these calls, one an answer, and then says the texts."""
    turns = [{"call": one} for one in calls] + [{"text": text} for text in texts]
    return yaml.safe_dump({"turns": turns, **({"when": when} if when else {})}, allow_unicode=True)


def answers(events: Sequence[Any]) -> list[dict[str, Any]]:
    return [response.response or {} for event in events for response in event.get_function_responses()]


def texts(events: Sequence[Any]) -> list[str]:
    return [part.text for event in events if event.content for part in event.content.parts or [] if part.text]
