"""``run_script``: run a script of a skill in the sandbox (S4-6, S4-18 to S4-20, S0-1 to S0-10)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from adk_skills_agent.adk.answers import required_text
from adk_skills_agent.adk.artifacts import load_inputs, save_outputs
from adk_skills_agent.adk.declarations import skill_name_schema
from adk_skills_agent.adk.tools.skill_tool import SkillTool
from adk_skills_agent.errors import InvalidArguments, SkillsError
from adk_skills_agent.sandbox.redaction import redact_error, redacted
from adk_skills_agent.scripts import (
    Grants,
    RunSettings,
    ScriptArguments,
    ScriptOutcome,
    ScriptPlan,
    execution_id,
    plan_script,
    script_outcome,
    workspace_key,
)
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS
from adk_skills_agent.scripts.workspaces import SHARED_WORKSPACES, SessionWorkspaces, private_folder

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.listing import SkillListing
    from adk_skills_agent.sandbox.contract import InputFile, Sandbox

logger = logging.getLogger(__name__)
tracer = trace.get_tracer("adk_skills_agent")

NAME = "run_script"
_LOGGED_BYTES = 8_192
"""Of a failing script's stderr: the model gets the exception, the owner the traceback (S0-20)."""


class RunScriptTool(SkillTool):
    """Runs one script of a skill. A failing script is an answer with ``status: error``, never an exception."""

    required = ("skill", "script")

    def __init__(
        self,
        listing: SkillListing,
        sandbox: Sandbox,
        *,
        settings: RunSettings,
        workspaces: SessionWorkspaces = SHARED_WORKSPACES,
        owner: object = None,
        grants: Grants | None = None,
    ) -> None:
        super().__init__(
            NAME,
            "Run a script from a skill's scripts/ folder and get its output. Load the skill first; its "
            "instructions say which script to run and how. The script starts in a working directory where the "
            "skill's files can be read by their relative paths; files it writes there are kept for the session. "
            "If a script is not found, do not guess other paths.",
            listing,
        )
        self._sandbox = sandbox
        self._settings = settings
        self._workspaces = workspaces
        self._owner = owner
        self._grants = grants or Grants()

    def properties(self) -> dict[str, dict[str, object]]:
        """Skill, script, its arguments, and artifacts it should find."""
        return {
            "skill": skill_name_schema(self.listing.names),
            "script": {"type": "string", "description": "The script's path, such as 'scripts/run.py'."},
            "args": {
                "anyOf": [
                    {"type": "object"},
                    {"type": "array", "items": {"type": "string"}},
                    {"type": "string"},
                ],
                "description": (
                    "Arguments. An object becomes long options ({'top': 3} is --top 3, true is a bare flag, "
                    "a list repeats the option, '_positional' lists positional arguments); an array is the "
                    "complete argument list; a string is split like a command line."
                ),
            },
            "files": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names of artifacts of this session to put into the working directory first.",
            },
        }

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """What the script did."""
        try:
            name, script = required_text(args, "skill"), required_text(args, "script")
            inputs = await load_inputs(tool_context, args.get("files"))
            arguments = ScriptArguments(args.get("args"), args.get("short_options"), args.get("positional_args"))
            return await self._run(name, script, arguments, inputs, tool_context)
        except SkillsError as error:
            redact_error(error, self._grants.forms)
            raise

    async def _run(
        self,
        name: str,
        script: str,
        arguments: ScriptArguments,
        inputs: tuple[InputFile, ...],
        tool_context: ToolContext,
    ) -> dict[str, object]:
        session = tool_context.session
        key = workspace_key(session.app_name, session.user_id, session.id)
        async with private_folder("adk-skills-spill-") as spill:
            async with self._workspaces.use(key, self._owner) as workspace:
                plan = await asyncio.to_thread(self._plan, name, script, arguments, inputs, workspace.path, spill)
                outcome = await self._execute(plan, execution_id(name, session.id, tool_context.agent_name))
            saved = await save_outputs(tool_context, outcome, MODEL_STREAM_CHARS)
        notes = [*([workspace.note] if workspace.note else []), *saved.notes]
        return outcome.to_model(artifacts=saved.files, streams=saved.streams, notes=notes)

    def _plan(
        self,
        name: str,
        script: str,
        arguments: ScriptArguments,
        inputs: tuple[InputFile, ...],
        workspace: Path,
        spill: Path,
    ) -> ScriptPlan:
        skill = self.listing.skills.load_skill(name)
        return plan_script(
            skill,
            script,
            arguments,
            settings=self._settings,
            grants=self._grants,
            workspace=workspace,
            input_files=inputs,
            spill_dir=spill,
        )

    async def _execute(self, plan: ScriptPlan, run_id: str) -> ScriptOutcome:
        with tracer.start_as_current_span("run_skill_script") as span:
            span.set_attributes({"skill.name": plan.skill_name, "skill.script": plan.path, "execution.id": run_id})
            try:
                # Our own sandboxes have redacted already; others may not know what a secret is.
                result = redacted(await self._sandbox.run(plan.request), self._grants.forms)
            except ValueError as error:  # the contract's word for a request that cannot be expressed
                raise InvalidArguments(str(error)) from error
            outcome = script_outcome(plan, result)
            span.set_attributes(
                {
                    "script.status": outcome.status.value,
                    "script.return_code": outcome.return_code,
                    "sandbox.level": result.isolation.level.value,
                    "script.wall_ms": result.wall_ms,
                }
            )
        if outcome.error is not None:
            logger.info(
                "stderr of %s:\n%s", plan.request.label, result.stderr[-_LOGGED_BYTES:].decode("utf-8", "replace")
            )
        logger.info(
            "script %s of skill %s: %s%s, return code %d, %.0f ms, isolation %s",
            plan.path,
            plan.skill_name,
            outcome.status.value,
            f" ({outcome.reason})" if outcome.reason else "",
            outcome.return_code,
            result.wall_ms,
            result.isolation.level.value,
        )
        return outcome
