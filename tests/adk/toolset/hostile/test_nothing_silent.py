"""What an owner wrote wrongly is said when the toolset is made, with the name of the setting (issue 17, item 2)."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent

import preloaded
from adk_skills_agent import (
    Grant,
    Network,
    RegistryConfig,
    SandboxPolicy,
    ShellToolset,
    SkillsRegistry,
    SkillToolset,
    with_skills,
)
from adk_skills_agent.catalog import trust_project
from adk_skills_agent.errors import ConfigError

MakeSkill = Callable[..., Path]


@pytest.fixture
def skills(make_skill: MakeSkill) -> Path:
    """A folder with one good skill."""
    return make_skill("weather").parent


def catalog_of(made: Any) -> Any:
    """What the toolset, the agent or the registry has of skills."""
    if isinstance(made, SkillsRegistry):
        return made
    toolset = made if isinstance(made, SkillToolset) else made.tools[0]
    return toolset.runtime.source


def break_skill(folder: Path) -> None:
    """Leave a SKILL.md that leads nowhere."""
    (folder / "SKILL.md").unlink()
    (folder / "SKILL.md").symlink_to("gone.md")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# Folders


WAYS: dict[str, Callable[..., Any]] = {
    "from_dirs": SkillToolset.from_dirs,
    "with_skills": lambda dirs, **more: with_skills(LlmAgent(name="a", model="gemini-2.5-flash"), dirs, **more),
    "of_folders": SkillsRegistry.of_folders,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_does_not_exist_is_an_error_that_names_the_working_directory(
    way: str, skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as told:
        WAYS[way]([skills, "skils", Path("/nowhere/at/all")])
    sentence = told.value.message
    assert sentence.startswith(
        f"These folders of skills do not exist: skils ({tmp_path}/skils), /nowhere/at/all. The working directory is "
        f"{tmp_path}. Correct the path"
    )
    assert "missing='warn'" in sentence
    assert "relative_to=__file__" in sentence


@pytest.mark.parametrize("way", WAYS)
def test_missing_warn_goes_on_without_it_and_finds_it_when_it_appears(
    way: str, skills: Path, make_skill: MakeSkill, tmp_path: Path
) -> None:
    made = WAYS[way]([skills, tmp_path / "later"], missing="warn")
    catalog = catalog_of(made)
    assert "no-such-folder" in [one.code for one in catalog.diagnostics]
    make_skill("late", root=tmp_path / "later")
    (catalog if isinstance(catalog, SkillsRegistry) else catalog.catalog).refresh()
    assert sorted(catalog) == ["late", "weather"]


def test_missing_is_one_of_two_words(skills: Path) -> None:
    with pytest.raises(ConfigError, match="missing must be 'error' or 'warn', not 'ignore'"):
        SkillToolset.from_dirs([skills], missing="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_paths_may_start_at_the_file_that_calls(
    way: str, skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    relative = skills.name
    caller = skills.parent / "agent.py"
    caller.touch()
    for start in (str(caller), caller, skills.parent):
        made = WAYS[way]([relative], relative_to=start)
        catalog = catalog_of(made)
        assert list(catalog) == ["weather"]
    with pytest.raises(ConfigError, match=f"does not exist: {skills.parent}/gone"):
        WAYS[way](["gone"], relative_to=caller)


def test_an_agent_module_finds_its_skills_whatever_the_working_directory_is(skills: Path, tmp_path: Path) -> None:
    module = skills.parent / "my_agent.py"
    module.write_text(
        "from adk_skills_agent import SkillToolset\n"
        f"print(len(SkillToolset.from_dirs(['{skills.name}'], relative_to=__file__).runtime.source))\n"
    )
    done = subprocess.run([preloaded.program("python"), module], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


# One line on the log, everything in diagnostics


def test_one_line_at_warning_counts_what_is_wrong_and_diagnostics_has_it(
    skills: Path, make_skill: MakeSkill, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    break_skill(make_skill("broken"))
    toolset = SkillToolset.from_dirs([skills, tmp_path / "gone"], missing="warn", grants={"wether": {"A": "b"}})
    (line,) = warnings_of(caplog)
    errors = [one for one in toolset.diagnostics if one.severity == "error"]
    assert {one.code for one in errors} >= {"no-such-folder"}
    assert len(errors) >= 2
    assert line.startswith(f"Skills: {len(errors)} errors and ")
    assert "Nearest: weather" in line
    assert line.endswith("SkillToolset.diagnostics lists them all.")


async def test_what_is_wrong_later_is_one_more_line_and_said_once(
    skills: Path, make_skill: MakeSkill, caplog: pytest.LogCaptureFixture
) -> None:
    registry = SkillsRegistry(RegistryConfig(cache=False, refresh_interval=0.0))
    registry.discover([skills])
    toolset = SkillToolset.from_catalog(registry)
    await toolset.get_tools()
    assert warnings_of(caplog) == []
    break_skill(make_skill("second"))
    await toolset.get_tools()
    await toolset.get_tools()
    (line,) = warnings_of(caplog)
    assert line.startswith("Skills: 1 error. ")
    await toolset.close()


def test_what_is_only_worth_a_note_is_not_logged(skills: Path, caplog: pytest.LogCaptureFixture) -> None:
    toolset = SkillToolset.from_dirs([skills])
    assert warnings_of(caplog) == []
    assert all(one.severity == "info" for one in toolset.diagnostics)
    assert ShellToolset().diagnostics == ()


# Projects


def test_the_folder_of_a_project_nobody_trusts_is_said_with_the_command_that_trusts_it(
    make_skill: MakeSkill, tmp_path: Path, private_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    project = tmp_path / "my project"
    (project / ".git").mkdir(parents=True)
    make_skill("theirs", root=project / ".agents" / "skills")
    registry = SkillsRegistry()
    registry.discover_scopes(project)
    toolset = SkillToolset.from_catalog(registry)
    (line,) = warnings_of(caplog)
    assert f"The project {project} is not trusted" in line
    assert f"adk-skills trust '{project}'" in line
    trust_project(project)
    registry.refresh()
    assert list(toolset.runtime.source) == ["theirs"]


# Settings, each with its key


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"policy": SandboxPolicy(memory_bytes=-1)}, "policy: memory_bytes must be a whole number"),
        ({"policy": SandboxPolicy(network="internet")}, "policy: network must be one of none, loopback"),  # type: ignore[arg-type]
        ({"policy": "strickt"}, "no sandbox policy called 'strickt'. Did you mean 'strict'?"),
        ({"policy": {"wall_seconds": 3}}, "policy must be a SandboxPolicy or the name of a preset"),
        ({"grants": {"weather": {"LD_PRELOAD": "x"}}}, "LD_PRELOAD"),
        ({"grants": {"weather": 3}}, "grants for 'weather'"),
        ({"grants": ["weather"]}, "grants must map skills or scripts"),
        ({"permissions": {"skill": {"*": "ask"}}}, "permissions: there is no key 'skill'. Did you mean 'skills'?"),
        ({"permissions": {"skills": {"*": "maybe"}}}, "permissions: skills: * must be allow, ask, deny, not 'maybe'"),
        ({"permissions": 3}, "permissions must be Permissions"),
        ({"permissions": "/nowhere/rules.yaml"}, "The permissions file /nowhere/rules.yaml cannot be read"),
    ],
)
@pytest.mark.parametrize("way", ["from_dirs", "with_skills"])
def test_settings_are_checked_when_the_toolset_is_made(
    way: str, skills: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as told:
        WAYS[way]([skills], **settings)
    assert sentence in told.value.message


def test_a_models_name_that_google_adk_does_not_know_is_an_error(skills: Path) -> None:
    with pytest.raises(ConfigError, match=r"The model of agent 'helper': google-adk knows no model 'gemni-2.5-flash'"):
        with_skills(LlmAgent(name="helper", model="gemni-2.5-flash"), [skills])
    with pytest.raises(ConfigError, match=r"model: google-adk knows no model 'gemni'. Check its spelling"):
        SkillToolset.from_dirs([skills], model="gemni")
    with pytest.raises(ConfigError, match=r"model must be a model's name, such as 'gemini-2.5-flash', not int"):
        SkillToolset.from_dirs([skills], model=3)  # type: ignore[arg-type]
    with_skills(LlmAgent(name="takes_its_parents"), [skills])


@pytest.mark.parametrize("word", ["none", "loopback", "host"])
def test_the_network_may_be_a_word_as_the_pages_have_it(word: Any) -> None:
    assert SandboxPolicy(network=word) == SandboxPolicy(network=Network(word))
    assert SandboxPolicy(network=word).network.mode == word


async def test_a_script_under_network_none_has_none(make_skill: MakeSkill, rehearse: Any, ask: Any) -> None:
    skill = make_skill("caller")
    (skill / "scripts").mkdir(exist_ok=True)
    (skill / "scripts" / "call.py").write_text(
        "import socket\ntry:\n    socket.create_connection(('93.184.216.34', 443), 2)\n"
        "except OSError:\n    print('no network')\n"
    )
    server = rehearse(
        "turns:\n"
        "  - call: {name: run_skill_script, args: {skill_name: caller, file_path: scripts/call.py}}\n"
        "  - text: done"
    )
    toolset = SkillToolset.from_dirs([skill.parent], policy=SandboxPolicy(network="none"))
    answer = await ask(LlmAgent(name="agent", model=server.model(), tools=[toolset]), "call")
    assert answer.results[-1][1]["stdout"].strip() == "no network"
    await toolset.close()


# Wrong calls that would end in an error of Python's or google-adk's


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: SkillToolset(["skills"]), "For folders: SkillToolset.from_dirs(['skills'])."),
        (lambda: with_skills(["skills"], LlmAgent(name="a")), "with_skills takes the agent first"),
        (lambda: SkillToolset.from_dirs([], on_event=5), "on_event must be a function, or a list of them, not int."),
        (lambda: SkillToolset.from_dirs([], grants={"x": {"hosts": ["a.org"]}}), "For hosts write Grant(hosts=[...])."),
        (lambda: SkillToolset.from_dirs([__file__]), "is a file. Give the folder of your skills."),
        (lambda: Grant(hosts=["https://api.example.org/x"]), "Did you mean 'api.example.org'?"),
    ],
)
def test_a_wrong_call_says_what_to_write(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        call()


def test_a_folder_without_skills_is_said_and_a_mode_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    toolset = SkillToolset.from_dirs([tmp_path / "empty"], discovery_mode="EAGER")
    assert [problem.code for problem in toolset.diagnostics] == ["no-skills"]
