"""A refusal says what does not fit to whoever reads it, and only to the owner what would change that."""

from __future__ import annotations

import pytest

import level_table
from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox.contract import ExecutionRequest, Network, SandboxPolicy
from adk_skills_agent.sandbox.local.cgroup import NoControlGroups
from adk_skills_agent.sandbox.local.levels import base
from adk_skills_agent.sandbox.local.levels.base import choose
from adk_skills_agent.sandbox.local.levels.landlock import LandlockLevel
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel


def refusal(policy: SandboxPolicy) -> tuple[str, str]:
    with pytest.raises(SandboxUnavailable) as caught:
        choose(ExecutionRequest(("true",), policy), policy)
    return caught.value.message, " ".join(caught.value.__notes__)


def test_a_level_that_works_but_not_for_this_network_does_not_fit():
    level_table.require("landlock")
    said, advice = refusal(SandboxPolicy(isolation="landlock", network=Network.loopback()))
    assert "'landlock' is required and does not fit the policy" in said
    assert "network 'loopback'" in said
    assert "min_isolation" not in said + advice or "'process'" in advice


def test_the_strongest_level_that_works_is_named_to_the_owner_only(monkeypatch):
    for level in (NamespacesLevel, LandlockLevel):
        monkeypatch.setattr(level, "problem", lambda self: "switched off")
    said, advice = refusal(SandboxPolicy())
    assert said.startswith("Isolation at least 'landlock' is required and nothing that strong works here (namespaces: ")
    assert "min_isolation=" not in said
    assert "choose min_isolation='process'" in advice


def test_groups_that_could_be_had_from_systemd_have_a_fix(monkeypatch):
    def nowhere() -> None:
        raise NoControlGroups("the agent's group has no memory controller", "start the agent with systemd-run")

    monkeypatch.setattr("adk_skills_agent.sandbox.local.levels.namespaces.group_pool", nowhere)
    monkeypatch.setattr(base, "_answers", {})
    level = NamespacesLevel()
    level_table.require("namespaces")
    assert level.remedy() == "start the agent with systemd-run"
    policy = SandboxPolicy()
    said = [sentence for sentence in level.report(policy).degraded if "control group" in sentence]
    assert "no control group for the run (the agent's group has no memory controller)" in said[0]
    assert level.report(policy).enforced["memory"] == "rlimit+watchdog"
