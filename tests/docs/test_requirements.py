"""``tools/requirements.py``: the page of requirements is current; a row without proof and a wrong marker are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LIST = """\
["First part"]
X-1 = "A row"
X-2 = { text = "Another | row", differs = "done in another way" }
X-3 = { text = "A way not taken", record = "rejected" }
X-5 = { text = "A hard row", open = "half of it" }
"""
TESTS = """\
import pytest

@pytest.mark.requirement("X-1", "X-2")
def test_it(): ...

class TestMore:
    @pytest.mark.slow
    @pytest.mark.requirement("X-1")
    async def test_this(self): ...
"""


def requirements(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "tools" / "requirements.py", *words, f"--root={root}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "requirements.toml").write_text(LIST)
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    return tmp_path


def test_every_requirement_of_this_package_has_a_test_or_a_reason_and_the_page_is_current() -> None:
    done = requirements(REPOSITORY, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_has_every_row_with_its_tests_and_its_reason(repository: Path) -> None:
    done = requirements(repository)
    assert (done.returncode, done.stderr) == (0, "")
    page = (repository / "docs" / "reference" / "requirements.md").read_text()
    assert "Of 4 rows 1 are as they were asked for, 1 differ on purpose, 1 are records, 1 do not hold yet.\n" in page
    assert page.splitlines()[-4:] == [
        "| X-1 | A row | `test_it.py::test_it`<br>`test_it.py::test_this` (slow) |",
        "| X-2 | Another \\| row | *differs on purpose*: done in another way<br>`test_it.py::test_it` |",
        "| X-3 | A way not taken | *record*: rejected |",
        "| X-5 | A hard row | *does not hold yet*: half of it |",
    ]
    assert requirements(repository, "--check").returncode == 0


def test_a_marker_of_a_module_counts(repository: Path) -> None:
    (repository / "tests" / "test_it.py").write_text(
        'pytestmark = [pytest.mark.slow, pytest.mark.requirement("X-1")]\n'
    )
    assert requirements(repository).returncode == 0
    assert (
        "| X-1 | A row | `test_it.py` (slow) |" in (repository / "docs" / "reference" / "requirements.md").read_text()
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            '"X-1", "X-2"',
            '"X-1", "X-9"',
            "tests/test_it.py:3: there is no requirement 'X-9' in tests/requirements.toml.",
        ),
        ('"X-1"', '"X-2"', "tests/requirements.toml: X-1 has no test with its marker and no reason: A row"),
        ('("X-1", "X-2")', "(*IDS)", "tests/test_it.py:3: a requirement marker takes ids as strings."),
        (
            "def test_it",
            "def test_other",
            "docs/reference/requirements.md is not what tests/requirements.toml and the tests say",
        ),
    ],
)
def test_what_is_wrong_in_the_tests_fails_the_check(repository: Path, before: str, after: str, said: str) -> None:
    requirements(repository)
    (repository / "tests" / "test_it.py").write_text(TESTS.replace(before, after))
    done = requirements(repository, "--check")
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('X-4 = "Not proved"', "X-4 has no test with its marker and no reason: Not proved"),
        (
            'X-4 = { text = "Not proved", differs = "" }',
            "X-4 needs a text and at most one reason: differs or record",
        ),
        ('X-4 = { text = "Two", differs = "a", record = "b" }', "X-4 needs a text and at most one reason"),
        ('X-4 = { text = "Odd", because = "b" }', "X-4 needs a text and at most one reason"),
        ('["Second part"]\nX-1 = "Again"', "X-1 is there twice."),
    ],
)
def test_what_is_wrong_in_the_list_fails_the_check(repository: Path, row: str, said: str) -> None:
    (repository / "tests" / "requirements.toml").write_text(f"{LIST}{row}\n")
    done = requirements(repository, "--check")
    assert done.returncode == 1
    assert said in done.stderr
