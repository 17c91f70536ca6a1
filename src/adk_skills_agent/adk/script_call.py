"""One call of a skill's script, checked, and what came of it; the same for every way to run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adk_skills_agent.errors import CHANGED, SkillChanged

if TYPE_CHECKING:
    from adk_skills_agent.adk.known_skill import KnownSkill
    from adk_skills_agent.errors import SkillsError
    from adk_skills_agent.sandbox.contract import InputFile
    from adk_skills_agent.scripts import ScriptArguments, ScriptPlan
    from adk_skills_agent.scripts.workspaces import SessionWorkspace, WorkspaceClaim


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run in our sandbox needs from the disk, found in one visit to a thread.

    Attributes:
        workspace: The session's.
        plan: The request, without artifacts.
    """

    workspace: SessionWorkspace
    plan: ScriptPlan


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """What the model asked for.

    Attributes:
        skill: Whose script it is.
        path: The script, relative to the skill's root (``scripts/run.py``).
        asked: The path as the model wrote it.
        arguments: For the script, not yet checked.
        inputs: Artifacts of the session that it wants to find in the working directory.
        command: A shell command, google-adk's way to call a script in an environment; None for none.
        claim: To the session's workspace, for a run in our sandbox.
        version: The version of the skill that the user approved for this call; empty when nobody had to.
        prepared: What was prepared with the search for the script, or why it cannot run; None when nothing was.
    """

    skill: KnownSkill
    path: str
    asked: str
    arguments: ScriptArguments
    inputs: tuple[InputFile, ...] = ()
    command: object = None
    claim: WorkspaceClaim | None = None
    version: str = ""
    prepared: Prepared | SkillsError | None = None

    def check_version(self) -> None:
        """For a way to run scripts that reads the skill's files itself: call it when they are read. Blocks.

        Raises:
            SkillChanged: They are not those that the user approved.
        """
        if self.version and self.skill.version() != self.version:
            raise SkillChanged(CHANGED)


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """What a run led to.

    Attributes:
        answer: For the model.
        exit_code: None when nothing reported one.
        stdout_bytes: Of its output, all.
        stderr_bytes: Of its messages, all.
        files: How many files it left.
        level: The isolation level, or empty where it is not known.
    """

    answer: dict[str, object]
    exit_code: int | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    files: int = 0
    level: str = ""

    @property
    def status(self) -> str:
        """``success``, ``warning`` or ``error``."""
        return str(self.answer.get("status") or "error")

    @property
    def reason(self) -> str:
        """Why it failed, or empty."""
        return str(self.answer.get("reason") or "")
