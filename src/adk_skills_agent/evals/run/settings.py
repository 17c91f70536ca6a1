"""The models, agents, judge and prices of a run, made from the names on a command line.

A cluster makes the same settings on each of its nodes, so what they are made of is plain text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.judge import Judge
from adk_skills_agent.evals.judge_model import JudgeCache, JudgeModel
from adk_skills_agent.evals.models import Price, model_named, price_of, read_price
from adk_skills_agent.evals.pace import Counter, Here, Limits, Pace, keep_pace
from adk_skills_agent.evals.run.agent import Agents, agent_named
from adk_skills_agent.evals.run.trial import TIMEOUT_SECONDS, TrialSettings

if TYPE_CHECKING:
    from google.adk.models import BaseLlm

    from adk_skills_agent.evals.preparation import Prepared

SCRIPTED = "scripted:"
_JUDGE_CACHE = "judge-cache.jsonl"


@dataclass(frozen=True, slots=True)
class ModelNames:
    """What the settings of a run are made of: names, no objects, and no secret."""

    # a name google-adk knows, ``provider/model``, ``module:attribute`` or ``scripted:FILE``; empty for the agent's own
    model: str
    agent: str | None = None  # ``module:attribute``; None for a plain agent
    policy: str | None = None  # a preset of limits for the scripts
    judge: str = ""  # as ``model``; empty for none
    judge_samples: int = 1
    timeout: float = TIMEOUT_SECONDS  # seconds for a conversation
    price: str | None = None  # of the model's tokens, as :func:`~adk_skills_agent.evals.models.read_price` reads it
    judge_price: str | None = None
    user_price: str | None = None
    limits: Limits = field(default_factory=Limits)  # how fast all of them together may be asked


def settings_of(
    stack: contextlib.ExitStack, prepared: Prepared, names: ModelNames, folder: Path, counter: Counter | None = None
) -> TrialSettings:
    """The settings of a run's trials.

    ``stack`` ends what serves the models. Without a ``counter`` the requests of this process are counted, where there
    are limits. Raises ``ConfigError`` when a model, an agent or a price cannot be used.
    """
    # Prices first: a mistake in one is told before a model needs its key.
    price, judge_price = _price(names.price, names.model), _price(names.judge_price, names.judge)
    base = agent_named(names.agent) if names.agent else None
    if names.limits != Limits():
        if not names.model:
            raise ConfigError("Limits of requests and tokens need a model that can be told: name it with --model.")
        counter = counter or Here(Pace(names.limits))

    def model_of(name: str) -> BaseLlm:
        if counter is None:
            return stack.enter_context(named_model(name))
        return keep_pace(stack.enter_context(named_model(name, retries=False)), counter)

    agents = Agents(model_of(names.model) if names.model else None, base, names.policy)
    judge = None
    if names.judge:
        try:
            model = model_of(names.judge)
        except ConfigError as error:
            raise ConfigError(f"{error.message} Name another judge, or leave rubrics out: --judge none") from error
        judge = Judge(JudgeModel(model, samples=names.judge_samples, cache=JudgeCache(folder / _JUDGE_CACHE)))
    played = _user_models(prepared)
    return TrialSettings(
        agents,
        judge,
        names.timeout,
        price,
        judge_price,
        {name: model_of(name) for name in played},
        {name: price for name in played if (price := _price(names.user_price, name)) is not None},
    )


def check_budget(names: ModelNames, prepared: Prepared, budget_usd: float | None) -> None:
    """Refuse a budget that cannot be held because a price is not known. Raises ``ConfigError`` when it does."""
    if budget_usd is None:
        return
    if _price(names.price, names.model) is None:
        raise ConfigError(f"--budget-usd: the price of {names.model or names.agent} is not known. Give --price.")
    if names.judge and _price(names.judge_price, names.judge) is None:
        raise ConfigError(f"--budget-usd: the price of {names.judge} is not known. Give --judge-price.")
    unknown = [name for name in _user_models(prepared) if _price(names.user_price, name) is None]
    if unknown:
        raise ConfigError(f"--budget-usd: the price of {', '.join(unknown)} is not known. Give --user-price.")


def _user_models(prepared: Prepared) -> list[str]:
    return list(dict.fromkeys(case.scenario.model for case in prepared.cases if case.scenario is not None))


@contextlib.contextmanager
def named_model(name: str, *, retries: bool = True) -> Iterator[BaseLlm]:
    """A model by its name; a scripted one serves as long as it is used."""
    if not name.startswith(SCRIPTED):
        yield model_named(name, retries=retries)
        return

    with scripted_model(Path(name.removeprefix(SCRIPTED))) as model:
        yield model


def _price(text: str | None, name: str) -> Price | None:
    if text is not None:
        return read_price(text)
    return Price(0.0, 0.0, 0.0, "scripted models cost nothing") if name.startswith(SCRIPTED) else price_of(name)


# ``scripted:FILE``: a model of rules on the loopback interface, for trying things without a key.

_REMEMBERED = 10
"""Requests the server keeps: what a run of thousands of trials says is in its results."""


@contextlib.contextmanager
def scripted_model(path: Path) -> Iterator[BaseLlm]:
    """google-adk's own Gemini class, answered by the rules of a file (see :mod:`adk_skills_agent.testing`).

    Raises ``ConfigError`` when the file cannot be read as rules; file and line are named.
    """
    from adk_skills_agent.testing import GeminiServer, load_rules

    with GeminiServer(load_rules(path), remember=_REMEMBERED) as server:
        yield server.model()
