"""The google-adk agent of the benchmark: our toolset with the arm's skills, and bash in the task's box (S0-138)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.cases import CaseTurn, EvalCase, Source
from adk_skills_agent.evals.run.conversation import Conversation, converse
from adk_skills_agent.evals.skillsbench.agents import ADK, Assignment, BenchAgent, Worked
from adk_skills_agent.evals.skillsbench.box import LOGS, Phase, TaskBox
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.task_skills import MAX_SKILLS_BYTES, TaskSkills
from adk_skills_agent.evals.trace import Trace

if TYPE_CHECKING:
    from google.adk.models import BaseLlm
    from google.genai.types import GenerateContentConfig

TEMPERATURE = 1.0
_WRITTEN = f"{LOGS}/agent/skills"
_STEPS = (
    "You work on a task in a Linux machine through the tool bash.\n{numbered}\n"
    "Nobody answers questions; decide for yourself. End with a short text that says what you did."
)
_WITH_SKILLS = (
    "Read the task to its end.",
    "See which skills there are, and load those that fit.",
    "Look at the files of the task.",
    "Do the work as the skills say; use their scripts and references.",
    "Check that every file the task asks for is where it asks for it.",
    "Correct what is wrong.",
)
_WITHOUT = (
    "Read the task to its end.",
    "Look at the files of the task.",
    "Make a plan.",
    "Do the work.",
    "Check that every file the task asks for is where it asks for it.",
    "Correct what is wrong.",
)
_WRITES = (
    "Later, somebody like you gets the task below in a fresh machine like this one. Do not do the task. Write what "
    f"helps with it and tasks of its kind as skills: folders {_WRITTEN}/<name>/ with a SKILL.md, which begins with a "
    "frontmatter of name (the folder's name) and description (what it does and when to use it) between two lines of "
    "---, and tested scripts or references beside it where they help.\n\nThe task:\n\n"
)


@dataclass(frozen=True, slots=True)
class AdkAgent(BenchAgent):
    """A google-adk ``LlmAgent`` with google-adk's Runner.

    Attributes:
        model: Answers.
    """

    model: BaseLlm
    name: str = ADK

    async def work(self, task: Task, box: TaskBox, assignment: Assignment) -> Worked:
        """Say the instruction, word for word, and let the agent work."""
        return (await self._asked(task.instruction, task, box, assignment))[0]

    async def write_skills(self, task: Task, box: TaskBox, assignment: Assignment) -> tuple[Worked, bytes | None]:
        """Let the agent write skills before it has the task."""
        await box.empty(_WRITTEN)
        asked = _WRITES + task.instruction
        worked, _ = await self._asked(asked, task, box, replace(assignment, skills=None))
        packed = f"{LOGS}/agent/skills.tar"
        try:
            await box.end_processes()
            await box.run(("tar", "-C", _WRITTEN, "-cf", packed, "."), seconds=60)
            tar = await box.read(packed, MAX_SKILLS_BYTES + 1)
        except SandboxError as error:
            return replace(worked, error=("sandbox", error.message)), None
        if tar is not None and len(tar) > MAX_SKILLS_BYTES:
            problem = f"The skills it wrote are larger than {MAX_SKILLS_BYTES:,} bytes; they are not used."
            return replace(worked, error=worked.error or ("agent", problem)), None
        return worked, tar

    async def _asked(self, text: str, task: Task, box: TaskBox, assignment: Assignment) -> tuple[Worked, Conversation]:
        from google.adk.agents import LlmAgent

        from adk_skills_agent.adk.skill_toolset import SkillToolset
        from adk_skills_agent.evals.run.agent import Activations
        from adk_skills_agent.evals.skillsbench.bash_tool import BashTool
        from adk_skills_agent.evals.skillsbench.box_executor import BoxExecutor

        phase = Phase(assignment.network, assignment.folders)
        tools: list[Any] = [BashTool(box, phase)]
        executor, activations, toolset = BoxExecutor(box, phase), None, None
        if assignment.skills is not None:
            activations = Activations()
            toolset = SkillToolset(
                assignment.skills.catalog, code_executor=executor, on_event=activations, model=self.model.model
            )
            tools.append(toolset)
        steps = _WITH_SKILLS if toolset is not None else _WITHOUT
        agent = LlmAgent(
            name="assistant",
            model=self.model,
            instruction=_STEPS.format(numbered="\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))),
            tools=tools,
            generate_content_config=_settings(self.model, assignment.trial),
        )
        case = EvalCase(task.name, (CaseTurn(text),), Source(str(task.folder), 1))
        try:
            went = await converse(case, agent, activations, f"{task.name}-{assignment.trial}", assignment.seconds)
        finally:
            await asyncio.shield(_ended(executor, toolset))
        return _worked(went, assignment.skills), went


async def _ended(executor: Any, toolset: Any) -> None:
    await executor.end()
    if toolset is not None:
        await toolset.close()


def _settings(model: BaseLlm, trial: int) -> GenerateContentConfig:
    from google.adk.models import Gemini
    from google.genai import types

    config = types.GenerateContentConfig(temperature=TEMPERATURE)
    if isinstance(model, Gemini):
        config.seed = trial
        if model.model.rpartition("/")[2].startswith("gemini-3"):  # older ones know no levels
            config.thinking_config = types.ThinkingConfig(thinking_level=types.ThinkingLevel.HIGH)
    return config


def _worked(went: Conversation, skills: TaskSkills | None) -> Worked:
    trace = went.trace
    loaded = trace.skills_loaded
    ran, looked = _used(trace)
    final = trace.turns[-1].final_text if trace.turns else ""
    usage = trace.usage
    return Worked(
        went.seconds,
        went.error,
        skills_loaded=loaded,
        skills_read=tuple(name for name in _read_by_commands(trace, skills) if name not in loaded),
        scripts_run=ran,
        heuristic=bool(loaded and (ran or looked) and final.strip()),
        usage=usage.to_json() if usage is not None else {},
        trace=trace.to_json(),
    )


def _used(trace: Trace) -> tuple[tuple[str, ...], bool]:
    """The skills of which a script was run, and whether a resource was read."""
    good = [call for call in trace.calls if not call.failed]
    scripts = dict.fromkeys(call.skill for call in good if call.is_a("run_skill_script") and call.skill)
    return tuple(scripts), any(call.is_a("load_skill_resource") for call in good)


def _read_by_commands(trace: Trace, skills: TaskSkills | None) -> list[str]:
    """Skills whose folder a command names, as in ``cat /root/.claude/skills/pdf/SKILL.md``."""
    if skills is None:
        return []
    commands = "\n".join(str(call.args.get("command", "")) for call in trace.calls if call.is_a("bash"))
    return [name for name in skills.names if re.search(rf"skills?/{re.escape(name)}(?:/|\b)", commands)]
