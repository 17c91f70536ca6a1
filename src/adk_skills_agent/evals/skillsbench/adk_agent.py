"""The google-adk agent of the benchmark: our toolset with the arm's skills, and bash (S0-138)."""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from google.adk.tools.base_tool import BaseTool
from google.genai import types
from pydantic import PrivateAttr

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.cases import CaseTurn, EvalCase, Source
from adk_skills_agent.evals.run.conversation import Conversation, converse
from adk_skills_agent.evals.skillsbench.agents import ADK, Assignment, BenchAgent, Worked
from adk_skills_agent.evals.skillsbench.environment import LOGS, Phase, Ran, TaskEnvironment
from adk_skills_agent.evals.skillsbench.task import MAX_SKILLS_BYTES, Task, TaskSkills
from adk_skills_agent.evals.trace import Trace

if TYPE_CHECKING:
    from google.adk.models import BaseLlm
    from google.adk.tools.tool_context import ToolContext
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
    """A google-adk ``LlmAgent`` with google-adk's Runner."""

    model: BaseLlm
    name: str = ADK

    async def work(self, task: Task, environment: TaskEnvironment, assignment: Assignment) -> Worked:
        """Say the instruction, word for word, and let the agent work."""
        return (await self._asked(task.instruction, task, environment, assignment))[0]

    async def write_skills(
        self, task: Task, environment: TaskEnvironment, assignment: Assignment
    ) -> tuple[Worked, bytes | None]:
        """Let the agent write skills before it has the task."""
        await environment.empty(_WRITTEN)
        asked = _WRITES + task.instruction
        worked, _ = await self._asked(asked, task, environment, replace(assignment, skills=None))
        packed = f"{LOGS}/agent/skills.tar"
        try:
            await environment.end_processes()
            await environment.run(("tar", "-C", _WRITTEN, "-cf", packed, "."), seconds=60)
            tar = await environment.read(packed, MAX_SKILLS_BYTES + 1)
        except SandboxError as error:
            return replace(worked, error=("sandbox", error.message)), None
        if tar is not None and len(tar) > MAX_SKILLS_BYTES:
            problem = f"The skills it wrote are larger than {MAX_SKILLS_BYTES:,} bytes; they are not used."
            return replace(worked, error=worked.error or ("agent", problem)), None
        return worked, tar

    async def _asked(
        self, text: str, task: Task, environment: TaskEnvironment, assignment: Assignment
    ) -> tuple[Worked, Conversation]:
        from google.adk.agents import LlmAgent

        from adk_skills_agent.adk.skill_toolset import SkillToolset
        from adk_skills_agent.evals.run.agent import Activations

        phase = Phase(assignment.network, assignment.folders)
        tools: list[Any] = [BashTool(environment, phase)]
        executor, activations, toolset = EnvironmentExecutor(environment, phase), None, None
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

        async def ended() -> None:
            await executor.end()
            if toolset is not None:
                await toolset.close()

        case = EvalCase(task.name, (CaseTurn(text),), Source(str(task.folder), 1))
        try:
            went = await converse(case, agent, activations, f"{task.name}-{assignment.trial}", assignment.seconds)
        finally:
            await asyncio.shield(ended())
        return _worked(went, assignment.skills), went


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


MAX_CHARACTERS = 10_000
COMMAND_SECONDS = 300.0
"""Of one command (S0-131)."""
_LONGEST_ARGUMENT = 100_000
"""Bytes; the kernel takes 128 KiB, and a command with a whole file in it may be longer."""
CUT = "... (truncated)"


class BashTool(BaseTool):
    """Runs shell commands where the task is."""

    def __init__(self, environment: TaskEnvironment, phase: Phase, seconds: float = COMMAND_SECONDS) -> None:
        super().__init__(
            name="bash",
            description=(
                f"Run a command with bash in the working directory {environment.workdir}. Each call is a new shell; "
                f"files stay. A command is ended after {seconds:g} seconds. Returns its exit code and its output "
                "(standard output and error)."
            ),
        )
        self._environment = environment
        self._phase = phase
        self._seconds = seconds

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters=types.Schema(
                type=types.Type.OBJECT,
                properties={"command": types.Schema(type=types.Type.STRING, description="The command to run.")},
                required=["command"],
            ),
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """Run ``args["command"]``.

        Returns ``exit_code`` and ``output``; ``error_code`` and ``error`` when nothing was run.
        """
        del tool_context
        command = args.get("command")
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            return {"error_code": "INVALID_ARGUMENTS", "error": "Give the command to run as the text `command`."}
        data = command.encode("utf-8", "surrogatepass")
        short = len(data) < _LONGEST_ARGUMENT
        argv, stdin = (("bash", "-c", command), None) if short else (("bash", "-s"), data)
        try:
            ran = await self._environment.run(argv, seconds=self._seconds, phase=self._phase, stdin=stdin)
        except SandboxError as error:
            return {"error_code": "SANDBOX_ERROR", "error": error.message}
        output = ran.text
        if len(output) > MAX_CHARACTERS:
            output = output[:MAX_CHARACTERS] + CUT
        if ran.timed_out:
            output += f"\nThe command was ended after {self._seconds:g} seconds."
        killed = 124 if ran.timed_out else 137  # as timeout(1) and shells report them
        return {"exit_code": killed if ran.exit_code is None else ran.exit_code, "output": output}


_MAX_STDERR_BYTES = 256 << 10


class EnvironmentExecutor(BaseCodeExecutor):
    """Runs Python code with the environment's own Python; google-adk calls ``execute_code`` in a thread."""

    _environment: TaskEnvironment = PrivateAttr()
    _phase: Phase = PrivateAttr()
    _loop: asyncio.AbstractEventLoop = PrivateAttr()
    _running: set[asyncio.Task[Any]] = PrivateAttr(default_factory=set)

    def __init__(self, environment: TaskEnvironment, phase: Phase, **data: Any) -> None:
        super().__init__(**data)
        self._environment = environment
        self._phase = phase
        self._loop = asyncio.get_running_loop()

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        """Run the code and wait for it."""
        del invocation_context
        seconds = getattr(code_execution_input, "timeout_seconds", None) or self.timeout_seconds or COMMAND_SECONDS
        work = self._run(code_execution_input.code, float(seconds))
        ran, problems = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        if ran.timed_out:
            problems += f"\nTimed out after {seconds:g} seconds."
        return CodeExecutionResult(stdout=ran.text, stderr=problems, exit_code=ran.exit_code)

    async def end(self) -> None:
        """End what still runs; the trial is over."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, code: str, seconds: float) -> tuple[Ran, str]:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # run_coroutine_threadsafe makes one
        self._running.add(task)
        try:
            # On standard input, as code with a skill's files in it is longer than an argument may be.
            name = f"{LOGS}/agent/stderr-{uuid.uuid4().hex}"
            ran = await self._environment.run(
                ("sh", "-c", f"mkdir -p {LOGS}/agent; python3 - 2>{name}"),
                seconds=seconds,
                phase=self._phase,
                stdin=code.encode("utf-8", "surrogatepass"),
            )
            problems = await self._environment.read(name, _MAX_STDERR_BYTES)
            return ran, (problems or b"").decode("utf-8", "replace")
        finally:
            self._running.discard(task)
