"""Which isolation levels and which other places a test session had, printed at its end: green says nothing about what
was skipped."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import backend_matrix
from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.levels.base import LocalLevel, filters_stuck, local_levels
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
from adk_skills_agent.sandbox.local.namespaces import bubblewrap

LOCAL = tuple(level for level in IsolationLevel if level not in {IsolationLevel.CONTAINER, IsolationLevel.REMOTE})
_LEVEL_OF_TEST = re.compile(rf"[\[-]({'|'.join(level.value for level in LOCAL)})(?=[\]-])")
_COUNTED = ("passed", "failed", "error", "skipped")


def missing(level: LocalLevel | None) -> tuple[str | None, bool]:
    """Why a level cannot be tested here, and whether that is a failure: what could be installed and is not."""
    if level is None:
        return "there is no such level on this system", False
    problem = level.problem()
    if problem is None:
        return None, False
    # Other remedies change the machine's settings or its container; a package is only not there yet.
    remedy = bubblewrap.remedy() if level.level is IsolationLevel.NAMESPACES and sys.platform == "linux" else None
    return (problem, False) if remedy is None else (f"{problem}; {remedy}", True)


def level_named(name: str) -> LocalLevel | None:
    """The level of that name, when this system has one."""
    return next((level for level in local_levels() if level.level.value == name), None)


def table(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    """One line for each level of this machine: whether it works, as which users, and how many tests were run at it.

    Args:
        stats: Reports by outcome, as pytest's terminal reporter has them.
    """
    tests: dict[str, Counter[str]] = {level.value: Counter() for level in LOCAL}
    for outcome in _COUNTED:
        for report in stats.get(outcome, ()):
            if found := _LEVEL_OF_TEST.search(getattr(report, "nodeid", "")):
                tests[found[1]][outcome] += 1
    return [f"{name:<11} {_state(level_named(name))}; tests: {_counted(counts)}" for name, counts in tests.items()]


def other_places(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    """One line for each backend that is no level of this machine and had tests: on what they ran, or why they did not.

    Args:
        stats: Reports by outcome, as pytest's terminal reporter has them.
    """
    tests: dict[str, Counter[str]] = {}
    ran: dict[str, str] = {}
    why: dict[str, str] = {}
    for outcome in _COUNTED:
        for report in stats.get(outcome, ()):
            told = dict(getattr(report, "user_properties", ())).get(backend_matrix.PROPERTY)
            if told is None or told["is_local"]:
                continue
            tests.setdefault(told["backend"], Counter())[outcome] += 1
            if told.get("ran_on"):
                ran[told["backend"]] = told["ran_on"]
            elif told["applies"] and outcome == "skipped":
                why[told["backend"]] = str(report.longrepr[2]).removeprefix("Skipped: ")
    if not tests:
        return ["elsewhere   no test of a container, a pod or a service was run (they are marked slow)"]
    return [f"{name}: {_where(name, ran, why)}; tests: {_counted(tests[name])}" for name in sorted(tests)]


def _where(name: str, ran: Mapping[str, str], why: Mapping[str, str]) -> str:
    if name in ran:
        return f"ran on {ran[name]}"
    return f"NOT RUN: {why[name]}" if name in why else "nothing that is asked of it was run"


def _counted(tests: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in tests.items()) or "none run"


def _state(level: LocalLevel | None) -> str:
    problem, could_be_installed = missing(level)
    if level is None or problem is not None:
        return f"{'NOT INSTALLED' if could_be_installed else 'not here'}: {problem}"
    policy = SandboxPolicy(isolation=level.level.value, min_isolation=level.level.value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the levels nobody should choose
        try:
            result = asyncio.run(local_sandbox().run(ExecutionRequest(("id", "-u"), policy)))
        except SkillsError as error:
            return f"FAILS: {error}"
    return f"works; the agent is user {os.geteuid()}, its scripts are user {result.stdout.decode().strip()}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for outcome in _COUNTED for report in terminalreporter.stats.get(outcome, ())]
    if any("tests/sandbox/" in getattr(report, "nodeid", "") for report in reports):
        terminalreporter.section("isolation levels tested")
        for line in (*table(terminalreporter.stats), *other_places(terminalreporter.stats)):
            terminalreporter.write_line(line)


UNGROUPED = "namespaces-ungrouped"
"""The level namespaces on a machine without control groups, as the parameter of a test."""
WITHOUT_GROUPS = """
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
NamespacesLevel.no_groups = lambda level: "switched off for the test"
"""
"""The same for a program of its own: what it begins with."""


def enter(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The level a parameter means, which may be :data:`UNGROUPED`; skips or fails the test as :func:`require` does."""
    if name == UNGROUPED:
        monkeypatch.setattr(NamespacesLevel, "no_groups", lambda _level: "switched off for the test")
    level = name.partition("-")[0]
    require(level)
    return level


def problem_of_control_groups() -> str | None:
    """Why runs at the level namespaces have no control group here; None when they have one."""
    level = NamespacesLevel()
    return level.problem() or level.no_groups()


def require_control_groups() -> None:
    """The same for the level namespaces with control groups."""
    require("namespaces")
    if (problem := problem_of_control_groups()) is not None:
        pytest.skip(f"no control groups: {problem}")


def require(name: str) -> None:
    """Skip the test when this machine's kernel lacks the level; fail it when only a package is missing."""
    problem, could_be_installed = missing(level_named(name))
    if could_be_installed:
        pytest.fail(f"{name}: {problem} (make setup does it when it runs as root)", pytrace=False)
    if problem is not None:
        pytest.skip(f"{name}: {problem}")


# Where tests run sandboxes without saying at which level, or start sshd, which asks for a filter, too. What is not here
# passes without any.
# fmt: off
_NEED_FILTERS = (
    "adk/approvals", "adk/commands", "adk/plugins/test_terminal", "adk/shell", "adk/workspaces", "cli", "docs",
    "examples", "executors", "sandbox", "adk/test_conversations", "adk/test_events", "adk/test_grants",
    "adk/test_many_sessions", "adk/test_permissions", "adk/test_script", "adk/test_sample_skills",
    "adk/test_stateful", "adk/test_telemetry", "adk/test_uploads", "adk/toolset/test_nothing_silent", "evals/run",
    "adk/toolset/test_beside",
    "package/test_architecture.py::test_one_call", "packages/test_builds", "packages/test_npm",
    "scripts/test_heavy_imports", "scripts/test_plan_and_outcome", "sources/test_git_servers.py::test_over_ssh",
)
# fmt: on


def skip_where_filters_hang(items: Iterable[pytest.Item]) -> None:
    """Skip what needs a sandbox on a machine whose kernel installs no system call filters any more.

    There a test that starts one, or takes a filter itself, waits in the kernel for good, and no time limit ends it.
    The summary's table of levels says so, too.
    """
    if sys.platform != "linux" or (stuck := filters_stuck()) is None:
        return
    skip = pytest.mark.skip(reason=f"needs a sandbox, and {stuck}")
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(_NEED_FILTERS):
            item.add_marker(skip)
