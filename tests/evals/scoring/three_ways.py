"""One agent with skills, one eval set, and a model of rules whose scores can be told beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adk_skills_agent.testing import Rule, RuleModel, When, call, judge_rule, say

AGENT = """
import os
from pathlib import Path
from google.adk.agents import LlmAgent
from adk_skills_agent import SandboxPolicy, SkillToolset
{imports}
root_agent = LlmAgent(
    name="helper",
    model=os.environ.get("HELPER_MODEL", "gemini-2.5-flash"),
    instruction="Help the user.",
    tools=[
        SkillToolset.from_dirs(
            [Path(__file__).parent / "skills"], policy=SandboxPolicy(min_isolation="process", wall_seconds=60)
        )
    ],
)
"""

MODEL = RuleModel(
    [
        judge_rule(
            lambda what, conversation: "load_skill(" in conversation if "loads" in what else "7" in conversation
        ),
        Rule(call("list_skills"), When(user_contains=("add",))),
        Rule(call("load_skill", skill_name="adder"), When(user_contains=("add",), skills=("adder",))),
        # The case expects sum.py with two numbers twice; this model runs it once and reads the wrong file.
        Rule(
            call("run_skill_script", skill_name="adder", file_path="scripts/sum.py", args=["3", "4"]),
            When(user_contains=("add",), last_tool=("load_skill",)),
        ),
        Rule(
            call("load_skill_resource", skill_name="adder", file_path="references/other.md"),
            When(user_contains=("add",), last_tool=("run_skill_script",)),
        ),
        Rule(say("The sum is 7.\nAsk for more."), When(user_contains=("add",))),
        Rule(say("You are welcome."), When(user_contains=("Thanks",))),
        Rule(call("load_skill", skill_name="adder"), When(user_contains=("multiply",))),
    ],
    otherwise=say("I cannot do that."),
    name="three ways",
)


def _invocation(number: int, text: str, answer: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    return {
        "invocation_id": str(number),
        "user_content": {"role": "user", "parts": [{"text": text}]},
        "final_response": {"role": "model", "parts": [{"text": answer}]} if answer else None,
        "intermediate_data": {"tool_uses": [{"name": name, "args": args} for name, args in calls]},
    }


def _rubric(name: str, text: str) -> dict[str, Any]:
    return {"rubric_id": name, "rubric_content": {"text_property": text}, "type": "INSTRUCTION_ADHERENCE"}


SUM = {"skill_name": "adder", "file_path": "scripts/sum.py"}
SESSION = {"app_name": "helper", "user_id": "user", "state": {}}
EVAL_SET = {
    "eval_set_id": "three_ways",
    "name": "three ways",
    "eval_cases": [
        {
            "eval_id": "one-turn",
            "conversation": [
                _invocation(
                    1,
                    "Please add 3 and 4.",
                    "THE SUM  IS 7.",
                    [
                        ("list_skills", {}),
                        ("load_skill", {"skill_name": "adder"}),
                        ("run_skill_script", SUM),
                        ("run_skill_script", SUM),
                        ("load_skill_resource", {"skill_name": "adder", "file_path": "references/more.md"}),
                    ],
                )
            ],
            "session_input": SESSION,
            "rubrics": [
                _rubric("loads", "The agent loads the adder skill."),
                _rubric("sum", "The answer is the sum."),
                _rubric("absent", "The conversation holds the number 7."),
            ],
        },
        {
            "eval_id": "two-turns",
            "conversation": [
                _invocation(1, "Please add 3 and 4.", "The sum is 7.", [("load_skill", {"skill_name": "adder"})]),
                _invocation(2, "Thanks, now say goodbye.", "Goodbye.", []),
            ],
            "session_input": SESSION,
        },
        {
            "eval_id": "wrong-skill",
            "conversation": [_invocation(1, "Please multiply 3 by 4.", "", [])],
            "session_input": SESSION,
        },
        {
            "eval_id": "no-skill",
            "conversation": [_invocation(1, "Please sing.", "I cannot", [])],
            "session_input": SESSION,
        },
    ],
}

CRITERIA = {
    "tool_invocation_score": {"threshold": 0.75},
    "tool_args_score": 0.5,
    "skill_discovery_score": 1.0,
    "skill_trigger_score": {"threshold": 1.0},
    "reference_match_score": 1.0,
    "instruction_adherence_score": {
        "threshold": 0.75,
        "judgeModelOptions": {"judgeModel": "gemini-2.5-flash", "numSamples": 3},
    },
}

# Of list, load, run, run, resource one run is missing: 4 names of 5. Arguments: skill_name of load;
# both of one of two runs of sum.py; skill_name of the resource, not its path: 4 of 7. The second turn expects no call.
EXPECTED: dict[str, dict[str, float | None]] = {
    "one-turn": {
        "tool_invocation_score": 4 / 5,
        "tool_args_score": 4 / 7,
        "skill_discovery_score": 1.0,
        "skill_trigger_score": 1.0,
        "reference_match_score": 1.0,
        "instruction_adherence_score": 1.0,
    },
    "two-turns": {
        "tool_invocation_score": 1.0,
        "tool_args_score": 1.0,
        "skill_discovery_score": 1.0,
        "skill_trigger_score": 1.0,
        "reference_match_score": 0.5,
        "instruction_adherence_score": 1.0,
    },
    "wrong-skill": {
        "tool_invocation_score": 1.0,
        "tool_args_score": 1.0,
        "skill_discovery_score": 0.0,
        "skill_trigger_score": 0.0,
        "reference_match_score": None,
        "instruction_adherence_score": 1.0,
    },
    "no-skill": {
        "tool_invocation_score": 1.0,
        "tool_args_score": 1.0,
        "skill_discovery_score": 0.0,
        "skill_trigger_score": 1.0,
        "reference_match_score": 1.0,
        "instruction_adherence_score": 1.0,
    },
}


def write_agent(root: Path, make_skill: Callable[..., Path], *, register: bool) -> Path:
    """``agents/helper`` with its skill; ``register`` takes the evaluator classes instead of the config's functions."""
    folder = root / "agents" / "helper"
    make_skill(
        "adder",
        description="Adds numbers. Use it for sums.",
        body="Run scripts/sum.py with the numbers.\n",
        files={
            "scripts/sum.py": "import sys\nprint(sum(int(a) for a in sys.argv[1:]))\n",
            "references/more.md": "More.\n",
            "references/other.md": "Other.\n",
        },
        root=folder / "skills",
    )
    imports = "import adk_skills_agent.evals.adk_evaluators" if register else ""
    (folder / "agent.py").write_text(AGENT.format(imports=imports))
    (folder / "__init__.py").write_text("from . import agent\n")
    return folder


def write_eval_set(root: Path, *, register: bool) -> tuple[Path, Path]:
    """The eval set, and google-adk's config beside it."""
    cases = root / "three_ways.test.json"
    cases.write_text(json.dumps(EVAL_SET))
    config: dict[str, Any] = {"criteria": CRITERIA}
    if not register:
        config["custom_metrics"] = {
            name: {"code_config": {"name": f"adk_skills_agent.evals.metrics.{name}"}} for name in CRITERIA
        }
    options = root / "test_config.json"
    options.write_text(json.dumps(config))
    return cases, options
