"""A model that says of each rubric whether it holds: several samples, a majority, every failure an error of the run."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adk_skills_agent.errors import ConfigError, JudgeUnavailable
from adk_skills_agent.evals.judge_cache import JudgeCache, Votes, question_key
from adk_skills_agent.evals.judge_prompt import JudgeQuestion, question
from adk_skills_agent.evals.model_errors import is_temporary, sentence_of
from adk_skills_agent.evals.rubrics import Rubric, check_ids
from adk_skills_agent.evals.trace import Turn, Usage

if TYPE_CHECKING:
    from google.adk.models import BaseLlm

DEFAULT_JUDGE = "gemini-2.5-flash"
WAITS = (2.0, 4.0, 8.0, 16.0)
"""Seconds before each further try when the service is busy (S0-150)."""
_ASKED_AGAIN = 2  # when an answer lacks a verdict
_AT_ONCE = 8
_LONGEST_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge says of one rubric.

    Attributes:
        rubric_id: The rubric's.
        met: Whether most samples said yes; as many of each is no.
        rationale: Of the first sample that said so.
        agreement: The share of samples that said so, 0.5 to 1.
        votes: What each sample said.
    """

    rubric_id: str
    met: bool
    rationale: str
    agreement: float
    votes: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The judge's answer: one verdict for each rubric asked, in their order.

    Attributes:
        verdicts: The verdicts.
        usage: Tokens it took; what came from the cache took none.
        cached: How many samples came from the cache.
    """

    verdicts: tuple[Verdict, ...]
    usage: Usage = field(default_factory=Usage)
    cached: int = 0


class Judge:
    """Asks a model about rubrics.

    Args:
        llm: Any google-adk model, or the name of one.
        samples: How often each question is asked; odd, so that there is a majority.
        cache: Keeps answers; None keeps them in memory.
        waits: Seconds before each further try on 429, 503 and a lost connection; empty tries once.
        temperature: Of the model; None leaves its default, which makes samples differ.
        sleep: Waits; for tests.

    Attributes:
        spent: Tokens of every answer so far, also of those that were no use.
        given: Every verdict so far: the turn's number, the rubric, the verdict.

    Raises:
        ConfigError: ``samples`` is below 1, or the model cannot be used.
    """

    def __init__(
        self,
        llm: BaseLlm | str = DEFAULT_JUDGE,
        *,
        samples: int = 3,
        cache: JudgeCache | None = None,
        waits: Sequence[float] = WAITS,
        temperature: float | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if samples < 1:
            raise ConfigError(f"A judge needs at least 1 sample, not {samples}.")
        if isinstance(llm, str):
            from adk_skills_agent.evals.models import model_named

            llm = model_named(llm)
        self.llm = llm
        self.samples = samples
        self.cache = cache if cache is not None else JudgeCache()
        self.waits = tuple(waits)
        self.temperature = temperature
        self._sleep = sleep
        self.spent = Usage()
        self.given: list[tuple[int, Rubric, Verdict]] = []
        self._context = ""
        self._turnstiles: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    def about(self, context: str) -> Judge:
        """The same judge with counters of its own, which is told more about one conversation.

        Args:
            context: Such as the files it left; untrusted, like all of it.
        """
        other = copy.copy(self)
        other.spent, other.given, other._context = Usage(), [], context
        return other

    @property
    def name(self) -> str:
        """The model's name."""
        return self.llm.model

    async def judge(self, turns: Sequence[Turn], rubrics: Sequence[Rubric], *, context: str = "") -> Verdicts:
        """Ask about the last of ``turns``.

        Args:
            turns: The conversation up to the turn that is judged; at least one.
            rubrics: What is asked; each gets exactly one verdict.
            context: More about the conversation, such as the files it left; untrusted, like all of it.

        Raises:
            ConfigError: Two rubrics share an id.
            JudgeUnavailable: The model cannot be reached, or did not give a verdict for every rubric.
        """
        check_ids(rubrics)
        if not rubrics:
            return Verdicts(())
        context = "\n\n".join(filter(None, [self._context, context]))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._caught(turns, rubrics, context, n)) for n in range(self.samples)]
        answers = [task.result() for task in tasks]
        for answer in answers:
            if isinstance(answer, JudgeUnavailable):
                raise answer
        given = [answer for answer in answers if not isinstance(answer, JudgeUnavailable)]
        usage = sum((used for _, used, _ in given), Usage())
        verdicts = tuple(_majority(rubric, [votes[rubric.id] for votes, _, _ in given]) for rubric in rubrics)
        self.given += [(len(turns), rubric, verdict) for rubric, verdict in zip(rubrics, verdicts, strict=True)]
        return Verdicts(verdicts, usage, sum(cached for _, _, cached in given))

    async def _caught(
        self, turns: Sequence[Turn], rubrics: Sequence[Rubric], context: str, sample: int
    ) -> tuple[Votes, Usage, bool] | JudgeUnavailable:
        # An exception would cancel the other samples, whose answers are already paid.
        try:
            return await self._sample(turns, rubrics, context, sample)
        except JudgeUnavailable as error:
            return error

    async def _sample(
        self, turns: Sequence[Turn], rubrics: Sequence[Rubric], context: str, sample: int
    ) -> tuple[Votes, Usage, bool]:
        settings = {"temperature": self.temperature}
        key = question_key(self.name, settings, turns, rubrics, context, sample)
        known = self.cache.get(key)
        if known is not None and all(rubric.id in known for rubric in rubrics):
            return known, Usage(), True
        usage, problem = Usage(), ""
        for _ in range(1 + _ASKED_AGAIN):
            asked = question(turns, rubrics, context=context)
            answer, used = await self._answer(asked)
            usage += used
            self.spent += used
            votes, problem = asked.read(answer)
            if not problem:
                self.cache.put(key, votes)
                return votes, usage, False
        raise JudgeUnavailable(
            f"The judge {self.name} was asked {1 + _ASKED_AGAIN} times and its last answer has {problem}. "
            "Choose another model with --judge."
        )

    async def _answer(self, asked: JudgeQuestion) -> tuple[str, Usage]:
        """One answer; what is temporary is tried again.

        Raises:
            JudgeUnavailable: The service refuses, or stays busy.
        """
        for wait in (*self.waits, None):
            try:
                async with self._turnstile(), asyncio.timeout(_LONGEST_SECONDS):
                    return await self._ask(asked)
            except JudgeUnavailable:
                raise
            except Exception as error:
                if wait is None or not is_temporary(error):
                    raise JudgeUnavailable(f"The judge {self.name} gave no answer: {sentence_of(error)}") from error
            await self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _ask(self, asked: JudgeQuestion) -> tuple[str, Usage]:
        from google.adk.models.llm_request import LlmRequest
        from google.genai import types

        from adk_skills_agent.evals.trace import text_of

        request = LlmRequest(
            model=self.llm.model,
            contents=[types.Content(role="user", parts=[types.Part(text=asked.text)])],
            config=types.GenerateContentConfig(system_instruction=asked.system, temperature=self.temperature),
        )
        text, usage = "", Usage()
        async for response in self.llm.generate_content_async(request):
            if response.error_code:
                said = ": ".join(filter(None, [response.error_code, response.error_message]))
                raise JudgeUnavailable(f"The judge {self.name} gave no answer: {said}")
            if not response.partial:
                text += text_of(response.content)
            if response.usage_metadata is not None:
                data = response.usage_metadata
                output = (data.candidates_token_count or 0) + (data.thoughts_token_count or 0)
                prompt = data.prompt_token_count or 0
                usage += Usage(
                    prompt, output, data.total_token_count or prompt + output, data.cached_content_token_count or 0
                )
        return text, usage

    def _turnstile(self) -> asyncio.Semaphore:
        """A semaphore of the running loop: a judge may serve one loop after another."""
        loop = asyncio.get_running_loop()
        for other in [one for one in self._turnstiles if one.is_closed()]:
            del self._turnstiles[other]
        return self._turnstiles.setdefault(loop, asyncio.Semaphore(_AT_ONCE))


def _majority(rubric: Rubric, votes: Sequence[tuple[bool, str]]) -> Verdict:
    said = tuple(met for met, _ in votes)
    met = sum(said) * 2 > len(said)
    rationale = next(text for vote, text in votes if vote is met)
    return Verdict(rubric.id, met, rationale, sum(vote is met for vote in said) / len(said), said)
