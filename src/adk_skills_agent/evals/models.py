"""A google-adk model from what a person writes after ``--model``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.model_errors import sentence_of

if TYPE_CHECKING:
    from google.adk.models import BaseLlm

_TRIES, _FIRST_WAIT, _LONGEST_WAIT = 5, 2.0, 60.0
_RETRIED = (429, 503)


def model_named(name: str) -> BaseLlm:
    """The model of a name.

    Args:
        name: A name google-adk knows (``gemini-2.5-flash``), ``provider/model`` for LiteLLM, or ``module:attribute``
            for a ``BaseLlm`` of your own (or a function that makes one).

    Returns:
        The model; Gemini tries again on 429 and 503, five times, after 2 s to 60 s (S0-138, S0-150).

    Raises:
        ConfigError: There is none, or it cannot be used here (no key, no LiteLLM).
    """
    from google.adk.models import BaseLlm, Gemini, LLMRegistry

    if ":" in name and "/" not in name:
        found = attribute_named(name)
        model = found() if callable(found) and not isinstance(found, BaseLlm) else found
        if not isinstance(model, BaseLlm):
            raise ConfigError(f"{name!r} is a {type(model).__name__}, not a google-adk model (BaseLlm).")
        return model
    if "/" in name and not name.startswith(("models/", "projects/")):
        try:
            from google.adk.models.lite_llm import LiteLlm
        except ImportError as error:
            raise ConfigError(f"The model {name!r} needs LiteLLM: pip install 'adk-skills-agent[litellm]'") from error
        return LiteLlm(model=name)
    try:
        kind = LLMRegistry.resolve(name)
        if issubclass(kind, Gemini):
            from google.genai import types

            retry = types.HttpRetryOptions(
                attempts=_TRIES,
                initial_delay=_FIRST_WAIT,
                max_delay=_LONGEST_WAIT,
                exp_base=2,
                http_status_codes=list(_RETRIED),
            )
            gemini = kind(model=name, retry_options=retry)
            # Made here, outside of the event loop: without a key its constructor raises, see cli/demo_agent.py.
            _ = gemini.api_client
            return gemini
        return LLMRegistry.new_llm(name)
    except Exception as error:
        raise ConfigError(f"The model {name!r} cannot be used: {sentence_of(error)}") from error


def attribute_named(name: str) -> Any:
    """What ``module:attribute`` names; modules of the current folder are found, too.

    Raises:
        ConfigError: There is no such module or attribute, or importing it fails.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigError(f"{name!r} cannot be used: {sentence_of(error)}. Write module:attribute.") from error
    return found
