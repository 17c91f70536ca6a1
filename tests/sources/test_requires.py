"""Skills that need others: resolved before anything is written; what cannot be is explained."""

from __future__ import annotations

import time

import pytest
from repositories import skill_text

from adk_skills_agent.errors import SourceError
from adk_skills_agent.sources.fetch import FetchedSkill, required_skills
from adk_skills_agent.sources.origin import Origin, OriginKind
from adk_skills_agent.sources.requires import Requirement, read_requirement, required_name, resolve_requirements
from adk_skills_agent.sources.tree import TreeFile, tree_of

HERE = Origin(OriginKind.FOLDER, "/src")


def skill(name: str, version: str = "", *needs: str) -> FetchedSkill:
    text = skill_text(name, **({"version": version} if version else {}))
    return FetchedSkill(name, "x", tree_of({"SKILL.md": TreeFile(text.encode())}, "x"), HERE, requires=needs)


def resolve(wanted: list[FetchedSkill], *available: FetchedSkill) -> list[str]:
    def find(requirement: Requirement) -> list[FetchedSkill]:
        return [one for one in available if one.name == requirement.name]

    return [f"{one.name}" for one in resolve_requirements(wanted, find)]


def test_what_is_needed_comes_first_and_once():
    found = resolve([skill("a", "", "b", "c")], skill("b", "", "c"), skill("c"))
    assert found == ["c", "b", "a"]


def test_a_version_that_fits_all_is_chosen():
    new, old = skill("c", "2.0"), skill("c", "1.5")
    chosen = resolve_requirements([skill("a", "", "c>=1"), skill("b", "", "c<2")], lambda _: [new, old])
    assert old in chosen
    assert new not in chosen


@pytest.mark.parametrize(
    ("wanted", "available", "said"),
    [
        ([skill("a", "", "b")], [], "a needs b, and no such skill was found"),
        ([skill("a", "", "b>=2")], [skill("b", "1.0")], "a needs b>=2. What was found has 1.0."),
        ([skill("a", "", "b>=1")], [skill("b")], "a needs b>=1. What was found has no metadata.version."),
        ([skill("a", "", "c>=2"), skill("b", "", "c<2")], [skill("c", "1"), skill("c", "2")], "No version of 'c' fits"),
        ([skill("a", "", "b")], [skill("b", "", "a")], "circle: a needs b needs a"),
        ([skill("a", "", "a")], [], "circle: a needs a"),
        ([skill("a", "", "b ~~ 1")], [], "no requirement|cannot be used"),
        ([skill("a", "", "b>=x")], [], "cannot be used"),
        ([skill("a", "", "b @ mcp:touch /tmp/x")], [], "MCP server, which only you can name"),  # row 138
        ([skill("a", "", "b @ mcp:https://example.com/mcp")], [], "MCP server, which only you can name"),
        ([skill("a", "1", "b"), skill("b", "1.0")], [], None),
    ],
)
def test_what_cannot_be_resolved_is_explained(wanted, available, said):
    if said is None:
        assert resolve(wanted, *available) == ["b", "a"]
        return
    with pytest.raises(SourceError, match=said):
        resolve(wanted, *available)


def test_a_skill_cannot_pull_in_hundreds_of_others():
    chain = [skill(f"s{number}", "", f"s{number + 1}") for number in range(400)]
    with pytest.raises(SourceError, match=r"too many others|more than 200"):
        resolve([chain[0]], *chain, skill("s400"))


def test_requirements_are_read_as_authors_write_them():
    full = read_requirement("pdf >=1.2,<2 @ acme/skills/skills/pdf@main", "report")
    assert (full.name, str(full.range), full.by) == ("pdf", "<2,>=1.2", "report")
    assert str(full.source) == "git+https://github.com/acme/skills@main#skills/pdf"
    assert required_name("PDF Reader") == ""
    assert required_name("pdf>=1") == "pdf"
    assert required_skills("a, b>=1\nc") == ("a", "b>=1", "c")
    assert required_skills(["a", 1, " b "]) == ("a", "b")
    assert required_skills(None) == ()


def test_row_189_a_requirement_of_blanks_does_not_take_the_square_of_its_length():
    """Seen: 60,000 blanks took more than twenty seconds, and a megabyte would have taken hours."""
    began = time.process_time()
    assert required_name("a>" + " " * 60_000 + "!") == ""
    with pytest.raises(SourceError, match="no requirement"):
        read_requirement("a>" + " " * 60_000 + "!")
    assert time.process_time() - began < 3
