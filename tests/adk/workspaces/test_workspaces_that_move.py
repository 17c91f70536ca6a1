"""A conversation whose requests reach different servers: real Runners, real processes, one store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.artifacts import InMemoryArtifactService
from google.adk.artifacts.file_artifact_service import FileArtifactService
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

import preloaded
from adk_skills_agent import (
    ConfigError,
    SandboxPolicy,
    Secret,
    ShellSettings,
    ShellToolset,
    SkillToolset,
    WorkspaceStore,
    WorkspaceStored,
    with_skills,
)
from adk_skills_agent.adk.running.workspace_stores import ArtifactObjects, _scope
from adk_skills_agent.scripts.workspaces import SessionWorkspaces

PROCESS = SandboxPolicy(min_isolation="process")
ADDS = """
import json, os, pathlib, sys
line = sys.argv[1] if len(sys.argv) > 1 else ""
log = pathlib.Path("log.txt")
if line:
    log.write_text((log.read_text() if log.exists() else "") + line + "\\n")
if line == "secret":
    pathlib.Path("token.txt").write_text(os.environ["TOKEN"])
kept = [p for p in sorted(pathlib.Path(".").rglob("*.*")) if p.suffix in (".txt", ".csv")]
here = {str(p): p.read_text() for p in kept}
print(json.dumps(here))
"""

SERVER = """
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from adk_skills_agent import SandboxPolicy, SkillToolset

skills, store, database, question = sys.argv[1:]

async def main():
    toolset = SkillToolset.from_dirs([skills], policy=SandboxPolicy(min_isolation="process"), workspace_store=store)
    agent = LlmAgent(name="assistant", model="gemini-2.5-flash", tools=[toolset])
    sessions = SqliteSessionService(database)
    runner = Runner(app_name="tests", agent=agent, session_service=sessions)
    known = {"app_name": "tests", "user_id": "ada", "session_id": "s"}
    if await sessions.get_session(**known) is None:
        await sessions.create_session(**known)
    message = types.Content(role="user", parts=[types.Part(text=question)])
    async for event in runner.run_async(user_id="ada", session_id="s", new_message=message):
        for response in event.get_function_responses():
            print(json.dumps(response.response))
    await runner.close()

asyncio.run(main())
"""


def step(line: str = "") -> str:
    args = json.dumps([line] if line else [])
    call = f"{{skill_name: notes, file_path: scripts/add.py, args: {args}}}"
    return f"  - call: {{name: run_skill_script, args: {call}, undeclared: true}}\n  - text: done\n"


def steps(*lines: str) -> str:
    return "turns:\n" + "".join(step(line) for line in lines)


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    return make_skill("notes", files={"scripts/add.py": ADDS}).parent


class OneServer:
    """A server in this process with folders and memory of its own; its sessions are in a database of all servers."""

    def __init__(self, toolset: Any, model: Any, sessions: Any, artifacts: Any = None) -> None:
        self.workspaces = SessionWorkspaces()
        self.toolset = toolset
        self.session = f"s{id(sessions)}"
        agent = LlmAgent(name="assistant", model=model, tools=[toolset] if not isinstance(toolset, LlmAgent) else [])
        agent = toolset.clone(update={"model": model}) if isinstance(toolset, LlmAgent) else agent
        self.runner = Runner(app_name="tests", agent=agent, session_service=sessions, artifact_service=artifacts)

    async def send(self, monkeypatch: pytest.MonkeyPatch, *parts: types.Part) -> dict[str, Any]:
        sessions = self.runner.session_service
        known: dict[str, Any] = {"app_name": "tests", "user_id": "ada", "session_id": self.session}
        if await sessions.get_session(**known) is None:
            await sessions.create_session(**known)
        message = types.Content(role="user", parts=[types.Part(text="go"), *parts])
        found: dict[str, Any] = {}
        with monkeypatch.context() as patch:
            # The workspaces of a process are one set; two servers in one process need one each.
            patch.setattr("adk_skills_agent.adk.running.runner.SHARED_WORKSPACES", self.workspaces)
            async for event in self.runner.run_async(user_id="ada", session_id=self.session, new_message=message):
                for response in event.get_function_responses():
                    found = dict(response.response or {})
        return found


@pytest.fixture
async def servers(skills: Path, rehearse: Any, tmp_path: Path) -> AsyncIterator[Callable[..., list[OneServer]]]:
    made: list[OneServer] = []

    def make(conversation: str, count: int = 2, artifacts: Any = None, **settings: Any) -> list[OneServer]:
        model, sessions = rehearse(conversation).model(), InMemorySessionService()
        settings = {"policy": PROCESS, "workspace_store": tmp_path / "store"} | settings
        made.extend(
            OneServer(SkillToolset.from_dirs([skills], **settings), model, sessions, artifacts) for _ in range(count)
        )
        return made

    yield make
    for server in made:
        await server.runner.close()
        server.workspaces.close(server.toolset)


def listed(answer: dict[str, Any]) -> dict[str, str]:
    return dict(json.loads(str(answer["stdout"])))


def test_a_conversation_goes_on_in_another_process(skills: Path, rehearse: Any, tmp_path: Path) -> None:
    server = rehearse(steps("one", "two", "three"))
    answers = []
    for question in ("first", "second", "third"):
        done = subprocess.run(
            [
                preloaded.program("python"),
                "-c",
                SERVER,
                str(skills),
                str(tmp_path / "store"),
                str(tmp_path / "db"),
                question,
            ],
            capture_output=True,
            text=True,
            env={**os.environ, **server.environment()},
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    assert listed(answers[-1]) == {"log.txt": "one\ntwo\nthree\n"}
    assert all("notes" not in answer for answer in answers)


async def test_two_servers_take_turns_and_events_tell_what_was_moved(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    one, two = servers(steps("a", "b", "c", ""), on_event=seen.append)
    await one.send(monkeypatch)
    await two.send(monkeypatch)
    await one.send(monkeypatch)
    assert listed(await two.send(monkeypatch)) == {"log.txt": "a\nb\nc\n"}
    stored = [event for event in seen if isinstance(event, WorkspaceStored)]
    assert [event.action for event in stored] == ["saved", "fetched", "saved", "fetched", "saved", "fetched"]
    assert stored[1].origin.user == "ada"
    assert stored[1].bytes == 2


async def test_a_file_of_the_user_is_copied_once_for_all_servers(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = servers(steps("", "", ""))
    attached = types.Part(inline_data=types.Blob(data=b"1,2", mime_type="text/csv", display_name="data.csv"))
    assert listed(await one.send(monkeypatch, attached)) == {"uploads/data.csv": "1,2"}
    monkeypatch.setattr("adk_skills_agent.adk.runtime_toolset.SHARED_UPLOADS", type(_uploads())())
    assert listed(await two.send(monkeypatch)) == {"uploads/data.csv": "1,2"}
    assert listed(await one.send(monkeypatch)) == {"uploads/data.csv": "1,2"}


def _uploads() -> Any:
    from adk_skills_agent.adk.running.uploads import SHARED_UPLOADS

    return SHARED_UPLOADS


async def test_row_115_no_secret_reaches_the_store_and_it_is_said(
    servers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []
    secret = "hunter2-hunter2-hunter2"
    one, two = servers(steps("secret", "", ""), env={"TOKEN": Secret(secret)}, on_event=seen.append)
    answer = await one.send(monkeypatch)  # the sandbox keeps nothing of a run that holds one
    assert "token.txt" in answer["skipped_artifacts"]
    attached = types.Part(inline_data=types.Blob(data=secret.encode(), mime_type="text/csv", display_name="a.csv"))
    await one.send(monkeypatch, attached)
    assert [event.action for event in seen if isinstance(event, WorkspaceStored) and event.problem] == ["withheld"]
    monkeypatch.setattr("adk_skills_agent.adk.runtime_toolset.SHARED_UPLOADS", type(_uploads())())
    assert listed(await two.send(monkeypatch)) == {"log.txt": "secret\n"}
    kept = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"hunter2" in data for data in kept)


async def test_a_session_at_work_elsewhere_is_an_answer_for_the_model(
    servers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = WorkspaceStore(tmp_path / "store", lease_seconds=30, wait_seconds=0.2)
    seen: list[Any] = []
    one, two = servers(steps("a", "b"), workspace_store=store, on_event=seen.append)
    await one.send(monkeypatch)
    log = next(iter(store.logs()))
    newest = log.entry(log.numbers()[-1])
    assert newest is not None
    from adk_skills_agent.scripts.workspace_store import new_entry

    assert log.create(new_entry(newest.id, newest.number, "claim", newest.base, "x", newest.owner))
    answer = await two.send(monkeypatch)
    assert answer["error_code"] == "WORKSPACE_UNAVAILABLE"
    assert "nothing was started" in answer["error"]
    assert str(tmp_path) not in json.dumps(answer)
    assert [event.action for event in seen if isinstance(event, WorkspaceStored)][-1] == "busy"


async def test_a_store_that_cannot_be_used_is_a_sentence_in_the_log_for_every_tool(
    rehearse: Any, ask: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen of ``execute``: the sentence, and 70 lines of traceback below "the sandbox failed" at each call."""
    (tmp_path / "store").write_text("a file")
    server = rehearse("turns: [{call: {name: execute, args: {command: ls}}}, {text: done}]")
    tools = [ShellToolset(workspace_store=tmp_path / "store")]
    answered = await ask(LlmAgent(name="a", model=server.model(), tools=tools), "go")
    assert answered.results[0][1]["error_code"] == "WORKSPACE_UNAVAILABLE"
    logged = [record for record in caplog.records if record.name.startswith("adk_skills_agent")]
    assert any("Check that the folder is there" in record.getMessage() for record in logged)
    assert not any("Traceback" in record.getMessage() or record.exc_info for record in logged)


@pytest.mark.parametrize(
    "kind", ["runner", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("memory", "files"))]
)
async def test_artifact_services_of_google_adk_are_stores(
    kind: str, servers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service: Any = FileArtifactService(tmp_path / "artifacts") if kind == "files" else InMemoryArtifactService()
    setting = "artifacts" if kind == "runner" else service
    one, two = servers(steps(*"abcdef", ""), workspace_store=setting, artifacts=service)
    for _ in range(3):
        await one.send(monkeypatch)
        await two.send(monkeypatch)
    assert listed(await one.send(monkeypatch)) == {"log.txt": "a\nb\nc\nd\ne\nf\n"}
    # No session of a user lists them.
    assert await service.list_artifact_keys(app_name="tests", user_id="ada", session_id=one.session) == ["log.txt"]


@pytest.mark.parametrize("kind", ["files", "memory"])
async def test_row_306_no_client_can_name_the_files_of_sessions_as_artifacts(kind: str, tmp_path: Path) -> None:
    """Seen: ``adk api_server`` gave the files of all sessions, as those of the user ``sessions`` of another app.

    A client names app, user and session without a slash, and a file with some.
    """
    service: Any = FileArtifactService(tmp_path / "artifacts") if kind == "files" else InMemoryArtifactService()
    store = ArtifactObjects(service)
    name = f"{'0' * 32}/blobs/content.1"
    await asyncio.to_thread(store.write, name, b"private")
    await asyncio.to_thread(store.create, f"{'0' * 32}/log/000000000001", b"entry")
    assert await asyncio.to_thread(store.read, name) == b"private"
    assert await asyncio.to_thread(store.names, f"{'0' * 32}/blobs") == {"content.1": 0}
    assert await asyncio.to_thread(store.folders) == ["0" * 32]
    scope, filename = _scope(name)
    parts = [scope["app_name"], *scope["user_id"].split("/"), scope["session_id"], filename]
    words = dict.fromkeys([*parts, "user", "users", "sessions", "artifacts"])
    for user, session in itertools.product(words, repeat=2):
        with contextlib.suppress(InputValidationError):
            assert not await service.list_artifact_keys(app_name=parts[0], user_id=user, session_id=session)
        for first in range(1, len(parts)):
            with contextlib.suppress(InputValidationError):
                named = {"app_name": parts[0], "user_id": user, "session_id": session}
                assert await service.load_artifact(**named, filename="/".join(parts[first:])) is None


@pytest.mark.parametrize("kind", ["files", "memory"])
async def test_row_480_a_session_does_not_list_those_of_others(kind: str, tmp_path: Path) -> None:
    """Seen: with 30,000 sessions in the store a call took 18 s."""
    service: Any = FileArtifactService(tmp_path / "artifacts") if kind == "files" else InMemoryArtifactService()
    store = ArtifactObjects(service)
    names = [f"{number:032d}" for number in range(5)]
    listed: list[str] = []
    real = service.list_artifact_keys

    async def listing(**scope: Any) -> list[str]:
        found: list[str] = await real(**scope)
        listed.extend(found)
        return found

    object.__setattr__(service, "list_artifact_keys", listing)
    for name in names:
        assert await asyncio.to_thread(store.create, f"{name}/log/000000000001", b"entry")
    assert listed == []
    assert await asyncio.to_thread(store.names, f"{names[0]}/log") == {"000000000001": 0}
    assert len(listed) == 1
    assert await asyncio.to_thread(store.folders) == names
    await asyncio.to_thread(store.delete, [f"{names[0]}/log/000000000001"])
    assert await asyncio.to_thread(store.folders) == names[1:]


async def test_artifacts_without_a_service_are_an_error_that_says_so(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server,) = servers(steps("a"), count=1, workspace_store="artifacts")
    assert "needs a Runner with an artifact service" in (await server.send(monkeypatch))["error"]


async def test_with_skills_takes_a_store_too(
    skills: Path, rehearse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = "{name: run_script, args: {skill: notes, script: scripts/add.py, args: [x]}, undeclared: true}"
    model = rehearse(f"turns:\n  - call: {call}\n  - text: done\n  - call: {call}\n  - text: done\n").model()
    sessions, servers = InMemorySessionService(), []
    for _ in range(2):
        agent = with_skills(
            LlmAgent(name="assistant", model=model), [skills], policy=PROCESS, workspace_store=str(tmp_path / "store")
        )
        servers.append(OneServer(agent, model, sessions))
    await servers[0].send(monkeypatch)
    assert listed(await servers[1].send(monkeypatch)) == {"log.txt": "x\nx\n"}
    for server in servers:
        await server.runner.close()


async def test_files_of_the_shell_move_too(rehearse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = """
turns:
  - call: {name: write_file, args: {path: a.txt, content: "one\\n"}, undeclared: true}
  - text: done
  - call: {name: edit_file, args: {path: a.txt, old_string: one, new_string: two}, undeclared: true}
  - text: done
  - call: {name: execute, args: {command: 'cat a.txt > b.txt; mkdir d; echo 3 > d/c.txt'}, undeclared: true}
  - text: done
  - call: {name: read_file, args: {path: d/c.txt}, undeclared: true}
  - text: done
  - call: {name: execute, args: {command: 'cat b.txt; ls'}, undeclared: true}
  - text: done
"""
    model, sessions = rehearse(conversation).model(), InMemorySessionService()
    servers = [
        OneServer(ShellToolset(policy=PROCESS, workspace_store=tmp_path / "store"), model, sessions) for _ in range(2)
    ]
    answers = [await servers[number % 2].send(monkeypatch) for number in range(5)]
    assert "3" in answers[3]["content"]
    assert answers[4]["stdout"].split() == ["two", "a.txt", "b.txt", "d"]
    for server in servers:
        await server.runner.close()


async def test_two_agents_of_one_session_share_the_store(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = servers(steps(*"ab"))
    two.workspaces = one.workspaces  # one server with two toolsets
    await one.send(monkeypatch)
    assert listed(await two.send(monkeypatch)) == {"log.txt": "a\nb\n"}


def test_settings_that_exclude_each_other_are_refused(skills: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="so does the shell's keep_in"):
        SkillToolset.from_dirs([skills], workspace_store=tmp_path, shell=ShellSettings(keep_in=tmp_path))
    with pytest.raises(ConfigError, match="workspace_store must be a folder"):
        SkillToolset.from_dirs([skills], workspace_store=7)
    with pytest.raises(ConfigError, match="did you mean 'artifacts'"):
        SkillToolset.from_dirs([skills], workspace_store="artifact")


async def test_a_yaml_agent_names_a_store(skills: Path, tmp_path: Path) -> None:
    from google.adk.tools.tool_configs import ToolArgsConfig

    def made(store: object) -> str:
        config = ToolArgsConfig.model_validate({"dirs": [str(skills)], "workspace_store": store})
        toolset = SkillToolset.from_config(config, str(tmp_path / "agent.yaml"))
        return repr(toolset.runtime.workspace_stores._store)  # type: ignore[union-attr]

    assert made("sessions") == f"WorkspaceStore('{tmp_path}/sessions')"
    assert made("memory://x") == "WorkspaceStore('memory://x')"
    os.environ["MY_STORE_KEY"] = "ab" * 32
    try:
        found = made({"url": "sessions", "key": {"secret": "MY_STORE_KEY"}, "lease_seconds": 5})
    finally:
        del os.environ["MY_STORE_KEY"]
    assert found == f"WorkspaceStore('{tmp_path}/sessions', encrypted)"
    with pytest.raises(ConfigError, match="did you mean 'artifacts'"):
        made("artefacts")
    with pytest.raises(ConfigError, match="there is no 'speed'"):
        made({"url": "sessions", "speed": 3})


async def test_a_yaml_agent_names_a_store_of_environments(
    skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.adk.tools.tool_configs import ToolArgsConfig

    monkeypatch.setenv("MY_STORE_KEY", "ab" * 32)
    own = {"mode": "locked", "store": "environments", "store_key": {"secret": "MY_STORE_KEY"}}
    config = ToolArgsConfig.model_validate({"dirs": [str(skills)], "dependencies": own})
    toolset = SkillToolset.from_config(config, str(tmp_path / "agent.yaml"))
    packages = toolset.runtime.settings.packages
    assert packages is not None
    assert packages.dependencies.store == f"{tmp_path}/environments"
    assert packages.dependencies.store_key == Secret("ab" * 32)


def test_a_toolset_without_a_store_imports_nothing_of_it(skills: Path) -> None:
    program = (
        "import sys\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'adk_skills_agent']:\n"
        "    del sys.modules[name]\n"  # google-adk alone has been imported before
        "import warnings; warnings.simplefilter('ignore'); from adk_skills_agent import SkillToolset; "
        f"SkillToolset.from_dirs([{str(skills)!r}]); "
        "print([name for name in sys.modules if 'stored_workspace' in name or name == 'adk_skills_agent.storage'])"
    )
    done = subprocess.run([preloaded.program("python"), "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_job_brings_its_files_to_all_servers(
    rehearse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = """
turns:
  - call: {name: execute, args: {command: 'echo 1 > job.txt', background: true}, undeclared: true}
  - call: {name: job_output, args: {id: job-1, wait: 30}, undeclared: true}
  - text: done
  - call: {name: execute, args: {command: 'cat job.txt'}, undeclared: true}
  - text: done
"""
    model, sessions = rehearse(conversation).model(), InMemorySessionService()
    servers = [
        OneServer(ShellToolset(policy=PROCESS, workspace_store=tmp_path / "store"), model, sessions) for _ in range(2)
    ]
    monkeypatch.setattr("adk_skills_agent.adk.running.runner.SHARED_WORKSPACES", servers[0].workspaces)
    assert (await servers[0].send(monkeypatch))["status"] == "ok"
    assert (await servers[1].send(monkeypatch))["stdout"] == "1\n"
    await asyncio.gather(*(server.runner.close() for server in servers))
