"""Skills that need other skills: ``metadata.requires-skills``, resolved before anything is installed.

A requirement is a name, with a range of versions and a source where the author knows them: ``pdf``, ``pdf>=1.2``,
``pdf>=1.2 @ owner/repo/skills/pdf@main``. A version is the ``metadata.version`` of the skill.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from adk_skills_agent.errors import ConfigError, SourceError
from adk_skills_agent.format import normalise_name
from adk_skills_agent.sources.fetch import FetchedSkill
from adk_skills_agent.sources.origin import Origin, strangers_origin

MAX_SKILLS = 200
"""That one ``add`` may pull in; more is a mistake, or meant to fill a disk."""
MAX_CHARS = 1_000
"""Of one requirement; matching takes the square of the blanks in it."""
_REQUIREMENT = re.compile(r"(?P<name>[^\s@<>=!~;,]+)\s*(?P<range>[<>=!~][^@]*?)?\s*(?:@\s*(?P<source>\S.*))?")


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one skill asks of another."""

    name: str
    range: SpecifierSet  # the versions that will do
    source: Origin | None = None  # where to get it; None for wherever it is known from
    by: str = ""  # the skill that asks; empty for the user

    def __str__(self) -> str:
        return f"{self.name}{self.range}" + (f" @ {self.source}" if self.source else "")


def read_requirement(text: str, by: str = "") -> Requirement:
    """A requirement as an author writes it. Raises ``SourceError`` when it is none."""
    found = _match(text)
    name = normalise_name(found["name"]) if found else ""
    if found is None or not name:
        raise SourceError(f"{by or 'A skill'} needs {text[:100]!r}, which is no requirement. It should be: name>=1.2.")
    try:
        ranges = SpecifierSet((found["range"] or "").strip())
        source = strangers_origin(found["source"]) if found["source"] else None
    except (InvalidSpecifier, ConfigError) as error:
        raise SourceError(f"{by or 'A skill'} needs {text[:100]!r}, which cannot be used: {error}.") from error
    return Requirement(name, ranges, source, by)


def required_name(text: str) -> str:
    """The name in a requirement; empty when it is none."""
    found = _match(text)
    return normalise_name(found["name"]) if found else ""


def _match(text: str) -> re.Match[str] | None:
    return _REQUIREMENT.fullmatch(text.strip()) if len(text) <= MAX_CHARS else None


def version_of(skill: FetchedSkill) -> Version | None:
    """The ``metadata.version`` of a skill; None when it has none, or one that cannot be compared."""
    metadata = skill.tree.parsed(skill.name).metadata
    said = metadata.metadata.get("version") or metadata.extra.get("version")
    try:
        return Version(str(said)) if said else None
    except InvalidVersion:
        return None


Find = Callable[[Requirement], Sequence[FetchedSkill]]
"""The skills that a requirement may mean, best first; fetches where that is needed."""


def resolve_requirements(wanted: Sequence[FetchedSkill], find: Find) -> list[FetchedSkill]:
    """The skills that are wanted and all they need, in an order in which what is needed comes first.

    Raises:
        SourceError: Something is not found, versions exclude one another, or skills need each other in a circle.
    """
    import resolvelib

    seen: dict[str, str] = {}
    provider = _provider(wanted, find, seen)
    try:
        result = resolvelib.Resolver(provider, resolvelib.BaseReporter()).resolve(
            [Requirement(skill.name, SpecifierSet()) for skill in wanted], max_rounds=10 * MAX_SKILLS
        )
    except resolvelib.ResolutionImpossible as error:
        raise SourceError(_conflict(error.causes, seen)) from error
    except resolvelib.ResolutionTooDeep as error:
        raise SourceError("The skills that are needed cannot be resolved: they need too many others.") from error
    if len(result.mapping) > MAX_SKILLS:
        raise SourceError(f"That needs {len(result.mapping)} skills, which is more than {MAX_SKILLS}.")
    return _ordered(result.mapping)


def _provider(wanted: Sequence[FetchedSkill], find: Find, seen: dict[str, str]) -> Any:
    """What the resolver asks. ``seen`` gets the versions that were found of each name, for sentences."""
    import resolvelib

    chosen = {skill.name: skill for skill in wanted}

    class Provider(resolvelib.AbstractProvider):  # type: ignore[type-arg]  # generic at run time only in new versions
        def identify(self, requirement_or_candidate: Any) -> str:
            return str(requirement_or_candidate.name)

        def get_preference(self, identifier: str, *_: Any, **__: Any) -> Any:
            return (identifier not in chosen, identifier)

        def find_matches(self, identifier: str, requirements: Any, incompatibilities: Any) -> list[FetchedSkill]:
            asked = list(requirements[identifier])
            refused = {candidate.tree.digest for candidate in incompatibilities[identifier]}
            if identifier in chosen:
                candidates: list[FetchedSkill] = [chosen[identifier]]
            else:
                candidates = []
                for requirement in sorted(asked, key=lambda one: one.source is None):
                    candidates += find(requirement)
            unique = {candidate.tree.digest: candidate for candidate in candidates if candidate.name == identifier}
            versions = [str(version_of(candidate) or "no metadata.version") for candidate in unique.values()]
            seen[identifier] = ", ".join(dict.fromkeys(versions))
            return [
                candidate
                for digest, candidate in unique.items()
                if digest not in refused and all(self.is_satisfied_by(one, candidate) for one in asked)
            ]

        def is_satisfied_by(self, requirement: Any, candidate: Any) -> bool:
            if not requirement.range:
                return True
            version = version_of(candidate)
            return version is not None and requirement.range.contains(version, prereleases=True)

        def get_dependencies(self, candidate: Any) -> list[Requirement]:
            return [read_requirement(text, candidate.name) for text in candidate.requires]

    return Provider()


def _conflict(causes: Iterable[Any], seen: Mapping[str, str]) -> str:
    said = []
    name = ""
    for cause in causes:
        name = cause.requirement.name
        by = cause.parent.name if cause.parent is not None else "you"
        said.append(f"{by} needs {cause.requirement}" if by != "you" else f"you asked for {name}")
    there = f" What was found has {found}." if (found := seen.get(name)) else ""
    if len(said) == 1 and there:
        return f"{said[0]}.{there} Ask the author of one of them for another."
    if len(said) == 1:
        return f"{said[0]}, and no such skill was found. Name its source: metadata.requires-skills: 'x @ owner/repo'."
    return f"No version of {name!r} fits: {', and '.join(said)}.{there} Ask one of the authors for another range."


def _ordered(mapping: Mapping[str, FetchedSkill]) -> list[FetchedSkill]:
    """What is needed first; a circle is an error."""
    done: dict[str, FetchedSkill] = {}
    path: list[str] = []

    def visit(name: str) -> Iterator[FetchedSkill]:
        if name in done:
            return
        if name in path:
            circle = [*path[path.index(name) :], name]
            raise SourceError(f"These skills need each other in a circle: {' needs '.join(circle)}.")
        path.append(name)
        for text in mapping[name].requires:
            yield from visit(required_name(text))
        path.pop()
        done[name] = mapping[name]
        yield mapping[name]

    return [skill for name in sorted(mapping) for skill in visit(name)]
