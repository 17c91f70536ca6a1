"""A new skill to start from: complete, valid and runnable (S4-14)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

from adk_skills_agent.errors import FormatError, ValidationError
from adk_skills_agent.format.template_files import template_files
from adk_skills_agent.format.validator import validate_metadata


def create_skill_template(
    output_dir: str | os.PathLike[str],
    name: str,
    *,
    description: str | None = None,
    script: Literal["python", "bash"] | None = "python",
) -> Path:
    """Write a new skill folder. It appears complete or not at all.

    Args:
        output_dir: Where the folder goes; made when absent.
        name: The skill's name, valid as the specification has it; also the folder's name.
        description: What the skill does and when to use it; None writes one to replace.
        script: The language of the sample script; None writes none.

    Returns:
        The new folder.

    Raises:
        ValidationError: The name or description is not valid, ``script`` is unknown, or the folder exists already.
        FormatError: The folder cannot be written.
    """
    if script not in ("python", "bash", None):
        raise ValidationError(f"There is no {script!r} script template; choose 'python', 'bash' or None.")
    if description is None:
        description = f"Describe what {name} does. Use when a task mentions the things it is for."
    if not description.isprintable():
        raise ValidationError("The description holds a line break, a control character or invalid Unicode. Remove it.")
    target = Path(output_dir).expanduser() / name
    errors = validate_metadata({"name": name, "description": description}, target)
    if errors:
        raise ValidationError(f"Cannot create skill {name!r}: {'; '.join(errors)}.", errors)
    if os.path.lexists(target):
        raise ValidationError(f"{target} exists already; choose another name or remove it.")
    aside: Path | None = None
    made: list[Path] = []
    try:
        made = [path for path in (target.parent, *target.parent.parents) if not os.path.lexists(path)]
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{name[:32]}.{os.getpid()}.{os.urandom(4).hex()}.new")
        aside.mkdir()
        for path, content, executable in template_files(name, description, script):
            file = aside / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8", newline="\n")
            if executable:
                file.chmod(file.stat().st_mode | 0o111)
        # A rename onto a folder someone made meanwhile fails unless that is empty; nothing is ever overwritten.
        aside.rename(target)
    except OSError as error:
        raise FormatError(f"Cannot create {target}: {error.strerror or error}.") from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        if not os.path.lexists(target):
            _remove_empty(made)
    return target


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders that were made for nothing, deepest first."""
    for folder in folders:
        if not os.path.lexists(folder):
            continue  # it was never made
        try:
            folder.rmdir()
        except OSError:
            return  # not empty: someone else uses it by now
