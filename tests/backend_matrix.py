"""What each backend did in the conformance suite, recorded test by test, and the docs' matrix made from it.

A run of any part of the suite with ``ADK_SKILLS_WRITE_DOCS=1`` puts the tests of which it ran every case into
tests/docs/backends.json, beside what other runs have put there: a file at a time, a backend at a time. A record is
about one set of versions; a run on others begins it anew. tests/docs/test_backend_matrix.py checks that the record is
about the suite as it is now, and that the page says what the record says.
"""

from __future__ import annotations

import ast
import datetime as dt
import fcntl
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
SUITE = REPOSITORY / "tests" / "sandbox" / "conformance"
RECORD = REPOSITORY / "tests" / "docs" / "backends.json"
PAGE = REPOSITORY / "docs" / "reference" / "backends.md"
BEGIN, END = "<!-- matrix: begin (generated) -->", "<!-- matrix: end -->"
PROPERTY = "conformance"
_MOST_NAMED = 5
_QUIET = 3
"""Processes for each processor over five minutes, the suite's own among them."""

GROUPS = {
    "in and out": ("invocation", "supported_profile", "real_programs", "bad_input", "streaming"),
    "limits": ("resources", "gigabyte"),
    "end of processes": ("processes", "many_processes", "agent_killed"),
    "files": ("conformance_files", "files_protected"),
    "machine out of reach": ("own_world", "kernel_interface"),
    "many runs": ("concurrency", "queue", "leaks", "agent_without_resources"),
}
"""What a guarantee is called, and the modules of the suite that prove it, by a part of their names."""

NEEDS = {
    "container-docker": "Docker, `[container]`",
    "container-podman": "Podman, `[container]`",
    "container-gvisor": "an engine that knows gVisor, `[container]`",
    "namespaces-cgroup-bubblewrap": "bubblewrap, user namespaces, control groups (root, or delegated)",
    "namespaces-cgroup-zygote": "the same",
    "namespaces-bubblewrap": "bubblewrap, user namespaces",
    "namespaces-zygote": "the same",
    "namespaces-slots": "the same; a process kept ready",
    "landlock": "Linux 5.13",
    "process": "refused unless allowed",
    "kubernetes": "a cluster with agent-sandbox, `[kubernetes]`",
    "ray": "a Ray cluster, `[cluster]`; what `local` needs on its nodes",
    "remote": "an account of the service",
}
"""Every backend of the suite in the page's order, and what it needs."""


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


def cases() -> dict[str, Counter[str]]:
    """How many cases each test of the suite has, by backend; asked of pytest."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(SUITE), "--collect-only", "-q", "-p", "no:cacheprovider", "-n", "0"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )
    names = "|".join(sorted(NEEDS, key=len, reverse=True))
    pattern = re.compile(rf"/(test_\w+)\.py::(test_\w+)\[(?:.*-)?({names})(?:-.*)?\]$")
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in done.stdout.splitlines():
        if match := pattern.search(line):
            found[_first_named(line.rpartition("[")[2], match[3])][f"{match[1]}::{match[2]}"] += 1
    return found


def _first_named(case: str, guess: str) -> str:
    """The backend of a case's id, in which a shorter name may be a part of another value."""
    whole = [name for name in NEEDS if re.search(rf"(^|-){name}(-|\]$)", case)]
    return max(whole, key=len, default=guess)


class Recorder:
    """Gathers the reports of one session; with xdist they all come to the controller."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self.setups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.versions: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        told = dict(report.user_properties).get(PROPERTY)
        if told is None:
            return
        backend, test = told["backend"], told["test"]
        if report.when == "teardown" and report.outcome == "passed":
            return
        if report.when == "setup" and report.outcome == "passed":
            return
        outcome = report.outcome if not hasattr(report, "wasxfail") else "skipped"
        if outcome == "skipped" and not told["applies"]:
            outcome = "elsewhere"
        if report.when == "teardown":
            outcome = "left something"
        self.seen[backend][test][outcome] += 1
        self.setups[backend][test] += told["setup_ms"]
        self.versions.setdefault(backend, told.get("ran_on") or "")
        if told.get("ran_on"):
            self.versions[backend] = told["ran_on"]

    def pytest_sessionfinish(self, session: Any) -> None:
        if not os.environ.get("ADK_SKILLS_WRITE_DOCS") or hasattr(session.config, "workerinput") or not self.seen:
            return
        expected = cases()
        setups = self.setups if _is_quiet() else {}
        today = dt.datetime.now(dt.UTC).date().isoformat()
        with _record() as record:
            for backend, tests in self.seen.items():
                whole = {
                    test: counts
                    for test, counts in tests.items()
                    if counts.total() - counts["left something"] == expected[backend][test]
                }
                if whole:
                    record[backend] = _merged(
                        record.get(backend), self.versions[backend], today, whole, setups.get(backend, {})
                    )


def _merged(
    before: dict[str, Any] | None,
    versions: str,
    today: str,
    tests: Mapping[str, Counter[str]],
    setups: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """A backend's record with what a part of the suite said; without versions when none of that part was its own."""
    if before is None or (versions and before["on"] and before["on"] != versions):
        before = {"on": versions, "from": today, "tests": {}}
    there = {f"{module}::{name}" for module, names in suite().items() for name in names}
    kept = {test: told for test, told in before["tests"].items() if test in there}
    for test, counts in tests.items():
        start = round(median(setups[test]), 1) if setups.get(test) else kept.get(test, (None, None))[1]
        kept[test] = [_verdict(counts), start]
    return {"on": before["on"] or versions, "from": before["from"], "to": today, "tests": dict(sorted(kept.items()))}


def _is_quiet() -> bool:
    """Whether what a start costs here and now means anything."""
    return os.getloadavg()[1] < _QUIET * (os.cpu_count() or 1)


def _verdict(counts: Mapping[str, int]) -> str:
    if counts["failed"] or counts["left something"]:
        return "fails"
    if counts["passed"]:
        return "holds"
    return "elsewhere" if counts["elsewhere"] else "untried"


@contextmanager
def _record() -> Iterator[dict[str, Any]]:
    """The record, to be changed; other runs wait, and nobody sees half of it."""
    folder = os.open(RECORD.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        record = read_record()
        yield record
        aside = RECORD.with_name(f".backends.{os.getpid()}")
        aside.write_text(_written(record), encoding="utf-8")
        aside.rename(RECORD)
    finally:
        os.close(folder)


def read_record() -> dict[str, Any]:
    """What is recorded, by backend."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return found


def _written(record: Mapping[str, Any]) -> str:
    """JSON with a line for each test."""
    text = json.dumps(record, indent=1, sort_keys=True)
    return re.sub(r"\[\s+(\"\w+\"),\s+([\w.]+)\s+\]", r"[\1, \2]", text) + "\n"


def command(backend: str) -> str:
    """What records a backend; any part of it records that part."""
    return (
        "ADK_SKILLS_WRITE_DOCS=1 timeout 3600 .venv/bin/python -m pytest tests/sandbox/conformance -n 2 "
        f"-k '{backend}] or {backend}-'"
    )


def failures(record: Mapping[str, Any]) -> list[str]:
    """What the record says that must not be in it: a sentence each, which says what to run."""
    there = {f"{module}::{name}" for module, names in suite().items() for name in names}
    found = [f"{name} is no backend of the suite: remove it from {RECORD.name}." for name in set(record) - set(NEEDS)]
    for name in (name for name in NEEDS if name in record):
        tests = record[name]["tests"]
        if fails := sorted(test for test, (verdict, _) in tests.items() if verdict == "fails"):
            found.append(f"{name} fails {_some(fails)}. Mend that, then run: {command(name)}")
        if gone := sorted(set(tests) - there):
            found.append(f"The record of {name} is stale: there is no {_some(gone)} any more. Run: {command(name)}")
    return found


def gaps(record: Mapping[str, Any]) -> list[str]:
    """Which backends, and which tests of them, are not recorded: a sentence each, which says what to run."""
    there = {f"{module}::{name}" for module, names in suite().items() for name in names}
    found = []
    for name in NEEDS:
        missing = sorted(there - set(record.get(name, {}).get("tests", {})))
        if len(missing) == len(there):
            found.append(f"{name} is not recorded. Run: {command(name)}")
        elif missing:
            found.append(f"The record of {name} lacks {_some(missing)}. Run: {command(name)}")
    return found


def _some(tests: Sequence[str]) -> str:
    more = len(tests) - _MOST_NAMED
    return ", ".join(tests[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def table(record: Mapping[str, Any]) -> str:
    """Two tables with a row for each backend: what holds; what a start costs, what it needs, where that was seen."""
    names = [name for name in NEEDS if name in record]
    if not names:
        return "Nothing is recorded yet (tests/docs/test_backend_matrix.py says how)."
    asked: Counter[str] = Counter()
    for module, tests in suite().items():
        asked[group_of(module)] += len(tests)
    lines = [f"| | {' | '.join(GROUPS)} |", "|---" * (len(GROUPS) + 1) + "|"]
    for name in names:
        verdicts: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
        for test, told in record[name]["tests"].items():
            verdicts[group_of(test.partition("::")[0])][told[0]] += 1
        cells = [_cell(counts, asked[group] - counts.total()) for group, counts in verdicts.items()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    missing = [f"`{name}`" for name in NEEDS if name not in record]
    lines += ["", f"Not recorded yet: {', '.join(missing)}."] if missing else []
    lines += ["", "| | start | needs | recorded on |", "|---|---|---|---|"]
    for name in names:
        told = record[name]
        starts = [ms for _, ms in told["tests"].values() if ms is not None]
        start = f"{median(starts):.0f} ms" if starts else "-"
        when = told["from"] if told["from"] == told["to"] else f"{told['from']} to {told['to']}"
        lines.append(f"| `{name}` | {start} | {NEEDS[name]} | {told['on']}; {when} |")
    return "\n".join(lines)


def _cell(verdicts: Mapping[str, int], left: int) -> str:
    held, asked = verdicts.get("holds", 0), verdicts.get("holds", 0) + verdicts.get("fails", 0)
    parts = [f"{held} of {asked}"] if asked else []
    parts += [f"{verdicts['untried']} not tried"] if verdicts.get("untried") else []
    parts += [f"{verdicts['elsewhere']} not its own"] if verdicts.get("elsewhere") else []
    parts += [f"{left} not recorded"] if left else []
    return ", ".join(parts)


def with_table(page: str, made: str) -> str:
    """The page with its table between the two comments replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The page lacks the lines {BEGIN} and {END}.")
    return f"{head}{BEGIN}\n{made}\n{END}{tail}"
