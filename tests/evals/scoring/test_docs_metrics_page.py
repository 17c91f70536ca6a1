"""docs/reference/metrics.md: its tables are those of the metrics, its config is one google-adk takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from google.adk.evaluation.eval_config import EvalConfig

from adk_skills_agent.evals.metrics.registry import METRICS, read_options

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def test_the_table_has_every_metric_with_its_threshold() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\|[^|]+\| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert {name: float(threshold) for name, threshold in rows} == {m.name: m.threshold for m in METRICS.values()}


def test_the_table_of_options_has_every_option() -> None:
    rows = re.findall(r"^\| `(\w+_score)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(rows) == {(m.name, option) for m in METRICS.values() for option in m.settings}


def test_the_config_is_one_that_google_adk_takes() -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    config = EvalConfig.model_validate(json.loads(text))
    for name, criterion in json.loads(text)["criteria"].items():
        assert read_options(name, criterion).threshold in {1.0, 0.75}
        assert (config.custom_metrics or {})[name].code_config.name == f"adk_skills_agent.evals.metrics.{name}"
