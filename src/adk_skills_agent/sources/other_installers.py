"""Skills that ``npx skills`` and ``gh skill`` installed: their locks and marks are read, and the first one written.

Neither pins a commit, so what they say is where a skill is from, not what it was: it is fetched, shown and locked as
from any other source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.scopes import project_root
from adk_skills_agent.catalog.settings import RegistryConfig, home_folder
from adk_skills_agent.errors import ConfigError, ParseError, SourceError, nearest
from adk_skills_agent.format import ParsedSkill, normalise_name, parse_text
from adk_skills_agent.sources.lock_file import SkillLock
from adk_skills_agent.sources.origin import Origin, OriginKind, strangers_origin
from adk_skills_agent.sources.tree import SkillTree, digest_folder, read_regular

if TYPE_CHECKING:
    from adk_skills_agent.sources.fetch import FetchedSkill
    from adk_skills_agent.sources.signatures import SignaturePolicy

OTHER_LOCK = "skills-lock.json"
"""The lock of a project that uses ``npx skills``."""
USER_LOCK = ".skill-lock.json"
"""The lock of its user-wide installations, in ``~/.agents``."""
BY_GH = "gh:"
"""As a source: the copies in ``.agents/skills`` that ``gh skill install`` made."""
_VERSIONS = (1, 3)
_GH_KEYS = ("github-repo", "github-ref", "github-tree-sha", "github-path", "github-pinned", "local-path")
_OTHER_KINDS = {OriginKind.GIT: "git", OriginKind.FOLDER: "local", OriginKind.WELL_KNOWN: "well-known"}
_BY_FOLDER = frozenset({OriginKind.GIT, OriginKind.FOLDER, OriginKind.ARCHIVE})


def listed_elsewhere(source: str, project_root: Path, skills_folder: Path) -> dict[str, Origin] | None:
    """The skills that another installer's lock, or its marks, name; None when ``source`` is no such thing.

    ``source`` is the path of a lock, or ``gh:``, which looks in ``skills_folder``. Raises ``ConfigError`` when it
    cannot be read.
    """
    if source == BY_GH:
        places = sorted(skills_folder.iterdir()) if skills_folder.is_dir() else []
        marked = {place.name: origin_by_gh(place) for place in places}
        found = {name: origin for name, origin in marked.items() if origin is not None}
        if not found:
            raise ConfigError(f"{skills_folder} has no skill that gh skill install put there. Name another source.")
        return found
    path = Path(source) if Path(source).is_absolute() else project_root / source
    if path.name not in {OTHER_LOCK, USER_LOCK} or not path.is_file():
        return None
    found = read_other_lock(path)
    if not found:
        raise ConfigError(f"{path} names no skill. Name another source.")
    return found


def project_of_list(source: str, project: Path) -> Path | None:
    """The project that a list of :func:`listed_elsewhere` belongs to; None for the user's own list.

    ``project`` is the one that ``gh:`` looks into. Who named what is in the list, :mod:`.named` says (row 427).
    """
    if source == BY_GH:
        return project
    path = Path(source).resolve()
    home = home_folder(RegistryConfig())
    if home is not None and path == (Path(home) / ".agents" / USER_LOCK).resolve():
        return None
    return Path(project_root(str(path.parent)))


def fetch_listed(
    listed: Mapping[str, Origin],
    names: Sequence[str] = (),
    *,
    by: Callable[[Origin], Sequence[Origin] | None],
    allow_private: bool = False,
    signatures: SignaturePolicy | None = None,
) -> list[FetchedSkill]:
    """The skills of a list, one request for each source; ``by`` says who named one, as :func:`~.fetch.opened` has it.

    Raises ``SourceError`` when a source cannot be fetched, or has a skill no more, or ``ConfigError`` when the list has
    no such name.
    """
    from adk_skills_agent.sources.fetch import fetch_skills

    for name in names:
        if normalise_name(name) not in listed:
            close = nearest(name, listed, 1)
            raise ConfigError(f"The list names no skill {name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
    chosen = [normalise_name(name) for name in names] or list(listed)
    groups: dict[Origin, list[str]] = {}
    for name in chosen:
        groups.setdefault(replace(listed[name], subpath=""), []).append(name)
    fetched: list[FetchedSkill] = []
    for origin, members in groups.items():
        if origin.kind not in _BY_FOLDER:
            fetched += fetch_skills(
                origin, members, allow_private=allow_private, signatures=signatures, named_by=by(origin)
            )
            continue
        folders = [listed[name].subpath for name in members]
        found = fetch_skills(
            origin, folders=folders, allow_private=allow_private, signatures=signatures, named_by=by(origin)
        )
        have = {one.origin.subpath for one in found}
        gone = [
            f"{name} ({folder or '.'})" for name, folder in zip(members, folders, strict=True) if folder not in have
        ]
        if gone:
            raise SourceError(
                f"{origin} has no skill any more for: {', '.join(gone[:12])}. Leave them out with --skill."
            )
        fetched += found
    return sorted(fetched, key=lambda skill: skill.name)


# npx skills.


def read_other_lock(path: Path) -> dict[str, Origin]:
    """The sources in a ``skills-lock.json`` (version 1) or ``.skill-lock.json`` (version 3), by name.

    They have no commit, and their hash cannot be computed from the files, so nothing of them is pinned. Raises
    ``ConfigError`` when it cannot be read, or is no such lock.
    """
    try:
        table = json.loads(read_regular(path))
        listed = table["skills"].items()
        if table.get("version") not in _VERSIONS:
            raise ConfigError(f"{path} has the version {table.get('version')!r}; only 1 and 3 are known.")
        found = {}
        for name, one in listed:
            if not isinstance(one, Mapping):
                raise ConfigError(f"the entry {name!r} is no table. Correct it.")
            found[normalise_name(name)] = _origin_of(one, path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from error
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is no skills-lock.json of version 1: {error}.") from error
    return found


def _origin_of(one: Mapping[str, str], base: Path) -> Origin:
    place, kind = one.get("sourceUrl") or one["source"], one.get("sourceType", "")
    if kind == "local" and not place.startswith(("/", ".", "~")):
        place = f"./{place}"
    folder = one.get("skillPath", "").rpartition("/")[0]
    origin = strangers_origin(place, ref=one.get("ref") or None, base=base, missing_ok=True)
    if origin.kind is OriginKind.WELL_KNOWN or kind == "well-known":
        return Origin(OriginKind.WELL_KNOWN, origin.location)
    if ".." in folder.split("/") or folder.startswith("/"):
        raise ConfigError(f"the path {folder!r} leaves its source. Correct it.")
    return Origin(origin.kind, origin.location, origin.ref, folder or origin.subpath)


def other_lock_text(lock: SkillLock, there: Path) -> tuple[str, list[str]]:
    """The same skills as a ``skills-lock.json``; without a hash, which that tool computes in a way of its own.

    What that tool itself locked in the file ``there`` (an entry has a hash then) stays. Returns the text, and the names
    of skills whose sources that tool does not know. Raises ``ConfigError`` when the file is there and is no such lock.
    """
    skills: dict[str, Mapping[str, object]] = {}
    if there.is_file():
        try:
            old = json.loads(read_regular(there))["skills"]
            skills = {name: one for name, one in old.items() if "computedHash" in one and name not in lock.skills}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            said = f"{there} is no skills-lock.json, so it stays as it is: {error!r:.100}. Move it away."
            raise ConfigError(said) from error
    unknown = []
    for skill in lock.skills.values():
        kind = _OTHER_KINDS.get(skill.origin.kind)
        if kind is None:
            unknown.append(skill.name)
            continue
        place = skill.origin.location
        short = place.removeprefix("https://github.com/")
        is_github = short != place
        skills[skill.name] = {
            "source": short if is_github else place,
            "sourceType": "github" if is_github else kind,
            "skillPath": f"{skill.origin.subpath}/SKILL.md" if skill.origin.subpath else "SKILL.md",
            **({"ref": skill.origin.ref} if skill.origin.ref else {}),
        }
    return json.dumps({"version": 1, "skills": dict(sorted(skills.items()))}, indent=2) + "\n", unknown


# gh skill.


def from_gh(metadata: Mapping[str, object]) -> Origin | None:
    """Where a copy that ``gh skill install`` made came from, by the keys it writes into the frontmatter's metadata."""
    repository, path = metadata.get("github-repo"), metadata.get("github-path")
    ref = metadata.get("github-pinned") or metadata.get("github-ref")
    if not isinstance(repository, str) or not repository:
        return None
    place = repository if "://" in repository else f"https://github.com/{repository}"
    folder = path.removesuffix("/SKILL.md").removesuffix("SKILL.md") if isinstance(path, str) else ""
    named = str(ref) if isinstance(ref, str) and ref != "true" else str(metadata.get("github-ref") or "")
    named = named.removeprefix("refs/heads/").removeprefix("refs/tags/")
    try:
        origin = strangers_origin(f"git+{place}", ref=named or None)
    except ConfigError:
        return None
    return None if ".." in folder.split("/") else replace(origin, subpath=folder.strip("/"))


def origin_by_gh(folder: Path) -> Origin | None:
    """Where the copy in a folder came from; None when ``gh skill install`` did not make it."""
    parsed = _parsed(folder)
    return from_gh(parsed.metadata.metadata) if parsed is not None else None


def is_gh_copy(folder: Path, tree: SkillTree) -> bool:
    """Whether a folder is what ``gh skill install`` makes of a tree: the same but for its keys in the frontmatter.

    Raises ``SourceError`` when the folder cannot be compared.
    """
    copy = _parsed(folder)
    if copy is None or from_gh(copy.metadata.metadata) is None:
        return False
    digests, executables = digest_folder(folder, "The installed skill")
    same = {path: digest for path, digest in digests.items() if path != tree.skill_file}
    wanted = {path: digest for path, digest in tree.digests.items() if path != tree.skill_file}
    try:
        original = tree.parsed(folder.name)
    except ParseError:
        return False
    return same == wanted and executables == tree.executables and _content(copy) == _content(original)


def _parsed(folder: Path) -> ParsedSkill | None:
    try:
        text = read_regular(folder / "SKILL.md").decode("utf-8", "replace")
        return parse_text(text, folder_name=folder.name)
    except (ParseError, OSError, SourceError):
        return None


def _content(skill: ParsedSkill) -> tuple[object, ...]:
    meta = skill.metadata
    own = {key: value for key, value in meta.metadata.items() if key not in _GH_KEYS}
    fields = (meta.name, meta.description, meta.license, meta.compatibility, meta.allowed_tools)
    return (*fields, own, dict(meta.extra), skill.body)
