"""Who works on a task: the reference solution, nobody, or a google-adk agent (``adk_agent.py``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench.environment import Phase, TaskEnvironment
from adk_skills_agent.evals.skillsbench.task import Task, TaskSkills, filled

ORACLE, NOP, ADK = "oracle", "nop", "adk"
_LAST_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an agent is given besides the task."""

    seconds: float  # when they are over, the agent is stopped and what it left is graded
    trial: int = 1
    network: bool = True
    skills: TaskSkills | None = None  # the skills it may discover; None in an arm without
    folders: tuple[tuple[str, Path], ...] = ()  # paths of the environment to host folders that are there while it works
    variables: Mapping[str, str] = field(default_factory=dict)  # of the host, that a task may ask for


@dataclass(frozen=True, slots=True)
class Worked:
    """How an agent's work ended."""

    seconds: float
    # kind (``timeout``, ``agent``, ``model`` or ``sandbox``) and sentence; None when all went well
    error: tuple[str, str] | None = None
    skills_loaded: tuple[str, ...] = ()
    skills_read: tuple[str, ...] = ()  # skills whose files a command of its names, besides
    scripts_run: tuple[str, ...] = ()  # skills of which it ran a script through the tools
    # whether it used a skill and said something at the end (S0-137); None for an agent without a model
    heuristic: bool | None = None
    usage: Mapping[str, int] = field(default_factory=dict)  # tokens; empty when there was no model
    trace: Mapping[str, Any] | None = None  # the conversation as JSON; None when there was none


class BenchAgent(ABC):
    """One kind of agent; it serves many trials at a time."""

    name: str

    @abstractmethod
    async def work(self, task: Task, environment: TaskEnvironment, assignment: Assignment) -> Worked:
        """Work on a task until it is done or the time is over; whatever goes wrong is in the result."""

    async def write_skills(
        self, task: Task, environment: TaskEnvironment, assignment: Assignment
    ) -> tuple[Worked, bytes | None]:
        """Write skills for a task it will get later (arm ``self-gen``).

        Returns how that went, and a tar of the skills; None when there are none. Raises ``NotImplementedError`` when
        this kind of agent writes nothing.
        """
        raise NotImplementedError(f"{self.name} cannot write skills")

    async def close(self) -> None:
        """Release what all its trials share."""
        return


class Nop(BenchAgent):
    """Does nothing: every task must give it 0."""

    name = NOP

    async def work(self, task: Task, environment: TaskEnvironment, assignment: Assignment) -> Worked:
        """Return at once."""
        del task, environment, assignment
        return Worked(0.0)


class Oracle(BenchAgent):
    """Runs the task's own solution, which is in the environment for that time only: every task must give it 1."""

    name = ORACLE

    async def work(self, task: Task, environment: TaskEnvironment, assignment: Assignment) -> Worked:
        """Run ``solve.sh``."""
        if task.solution is None or not (task.solution / "solve.sh").is_file():
            return Worked(0.0, ("agent", f"{task.name} has no solve.sh, so there is no oracle."))
        variables, missing = filled(task.settings.solution_env, assignment.variables)
        places = ["/solution", *(["/oracle"] if task.solution.name == "oracle" else [])]
        folders = tuple((place, task.solution) for place in places)
        phase = Phase(assignment.network, (*assignment.folders, *folders), tuple(variables.items()))
        try:
            ran = await environment.run(("bash", f"{places[-1]}/solve.sh"), seconds=assignment.seconds, phase=phase)
            await environment.end_processes()
            for place in places:
                await environment.empty(place)
        except SandboxError as error:
            return Worked(0.0, ("sandbox", error.message))
        if ran.timed_out:
            problem: tuple[str, str] | None = ("timeout", f"solve.sh was stopped after {assignment.seconds:g} s.")
        elif ran.exit_code:
            lacks = f" (not given: {', '.join(missing)}; see --env)" if missing else ""
            last = " ".join(ran.text[-_LAST_CHARACTERS:].split())[-300:]
            problem = ("agent", f"solve.sh ended with code {ran.exit_code}{lacks}: {last}")
        else:
            problem = None
        return Worked(ran.seconds, problem, trace={"command": "solve.sh", "output": ran.text[-_LAST_CHARACTERS:]})
