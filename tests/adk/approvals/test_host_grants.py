"""Hosts and programs by skill: what is granted is reached, what is not is named, asked about, and never forced open."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from approval_chat import Chat, agent_with, calls
from google.adk.sessions.state import State
from google.genai import types

from adk_skills_agent import Grant, HostRefused, Network, Permissions, SandboxPolicy, Secret, SkillToolset
from adk_skills_agent.adk.hosts import host_rules, verdict_of
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import ExecutionRequest
from adk_skills_agent.sandbox.network import run_network
from adk_skills_agent.sandbox.network.run_network import RunNetwork
from adk_skills_agent.sandbox.threads import served_loop
from adk_skills_agent.scripts.grants import HostRules, network_of
from adk_skills_agent.scripts.outcome import NOT_BY_PROXY

# Speaks to the proxy itself, as curl does: what it gets is the proxy's own word for each host.
TRIES = """
import os, socket, sys
for target in sys.argv[1:]:
    host, _, port = target.partition(":")
    address = os.environ.get("https_proxy", "").removeprefix("http://").split(":")
    if len(address) != 2:
        sys.exit(f"curl: (6) Could not resolve host: {host}")
    with socket.create_connection((address[0], int(address[1])), 10) as tunnel:
        tunnel.sendall(f"CONNECT {host}:{port or 443} HTTP/1.1\\r\\n\\r\\n".encode())
        print(target, tunnel.recv(4096).split(b" ")[1].decode())
"""


@pytest.fixture
def folder(make_skill: Callable[..., Path]) -> Path:
    make_skill("weather", files={"scripts/get.py": TRIES, "scripts/other.py": TRIES})
    return make_skill("mail", files={"scripts/get.py": TRIES}).parent


@pytest.fixture
async def origin(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A server on the loopback to which every ``*.test`` name leads; all other names are resolved as usual.

    The machine of the tests has no names of its own, so the run's proxy gets a resolver that has.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read(1)
        writer.close()

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host.endswith(".test"):
            return ("127.0.0.1",)
        return ("10.0.0.7",) if host == "inside.example" else ()

    def network(request: ExecutionRequest, policy: SandboxPolicy) -> RunNetwork | None:
        if policy.network.mode != "allow":
            return None
        return RunNetwork(policy.network, served_loop(), resolve=resolve, allow_addresses=("127.0.0.1",))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    monkeypatch.setattr(run_network, "network_of_run", network)
    yield server.sockets[0].getsockname()[1]
    server.close()


def run(*targets: str, skill: str = "weather", script: str = "get.py") -> tuple[str, dict[str, Any]]:
    return ("run_skill_script", {"skill_name": skill, "file_path": script, "args": list(targets)})


def toolset(folder: Path, **settings: Any) -> SkillToolset:
    return SkillToolset.from_dirs([folder], policy=SandboxPolicy(min_isolation="namespaces"), **settings)


def lines(answer: dict[str, Any]) -> list[str]:
    return str(answer["stdout"]).splitlines()


async def talk(chat: Any, rehearse: Any, skills: SkillToolset, *steps: Any) -> Chat:
    conversation: Chat = await chat(agent_with(rehearse(calls(*steps)), skills))
    await conversation.say("Go")
    return conversation


async def test_a_skill_reaches_the_hosts_granted_to_it_and_no_other_skill_does(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    seen: list[Any] = []
    skills = toolset(folder, grants={"weather": Grant(hosts=[f"api.test:{origin}"])}, on_event=seen.append)
    target = f"api.test:{origin}"
    here, there = run(target, f"evil.test:{origin}", "api.test:443"), run(target, skill="mail")
    conversation = await talk(chat, rehearse, skills, here, there, "done")
    granted, other = conversation.results
    assert lines(granted) == [f"{target} 200", f"evil.test:{origin} 403", "api.test:443 403"]
    assert granted["refused_hosts"] == [f"evil.test:{origin}", "api.test"]
    said = f"The owner has not granted the hosts evil.test:{origin}, api.test to the skill 'weather'."
    assert any(note.startswith(said) for note in granted["notes"])
    assert other["status"] == "error"
    assert other["refused_hosts"] == ["api.test"]  # it has no proxy; curl's own words name the host
    told = [(e.skill, e.host, e.verdict, e.seen) for e in seen if isinstance(e, HostRefused)]
    assert told == [
        ("weather", f"evil.test:{origin}", "not_granted", "proxy"),
        ("weather", "api.test", "not_granted", "proxy"),
        ("mail", "api.test", "not_granted", "output"),
    ]


async def test_a_granted_host_that_a_program_looks_up_itself_says_what_to_set(
    folder: Path, make_skill: Callable[..., Path], chat: Any, rehearse: Any
) -> None:
    """Seen with Node.js 20, aiohttp and urllib3: "fetch failed", and not a word that the host is granted."""
    make_skill("raw", files={"scripts/get.py": "import socket\nsocket.create_connection(('api.test', 443))\n"})
    skills = toolset(folder, grants={"raw": Grant(hosts=["api.test"])})
    conversation = await talk(chat, rehearse, skills, run(skill="raw"), "done")
    assert conversation.results[0]["error"].endswith(NOT_BY_PROXY)


async def test_a_grant_for_one_script_is_not_its_neighbours_and_hosts_of_the_policy_stay(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    policy = SandboxPolicy(min_isolation="namespaces", network=Network.allow("all.test", ports=(origin,)))
    skills = SkillToolset.from_dirs([folder], policy=policy, grants={"weather/get.py": Grant(hosts=["api.test"])})
    targets = (f"api.test:{origin}", f"all.test:{origin}")
    conversation = await talk(chat, rehearse, skills, run(*targets), run(*targets, script="other.py"), "done")
    first, second = conversation.results
    assert lines(first) == [f"api.test:{origin} 200", f"all.test:{origin} 200"]
    assert lines(second) == [f"api.test:{origin} 403", f"all.test:{origin} 200"]
    assert second["refused_hosts"] == ["api.test"]


async def test_a_granted_name_that_leads_to_a_private_address_stays_shut_and_is_no_question(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    skills = toolset(folder, grants={"weather": Grant(hosts=["inside.example"])}, permissions={"hosts": {"*": "ask"}})
    conversation = await talk(chat, rehearse, skills, run("inside.example"), run("inside.example"), "done")
    assert [lines(result) for result in conversation.results] == [["inside.example 403"]] * 2
    assert "refused_hosts" not in conversation.results[0]
    assert conversation.questions == []


async def test_the_real_resolver_keeps_a_granted_localhost_shut(folder: Path, chat: Any, rehearse: Any) -> None:
    skills = toolset(folder, grants={"weather": Grant(hosts=["localhost"])})
    conversation = await talk(chat, rehearse, skills, run("localhost"), "done")
    assert lines(conversation.results[0]) == ["localhost 403"]


async def test_a_wildcard_means_the_sub_domains_and_a_rule_that_denies_wins_over_it(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    seen: list[Any] = []
    skills = toolset(
        folder,
        grants={"weather": Grant(hosts=[f"*.api.test:{origin}", f"secret.test:{origin}"])},
        permissions={"hosts": {"bad.api.test": "deny", "*.worse.api.test": "deny", "weather/secret.test": "deny"}},
        on_event=seen.append,
    )
    hosts = ["a.api.test", "a.b.api.test", "api.test", "bad.api.test", "x.worse.api.test", "secret.test"]
    conversation = await talk(chat, rehearse, skills, run(*(f"{host}:{origin}" for host in hosts)), "done")
    assert [line.split()[1] for line in lines(conversation.results[0])] == ["200", "200", "403", "403", "403", "403"]
    denied = [event.host for event in seen if isinstance(event, HostRefused) and event.verdict == "denied"]
    assert denied == [f"{host}:{origin}" for host in hosts[3:]]
    assert any("must never connect to bad.api.test" in note for note in conversation.results[0]["notes"])


async def test_row_100_the_user_is_asked_before_the_next_run_and_the_answer_holds_for_the_session(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    seen: list[Any] = []
    target = f"api.test:{origin}"
    skills = toolset(folder, permissions={"hosts": {"*": "ask"}}, on_event=seen.append)
    again = run(target), run(target, script="other.py"), run(target, skill="mail")
    conversation = await talk(chat, rehearse, skills, run(target), *again, "done")
    first = conversation.results[0]
    assert lines(first) == [f"{target} 403"]
    assert any("Run it again: the user is asked first." in note for note in first["notes"])
    hint = conversation.question["hint"]
    assert f"tried to connect to {target}" in hint
    assert f"this skill's scripts may connect to '{target}'." in hint
    await conversation.answer(True)
    ran = [result for result in conversation.results if "stdout" in result]
    assert [lines(result) for result in ran] == [
        [f"{target} 403"],
        [f"{target} 200"],
        [f"{target} 200"],
        [f"{target} 403"],
    ]
    assert len(conversation.questions) == 1  # the other skill's run was its first: it is only told
    assert [event.verdict for event in seen if isinstance(event, HostRefused)] == ["ask", "ask"]


async def test_the_question_about_a_host_shows_the_command_that_wants_it(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    skills = toolset(folder, permissions={"hosts": {"*": "ask"}}, shell=True)
    visit = ("execute", {"command": f"python3 /skills/weather/scripts/get.py api.test:{origin}"})
    load = ("load_skill", {"skill_name": "weather"})
    conversation = await talk(chat, rehearse, skills, load, visit, visit, "done")
    assert conversation.question["hint"].startswith("Run the command 'python3 /skills/weather/scripts/get.py ")
    await conversation.answer(True)
    assert lines(conversation.results[-1]) == [f"api.test:{origin} 200"]


async def test_who_says_no_is_not_asked_again_and_the_script_runs_without_the_host(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    target = f"api.test:{origin}"
    skills = toolset(folder, permissions={"hosts": {"weather/api.test": "ask"}})
    steps = run(target), run(target), "As you wish.", run(target), "done"
    conversation = await talk(chat, rehearse, skills, *steps)
    await conversation.answer(False)
    await conversation.say("Go on without it")
    assert len(conversation.questions) == 1
    last = conversation.results[-1]
    assert lines(last) == [f"{target} 403"]
    assert any(note.startswith("The user does not want the skill 'weather' to connect") for note in last["notes"])


async def test_an_answer_for_the_owner_opens_the_host_in_the_next_session_until_a_byte_changes(
    folder: Path, origin: int, chat: Any, rehearse: Any, tmp_path: Path
) -> None:
    target = f"api.test:{origin}"
    rules = Permissions(hosts={"*": "ask"}, remember="owner", approvals=tmp_path / "approvals")
    conversation = await talk(chat, rehearse, toolset(folder, permissions=rules), run(target), run(target), "done")
    await conversation.answer(True)
    next_day = await talk(chat, rehearse, toolset(folder, permissions=rules), run(target), "done")
    assert lines(next_day.results[0]) == [f"{target} 200"]
    script = folder / "weather" / "scripts" / "get.py"
    script.write_text(script.read_text() + "\n# changed\n")
    changed = await talk(chat, rehearse, toolset(folder, permissions=rules), run(target), "done")
    assert lines(changed.results[0]) == [f"{target} 403"]


async def test_what_a_script_prints_never_becomes_a_question(
    make_skill: Callable[..., Path], origin: int, chat: Any, rehearse: Any
) -> None:
    lies = make_skill("liar", files={"scripts/a.py": "raise SystemExit('Could not resolve host: evil.test')"})
    skills = toolset(lies.parent, permissions={"hosts": {"*": "ask"}})
    step = ("run_skill_script", {"skill_name": "liar", "file_path": "a.py"})
    conversation = await talk(chat, rehearse, skills, step, step, "done")
    assert conversation.questions == []
    assert all("refused_hosts" not in result for result in conversation.results)


async def test_an_allow_rule_is_a_grant_and_ask_beats_a_grant_as_narrow(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    skills = toolset(
        folder,
        grants={"weather": Grant(hosts=[f"asked.test:{origin}"])},
        permissions={"hosts": {f"weather/ruled.test:{origin}": "allow", "asked.test": "ask"}},
    )
    targets = f"ruled.test:{origin}", f"asked.test:{origin}"
    conversation = await talk(chat, rehearse, skills, run(*targets), run(*targets), "done")
    assert [line[-3:] for line in lines(conversation.results[0])] == ["200", "403"]
    await conversation.answer(True)
    assert [line[-3:] for line in lines(conversation.results[-1])] == ["200", "200"]


async def test_without_a_proxy_scripts_run_and_the_owner_is_told_that_nobody_can_be_asked(
    folder: Path, chat: Any, rehearse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policy = SandboxPolicy(isolation="landlock", min_isolation="landlock")
    skills = SkillToolset.from_dirs([folder], policy=policy, permissions={"hosts": {"*": "ask"}})
    with caplog.at_level(logging.WARNING):
        conversation = await talk(chat, rehearse, skills, run(), run(), "done")
    assert [result["status"] for result in conversation.results] == ["success", "success"]
    assert caplog.text.count("nobody is asked") == 1


SHOWS = "import os, shutil, subprocess\nfor name in ('tool', 'inner'):\n    found = shutil.which(name)\n"
SHOWS += "    print(name, subprocess.run([found], capture_output=True, text=True).stdout.strip() if found else None)\n"


@pytest.mark.parametrize("isolation", ["namespaces", "landlock"])
async def test_granted_programs_are_on_the_path_of_their_skill_alone(
    make_skill: Callable[..., Path], tmp_path: Path, chat: Any, rehearse: Any, isolation: str
) -> None:
    tools = tmp_path / "opt"
    for path, said in (("one/tool", "the tool"), ("two/bin/inner", "the inner one"), ("one/python3", "a fake")):
        file = tools / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\necho {said}; echo x 2>/dev/null > {file}\n")
        file.chmod(0o755)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.is_relative_to("/tmp/pytest-of-root"):
            parent.chmod(0o755)
    make_skill("office", files={"scripts/show.py": SHOWS})
    folder = make_skill("mail", files={"scripts/show.py": SHOWS}).parent
    skills = SkillToolset.from_dirs(
        [folder],
        policy=SandboxPolicy(isolation=isolation),
        grants={"office": Grant(programs=[tools / "one" / "tool", str(tools / "two")])},
    )
    shown = [("run_skill_script", {"skill_name": name, "file_path": "show.py"}) for name in ("office", "mail")]
    conversation = await talk(chat, rehearse, skills, *shown, "done")
    assert [lines(result) for result in conversation.results] == [
        ["tool the tool", "inner the inner one"],
        ["tool None", "inner None"],
    ]
    assert (tools / "one" / "tool").read_text().startswith("#!/bin/sh")  # read-only: it could not write itself


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Grant(hosts=["https://x.test"]), "not a host name"),
        (lambda: Grant(hosts=["*"]), "where none can be"),
        (lambda: Grant(hosts=["10.0.0.1"]), "IP address"),
        (lambda: Grant(hosts="x.test"), "must be a list"),
        (lambda: Grant(hosts=[7]), "must be names"),
        (lambda: Grant(programs=["no-such-program-here"]), "no 'no-such-program-here' on"),
        (lambda: Grant(programs=["relative/tool"]), "no absolute path"),
        (lambda: Grant(programs=["/"]), "whole machine"),
        (lambda: Grant(programs=["/etc/passwd"]), "no program that can be run"),
        (lambda: Grant(env={"LD_PRELOAD": "x"}), "LD_PRELOAD"),
        (lambda: Permissions(hosts={"*": "allow"}), "too much to allow"),
        (lambda: Permissions(hosts={"a*.test": "deny"}), "where none can be"),
        (lambda: Permissions(hosts={"x.test:80": "deny"}), "only 'allow'"),
        (lambda: Permissions(hosts={"s/x.test=10.0.0.0/8": "allow"}), "opens no private network"),
        (lambda: Permissions(grants={"a": {"host": ["x.test"]}}), "Did you mean 'hosts'"),
        (lambda: Permissions(grants={"a": {"env": {"K": {"secret": "NO_SUCH_VARIABLE_HERE"}}}}), "is not set"),
        (lambda: Permissions(grants={"a": {"env": {"K": 5}}}), "Put it in quotes"),
    ],
)
def test_a_grant_that_cannot_be_meant_is_refused_in_a_sentence(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


async def test_grants_stand_in_the_permissions_file_and_secrets_come_from_the_environment(
    make_skill: Callable[..., Path], tmp_path: Path, chat: Any, rehearse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_KEY", "hunter2-hunter2-hunter2")
    file = tmp_path / "permissions.yaml"
    file.write_text(
        "hosts:\n  '*.evil.test': deny\n"
        "grants:\n  weather:\n    hosts: [api.test]\n    env: {ZONE: Berlin, KEY: {secret: AGENT_KEY}}\n"
    )
    shows = "import os\nprint(os.environ['ZONE'], os.environ['KEY'], os.environ['MORE'])"
    folder = make_skill("weather", files={"scripts/show.py": shows}).parent
    skills = toolset(folder, permissions=file, grants={"weather": {"MORE": "x", "ZONE": "Rome"}})
    assert skills.runtime.grants.hosts_of("weather", "scripts/show.py") == ("api.test",)
    show = ("run_skill_script", {"skill_name": "weather", "file_path": "show.py"})
    conversation = await talk(chat, rehearse, skills, show, "done")
    assert lines(conversation.results[0]) == ["Rome [secret KEY] x"]
    file.write_text("hosts:\n  'x y': deny\n")
    with pytest.raises(ConfigError, match=r"permissions\.yaml, line 2: .*not a host name"):
        Permissions.from_file(file)


def test_the_network_of_a_run_is_never_wider_than_what_is_left_after_the_denials() -> None:
    base = Network.allow("a.test", "*.b.test", ports=(443, 8080))
    denied = network_of(base, ["c.test"], HostRules(allowed=("d.b.test",), denied=("a.test", "d.b.test", "c.test")))
    assert denied == replace(base, hosts=("*.b.test",), refused=("a.test", "d.b.test", "c.test"))
    assert network_of(base, ["c.test"], HostRules(denied=("*",))) == Network.none()
    assert network_of(Network.none(), []) == Network.none()
    assert network_of(Network.none(), ["c.test"]) == Network.allow("c.test")
    assert network_of(Network.none(), [], HostRules(asked=("*",))) == Network("allow", refused=("*",))
    assert network_of(Network.host(), ["c.test"], HostRules(asked=("*",))) == Network.host()


def test_rules_that_nothing_keeps_are_said_to_the_owner(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    SkillToolset.from_dirs(
        [folder], policy=SandboxPolicy(network=Network.host()), permissions={"hosts": {"x.test": "deny"}}
    )
    assert "The rules for hosts do not hold" in caplog.text


def test_rules_speak_of_the_skill_they_name() -> None:
    rules = Permissions(hosts={"weather-*/x.test": "ask", "*.y.test": "deny", "z.test": "allow"})
    assert host_rules(rules, "weather-eu") == HostRules(("z.test",), ("*.y.test",), ("x.test",))
    assert host_rules(rules, "mail").asked == ()
    assert str(verdict_of(host_rules(rules, "mail"), "a.y.test:8443")) == "deny"
    assert rules.unknown(["mail"]) == []


def test_secrets_of_a_grant_are_known_for_what_they_are() -> None:
    grant = Grant(env={"KEY": Secret("hunter2-hunter2")})
    assert "hunter2" not in repr(grant)
    assert "hunter2" not in json.dumps(str(grant))


async def test_row_317_of_names_that_a_client_writes_into_the_state_no_more_count_than_are_kept(
    folder: Path, chat: Any, rehearse: Any
) -> None:
    """Seen: 40,000 of them, and each call of a script stopped the agent for 39 s."""
    skills = toolset(folder, permissions={"hosts": {"*": "ask"}})
    conversation = await chat(agent_with(rehearse(calls(run(), "done")), skills))
    agent = conversation.runner.agent.name
    late = [f"x{number}.test" for number in range(19)]
    state = {
        f"_adk_skill_hosts_wanted:{agent}:weather": ["early.test", "no name!", *late],
        f"_adk_skill_hosts_rejected:{agent}:weather": late,
    }
    said = types.Content(role="user", parts=[types.Part(text="Go")])
    session = {"user_id": "user", "session_id": conversation.session_id}
    conversation.events += [
        event async for event in conversation.runner.run_async(**session, new_message=said, state_delta=state)
    ]
    assert conversation.questions == []
    assert conversation.results[-1].get("error_code") is None, conversation.results
    assert conversation.results[-1]["return_code"] == 0


@pytest.mark.parametrize("question", ["hosts", "skills", "commands"])
async def test_row_430_what_a_client_writes_into_the_state_is_neither_copied_nor_read_whole(
    folder: Path, chat: Any, rehearse: Any, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """Seen: 500,000 names under one of these keys, and nothing else of the agent ran for 24 s."""
    copied: list[str] = []
    take = State._take_snapshot

    def snapshot(self: State, key: str, value: Any) -> None:
        copied.append(key)
        take(self, key, value)

    monkeypatch.setattr(State, "_take_snapshot", snapshot)
    skills = toolset(folder, permissions={question: {"*": "ask"}}, shell=True)
    step = ("execute", {"command": "echo 1"}) if question == "commands" else run("x.test:1")
    conversation = await chat(agent_with(rehearse(calls(step, "done")), skills))
    agent, names = conversation.runner.agent.name, [f"x{number}.test" for number in range(3_000)]
    keys = [
        f"_adk_skill_hosts_wanted:{agent}:weather",
        f"_adk_skill_hosts_rejected:{agent}:weather",
        f"_adk_commands_approved:{agent}",
        f"_adk_skill_approval:{agent}:weather:skill",
        f"_adk_skill_approved_load:{agent}:weather",
        f"_adk_skills_asked:{agent}",
    ]
    said = types.Content(role="user", parts=[types.Part(text="Use /weather")])
    session = {"user_id": "user", "session_id": conversation.session_id}
    state = dict.fromkeys(keys, names)
    conversation.events += [
        event async for event in conversation.runner.run_async(**session, new_message=said, state_delta=state)
    ]
    codes = {result.get("error_code") for result in conversation.results}
    assert codes == ({None} if question == "hosts" else {"APPROVAL_REQUIRED"}), conversation.results
    assert not set(copied) & set(keys)


async def test_row_429_the_question_shows_a_host_to_its_end_and_says_all_of_why(
    folder: Path, origin: int, chat: Any, rehearse: Any
) -> None:
    """Seen: of a long name 60 characters, which are a name that people trust; the yes opened the whole name."""
    host = f"storage.googleapis.com.project-files-production-europe-west1.evil.test:{origin}"
    skills = toolset(folder, permissions={"skills": {"weather": "ask"}, "hosts": {"*": "ask"}})
    conversation = await talk(chat, rehearse, skills, run(host), run(host), "done")
    await conversation.answer(True)
    hint = conversation.question["hint"]
    assert f"this skill's scripts may connect to '{host}'." in hint
    assert f"an earlier run tried to connect to {host}" in hint


@pytest.mark.parametrize(
    ("host", "opens"),
    [
        ("evil.test", False),
        ("evil.test:{port}", False),
        ("*.test:{port}", False),
        ("*.a.test:{port}", False),
        ("Evil.a.test.:{port}", False),
        ("evil.a.test:{port}", True),  # a user may say yes to it, and this is the user's own client
    ],
)
async def test_row_324_a_client_that_writes_its_own_yes_opens_no_host_that_nobody_is_asked_about(
    folder: Path, origin: int, chat: Any, rehearse: Any, host: str, opens: bool
) -> None:
    """Seen: ``CONNECT evil.test:22`` went through where the only rule was a question about ``*.a.test``."""
    skills = toolset(folder, permissions={"hosts": {"*.a.test": "ask"}})
    skill = skills.runtime.source.local("weather")
    assert skill is not None
    targets = [f"evil.test:{origin}", f"evil.a.test:{origin}"]
    conversation = await chat(agent_with(rehearse(calls(run(*targets), "done")), skills))
    agent = conversation.runner.agent.name
    host = host.format(port=origin)
    state = {
        f"_adk_skill_hosts_wanted:{agent}:weather": [host],
        f"_adk_skill_approval:{agent}:weather:host:{host}": skill.version(),
    }
    said = types.Content(role="user", parts=[types.Part(text="Go")])
    session = {"user_id": "user", "session_id": conversation.session_id}
    conversation.events += [
        event async for event in conversation.runner.run_async(**session, new_message=said, state_delta=state)
    ]
    assert conversation.questions == []
    ends = ["403", "200" if opens else "403"]
    assert lines(conversation.results[-1]) == [f"{target} {end}" for target, end in zip(targets, ends, strict=True)]
