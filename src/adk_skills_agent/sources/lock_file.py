"""``adk-skills.lock``: where each installed skill came from, and the digest of each of its files; and what is wanted.

The lock is TOML in a stable order, for machines; ``[tool.adk-skills.skills]`` of ``pyproject.toml`` (or of
``adk-skills.toml``) says what is wanted, for people, and keeps their comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.format import normalise_name
from adk_skills_agent.platforms import open_regular
from adk_skills_agent.sources.origin import Origin, OriginKind, check_locked, read_origin
from adk_skills_agent.sources.store import write_aside
from adk_skills_agent.sources.tree import read_regular, tree_digest

LOCK_FILE = "adk-skills.lock"
SKILLS_FOLDER = ".agents/skills"
VERSION = 1
_MAX_BYTES = 64 << 20
_MAX_OTHER_CHARS = 8 << 20  # of a lock in another form: tomllib takes a second and 30 MB of memory for a million
_HEAD = "# Made by adk-skills; commit it. Change it with: adk-skills add, update, remove.\n"
_TEXTS = ("ref", "subpath", "commit", "base", "license", "signer", "signed", "time")


@dataclass(frozen=True, slots=True)
class LockedSkill:
    """One installed skill, exactly."""

    name: str  # what it is called
    path: str  # where it is installed, relative to the lock, with ``/``
    origin: Origin  # Where it came from. A path in the project is relative to the lock.
    tree: str  # the digest of all its files as they are installed
    files: Mapping[str, str]  # path to digest
    executables: frozenset[str] = frozenset()  # the files that may be executed
    commit: str = ""  # what it was fetched at
    base: str = ""  # the digest of the tree the source had, where local edits were merged into it; else empty
    license: str = ""  # what it says of its licence
    signer: str = ""  # who had signed it
    time: str = ""  # when it was locked, in UTC
    requires: tuple[str, ...] = ()  # the skills it needs
    signed: str = ""  # when it was signed, of an archive, in UTC

    @property
    def source_tree(self) -> str:
        """The digest of the tree the source had."""
        return self.base or self.tree

    def to_table(self) -> dict[str, Any]:
        """As the lock has it."""
        table: dict[str, Any] = {
            "name": self.name,
            "path": self.path,
            "kind": self.origin.kind.value,
            "source": self.origin.location,
        }
        values = {
            "ref": self.origin.ref,
            "subpath": self.origin.subpath,
            "commit": self.commit,
            "tree": self.tree,
            "base": self.base,
            "license": self.license,
            "signer": self.signer,
            "signed": self.signed,
            "time": self.time,
        }
        table |= {key: value for key, value in values.items() if value}
        if self.requires:
            table["requires"] = list(self.requires)
        if self.executables:
            table["executables"] = sorted(self.executables)
        table["files"] = dict(sorted(self.files.items()))
        return table


@dataclass(frozen=True, slots=True)
class SkillLock:
    """What a lock holds: skills by name, sorted."""

    skills: Mapping[str, LockedSkill] = field(default_factory=dict)

    def having(self, added: Iterable[LockedSkill], without: Iterable[str] = ()) -> SkillLock:
        """The same with some skills added or replaced, and others left out."""
        gone = set(without)
        skills = {name: skill for name, skill in self.skills.items() if name not in gone}
        skills |= {skill.name: skill for skill in added}
        return SkillLock(dict(sorted(skills.items())))

    def text(self) -> str:
        """The content of the file; the same for the same skills."""
        return "\n".join([f"{_HEAD}version = {VERSION}\n", *(_written(one.to_table()) for one in self.skills.values())])


def read_skill_lock(path: Path) -> SkillLock:
    """The lock in a file; an empty one when there is no such file.

    Raises ``ConfigError`` when it cannot be read, or is no lock.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return SkillLock()
    except OSError as error:
        raise ConfigError(f"The lock {path} cannot be read: {error.strerror}.") from error
    if data.lstrip()[:1] == b"{":
        raise ConfigError(f"{path} is a lock of packages (adk-skills prepare), not of skills. Move one of them.")
    try:
        text = data.decode("utf-8")
        table = _as_written(text) or _any_toml(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The lock {path} is no TOML: {error}. Restore it from version control.") from error
    if "version" not in table:
        raise ConfigError(f"The lock {path} is not whole: it has no version. Restore it from version control.")
    if table["version"] != VERSION:
        raise ConfigError(f"The lock {path} has the version {table['version']!r}, not {VERSION}. Update adk-skills.")
    listed = table.get("skill", [])
    skills: dict[str, LockedSkill] = {}
    for number, one in enumerate(listed if isinstance(listed, list) else [listed]):
        try:
            if not isinstance(one, Mapping):
                raise TypeError("it is no table")
            skill = _locked(one)
        except (TypeError, ValueError, KeyError, AttributeError, ConfigError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
            raise ConfigError(
                f"The lock {path}: entry {number + 1} cannot be used: {why}. Restore it from version control."
            ) from error
        if skill.name in skills:
            raise ConfigError(f"The lock {path} has {skill.name!r} twice. Merge it again, then: adk-skills sync.")
        skills[skill.name] = skill
    return SkillLock(dict(sorted(skills.items())))


# The form that the lock is written in: tables of plain strings, a line each. TOML of any other form is read by tomllib;
# this one by three patterns, because a lock of 1,000 skills takes tomllib longer than all their bytes take sha256.

_PLAIN = r'"[^"\\\x00-\x1f\x7f]*+"'
_KEY = rf"(?:[A-Za-z0-9_-]++|{_PLAIN})"
_LINES = rf"(?:{_KEY} = {_PLAIN}\n)*+"
_ARRAYS = rf"(?:[a-z]++ = \[\n(?:    {_PLAIN},\n)++\]\n)*+"
_SKILL = re.compile(rf"\n\[\[skill\]\]\n({_LINES})({_ARRAYS})\n\[skill\.files\]\n({_LINES})")
_LINE = re.compile(rf"({_KEY}) = ({_PLAIN})\n")
_ARRAY = re.compile(r"([a-z]+) = \[\n(.*?)\]\n", re.DOTALL)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def _written(table: Mapping[str, Any]) -> str:
    lines = ["[[skill]]"]
    lines += [f"{_key(key)} = {_string(value)}" for key, value in table.items() if isinstance(value, str)]
    for key, value in table.items():
        if isinstance(value, list):
            lines += [f"{key} = [", *(f"    {_string(one)}," for one in value), "]"]
    lines += ["", "[skill.files]", *(f"{_key(path)} = {_string(digest)}" for path, digest in table["files"].items())]
    return "\n".join(lines) + "\n"


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _string(text)


def _string(text: str) -> str:
    quoted = f'"{text}"'
    if re.fullmatch(_PLAIN, quoted):
        return quoted
    from tomlkit import string

    return string(text).as_string()


def _any_toml(text: str) -> dict[str, Any]:
    from adk_skills_agent.settings import parsed_toml

    if len(text) > _MAX_OTHER_CHARS:
        raise ValueError(f"it is not as adk-skills writes it, and longer than {_MAX_OTHER_CHARS:,} characters")
    return parsed_toml(text)


def _as_written(text: str) -> dict[str, Any] | None:
    """The table of a lock in just the form that :func:`_written` gives; None for any other text."""
    start = f"{_HEAD}version = {VERSION}\n"
    if not text.startswith(start):
        return None
    at, skills = len(start), []
    while at < len(text):
        found = _SKILL.match(text, at)
        if found is None:
            return None
        values, files = _LINE.findall(found[1]), _quoted_lines(found[3])
        arrays = [(key, [one[5:-2] for one in body.split("\n")[:-1]]) for key, body in _ARRAY.findall(found[2])]
        table: dict[str, Any] = {key: value[1:-1] for key, value in values} | dict(arrays)
        table["files"] = dict(files)
        if len(table) != len(values) + len(arrays) + 1 or len(table["files"]) != len(files):
            return None  # something is there twice: tomllib says where
        skills.append(table)
        at = found.end()
    return {"version": VERSION, "skill": skills}


def _quoted_lines(lines: str) -> list[tuple[str, str]]:
    """Keys and values of lines that were matched; nearly every key is a path with a dot, and so in quotes."""
    pieces = lines.split('"')
    if len(pieces) == 4 * lines.count("\n") + 1:
        return list(zip(pieces[1::4], pieces[3::4], strict=True))
    return [(key.strip('"'), value[1:-1]) for key, value in _LINE.findall(lines)]


def _locked(one: Mapping[str, Any]) -> LockedSkill:
    name, path, files = one["name"], one["path"], one["files"]
    if not isinstance(name, str) or normalise_name(name) != name or not name:
        raise ValueError(f"{name!r} is no name of a skill")
    if path != f"{SKILLS_FOLDER}/{name}":
        raise ValueError(f"the path {path!r} is no place for it")
    texts = {key: one.get(key, "") for key in _TEXTS}
    if set(map(type, (*texts.values(), *files, *files.values(), one["source"]))) != {str}:
        raise TypeError("a value is no text")
    executables = frozenset(one.get("executables", ()))
    if tree_digest(files, executables) != one["tree"]:
        raise ValueError(f"the digests of the files of {name!r} are not those of its tree")
    origin = Origin(OriginKind(one["kind"]), one["source"], texts["ref"], texts["subpath"])
    check_locked(origin, texts["commit"])
    return LockedSkill(
        name,
        path,
        origin,
        one["tree"],
        dict(files),
        executables,
        texts["commit"],
        texts["base"],
        texts["license"],
        texts["signer"],
        texts["time"],
        tuple(one.get("requires", ())),
        texts["signed"],
    )


def write_skill_lock(path: Path, lock: SkillLock) -> None:
    """Write a lock, when it says something else than the one that is there.

    Raises ``OSError`` when the disk refuses.
    """
    data = lock.text().encode()
    try:
        if read_regular(path) == data:
            return
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, data)


# What is wanted, for people.

_TABLE = ("tool", "adk-skills", "skills")


OWN_MANIFEST = "adk-skills.toml"
_MISTAKEN = ("adk_skills", "adk-skill", "adk_skill")


def manifest_path(root: Path) -> Path:
    """The file that says what is wanted: ``pyproject.toml`` or ``adk-skills.toml``, whichever says it.

    Raises ``ConfigError`` when both do: one of them would count for nothing, with what it demands (row 465); or when
    there are both, and one cannot be read.
    """
    project, own = root / "pyproject.toml", root / OWN_MANIFEST
    if not own.is_file():
        return project if project.is_file() else own
    if not project.is_file() or not _wants(project):
        return own
    if _wants(own):
        raise ConfigError(
            f"{project} and {own} both say what is wanted ({', '.join(_WANTS)}). Put it into one of them."
        )
    return project


_WANTS = ("skills", "require-signature", "signers")
"""What of ``[tool.adk-skills]`` makes a file the manifest; other tables there have settings."""


def _wants(path: Path) -> bool:
    from adk_skills_agent.settings import read_toml

    tools = read_toml(path, "project file").get(_TABLE[0])
    table = tools.get(_TABLE[1]) if isinstance(tools, Mapping) else None
    # One that is misspelled, too: whoever reads the manifest says so.
    return isinstance(table, Mapping) and any(key in _WANTS or "sign" in key for key in table)


def read_wanted(path: Path) -> dict[str, Origin]:
    """The skills that a manifest asks for, by name; none when there is no such file.

    Raises ``ConfigError`` when it cannot be read, or an entry is wrong.
    """
    from adk_skills_agent.settings import read_toml

    if not path.is_file():
        return {}
    table: Any = read_toml(path, "project file")
    tools = table.get(_TABLE[0])
    mistaken = [key for key in table if key != _TABLE[0]] if path.name == OWN_MANIFEST else []
    mistaken += [f"{_TABLE[0]}.{key}" for key in tools if key in _MISTAKEN] if isinstance(tools, Mapping) else []
    if mistaken:
        raise ConfigError(f"{path}: {mistaken[0]} counts for nothing. Write it under [{'.'.join(_TABLE[:2])}].")
    for key in _TABLE:
        table = table.get(key) if isinstance(table, Mapping) else None
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: [{'.'.join(_TABLE)}] must be a table of names and sources.")
    wanted = {}
    for name, value in table.items():
        source = value.get("source") if isinstance(value, Mapping) else value
        if not isinstance(source, str):
            raise ConfigError(f"{path}: the skill {name!r} has no source. Write {name} = 'owner/repo'.")
        ref = value.get("ref") if isinstance(value, Mapping) else None
        folder = value.get("path") if isinstance(value, Mapping) else None
        if not isinstance(ref, str | None) or not isinstance(folder, str | None):
            raise ConfigError(f"{path}: the skill {name!r} has a ref or a path that is no text. Put it in quotes.")
        try:
            origin = read_origin(source, ref=ref, base=path.parent, missing_ok=True)
        except ConfigError as error:
            raise ConfigError(f"{path}: the skill {name!r}: {error.message}") from error
        wanted[name] = origin if folder is None else Origin(origin.kind, origin.location, origin.ref, folder)
    return wanted


def changed_manifest(path: Path, changes: Mapping[str, LockedSkill | None]) -> bytes | None:
    """A manifest with skills added, replaced or (None) removed; comments and order of the rest stay.

    Returns what to write; None when nothing changes. Raises ``ConfigError`` when the manifest cannot be read.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    if not path.exists() and not any(changes.values()):
        return None
    try:
        text = read_regular(path).decode("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"The project file {path} cannot be read: {why}. Repair it, or move it away.") from error
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for number, key in enumerate(_TABLE):
            if key not in table:
                table[key] = tomlkit.table(is_super_table=number < len(_TABLE) - 1)
            table = table[key]
            if not isinstance(table, MutableMapping):
                raise ConfigError(f"{path}: [{'.'.join(_TABLE[: number + 1])}] must be a table. Repair it.")
        for name, skill in changes.items():
            if skill is None:
                table.pop(name, None)
                continue
            entry = tomlkit.inline_table()
            entry["source"] = _source_text(skill.origin)
            if skill.origin.ref:
                entry["ref"] = skill.origin.ref
            if skill.origin.subpath:
                entry["path"] = skill.origin.subpath
            table[name] = entry
        made = tomlkit.dumps(document)
        if "\r\n" in text and text.count("\n") == text.count("\r\n"):  # as an editor of Windows left it
            made = made.replace("\r\n", "\n").replace("\n", "\r\n")
    except (TOMLKitError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be changed: {error}. Repair it.") from error
    return made.encode() if made != text else None


def _source_text(origin: Origin) -> str:
    is_local = origin.kind in {OriginKind.FOLDER, OriginKind.ARCHIVE} and "://" not in origin.location
    if is_local and not Path(origin.location).is_absolute():
        return f"./{origin.location}"
    return str(Origin(origin.kind, origin.location))
