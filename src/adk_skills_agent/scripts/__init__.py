"""A skill's script: from path and arguments to an ExecutionRequest, and from the result to what a model gets."""

from adk_skills_agent.scripts.grants import Grant, Grants, GrantsByName, HostRules
from adk_skills_agent.scripts.interpreters import Interpreters
from adk_skills_agent.scripts.outcome import ScriptOutcome, outcome_aside, script_outcome
from adk_skills_agent.scripts.plan import (
    RunSettings,
    ScriptArguments,
    ScriptLocation,
    ScriptPlan,
    build_argv,
    execution_id,
    list_scripts,
    locate_script,
    plan_script,
    script_path,
    share_of,
    user_key,
    workspace_key,
)
