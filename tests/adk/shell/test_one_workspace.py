"""Conformance of places to work in: the same conversations wherever the shell, the files and the scripts are.

Each row is a conversation through a real Runner. It holds for our sandbox at every level of this machine, for
containers, pods and other services' machines, and for google-adk's environments (issue part F, "How good").
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.adk.environment import ExecutionResult, LocalEnvironment
from google.adk.runners import InMemoryRunner
from google.genai import types
from tool_calls import agent_with, many_calls

import container_engines
import level_table
from adk_skills_agent import SandboxPolicy, Secret, ShellSettings, SkillToolset
from adk_skills_agent.executors import SandboxEnvironment, remote_sandbox
from remote_services import ElsewhereEnvironment

LOAD = ("load_skill", {"skill_name": "counter"})


def sh(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "execute", {"command": command, **more}


def script(path: str) -> tuple[str, dict[str, Any]]:
    return "run_skill_script", {"skill_name": "counter", "file_path": "scripts/count.py", "args": [path]}


def wrote(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


def read(path: str) -> tuple[str, dict[str, Any]]:
    return "read_file", {"path": path}


@dataclass(frozen=True)
class Place:
    """Where an agent works. ``settings`` makes what a toolset gets, anew after a restart, over the same folder."""

    name: str
    settings: Callable[[Path], dict[str, Any]]
    require: Callable[[], object] = lambda: None
    is_environment: bool = False

    def toolset(self, skills: Path, folder: Path) -> SkillToolset:
        shell = ShellSettings() if self.is_environment else ShellSettings(keep_in=folder / "kept")
        return SkillToolset.from_dirs([skills], shell=shell, **self.settings(folder))


def _level(name: str, maker: str = "auto") -> Callable[[Path], dict[str, Any]]:
    return lambda _: {"policy": SandboxPolicy(isolation=name, min_isolation=name, maker=maker)}


def _container(engine: str) -> Any:
    from adk_skills_agent.sandbox.container import ContainerSandbox

    found = container_engines.shared(engine)
    return ContainerSandbox(found.image, base_url=found.url)


@functools.cache
def _cluster() -> Any:
    from loopback_cluster import Cluster

    made = Cluster()
    atexit.register(made.close)
    return made


def _service(folder: Path) -> dict[str, Any]:
    (folder / "service").mkdir(exist_ok=True)
    return {"sandbox": remote_sandbox(ElsewhereEnvironment(folder / "service"))}


def _google(folder: Path) -> dict[str, Any]:
    (folder / "here").mkdir(exist_ok=True)
    return {"environment": LocalEnvironment(working_dir=folder / "here")}


def _elsewhere(folder: Path) -> dict[str, Any]:
    (folder / "there").mkdir(exist_ok=True)
    return {"environment": ElsewhereEnvironment(folder / "there")}


def _ours(folder: Path, **more: Any) -> dict[str, Any]:
    return {"environment": SandboxEnvironment(workspace=folder / "workspace", **more)}


_needs = functools.partial(functools.partial, level_table.require)
PLACES = (
    Place("namespaces", _level("namespaces"), _needs("namespaces")),
    Place("environment of google-adk", _google, is_environment=True),
)
SLOW = (
    Place("landlock", _level("landlock"), _needs("landlock")),
    Place("environment of ours", _ours, is_environment=True),
    Place("namespaces by bubblewrap", _level("namespaces", "bubblewrap"), _needs("namespaces")),
    Place("process", _level("process"), _needs("process")),
    Place("environment of a service", _elsewhere, is_environment=True),
    *(
        Place(
            f"container of {engine}",
            lambda _, engine=engine: {"sandbox": _container(engine)},  # type: ignore[misc]
            functools.partial(container_engines.require, engine),
        )
        for engine in container_engines.ENGINES
    ),
    Place(
        "environment in a container",
        lambda folder: _ours(folder, sandbox=_container("podman")),
        functools.partial(container_engines.require, "podman"),
        is_environment=True,
    ),
    Place("kubernetes", lambda _: {"sandbox": _cluster().sandbox()}, _needs("namespaces")),
    Place("remote", _service),
)


@pytest.fixture(
    params=[
        *(pytest.param(place, id=place.name) for place in PLACES),
        *(pytest.param(place, id=place.name, marks=pytest.mark.slow) for place in SLOW),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.param
    chosen.require()
    return chosen


async def test_what_one_tool_writes_every_other_one_finds(
    place: Place, counter: Path, calls: Any, tmp_path: Path
) -> None:
    toolset = place.toolset(counter, tmp_path)
    answers = await calls(
        toolset,
        LOAD,
        wrote("in/text.txt", "one two three"),
        script("in/text.txt"),
        sh("cat out.txt in/text.txt && echo more >> in/text.txt"),
        read("in/text.txt"),
        ("edit_file", {"path": "in/text.txt", "old_string": "two", "new_string": "2 and a half"}),
        script("in/text.txt"),
        sh("python3 -c \"print(open('data/words.txt').read())\""),
        sh("rm in/text.txt"),
        read("in/text.txt"),
        script("in/text.txt"),
    )
    assert answers[1] == {"status": "ok", "message": "Wrote 13 bytes to in/text.txt."}
    assert answers[2]["stdout"] == "3\n", answers[2]
    assert answers[3]["stdout"] == "from the scriptone two three"
    assert answers[4] == {"status": "ok", "content": "     1\tone two threemore\n"}
    assert answers[5] == {"status": "ok", "message": "Edited in/text.txt at line 1."}
    assert answers[6]["stdout"] == "6\n"
    assert answers[7]["status"] == "error"  # a skill's files are at its own path, not in the working directory
    assert answers[9]["error_code"] == "RESOURCE_NOT_FOUND", answers[9]
    assert "FileNotFoundError" in answers[10]["error"], answers[10]
    await toolset.close()


async def test_names_modes_and_bytes_stay_as_they_are(place: Place, counter: Path, calls: Any, tmp_path: Path) -> None:
    toolset = place.toolset(counter, tmp_path)
    answers = await calls(
        toolset,
        LOAD,
        wrote("grün und 🙂/ein name.txt", "ä\n"),
        wrote("go.sh", "#!/bin/sh\necho went $1\n"),
        sh("chmod +x go.sh; mkdir -p d/e; echo d > d/e/file; head -c 300 /dev/urandom > bytes && sha256sum < bytes"),
        sh("./go.sh one && sha256sum < bytes && cat grün*/*.txt d/e/file"),
        read("bytes"),
        script("grün und 🙂/ein name.txt"),
    )
    digest = answers[3]["stdout"]
    assert answers[4]["stdout"] == f"went one\n{digest}ä\nd\n", answers[4]
    assert answers[5]["error_code"] == "BINARY_FILE"
    assert answers[6]["stdout"] == "1\n", answers[6]
    await toolset.close()


async def test_what_fails_or_takes_too_long_loses_no_file(
    place: Place, counter: Path, calls: Any, tmp_path: Path
) -> None:
    toolset = place.toolset(counter, tmp_path)
    answers = await calls(
        toolset,
        LOAD,
        wrote("a.txt", "a"),
        sh("echo b > b.txt; exit 3"),
        sh("echo c > c.txt; sleep 30", timeout=1.5),
        script("missing.txt"),
        sh("cat a.txt b.txt c.txt"),
        sh("no-such-program"),
    )
    assert (answers[2]["status"], answers[2]["exit_code"]) == ("error", 3)
    assert answers[3]["timed_out"] is True, answers[3]
    assert "1.5s" in answers[3]["error"], answers[3]
    assert answers[5]["stdout"] == "ab\nc\n", answers[5]
    assert answers[6]["exit_code"] == 127
    await toolset.close()


async def test_a_session_goes_on_after_a_restart_of_the_agent(
    place: Place, counter: Path, rehearse: Any, ask: Any, tmp_path: Path
) -> None:
    """The runner's session lives on, as in a database; the agent, its toolset and its sandbox are new."""
    server = rehearse(
        many_calls(LOAD, wrote("draft.txt", "one two"), sh("echo kept > by-shell.txt"), script("draft.txt"))
        + many_calls(sh("cat draft.txt by-shell.txt out.txt"), read("draft.txt"), script("by-shell.txt")).removeprefix(
            "turns:"
        )
    )
    first = place.toolset(counter, tmp_path)
    before = await ask(agent_with(server, first), "go")
    await first.close()
    second = place.toolset(counter, tmp_path)
    before.runner.agent = agent_with(server, second)
    after = await ask(before.runner.agent, "go on", session_of=before)
    answers = [answer for _, answer in after.results]
    assert answers[0]["stdout"] == "one twokept\nfrom the script", answers[0]
    assert answers[1]["content"] == "     1\tone two"
    assert answers[2]["stdout"] == "1\n", answers[2]
    await second.close()


async def test_results_become_artifacts_and_an_attached_file_is_there_at_once(
    place: Place, counter: Path, rehearse: Any, ask: Any, tmp_path: Path
) -> None:
    toolset = place.toolset(counter, tmp_path)
    words = types.Part(inline_data=types.Blob(data=b"one two", mime_type="text/plain", display_name="notes.txt"))
    conversation = many_calls(LOAD, script("uploads/notes.txt"), sh("mkdir -p o && cat uploads/*.txt > o/chart.svg"))
    agent = agent_with(rehearse(conversation), toolset)
    runner = InMemoryRunner(agent=agent, app_name="tests")
    session = await runner.session_service.create_session(app_name="tests", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text="Count."), words])
    events = [event async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message)]
    _, counted, drawn = (each.response for event in events for each in event.get_function_responses())
    await runner.close()
    if place.is_environment:
        assert "uploads/notes.txt" in str(counted["error"])  # an environment's files are its owner's
        return
    assert counted["stdout"] == "2\n", counted
    assert counted["saved_artifacts"] == ["out.txt"]
    assert drawn["saved_artifacts"] == ["o/chart.svg"]  # what is new, and no upload


async def test_two_sessions_see_nothing_of_each_other(place: Place, counter: Path, calls: Any, tmp_path: Path) -> None:
    if place.is_environment:
        pytest.skip("an environment is one workspace, whoever works in it")
    toolset = place.toolset(counter, tmp_path)
    await calls(toolset, LOAD, wrote("mine.txt", "secret"), sh("echo secret > /tmp/mine; echo secret > other.txt"))
    answers = await calls(toolset, LOAD, sh("ls -A . /tmp"), read("mine.txt"), script("mine.txt"))
    assert "mine" not in str(answers[1].get("stdout"))
    assert "other" not in str(answers[1].get("stdout"))
    assert answers[2]["error_code"] == "RESOURCE_NOT_FOUND"
    assert "FileNotFoundError" in answers[3]["error"]
    await toolset.close()


async def test_the_error_of_an_environment_is_cut_after_its_secrets_are_out(
    counter: Path, tmp_path: Path, calls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: the cut at 120 characters went through a key, and half of it was told."""

    class Failing(ElsewhereEnvironment):
        async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
            raise RuntimeError("x" * 110 + "sk-weather-123456")

        async def read_file(self, path: str | Path) -> bytes:
            raise RuntimeError("x" * 110 + "sk-weather-123456")

    environment = Failing(tmp_path / "there")
    grants = {"counter": {"WEATHER_KEY": Secret("sk-weather-123456")}}
    toolset = SkillToolset.from_dirs([counter], shell=True, environment=environment, grants=grants)
    answers = await calls(toolset, ("execute", {"command": "ls"}), ("read_file", {"path": "a.txt"}))
    for answer in answers:
        assert "[secret WEATHER_KEY]" in answer["error"], answer
        assert "sk-w" not in answer["error"]
    await toolset.close()
    assert "xxx" in caplog.text
    assert "sk-w" not in caplog.text
