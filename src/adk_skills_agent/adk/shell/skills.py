"""The active skills as a shell's commands see them: ``/skills/<name>``, read-only."""

from __future__ import annotations

import hashlib
import logging
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.permissions import Decision, Permissions, subject_of, weigh
from adk_skills_agent.adk.rules import Verdict
from adk_skills_agent.catalog.skill import name_in_rules
from adk_skills_agent.catalog.untrusted_files import shown
from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox import ReadOnlyMount, in_worker

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill

logger = logging.getLogger(__name__)

SKILLS_DIR = PurePosixPath("/skills")
"""The folder of the active skills' folders, as commands and the model see it."""

EVERY_SCRIPT = "scripts"
"""The subject of an approval that covers commands, where a rule asks about a script that one could run."""
_NAMED = 20  # scripts in one question
_PATH_CHARS = 200  # of each
_UNUSUAL = re.compile(r"[^\w.-]")


def skill_folder(name: str) -> str:
    """The name of a skill's folder below :data:`SKILLS_DIR`: its own; one with what means something in a path gets a
    digest, so that no two have the same.
    """
    folder = _UNUSUAL.sub("_", name)
    if folder == name and folder.strip("."):
        return folder
    return f"{folder.lstrip('.')}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class MountedSkill:
    """An active skill, the name of its folder, and what the rules say of running everything of it."""

    skill: KnownSkill
    folder: str
    decision: Decision


async def mounted_skills(runtime: SkillRuntime, context: ReadonlyContext) -> list[MountedSkill]:
    """The active skills of an agent, each with a folder of its own; one whose scripts may not run is not among them."""
    found: list[MountedSkill] = []
    for name in runtime.active.active(context):
        try:
            skill = await runtime.skill(context, name)
            decision = await _decision(runtime, skill)
        except SkillsError as error:
            logger.warning("the active skill %s is not in the shell: %s", name, error.message)
            continue
        if decision.verdict is Verdict.DENY:
            logger.info("the active skill %s is not in the shell: %s", name, decision.reason)
            continue
        folder = skill_folder(name)
        if all(other.folder != folder for other in found):
            found.append(MountedSkill(skill, folder, decision))
        else:
            logger.warning("the active skill %s is not in the shell: another one has the folder %s", name, folder)
    return found


async def permit_shell(
    runtime: SkillRuntime, context: ToolContext, skills: list[MountedSkill]
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """Ask for what a command could do with the active skills: run any of their scripts.

    Returns the tool's answer when the user has to be asked, or has said no; and the versions that were approved.
    """
    versions: dict[str, str] = {}
    for mounted in skills:
        skill = mounted.skill
        if mounted.decision.verdict is Verdict.ALLOW:
            continue
        weighed = await weigh(context, skill, mounted.decision, runtime)
        if weighed.refusal is not None:
            return weighed.refusal, versions
        versions[skill.name] = weighed.version
    return None, versions


async def _decision(runtime: SkillRuntime, skill: KnownSkill) -> Decision:
    """The verdict on running anything of a skill: the strictest rule, and all that needs approval."""
    permissions = runtime.permissions
    decision = permissions.decide(skill, "run")
    if not any(rule.kind == "scripts" for rule in permissions.rules):
        return decision  # no script differs from the others
    files = await in_worker(skill.all_files)
    if files is None:
        return _of_any(permissions, skill, decision)
    known = _decided.setdefault(permissions, {})
    found = known.get(skill.name)
    if found is None or found[0] != files:
        found = known[skill.name] = (files, await in_worker(_of_all, permissions, skill, files, decision))
    return found[1]


_decided: weakref.WeakKeyDictionary[Permissions, dict[str, tuple[tuple[str, ...], Decision]]]
_decided = weakref.WeakKeyDictionary()  # by skill: with many files it takes a second (row 327)


def _of_all(permissions: Permissions, skill: KnownSkill, files: Sequence[str], decision: Decision) -> Decision:
    """The verdict on a command, which can run any script. A yes to one covers no call of a script by itself."""
    asked = []
    for path in files:
        of_file = permissions.decide(skill, "run", path)
        if of_file.verdict is Verdict.DENY:
            return of_file
        if subject_of("run", path) in of_file.subjects:
            asked.append(path)
    if not asked:
        return decision
    more = f" and {len(asked) - _NAMED:,} more" if len(asked) > _NAMED else ""
    named = ", ".join(shown(path)[:_PATH_CHARS] for path in asked[:_NAMED])
    reason = f"a command can run any of its scripts, and rules ask about {named}{more}"
    return Decision(Verdict.ASK, "run", "scripts/*", reason, None, (*decision.subjects, EVERY_SCRIPT))


def _of_any(permissions: Permissions, skill: KnownSkill, decision: Decision) -> Decision:
    """The verdict on a command where a skill's files are too many to look at: any rule may be about one (row 348)."""
    about = [rule for rule in permissions.rules if rule.kind == "scripts" and rule.is_for(name_in_rules(skill.name))]
    rule = max(about, key=lambda rule: rule.verdict.strictness, default=None)
    if rule is None or rule.verdict is Verdict.ALLOW:
        return decision
    reason = f"a command can run any of its scripts, which are too many to look at, and the rule '{rule}' is there"
    subjects = (*decision.subjects, EVERY_SCRIPT) if rule.verdict is Verdict.ASK else ()
    return Decision(rule.verdict, "run", "scripts/*", reason, rule, subjects)


def skill_mounts(skills: list[MountedSkill], versions: dict[str, str]) -> tuple[ReadOnlyMount, ...]:
    """The folders of skills for a run. Blocks: a skill in memory is put on the disk.

    Raises ``SkillsError`` when one is gone or cannot be copied.
    """
    mounts = []
    for mounted in skills:
        local = mounted.skill.local()
        version = versions.get(mounted.skill.name, "") or mounted.skill.pinned()
        mounts.append(
            ReadOnlyMount(
                local.skill_dir,
                SKILLS_DIR / mounted.folder,
                linked=False,
                without=local.without,
                digest=mounted.skill.copy_digest(version) if version else "",
            )
        )
    return tuple(mounts)
