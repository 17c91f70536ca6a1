"""The bar of the project: recall@5 of at least 0.90 on either half of the queries (benchmarks/recall/README.md)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from adk_skills_agent.catalog.search import SearchIndex
from adk_skills_agent.catalog.skill import headings_of

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "recall" / "measure.py"


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recall_measure", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    if not module.CORPUS.is_dir():
        pytest.skip(f"the corpus of real skills is not at {module.CORPUS}; set ADK_SKILLS_CORPUS")
    return module


def test_at_least_nine_of_ten_queries_find_their_skill_among_the_first_five(measure: ModuleType) -> None:
    skills = measure.corpus_skills(measure.CORPUS, measure.CATALOG_SKILLS)
    index = SearchIndex(measure.first_of_each_name(skills), headings_of)
    reached = {}
    for half in measure.HALVES:
        found = measure.answers(index, skills, half)
        assert len(found) >= 100
        reached[half] = measure.recall(found)
    assert min(reached.values()) >= 0.90, reached
    assert index.diagnostics == ()
