"""The pages are complete, can be found, and say what the code does (S0-105 to S0-108, S0-163, S1-15)."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import preloaded
from adk_skills_agent.sandbox.contract import IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.policy import PRESETS

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
ISOLATION = (DOCS / "explanation" / "isolation.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}.*?\n(.*?)(?=^## |\Z)", ISOLATION, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_every_page_is_in_the_navigation() -> None:
    text = (REPOSITORY / "mkdocs.yml").read_text()
    listed = set(re.findall(r"[\w/.-]+\.md", text))
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert yaml.safe_load(re.sub(r"!!python\S+|!ENV", "", text))["nav"]


def test_a_page_has_the_same_title_in_the_navigation_as_on_top() -> None:
    found = re.findall(r"^ +- ([^:\n]+): (\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(found) > 40
    for title, page in found:
        if page != "index.md":
            assert (DOCS / page).read_text().partition("\n")[0] == f"# {title}"
    titles = [title for title, _ in found]
    assert len(set(titles)) == len(titles)


def test_a_page_whose_code_uses_the_examples_says_how_to_get_them() -> None:
    """Who installed from PyPI has no checkout."""
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
        if any("examples/" in block for block in blocks) and "checkout" not in text:
            assert re.search(r"^ *adk-skills examples$|`adk-skills examples`", text, re.MULTILINE), page


def test_the_command_copies_every_example_that_the_code_of_a_page_names(tmp_path: Path) -> None:
    program = preloaded.program("adk-skills")
    subprocess.run([program, "examples"], check=True, capture_output=True, cwd=tmp_path)
    for page in DOCS.rglob("*.md"):
        blocks = re.findall(r"^```.*?^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for path in re.findall(r"\bexamples/[\w/.-]+", "".join(blocks)):
            assert (tmp_path / path).exists(), f"{page}: {path}"


def test_the_table_of_extras_has_every_extra_and_no_page_names_another() -> None:
    extras = set(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    table = (DOCS / "reference" / "extras.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == extras
    for page in (REPOSITORY / "README.md", *DOCS.rglob("*.md")):
        named = re.findall(r"adk-skills-runtime\[([\w,]+)\]", page.read_text())
        assert {name for names in named for name in names.split(",")} <= extras, page


def test_no_page_names_an_address_of_the_repository_or_internal_numbers() -> None:
    """Where it will be is not decided, and what S0-34 is only the code and the page of requirements say."""
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        assert "github.com/adk-skills-runtime" not in text, page
        if page.name != "requirements.md" and "decisions" not in page.parts:
            assert not re.findall(r"\bS[0-4]-\d+\b|attack rows? \d", text), page


def test_every_decision_is_in_the_list_of_decisions() -> None:
    index = (DOCS / "explanation" / "decisions" / "index.md").read_text()
    for page in (DOCS / "explanation" / "decisions").glob("0*.md"):
        assert f"({page.name})" in index, page.name


@pytest.mark.requirement("S1-15")
def test_the_boundary_page_has_a_row_for_every_level_strongest_first() -> None:
    """S1-15: what is isolated where."""
    assert [row[0].strip("`") for row in rows(section("The levels"))] == [level.value for level in IsolationLevel]
    levels = {level.value for level in IsolationLevel}
    for threat, answer, least in rows(section("Threats")):
        assert threat
        assert answer
        assert least.strip("`") in levels | {"all"}
    assert "kernel" in section("What no level here stops")
    assert "Side channels" in section("What no level here stops")


@pytest.mark.requirement("S0-106")
def test_the_matrix_of_recommendations_has_every_place() -> None:
    """S0-106."""
    places = " ".join(row[0] for row in rows(section("Which to choose")))
    for place in ("local development", "prototype", "CI", "one tenant", "many tenants", "Google Cloud"):
        assert place in places
    choices = section("Which to choose")
    assert set(re.findall(r'policy="(\w+)"', choices)) <= set(PRESETS)
    assert set(re.findall(r'min_isolation="(\w+)"', choices)) <= {level.value for level in IsolationLevel}
    assert f"default (`{SandboxPolicy().min_isolation}`)" in choices


@pytest.mark.requirement("S0-108")
def test_the_readme_and_the_examples_recommend_the_safe_executor() -> None:
    """S0-108: the unsafe one appears only with a word of warning, or as google-adk's, which is measured against."""
    assert "UnsafeLocalCodeExecutor" in (REPOSITORY / "README.md").read_text()
    for page in (REPOSITORY / "README.md", *DOCS.rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md")):
        text = page.read_text()
        if "UnsafeLocalCodeExecutor" in text and page.name != "measurements.md":
            assert re.search(
                r"no boundary|not a boundary|debugging|for code you have read|none from files|isolates nothing", text
            ), page
    for program in (REPOSITORY / "examples").rglob("*.py"):
        assert "UnsafeLocalCodeExecutor" not in program.read_text(), program


def test_the_names_of_the_doctors_json_are_the_documented_ones() -> None:
    program = preloaded.program("adk-skills")
    told = json.loads(subprocess.run([program, "doctor", "--json"], capture_output=True, check=False).stdout)
    documented = section("adk-skills doctor")
    for name in (*told, *told["machine"], *told["levels"][0]):
        assert f"`{name}`" in documented, name


@pytest.mark.requirement("S0-105")
def test_how_a_default_changes_is_promised() -> None:
    """S0-105."""
    promise = " ".join(section("Changing a default").split())
    for words in ("DeprecationWarning", "below 1.0", "major version", "never made weaker"):
        assert words in promise


@pytest.mark.requirement("S3-1")
def test_why_gemini_rejects_native_code_calls_is_documented() -> None:
    why = " ".join(
        (DOCS / "how-to" / "code-execution.md").read_text().partition("`CodeExecutionRecoveryPlugin`")[0].split()
    )
    for words in ("Python in a fenced block", "native `code_execution` tool", "does not declare", "rejects the answer"):
        assert words in why


@pytest.mark.requirement("S0-163")
def test_the_rejected_ways_are_on_record() -> None:
    """S0-163."""
    page = (DOCS / "explanation" / "decisions" / "0008-rejected-ways.md").read_text()
    for way in ("document it", "Docker", "a timeout as the only", "restricted builtins", "pkill -f", "preexec_fn"):
        assert way in page
    for way in ("multiprocessing", "invocation's id", "whole executor"):
        assert way in page


def test_security_says_what_the_isolation_page_says() -> None:
    said = (REPOSITORY / "SECURITY.md").read_text()
    assert "docs/explanation/isolation.md" in said
    assert "adk-skills doctor" in said
    assert "`process` is an explicit choice" in said
