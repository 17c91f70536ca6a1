"""Which file of a skill a caller means by a script's path (S0-9, S0-10, S4-20, S4-22; attack row 47)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.suggestions import nearest
from adk_skills_agent.errors import InvalidArguments, InvalidResourcePath, ResourceNotFound, ScriptNotFound
from adk_skills_agent.scripts.arguments import check_text

if TYPE_CHECKING:
    from pathlib import Path

    from adk_skills_agent.catalog import Skill

SCRIPTS_FOLDER = "scripts"


@dataclass(frozen=True, slots=True)
class ScriptLocation:
    """A script that exists.

    Attributes:
        path: Path relative to the skill's root, with forward slashes, always starting with ``scripts/``.
        file: The file on the host.
    """

    path: str
    file: Path


def locate_script(skill: Skill, path: object) -> ScriptLocation:
    """Find the script ``path`` names; ``setup.py`` and ``scripts/setup.py`` are the same file.

    Raises:
        InvalidArguments: ``path`` is no path inside the skill's scripts folder (absolute, ``..``, NUL, backslash…).
        ScriptNotFound: There is no such script; the nearest ones are in ``suggestions``.
    """
    relative = script_path(path)
    try:
        return ScriptLocation(relative, skill.resolve(relative))
    except ResourceNotFound:
        raise _not_found(skill, relative, str(path)) from None
    except InvalidResourcePath as error:
        raise InvalidArguments(error.message) from None


def list_scripts(skill: Skill) -> tuple[str, ...]:
    """Every file below the skill's scripts folder, relative to the skill's root."""
    return tuple(file.path for file in skill.files() if file.path.startswith(f"{SCRIPTS_FOLDER}/"))


def script_path(path: object) -> str:
    """The path of a script in its full form, ``scripts/...``; ``setup.py`` and ``scripts/setup.py`` are the same.

    Raises:
        InvalidArguments: It is no path inside the skill's scripts folder.
    """
    if not isinstance(path, str):
        raise InvalidArguments(f"The script path must be a string, got {type(path).__name__}.")
    check_text(path, "The script path")
    wish = "Give a path relative to the skill's folder, such as 'scripts/run.py'."
    if not path.strip():
        raise InvalidArguments(f"The script path is empty. {wish}")
    if "\\" in path:
        raise InvalidArguments(f"The script path {path!r} holds a backslash; use '/' between folders. {wish}")
    if path.startswith(("/", "~")):
        raise InvalidArguments(f"The script path {path!r} is absolute. {wish}")
    if path.endswith("/"):
        raise InvalidArguments(f"The script path {path!r} names a folder. {wish}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidArguments(f"The script path {path!r} holds '..', which is not allowed. {wish}")
    if parts[:1] == [SCRIPTS_FOLDER]:
        parts = parts[1:]
    if not parts:
        raise InvalidArguments(f"The script path {path!r} names no file. {wish}")
    return "/".join([SCRIPTS_FOLDER, *parts])


def _not_found(skill: Skill, relative: str, asked: str) -> ScriptNotFound:
    scripts = list_scripts(skill)
    close = nearest(relative, scripts)
    if not scripts:
        sentence = f"Script {asked!r} not found: skill '{skill.name}' has no scripts. Follow its instructions instead."
    elif close:
        sentence = f"Script {asked!r} not found in skill '{skill.name}'. Nearest: {', '.join(close)}."
    else:
        shown = ", ".join(scripts[:10])
        more = f" and {len(scripts) - 10} more" if len(scripts) > 10 else ""
        sentence = f"Script {asked!r} not found in skill '{skill.name}'. Its scripts: {shown}{more}."
    return ScriptNotFound(sentence, close or scripts[:10])
