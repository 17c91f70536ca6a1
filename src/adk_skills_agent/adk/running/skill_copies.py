"""A folder of a skill that its own runs may write, for one session: ``ShellSettings(skill_writes="session")``.

Scripts that write beside themselves work, and the skill's bytes stay as they were approved. The copy is made inside the
sandbox, from the bytes that were checked there, and is in the workspace only while a script or a command of that skill
runs: no other skill can change it. Between runs it is beside the workspace, and lasts as long.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from adk_skills_agent.adk.shell.skills import skill_folder
from adk_skills_agent.adk.skills.source import FolderVersion
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox import SKILL_DIR, SKILL_VARIABLES, WORK_DIR, Network, in_worker

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill
    from adk_skills_agent.sandbox import ExecutionRequest, Sandbox
    from adk_skills_agent.scripts import ScriptPlan
    from adk_skills_agent.scripts.workspaces import SessionWorkspace

_COPIES = ".skills"
_COPY = ("sh", "-c", 'mkdir -p "$2" && cp -RL "$1/." "$2" && chmod -R u+w "$2"', "sh")
_RESERVED = f"'{_COPIES}' in the working directory is for the folders of skills; what was there is removed."


def copy_place(skill: str) -> PurePosixPath:
    """The place where the runs of a skill find the folder that they may write."""
    return WORK_DIR / _COPIES / skill_folder(skill)


def in_copy(plan: ScriptPlan) -> ScriptPlan:
    """The plan of a script with its command, and the variables that name the skill's folder, in the copy."""
    place, original = str(copy_place(plan.skill_name)), f"{SKILL_DIR}/"
    request = plan.request

    def moved(part: str) -> str:
        return f"{place}/{part.removeprefix(original)}" if part.startswith(original) else part

    argv = tuple(map(moved, request.argv))
    env = {**request.env, **dict.fromkeys(SKILL_VARIABLES, place)}
    if isinstance(modules := env.get("PYTHONPATH"), str):
        env["PYTHONPATH"] = ":".join(moved(f"{folder}/") for folder in modules.split(":"))
    return replace(plan, request=replace(request, argv=argv, env=env), skill_prefix=f"{place}/")


@contextlib.asynccontextmanager
async def writable_copy(
    sandbox: Sandbox,
    request: ExecutionRequest,
    workspace: SessionWorkspace,
    skill: Skill | None,
    original: PurePosixPath,
) -> AsyncIterator[list[str]]:
    """Have the copy of a skill in the workspace for one run; made by the first one. The session's turn is taken.

    A command of no skill gets no copy. ``original`` is where the run has the skill's own folder.

    Yields:
        A list that has sentences for the model, when something was in the way.

    Raises:
        SandboxError: The copy cannot be made.
        CatalogError: The skill's folder cannot be read.
    """
    notes: list[str] = []
    name, kept, whole = "", None, True
    if skill is not None:
        name = skill.name
        version = FolderVersion(str(skill.skill_dir), name, skill.without)
        kept = workspace.skills / f"{skill_folder(name)}-{(await in_worker(version.now))[:16]}"
    try:
        lent = await in_worker(_lend, workspace, name, kept, notes)
        if kept is not None and not lent:
            whole = False
            await _make(sandbox, request, name, original)
            whole = True
        yield notes
    finally:
        await in_worker(_take_back, workspace, name, kept if whole else None)


async def _make(sandbox: Sandbox, request: ExecutionRequest, skill: str, original: PurePosixPath) -> None:
    made = await sandbox.run(
        replace(
            request,
            argv=(*_COPY, str(original), str(copy_place(skill))),
            policy=replace(request.policy, network=Network.none()),
            env={},
            stdin=None,
            input_files=(),
            on_output=None,
            spill_dir=None,
            label=f"copy of {skill}",
        )
    )
    if made.exit_code != 0:
        said = made.stderr.decode("utf-8", "replace").strip()[-200:] or "the disk limit of the workspace is too low"
        raise SandboxError(f"The folder of skill '{skill[:64]}' could not be copied for the session: {said}")


def _lend(workspace: SessionWorkspace, skill: str, kept: Path | None, notes: list[str]) -> bool:
    """Move the copy into the workspace, alone; False when there is none yet of these bytes. Blocks."""
    inside = workspace.path / _COPIES
    if _removed(inside):
        notes.append(_RESERVED)
    if kept is None:
        return False
    for other in workspace.skills.glob(f"{skill_folder(skill)}-{'[0-9a-f]' * 16}"):
        if other != kept:
            _removed(other)
            notes.append(f"Skill '{skill[:64]}' was changed: what its runs wrote into its folder before is gone.")
    if not _is_folder(kept):
        return False
    inside.mkdir(mode=0o700)
    kept.rename(inside / skill_folder(skill))
    return True


def _take_back(workspace: SessionWorkspace, skill: str, kept: Path | None) -> None:
    """Move the copy out of the workspace, where it is whole; what else is there goes. Blocks."""
    inside = workspace.path / _COPIES
    if kept is not None and _is_folder(inside) and _is_folder(inside / skill_folder(skill)):
        _removed(kept)
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        (inside / skill_folder(skill)).rename(kept)
    _removed(inside)


def _is_folder(path: Path) -> bool:
    """Whether it is a folder itself: a run may have put a link there."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _removed(path: Path) -> bool:
    """Remove whatever is there; False when nothing is."""
    if not os.path.lexists(path):
        return False
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink()
    return True
