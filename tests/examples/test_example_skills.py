"""The example skills keep every rule and recommendation of the format."""

import re
from pathlib import Path

import pytest

from adk_skills_agent.format import read_properties, validate_skill

EXAMPLES = Path(__file__).parents[2] / "examples" / "skills"
SKILLS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())


def test_there_is_a_python_a_shell_and_a_reference_only_example():
    suffixes = {skill.name: {p.suffix for p in skill.glob("scripts/*")} for skill in SKILLS}
    assert suffixes == {"csv-report": {".py"}, "log-triage": {".sh"}, "incident-postmortem": set()}


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)
class TestEachExample:
    def test_it_is_valid_without_errors_diagnostics_or_lints(self, skill):
        result = validate_skill(skill)
        assert result.ok
        assert (result.errors, tuple(result.diagnostics), tuple(result.lints)) == ([], (), ())

    def test_its_description_says_what_it_does_and_when_to_use_it(self, skill):
        description = read_properties(skill).description
        assert "Use when" in description
        assert len(description) <= 1024

    def test_its_body_is_short_enough_to_be_loaded_whole(self, skill):
        text = (skill / "SKILL.md").read_text(encoding="utf-8")
        assert len(text.splitlines()) < 500
        assert len(text) / 4 < 5_000

    def test_every_file_it_names_exists_and_every_file_is_named(self, skill):
        pattern = r"\b(?:scripts|references|assets)/[\w.-]*\w"
        named = set(re.findall(pattern, (skill / "SKILL.md").read_text(encoding="utf-8")))
        there = {p.relative_to(skill).as_posix() for p in skill.rglob("*") if p.is_file() and p.name != "SKILL.md"}
        assert named == there

    def test_its_scripts_are_executable_and_start_with_an_interpreter(self, skill):
        for script in skill.glob("scripts/*"):
            assert script.stat().st_mode & 0o111
            assert script.read_bytes().startswith(b"#!/usr/bin/env ")
