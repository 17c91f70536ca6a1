"""Skills of a source, in memory: the ones that are wanted, with their bytes, what they were fetched at, and by whom."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from adk_skills_agent.errors import ParseError, SourceError, nearest, some_of
from adk_skills_agent.format import decoded, normalise_name, parse_text
from adk_skills_agent.sandbox import remove_tree, temporary_prefix
from adk_skills_agent.sources.archives import MAX_PACKED_BYTES, read_archive, read_archive_file, skills_of
from adk_skills_agent.sources.git import GitCheckout, checkout
from adk_skills_agent.sources.origin import Origin, OriginKind
from adk_skills_agent.sources.plugins import Marketplace, read_marketplace
from adk_skills_agent.sources.tree import SKIPPED, SkillTree, read_regular, read_tree, skill_folders

if TYPE_CHECKING:
    from adk_skills_agent.sources.http import WebClient
    from adk_skills_agent.sources.signatures import SignaturePolicy
    from adk_skills_agent.sources.well_known import PublishedSkill

logger = logging.getLogger(__name__)

MAX_CANDIDATES = 10_000
MAX_HELD_BYTES = 1 << 30
"""Of a site's skills in memory: a name that none of their folders has is looked for in all of them."""
_SHOWN = 12  # names in a sentence
_MOST_DEPTH = 100  # of folders in folders in which a skill is looked for


@dataclass(frozen=True)
class FetchedSkill:
    """A skill as its source has it."""

    name: str  # the name it is installed under
    description: str  # what it is for
    tree: SkillTree  # its files
    origin: Origin  # where it is; with the folder in the source
    commit: str = ""  # what it was fetched at: a commit, the digest of an archive, or a version; empty for a folder
    license: str = ""  # what it says of its licence; empty for nothing
    requires: tuple[str, ...] = ()  # the skills it says it needs (``metadata.requires-skills``)
    signer: str = ""  # who signed it, as far as that was verified
    signed: str = ""  # when, of an archive


class SkillFolders(Protocol):
    """What was fetched of a source: folders with skills, whose files may come later."""

    def folders(self) -> list[str]:
        """Where there are skills; ``""`` for the root."""

    def skill_files(self, folders: Sequence[str]) -> Mapping[str, bytes]:
        """The SKILL.md of some folders."""

    def trees(self, folders: Sequence[str]) -> Mapping[str, SkillTree]:
        """All files of some folders."""

    def other_file(self, path: str) -> bytes | None:
        """A file of the source that belongs to no skill; None when there is none."""


class _InMemory:
    """The files of an archive, a package or a folder."""

    def __init__(self, trees: Mapping[str, SkillTree], others: Mapping[str, bytes]) -> None:
        self._trees = trees
        self._others = others

    def folders(self) -> list[str]:
        return list(self._trees)

    def skill_files(self, folders: Sequence[str]) -> Mapping[str, bytes]:
        return {folder: tree.files[tree.skill_file].data for folder, tree in self.trees(folders).items()}

    def trees(self, folders: Sequence[str]) -> Mapping[str, SkillTree]:
        return {folder: self._trees[folder] for folder in folders}

    def other_file(self, path: str) -> bytes | None:
        return self._others.get(path)


class _OnDisk:
    """The skills below a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders = skill_folders(_skill_paths(root))

    def folders(self) -> list[str]:
        return self._folders

    def skill_files(self, folders: Sequence[str]) -> Mapping[str, bytes]:
        return {folder: tree.files[tree.skill_file].data for folder, tree in self.trees(folders).items()}

    def trees(self, folders: Sequence[str]) -> Mapping[str, SkillTree]:
        return {folder: read_tree(self._root / folder, f"The skill in {self._root / folder}") for folder in folders}

    def other_file(self, path: str) -> bytes | None:
        try:
            return read_regular(self._root / path)
        except OSError:
            return None


def _skill_paths(root: Path) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        logger.warning("%s cannot be read, so no skill in it is found: %s.", error.filename, error.strerror)

    count = 0
    for folder, below, files in os.walk(root, onerror=unreadable):
        deeper = folder.count(os.sep) - str(root).count(os.sep) < _MOST_DEPTH  # os.walk calls itself (row 226)
        below[:] = sorted(name for name in below if deeper and name not in SKIPPED and name != ".venv")
        for name in files:
            if name in {"SKILL.md", "skill.md"}:
                count += 1
                if count > MAX_CANDIDATES:
                    raise SourceError(f"{root} has more than {MAX_CANDIDATES:,} skills. Name a folder in it.")
                yield str((Path(folder) / name).relative_to(root))


class _InGit:
    def __init__(self, git: GitCheckout, subpath: str) -> None:
        self.git = git
        self._subpath = subpath

    def folders(self) -> list[str]:
        return self.git.skill_folders(self._subpath)

    def skill_files(self, folders: Sequence[str]) -> Mapping[str, bytes]:
        paths = {}
        for folder in folders:
            base = f"{folder}/" if folder else ""
            paths[folder] = next(base + name for name in ("SKILL.md", "skill.md") if base + name in self.git.files)
        read = self.git.read(paths.values())
        return {folder: read[path] for folder, path in paths.items()}

    def trees(self, folders: Sequence[str]) -> Mapping[str, SkillTree]:
        return self.git.trees(folders)

    def other_file(self, path: str) -> bytes | None:
        full = f"{self._subpath}/{path}" if self._subpath else path
        return self.git.read([full])[full] if full in self.git.files else None


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that was opened."""

    skills: SkillFolders
    commit: str = ""
    signer: str = ""
    signed: str = ""


@contextmanager
def opened(
    origin: Origin,
    *,
    allow_private: bool = False,
    signatures: SignaturePolicy | None = None,
    tag: str = "",
    named_by: Sequence[Origin] | None = None,
) -> Iterator[Opened]:
    """Open a source; its files are fetched as they are asked for.

    With ``allow_private`` a web server may send us to private addresses. ``tag`` is what ``origin.ref``, a commit, was
    found by: its signature counts, too. ``named_by`` are the sources that the user named, when a file in them named
    this one: it is at a private address only on the same host, if that was at one, too (row 148). It is empty where
    nobody whom the user named did (row 427). Raises ``SourceError`` when it cannot be fetched, or nobody signed it and
    that is required.
    """
    if signatures is not None and signatures.required and origin.kind not in {OriginKind.GIT, OriginKind.ARCHIVE}:
        from adk_skills_agent.sources.signatures import unsigned

        raise unsigned(str(origin), "cannot be signed (a git repository and an archive can)")
    addresses = addresses_of(origin, allow_private=allow_private, named_by=named_by)
    named = origin.location if addresses is None else ""
    match origin.kind:
        case OriginKind.GIT:
            with checkout(origin.location, origin.ref, allow_private=allow_private, addresses=addresses) as git:
                signer = _git_signer(origin, git, tag, signatures) if signatures is not None else ""
                yield Opened(_InGit(git, origin.subpath), git.commit, signer)
        case OriginKind.FOLDER:
            root = Path(origin.location)
            if not root.is_dir():
                raise SourceError(f"The folder {root} does not exist any more. Put it back, or remove the skill.")
            yield Opened(_OnDisk(root / origin.subpath if origin.subpath else root))
        case OriginKind.ARCHIVE:
            what = f"The archive {origin.location.rpartition('/')[2]}"
            data = _archive_bytes(origin, what, allow_private, named)
            by = _archive_signer(origin, data, signatures, allow_private, named) if signatures is not None else ("", "")
            files = read_archive(data, what)
            digest = "sha256:" + hashlib.sha256(data).hexdigest()
            others = {path: file.data for path, file in files.items() if path.endswith(".json")}
            yield Opened(_InMemory(skills_of(files, what), others), digest, *by)
        case OriginKind.WELL_KNOWN:
            from adk_skills_agent.sources.http import WebClient
            from adk_skills_agent.sources.well_known import read_index

            with WebClient(named, allow_private=allow_private) as client:
                yield Opened(_OnWeb(client, {entry.name: entry for entry in read_index(client, origin.location)}))
        case OriginKind.PACKAGE:
            yield _package(origin)
        case OriginKind.MCP:
            from adk_skills_agent.sources.mcp.client import McpSkills

            yield Opened(McpSkills(origin.location))


def addresses_of(origin: Origin, *, allow_private: bool, named_by: Sequence[Origin] | None) -> tuple[str, ...] | None:
    """The addresses at which a source may be asked for, where somebody else than the user named it; None for any.

    The arguments are those of :func:`opened`. Raises ``SourceError`` when it is on this machine, or in a private
    network.
    """
    if named_by is None:
        return None
    if _is_here(origin) and not any(map(_is_here, named_by)):
        how = f"If that is meant, install it first: adk-skills add {shlex.quote(str(origin))}"
        if not named_by:
            how = (
                "Allow it with --allow-private if that is meant, or trust the project that names it: adk-skills trust."
            )
        raise SourceError(
            f"{origin} is on this machine, and not you but a file from elsewhere named it, so it is not read. {how}"
        )
    if allow_private or "://" not in (url := _url_of(origin)):
        return None
    from adk_skills_agent.sources.http import refuse_private

    if is_beside(origin, named_by):
        return None
    scheme = urlsplit(url).scheme
    try:
        found = refuse_private(url)
        # ssh also knows names of the user's own settings, and git:// cannot be told to which address it goes (row 456).
        if scheme == "git" or (scheme not in {"http", "https"} and not found):
            raise SourceError(
                f"{origin} may be in a private network, and not you but others named it, so it is not asked for by "
                f"{scheme}://. Allow it with --allow-private if that is meant."
            )
    except SourceError as error:
        if named_by:
            raise
        said = f"{error.message.rstrip('.')}, or trust the project that names it: adk-skills trust."
        raise SourceError(said) from error
    return found


def is_named_with(origin: Origin, others: Sequence[Origin]) -> bool:
    """Whether who named others may name this source, too: it is on the host of one, or here as one of them is."""
    return is_beside(origin, others) or (_is_here(origin) and any(map(_is_here, others)))


def is_beside(origin: Origin, others: Iterable[Origin]) -> bool:
    """Whether a source is on the host of one of others, and may be at a private address as that is.

    The host is theirs who name it, and so are its addresses: what came from a public one says nothing of private ones
    (row 486). ssh asks the host for its key.
    """
    from adk_skills_agent.sources.http import authority, is_inside

    url = _url_of(origin)
    host = authority(url)[0]
    same = [urlsplit(other).scheme for other in map(_url_of, others) if authority(other)[0] == host]
    return bool(host) and (("ssh" in same and url.startswith("ssh://")) or (bool(same) and is_inside(url)))


def _is_here(origin: Origin) -> bool:
    """Whether a source is a folder, an archive or a repository of this machine; locks have no other paths of one."""
    by_path = origin.kind is OriginKind.FOLDER or (origin.kind is OriginKind.ARCHIVE and "://" not in origin.location)
    return by_path or origin.location.startswith("file://")


def _url_of(origin: Origin) -> str:
    """The URL of a source on a network; that of another is without a host, or no URL."""
    if origin.kind is OriginKind.GIT and "://" not in origin.location:  # user@host:path
        return f"ssh://{origin.location.partition(':')[0]}"
    on_disk = origin.location.startswith("file://") or origin.kind in {OriginKind.PACKAGE, OriginKind.MCP}
    return "" if on_disk else origin.location


def _git_signer(origin: Origin, git: GitCheckout, tag: str, policy: SignaturePolicy) -> str:
    signer, reason = git.signature(tag or origin.ref, policy)
    if not signer and policy.required:
        from adk_skills_agent.sources.signatures import unsigned

        raise unsigned(str(origin), reason)
    return signer


def _archive_signer(
    origin: Origin, data: bytes, policy: SignaturePolicy, allow_private: bool, named: str
) -> tuple[str, str]:
    """Who and when, by the bundle that was named, else by the one beside the archive."""
    from adk_skills_agent.sources.signatures import MAX_BUNDLE_BYTES, bundle_signer, unsigned

    if not (policy.required or policy.sigstore or policy.bundle):
        return "", ""
    bundle = None
    if policy.bundle is not None:
        try:
            with policy.bundle.open("rb") as stream:
                bundle = stream.read(MAX_BUNDLE_BYTES)
        except OSError as error:
            raise SourceError(f"The bundle {policy.bundle} cannot be read: {error.strerror}.") from error
    else:
        bundle = _bundle_beside(origin, allow_private, named)
    if bundle is not None:
        return bundle_signer(data, bundle, policy)
    if policy.required:
        raise unsigned(str(origin), "has no Sigstore bundle beside it (the same name with .sigstore.json)")
    return "", ""


def _bundle_beside(origin: Origin, allow_private: bool, named: str) -> bytes | None:
    from adk_skills_agent.sources.signatures import BUNDLE_SUFFIXES, MAX_BUNDLE_BYTES

    for suffix in BUNDLE_SUFFIXES:
        try:
            if "://" not in origin.location:
                return read_regular(Path(origin.location + suffix))
            from adk_skills_agent.sources.http import WebClient

            with WebClient(named, allow_private=allow_private) as client:
                return client.get(origin.location + suffix, MAX_BUNDLE_BYTES)
        except (OSError, SourceError):
            continue  # not there: the next name, and then there is none
    return None


class _OnWeb:
    def __init__(self, client: WebClient, entries: Mapping[str, PublishedSkill]) -> None:
        self._client = client
        self._entries = entries
        self._fetched: dict[str, SkillTree] = {}
        self._size = 0

    def folders(self) -> list[str]:
        return list(self._entries)

    def skill_files(self, folders: Sequence[str]) -> Mapping[str, bytes]:
        return {folder: tree.files[tree.skill_file].data for folder, tree in self.trees(folders).items()}

    def trees(self, folders: Sequence[str]) -> Mapping[str, SkillTree]:
        from adk_skills_agent.sources.well_known import fetch_published

        for folder in folders:
            if folder not in self._fetched:
                self._fetched[folder] = tree = fetch_published(self._client, self._entries[folder])
                self._size += tree.size
                if self._size > MAX_HELD_BYTES:  # each is bounded, and there may be thousands (row 162)
                    raise SourceError(
                        f"The skills of the site have more than {MAX_HELD_BYTES >> 20} MiB. Name those you want."
                    )
        return {folder: self._fetched[folder] for folder in folders}

    def other_file(self, path: str) -> bytes | None:
        del path
        return None


def _archive_bytes(origin: Origin, what: str, allow_private: bool, named: str) -> bytes:
    if "://" not in origin.location:
        return read_archive_file(Path(origin.location), what)
    from adk_skills_agent.sources.http import WebClient

    with WebClient(named, allow_private=allow_private) as client:
        return client.get(origin.location, MAX_PACKED_BYTES)


def _package(origin: Origin) -> Opened:
    """The skills in a wheel, in ``<package>/.agents/skills``; uv finds, checks and unpacks it, and nothing runs."""
    from adk_skills_agent.catalog.settings import RegistryConfig, cache_folder
    from adk_skills_agent.packages import Index
    from adk_skills_agent.packages.uv import run_uv

    what = f"the package {origin.location!r}"
    wanted = f"{origin.location}=={origin.ref}" if origin.ref else origin.location
    cache = cache_folder(RegistryConfig())
    folder = tempfile.mkdtemp(prefix=temporary_prefix("wheel"))
    try:
        place = Path(folder, "site")
        arguments = ["pip", "install", "--no-config", "--no-deps", "--only-binary=:all:", f"--target={place}"]
        # uv would look for one in all folders above that of temporary files, where others may have put it (row 474).
        python = f"--python={sys.executable}"
        run_uv(
            [*arguments, python, *Index().options(), "--", wanted],
            cache=Path(cache or folder) / "uv",
            seconds=120,
            what=what,
        )
        names = [path.name for path in place.glob("*.dist-info")]
        version = names[0].removesuffix(".dist-info").rpartition("-")[2] if names else ""
        disk = _OnDisk(place)
        inside = [one for one in disk.folders() if "/.agents/skills/" in f"/{one}"]
        if not inside:
            raise SourceError(f"The package {wanted} has no skills (no folder .agents/skills in it).")
        return Opened(_InMemory(disk.trees(inside), {}), version)
    finally:
        remove_tree(folder)  # of any depth, where a TemporaryDirectory breaks (row 226)


# Which of them.


def fetch_skills(
    origin: Origin,
    names: Sequence[str] = (),
    *,
    everything: bool = False,
    folders: Sequence[str] | None = None,
    allow_private: bool = False,
    signatures: SignaturePolicy | None = None,
    tag: str = "",
    named_by: Sequence[Origin] | None = None,
    refused: MutableMapping[str, str] | None = None,
) -> list[FetchedSkill]:
    """The skills of a source that are wanted.

    ``names`` are those of skills, or of plugins of a marketplace, all of whose skills are meant then; ``everything``
    means all, ``folders`` just these folders in the source (one that is not there gives no skill). With ``refused`` a
    folder that cannot be taken is put there, with the reason, and the others go on. The rest is as :func:`opened` has
    it. Raises ``SourceError`` when it cannot be fetched, has no such skill, or has several and none was named.
    """
    with opened(origin, allow_private=allow_private, signatures=signatures, tag=tag, named_by=named_by) as source:
        if folders is not None:
            known = set(source.skills.folders())
            return _take(origin, source, [folder for folder in folders if folder in known], refused)
        chosen, external = _chosen(origin, source, names, everything)
        found = _take(origin, source, chosen)
    for other in external:
        found += fetch_skills(
            other,
            everything=True,
            allow_private=allow_private,
            signatures=signatures,
            named_by=(origin,) if named_by is None else named_by,
        )
    by_name: dict[str, FetchedSkill] = {}
    for skill in found:
        if by_name.setdefault(skill.name, skill) is not skill:
            first = by_name[skill.name]
            raise SourceError(
                f"{origin} has two skills {skill.name!r}, in {first.origin.subpath or '.'} and "
                f"{skill.origin.subpath or '.'}. Name the folder that you mean."
            )
    return found


def _chosen(origin: Origin, source: Opened, names: Sequence[str], everything: bool) -> tuple[list[str], list[Origin]]:
    every = source.skills.folders()
    market = read_marketplace(source.skills.other_file)
    elsewhere = [plugin.name for plugin in market.plugins.values() if plugin.external is not None]
    if everything:
        if elsewhere:
            logger.warning(
                "Plugins of %s that are in other places are not a part of all: %s. Take them with --skill NAME.",
                origin,
                some_of(elsewhere, _SHOWN),
            )
        return every, []
    if names:
        return _named(origin, source, every, names, market)
    if len(every) == 1:
        return every, []
    if not every:
        if elsewhere:
            raise SourceError(
                f"{origin} has plugins in other places. Name those you want with --skill: {some_of(elsewhere, _SHOWN)}."
            )
        raise SourceError(f"{origin} has no SKILL.md, so there is no skill in it.")
    listed = sorted(folder.rpartition("/")[2] or "." for folder in every)
    raise SourceError(
        f"{origin} has {len(every)} skills. Name those you want with --skill, or take all with --all: "
        f"{some_of(listed, _SHOWN)}."
    )


def _named(
    origin: Origin, source: Opened, every: Sequence[str], names: Sequence[str], market: Marketplace
) -> tuple[list[str], list[Origin]]:
    wanted = {normalise_name(name): name for name in names}
    likely = [folder for folder in every if normalise_name(folder.rpartition("/")[2]) in wanted]
    called = _names_of(source.skills.skill_files(likely))
    found = {folder: name for folder, name in called.items() if name in wanted}
    missing = set(wanted) - set(found.values())
    external: list[Origin] = []
    for name in sorted(missing):
        plugin = market.plugins.get(wanted[name]) or market.plugins.get(name)
        if plugin is None:
            continue
        missing.discard(name)
        if plugin.external is not None:
            external.append(plugin.external)
        else:
            base = origin.subpath if origin.kind is OriginKind.GIT else ""
            places = ["/".join(filter(None, (base, place))) for place in plugin.places()]
            inside = [one for one in every if any(_is_below(one, place) for place in places)]
            if not inside:
                raise SourceError(f"The plugin {name!r} of {origin} has no skills.")
            found |= _names_of(source.skills.skill_files(inside))
    if missing:
        rest = [folder for folder in every if folder not in called]
        others = _names_of(source.skills.skill_files(rest))
        found |= {folder: name for folder, name in others.items() if name in missing}
        missing -= set(found.values())
        if missing:
            first = wanted[min(missing)]
            said = next((one for one in market.problems if f"the plugin {first[:80]!r}" in one), "")
            if said:
                raise SourceError(f"{origin} has no skill {first!r}: {said}")
            there = [*called.values(), *others.values(), *market.plugins]
            near = nearest(first, there)
            hint = f" Did you mean {', '.join(near)}?" if near else f" It has: {some_of(sorted(there), _SHOWN)}."
            raise SourceError(f"{origin} has no skill {first!r}.{hint}")
    return sorted(found), external


def _is_below(folder: str, above: str) -> bool:
    return not above or folder == above or folder.startswith(above + "/")


def _names_of(files: Mapping[str, bytes]) -> dict[str, str]:
    found = {}
    for folder, data in files.items():
        try:
            parsed = parse_text(decoded(data), folder_name=folder.rpartition("/")[2] or "skill")
        except ParseError:
            continue
        found[folder] = parsed.metadata.name
    return found


def _take(
    origin: Origin, source: Opened, folders: Sequence[str], refused: MutableMapping[str, str] | None = None
) -> list[FetchedSkill]:
    if refused is None or len(folders) == 1:
        return _taken(origin, source, folders)
    try:
        return _taken(origin, source, folders)
    except SourceError:
        found = []
        for folder in folders:
            try:
                found += _taken(origin, source, [folder])
            except SourceError as error:
                refused[_full_path(origin, folder)] = error.message
        return found


def _taken(origin: Origin, source: Opened, folders: Sequence[str]) -> list[FetchedSkill]:
    found = []
    for folder, tree in source.skills.trees(folders).items():
        last = (folder or origin.subpath or origin.location.rstrip("/")).rpartition("/")[2]
        last = last.removesuffix(".git").removesuffix(".skill").removesuffix(".zip") or "skill"
        try:
            metadata = tree.parsed(last).metadata
        except ParseError as error:
            raise SourceError(f"The skill in {folder or '.'} of {origin}: {error.message}") from error
        if not metadata.name:
            raise SourceError(f"The skill in {folder or '.'} of {origin} has no usable name.")
        found.append(
            FetchedSkill(
                metadata.name,
                metadata.description,
                tree,
                Origin(origin.kind, origin.location, origin.ref, _full_path(origin, folder)),
                source.commit,
                tree.license(last),
                required_skills(metadata.metadata.get("requires-skills")),
                source.signer,
                source.signed,
            )
        )
    return sorted(found, key=lambda skill: skill.name)


def _full_path(origin: Origin, folder: str) -> str:
    """The folder in the whole source; git's folders are of the repository already."""
    if origin.kind is OriginKind.GIT or not origin.subpath:
        return folder
    return f"{origin.subpath}/{folder}".rstrip("/")


def required_skills(value: object) -> tuple[str, ...]:
    """What ``metadata.requires-skills`` says: a list, or one line with commas; see :mod:`.requires`."""
    if isinstance(value, str):
        return tuple(filter(None, (part.strip() for part in value.replace("\n", ",").split(","))))
    if isinstance(value, list):
        return tuple(str(part).strip() for part in value if isinstance(part, str) and part.strip())
    return ()


def whole_source(origin: Origin) -> Origin:
    """The source of a skill, without the folder in it."""
    return Origin(origin.kind, origin.location, origin.ref)
