"""What no level could express is refused with the setting's name and its bound; the bounds themselves work."""

from __future__ import annotations

import asyncio
import sys

import pytest

import level_table
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.policy import _COUNTS, _MOST_IDS, _MOST_SECONDS, check_policy, resolve_policy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("wall_seconds", value) for value in (1e300, 10**400, 1e20, float("inf"), float("nan"), -(10**400))),
        *(("drain_seconds", 1e300), ("term_grace_seconds", 1e300), ("cpu_seconds", 2**64)),
        *(("memory_bytes", value) for value in (2**64, 99999999999999999, 2**80)),
        *((name, 2**64) for name in ("workspace_bytes", "tmp_bytes", "shm_bytes", "file_bytes", "output_bytes")),
        *(("workspace_inodes", 2**70), ("pids", 2**40), ("run_as", 2**40), ("warm_slots", 10**9)),
        *(("open_files", 4), ("open_files", 2**64)),
    ],
)
def test_an_impossible_value_is_refused_with_its_name_and_bound(name, value):
    with pytest.raises(ConfigError, match=rf"^{name} must be .* from \d[\d,]* to \d[\d,]*") as caught:
        check_policy(SandboxPolicy(**{name: value}))
    assert len(caught.value.message) < 300


def test_a_user_id_has_no_limit_to_be_without():
    with pytest.raises(ConfigError, match="run_as must be a user id") as caught:
        check_policy(SandboxPolicy(run_as=-1))
    assert "no limit" not in caught.value.message


def test_a_module_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match=r"preload: there is no module 'nosuchmodule\.part'"):
        check_policy(SandboxPolicy(preload=("json", "nosuchmodule.part")))
    assert check_policy(SandboxPolicy(preload=("json", "os.path"), python="/elsewhere/python"))


@pytest.mark.filterwarnings("ignore::adk_skills_agent.errors.SecurityWarning")
@pytest.mark.parametrize("level", ["namespaces", level_table.UNGROUPED, "landlock", "process"])
def test_every_bound_works(level, monkeypatch):
    level = level_table.enter(level, monkeypatch)
    largest: dict[str, object] = {name: most for name, (_, most, _) in _COUNTS.items() if name != "warm_slots"}
    largest |= {"wall_seconds": _MOST_SECONDS, "drain_seconds": _MOST_SECONDS, "term_grace_seconds": _MOST_SECONDS}
    policies = [{**largest, "cpu_seconds": None}, largest, {"open_files": _COUNTS["open_files"][0]}]
    if level in {"namespaces", "landlock"} and level_table.level_named(level) is not None:
        import os

        policies += [{"run_as": _MOST_IDS}] if os.geteuid() == 0 else []

    async def main() -> list[tuple[object, bytes]]:
        results = []
        for values in policies:
            policy = SandboxPolicy(isolation=level, min_isolation="process", **{"warm_slots": 0, **values})  # type: ignore[arg-type]
            result = await local_sandbox().run(ExecutionRequest((sys.executable, "-c", "print(1)"), policy))
            results.append((result.status.value, result.stdout))
        return results

    assert asyncio.run(main()) == [("ok", b"1\n")] * len(policies)


@pytest.mark.parametrize("setting", ["isolation", "min_isolation"])
@pytest.mark.parametrize(
    ("former", "now", "reported"),
    [("cgroup", "'namespaces'", "memory and pids"), ("seccomp", "'landlock'", "syscalls")],
)
def test_a_level_that_earlier_versions_had_is_refused_with_its_new_name_and_where_it_is_reported(
    setting, former, now, reported
):
    for made in (lambda: check_policy(SandboxPolicy(**{setting: former})), lambda: resolve_policy({setting: former})):
        with pytest.raises(ConfigError) as refused:
            made()
        assert refused.value.message.startswith(f"{setting}: {former!r} is no longer a level")
        assert f"say {now}" in refused.value.message
        assert reported in refused.value.message


@pytest.mark.parametrize("former", ["cgroup", "seccomp"])
def test_a_toolset_refuses_it_with_the_same_sentence(former):
    from adk_skills_agent import SkillToolset

    with pytest.raises(ConfigError, match="is no longer a level"):
        SkillToolset.from_dirs([], policy=SandboxPolicy(min_isolation=former))
