"""From a skill, a script's path and arguments to an ExecutionRequest. Everything is checked before anything starts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from adk_skills_agent.sandbox.contract import SKILL_DIR, ExecutionRequest, InputFile, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.secrets import EnvValue
from adk_skills_agent.scripts.arguments import ScriptArguments, build_argv
from adk_skills_agent.scripts.grants import Grants
from adk_skills_agent.scripts.interpreters import Interpreters
from adk_skills_agent.scripts.location import ScriptLocation, locate_script

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """A script call that is ready to run.

    Attributes:
        skill_name: The skill's name.
        path: The script, relative to the skill's root (``scripts/run.py``).
        request: What the sandbox is asked to do.
        notes: What had to be adapted, one sentence each; they go to the owner and the model.
    """

    skill_name: str
    path: str
    request: ExecutionRequest
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What the owner of an agent decides once for all script calls.

    Attributes:
        policy: The limits.
        interpreters: Which command starts which suffix.
    """

    policy: SandboxPolicy = field(default_factory=SandboxPolicy)
    interpreters: Interpreters = field(default_factory=Interpreters)


@functools.lru_cache(maxsize=512)
def _seen_at(path: str) -> PurePosixPath:
    return SKILL_DIR / path


def plan_script(
    skill: Skill,
    script_path: object,
    arguments: ScriptArguments | None = None,
    *,
    settings: RunSettings | None = None,
    env: Mapping[str, EnvValue] | None = None,
    grants: Grants | None = None,
    workspace: Path | None = None,
    input_files: tuple[InputFile, ...] = (),
    stdin: bytes | None = None,
    spill_dir: Path | None = None,
    on_output: Callable[[str, bytes], None] | None = None,
    digest: str = "",
) -> ScriptPlan:
    """Check a script call and turn it into a request; nothing is executed.

    Args:
        skill: The skill that owns the script.
        script_path: As the caller wrote it; ``run.py`` and ``scripts/run.py`` are the same. Or where it is, when the
            caller has just looked.
        arguments: See :class:`ScriptArguments`.
        settings: The owner's decisions.
        env: Variables granted to this call, over ``grants``.
        grants: What the owner grants to which script; no secret of any of them comes out of this call.
        workspace: Host folder of the session's files, or None for an empty workspace.
        input_files: Files put into the workspace first.
        stdin: Standard input; None closes it.
        spill_dir: Host folder for the full text of long output; None keeps only the cut text.
        on_output: Called with output as it arrives.
        digest: What the sandbox's copy of the skill must hold; empty for whatever it holds.

    Raises:
        InvalidArguments: The path or the arguments cannot be used.
        ScriptNotFound: The skill has no such script.
        UnsupportedScriptType: No interpreter for that suffix.
    """
    settings = settings or RunSettings()
    grants = grants or Grants()
    script = script_path if isinstance(script_path, ScriptLocation) else locate_script(skill, script_path)
    argv = build_argv(arguments or ScriptArguments())
    command, notes = settings.interpreters.command(_seen_at(script.path), script.file, python=settings.policy.python)
    request = ExecutionRequest(
        argv=(*command, *argv),
        policy=settings.policy,
        env=grants.of(skill.name, script.path) | dict(env or {}),
        stdin=stdin,
        mounts=(ReadOnlyMount(skill.skill_dir, SKILL_DIR, without=skill.without, digest=digest),),
        input_files=input_files,
        workspace=workspace,
        on_output=on_output,
        spill_dir=spill_dir,
        label=f"{skill.name}/{script.path}",
        redact=grants.secrets,
    )
    return ScriptPlan(skill.name, script.path, request, notes)
