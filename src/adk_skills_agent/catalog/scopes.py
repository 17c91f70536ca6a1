"""The places where skills are looked for, in the order of their precedence (C1 to C3, C8, C12).

Explicit folders come first, then the project, its ancestors up to the git root (nearer ones first), the user, the
administrator of the machine, installed packages, and sources of skills. Here a scope is only named; ``discovery``
reads it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from adk_skills_agent.catalog.settings import ENTRY_POINT_GROUP, RegistryConfig, home_folder, settings_folder
from adk_skills_agent.catalog.untrusted_files import Permits, is_inside, real_path, shown
from adk_skills_agent.format.models import Diagnostic, Severity

CLIENT_FOLDERS = (".adk/skills", ".agents/skills", ".claude/skills")
"""The folders where clients keep skills below a project or a home, in order of precedence (C2, C3)."""


class Scope(StrEnum):
    """Who put a skill where it was found; in the order of precedence."""

    EXPLICIT = "explicit"
    PROJECT = "project"
    ANCESTOR = "ancestor"
    USER = "user"
    ADMIN = "admin"
    PACKAGE = "package"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class ScanRoot:
    """One folder to look for skills in."""

    path: str  # absolute path of the folder
    scope: Scope  # who put it there
    max_depth: int | None = None  # how many folders below it a skill may be; None for no bound
    max_folders: int | None = None  # how many folders are visited; None for no bound
    boundary: str | None = None  # links must not lead out of this real path; None when they may
    # real paths; when given, skills outside all of them are not loaded (S4-23)
    trusted_roots: tuple[str, ...] | None = None
    only_this_folder: bool = False  # whether subfolders are left alone (a SKILL.md was named)
    must_exist: bool = False  # whether its absence is worth an error
    respect_gitignore: bool = False  # whether folders excluded by a ``.gitignore`` are passed over (C6)

    @property
    def permits(self) -> Permits | None:
        """Says of a real path whether skills of this root may be there; None when they may be anywhere."""
        return None if self.boundary is None and self.trusted_roots is None else self._permits

    def _permits(self, real: str) -> bool:
        allowed = self.trusted_roots
        return (self.boundary is None or is_inside(real, self.boundary)) and (
            allowed is None or any(is_inside(real, one) for one in allowed)
        )


def explicit_root(folder: str | os.PathLike[str], config: RegistryConfig) -> ScanRoot | Diagnostic:
    """The root for a folder, or a SKILL.md, that the owner named; ``~`` is the user's home.

    Returns the root, or a diagnostic when what was given is no path at all.
    """
    given = os.fspath(folder)
    if not given or "\0" in given or not _encodes(given):
        message = f"{given!r} is not a path. Name a folder of skills, a skill's folder, or a SKILL.md."
        return Diagnostic("no-such-folder", Severity.ERROR, message)
    path = given
    if given == "~" or given.startswith("~/"):
        home = home_folder(config)
        if home is not None:
            path = home + given[1:]
    elif given.startswith("~"):
        path = os.path.expanduser(given)
    # ".." after a link means the parent of where the link leads, which abspath would get wrong
    path = real_path(path) if ".." in path.split(os.sep) else os.path.abspath(path)
    only_this_folder = os.path.basename(path).lower() == "skill.md" and not os.path.isdir(path)
    return ScanRoot(
        path=os.path.dirname(path) if only_this_folder else path,
        scope=Scope.EXPLICIT,
        max_depth=config.explicit_max_depth,
        max_folders=config.explicit_max_folders,
        trusted_roots=_real_roots(config),
        only_this_folder=only_this_folder,
        must_exist=True,
        respect_gitignore=config.respect_gitignore,
    )


def scope_roots(cwd: str, config: RegistryConfig) -> list[ScanRoot]:
    """The folders of the project, ancestor, user and admin scopes, existing or not, in the order of precedence."""
    user = list(_user_folders(config))
    real_user = {real_path(path) for path in user}
    found: dict[str, ScanRoot] = {}
    top = real_path(project_root(cwd))
    folder = cwd
    scope = Scope.PROJECT
    while True:
        for name in CLIENT_FOLDERS:
            path = os.path.join(folder, name)
            # Working in the home itself: what is there is the user's, and needs no trust.
            if real_path(path) not in real_user:
                found.setdefault(path, _scanned(path, scope, top, config))
        if real_path(folder) == top or os.path.dirname(folder) == folder:
            break
        folder = os.path.dirname(folder)
        scope = Scope.ANCESTOR
    for path in user:
        found.setdefault(path, _scanned(path, Scope.USER, None, config))
    for admin_folder in config.admin_folders:
        path = os.path.abspath(admin_folder)
        found.setdefault(path, _scanned(path, Scope.ADMIN, None, config))
    return list(found.values())


def package_root(path: str, config: RegistryConfig) -> ScanRoot:
    """The root for a folder that an installed package offers."""
    return _scanned(path, Scope.PACKAGE, real_path(path), config)


def project_root(cwd: str) -> str:
    """The nearest folder, from cwd upwards, with a ``.git``; cwd itself when there is none.

    A ``.git`` above in a folder for everybody (``/tmp``) may be another user's, and makes no project (row 197).
    """
    folder = cwd
    while True:
        git = os.path.join(folder, ".git")  # a folder, or a file in a worktree or submodule
        if os.path.lexists(git) and (folder == cwd or not _is_everybodys(folder)):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return cwd
        folder = parent


def _is_everybodys(folder: str) -> bool:
    """Whether all users make files there, each their own: the sticky bit and writable by others."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def place_name(root: ScanRoot) -> str:
    """A root as a person would call it."""
    return f"{root.scope.value} scope {shown(root.path)}"


def _user_folders(config: RegistryConfig) -> Iterator[str]:
    home = home_folder(config)
    if home is not None:
        for name in CLIENT_FOLDERS:
            yield os.path.join(home, name)
    settings = settings_folder(config)
    if settings is not None:
        yield os.path.join(settings, "skills")


def _scanned(path: str, scope: Scope, boundary: str | None, config: RegistryConfig) -> ScanRoot:
    return ScanRoot(
        path=path,
        scope=scope,
        max_depth=config.max_depth,
        max_folders=config.max_folders,
        boundary=boundary,
        trusted_roots=_real_roots(config),
        respect_gitignore=config.respect_gitignore,
    )


def _real_roots(config: RegistryConfig) -> tuple[str, ...] | None:
    if config.trusted_roots is None:
        return None
    return tuple(real_path(os.path.expanduser(root)) for root in config.trusted_roots)


def _encodes(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


# Skills that installed packages offer by an entry point of the group ``adk_skills_agent.skills`` (C12).
#
# The value names a module whose folder holds skills, ``my_package.skills`` for instance. Nothing of the package is
# imported: only where it lies is asked for.


def package_folders() -> tuple[list[str], list[Diagnostic]]:
    """The folders that installed packages offer, sorted by the entry point's name, and what is wrong with others."""
    from importlib.metadata import entry_points

    folders: list[str] = []
    problems: list[Diagnostic] = []
    points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value))
    for point in points:
        module = point.value.partition(":")[0].strip()
        found = [path for path in _folders_of(module) if path not in folders]
        if found or any(path in folders for path in _folders_of(module)):
            folders.extend(found)
            continue
        message = (
            f"The entry point {point.name!r} = {point.value!r} of the group {ENTRY_POINT_GROUP} does not name a "
            "package with a folder on disk, so it gives no skills. Reinstall the package, or report it to its author."
        )
        problems.append(Diagnostic("broken-entry-point", Severity.ERROR, message))
    return folders, problems


def _folders_of(module: str) -> Iterator[str]:
    """The folders of a package. The parents are not imported, as ``find_spec`` of a dotted name would do."""
    from importlib.util import find_spec

    top, *below = module.split(".")
    try:
        spec = find_spec(top) if top else None
    except (ImportError, ValueError, AttributeError):
        return
    for location in (spec.submodule_search_locations if spec is not None else None) or ():
        folder = os.path.join(os.path.abspath(location), *below)
        if os.path.isdir(folder):
            yield folder
        elif below and os.path.isfile(folder + ".py"):
            yield os.path.dirname(folder)
