"""A skill's script: from path and arguments to an ExecutionRequest, and from the result to what a model gets."""

from adk_skills_agent.scripts.arguments import ScriptArguments, build_argv
from adk_skills_agent.scripts.execution_id import execution_id, workspace_key
from adk_skills_agent.scripts.grants import Grants
from adk_skills_agent.scripts.interpreters import Interpreters
from adk_skills_agent.scripts.location import ScriptLocation, list_scripts, locate_script, script_path
from adk_skills_agent.scripts.outcome import ScriptOutcome, script_outcome
from adk_skills_agent.scripts.plan import RunSettings, ScriptPlan, plan_script

__all__ = [
    "Grants",
    "Interpreters",
    "RunSettings",
    "ScriptArguments",
    "ScriptLocation",
    "ScriptOutcome",
    "ScriptPlan",
    "build_argv",
    "execution_id",
    "list_scripts",
    "locate_script",
    "plan_script",
    "script_outcome",
    "script_path",
    "workspace_key",
]
