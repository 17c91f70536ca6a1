"""What tokens cost, in US dollars."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.trace import Usage

_LIST = "model_prices_and_context_window_backup.json"
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens.

    Attributes:
        prompt: Of the prompt.
        output: Of the answer, thoughts among it.
        cached: Of the part of the prompt that came from the service's cache.
        source: Where the price is from.
    """

    prompt: float
    output: float
    cached: float
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

    Raises:
        ConfigError: It is not written so.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (2, 3) or not all(re.fullmatch(r"\d+(\.\d+)?", part) for part in parts):
        raise ConfigError(
            f"{text!r} is no price. Write PROMPT,OUTPUT in US dollars for a million tokens, e.g. 0.30,2.50."
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
