"""The agent of a trial: the user's own, or a plain one; with the skills of the arm and nothing else of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.run.plan import Trial
from adk_skills_agent.sandbox import SandboxPolicy, policy_of

if TYPE_CHECKING:
    from google.adk.agents import BaseAgent, LlmAgent
    from google.adk.models import BaseLlm
    from google.genai.types import GenerateContentConfig

    from adk_skills_agent.adk.skill_toolset import SkillToolset

INSTRUCTION = (
    "You help with the user's tasks. Use a skill when one fits. Say in your final answer what you found or did."
)
_NO_SKILLS = "You help with the user's tasks. Say in your final answer what you found or did."


@dataclass(slots=True)
class Agents:
    """Makes the agents of a run; those with the same skills share their toolset, which holds no state of a session."""

    model: BaseLlm | None  # answers; google-adk's object, or None for that of ``base``
    base: LlmAgent | None = None  # the user's agent, whose own skill toolsets are taken out; None is a plain agent
    policy: SandboxPolicy | str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    _toolsets: dict[tuple[str, tuple[str, ...]], tuple[SkillToolset, Activations]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.base is None:
            return
        for agent in _below(self.base):
            if _skill_toolsets(agent):
                raise ConfigError(
                    f"Agent {agent.name!r}, below {self.base.name!r}, brings skills that no arm can take away. "
                    "Evaluate it by itself, or give its skills to the agent above."
                )

    def make(self, trial: Trial) -> tuple[LlmAgent, Activations | None, tuple[str, ...]]:
        """The agent of a trial, what a user activates by ``$name``, and the names of its skills."""
        from google.adk.agents import LlmAgent

        hidden = trial.arm.hidden(trial.case)
        available = tuple(name for name in trial.arm.catalog if name not in hidden)
        toolset, activations = self._toolset(trial, hidden) if available else (None, None)
        skills: list[Any] = [toolset] if toolset is not None else []
        if self.base is not None:
            update: dict[str, Any] = {"tools": [*_other_tools(self.base), *skills]}
            update |= self._seeded(self.base.generate_content_config, self.model or self.base.model, trial.run)
            if self.model is not None:
                update["model"] = self.model
            return self.base.clone(update=update), activations, available
        if self.model is None:
            raise ConfigError("Name a model with --model, or an agent with --agent.")
        if trial.case.files:
            from google.adk.tools.load_artifacts_tool import load_artifacts_tool

            skills.append(load_artifacts_tool)
        instruction = INSTRUCTION if available else _NO_SKILLS
        return (
            LlmAgent(
                name="assistant",
                model=self.model,
                instruction=instruction,
                tools=skills,
                **self._seeded(None, self.model, trial.run),
            ),
            activations,
            available,
        )

    @staticmethod
    def _seeded(config: GenerateContentConfig | None, model: BaseLlm | str, run: int) -> dict[str, Any]:
        """A seed of its own for each run, where the service knows seeds and the agent has none."""
        from google.adk.models import Gemini
        from google.genai import types

        if (config is not None and config.seed is not None) or not (
            isinstance(model, Gemini) or str(model).startswith("gemini")
        ):
            return {}
        return {"generate_content_config": (config or types.GenerateContentConfig()).model_copy(update={"seed": run})}

    async def get_ready(self, trial: Trial) -> None:
        """Do what happens once in a process, so that it is not counted as the first agent's time.

        google-adk imports hundreds of modules when it first runs an agent, and the sandbox looks at what the kernel
        can do: seconds on a busy machine, which the first trial's time limit would pay for. An agent with the skills of
        ``trial``, the first, and nothing of the user's, says one word without a model.
        """
        from google.adk.agents import LlmAgent
        from google.adk.models.llm_response import LlmResponse
        from google.adk.runners import InMemoryRunner
        from google.genai import types

        hidden = trial.arm.hidden(trial.case)
        there = any(name not in hidden for name in trial.arm.catalog)
        said = types.Content(role="model", parts=[types.Part(text="Ready.")])
        agent = LlmAgent(
            name="assistant",
            model=self.model or "gemini-2.5-flash",
            tools=[self._toolset(trial, hidden)[0]] if there else [],
            before_model_callback=lambda callback_context, llm_request: LlmResponse(content=said),  # noqa: ARG005
        )
        runner = InMemoryRunner(agent=agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="user")
        message = types.Content(role="user", parts=[types.Part(text="Are you ready?")])
        with contextlib.suppress(Exception):  # what is wrong is said by the first trial, in its row
            async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=message):
                pass

    async def close(self) -> None:
        """Release the toolsets."""
        toolsets = [toolset for toolset, _ in self._toolsets.values()]
        self._toolsets.clear()
        for toolset in toolsets:
            await toolset.close()

    def _toolset(self, trial: Trial, hidden: tuple[str, ...]) -> tuple[SkillToolset, Activations]:
        key = trial.arm.name, hidden
        if key not in self._toolsets:
            from adk_skills_agent.adk.skill_toolset import SkillToolset

            activations = Activations()
            catalog = trial.arm.catalog.view(deny=hidden, include_disabled=True)
            self._toolsets[key] = (
                SkillToolset(
                    catalog,
                    policy=policy_of(self.policy),
                    env=self.env,
                    on_event=activations,
                    model=_known_name(self.model),
                ),
                activations,
            )
        return self._toolsets[key]


def _known_name(model: BaseLlm | None) -> str | None:
    """The model's name, by which the catalogue's budget is found; None for one that google-adk does not know."""
    from adk_skills_agent.adk.options import check_model_name

    try:
        return check_model_name(model.model, "model") if model is not None else None
    except ConfigError:
        return None


class Activations:
    """Listens for skills that a user's message activates, by session."""

    def __init__(self) -> None:
        self._by_session: dict[str, dict[str, None]] = {}

    def __call__(self, event: Any) -> None:
        """Take an event of the toolset."""
        if getattr(event, "how", "") == "user" and not event.error_code:
            self._by_session.setdefault(event.origin.session, {})[event.skill] = None

    def take(self, session: str) -> tuple[str, ...]:
        """The skills of a session that has ended."""
        return tuple(self._by_session.pop(session, ()))


def agent_named(name: str) -> LlmAgent:
    """The user's agent, from ``module:attribute``. Raises ``ConfigError`` when there is no agent there."""
    from google.adk.agents import LlmAgent

    from adk_skills_agent.evals.models import object_named

    return object_named(name, LlmAgent, "google-adk LlmAgent")


def _other_tools(agent: LlmAgent) -> list[Any]:
    """The tools that bring no skills: what an arm without a skill must not have is not there by another way either."""
    skills = _skill_toolsets(agent)
    return [tool for tool in agent.tools if not any(tool is one for one in skills)]


def _skill_toolsets(agent: BaseAgent) -> list[Any]:
    from google.adk.tools.skill_toolset import SkillToolset as TheirToolset

    from adk_skills_agent.adk.runtime_toolset import RuntimeToolset

    return [tool for tool in getattr(agent, "tools", ()) if isinstance(tool, RuntimeToolset | TheirToolset)]


def _below(agent: BaseAgent) -> Iterator[BaseAgent]:
    """Sub-agents, and agents that are tools, at any depth."""
    from google.adk.tools.agent_tool import AgentTool

    tools = (tool.agent for tool in getattr(agent, "tools", ()) if isinstance(tool, AgentTool))
    for one in (*agent.sub_agents, *tools):
        yield one
        yield from _below(one)
