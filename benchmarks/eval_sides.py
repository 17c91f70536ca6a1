"""A thousand trials of ``adk-skills eval`` with a scripted agent, in a process of its own; the model in another one."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from answering import Sample, answer

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

_CASES = 20
_SKILL = "---\nname: reporter\ndescription: Reports on data.\n---\nRead references/guide.md, then write REPORT.\n"
_SERVER = """\
import sys
from adk_skills_agent.testing import GeminiServer, Rule, RuleModel, When, call, say

about = {"user_contains": ("data",), "skills": ("reporter",)}
rules = [
    Rule(call("load_skill", skill_name="reporter"), When(**about)),
    Rule(call("load_skill_resource", skill_name="reporter", file_path="references/guide.md"), When(**about)),
    Rule(say("REPORT: North leads."), When(**about)),
]
with GeminiServer(RuleModel(rules, otherwise=say("I cannot help.")), remember=10) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""


async def trials(options: dict[str, object]) -> Sample:
    """One sample: every trial once, one after the other, so that whatever is not the agent is ours."""
    from google.adk.models import Gemini

    from adk_skills_agent.evals.outputs import RunFacts, benchmark, write_outputs
    from adk_skills_agent.evals.preparation import Request, prepare
    from adk_skills_agent.evals.run.agent import Agents
    from adk_skills_agent.evals.run.result import Ledger, TrialResult
    from adk_skills_agent.evals.run.schedule import RunState, run_trials
    from adk_skills_agent.evals.run.trial import TrialSettings
    from adk_skills_agent.evals.summary import summarise

    count = int(str(options["trials"]))
    folder = Path(tempfile.mkdtemp(dir="."))
    skill = folder / "skills" / "reporter"
    (skill / "references").mkdir(parents=True)
    (skill / "SKILL.md").write_text(_SKILL)
    (skill / "references" / "guide.md").write_text("Name the region that leads.\n" * 100)
    calls = "calls: [{name: load_skill, args: {skill_name: reporter}}, load_skill_resource]"
    lines = [
        f"  - {{id: case-{number}, prompt: Summarise my data {number}., {calls}, answer_contains: [REPORT]}}"
        for number in range(_CASES)
    ]
    (folder / "cases.yaml").write_text("\n".join(["skill: reporter", "cases:", *lines]) + "\n")
    model_process = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert model_process.stdout is not None
    base_url = model_process.stdout.readline().decode().strip()
    direct = {"client_args": {"trust_env": False}, "async_client_args": {"trust_env": False}}
    arguments = {"api_key": "none", "vertexai": False, "http_options": direct}

    async def sample() -> dict[str, object]:
        begun = time.perf_counter()
        request = Request((folder / "cases.yaml",), (folder / "skills",), arms=("with_skill",), runs=count // _CASES)
        prepared = prepare(request)
        agents = Agents(Gemini(model="gemini-2.5-flash", base_url=base_url, client_kwargs=arguments), policy="trusted")
        out = Path(tempfile.mkdtemp(dir=folder))
        resident: list[float] = []
        looking = 0.0

        def watch(state: RunState, result: TrialResult | None) -> None:
            nonlocal looking
            if result is not None and len(state.results) % (count // 5) == 0:
                start = time.perf_counter()
                resident.append(_resident())
                looking += time.perf_counter() - start

        with Ledger(out) as ledger:
            state = await run_trials(prepared.trials, TrialSettings(agents), ledger, parallel=1, on_change=watch)
        await agents.close()
        summary = summarise(prepared.trials, state.results)
        facts = RunFacts("rules", "", request.runs)
        write_outputs(out, benchmark(summary, prepared.trials, state, facts), summary, facts)
        seconds = time.perf_counter() - begun - looking
        agent = sum(result.seconds for result in state.results.values())
        assert len(state.results) == count
        assert summary.pass_rate("with_skill") == 1.0
        return {"seconds": seconds, "agent": agent, "resident": resident}

    return sample


def _resident() -> float:
    import gc

    import psutil

    gc.collect()
    return float(psutil.Process().memory_info().rss) / (1 << 20)


if __name__ == "__main__":
    answer({"trials": trials})
