"""Scripts get the environment of their skill; the user is asked once for the exact packages, with the real Runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from approval_chat import agent_with, calls

from adk_skills_agent import SandboxPolicy, with_skills
from adk_skills_agent.adk.running.packages import question
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.catalog import Skill
from adk_skills_agent.cli.sources import open_skill
from adk_skills_agent.errors import ConfigError, PackageError
from adk_skills_agent.packages import Dependencies, Lock, LockedPackage, SkillEnvironments, resolve
from adk_skills_agent.packages.environments import collect
from adk_skills_agent.packages.lock import write_lock
from adk_skills_agent.scripts.grants import Grant
from local_index import LocalIndex, knows_this_interpreter, serving

RUN = ("run_skill_script", {"skill_name": "pdf-pages", "file_path": "scripts/pages.py"})
PENDING = (
    "The user is asked to approve the packages of this skill. Do not repeat the call; it continues by itself once they "
    "answer."
)


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    """An index whose ``pypdf`` is ours: the table knows the name, and this Python does not have it."""
    with serving(LocalIndex()) as made:
        made.add("pypdf", "5.0", commands={"pypdf-tool": "pypdf:main"}, files={"pypdf.py": _PYPDF})
        yield made


_PYPDF = "VERSION = '5.0'\ndef main():\n    print('the tool of', VERSION)\n"


@pytest.fixture
def dependencies(index: LocalIndex, tmp_path: Path) -> Dependencies:
    return Dependencies("ask", indexes=(index.url,), cache=knows_this_interpreter(tmp_path / "cache"))


@pytest.fixture
def skill(make_skill: Callable[..., Path]) -> Path:
    return make_skill(
        "pdf-pages",
        files={
            "scripts/pages.py": "import pypdf, sys\nprint('pages by', pypdf.VERSION)\n",
            "scripts/plain.py": "print('needs nothing')\n",
            "scripts/tool.sh": "pypdf-tool\npython3 -c 'import pypdf; print(pypdf.VERSION)'\n",
            "scripts/write.py": "import pypdf\nopen(pypdf.__file__, 'a').write('x')\n",
        },
    )


def script(name: str) -> tuple[str, dict[str, Any]]:
    return ("run_skill_script", {"skill_name": "pdf-pages", "file_path": f"scripts/{name}"})


async def test_the_user_sees_the_exact_packages_and_is_asked_once(
    skill: Path, dependencies: Dependencies, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(RUN, "Done.", RUN, "Again."))
    talk = await chat(agent_with(server, SkillToolset.from_dirs([skill.parent], dependencies=dependencies)))
    await talk.say("How many pages?")
    assert talk.results == [{"error": PENDING, "error_code": "APPROVAL_REQUIRED"}]
    assert talk.question["hint"].startswith("Install 1 package for skill 'pdf-pages'? pypdf==5.0 (sha256 ")
    asked = talk.question["payload"]["adk_skill_packages"]
    assert asked["packages"][0]["name"] == "pypdf"
    assert len(asked["packages"][0]["sha256"][0]) == 64
    await talk.answer(True)
    assert talk.results[-1]["stdout"] == "pages by 5.0\n"
    await talk.say("Again")
    assert talk.results[-1]["stdout"] == "pages by 5.0\n"
    assert len(talk.questions) == 1


@pytest.mark.requirement("C42")
async def test_a_script_that_names_its_own_dependencies_gets_them_in_the_versions_it_names(
    dependencies: Dependencies, index: LocalIndex, make_skill: Any, rehearse: Any, chat: Any
) -> None:
    """Row E9: google-adk's executor ends with ModuleNotFoundError; the runner in the first line is not started."""
    for version in ("1.4", "2.0"):
        index.add("tinyhouse", version)
    text = (
        "#!/usr/bin/env -S uv run --script\n# /// script\n# dependencies = ['tinyhouse<2']\n# ///\n"
        "import tinyhouse\nprint('built with', tinyhouse.VERSION)\n"
    )
    folder = make_skill("builder", files={"scripts/build.py": text})
    run = ("run_skill_script", {"skill_name": "builder", "file_path": "scripts/build.py"})
    server = rehearse(calls(run, "Done."))
    talk = await chat(agent_with(server, SkillToolset.from_dirs([folder.parent], dependencies=dependencies)))
    await talk.say("Build it")
    assert "tinyhouse==1.4" in talk.question["hint"]
    await talk.answer(True)
    assert talk.results[-1]["stdout"] == "built with 1.4\n"


async def test_another_skill_that_resolves_alike_is_not_asked_for_and_nothing_is_fetched(
    skill: Path, dependencies: Dependencies, index: LocalIndex, make_skill: Any, rehearse: Any, chat: Any
) -> None:
    make_skill("other-pages", files={"scripts/pages.py": "from pypdf import VERSION\nprint(VERSION)\n"})
    other = ("run_skill_script", {"skill_name": "other-pages", "file_path": "scripts/pages.py"})
    server = rehearse(calls(RUN, "Done.", other, "Done too."))
    talk = await chat(agent_with(server, SkillToolset.from_dirs([skill.parent], dependencies=dependencies)))
    await talk.say("How many pages?")
    await talk.answer(True)
    fetched = len(index.requests)
    await talk.say("And these?")
    assert talk.results[-1]["stdout"] == "5.0\n"
    assert len(talk.questions) == 1
    assert len(index.requests) == fetched


async def test_a_refusal_is_told_to_the_model_and_holds_for_the_session(
    skill: Path, dependencies: Dependencies, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(RUN, RUN, "I do it by hand.", RUN, "By hand."))
    talk = await chat(agent_with(server, SkillToolset.from_dirs([skill.parent], dependencies=dependencies)))
    await talk.say("How many pages?")
    await talk.answer(False)
    await talk.say("Once more")
    refused = talk.results[1:]
    assert len(refused) == 3
    assert {one["error_code"] for one in refused} == {"PERMISSION_DENIED"}
    assert "refused the packages" in refused[0]["error"]
    assert len(talk.questions) == 1
    assert dependencies.cache is not None
    assert not (dependencies.cache / "environments").exists()


async def test_a_skill_that_needs_nothing_and_a_script_that_needs_nothing_ask_nobody(
    skill: Path, dependencies: Dependencies, index: LocalIndex, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(script("plain.py"), "Done."))
    talk = await chat(agent_with(server, SkillToolset.from_dirs([skill.parent], dependencies=dependencies)))
    await talk.say("Go")
    assert talk.results[-1]["stdout"] == "needs nothing\n"
    assert talk.questions == []
    assert index.requests == []


@pytest.mark.parametrize(
    "level", ["namespaces", *(pytest.param(level, marks=pytest.mark.slow) for level in ("landlock", "process"))]
)
async def test_every_level_shows_the_environment_its_commands_and_keeps_it_as_it_is(
    skill: Path, dependencies: Dependencies, rehearse: Any, chat: Any, level: str
) -> None:
    # The process level has no file system of its own: what the user may write, a script may.
    write = script("write.py") if level != "process" else RUN
    server = rehearse(calls(RUN, script("tool.sh"), write, RUN, "Done."))
    toolset = SkillToolset.from_dirs(
        [skill.parent],
        dependencies=replace(dependencies, mode="install"),
        policy=SandboxPolicy(isolation=level, min_isolation="process"),
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("How many pages?")
    first, tool, written, last = talk.results
    assert first.get("stdout") == "pages by 5.0\n", first
    assert tool["stdout"] == "the tool of 5.0\n5.0\n", tool
    if level != "process":
        assert written["status"] == "error", written
    assert last["stdout"] == "pages by 5.0\n"
    assert talk.questions == []


async def test_locked_takes_only_what_was_prepared_and_says_what_is_not(
    skill: Path, dependencies: Dependencies, index: LocalIndex, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(RUN, "No.", RUN, "Yes."))
    locked = replace(dependencies, mode="locked")
    toolset = SkillToolset.from_dirs([skill.parent], dependencies=locked)
    talk = await chat(agent_with(server, toolset))
    await talk.say("How many pages?")
    assert talk.results[0]["status"] == "error"
    assert talk.results[0]["notes"] == [
        "The packages of skill 'pdf-pages' are not installed here: pypdf. Do it without them, or tell the user."
    ]
    assert index.requests == []
    SkillEnvironments(replace(dependencies, mode="install")).environment_for(opened(skill))
    await talk.say("And now?")
    assert talk.results[1]["stdout"] == "pages by 5.0\n"


def opened(folder: Path) -> Skill:
    return open_skill(str(folder), ())


def test_a_lock_that_a_skill_brings_installs_nothing_by_itself(
    skill: Path, dependencies: Dependencies, index: LocalIndex, tmp_path: Path
) -> None:
    lock = resolve(["pypdf"], cache=tmp_path / "elsewhere", index=dependencies.index)
    write_lock(skill / "adk-skills.lock", lock)
    before = len(index.downloads)
    locked = SkillEnvironments(replace(dependencies, mode="locked"))
    with pytest.raises(Exception, match="not installed here"):
        locked.environment_for(opened(skill))
    assert len(index.downloads) == before


def test_row_110_a_lock_that_a_skill_brings_is_no_way_around_the_owners_date(
    skill: Path, dependencies: Dependencies, index: LocalIndex, tmp_path: Path
) -> None:
    """A package that was published a moment ago may be an attack that nobody has noticed."""
    lock = resolve(["pypdf"], cache=tmp_path / "elsewhere", index=dependencies.index)
    write_lock(skill / "adk-skills.lock", lock)
    before = len(index.downloads)
    dated = replace(dependencies, mode="install", exclude_newer=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(PackageError):
        SkillEnvironments(dated).environment_for(opened(skill))
    assert len(index.downloads) == before
    environment = SkillEnvironments(replace(dependencies, mode="install")).environment_for(opened(skill))
    assert environment is not None


def test_locks_of_the_project_come_before_those_of_the_skills(
    skill: Path, dependencies: Dependencies, index: LocalIndex, tmp_path: Path
) -> None:
    index.add("pypdf", "6.0")
    old = resolve(["pypdf==5.0"], cache=tmp_path / "cache" / "uv", index=dependencies.index)
    write_lock(tmp_path / "locks" / "pdf-pages.lock", replace(old, requirements=("pypdf",)))
    environments = SkillEnvironments(replace(dependencies, mode="install", lock=tmp_path / "locks"))
    environment = environments.environment_for(opened(skill))
    assert environment is not None
    assert "5.0" in (environment.site / "pypdf.py").read_text()


async def test_off_does_nothing(
    skill: Path, dependencies: Dependencies, index: LocalIndex, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(RUN, "No."))
    toolset = SkillToolset.from_dirs([skill.parent], dependencies=replace(dependencies, mode="off"))
    talk = await chat(agent_with(server, toolset))
    await talk.say("How many pages?")
    assert "No module named 'pypdf'" in talk.results[0]["error"]
    assert index.requests == []


async def test_an_index_that_is_gone_does_not_keep_a_script_from_running(
    skill: Path, tmp_path: Path, rehearse: Any, chat: Any
) -> None:
    gone = Dependencies("ask", indexes=("http://127.0.0.1:9/simple",), cache=tmp_path / "cache")
    server = rehearse(calls(RUN, RUN, "No."))
    talk = await chat(agent_with(server, SkillToolset.from_dirs([skill.parent], dependencies=gone)))
    await talk.say("How many pages?")
    first, second = talk.results
    assert "the package index does not answer" in first["notes"][0]
    assert second["status"] == "error"
    assert talk.questions == []


def test_a_failure_is_remembered_and_what_is_known_costs_nothing(
    skill: Path, dependencies: Dependencies, index: LocalIndex
) -> None:
    index.hangs.clear()
    environments = SkillEnvironments(replace(dependencies, mode="install"))
    began = time.perf_counter()
    environment = environments.environment_for(opened(skill))
    first = time.perf_counter() - began
    one = opened(skill)
    began = time.thread_time()
    for _ in range(20):
        assert environments.environment_for(one) == environment
    assert time.thread_time() - began < first
    (skill / "scripts" / "pages.py").write_text("import pypdf, nothing_known, openpyxl\n")
    with pytest.raises(Exception, match="does not exist"):
        environments.environment_for(one)
    asked = len(index.requests)
    with pytest.raises(Exception, match="does not exist"):
        environments.environment_for(one)
    assert len(index.requests) == asked


def test_an_environment_that_was_collected_is_made_again(skill: Path, dependencies: Dependencies) -> None:
    environments = SkillEnvironments(replace(dependencies, mode="install"))
    first = environments.environment_for(opened(skill))
    assert first is not None
    collect(environments.cache, unused_days=0)
    assert not first.folder.exists()
    assert environments.environment_for(opened(skill)) == first
    assert first.folder.exists()


async def test_with_skills_takes_it_too(skill: Path, dependencies: Dependencies, rehearse: Any, chat: Any) -> None:
    run = ("run_script", {"skill": "pdf-pages", "script": "pages.py"})
    server = rehearse(calls(run, "Done."))
    from google.adk.agents import LlmAgent

    agent = LlmAgent(name="assistant", model=server.model(), instruction="Help.")
    talk = await chat(with_skills(agent, [skill.parent], dependencies=replace(dependencies, mode="install")))
    await talk.say("How many pages?")
    assert talk.results[-1]["stdout"] == "pages by 5.0\n"


async def test_a_skill_that_is_asked_for_itself_gets_its_packages_asked_for_in_the_next_call(
    skill: Path, dependencies: Dependencies, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(RUN, RUN, "Done."))
    toolset = SkillToolset.from_dirs(
        [skill.parent], dependencies=dependencies, permissions={"skills": {"pdf-*": "ask"}}
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("How many pages?")
    await talk.answer(True)
    assert "Call the tool again" in talk.results[1]["error"]
    await talk.answer(True)
    assert talk.results[-1]["stdout"] == "pages by 5.0\n"
    assert len(talk.questions) == 2


def test_settings_that_cannot_be_are_said(skill: Path) -> None:
    with pytest.raises(ConfigError, match="dependencies must be 'off', 'locked', 'ask' or 'install'"):
        SkillToolset.from_dirs([skill.parent], dependencies="always")
    with pytest.raises(ConfigError, match="no preset 'offise'"):
        Dependencies(preset="offise")
    with pytest.raises(ConfigError, match="takes a list"):
        Dependencies(indexes="https://pypi.org/simple")  # type: ignore[arg-type]


async def test_a_program_that_is_not_here_is_said_with_the_answer_although_the_script_ends_well(
    make_skill: Callable[..., Path], dependencies: Dependencies, rehearse: Any, chat: Any
) -> None:
    code = "pages=$(no-such-counter x.pdf 2>/dev/null)\necho found ${pages:-0}\n"
    folder = make_skill("counter", files={"scripts/count.sh": code, "scripts/other.sh": "echo fine\n"})
    steps = [
        ("run_skill_script", {"skill_name": "counter", "file_path": f"scripts/{n}.sh"}) for n in ("count", "other")
    ]
    server = rehearse(calls(*steps, "Done."))
    talk = await chat(agent_with(server, SkillToolset.from_dirs([folder.parent], dependencies=dependencies)))
    await talk.say("How many pages?")
    count, other = talk.results
    assert (count["status"], count["stdout"]) == ("success", "found 0\n")
    assert count["notes"] == [
        "This machine does not have 'no-such-counter', which the skill calls: what depends on it is not done."
    ]
    assert "notes" not in other


async def test_a_program_that_is_granted_is_not_called_missing(
    make_skill: Callable[..., Path], dependencies: Dependencies, rehearse: Any, chat: Any, tmp_path: Path
) -> None:
    program = tmp_path / "tools" / "page-counter"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 7\n")
    program.chmod(0o755)
    folder = make_skill("counter", files={"scripts/count.sh": "echo found $(page-counter)\n"})
    server = rehearse(calls(("run_skill_script", {"skill_name": "counter", "file_path": "scripts/count.sh"}), "Done."))
    grants = {"counter": Grant(programs=[program])}
    toolset = SkillToolset.from_dirs([folder.parent], dependencies=dependencies, grants=grants)
    talk = await chat(agent_with(server, toolset))
    await talk.say("How many pages?")
    assert talk.results[0]["stdout"] == "found 7\n"
    assert "notes" not in talk.results[0]


def test_what_was_prepared_from_another_index_is_found_and_never_fetched_from_this_one(
    skill: Path, dependencies: Dependencies, index: LocalIndex
) -> None:
    made = SkillEnvironments(replace(dependencies, mode="install")).environment_for(opened(skill))
    elsewhere = replace(dependencies, mode="locked", indexes=("http://127.0.0.1:9/simple",))
    assert SkillEnvironments(elsewhere).environment_for(opened(skill)) == made
    assert dependencies.cache is not None
    collect(dependencies.cache, unused_days=0)
    with pytest.raises(Exception, match="does not answer"):
        SkillEnvironments(replace(elsewhere, mode="install")).environment_for(opened(skill))


def test_a_preset_is_what_every_script_gets_and_skills_may_need_more(
    skill: Path, make_skill: Callable[..., Path], dependencies: Dependencies, index: LocalIndex, monkeypatch: Any
) -> None:
    index.add("tabulate", "0.9")
    from adk_skills_agent.packages import lock

    monkeypatch.setattr(lock, "preset_requirements", lambda name: ("tabulate==0.9",))
    plain = opened(make_skill("plain", files={"scripts/a.py": "print(1)\n"}))
    preset = replace(dependencies, mode="install", preset="office")
    environments = SkillEnvironments(preset)
    shared, more = environments.environment_for(plain), environments.environment_for(opened(skill))
    assert shared is not None
    assert more is not None
    assert (shared.site / "tabulate.py").exists()
    assert not (shared.site / "pypdf.py").exists()
    assert (more.site / "tabulate.py").exists()
    assert (more.site / "pypdf.py").exists()
    other = opened(make_skill("table", files={"scripts/a.py": "import tabulate\n"}))
    assert environments.environment_for(other) == shared
    assert SkillEnvironments(replace(preset, mode="locked")).environment_for(plain) == shared


def test_row_319_the_question_names_every_package() -> None:
    """Seen: the forty-first and later ones were "1 more", and a yes installed them."""
    packages = tuple(LockedPackage(f"p{number:03}", "1.0", ("a" * 64,)) for number in range(60))
    name = "-".join(["name"] * 13)[:64]  # as long as a name may be: two that differ at the end are told apart
    text = question(name, Lock(packages))
    assert f"'{name}'" in text
    assert "p039==1.0 (sha256 aaaaaaaa...), and p040==1.0, " in text
    assert all(f"{one.name}==1.0" in text for one in packages)
