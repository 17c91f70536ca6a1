"""The conformance suite of skill sources: ten lines of a test prove somebody's own database source."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from adk_skills_agent.catalog.files import is_readable_name
from adk_skills_agent.catalog.registry import SkillsRegistry
from adk_skills_agent.catalog.settings import RegistryConfig
from adk_skills_agent.catalog.skill_source import SkillSource
from adk_skills_agent.errors import CatalogError, InvalidResourcePath, ResourceNotFound, SkillNotFound
from adk_skills_agent.format import normalise_name
from adk_skills_agent.format.models import SkillMetadata

MakeSource: TypeAlias = "Callable[[], SkillSource | Awaitable[SkillSource]]"
Contents: TypeAlias = Mapping[str, Mapping[str, bytes]]
"""Name of a skill to path of a file to its bytes; at least one skill with a file besides its SKILL.md."""


async def check_skill_source(make: MakeSource, expected: Contents) -> list[str]:
    """Run every check of the contract of :class:`~adk_skills_agent.SkillSource`.

    Args:
        make: Makes a new source with the expected contents, each time it is called; may be a coroutine function.
        expected: What the source has.

    Returns:
        The names of the checks that passed: all of them.

    Raises:
        AssertionError: A check failed; the sentence says what the source did and what it should do.
    """
    if not any(len(files) > 1 for files in expected.values()):
        raise AssertionError("Give the source a skill with a file besides its SKILL.md, or little can be checked.")
    passed = []
    for check in _CHECKS:
        made = make()
        source = await made if inspect.isawaitable(made) else made
        try:
            await check(source, expected)
        finally:
            await source.close()
        passed.append(check.__name__.removeprefix("_"))
    return passed


def _same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: expected {wanted!r:.300}, found {found!r:.300}.")


async def _lists_every_skill_once(source: SkillSource, expected: Contents) -> None:
    listed = await source.list_metadata()
    for item in listed:
        if not isinstance(item, SkillMetadata):
            raise AssertionError(f"list_metadata() must give SkillMetadata, not {type(item).__name__}.")
        _same(normalise_name(item.name), item.name, "A listed name must be a valid one")
        if not item.description.strip():
            raise AssertionError(f"The skill {item.name!r} is listed without a description.")
    _same(sorted(item.name for item in listed), sorted(expected), "list_metadata() lists each skill once")


async def _lists_what_the_files_say(source: SkillSource, expected: Contents) -> None:
    for item in await source.list_metadata():
        parsed = await source.load_skill(item.name)
        _same(parsed.metadata.name, item.name, "The name in SKILL.md and in the list")
        _same(parsed.metadata.description, item.description, f"The description of {item.name!r} in SKILL.md")


async def _reads_every_file(source: SkillSource, expected: Contents) -> None:
    for name, files in expected.items():
        listed = set(await source.list_files(name)) | {"SKILL.md"}
        _same(sorted(listed), sorted(files), f"list_files({name!r})")
        for path, data in files.items():
            if not is_readable_name(path):
                raise AssertionError(f"{path!r} is no plain relative path.")
            found = await source.read_file(name, path)
            if not isinstance(found, bytes):
                raise AssertionError(f"read_file() must give bytes, not {type(found).__name__}.")
            _same(found, data, f"The bytes of {path!r} of {name!r}")


async def _works_before_anything_was_listed(source: SkillSource, expected: Contents) -> None:
    name = next(iter(expected))
    _same(await source.read_file(name, "SKILL.md"), expected[name]["SKILL.md"], "read_file() as the first call")


async def _says_what_is_not_there(source: SkillSource, expected: Contents) -> None:
    name = next(iter(expected))
    for asked, path, errors in (
        ("no-such-skill-at-all", "SKILL.md", (SkillNotFound,)),
        (name, "no/such/file.txt", (ResourceNotFound,)),
        (name, "../../etc/passwd", (ResourceNotFound, InvalidResourcePath)),
        (name, "/etc/passwd", (ResourceNotFound, InvalidResourcePath)),
    ):
        try:
            found = await source.read_file(asked, path)
        except errors:
            continue
        except Exception as error:
            wanted = " or ".join(one.__name__ for one in errors)
            raise AssertionError(
                f"read_file({asked!r}, {path!r}) must raise {wanted}, not {type(error).__name__}: {error}"
            ) from error
        raise AssertionError(f"read_file({asked!r}, {path!r}) must raise, and gave {len(found):,} bytes.")


async def _answers_several_at_once(source: SkillSource, expected: Contents) -> None:
    asked = [(name, path) for name, files in expected.items() for path in files] * 4
    found = await asyncio.gather(*(source.read_file(name, path) for name, path in asked))
    for (name, path), data in zip(asked, found, strict=True):
        _same(data, expected[name][path], f"{path!r} of {name!r}, read several times at once")


async def _can_be_cancelled(source: SkillSource, expected: Contents) -> None:
    task = asyncio.ensure_future(source.list_metadata())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await _lists_every_skill_once(source, expected)


async def _refreshes(source: SkillSource, expected: Contents) -> None:
    for _ in range(2):
        changed = await source.refresh()
        if not isinstance(changed, bool):
            raise AssertionError(f"refresh() must say whether anything changed, not give {type(changed).__name__}.")
        await _lists_every_skill_once(source, expected)


async def _serves_a_registry(source: SkillSource, expected: Contents) -> None:
    registry = SkillsRegistry(RegistryConfig(cache=False))
    try:
        count = await asyncio.to_thread(registry.add_source, source, name="under-test")
        _same(count, len(expected), f"Skills in a registry (it says: {[str(one) for one in registry.diagnostics][:3]})")
        for name, files in expected.items():
            await registry.fetch(name)
            skill = registry.load_skill(name)
            for path, data in files.items():
                if path != "SKILL.md":
                    _same(await asyncio.to_thread(skill.read_bytes, path), data, f"{path!r} of {name!r} in a registry")
        try:
            registry.load_skill("no-such-skill-at-all")
        except CatalogError:
            return
        raise AssertionError("A registry must not have a skill that the source does not list.")
    finally:
        await asyncio.to_thread(registry.remove_source, "under-test")


_CHECKS = (
    _lists_every_skill_once,
    _lists_what_the_files_say,
    _reads_every_file,
    _works_before_anything_was_listed,
    _says_what_is_not_there,
    _answers_several_at_once,
    _can_be_cancelled,
    _refreshes,
    _serves_a_registry,
)
