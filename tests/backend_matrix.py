"""What each backend did in the conformance suite, recorded test by test, and the docs' matrix made from it.

A complete run of the suite for a backend with ``ADK_SKILLS_WRITE_DOCS=1`` puts what it saw into
tests/docs/backends.json. tests/docs/test_backend_matrix.py checks that the record is about the
suite as it is now and that the page says what the record says.
"""

from __future__ import annotations

import ast
import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
SUITE = REPOSITORY / "tests" / "sandbox" / "conformance"
RECORD = REPOSITORY / "tests" / "docs" / "backends.json"
PAGE = REPOSITORY / "docs" / "backends.md"
BEGIN, END = "<!-- matrix: begin (generated) -->", "<!-- matrix: end -->"
PROPERTY = "conformance"

GROUPS = {
    "what a command gets and gives": ("invocation", "supported_profile", "bad_input", "streaming"),
    "deadlines, output, memory, disk": ("resources", "gigabyte"),
    "processes end with the run": ("processes", "many_processes", "agent_killed"),
    "files stay in, files come out": ("conformance_files", "files_protected"),
    "the machine is out of reach": ("own_world", "kernel_interface"),
    "many runs, starved agents": ("concurrency", "queue", "leaks", "agent_without_resources"),
}
"""What a guarantee is called, and the modules of the suite that prove it, by a part of their names."""


def group_of(module: str) -> str:
    for group, parts in GROUPS.items():
        if any(module.removeprefix("test_").endswith(part) for part in parts):
            return group
    raise LookupError(f"{module} belongs to no group of tests/backend_matrix.py")


def suite() -> dict[str, list[str]]:
    """The tests of the suite by module: what a record must be about."""
    found = {}
    for path in sorted(SUITE.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            and {argument.arg for argument in node.args.args} & {"box", "backend"}
        ]
        if names:
            found[path.stem] = names
    return found


class Recorder:
    """Gathers the reports of one session; with xdist they all come to the controller."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self.setups: dict[str, list[float]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: Any) -> None:
        told = dict(report.user_properties).get(PROPERTY)
        if told is None or not (report.when == "call" or (report.when == "setup" and report.outcome != "passed")):
            return
        backend, test = told["backend"], told["test"]
        outcome = report.outcome if not hasattr(report, "wasxfail") else "skipped"
        if outcome == "skipped" and not told["applies"]:
            outcome = "elsewhere"
        self.seen[backend][test][outcome] += 1
        self.setups[backend] += told["setup_ms"]

    def pytest_sessionfinish(self, session: Any) -> None:
        if not os.environ.get("ADK_SKILLS_WRITE_DOCS") or hasattr(session.config, "workerinput") or not self.seen:
            return
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        for backend, tests in self.seen.items():
            complete = {module: set(names) for module, names in suite().items()}
            ran = {test for test, counts in tests.items() if counts["passed"] + counts["elsewhere"] + counts["failed"]}
            if ran != {f"{module}::{name}" for module, names in complete.items() for name in names}:
                continue  # a part of the suite says nothing about the backend
            record[backend] = {
                "setup_ms": round(median(self.setups[backend]), 1) if self.setups[backend] else None,
                "tests": {test: _verdict(counts) for test, counts in sorted(tests.items())},
            }
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def _verdict(counts: Mapping[str, int]) -> str:
    if counts["failed"]:
        return "fails"
    return "holds" if counts["passed"] else "elsewhere"


def table(record: Mapping[str, Any], order: list[str]) -> str:
    """A row for each group of guarantees, a column for each backend: how many of its rows hold."""
    names = [name for name in order if name in record]
    if not names:
        return "No complete run of the suite is recorded yet (tests/docs/test_backend_matrix.py says how)."
    lines = [f"| | {' | '.join(f'`{name}`' for name in names)} |", "|---" * (len(names) + 1) + "|"]
    for group in GROUPS:
        cells = []
        for name in names:
            verdicts = Counter(
                verdict for test, verdict in record[name]["tests"].items() if group_of(test.partition("::")[0]) == group
            )
            cells.append(_cell(verdicts))
        lines.append(f"| {group} | {' | '.join(cells)} |")
    starts = [record[name]["setup_ms"] for name in names]
    lines.append(f"| median start in the suite | {' | '.join('-' if ms is None else f'{ms:g} ms' for ms in starts)} |")
    return "\n".join(lines)


def _cell(verdicts: Mapping[str, int]) -> str:
    asked = verdicts.get("holds", 0) + verdicts.get("fails", 0)
    if not asked:
        return "not its own"
    text = f"{verdicts.get('holds', 0)} of {asked}"
    left = verdicts.get("elsewhere", 0)
    return f"{text}, {left} not its own" if left else text


def with_table(page: str, made: str) -> str:
    """The page with its table between the two comments replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The page lacks the lines {BEGIN} and {END}.")
    return f"{head}{BEGIN}\n{made}\n{END}{tail}"
