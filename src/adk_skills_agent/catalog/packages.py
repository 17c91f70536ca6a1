"""Skills that installed packages offer by an entry point of the group ``adk_skills_agent.skills`` (C12).

The value names a module whose folder holds skills, ``my_package.skills`` for instance. Nothing of the package is
imported: only where it lies is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from adk_skills_agent.catalog.config import ENTRY_POINT_GROUP
from adk_skills_agent.format.diagnostic import Diagnostic, Severity


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
