"""How many tokens a text takes, and how many a model can read: estimates, without any tokenizer."""

from __future__ import annotations

import re

UNITS_PER_TOKEN = 8
"""Sizes are added up in eighths of a token, so that parts can be summed without rounding each."""

UNKNOWN_CONTEXT_TOKENS = 200_000
"""The context assumed of a model that is not in the table."""

# Input contexts in tokens by the beginning of a model's name; the longest beginning wins. Families, not versions: a
# new member gets the size of its family, and a wrong guess only makes the catalog a little shorter or longer.
_CONTEXTS = {
    "gemini-": 1_048_576,
    "gemini-1.0": 32_760,
    "gemini-1.5-pro": 2_097_152,
    "gemini-2.5-flash-image": 32_768,
    "gemini-3-pro-image": 65_536,
    "gemini-live": 131_072,
    "gemini-pro": 32_760,
    "gemma": 131_072,
    "gemma-2": 8_192,
    "gemma2": 8_192,
    "claude": 200_000,
    "claude-2.0": 100_000,
    "claude-instant": 100_000,
    "chatgpt-4o": 128_000,
    "gpt-3.5": 16_385,
    "gpt-35": 16_385,
    "gpt-4": 8_192,
    "gpt-4-0125": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4-vision": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-4o": 128_000,
    "gpt-5": 272_000,
    "gpt-oss": 131_072,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    "codestral": 32_768,
    "command-r": 128_000,
    "deepseek": 65_536,
    "grok-": 131_072,
    "grok-4": 256_000,
    "llama-3": 8_192,
    "llama3": 8_192,
    "llama-3.": 131_072,
    "llama3.": 131_072,
    "llama3-": 8_192,
    "llama-4": 1_000_000,
    "llama4": 1_000_000,
    "mistral": 32_768,
    "mistral-large": 131_072,
    "mistral-medium": 131_072,
    "mixtral": 32_768,
    "qwen": 32_768,
    "qwen3": 131_072,
}
# A family begins the name or a part of it: ``models/gemini-…``, ``openrouter/anthropic/claude-…``,
# ``bedrock/us.anthropic.claude-…``, ``bedrock/meta.llama3-…``.
_FAMILY = re.compile(
    "(?:^|[/.:@])(" + "|".join(re.escape(family) for family in sorted(_CONTEXTS, key=len, reverse=True)) + ")"
)


def size_units(text: str) -> int:
    """Return the size of a text in eighths of a token; the size of a whole is the sum of its parts.

    A character takes as many eighths as thrice its UTF-8 bytes less one: ASCII 1/4 of a token (four characters to a
    token), Latin with accents, Greek, Cyrillic, Arabic 5/8, Chinese, Japanese, Korean 1, emoji 11/8. Rather over
    than under what the tokenizers of today's models take.
    """
    if text.isascii():
        return 2 * len(text)
    return 3 * len(text.encode("utf-8", "surrogatepass")) - len(text)


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text, rounded up (see :func:`size_units`)."""
    return -(-size_units(text) // UNITS_PER_TOKEN)


def context_tokens(model: str | None) -> int:
    """Return the input context of a model in tokens; ``UNKNOWN_CONTEXT_TOKENS`` when its name says nothing.

    Args:
        model: A model's name as ADK or LiteLLM has it: ``gemini-2.5-flash``, ``openai/gpt-4o``, or a resource path.
    """
    families = _FAMILY.findall((model or "").lower())
    return _CONTEXTS[families[-1]] if families else UNKNOWN_CONTEXT_TOKENS
