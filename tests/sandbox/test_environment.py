"""The environment of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import Network, SandboxPolicy, Secret
from adk_skills_agent.sandbox.local.init.control import script_position
from adk_skills_agent.sandbox.policy import looks_secret
from adk_skills_agent.sandbox.process import command
from adk_skills_agent.sandbox.process.command import build_environment, search_path

PLACES = {"home": "/w", "tmp": "/t", "run_id": "1"}


def test_nothing_of_the_host_is_there_unless_named():
    host = {"A": "a", "B": "b", "PATH": "/evil", "HOME": "/root"}
    environment = build_environment(SandboxPolicy(inherit_env=("A", "MISSING")), {}, host=host, **PLACES)
    assert environment["A"] == "a"
    assert "B" not in environment
    assert "MISSING" not in environment
    assert "/evil" not in environment["PATH"]
    assert environment["HOME"] == "/w"


@pytest.mark.parametrize(
    ("network", "granted", "is_own"),
    [
        (Network.none(), {}, False),
        (Network.none(), {"A": "plain"}, False),
        (Network.none(), {"A": Secret("hunter2-of-skill-b")}, True),
        (Network.allow("api.example.org"), {}, True),
        (Network("allow", refused=("*",)), {}, False),  # a proxy that refuses all
        (Network.host(), {}, False),
    ],
)
def test_rows_111_and_254_a_run_with_grants_finds_no_temporary_files_of_others(network, granted, is_own):
    """Programs keep caches of code there, which would run with the key, or reach the host, of another skill."""
    environment = build_environment(SandboxPolicy(network=network), granted, host={}, **PLACES)
    assert environment["TMPDIR"] == PLACES["home" if is_own else "tmp"]


def test_the_call_wins_over_the_policy_and_nothing_wins_over_the_run_id():
    policy = SandboxPolicy(env={"A": "policy", "LANG": "de_DE.UTF-8", "ADK_SKILLS_RUN_ID": "forged"})
    environment = build_environment(policy, {"A": "call", "ADK_SKILLS_RUN_ID": "forged"}, host={}, **PLACES)
    assert (environment["A"], environment["LANG"], environment["ADK_SKILLS_RUN_ID"]) == ("call", "de_DE.UTF-8", "1")


@pytest.mark.parametrize(
    ("network", "waits"),
    [
        (Network.none(), False),
        (Network.loopback(), False),
        (Network.allow("api.example.org"), True),
        (Network.host(), True),
    ],
)
def test_without_a_network_nothing_is_tried_again_for_a_minute(network, waits):
    """Seen: ``npm install x`` and ``npx x`` waited 70 seconds until they said that there is no network."""
    environment = build_environment(SandboxPolicy(network=network), {}, host={}, **PLACES)
    assert ("npm_config_fetch_retries" not in environment) == waits
    own = SandboxPolicy(network=network, env={"npm_config_fetch_retries": "5"})
    assert build_environment(own, {}, host={}, **PLACES)["npm_config_fetch_retries"] == "5"


def test_memory_that_pyarrow_would_only_reserve_is_not_made_writable():
    """Seen: pandas, matplotlib and a linear regression, of 270 MiB, wait with 512 MiB until their deadline."""
    pytest.importorskip("pyarrow")
    code = (
        "import pyarrow\nkept = pyarrow.allocate_buffer(1000, memory_pool=pyarrow.mimalloc_memory_pool())\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmData')))"
    )
    environment = build_environment(SandboxPolicy(), {}, host={}, **PLACES)
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 240 << 10


@pytest.mark.parametrize(
    "name",
    [
        "GOOGLE_API_KEY",
        "github_token",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "SSH_AUTH_SOCK",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ],
)
def test_a_name_that_looks_secret_needs_a_decision(name):
    assert looks_secret(name)
    with pytest.raises(ConfigError, match=name):
        build_environment(SandboxPolicy(inherit_env=(name,)), {}, host={name: "x"}, **PLACES)
    policy = SandboxPolicy(inherit_env=(name,), allow_secrets=True)
    assert build_environment(policy, {}, host={name: "x"}, **PLACES)[name] == "x"


@pytest.mark.parametrize("name", ["TZ", "HTTP_PROXY", "LC_ALL", "GIT_AUTHOR_NAME"])
def test_an_ordinary_name_is_passed_on(name):
    assert not looks_secret(name)


def test_the_interpreters_folder_comes_first_on_the_path():
    assert search_path(None).split(":")[0] == str(Path(sys.executable).parent)
    assert search_path("/opt/py/bin/python").split(":") == ["/opt/py/bin", "/usr/local/bin", "/usr/bin", "/bin"]
    assert search_path("python3") == "/usr/local/bin:/usr/bin:/bin"
    assert search_path("/usr/bin/python3") == "/usr/bin:/usr/local/bin:/bin"


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("         0          0 4294967295\n", True),
        ("0 100000 65536\n", False),
        ("0 0 1\n1879048192 500000 268435456\n", True),
        ("1879048193 500000 268435455\n", False),
        ("", False),
        ("none\n", False),
    ],
)
def test_a_run_gets_a_user_id_of_its_own_only_where_all_of_them_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, has: bool
) -> None:
    """Row 77; in a container of a plain user root may take on no others than it was given."""
    (tmp_path / "map").write_text(text)
    assert command._has_own_ids(str(tmp_path / "map")) is has
    assert command._has_own_ids(str(tmp_path / "none")) is False
    monkeypatch.setattr(command, "_own_ids_are_mapped", lambda: has)
    taken = {command.own_id(command.NOBODY) for _ in range(8)}
    own = all(one in command.OWN_IDS for one in taken)  # a set of the range would take 17 GB
    assert (own, len(taken) > 1) == (True, True) if has else taken == {command.NOBODY}
    assert (command.own_id(None), command.own_id(1234)) == (None, 1234)


def test_a_run_of_the_agents_own_user_is_not_looked_for_among_the_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: ``None in range(...)`` compared 268 million numbers, 5 s for each run of a plain user."""

    class OnlyNumbers:
        def __contains__(self, uid: object) -> bool:
            assert isinstance(uid, int)
            return uid in range(5, 7)

    monkeypatch.setattr(command, "OWN_IDS", OnlyNumbers())
    assert [command.is_own_id(uid) for uid in (None, 4, 5)] == [False, False, True]


def test_row_372_python_may_be_told_to_import_from_the_skill_and_from_nowhere_else():
    skill, granted = "/skill", {"SKILL_DIR": "/skill", "PYTHONSAFEPATH": "1", "PYTHONPATH": "/skill/scripts:/skill"}
    environment = build_environment(SandboxPolicy(), granted, host={}, place=lambda path: f"/host{path}", **PLACES)
    assert environment["PYTHONPATH"] == "/host/skill/scripts:/host/skill"
    for wrong in ("/skill:/work", "/skill/../work", "", "/skill:"):
        with pytest.raises(ValueError, match="PYTHONPATH"):
            build_environment(SandboxPolicy(), granted | {"PYTHONPATH": wrong}, host={}, **PLACES)
    with pytest.raises(ValueError, match="PYTHONPATH"):
        build_environment(SandboxPolicy(), {"PYTHONPATH": skill}, host={}, **PLACES)


@pytest.mark.parametrize(
    ("more", "position"),
    [
        ({}, 2),
        ({"SKILL_DIR": "/skill", "PYTHONSAFEPATH": "1", "PYTHONPATH": "/skill/a:/skill"}, 2),
        ({"SKILL_DIR": "/skill", "PYTHONSAFEPATH": "1", "PYTHONPATH": "/skillful"}, None),
        ({"SKILL_DIR": "/skill", "PYTHONPATH": "/skill"}, None),
        ({"PYTHONSAFEPATH": "1"}, None),
    ],
)
def test_row_372_a_running_interpreter_can_have_what_keeps_others_from_the_working_directory(more, position):
    assert script_position([sys.executable, "-B", "/skill/a/r.py"], {"PATH": "/bin", **more}) == position
