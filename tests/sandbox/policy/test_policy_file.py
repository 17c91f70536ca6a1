"""A policy in a file: what it can say, and how it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import Network, SandboxPolicy
from adk_skills_agent.sandbox.policy import PRESETS, load_policy
from adk_skills_agent.settings import MAX_FILE_BYTES

HEAD = "[tool.adk-skills.policy]\n"


@pytest.fixture
def refused(tmp_path: Path):
    """The sentence a file is refused with."""

    def load(text: str | bytes, name: str = "pyproject.toml") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError) as error:
            load_policy(path)
        assert str(path) in error.value.message
        return error.value.message.replace(str(tmp_path), "")

    return load


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_of_pyproject_over_a_preset(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
[project]
name = "x"
[tool.adk-skills.policy]
preset = "strict"
wall_seconds = 2.5
memory_bytes = "1.5 GiB"
file_bytes = 1000
output_bytes = "64 KiB"
tmp_bytes = "1 MB"
cpu_seconds = "unlimited"
network = { mode = "allow", hosts = ["api.example.com"], ports = [443, 8443] }
inherit_env = ["TZ"]
[tool.adk-skills.policy.env]
MODE = "test"
[tool.other]
pids = 9
""",
    )
    policy = load_policy(path)
    assert policy.min_isolation == "namespaces"
    assert (policy.wall_seconds, policy.memory_bytes, policy.file_bytes) == (2.5, 1536 << 20, 1000)
    assert (policy.output_bytes, policy.tmp_bytes, policy.cpu_seconds) == (64 << 10, 10**6, None)
    assert policy.network == Network.allow("api.example.com", ports=(443, 8443))
    assert (policy.inherit_env, dict(policy.env)) == (("TZ",), {"MODE": "test"})
    assert policy.pids == PRESETS["strict"].pids


def test_yaml_says_the_same(tmp_path: Path) -> None:
    text = "wall_seconds: null\nmemory_bytes: 1 gib\nnetwork: {mode: allow, hosts: [a.example.com]}\npreset: trusted\n"
    policy = load_policy(write(tmp_path, text, "policy.yaml"))
    assert policy.wall_seconds is None
    assert policy.memory_bytes == 1 << 30
    assert policy.network == Network.allow("a.example.com")
    assert policy.min_isolation == "process"
    assert load_policy(write(tmp_path, "network: none\n", "a.yml")) == SandboxPolicy()
    assert load_policy(write(tmp_path, HEAD)) == SandboxPolicy()
    assert load_policy(write(tmp_path, "\ufeff" + HEAD + "pids = 3")).pids == 3


@pytest.mark.parametrize(
    ("text", "name", "line", "says"),
    [
        (HEAD + "\nmemory_byte = 3\n", "a.toml", 3, "'memory_bytes'"),
        (HEAD + "\n# x\npresets = 'strict'\n", "a.toml", 4, "'preset'"),
        (HEAD + "preset = 'stric'\n", "a.toml", 2, "'strict'"),
        (HEAD + "zzz = 1\n", "a.toml", 2, "Known settings: preset, isolation"),
        (HEAD + "pids = 'many'\n", "a.toml", 2, "whole number"),
        (HEAD + "pids = true\n", "a.toml", 2, "whole number"),
        (HEAD + "pids = -1\n", "a.toml", 2, "from 1 to"),
        (HEAD + "'pids' = 0\n", "a.toml", 2, "from 1 to"),
        (HEAD + "memory_bytes = '3 parsecs'\n", "a.toml", 2, "'512 MiB'"),
        (HEAD + "memory_bytes = '12'\n", "a.toml", 2, "'512 MiB'"),
        (HEAD + "output_bytes = 'unlimited'\n", "a.toml", 2, "cannot be unlimited"),
        (HEAD + "run_as = 'unlimited'\n", "a.toml", 2, "cannot be unlimited"),
        (HEAD + "wall_seconds = nan\n", "a.toml", 2, "seconds"),
        (HEAD + "min_isolation = 'total'\n", "a.toml", 2, "one of container, namespaces"),
        (HEAD + "min_isolation = 'cgroup'\n", "a.toml", 2, "say 'namespaces'"),
        ("isolation: seccomp\n", "a.yaml", 1, "say 'landlock'"),
        (HEAD + "maker = 'zygote'\n", "a.toml", 2, "maker must be 'auto'"),
        (HEAD + "network = 'allow'\n", "a.toml", 2, "needs hosts"),
        (HEAD + "network = {mode='allow', host=['a']}\n", "a.toml", 2, "network has no 'host'"),
        (HEAD + "network = {mode='allow', hosts=[]}\n", "a.toml", 2, "at least one host"),
        (HEAD + "network = {mode='allow', hosts=['a'], ports=[70000]}\n", "a.toml", 2, "not a port"),
        (HEAD + "[tool.adk-skills.policy.network]\nmode = 'open'\n", "a.toml", 2, "none, loopback"),
        (HEAD + "[tool.adk-skills.policy.env]\nLD_PRELOAD = 'x'\n", "a.toml", 2, "LD_PRELOAD"),
        (HEAD + "inherit_env = 'TZ'\n", "a.toml", 2, "list of strings"),
        (HEAD + "inherit_env = ['PYTHONPATH']\n", "a.toml", 2, "PYTHONPATH"),
        (HEAD + "extra_ro = ['data']\n", "a.toml", 2, "absolute"),
        (HEAD + "allow_secrets = 'yes'\n", "a.toml", 2, "true or false"),
        ("wall_seconds: 3\npids: many\n", "a.yaml", 2, "whole number"),
        ("wall_seconds: 3\n\npid: 3\n", "a.yaml", 3, "'pids'"),
        ("pids: 3\npids: 4\n", "a.yaml", 2, "first in line 1"),
        ("pids: [3\n", "a.yaml", 2, "no YAML"),
        ("pids: !!python/object/apply:os.system [id]\n", "a.yaml", 1, "no YAML"),
        ("- pids\n", "a.yaml", 1, "mapping"),
        ("3: 4\n", "a.yaml", 1, "no name of a setting"),
        ("pids: 3\n---\npids: 4\n", "a.yaml", 2, "no YAML"),
        ("pids: \xff".encode("latin-1"), "a.yaml", 1, "UTF-8"),
        ("pids: 3\ntags: \x07\n", "a.yaml", 2, "no YAML"),
        ("pids: 3\nnetwork: {mode: none, mode: open}\n", "a.yaml", 2, "'mode' is there twice"),
        ("pids: " + "9" * 5_000, "a.yaml", 1, "no YAML"),
        (HEAD + "pids = " + "9" * 5_000, "a.toml", 2, "no TOML"),
        (HEAD + "network.mode = 'open'\n", "a.toml", 2, "none, loopback"),
        ("[tool.adk-skills.policys]\npids = 1\n[ tool . 'adk-skills' . policy ]\npids = 0\n", "a.toml", 4, "from 1 to"),
    ],
)
def test_a_mistake_is_refused_with_its_line(refused, text: str | bytes, name: str, line: int, says: str) -> None:
    sentence = refused(text, name)
    assert f"line {line}" in sentence, sentence
    assert says in sentence, sentence
    assert sentence.endswith((".", "?"))


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("[tool]\n", "pyproject.toml", "has no table [tool.adk-skills.policy]"),
        ("[tool.adk_skills.policy]\npids = 3\n", "pyproject.toml", "[tool.adk_skills.policy] looks like it"),
        ("pids = 3\n", "pyproject.toml", "has no table"),
        ("[tool.adk-skills]\npolicy = 3\n", "pyproject.toml", "must be a table"),
        (HEAD + "pids =\n", "pyproject.toml", "no TOML"),
        (HEAD + "pids = 1\npids = 2\n", "pyproject.toml", "no TOML"),
        ("", "a.yaml", "is empty"),
        ("{}", "policy.json", "must end with .toml"),
        ("x" * (MAX_FILE_BYTES + 1), "a.yaml", "larger than"),
        ("a: " + "[" * 100_000, "a.yaml", "no YAML"),
    ],
)
def test_a_file_without_a_policy_is_refused(refused, text: str, name: str, says: str) -> None:
    assert says in refused(text, name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_policy(tmp_path / "none.toml")


def test_no_value_under_env_is_ever_shown(refused) -> None:
    for text in (HEAD + "env = {KEY = ['hunter2-value']}\n", HEAD + "env = ['hunter2-value']\n"):
        assert "hunter2" not in refused(text)
    assert "hunter2" not in refused("env: {KEY: [hunter2-value]}\n", "a.yaml")
    assert "hunter2" not in refused("env: {KEY: hunter2-value\nx", "a.yaml")
