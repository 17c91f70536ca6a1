"""A small evaluation with a model of rules, for the tests of the runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent

from adk_skills_agent.evals.judge import Judge
from adk_skills_agent.evals.preparation import Prepared, Request, prepare
from adk_skills_agent.evals.run.agent import Agents
from adk_skills_agent.evals.run.result import Ledger
from adk_skills_agent.evals.run.schedule import RunState, run_trials
from adk_skills_agent.evals.run.trial import TrialSettings
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.testing import GeminiServer, Rule, RuleModel, When, call, say
from evals.eval_folders import make_skill

LOADS_AND_REPORTS = RuleModel(
    [
        Rule(call("load_skill", skill_name="reporter"), When(user_contains=("data",), skills=("reporter",))),
        Rule(say("REPORT: North leads."), When(user_contains=("data",), skills=("reporter",))),
    ],
    otherwise=say("I cannot help."),
)
"""Loads the skill when the user speaks of data and the skill is there; can do nothing without it."""

CASES = """\
skill: reporter
cases:
  - id: totals
    prompt: Summarise my data.
    calls: [{name: load_skill, args: {skill_name: reporter}}]
    answer_contains: [REPORT]
  - {id: data-query, prompt: Tell me of my data., should_trigger: true}
  - {id: poem, prompt: Write a poem., should_trigger: false}
"""


def a_plan(folder: Path, cases: str = CASES, **more: Any) -> Prepared:
    if not (folder / "skills").exists():
        make_skill(folder / "skills")
        make_skill(folder / "skills", "gardener")
    path = folder / "cases.yaml"
    path.write_text(cases)
    settings = {"runs": 2, "judged": False, "settings": {"model": "rules"}, **more}
    return prepare(Request(targets=(path,), dirs=(folder / "skills",), **settings))


async def carry_out(
    prepared: Prepared,
    server: GeminiServer,
    out: Path,
    *,
    state: RunState | None = None,
    resume: bool = False,
    judge: Judge | None = None,
    timeout: float = 60.0,
    settings: dict[str, Any] | None = None,
    policy: SandboxPolicy | str = "trusted",
    base: LlmAgent | None = None,
    **more: Any,
) -> RunState:
    agents = Agents(server.model(), base, policy=policy)
    try:
        with Ledger(out, resume=resume) as ledger:
            shared = TrialSettings(agents, judge, timeout, **(settings or {}))
            return await run_trials(prepared.trials, shared, ledger, state=state, **more)
    finally:
        await agents.close()
