"""Walks one folder of skills: what is there, with bounds, and re-reading only what changed (C4 to C7).

An unchanged folder costs one stat, an unchanged skill two. The order of the result is the order of the walk: upper
folders before lower ones, by name within a folder; then what is nested in a skill; then what is reached by a link.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog.index import SKILL_FILE, Folder, IndexedSkill, Scan
from adk_skills_agent.catalog.scopes import ScanRoot
from adk_skills_agent.catalog.untrusted_files import (
    NOT_SCANNED,
    RESOURCE_FOLDERS,
    VIRTUAL_ENVIRONMENT_MARK,
    is_folder,
    is_inside,
    is_settled,
    leads_to_file,
    real_path,
    shown,
    skill_file_opener,
    stamp_of,
    stamp_of_link,
)
from adk_skills_agent.errors import CatalogError, SkillsError
from adk_skills_agent.format import parse_head
from adk_skills_agent.format.models import Diagnostic, Severity
from adk_skills_agent.format.reading import ALMOST_SKILL_FILES
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK


def scan(root: ScanRoot, known: Mapping[str, Folder]) -> Scan:
    """Walk a root and read the head of every SKILL.md that is new or changed.

    ``known`` has the folders of an earlier scan of this root. Returns the skills and everything an owner should know.
    Bad input never raises: it becomes a diagnostic.
    """
    return _Walk(root, known).run()


@dataclass(slots=True, eq=False)
class _Place:
    """A folder to visit: how it is reached, and where it really is."""

    path: str
    real: str
    depth: int
    owner: str  # the folder of the skill it is nested in, or ""
    is_link: bool


class _Walk:
    def __init__(self, root: ScanRoot, known: Mapping[str, Folder]) -> None:
        self.root = root
        self.known = known
        self.started_ns = time.time_ns()
        self.result = Scan()
        self.root_real = real_path(root.path)
        self.seen: dict[tuple[int, int], str] = {}
        self.plain: deque[_Place] = deque()
        self.nested: deque[_Place] = deque()
        self.linked: deque[_Place] = deque()
        self.open_skill_file = skill_file_opener(root.permits)
        self.too_deep: list[str] = []
        self.ignored: Callable[[str, str], bool] | None = None
        self.root_ignored = False
        if root.respect_gitignore:
            ignores = GitIgnore(root.path)
            self.ignored = ignores.excludes_folder
            self.root_ignored = ignores.excludes_root(root.path)

    def run(self) -> Scan:
        if not self._root_is_allowed():
            return self.result
        if self.root_ignored:
            sentence = "git ignores this folder, and respect_gitignore=True was asked for, so it has no skills."
            self._say("ignored-by-git", Severity.WARNING, sentence, self.root.path)
            return self.result
        self.plain.append(_Place(self.root.path, self.root_real, 0, "", is_link=False))
        visited = 0
        while self.plain or self.nested or self.linked:
            if self.root.max_folders is not None and visited >= self.root.max_folders:
                self._say_folders_cut()
                break
            queue = self.plain or self.nested or self.linked
            place = queue.popleft()
            try:
                visited += self._visit(place)
            except (OSError, CatalogError) as error:  # it changed while it was looked at
                self._say_unreadable(place, error)
        self._say_too_deep()
        if len(self.result.folders) != len(self.known):
            self.result.learned = True
        return self.result

    def _root_is_allowed(self) -> bool:
        place = _Place(self.root.path, self.root_real, 0, "", is_link=True)
        if self.root.boundary is not None and not self._link_is_allowed(place):
            return False
        allowed = self.root.trusted_roots
        if allowed is None or any(is_inside(self.root_real, one) or is_inside(one, self.root_real) for one in allowed):
            return True
        self._say(
            "outside-trusted-roots",
            Severity.WARNING,
            f"The folder {shown(self.root_real)} is in none of the trusted roots, so its skills are not loaded. "
            "Add it to trusted_roots to load them.",
            self.root.path,
        )
        return False

    def _visit(self, place: _Place) -> int:
        """Visit one folder; return 1 when it counts as visited."""
        path = place.path
        try:
            status = os.stat(path)
        except OSError as error:
            self._say_unreadable(place, error)
            return 0
        if place.is_link and not self._link_is_allowed(place):
            return 0
        if not stat.S_ISDIR(status.st_mode):
            self._say("not-a-folder", Severity.ERROR, f"{shown(path)} is not a folder. Name a folder of skills.", path)
            return 0
        identity = (status.st_dev, status.st_ino)
        earlier = self.seen.get(identity)
        if earlier is not None:
            self._say(
                "same-folder",
                Severity.INFO,
                f"{shown(path)} is the same folder as {shown(earlier)}, which was already read.",
                path,
                (earlier,),
            )
            return 0
        self.seen[identity] = path

        old = self.known.get(path)
        stamp = stamp_of(status)
        if old is not None and old.settled and old.stamp == stamp and self.ignored is None:
            folder = old
        else:
            listed = self._list(place, status)
            if listed is None:
                return 1
            folder = listed
            self.result.learned |= folder.settled or old is None
        self.result.folders[path] = folder
        if folder.problems:
            self.result.problems.extend(folder.problems)
        if folder.skill_file:
            skill = folder.skill = self._read_skill(place, folder, old.skill if old is not None else None)
            if skill is not None:
                self.result.skills.append(skill)
                if skill.problems:
                    self.result.problems.extend(skill.problems)
        if folder.children or folder.links:
            self._queue_children(place, folder)
        return 1

    def _list(self, place: _Place, status: os.stat_result) -> Folder | None:
        path = place.path
        stamp = stamp_of(status)
        settled = is_settled(status, self.started_ns)
        problems: list[Diagnostic] = []
        children: list[str] = []
        links: list[str] = []
        skill_files: list[str] = []
        almost = ""
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if name != SKILL_FILE and name.lower() != "skill.md":
                        if entry.is_dir(follow_symlinks=False):
                            if name not in NOT_SCANNED:
                                children.append(name)
                        elif entry.is_symlink():
                            if name not in NOT_SCANNED and not leads_to_file(entry):
                                links.append(name)
                        elif name == VIRTUAL_ENVIRONMENT_MARK and path != self.root.path:
                            return Folder(path, stamp, settled, (), (), "")
                        elif name.lower() in ALMOST_SKILL_FILES:
                            almost = name
                    elif is_folder(entry):
                        problems.append(_skill_file_is_folder(entry.path))
                    else:
                        skill_files.append(name)
        except OSError as error:
            self._say_unreadable(place, error)
            return None
        skill_file = ""
        if skill_files:
            skill_files.sort()  # SKILL.md is first: upper case sorts before lower case
            skill_file = skill_files[0]
            if skill_file != SKILL_FILE:
                problems.append(_wrong_spelling(path, skill_file))
            children = [name for name in children if name not in RESOURCE_FOLDERS]
        elif almost and RESOURCE_FOLDERS.issuperset(children):  # in a folder of skills it may be a list of them
            problems.append(_almost_skill_file(path, almost))
        for names in (children, links):
            if names:
                names.sort()
                names[:] = [name for name in names if self._can_be_spelled(path, name, problems)]
        if self.ignored is not None:
            for name in [name for name in children if self.ignored(path, name)]:
                children.remove(name)
                self._say("ignored-by-git", Severity.INFO, f"git ignores {shown(name)}; passed over.", f"{path}/{name}")
        return Folder(path, stamp, settled, tuple(children), tuple(links), skill_file, problems=tuple(problems))

    @staticmethod
    def _can_be_spelled(path: str, name: str, problems: list[Diagnostic]) -> bool:
        if name.isascii() or name.encode("utf-8", "replace").decode() == name:
            return True
        place = shown(os.path.join(path, name))
        message = f"The name of the folder {place} is not UTF-8, so it is not searched for skills. Rename it."
        problems.append(Diagnostic("undecodable-name", Severity.WARNING, message, place))
        return False

    def _queue_children(self, place: _Place, folder: Folder) -> None:
        if self.root.only_this_folder:
            return
        base = place.path if place.path.endswith("/") else place.path + "/"
        real_base = place.real if place.real.endswith("/") else place.real + "/"
        depth = place.depth + 1
        owner = place.path if folder.skill_file else place.owner
        if self.root.max_depth is not None and depth > self.root.max_depth:
            if not owner:
                self.too_deep.append(place.path)
            return
        queue = self.nested if owner else self.plain
        for name in folder.children:
            queue.append(_Place(base + name, real_base + name, depth, owner, is_link=False))
        if owner:
            return  # a link inside a skill is one of its files, and Skill.files() reports on it
        for name in folder.links:
            self.linked.append(_Place(base + name, real_path(base + name), depth, "", is_link=True))

    def _link_is_allowed(self, place: _Place) -> bool:
        boundary = self.root.boundary
        if boundary is not None and not is_inside(place.real, boundary):
            self._say(
                "link-leaves-scope",
                Severity.WARNING,
                f"{shown(place.path)} is a link to {shown(place.real)}, outside {shown(boundary)}, so it is not "
                "followed. Copy the skill into the project, or name its folder explicitly.",
                place.path,
            )
            return False
        if not is_inside(place.real, self.root_real):
            self._say(
                "linked-folder",
                Severity.INFO,
                f"{shown(place.path)} is a link to {shown(place.real)}.",
                place.path,
            )
        return True

    def _read_skill(self, place: _Place, folder: Folder, old: IndexedSkill | None) -> IndexedSkill | None:
        if old is not None and old.settled and not place.owner and self.root.trusted_roots is None:
            # the way of nearly every skill at nearly every look: a regular file that is what it was
            try:
                if stamp_of(os.lstat(old.location)) == old.stamp:
                    return old
            except OSError:
                pass  # said below, with its reason
        location = f"{folder.path}/{folder.skill_file}"
        allowed = self.root.trusted_roots
        if allowed is not None and not any(is_inside(place.real, one) for one in allowed):
            self._say(
                "outside-trusted-roots",
                Severity.WARNING,
                f"The skill in {shown(place.real)} is in none of the trusted roots, so it is not loaded.",
                location,
            )
            return None
        try:
            status = os.lstat(location)
        except OSError as error:
            self._say("unreadable-skill", Severity.ERROR, f"{shown(location)} cannot be read: {_why(error)}.", location)
            return None
        stamp = stamp_of(status)
        settled = is_settled(status, self.started_ns)
        if stat.S_ISLNK(status.st_mode):
            target = real_path(location)
            if not is_inside(target, place.real):
                self._say(
                    "link-leaves-skill",
                    Severity.ERROR,
                    f"{shown(location)} is a link to {shown(target)}, outside its skill, so it is not read. "
                    "Put a copy in its place.",
                    location,
                )
                return None
            try:
                linked = os.stat(location)
            except OSError as error:
                message = f"{shown(location)} is a link that leads nowhere: {_why(error)}. Repair it."
                self._say("unreadable-skill", Severity.ERROR, message, location)
                return None
            stamp = stamp_of_link(status, linked)
            settled = settled and is_settled(linked, self.started_ns)
        if place.owner:
            self.result.nested.add(location)
            self._say(
                "nested-skill",
                Severity.INFO,
                f"The skill in {shown(folder.path)} is inside the folder of the skill in {shown(place.owner)}; "
                "both are loaded.",
                location,
                (place.owner,),
            )
        if old is not None and old.settled and old.stamp == stamp:
            return old
        skill = self._parse(location, stamp, settled)
        if skill is None:
            return None
        if old is not None and skill.settled == old.settled and skill.says_the_same(old):
            return old
        self.result.learned = True
        return skill

    def _parse(self, location: str, stamp: int, settled: bool) -> IndexedSkill | None:
        try:
            parsed = parse_head(Path(location), self.open_skill_file)
        except (SkillsError, OSError, ValueError, RecursionError) as error:
            reason = error.message if isinstance(error, SkillsError) else f"{shown(location)} cannot be read: {error}."
            self._say("unreadable-skill", Severity.ERROR, reason, location)
            return None
        if not parsed.metadata.name:
            self._say(
                "no-name",
                Severity.ERROR,
                f"{shown(location)} has no usable name and neither has its folder. Give it a name.",
                location,
            )
            return None
        # The stamp is from before reading: what was changed since then has another one, and is read again.
        return IndexedSkill.from_metadata(location, stamp, settled, parsed.metadata, parsed.diagnostics)

    def _say(self, code: str, severity: Severity, message: str, file: str, about: tuple[str, ...] = ()) -> None:
        problem = Diagnostic(code, severity, message, shown(file))
        self.result.problems.append(problem)
        if about:
            self.result.about[problem] = about

    def _say_unreadable(self, place: _Place, error: OSError | CatalogError) -> None:
        path = place.path
        if isinstance(error, FileNotFoundError):
            if place.is_link:
                target = shown(place.real)
                message = f"{shown(path)} is a link to {target}, which does not exist. Remove or repair the link."
                self._say("broken-link", Severity.WARNING, message, path)
            elif path == self.root.path:
                if self.root.must_exist:
                    message = f"There is no folder {shown(path)}. Its skills will be found when it appears."
                    self._say("no-such-folder", Severity.ERROR, message, path)
            else:
                self._say("vanished", Severity.INFO, f"{shown(path)} went away during the scan.", path)
            return
        self._say(
            "unreadable-folder",
            Severity.ERROR,
            f"The folder {shown(path)} cannot be read: {_why(error)}. The skills in it, if any, are not loaded.",
            path,
        )

    def _say_folders_cut(self) -> None:
        waiting = len(self.plain) + len(self.nested) + len(self.linked)
        first = (self.plain or self.nested or self.linked)[0].path
        self._say(
            "too-many-folders",
            Severity.WARNING,
            f"The scan of {shown(self.root.path)} stopped after {self.root.max_folders} folders; at least {waiting} "
            f"were not visited, the first is {shown(first)}. Raise max_folders, or name the folder explicitly.",
            self.root.path,
        )

    def _say_too_deep(self) -> None:
        if self.too_deep:
            self._say(
                "too-deep",
                Severity.WARNING,
                f"{len(self.too_deep)} folder(s) below {shown(self.root.path)} have subfolders deeper than "
                f"{self.root.max_depth} levels, which were not visited; the first is {shown(self.too_deep[0])}. "
                "Raise max_depth, or name the folder explicitly.",
                self.root.path,
            )


def _wrong_spelling(path: str, skill_file: str) -> Diagnostic:
    location = os.path.join(path, skill_file)
    message = f"{shown(location)} is not called exactly {SKILL_FILE}; other clients will not find it. Rename it."
    return Diagnostic("skill-file-name", Severity.WARNING, message, location)


def _almost_skill_file(path: str, name: str) -> Diagnostic:
    location = os.path.join(path, name)
    message = f"{shown(location)} is not called {SKILL_FILE}, so it is no skill. Rename it."
    return Diagnostic("skill-file-name", Severity.WARNING, message, location)


def _skill_file_is_folder(location: str) -> Diagnostic:
    message = f"{shown(location)} is a folder, not a file, so it is not a skill. Rename it, or make it a file."
    return Diagnostic("not-a-file", Severity.ERROR, message, shown(location))


def _why(error: OSError | CatalogError) -> str:
    if isinstance(error, CatalogError):
        return error.message.rstrip(".")
    return error.strerror or type(error).__name__


# Folders that a ``.gitignore`` excludes (C6): the rules of gitignore(5) as far as they concern folders.

_MAX_BYTES = 256 << 10
_MOST_CHARS = 4096  # of a line; no path is longer
_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class _Rule:
    parts: tuple[re.Pattern[str] | None, ...]  # one a path part; None is ``**``
    excludes: bool

    def fits(self, path: list[str]) -> bool:
        """Whether the rule names the folder. Looks back to the last ``**`` only, so the time is bounded."""
        at = part = 0
        retry: tuple[int, int] | None = None
        while at < len(path):
            pattern = self.parts[part] if part < len(self.parts) else _NOTHING
            if pattern is None:
                if part == len(self.parts) - 1:
                    return True  # what is below
                retry = (at, part)
                part += 1
            elif pattern.fullmatch(path[at]):
                at += 1
                part += 1
            elif retry is not None:
                retry = (retry[0] + 1, retry[1])
                at, part = retry[0], retry[1] + 1
            else:
                return False
        return part == len(self.parts)


class GitIgnore:
    """What git ignores in a tree: its ``.gitignore`` files, those above it up to the repository's root, and
    ``.git/info/exclude``; read as a scan comes by. Not the user's own ``core.excludesFile``.
    """

    def __init__(self, root: str) -> None:
        self._top = _repository(root) or root
        self._rules: dict[str, tuple[_Rule, ...]] = {}

    def excludes_root(self, root: str) -> bool:
        """Whether the scanned folder itself is excluded, or one that it lies in."""
        at = self._top
        for name in root[len(self._top) :].strip("/").split("/"):
            if name and self.excludes_folder(at, name):
                return True
            at = f"{at}/{name}"
        return False

    def excludes_folder(self, parent: str, name: str) -> bool:
        """Whether the folder ``name`` in ``parent`` is excluded: nearest file first, there the last rule that fits."""
        at = parent
        below = [name]
        while True:
            excluded = self._fits_last(f"{at}/.gitignore", below)
            if excluded is not None:
                return excluded
            if at == self._top or len(at) <= len(self._top):
                return self._fits_last(f"{at}/.git/info/exclude", below) or False
            at, _, last = at.rpartition("/")
            below.insert(0, last)

    def _fits_last(self, file: str, path: list[str]) -> bool | None:
        """The verdict of a file's last rule that names the folder; None without such a rule."""
        rules = self._rules.get(file)
        if rules is None:
            rules = self._rules[file] = _read(file)
        return next((rule.excludes for rule in reversed(rules) if rule.fits(path)), None)


def _repository(folder: str) -> str | None:
    """The root of the git repository that a folder lies in."""
    while folder:
        if os.path.lexists(f"{folder}/.git"):
            return folder
        folder = folder.rpartition("/")[0]
    return None


def _read(path: str) -> tuple[_Rule, ...]:
    try:
        descriptor = os.open(path, os.O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)
    except OSError:
        return ()  # none, or not readable for git either
    try:
        text = os.read(descriptor, _MAX_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    finally:
        os.close(descriptor)
    rules = (_rule(line) for line in text.splitlines())
    return tuple(rule for rule in rules if rule is not None)


def _rule(line: str) -> _Rule | None:
    if len(line) > _MOST_CHARS:
        return None
    plain = line.rstrip(" ")
    line = f"{plain} " if plain.endswith("\\") and plain != line else plain  # the first blank may be a part of the name
    if not line or line.startswith("#"):
        return None
    excludes = not line.startswith("!")
    line = line.removeprefix("!").removesuffix("/")
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    names = line.split("/") if anchored else ["**", line]
    try:
        return _Rule(tuple(None if name == "**" else _pattern(name) for name in names), excludes)
    except re.error:
        return None  # git too takes a broken pattern as one that matches nothing


def _pattern(name: str) -> re.Pattern[str]:
    """The pattern of one part of a path. Each ``*`` takes as little as it can and keeps it, so that nothing is tried
    twice: what follows one star can only be found later, never better.
    """
    pieces = [""]
    for part in re.findall(r"\*+|\[!?\]?[^]]*\]|\\.|.", name, re.DOTALL):
        if part.startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += _one(part)
    start, *others = pieces
    if others:
        *middle, end = others
        start += "".join(f"(?>.*?{piece})" for piece in middle) + f".*{end}"
    return re.compile(start, re.DOTALL)


def _one(part: str) -> str:
    if part == "?":
        return "."
    if len(part) > 2 and part.startswith("["):
        return "[" + ("^" + part[2:-1] if part[1] == "!" else part[1:-1]).replace("\\", "\\\\") + "]"
    return re.escape(part[1:] if len(part) == 2 and part.startswith("\\") else part)
