"""docs/backends.md says what the conformance suite found, and the suite is the one that is there now.

Record a backend anew with ``ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest tests/sandbox/conformance -k 'NAME]'``,
then write the page with ``ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest tests/docs/test_backend_matrix.py``.
"""

from __future__ import annotations

import json
import os
import re

import backend_matrix as matrix

ORDER = (
    "container-docker",
    "container-podman",
    "container-gvisor",
    "cgroup",
    "namespaces",
    "namespaces-slots",
    "landlock",
    "seccomp",
    "process",
    "kubernetes",
    "remote",
)


def record() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(matrix.RECORD.read_text())
    return found


def test_the_page_has_the_table_of_the_record() -> None:
    page = matrix.PAGE.read_text(encoding="utf-8")
    made = matrix.with_table(page, matrix.table(record(), list(ORDER)))
    if os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        matrix.PAGE.write_text(made, encoding="utf-8")
        page = made
    assert page == made, "run this test with ADK_SKILLS_WRITE_DOCS=1"


def test_every_backend_of_the_suite_is_recorded_and_none_fails_a_row() -> None:
    names = re.findall(r'^    Backend\(\s*"([\w-]+)"', (matrix.SUITE / "conftest.py").read_text(), re.MULTILINE)
    assert set(names) <= set(ORDER)
    recorded = record()
    assert set(recorded) <= set(ORDER)
    for name, told in recorded.items():
        assert [test for test, verdict in told["tests"].items() if verdict == "fails"] == [], name  # type: ignore[attr-defined]


def test_the_record_is_about_the_tests_that_are_there() -> None:
    there = {f"{module}::{name}" for module, names in matrix.suite().items() for name in names}
    for name, told in record().items():
        assert set(told["tests"]) == there, f"record {name} anew"  # type: ignore[call-overload]


def test_every_module_of_the_suite_belongs_to_a_group() -> None:
    assert {matrix.group_of(module) for module in matrix.suite()} <= set(matrix.GROUPS)
