"""A google-adk model from what a person writes after ``--model``."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.judge_model import sentence_of
from adk_skills_agent.evals.trace import Usage
from adk_skills_agent.installation import install_hint

if TYPE_CHECKING:
    from google.adk.models import BaseLlm


T = TypeVar("T")
_TRIES, _FIRST_WAIT, _LONGEST_WAIT = 5, 2.0, 60.0
_RETRIED = (429, 503)


def model_named(name: str, *, retries: bool = True) -> BaseLlm:
    """The model of a name.

    ``name`` is a name google-adk knows (``gemini-2.5-flash``), ``provider/model`` for LiteLLM, or ``module:attribute``
    for a ``BaseLlm`` of your own (or a function that makes one). Without ``retries`` Gemini does not try again by
    itself: who counts the requests does. Returns the model; Gemini tries again on 429 and 503, five times, after 2 s to
    60 s (S0-138, S0-150). Raises ``ConfigError`` when no model has that name, or it cannot be used here (no key, no
    LiteLLM).
    """
    from google.adk.models import BaseLlm, Gemini, LLMRegistry

    if ":" in name and "/" not in name:
        return object_named(name, BaseLlm, "google-adk model (BaseLlm)")  # type: ignore[type-abstract]
    if "/" in name and not name.startswith(("models/", "projects/")):
        try:
            from google.adk.models.lite_llm import LiteLlm
        except ImportError as error:
            raise ConfigError(f"The model {name!r} needs LiteLLM: {install_hint('litellm')}") from error
        return LiteLlm(model=name)
    try:
        kind = LLMRegistry.resolve(name)
        if issubclass(kind, Gemini):
            from google.genai import types

            retry = types.HttpRetryOptions(
                attempts=_TRIES if retries else 1,
                initial_delay=_FIRST_WAIT,
                max_delay=_LONGEST_WAIT,
                exp_base=2,
                http_status_codes=list(_RETRIED),
            )
            gemini = kind(model=name, retry_options=retry)
            # Made here, outside of the event loop: without a key its constructor raises, see cli/demo/act.py.
            _ = gemini.api_client
            return gemini
        return LLMRegistry.new_llm(name)
    except Exception as error:
        if "API key" in str(error):
            raise ConfigError(
                f"The model {name!r} needs a key: set GOOGLE_API_KEY, or the variables of Vertex AI. To measure "
                "without a key: --model scripted:FILE --judge none."
            ) from error
        raise unusable_model(name, error) from error


def unusable_model(name: str, error: Exception) -> ConfigError:
    """What to say of a model that google-adk does not make, with this package's extra where it names its own."""
    said = sentence_of(error).replace("pip install google-adk[extensions]", install_hint("litellm"))
    return ConfigError(f"The model {name!r} cannot be used: {said}")


def object_named(name: str, kind: type[T], what: str) -> T:
    """What ``module:attribute`` names, or what it returns if that is a function.

    Modules of the current folder count where no installed one has the name: the folder may be a stranger's repository,
    which must not put its own in the place of yours, or of what is imported later (row 229).

    Raises:
        ConfigError: There is no such module or attribute, importing or calling it fails, or it is something else.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    try:
        if here not in sys.path and importlib.util.find_spec(module.partition(".")[0]) is None:
            sys.path.append(here)
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigError(f"{name!r} cannot be used: {sentence_of(error)}. Write module:attribute.") from error
    if callable(found) and not isinstance(found, kind):
        try:
            found = found()
        except Exception as error:
            raise ConfigError(
                f"{name!r} is called without arguments to make a {what}, and fails: {sentence_of(error)}."
            ) from error
    if not isinstance(found, kind):
        raise ConfigError(f"{name!r} is a {type(found).__name__}, not a {what}.")
    return found


# What tokens cost, in US dollars.

_LIST = "model_prices_and_context_window_backup.json"
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    prompt: float
    output: float  # of the answer, thoughts among it
    cached: float  # of the part of the prompt that came from the service's cache
    source: str = "--price"

    def cost(self, usage: Usage) -> float:
        """What these tokens cost."""
        fresh = max(usage.prompt - usage.cached, 0)
        cached = min(usage.cached, usage.prompt)
        return (fresh * self.prompt + cached * self.cached + usage.output * self.output) / _MILLION


KNOWN = {
    "gemini-2.5-pro": Price(1.25, 10.0, 0.125, "Google's list of 2025-10"),
    "gemini-2.5-flash": Price(0.30, 2.50, 0.03, "Google's list of 2025-10"),
    "gemini-2.5-flash-lite": Price(0.10, 0.40, 0.01, "Google's list of 2025-10"),
    "gemini-2.0-flash": Price(0.10, 0.40, 0.025, "Google's list of 2025-10"),
    "gemini-3-pro-preview": Price(2.00, 12.0, 0.20, "Google's list of 2025-12"),
    "gemini-3-flash-preview": Price(0.50, 3.00, 0.05, "Google's list of 2025-12"),
}
"""For prompts below 200,000 tokens. LiteLLM's list, where LiteLLM is installed, comes first: it is newer."""


def price_of(model: str) -> Price | None:
    """The price of a model's tokens; None when it is not known."""
    entry = _litellm_list().get(model) or _litellm_list().get(f"gemini/{model}")
    if isinstance(entry, dict) and "input_cost_per_token" in entry and "output_cost_per_token" in entry:
        prompt, output = float(entry["input_cost_per_token"]), float(entry["output_cost_per_token"])
        cached = float(entry.get("cache_read_input_token_cost") or prompt)
        return Price(prompt * _MILLION, output * _MILLION, cached * _MILLION, "LiteLLM's list")
    return KNOWN.get(model)


def read_price(text: str) -> Price:
    """A price as a person writes it: ``PROMPT,OUTPUT`` or ``PROMPT,OUTPUT,CACHED``, for a million tokens.

    Raises ``ConfigError`` when it is not written so.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (2, 3) or not all(re.fullmatch(r"\d+(\.\d+)?", part) for part in parts):
        raise ConfigError(
            f"{text!r} is not a price. Write PROMPT,OUTPUT in US dollars for a million tokens, e.g. 0.30,2.50."
        )
    numbers = [float(part) for part in parts]
    return Price(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else numbers[0])


@cache
def _litellm_list() -> dict[str, Any]:
    """LiteLLM's list of prices, read without importing LiteLLM (which takes seconds)."""
    spec = importlib.util.find_spec("litellm")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        try:
            found = json.loads((Path(place) / _LIST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return found if isinstance(found, dict) else {}
    return {}
