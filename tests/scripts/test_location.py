from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from adk_skills_agent.catalog.skill import Skill
from adk_skills_agent.errors import InvalidArguments, ScriptError, ScriptNotFound
from adk_skills_agent.scripts import list_scripts, locate_script

FILES = {
    "scripts/run.py": "print(1)",
    "scripts/deep/er/tool.sh": "echo",
    "scripts/My Tool.PY": "print(2)",
    "scripts/scripts/inner.py": "",
    "scripts/noext": "",
    "run_outside.py": "",
    "references/guide.md": "",
}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("run.py", "scripts/run.py"),
        ("scripts/run.py", "scripts/run.py"),
        ("./scripts//run.py", "scripts/run.py"),
        ("deep/er/tool.sh", "scripts/deep/er/tool.sh"),
        ("scripts/My Tool.PY", "scripts/My Tool.PY"),
        ("scripts/scripts/inner.py", "scripts/scripts/inner.py"),
        ("run_outside.py", "run_outside.py"),
        ("./references/guide.md", "references/guide.md"),
    ],
)
@pytest.mark.requirement("S0-9", "S0-10")
def test_a_script_is_found_with_and_without_its_folder(
    skill_with: Callable[..., Skill], asked: str, found: str
) -> None:
    """S0-9, S0-10, GOOGLE_ADK row 12."""
    location = locate_script(skill_with(FILES), asked)
    assert location.path == found
    assert location.file.is_file()


@pytest.mark.parametrize(
    "asked",
    [
        "../../bin/sh", "/bin/sh", "scripts/../x", "scripts/../../x", "scripts\\..\\x", "", ".", "./", "scripts",
        "scripts/", "run.py/", "a\0b.py", "\ud800.py", "~/x.py", "   ", None, 7, ["run.py"],
    ],
)  # fmt: skip
@pytest.mark.requirement("S4-22")
def test_a_path_that_is_none_inside_the_scripts_folder_is_refused(
    skill_with: Callable[..., Skill], asked: object
) -> None:
    """S4-22, attack row 47."""
    with pytest.raises(InvalidArguments) as caught:
        locate_script(skill_with(FILES), asked)
    assert len(caught.value.message) > 20


@pytest.mark.parametrize("asked", ["rum.py", "RUN.PY", "nothing-like-it.rb", "scripts/run_outside.py"])
@pytest.mark.requirement("S0-29", "S4-20")
def test_a_script_that_is_not_there_names_the_nearest(skill_with: Callable[..., Skill], asked: str) -> None:
    """S0-29, S4-20."""
    skill = skill_with(FILES)
    with pytest.raises(ScriptNotFound) as caught:
        locate_script(skill, asked)
    assert caught.value.suggestions
    assert set(caught.value.suggestions) <= set(list_scripts(skill))


def test_a_wrong_folder_finds_the_right_one_by_file_name(skill_with: Callable[..., Skill]) -> None:
    with pytest.raises(ScriptNotFound) as caught:
        locate_script(skill_with(FILES), "tool.sh")
    assert caught.value.suggestions[0] == "scripts/deep/er/tool.sh"


def test_a_skill_without_scripts_says_so(skill_with: Callable[..., Skill]) -> None:
    with pytest.raises(ScriptNotFound, match="has no scripts"):
        locate_script(skill_with({"references/a.md": ""}), "run.py")


def test_a_link_that_leaves_the_skill_is_never_run(skill_with: Callable[..., Skill]) -> None:
    """Attack rows 45 and 47, GOOGLE_ADK row 9."""
    skill = skill_with(FILES)
    os.symlink("/bin/sh", skill.skill_dir / "scripts" / "shell.sh")
    os.symlink("/etc", skill.skill_dir / "scripts" / "etc")
    for path in ("scripts/shell.sh", "scripts/etc/passwd"):
        with pytest.raises(ScriptError):
            locate_script(skill, path)


def test_the_scripts_are_what_lies_in_their_folder_and_what_looks_like_one(skill_with: Callable[..., Skill]) -> None:
    skill = skill_with(FILES | {"tools/x.mjs": "", "bin/tool": "#!/bin/sh\n", "bin/data": "", "assets/app.js": ""})
    (skill.skill_dir / "bin" / "tool").chmod(0o755)
    below = sorted(path for path in FILES if path.startswith("scripts/"))
    assert list(list_scripts(skill)) == [*below, "bin/tool", "run_outside.py", "tools/x.mjs"]
    with pytest.raises(ScriptNotFound) as caught:
        locate_script(skill, "tools/xy.mjs")
    assert "tools/x.mjs" in caught.value.suggestions


def test_a_file_is_what_its_path_says_before_it_is_one_of_the_scripts_folder(skill_with: Callable[..., Skill]) -> None:
    skill = skill_with({"setup.py": "", "scripts/setup.py": "", "tools/a.py": "", "scripts/tools/b.py": ""})
    for asked in ("setup.py", "scripts/setup.py", "tools/a.py"):
        assert locate_script(skill, asked).path == asked
    assert locate_script(skill, "tools/b.py").path == "scripts/tools/b.py"
