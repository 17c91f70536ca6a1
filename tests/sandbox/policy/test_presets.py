"""The named policies."""

from __future__ import annotations

from dataclasses import fields

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import IsolationLevel, Network, SandboxPolicy
from adk_skills_agent.sandbox.policy import PRESETS, check_policy, policy_of, preset, resolve_policy

LIMITS = [
    *("wall_seconds", "memory_bytes", "pids", "open_files", "file_bytes", "workspace_bytes", "workspace_inodes"),
    *(
        "tmp_bytes",
        "shm_bytes",
        "output_bytes",
        "output_flood_bytes",
        "max_files",
        "max_file_bytes",
        "max_total_file_bytes",
    ),
]


def test_there_are_three_and_each_is_possible() -> None:
    assert list(PRESETS) == ["trusted", "default", "strict"]
    for policy in PRESETS.values():
        check_policy(policy)


def test_the_default_preset_is_the_default_policy() -> None:
    assert preset("default") == policy_of(None) == SandboxPolicy()


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_grows_from_strict_to_trusted(limit: str) -> None:
    strict, default, trusted = (getattr(PRESETS[name], limit) for name in ("strict", "default", "trusted"))
    assert strict < default < trusted


def test_strict_demands_namespaces_and_trusted_demands_nothing() -> None:
    assert PRESETS["strict"].min_isolation == IsolationLevel.NAMESPACES
    assert PRESETS["trusted"].min_isolation == IsolationLevel.PROCESS
    assert {policy.isolation for policy in PRESETS.values()} == {"auto"}


def test_no_preset_opens_the_network_or_passes_on_anything_of_the_host() -> None:
    for policy in PRESETS.values():
        assert policy.network == Network.none()
        assert (dict(policy.env), policy.inherit_env, policy.extra_ro, policy.allow_secrets) == ({}, (), (), False)


def test_no_limit_of_a_preset_is_unlimited() -> None:
    for policy in PRESETS.values():
        unlimited = {field.name for field in fields(policy) if getattr(policy, field.name) is None}
        assert unlimited <= {"cpu_seconds", "python", "run_as"}


def test_single_fields_go_over_a_preset() -> None:
    policy = resolve_policy({"wall_seconds": 60}, default=preset("strict"))
    assert policy.wall_seconds == 60
    assert policy.pids == PRESETS["strict"].pids


@pytest.mark.parametrize(
    ("name", "hint"), [("stric", "'strict'"), ("STRICT", "trusted, default, strict"), ("", "trusted")]
)
def test_an_unknown_name_is_refused_with_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        policy_of(name)


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(ConfigError):
        policy_of(7)  # type: ignore[arg-type]
    chosen = SandboxPolicy(pids=3)
    assert policy_of(chosen) is chosen
