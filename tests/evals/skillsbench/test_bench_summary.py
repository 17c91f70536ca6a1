from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.report.bench_page import build_bench_report
from adk_skills_agent.evals.skillsbench.results import NAME, BenchResult, self_test_problems, summarise


def result(task: str, arm: str, reward: float | None, trial: int = 1, category: str = "x") -> BenchResult:
    return BenchResult(
        task, arm, trial, "adk", reward, None if reward is None else reward >= 1, None, None, 2.0, category, "f"
    )


def test_the_lift_is_of_the_tasks_both_arms_have_a_reward_of() -> None:
    results = [
        *(result("a", "no-skill", 0.0, trial) for trial in (1, 2)),
        *(result("a", "with-skill", reward, trial) for trial, reward in enumerate((1.0, 0.0), 1)),
        result("b", "no-skill", 0.5),
        result("b", "with-skill", 1.0),
        result("c", "no-skill", None),
        result("c", "with-skill", 1.0),
    ]
    summary = summarise(results, ("no-skill", "with-skill"), ("adk",))
    (lift,) = summary["lift"]
    assert lift["tasks"] == 2
    assert math.isclose(lift["mean"], 0.5)
    assert (lift["low"], lift["high"]) == (None, None)
    assert lift["no_interval"] == "all 2 differ by the same amount"
    assert (lift["better"], lift["worse"], lift["equal"]) == (2, 0, 0)
    assert lift["by_task"] == {"a": 0.5, "b": 0.5}


def test_a_task_counts_once_however_many_trials_it_has() -> None:
    results = [result("a", "with-skill", 1.0, trial) for trial in range(1, 10)] + [result("b", "with-skill", 0.0)]
    (side,) = summarise(results, ("with-skill",), ("adk",))["arms"]
    assert (side["pass_rate"], side["mean_reward"], side["trials"], side["tasks"]) == (0.5, 0.5, 10, 2)


def test_domains_have_rows_of_their_own_and_errors_count_in_no_rate() -> None:
    results = [
        result("a", "with-skill", 1.0, category="biology"),
        result("b", "with-skill", None, category="finance"),
    ]
    domains = summarise(results, ("with-skill",), ("adk",))["domains"]
    assert [(side["domain"], side["pass_rate"], side["errors"]) for side in domains] == [
        ("biology", 1.0, 0),
        ("finance", None, 1),
    ]


def test_a_partial_reward_of_nobody_fails_the_self_test() -> None:
    nop = BenchResult("a", "with-skill", 1, "nop", 0.4, False, None, None, 0.0, "x", "f")
    lost = BenchResult("b", "with-skill", 1, "oracle", None, None, "no reward.txt", "verifier", 0.0, "x", "f")
    assert self_test_problems([nop, lost]) == [
        "a: nop got 0.4 instead of 0",
        "b: oracle got no reward instead of 1 (no reward.txt)",
    ]


ODD: tuple[Any, ...] = (None, True, -1, 1e400, 2**70, "x", "", "\ud800", [], [1], [None], {}, {"a": 1})


@pytest.mark.parametrize("name", ["task", "trial", "reward", "passed", "error", "seconds", "skills_loaded", "usage"])
def test_a_damaged_row_is_a_sentence_or_a_page(name: str, tmp_path: Path) -> None:
    """Seen: a reward that is no number, or skills that are none, ended in a traceback."""
    row = {
        "task": "a",
        "arm": "with-skill",
        "trial": 1,
        "agent": "adk",
        "reward": 1.0,
        "passed": True,
        "error": None,
        "error_kind": None,
        "seconds": 2.0,
        "skills_loaded": ["s"],
        "skills_read": [],
        "usage": {"total": 3},
    }
    other = json.dumps({**row, "arm": "no-skill", "reward": 0.0, "passed": False})
    said = []
    for odd in ODD:
        (tmp_path / NAME).write_text(f"{other}\n{json.dumps({**row, name: odd})}\n")
        try:
            build_bench_report(tmp_path, tmp_path / "page.html")
        except ConfigError as error:
            said.append(str(error))
    assert all(f"{NAME}:2: this is no row of results" in sentence for sentence in said)
    assert said or name == "task"
