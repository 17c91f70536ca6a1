"""One conversation with google-adk's real Runner, and what is left of it: a trace."""

from __future__ import annotations

import asyncio
import mimetypes
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from google.adk.evaluation.conversation_scenarios import ConversationScenario
from google.adk.evaluation.simulation.llm_backed_user_simulator import (
    LlmBackedUserSimulator,
    LlmBackedUserSimulatorConfig,
)
from google.adk.evaluation.simulation.user_simulator import Status
from google.adk.models import BaseLlm
from pydantic import PrivateAttr

from adk_skills_agent.errors import ErrorCode, SandboxError, UserModelUnavailable
from adk_skills_agent.evals.cases import Scenario
from adk_skills_agent.evals.judge_model import is_of_the_service, sentence_of
from adk_skills_agent.evals.run.agent import Activations
from adk_skills_agent.evals.trace import OutputFile, Trace, Turn, Usage, from_events, text_of, usage_of

if TYPE_CHECKING:
    from google.adk.agents import LlmAgent
    from google.adk.artifacts import InMemoryArtifactService
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService

    from adk_skills_agent.evals.cases import EvalCase


APP, USER = "adk-skills-eval", "user"
KEPT_BYTES = 256 * 1024
"""Of a file the agent leaves; of a larger one only the size is known."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """How a conversation went.

    Attributes:
        trace: What happened, also when it broke off.
        seconds: How long the agent took.
        error: ``kind`` and sentence when it broke off: ``model``, ``sandbox``, ``user model``, ``timeout`` or
            ``agent``; else empty.
        user_seconds: How long a simulated user took.
    """

    trace: Trace
    seconds: float
    error: tuple[str, str] | None = None
    user_seconds: float = 0.0


async def converse(
    case: EvalCase,
    agent: LlmAgent,
    activations: Activations | None,
    session_id: str,
    limit_seconds: float,
    user: SimulatedUser | None = None,
) -> Conversation:
    """Say what the case's user says, turn by turn, in a session of its own that is forgotten at the end.

    ``limit_seconds`` is for all turns together, without the time that a simulated ``user`` takes. The agent is not
    closed.
    """
    from google.adk.artifacts import InMemoryArtifactService
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai import types

    sessions, artifacts = InMemorySessionService(), InMemoryArtifactService()
    runner = Runner(app_name=APP, agent=agent, session_service=sessions, artifact_service=artifacts)
    await sessions.create_session(app_name=APP, user_id=USER, session_id=session_id, state=dict(case.initial_state))
    for file in case.files:
        data = await asyncio.to_thread(file.path.read_bytes)
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        part = types.Part.from_bytes(data=data, mime_type=kind)
        await artifacts.save_artifact(
            app_name=APP, user_id=USER, session_id=session_id, filename=file.name, artifact=part
        )
    seconds: dict[str, float] = {}
    error: tuple[str, str] | None = None
    spent, said, started = 0.0, 0, time.perf_counter()
    try:
        while (text := await _next(case, said, user, sessions, session_id)) is not None:
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(limit_seconds - spent):
                    await _say(runner, session_id, _message(text, case), seconds)
            finally:
                spent, said = spent + time.perf_counter() - begun, said + 1
    except UserModelUnavailable as failure:
        error = "user model", failure.message
    except TimeoutError:
        error = "timeout", f"The agent was stopped after {limit_seconds:g} s."
    except Exception as failure:  # noqa: BLE001 - whatever an agent raises is a result of the trial
        error = _kind(failure), sentence_of(failure)
    thought = time.perf_counter() - started - spent if user is not None else 0.0
    session = await sessions.get_session(app_name=APP, user_id=USER, session_id=session_id)
    trace = from_events(session.events if session is not None else (), seconds=seconds)
    activated = activations.take(session_id) if activations is not None else ()
    trace = replace(
        trace,
        turns=_as_written(trace.turns, case),
        output_files=await _outputs(artifacts, session_id, {file.name for file in case.files}),
        activated=activated,
    )
    return Conversation(trace, spent, error or _sandbox_error(trace), thought)


async def _next(
    case: EvalCase, said: int, user: SimulatedUser | None, sessions: InMemorySessionService, session_id: str
) -> str | None:
    """The user's next message; None when there is none."""
    if user is None:
        return case.turns[said].user_text if said < len(case.turns) else None
    session = await sessions.get_session(app_name=APP, user_id=USER, session_id=session_id)
    return await user.says(session.events if session is not None else ())


def _sandbox_error(trace: Trace) -> tuple[str, str] | None:
    """What a script tool said of the sandbox itself: the agent cannot help it, so it is no result of the agent."""
    for call in trace.calls:
        response = call.response or {}
        if response.get("error_code") in (ErrorCode.SANDBOX_ERROR, ErrorCode.SANDBOX_UNAVAILABLE):
            return "sandbox", str(response.get("error") or response["error_code"])
    return None


async def _say(runner: Runner, session_id: str, text: str, seconds: dict[str, float]) -> None:
    from google.genai import types

    message = types.Content(role="user", parts=[types.Part(text=text)])
    begun, invocation = time.perf_counter(), ""
    try:
        async for event in runner.run_async(user_id=USER, session_id=session_id, new_message=message):
            invocation = event.invocation_id
    finally:
        if invocation:
            seconds[invocation] = time.perf_counter() - begun


def _message(text: str, case: EvalCase) -> str:
    if not case.files:
        return text
    return f"{text}\n\nInput files (artifacts of this session): {', '.join(file.name for file in case.files)}"


def _as_written(turns: tuple[Turn, ...], case: EvalCase) -> tuple[Turn, ...]:
    """The turns with the user's texts as the case has them."""
    said = [turn.user_text for turn in case.turns]
    return tuple(replace(turn, user_text=said[n]) if n < len(said) else turn for n, turn in enumerate(turns))


def _kind(error: Exception) -> str:
    """Who failed. google-adk raises what the model's service says, and what a hallucinated call leads to, alike."""
    if isinstance(error, SandboxError):
        return "sandbox"
    return "model" if is_of_the_service(error) else "agent"


async def _outputs(artifacts: InMemoryArtifactService, session_id: str, inputs: set[str]) -> dict[str, OutputFile]:
    """The artifacts the agent left, by name."""
    found = {}
    names = await artifacts.list_artifact_keys(app_name=APP, user_id=USER, session_id=session_id)
    for name in names:
        if name in inputs:
            versions = await artifacts.list_versions(app_name=APP, user_id=USER, session_id=session_id, filename=name)
            if len(versions) < 2:
                continue  # as the user gave it
        part = await artifacts.load_artifact(app_name=APP, user_id=USER, session_id=session_id, filename=name)
        if part is None:
            continue
        if part.inline_data is not None and part.inline_data.data is not None:
            found[name] = OutputFile.of(part.inline_data.data, keep_bytes=KEPT_BYTES)
        elif part.text is not None:
            found[name] = OutputFile.of(part.text.encode("utf-8", "surrogatepass"), keep_bytes=KEPT_BYTES)
    return found


# The user of a ``conversation_scenario``: google-adk's own simulator, with the model that plays the user.

_LONGEST_SECONDS = 120.0


class SimulatedUser:
    """Says what a user of this scenario would say next."""

    def __init__(self, scenario: Scenario, llm: BaseLlm) -> None:
        if code := scenario.template_code:
            raise UserModelUnavailable(f"A text of the simulated user has {code[:60]!r}, which is not run.")
        config = LlmBackedUserSimulatorConfig.model_validate(dict(scenario.simulator))
        self._simulator = LlmBackedUserSimulator(
            config=config, conversation_scenario=ConversationScenario.model_validate(dict(scenario.plan))
        )
        self._llm = _Counted(model=llm.model)
        self._llm._inner = llm
        # The simulator takes a model's name only and makes the model itself: a model that is there already (with its
        # address, its key and its retries) has no public way in.
        self._simulator._llm = self._llm
        # why the user said no more: ``stop_signal_detected`` (all is done) or ``turn_limit_reached``; else empty
        self.ended = ""

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return self._llm._usage

    async def says(self, events: Sequence[Event]) -> str | None:
        """The user's next message, or None at the end of the conversation.

        Raises ``UserModelUnavailable`` when the model gave no message.
        """
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                said = await self._simulator.get_next_user_message([event.model_copy(deep=True) for event in events])
        except ModuleNotFoundError as error:
            raise UserModelUnavailable(
                f"google-adk's simulated user needs {error.name}, which is not installed. Install it with: "
                f"pip install {error.name}"
            ) from error
        except Exception as error:
            raise UserModelUnavailable(
                f"The model {self._llm.model} that plays the user said nothing: {sentence_of(error)}"
            ) from error
        if said.status is not Status.SUCCESS:
            self.ended = said.status.value
            return None
        return text_of(said.user_message)


class _Counted(BaseLlm):
    """Another model whose tokens are counted."""

    _inner: BaseLlm = PrivateAttr()
    _usage: Usage = PrivateAttr(default_factory=Usage)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        llm_request.model = self._inner.model  # the config's own default stands in it
        async for response in self._inner.generate_content_async(llm_request, stream):
            if response.usage_metadata is not None:
                self._usage += usage_of(response.usage_metadata)
            yield response
