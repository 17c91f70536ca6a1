from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.catalog.budget import context_tokens, estimate_tokens, size_units


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("漢字", 2), ("é" * 8, 5), ("😀" * 8, 11), ("\ud800", 1)],
)
def test_tokens_of_a_text(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_the_size_of_a_whole_is_the_sum_of_its_parts(left: str, right: str) -> None:
    assert size_units(left + right) == size_units(left) + size_units(right)


@pytest.mark.parametrize(
    ("model", "context"),
    [
        (None, 200_000),
        ("", 200_000),
        ("my-own-model", 200_000),
        ("gemini-2.5-flash", 1_048_576),
        ("models/gemini-2.5-pro", 1_048_576),
        ("projects/p/locations/l/publishers/google/models/gemini-3-pro-preview", 1_048_576),
        ("gemini-1.5-pro-002", 2_097_152),
        ("vertex_ai/gemini-1.5-flash", 1_048_576),
        ("anthropic/claude-sonnet-4-5", 200_000),
        ("bedrock/us.anthropic.claude-3-7-sonnet-20250219-v1:0", 200_000),
        ("openrouter/openai/GPT-4o-mini", 128_000),
        ("openai/gpt-4.1", 1_047_576),
        ("azure/gpt-4", 8_192),
        ("gpt-4-turbo", 128_000),
        ("ollama_chat/llama3.1:8b", 131_072),
        ("ollama_chat/gemma3:12b", 131_072),
        ("o3-mini", 200_000),
        ("foo3", 200_000),
    ],
)
def test_context_of_a_model(model: str | None, context: int) -> None:
    assert context_tokens(model) == context
