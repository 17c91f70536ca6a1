"""The user of a ``conversation_scenario``: google-adk's own simulator, with the model that plays the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from google.adk.evaluation.conversation_scenarios import ConversationScenario
from google.adk.evaluation.simulation.llm_backed_user_simulator import (
    LlmBackedUserSimulator,
    LlmBackedUserSimulatorConfig,
)
from google.adk.evaluation.simulation.user_simulator import Status
from google.adk.models import BaseLlm
from pydantic import PrivateAttr

from adk_skills_agent.errors import UserModelUnavailable
from adk_skills_agent.evals.cases import Scenario
from adk_skills_agent.evals.model_errors import sentence_of
from adk_skills_agent.evals.trace import Usage, text_of, usage_of

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse

_LONGEST_SECONDS = 120.0


class SimulatedUser:
    """Says what a user of this scenario would say next.

    Args:
        scenario: What the user wants.
        llm: Who plays the user.

    Attributes:
        ended: Why the user said no more: ``stop_signal_detected`` (all is done) or ``turn_limit_reached``; else empty.
    """

    def __init__(self, scenario: Scenario, llm: BaseLlm) -> None:
        config = LlmBackedUserSimulatorConfig.model_validate(dict(scenario.simulator))
        self._simulator = LlmBackedUserSimulator(
            config=config, conversation_scenario=ConversationScenario.model_validate(dict(scenario.plan))
        )
        self._llm = _Counted(model=llm.model)
        self._llm._inner = llm
        # The simulator takes a model's name only and makes the model itself: a model that is there already (with its
        # address, its key and its retries) has no public way in.
        self._simulator._llm = self._llm
        self.ended = ""

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return self._llm._usage

    async def says(self, events: Sequence[Event]) -> str | None:
        """The user's next message, or None at the end of the conversation.

        Args:
            events: Of the conversation so far, the user's among them.

        Raises:
            UserModelUnavailable: The model gave no message.
        """
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                said = await self._simulator.get_next_user_message([event.model_copy(deep=True) for event in events])
        except ModuleNotFoundError as error:
            raise UserModelUnavailable(
                f"google-adk's simulated user needs {error.name}, which is not installed: pip install "
                "'adk-skills-agent[eval]'."
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
