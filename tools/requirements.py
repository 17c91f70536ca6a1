#!/usr/bin/env python3
"""docs/reference/requirements.md: every requirement with the tests that prove it, or with the reason why it differs.

The list is tests/requirements.toml; a test says what it proves by ``@pytest.mark.requirement("S0-34")``, a module by
``pytestmark``. Nothing is imported but the standard library: the tests are read, not run.

    tools/requirements.py           write the page
    tools/requirements.py --check   exit with 1 when the page is not current, or a row has neither test nor reason
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIST, PAGE = Path("tests", "requirements.toml"), Path("docs", "reference", "requirements.md")
REASONS = {"differs": "differs on purpose", "record": "record", "open": "does not hold yet"}
HEAD = """\
# Requirements

What this package was asked for, row by row, and the tests that prove it. The tests carry the ids as a marker,
`@pytest.mark.requirement("S0-34")`, and this page is made of them by `make requirements`; `make check` fails when a row
has neither a test nor a reason. S0 is running scripts and their evaluation, S1 timeouts and isolation, S2 the not-found
loop, S3 native code execution, S4 the skills library; C are the rules of the
[client guide](https://agentskills.io/client-implementation/adding-skills-support) of Agent Skills.

- *Differs on purpose*: the row was asked for in another way than it is. The tests show what is there instead.
- *Record*: nothing a test could show, such as a way that was not taken.
- *Does not hold yet*: what is missing; tests show the part that is there.
- *(slow)*: run by `make test-slow`, because it needs engines, a browser or minutes.

"""


@dataclass(frozen=True)
class Requirement:
    """One row of the list."""

    id: str
    text: str
    reason: str = ""
    why: str = ""


@dataclass(frozen=True)
class Marked:
    """A test, or a module (then ``test`` is empty), and one id of its marker."""

    id: str
    file: str
    line: int
    test: str
    slow: bool

    def __str__(self) -> str:
        return f"`{self.file}{self.test and '::'}{self.test}`{' (slow)' if self.slow else ''}"


def read_list(root: Path, problems: list[str]) -> dict[str, list[Requirement]]:
    """The sections of the list with their rows."""
    sections: dict[str, list[Requirement]] = {}
    seen: set[str] = set()
    for title, rows in tomllib.loads((root / LIST).read_text(encoding="utf-8")).items():
        for name, said in rows.items():
            row = {"text": said} if isinstance(said, str) else dict(said)
            text = row.pop("text", "")
            reason = next((key for key in REASONS if row.get(key)), "")
            if not text or len(row) != bool(reason):
                problems.append(f"{LIST}: {name} needs a text and at most one reason: {' or '.join(REASONS)}.")
            if name in seen:
                problems.append(f"{LIST}: {name} is there twice.")
            seen.add(name)
            sections.setdefault(title, []).append(Requirement(name, text, reason, row.get(reason, "")))
    return sections


def read_tests(root: Path, problems: list[str]) -> list[Marked]:
    """Every id of every marker, in the order of files and lines."""
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.requirement" not in source:
            continue
        file = str(path.relative_to(root / "tests"))
        tree = ast.parse(source)
        module = [mark for node in tree.body for mark in _of_module(node)]
        slow = any(ast.unparse(mark) == "pytest.mark.slow" for mark in module)
        for test, marks in [("", module), *_tests(tree)]:
            slow_one = slow or any(ast.unparse(mark) == "pytest.mark.slow" for mark in marks)
            for mark in marks:
                if not (isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.requirement"):
                    continue
                if not mark.args or not all(isinstance(named, ast.Constant) for named in mark.args):
                    problems.append(f"tests/{file}:{mark.lineno}: a requirement marker takes ids as strings.")
                    continue
                ids = [str(named.value) for named in mark.args if isinstance(named, ast.Constant)]
                found += [Marked(one, file, mark.lineno, test, slow_one) for one in ids]
    return found


def _of_module(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
        return node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return []


def _tests(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, list[ast.expr]]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from ((test, [*node.decorator_list, *marks]) for test, marks in _tests(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, node.decorator_list


def page(sections: dict[str, list[Requirement]], tests: list[Marked]) -> str:
    """The whole page."""
    proving = defaultdict(list)
    for test in tests:
        proving[test.id].append(str(test))
    rows = [row for section in sections.values() for row in section]
    counts = Counter(row.reason for row in rows)
    text = f"{HEAD}Of {len(rows)} rows {counts['']} are as they were asked for, {counts['differs']} differ on purpose, "
    text += f"{counts['record']} are records, {counts['open']} do not hold yet.\n"
    for title, section in sections.items():
        text += f"\n## {title}\n\n| id | requirement | proved by |\n|---|---|---|\n"
        for row in section:
            reason = f"*{REASONS[row.reason]}*: {row.why}" if row.reason else ""
            proof = "<br>".join([*([reason] if reason else []), *dict.fromkeys(proving[row.id])])
            text += f"| {row.id} | {_cell(row.text)} | {_cell(proof)} |\n"
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is wrong")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the repository")
    given = parser.parse_args()
    problems: list[str] = []
    sections = read_list(given.root, problems)
    tests = read_tests(given.root, problems)
    known = {row.id: row for section in sections.values() for row in section}
    proved = {test.id for test in tests}
    problems += [
        f"tests/{test.file}:{test.line}: there is no requirement {test.id!r} in {LIST}."
        for test in tests
        if test.id not in known
    ]
    problems += [
        f"{LIST}: {row.id} has no test with its marker and no reason: {row.text}"
        for row in known.values()
        if row.id not in proved and not row.reason
    ]
    made = page(sections, tests)
    target = given.root / PAGE
    if not given.check:
        target.write_text(made, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != made:
        problems.append(f"{PAGE} is not what {LIST} and the tests say. Run make requirements.")
    for problem in problems:
        print(problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
