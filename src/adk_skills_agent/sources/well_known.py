"""Skills of a web site: the index at ``/.well-known/agent-skills/`` (discovery 0.2, and 0.1), read and written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from adk_skills_agent.errors import SourceError
from adk_skills_agent.platforms import make_folder_below
from adk_skills_agent.sources.archives import MAX_PACKED_BYTES, pack_tar, read_archive, skills_of
from adk_skills_agent.sources.http import MissingPage, WebClient
from adk_skills_agent.sources.tree import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TREE_BYTES,
    SkillTree,
    TreeFile,
    check_paths,
    tree_of,
)

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
PLACES = ("/.well-known/agent-skills/index.json", "/.well-known/skills/index.json")
MAX_INDEX_BYTES = 4 << 20
MAX_SKILLS = 5_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PublishedSkill:
    """An entry of an index."""

    name: str
    description: str
    url: str  # of its SKILL.md or archive; of the folder of its files in version 0.1
    kind: str  # ``skill-md``, ``archive`` or ``files``
    digest: str = ""  # ``sha256:...`` of what the URL sends; empty in version 0.1
    files: tuple[str, ...] = ()  # its files, in version 0.1


def read_index(client: WebClient, site: str) -> list[PublishedSkill]:
    """The skills a site publishes.

    Raises ``SourceError`` when there is no index, it is none that is known, or an entry cannot be used.
    """
    places = [site] if urlsplit(site).path.endswith(".json") else [urljoin(site + "/", place) for place in PLACES]
    for number, place in enumerate(places):
        try:
            return _entries(client.get(place, MAX_INDEX_BYTES), place)
        except MissingPage as error:
            if number == len(places) - 1 or error.status not in {404, 410, 403}:
                raise SourceError(f"{site} publishes no skills: {error.message}") from error
    raise SourceError(f"{site} publishes no skills.")


def _entries(data: bytes, place: str) -> list[PublishedSkill]:
    try:
        index = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{place} is no JSON, so it is no index of skills.") from error
    listed = index.get("skills") if isinstance(index, Mapping) else None
    if not isinstance(index, Mapping) or not isinstance(listed, list) or len(listed) > MAX_SKILLS:
        raise SourceError(f"{place} is no index of skills.")
    schema = index.get("$schema")
    if schema is not None and schema != SCHEMA:
        raise SourceError(f"{place} has the schema {str(schema)[:120]!r}, which is not known here. Update adk-skills.")
    try:
        return [_entry(one, place, schema is None) for one in listed]
    except ValueError as error:
        raise SourceError(f"{place} has an address that cannot be used: {error}. Tell its author.") from error


def _entry(one: Any, place: str, is_first: bool) -> PublishedSkill:
    name, description = (one.get("name"), one.get("description", "")) if isinstance(one, Mapping) else (None, "")
    if not isinstance(name, str) or not name or "/" in name or not isinstance(description, str):
        raise SourceError(f"{place} has an entry without a usable name.")
    if is_first:
        files = one.get("files")
        if not isinstance(files, list) or not all(isinstance(file, str) for file in files) or len(files) > MAX_FILES:
            raise SourceError(f"{place}: the skill {name!r} has no list of files.")
        check_paths(files, f"{place}, skill {name!r},")
        return PublishedSkill(name, description, urljoin(place, f"{quote(name)}/"), "files", "", tuple(files))
    url, kind, digest = one.get("url"), one.get("type"), one.get("digest")
    if kind not in {"skill-md", "archive"} or not isinstance(url, str):
        raise SourceError(f"{place}: the skill {name!r} is of the type {str(kind)[:40]!r}, which is not known here.")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise SourceError(f"{place}: the skill {name!r} has no sha256 digest, so it cannot be checked.")
    return PublishedSkill(name, description, urljoin(place, url), kind, digest)


def fetch_published(client: WebClient, skill: PublishedSkill) -> SkillTree:
    """The files of a published skill.

    Raises ``SourceError`` when it is not there, has another digest than the index says, or cannot be used.
    """
    what = f"The skill {skill.name!r} of {urlsplit(skill.url).netloc}"
    if skill.kind == "files":
        files, left = {}, MAX_TREE_BYTES
        for path in skill.files:
            data = client.get(urljoin(skill.url, quote(path)), MAX_FILE_BYTES)
            files[path] = TreeFile(data)
            left -= len(data)
            if left < 0:  # there may be 2,000 of 32 MiB (row 462)
                raise SourceError(
                    f"{what} has more than {MAX_TREE_BYTES >> 20} MiB. Ask its author to make it smaller."
                )
        return tree_of(files, what)
    data = client.get(skill.url, MAX_PACKED_BYTES)
    found = "sha256:" + hashlib.sha256(data).hexdigest()
    if found != skill.digest:
        raise SourceError(f"{what} has the digest {found}, and its index says {skill.digest}. Tell its author.")
    if skill.kind == "skill-md":
        return tree_of({"SKILL.md": TreeFile(data)}, what)
    skills = skills_of(read_archive(data, what), what)
    if "" not in skills:
        raise SourceError(f"{what} has no SKILL.md at the root of its archive.")
    return skills[""]


def write_site(folder: Path, skills: Iterable[tuple[str, str, SkillTree]]) -> list[Path]:
    """Write a site of files that any web server can serve: index 0.2 and an archive a skill.

    Returns what was written, the index last; an archive's name has its digest, so that a cache never mixes two
    versions. Raises ``OSError`` when the disk refuses.
    """
    from adk_skills_agent.sources.store import write_aside

    target = make_folder_below(folder, ".well-known/agent-skills")
    written: list[Path] = []
    entries = []
    for name, description, tree in skills:
        if list(tree.files) == ["SKILL.md"]:
            data, suffix, kind = tree.files["SKILL.md"].data, "md", "skill-md"
        else:
            data, suffix, kind = pack_tar(tree), "tar.gz", "archive"
        digest = hashlib.sha256(data).hexdigest()
        path = target / f"{name}-{digest[:16]}.{suffix}"
        write_aside(path, data)
        written.append(path)
        entries.append(
            {
                "name": name,
                "type": kind,
                "description": description,
                "url": f"/.well-known/agent-skills/{path.name}",
                "digest": f"sha256:{digest}",
            }
        )
    index = target / "index.json"
    write_aside(index, (json.dumps({"$schema": SCHEMA, "skills": entries}, indent=2) + "\n").encode())
    return [*written, index]
