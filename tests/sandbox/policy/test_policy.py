"""Resolution and checks of a policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import Network, SandboxPolicy
from adk_skills_agent.sandbox.policy import UNSET, check_policy, resolve_policy


def test_without_layers_the_default_holds():
    assert resolve_policy() == SandboxPolicy()
    assert resolve_policy(None, {}, None, default=SandboxPolicy(pids=7)).pids == 7


@pytest.mark.requirement("S4-19")
def test_a_script_has_thirty_seconds_unless_somebody_says_otherwise():
    assert resolve_policy().wall_seconds == 30
    assert resolve_policy(None, {}, {"wall_seconds": None}).wall_seconds is None


def test_the_call_wins_over_the_toolset_over_the_executor_over_the_default():
    layers = ({"pids": 1}, {"pids": 2, "open_files": 20}, {"pids": 3, "open_files": 30, "wall_seconds": 3})
    policy = resolve_policy(*layers, default=SandboxPolicy(pids=4, cpu_seconds=4))
    assert (policy.pids, policy.open_files, policy.wall_seconds, policy.cpu_seconds) == (1, 20, 3, 4)


def test_none_is_unlimited_and_zero_is_a_value_and_unset_is_neither():
    policy = resolve_policy(
        {"wall_seconds": None, "max_files": 0, "memory_bytes": UNSET}, {"wall_seconds": 5, "memory_bytes": 1 << 25}
    )
    assert policy.wall_seconds is None
    assert policy.max_files == 0
    assert policy.memory_bytes == 1 << 25


def test_granted_variables_of_all_layers_come_together():
    policy = resolve_policy({"env": {"A": "call"}}, None, {"env": {"A": "executor", "B": "b"}})
    assert dict(policy.env) == {"A": "call", "B": "b"}
    with pytest.raises(TypeError):
        policy.env["C"] = "c"  # type: ignore[index]


def test_an_unknown_setting_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"'wall_second' \(toolset\) does not exist\. Did you mean 'wall_seconds'\?"):
        resolve_policy(None, {"wall_second": 1})
    with pytest.raises(ConfigError, match="Known settings"):
        resolve_policy({"xyzzy": 1})
    with pytest.raises(ConfigError, match="does not exist"):
        resolve_policy({3: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"wall_seconds": value} for value in (-1, "5", True, float("nan"), float("inf"))),
        *({"term_grace_seconds": value} for value in (None, -0.1)),
        *({"memory_bytes": value} for value in (-1, 0, 1.5, "512M", False)),
        *({"pids": 0}, {"open_files": 3}, {"output_bytes": None}, {"output_bytes": -1}, {"max_files": None}),
        *({"isolation": "docker"}, {"min_isolation": "auto"}, {"min_isolation": None}, {"run_as": -1}),
        *({"network": "internet"}, {"network": "allow"}, {"network": None}, {"network": {"mode": "allow"}}),
        *({"network": {"hosts": "example.org"}}, {"network": {"mode": "allow", "hosts": ["a b"]}}),
        *({"network": {"mode": "allow", "hosts": ["evil\0.example.org"]}}, {"network": {"typo": 1}}),
        {"network": {"mode": "allow", "hosts": ["example.org"], "ports": [70000]}},
        *({"env": {"A B": "1"}}, {"env": {"A": 1}}, {"env": {"A": "\0"}}, {"env": ["A"]}, {"env": {1: "a"}}),
        *({"inherit_env": "PATH"}, {"inherit_env": [""]}, {"inherit_env": ["A=B"]}, {"inherit_env": [1]}),
        *({"extra_ro": ["relative"]}, {"extra_ro": "/x"}, {"allow_secrets": 1}, {"python": ""}, {"python": 3}),
    ],
)
def test_an_impossible_value_is_refused_in_a_sentence_that_names_it(wrong):
    with pytest.raises(ConfigError) as caught:
        resolve_policy(wrong)
    assert next(iter(wrong)).split("_")[0] in caught.value.message
    assert caught.value.message.endswith(".")


def test_forms_of_a_config_file_are_accepted():
    policy = resolve_policy(
        {
            "network": {"mode": "allow", "hosts": ["example.org"], "ports": [443, 8443]},
            "inherit_env": ["TZ"],
            "extra_ro": ["/opt/models"],
            "python": Path("/usr/bin/python3"),
        }
    )
    assert policy.network == Network.allow("example.org", ports=(443, 8443))
    assert policy.inherit_env == ("TZ",)
    assert policy.extra_ro == ("/opt/models",)
    assert policy.python == "/usr/bin/python3"
    assert resolve_policy({"network": "host"}).network == Network.host()


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw reads Unicode's tables
@given(
    st.dictionaries(st.sampled_from(sorted(SandboxPolicy.__dataclass_fields__)), st.none() | st.integers() | st.text())
)
def test_any_layer_gives_a_checked_policy_or_a_config_error(layer):
    try:
        policy = resolve_policy(layer)
    except ConfigError:
        return
    assert check_policy(policy) is policy
