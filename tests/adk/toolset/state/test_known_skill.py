"""A folder and a google-adk object answer the same questions alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.skills import models

from adk_skills_agent import SkillsRegistry
from adk_skills_agent.adk.skills.known import KnownSkill, wanted_tools
from adk_skills_agent.adk.skills.memory import EditedSkill, MemoryFolders, MemorySkill
from adk_skills_agent.adk.skills.resources import usage_line
from adk_skills_agent.adk.skills.source import DiskSkill
from adk_skills_agent.errors import CatalogError, InvalidResourcePath, ResourceNotFound, ScriptNotFound

FILES = {"references/guide.md": "the guide", "assets/a.bin": b"\0\1", "scripts/go.py": "print(1)"}


def on_disk(make_skill: Callable[..., Path]) -> KnownSkill:
    folder = make_skill("one", description="Does one.", body="The body.", files=FILES)
    file = folder / "SKILL.md"
    head = (
        "allowed-tools: Bash(git add:*) Read\n"
        "metadata:\n  adk_inject_state: true\n  adk_additional_tools: [horn]\n---\n\n"
    )
    file.write_text(file.read_text().replace("---\n\n", head, 1))
    registry = SkillsRegistry()
    registry.discover([folder])
    return DiskSkill(registry.load_skill("one"))


def in_memory(folders: MemoryFolders, **resources: Any) -> MemorySkill:
    level1 = models.Frontmatter(
        name="one",
        description="Does one.",
        allowed_tools="Bash(git add:*) Read",
        metadata={"adk_inject_state": True, "adk_additional_tools": ["horn"]},
    )
    found = models.Resources(
        references={"guide.md": "the guide"},
        assets={"a.bin": b"\0\1"},
        scripts={"go.py": models.Script(src="print(1)")},
    ).model_copy(update=resources)
    return MemorySkill(models.Skill(frontmatter=level1, instructions="The body.", resources=found), folders)


@pytest.fixture
def folders() -> Iterator[MemoryFolders]:
    found = MemoryFolders()
    yield found
    found.close()


@pytest.fixture(params=["disk", "memory", "edited"])
def skill(request: pytest.FixtureRequest, make_skill: Callable[..., Path], folders: MemoryFolders) -> KnownSkill:
    if request.param == "disk":
        return on_disk(make_skill)
    if request.param == "memory":
        return in_memory(folders)
    return EditedSkill(on_disk(make_skill), "The body.")


def test_both_say_the_same_of_themselves(skill: KnownSkill) -> None:
    assert (skill.name, skill.description, skill.instructions()) == ("one", "Does one.", "The body.")
    assert skill.allowed_tools == ("Bash(git add:*)", "Read")
    assert skill.additional_tools == ("horn",)
    assert skill.injects_state
    assert skill.frontmatter()["name"] == "one"
    assert skill.files() == ("assets/a.bin", "references/guide.md", "scripts/go.py")
    assert skill.scripts == ("scripts/go.py",)


def test_both_find_and_read_files_alike(skill: KnownSkill) -> None:
    assert skill.find("guide.md") == skill.find("./references/guide.md") == "references/guide.md"
    assert skill.find("go.py") == "scripts/go.py"
    assert skill.read_bytes("assets/a.bin") == b"\0\1"
    assert skill.read_bytes("references/guide.md", 3) == b"the"
    assert skill.size("assets/a.bin") == 2
    assert b"The body." in skill.read_bytes("SKILL.md")


def test_both_refuse_alike(skill: KnownSkill) -> None:
    with pytest.raises(ResourceNotFound, match=r"^Resource 'references/gude.md' not found in skill 'one'.$") as missing:
        skill.find("references/gude.md")
    assert missing.value.suggestions[0] == "references/guide.md"
    with pytest.raises(ScriptNotFound, match=r"^Script 'scripts/run.py' not found in skill 'one'.$") as script:
        skill.find("scripts/run.py")
    assert script.value.suggestions == ("scripts/go.py",)
    for path in ("../one/SKILL.md", "/etc/passwd", "a\0b", "", "x" * 5000):
        with pytest.raises(InvalidResourcePath):
            skill.find(path)
    with pytest.raises(ResourceNotFound):
        skill.read_bytes("references/none.md")


def test_both_are_a_folder_when_something_runs_them(skill: KnownSkill) -> None:
    local = skill.local()
    assert (local.skill_dir / "scripts" / "go.py").read_text() == "print(1)"
    assert local.resolve("assets/a.bin").read_bytes() == b"\0\1"
    assert local.name == "one"


def test_a_version_is_of_every_byte(make_skill: Callable[..., Path], folders: MemoryFolders) -> None:
    disk = on_disk(make_skill)
    before = disk.version()
    assert disk.version() == before
    disk.local().resolve("assets/a.bin").write_bytes(b"\0\2")
    assert disk.version() != before
    memory = in_memory(folders)
    assert memory.version() == in_memory(folders).version()
    assert memory.version() != in_memory(folders, references={"guide.md": "the guide!"}).version()
    assert EditedSkill(memory, "Another body.").version() != memory.version()


def test_another_version_in_memory_is_another_folder_and_all_go_at_the_end(folders: MemoryFolders) -> None:
    one = in_memory(folders).local().skill_dir
    assert in_memory(folders).local().skill_dir == one
    other = in_memory(folders, references={"guide.md": "new"}).local().skill_dir
    assert other != one
    folders.close()
    assert not one.exists()
    assert not other.exists()
    assert in_memory(folders).local().skill_dir.is_dir()  # it starts anew


def test_names_that_leave_the_folder_are_not_written(folders: MemoryFolders, tmp_path: Path) -> None:
    skill = in_memory(folders, references={"../../../escape.md": "x", "/abs.md": "y", "ok.md": "z"})
    assert [path for path in skill.files() if path.startswith("references")] == ["references/ok.md"]
    folder = skill.local().skill_dir
    assert sorted(path.name for path in (folder / "references").iterdir()) == ["ok.md"]
    skill.object.frontmatter = models.Frontmatter.model_construct(name="../out", description="x", metadata={})
    with pytest.raises(CatalogError, match="cannot be the name of a folder"):
        skill.local()


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        (None, ()),
        ("", ()),
        ("Read Write", ("Read", "Write")),
        ("Read, Bash(git add:*), mcp__x", ("Read", "Bash(git add:*)", "mcp__x")),
    ],
)
def test_allowed_tools_keep_their_brackets(text: str | None, tools: tuple[str, ...]) -> None:
    assert wanted_tools(text) == tools


@pytest.mark.parametrize(
    ("path", "head", "line"),
    [
        ("a.py", '#!/usr/bin/env python3\n"""Makes a plot.\n\nMore."""\n', "Makes a plot."),
        ("a.py", "'''One line.'''\n", "One line."),
        ("a.py", '"""Makes.\n\nUsage: a.py FILE\n"""', "a.py FILE"),
        ("a.py", "import sys\n", ""),
        ("a.sh", "#!/bin/sh\n# shellcheck disable=SC1\n# Cleans the build folder.\n", "Cleans the build folder."),
        ("a.sh", "#!/bin/sh\necho 1\n", ""),
        ("a.rb", "# Usage: ruby a.rb IN OUT\n", "ruby a.rb IN OUT"),
        ("a.bin", "\0\1\2usage: x", ""),
        ("a.py", '"""' + "word " * 100 + '"""', ("word " * 100)[:139].rstrip() + "…"),
    ],
)
def test_the_first_lines_of_a_script_say_how_it_is_called(path: str, head: str, line: str) -> None:
    assert usage_line(path, head.encode()) == line


def test_a_file_that_became_a_folder_while_it_was_found_is_not_found_again(
    make_skill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = on_disk(make_skill)
    assert isinstance(skill, DiskSkill)
    script = skill.local().skill_dir / "scripts" / "go.py"
    find = skill._skill.find

    def find_and_replace(path: str, prefixes: Any = ()) -> str:
        found = find(path, prefixes)
        script.unlink()
        script.mkdir()
        return found

    monkeypatch.setattr(skill._skill, "find", find_and_replace)
    assert skill.find("scripts/go.py", ()) == "scripts/go.py"
    monkeypatch.undo()
    with pytest.raises(ScriptNotFound):
        skill.find("scripts/go.py", ())


def test_a_script_that_is_replaced_by_a_link_out_of_the_skill_is_not_found_again(
    make_skill: Callable[..., Path], tmp_path: Path
) -> None:
    skill = on_disk(make_skill)
    folder = skill.local().skill_dir
    assert [skill.find("scripts/go.py", ()) for _ in range(2)] == ["scripts/go.py"] * 2
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "go.py").write_text("print(2)")
    (folder / "scripts").rename(folder / "before")
    (folder / "scripts").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidResourcePath):
        skill.find("scripts/go.py", ())


def test_row_313_a_docstring_of_blanks_is_read_in_linear_time() -> None:
    """Seen: a skill with twenty such scripts took 40 s to load, and the loop went on every 1.3 s."""
    assert usage_line("scripts/a.py", b'"""a' + b" " * 500_000 + b'b"""').startswith("a b")
