"""``adk-skills init`` makes a project that runs under google-adk's own commands at once; YAML agents, the plugin."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from adk_commands import adk, serving, texts
from google.adk.agents.config_agent_utils import from_config

import preloaded
from adk_skills_agent import SkillDropped, SkillToolset
from adk_skills_agent.adk import yaml_config
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.testing import GeminiServer

Model = Callable[..., GeminiServer]
PROGRAM = preloaded.program("adk-skills")

COUNTS = """
name: counts
turns:
  - when: {user_contains: most frequent, tools: [load_skill, run_skill_script]}
    call: {name: load_skill, args: {skill_name: word-count}}
  - when: {last_tool: load_skill, system_contains: word_count}
    call:
      name: run_skill_script
      args: {skill_name: word-count, file_path: scripts/word_count.py, args: ["--top", "1", "SKILL"]}
  - when: {last_tool: run_skill_script}
    text: There is no such file.
"""


def init(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "init", *arguments], capture_output=True, text=True, check=False, cwd=folder, env=dict(os.environ)
    )


def test_the_project_answers_in_adk_run_and_shows_its_tool_calls(model: Model, tmp_path: Path) -> None:
    made = init(tmp_path, "my_agent")
    assert made.returncode == 0, made.stderr
    assert "adk web ." in made.stdout
    server = model(COUNTS)
    question = "What is the most frequent word?"
    done = adk(server, "run", "my_agent", question, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "There is no such file." in done.stdout
    server.assert_finished()
    said = done.stderr.splitlines()
    calls = [line for line in said if line.startswith("→")]
    ends = [line for line in said if line.startswith("←")]
    assert calls[0] == "→ load_skill(skill_name='word-count')"
    assert calls[1].startswith("→ run_skill_script(")
    assert len(ends) == 2
    assert "load_skill" in ends[0]
    assert "Cannot read SKILL" in ends[1]


@pytest.mark.parametrize("kind", [(), ("--yaml",)])
def test_the_project_runs_under_adks_server_at_once(model: Model, tmp_path: Path, kind: tuple[str, ...]) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    made = init(agents, "my_agent", "--model", "gemini-2.5-pro", *kind)
    assert made.returncode == 0, made.stderr
    server = model(COUNTS)
    with serving(server, "api_server", agents) as served:
        assert served.call("/list-apps") == ["my_agent"]
        events = served.ask("my_agent", "What is the most frequent word?")
    assert texts(events)[-1] == "There is no such file."
    assert server.requests[0].model == "gemini-2.5-pro"
    server.assert_finished()


FAILS = """
turns:
  - error: {code: 400, times: 9}
    text: never
"""


def test_adk_run_shows_an_error_of_the_model_once_and_goes_on(model: Model, tmp_path: Path) -> None:
    assert init(tmp_path, "my_agent").returncode == 0
    done = adk(model(FAILS), "run", "my_agent", stdin="Hello?\nAgain?\nexit\n", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("This error was rehearsed") == 2  # once for each question
    assert "Traceback" not in done.stderr


def test_adk_web_shows_an_error_of_the_model_once(model: Model, tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    assert init(agents, "my_agent").returncode == 0
    message = {"role": "user", "parts": [{"text": "Hello?"}]}
    with serving(model(FAILS), "web", agents) as served:
        served.call("/apps/my_agent/users/user/sessions/s1", {})
        asked = {"appName": "my_agent", "userId": "user", "sessionId": "s1", "newMessage": message}
        request = urllib.request.Request(
            served.url + "/run_sse", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            stream = answer.read().decode()
    told = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]
    assert [event.get("errorCode") for event in told] == ["INVALID_ARGUMENT"]
    assert stream.count("This error was rehearsed") == 1


def test_what_the_project_holds_is_valid_and_says_what_to_install(tmp_path: Path) -> None:
    assert init(tmp_path, "desk", "--skill", "my-skill").returncode == 0
    project = tmp_path / "desk"
    assert sorted(path.name for path in project.iterdir()) == [
        ".env",
        ".gitignore",
        "__init__.py",
        "agent.py",
        "requirements.txt",
        "skills",
    ]
    assert "adk-skills-runtime" in (project / "requirements.txt").read_text().split()
    assert ".env" in (project / ".gitignore").read_text().split()
    checked = subprocess.run([PROGRAM, "validate", project / "skills" / "my-skill"], capture_output=True, check=False)
    assert checked.returncode == 0
    checks = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=skip"]
    typed = subprocess.run([*checks, project / "agent.py"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert typed.returncode == 0, typed.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("my-agent",),
            "'my-agent' cannot be an agent's name: use letters, digits and underscores. Did you mean 'my_agent'?",
        ),
        (("class",), "'class' cannot be an agent's name"),
        (("user",), "'user' cannot be an agent's name"),
        (("there",), "there exists already. Choose another name or remove it."),
        (("good", "--skill", "Bad Skill"), "Cannot create skill 'Bad Skill'"),
    ],
)
def test_what_cannot_be_made_is_said_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "there").mkdir()
    made = init(tmp_path, *arguments)
    assert made.returncode == 2
    assert sentence in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


# YAML agents

# google-adk's loader uses a class of its own that it has deprecated.
of_google_adk = pytest.mark.filterwarnings("ignore:LlmAgentConfig is deprecated")


@pytest.fixture
def yaml_agent(make_skill: Callable[..., Path], tmp_path: Path) -> Callable[[str], Path]:
    """Write a YAML agent beside a folder of skills, with these lines under ``args``."""
    make_skill("weather", root=tmp_path / "agent" / "skills")

    def write(args: str) -> Path:
        file = tmp_path / "agent" / "root_agent.yaml"
        lines = "\n".join(f"      {line}" for line in args.strip().splitlines())
        file.write_text(
            "name: helper\nmodel: gemini-2.5-flash\ninstruction: Help.\n"
            f"tools:\n  - name: adk_skills_agent.SkillToolset\n    args:\n{lines}\n"
        )
        return file

    return write


@of_google_adk
def test_a_yaml_agent_has_the_settings_it_writes(
    yaml_agent: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("WEATHER_KEY", "hunter2-hunter2")
    (tmp_path / "agent" / "rules.yaml").write_text("skills: {weather: ask}\n")
    file = yaml_agent(
        """
dirs: [skills]
policy: {wall_seconds: 5, network: none}
permissions: rules.yaml
grants:
  weather: {hosts: [api.example.org], env: {KEY: {secret: WEATHER_KEY}}}
env: {UNITS: metric}
limits: {misses: 3}
shell: true
discovery_mode: search
audit_log: audit.jsonl
tool_name_prefix: my
"""
    )
    agent = from_config(str(file))
    (toolset,) = agent.tools
    assert isinstance(toolset, SkillToolset)
    runtime = toolset.runtime
    assert list(runtime.source) == ["weather"]
    assert (runtime.settings.policy.wall_seconds, runtime.settings.policy.network.mode) == (5, "none")
    assert str(runtime.permissions.rules[0]) == "skills: weather: ask"
    granted = runtime.grants.of("weather", "scripts/x.py")
    assert (granted["UNITS"], str(granted["KEY"])) == ("metric", "[secret]")
    assert runtime.grants.hosts_of("weather", "scripts/x.py") == ("api.example.org",)
    assert (runtime.limits.misses, runtime.prefix, runtime.lists) == (3, "my_", False)
    assert runtime.shell is not None
    runtime.events.emit(SkillDropped(skill="weather", reason="unloaded"))
    asyncio.run(toolset.close())
    assert "SkillDropped" in (tmp_path / "agent" / "audit.jsonl").read_text()


def test_every_keyword_of_the_constructor_has_a_key_or_is_for_python() -> None:
    keywords = {*inspect.signature(SkillToolset).parameters, *inspect.signature(SkillToolset.from_dirs).parameters}
    assert {*yaml_config._READERS, *yaml_config._PYTHON_ONLY} == keywords - {"settings"}
    assert not {*yaml_config._READERS} & {*yaml_config._PYTHON_ONLY}


@of_google_adk
@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("policy: strict", "SkillToolset needs args with dirs: a list of folders, such as dirs: [skills]."),
        ("dirs: skills", "dirs: must be a list of folders"),
        ("dirs: [skills]\npolcy: strict", "there is no key 'polcy' here. Did you mean 'policy'?"),
        ("dirs: [skills]\non_event: print", "there is no key 'on_event' here. It takes a Python object"),
        ("dirs: [skills]\nlimits: {mises: 3}", "limits: there is no 'mises'. Did you mean 'misses'?"),
        ("dirs: [skills]\nlimits: {misses: -3}", "limits: SkillLimits.misses must be a whole number"),
        ("dirs: [skills]\npolicy: {wall_second: 3}", "Did you mean 'wall_seconds'?"),
        ("dirs: [gone]", "This folder of skills does not exist: "),
    ],
)
def test_a_mistake_in_a_yaml_agent_is_named(yaml_agent: Callable[[str], Path], args: str, sentence: str) -> None:
    file = yaml_agent(args)
    with pytest.raises(ConfigError) as told:
        from_config(str(file))
    assert sentence in told.value.message
