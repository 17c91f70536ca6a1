"""What a program is able to do, and what abilities mean together, in whatever language: for the scan of a skill.

An ability by itself is told where an honest script rarely has it; several in one program mean more. Both are data:
``[ability]`` and ``[[combination]]`` of ``capabilities.toml``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import islice

from adk_skills_agent.sources.scan.flow import KEPT, with_short_gaps
from adk_skills_agent.sources.scan.python import Seen, is_own_service

_MOST_CODE = 256 << 10
_MOST_PLACES = 4  # of one ability in a program
_LONGEST_LINE = 2_000


@dataclass(frozen=True, slots=True)
class _Combination:
    id: str
    stops: bool
    says: str
    of: tuple[str, ...]
    files: re.Pattern[str] | None


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, re.Pattern[str]], tuple[_Combination, ...]]:
    path = resources.files("adk_skills_agent.sources.scan").joinpath("capabilities.toml")
    data = tomllib.loads(path.read_text("utf-8"))
    abilities = {name: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for name, pattern in data["ability"].items()}
    combinations = tuple(
        _Combination(
            one["id"],
            one["weight"] == "stop",
            one["says"],
            tuple(one["of"]),
            re.compile(one["files"], re.IGNORECASE) if "files" in one else None,
        )
        for one in data["combination"]
    )
    return abilities, combinations


def capability_findings(text: str, path: str) -> list[Seen]:
    """What the abilities of a program mean, at the places of each of them."""
    text = "\n".join(line[:_LONGEST_LINE] for line in text[:_MOST_CODE].split("\n"))
    text, line_of = with_short_gaps(KEPT.sub(lambda kept: " " * len(kept[0]), text))
    abilities, combinations = _tables()
    known: dict[str, list[int]] = {}

    def places(name: str) -> list[int]:
        if name not in known:
            found = islice(abilities[name].finditer(text), _MOST_PLACES)
            known[name] = [line_of(match.end()) for match in found]
        return known[name]

    found: list[Seen] = []
    for one in combinations:
        if one.files is not None and not one.files.search(path):
            continue
        if all(places(name) for name in one.of):
            stops = one.stops and not is_own_service(text)
            found += [Seen(one.id, stops, one.says, line) for name in one.of for line in places(name)]
    return found
