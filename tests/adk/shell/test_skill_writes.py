"""``ShellSettings(skill_writes="session")``: scripts write beside themselves, the skill stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tool_calls import agent_with, many_calls

from adk_skills_agent import ConfigError, Grant, Permissions, SandboxPolicy, Secret, ShellSettings, SkillToolset

COUNTS = """\
import os, pathlib, sys
here = pathlib.Path(__file__).resolve().parent
state = here / "state.txt"
state.write_text(state.read_text() + "x" if state.exists() else "x")
(here.parent / "cache").mkdir(exist_ok=True)
print(len(state.read_text()), os.environ["SKILL_DIR"] == str(here.parent), (here.parent / "data/words.txt").read_text())
if "fail" in sys.argv:
    raise ValueError("wrong")
"""
PLANTS = """\
import pathlib
for name in ("counter", "planter"):
    place = pathlib.Path("/work" if pathlib.Path("/work").exists() else ".", ".skills", name, "scripts")
    place.mkdir(parents=True, exist_ok=True)
    (place / "state.py").write_text("print('planted')")
print(sorted(path.name for path in place.parents[1].iterdir()))
"""


def script(skill: str, path: str, *args: str) -> tuple[str, dict[str, Any]]:
    return "run_skill_script", {"skill_name": skill, "file_path": path, "args": list(args)}


def sh(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "execute", {"command": command, **more}


LOADS = [("load_skill", {"skill_name": name}) for name in ("counter", "planter")]


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    make_skill("planter", files={"scripts/plant.py": PLANTS})
    return make_skill("counter", files={"scripts/state.py": COUNTS, "data/words.txt": "alpha"}).parent


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def toolset_of(skills: Path, level: str = "namespaces", **settings: Any) -> SkillToolset:
    return SkillToolset.from_dirs(
        [skills],
        shell=ShellSettings(skill_writes="session", **settings),
        policy=SandboxPolicy(isolation=level, min_isolation=level),
    )


@pytest.mark.parametrize("level", ["namespaces", "landlock", "process"])
async def test_a_script_that_writes_beside_itself_finds_it_again(skills: Path, calls: Any, level: str) -> None:
    toolset = toolset_of(skills, level)
    before = bytes_of(skills)
    answers = await calls(
        toolset,
        *LOADS,
        script("counter", "state.py"),
        script("counter", "state.py"),
        sh('python3 "$SKILL_DIR/scripts/state.py"', skill="counter"),
        script("counter", "state.py", "fail"),
        sh("ls -A"),
    )
    assert [answer["stdout"] for answer in answers[2:6]] == [f"{count} True alpha\n" for count in (1, 2, 3, 4)], answers
    assert "wrong (at scripts/state.py, line 8" in answers[5]["error"]
    assert "stdout" not in answers[6]  # the copy is nobody else's, and there only while its skill runs
    assert "output_files" not in answers[2]
    assert bytes_of(skills) == before
    again = await calls(toolset, *LOADS, script("counter", "state.py"))
    assert again[2]["stdout"] == "1 True alpha\n"  # another session
    await toolset.close()


async def test_row_102_another_skill_changes_no_copy(skills: Path, calls: Any) -> None:
    toolset = toolset_of(skills)
    answers = await calls(
        toolset,
        *LOADS,
        script("planter", "plant.py"),
        script("counter", "state.py"),
        script("planter", "plant.py"),
        sh("mkdir -p .skills/counter/scripts && echo 'print(9)' > .skills/counter/scripts/state.py && ls -A .skills"),
        script("counter", "state.py"),
        sh("ln -s /etc .skills; echo x > .skills/y; true"),
        script("counter", "state.py"),
    )
    assert answers[2]["stdout"] == "['counter', 'planter']\n"
    assert answers[3]["stdout"] == "1 True alpha\n"
    assert answers[6]["stdout"] == "2 True alpha\n"
    assert answers[8]["stdout"] == "3 True alpha\n"
    await toolset.close()


async def test_without_it_a_skill_is_read_only(skills: Path, calls: Any) -> None:
    toolset = SkillToolset.from_dirs([skills], shell=True)
    answers = await calls(toolset, *LOADS, script("counter", "state.py"))
    assert "Read-only file system" in answers[2]["error"]
    await toolset.close()


async def test_the_copy_stays_where_the_workspace_does(skills: Path, rehearse: Any, ask: Any, tmp_path: Path) -> None:
    first = toolset_of(skills, keep_in=tmp_path / "kept")
    server = rehearse(
        many_calls(*LOADS, script("counter", "state.py"))
        + many_calls(script("counter", "state.py")).removeprefix("turns:")
    )
    before = await ask(agent_with(server, first), "go")
    await first.close()
    second = toolset_of(skills, keep_in=tmp_path / "kept")
    before.runner.agent = agent_with(server, second)
    after = await ask(before.runner.agent, "go on", session_of=before)
    assert after.results[0][1]["stdout"] == "2 True alpha\n"
    await second.close()


async def test_it_ends_with_the_session_and_a_copy_that_does_not_fit_is_said(
    skills: Path, calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (skills / "counter" / "data" / "large.bin").write_bytes(bytes(3 << 20))
    toolset = SkillToolset.from_dirs(
        [skills], shell=ShellSettings(skill_writes="session"), policy=SandboxPolicy(workspace_bytes=1 << 20)
    )
    answers = await calls(toolset, *LOADS, script("counter", "state.py"), sh("echo on"))
    assert "could not be copied for the session" in answers[2]["error"]
    assert answers[2]["error_code"] == "SANDBOX_ERROR"
    assert answers[3]["stdout"] == "on\n"
    again = await calls(toolset, *LOADS, script("counter", "state.py"), script("counter", "state.py"))
    assert "could not be copied" in again[3]["error"]  # half of a copy is never taken for one
    await toolset.close()


async def test_a_changed_skill_gets_a_new_copy(skills: Path, rehearse: Any, ask: Any, tmp_path: Path) -> None:
    server = rehearse(
        many_calls(*LOADS, script("counter", "state.py"))
        + many_calls(script("counter", "state.py")).removeprefix("turns:")
    )
    toolset = toolset_of(skills)
    before = await ask(agent_with(server, toolset), "go")
    (skills / "counter" / "data" / "words.txt").write_text("beta")
    after = await ask(before.runner.agent, "go on", session_of=before)
    answer = after.results[0][1]
    assert answer["stdout"] == "1 True beta\n"
    assert "was changed: what its runs wrote" in str(answer["notes"])
    await toolset.close()


def test_what_a_copy_would_undermine_is_refused(skills: Path) -> None:
    with pytest.raises(ConfigError, match="rules for single scripts would not hold"):
        SkillToolset.from_dirs(
            [skills], shell=ShellSettings(skill_writes="session"), permissions={"scripts": {"counter/*": "ask"}}
        )


def test_row_330_what_is_granted_to_one_script_is_not_for_what_a_command_writes_there(skills: Path) -> None:
    """Seen: a command wrote the script in the session's copy, and its next run had the script's key."""
    grants = {"counter/scripts/count.py": Grant(env={"KEY": Secret("sk-counter-123456")})}
    for given in ({"grants": grants}, {"permissions": Permissions(grants=grants)}):
        with pytest.raises(ConfigError, match="grants for single scripts would not hold"):
            SkillToolset.from_dirs([skills], shell=ShellSettings(skill_writes="session"), **given)  # type: ignore[arg-type]
    SkillToolset.from_dirs([skills], shell=ShellSettings(skill_writes="session"), grants={"counter": {"A": "b"}})


@pytest.mark.parametrize("value", ["always", True, None])
def test_a_wrong_value_is_said(value: Any) -> None:
    with pytest.raises(ConfigError, match="skill_writes must be 'never' or 'session'"):
        ShellSettings(skill_writes=value)
