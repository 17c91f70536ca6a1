"""The YAML blocks of docs/how-to/measure/test-offline.md are models; its Python blocks run in tests/docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adk_skills_agent.testing import ChaoticModel, parse_rules

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "measure" / "test-offline.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
def test_a_yaml_block_is_a_model(text: str) -> None:
    model = parse_rules(text)
    assert isinstance(model, ChaoticModel)
    assert model.rate == 0.2
