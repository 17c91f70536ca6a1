"""docs/reference/backends.md says what the conformance suite found, and the suite is the one that is there now.

Record a backend, or any part of the suite, with ``ADK_SKILLS_WRITE_DOCS=1``, as the failing test says; then write the
page with ``ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest tests/docs/test_backend_matrix.py``.
"""

from __future__ import annotations

import copy
import os
import re
from collections import Counter

import pytest

import backend_matrix as matrix


def test_the_page_has_the_table_of_the_record():
    page = matrix.PAGE.read_text(encoding="utf-8")
    made = matrix.with_table(page, matrix.table(matrix.read_record()))
    if os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        matrix.PAGE.write_text(made, encoding="utf-8")
        page = made
    assert page == made, "run this test with ADK_SKILLS_WRITE_DOCS=1"


def test_no_backend_is_recorded_as_failing_and_none_with_tests_that_are_gone():
    found = matrix.failures(matrix.read_record())
    assert not found, "\n".join(found)


@pytest.mark.slow  # a new row must not wait for seven engines; before an issue is closed it is recorded on all
def test_every_backend_is_recorded_and_with_every_test_of_the_suite():
    found = matrix.gaps(matrix.read_record())
    assert not found, "\n".join(found)


def test_a_missing_a_stale_and_a_failing_record_say_what_to_run():
    tests = {f"{module}::{test}": ["holds", 1.0] for module, names in matrix.suite().items() for test in names}
    whole = {name: {"tests": dict(tests)} for name in matrix.NEEDS}
    assert matrix.failures(whole) + matrix.gaps(whole) == []
    some = next(iter(tests))
    lacking, gone, failing, missing = (copy.deepcopy(whole) for _ in range(4))
    del lacking["landlock"]["tests"][some]
    gone["landlock"]["tests"]["test_x::test_y"] = ["holds", None]
    failing["landlock"]["tests"][some] = ["fails", None]
    del missing["landlock"]
    for record, said in (
        (lacking, f"lacks {some}"),
        (gone, "test_y any more"),
        (failing, some),
        (missing, "not recorded"),
    ):
        (problem,) = matrix.failures(record) + matrix.gaps(record)
        assert said in problem
        assert "ADK_SKILLS_WRITE_DOCS=1" in problem
        assert "-k 'landlock] or landlock-'" in problem
    (unknown,) = matrix.failures({"firecracker": {"tests": {}}})
    assert "no backend of the suite" in unknown


def test_runs_of_parts_add_up_and_other_versions_begin_anew():
    first, second = sorted(f"{module}::{test}" for module, tests in matrix.suite().items() for test in tests)[:2]
    held, failed = Counter(passed=2), Counter(passed=1, failed=1)
    one = matrix._merged(None, "Engine 1; Linux 6", "2026-01-01", {first: held}, {first: [3.0, 1.0]})
    both = matrix._merged(one, "Engine 1; Linux 6", "2026-01-02", {second: failed}, {})
    assert both == {
        "on": "Engine 1; Linux 6",
        "from": "2026-01-01",
        "to": "2026-01-02",
        "tests": {first: ["holds", 2.0], second: ["fails", None]},
    }
    mended = matrix._merged(both, "Engine 1; Linux 6", "2026-01-03", {second: held}, {})
    assert mended["tests"][second] == ["holds", None]
    anew = matrix._merged(mended, "Engine 2; Linux 6", "2026-01-04", {first: held}, {})
    assert (anew["on"], anew["from"], list(anew["tests"])) == ("Engine 2; Linux 6", "2026-01-04", [first])
    told_elsewhere = matrix._merged(anew, "", "2026-01-05", {second: Counter(elsewhere=1)}, {})
    assert told_elsewhere["on"] == "Engine 2; Linux 6"
    assert told_elsewhere["tests"][second] == ["elsewhere", None]


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({"passed": 2}, "holds"),
        ({"passed": 2, "skipped": 1}, "holds"),
        ({"passed": 2, "left something": 1}, "fails"),
        ({"skipped": 1}, "untried"),
        ({"elsewhere": 2}, "elsewhere"),
    ],
)
def test_a_verdict_is_that_of_all_cases(counts, verdict):
    assert matrix._verdict(Counter(counts)) == verdict


def test_the_order_of_the_page_has_every_backend_of_the_suite():
    text = (matrix.SUITE / "conftest.py").read_text(encoding="utf-8")
    assert set(re.findall(r'^    Backend\(\s*"([\w-]+)"', text, re.MULTILINE)) <= set(matrix.NEEDS)


def test_every_module_of_the_suite_belongs_to_a_group():
    assert {matrix.group_of(module) for module in matrix.suite()} <= set(matrix.GROUPS)
