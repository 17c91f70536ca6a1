"""Policies, requests, results and events travel: they can be pickled, copied, compared and, where frozen, hashed."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import multiprocessing
import pickle
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from adk_skills_agent.adk.events import events
from adk_skills_agent.sandbox import (
    EndEvent,
    ExecutionRequest,
    ExecutionResult,
    InputFile,
    IsolationLevel,
    IsolationReport,
    Network,
    OutputEvent,
    OutputFile,
    ReadOnlyMount,
    ResourceSample,
    SandboxPolicy,
    Secret,
    Status,
    local_sandbox,
    resolve_policy,
)
from adk_skills_agent.sandbox.contract import NetworkDecision
from adk_skills_agent.sandbox.policy import PRESETS
from adk_skills_agent.sandbox.secrets import FrozenMapping

REPORT = IsolationReport(IsolationLevel.LANDLOCK, {"files": "Landlock"}, ("a",), ("b",))
RESULT = ExecutionResult(
    Status.OK,
    0,
    REPORT,
    stdout=b"out",
    files=(OutputFile("a.txt", b"x", "text/plain"),),
    network=(NetworkDecision("example.org", 443, allowed=True, reason="listed"),),
)
ORIGIN = events.Origin(app="app", user="u", session="s", invocation="i", agent="a", call="c")

VALUES: dict[str, Any] = {
    "policy": SandboxPolicy(),
    "policy with everything": SandboxPolicy(
        network=Network.allow("example.org"),
        env={"A": "b"},
        inherit_env=("C",),
        extra_ro=("/opt",),
        python="/usr/bin/x",
    ),
    "resolved policy": resolve_policy({"env": {"A": "b"}}, {"wall_seconds": 3}),
    **{f"preset {name}": policy for name, policy in PRESETS.items()},
    "request": ExecutionRequest(("true",)),
    "request with everything": ExecutionRequest(
        ("python", "x.py"),
        SandboxPolicy(network="none"),
        env={"A": "b"},
        stdin=b"in",
        mounts=(ReadOnlyMount(Path("/a")),),
        input_files=(InputFile("a", b"b"),),
        workspace=Path("/w"),
        cwd=PurePosixPath("/work/a"),
        share=("u", "s"),
    ),
    "result": RESULT,
    "report": REPORT,
    "output": OutputEvent("stdout", b"x"),
    "sample": ResourceSample(0.1, 2, 0.3, 4, None),
    "end": EndEvent(RESULT),
    "script finished": events.ScriptStarted(origin=ORIGIN, skill="weather", script="scripts/a.py"),
    "discovered": events.SkillDiscovered.of(ORIGIN, "list", ["a", "b"]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_survives_pickle_and_copies_and_equals_itself(name: str) -> None:
    value = VALUES[name]
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(value, protocol))
        assert (type(again), again) == (type(value), value)
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert dataclasses.replace(value) == value
    first = dataclasses.fields(value)[0].name
    assert value != object()
    assert getattr(value, first) == getattr(copy.deepcopy(value), first)


# A dataclass with slots is made anew by its decorator, and the class before that is a subclass, too.
KINDS = sorted({one.__name__ for one in events.SkillEvent.__subclasses__()})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_event_can_travel(kind: str) -> None:
    event: type[events.SkillEvent] = getattr(events, kind)
    wanted = {
        one.name: "x" if one.type in {"str", str} else 1
        for one in dataclasses.fields(event)
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    }
    made = event(**wanted)
    assert pickle.loads(pickle.dumps(made)) == made
    assert copy.deepcopy(made) == made


def test_policies_that_say_the_same_are_equal_however_they_were_made() -> None:
    assert SandboxPolicy(env={"A": "b"}) == resolve_policy({"env": {"A": "b"}})
    assert SandboxPolicy(network="none") == PRESETS["default"]
    assert SandboxPolicy(env={"A": "b"}) != SandboxPolicy(env={"A": "c"})
    assert len({SandboxPolicy(env={"A": "b"}), SandboxPolicy(env={"A": "b"}), SandboxPolicy()}) == 2


def test_a_policy_keeps_the_variables_it_was_given() -> None:
    given = {"A": "b"}
    policy = SandboxPolicy(env=given)
    given["A"] = "changed"
    assert dict(policy.env) == {"A": "b"}
    with pytest.raises(TypeError):
        policy.env["A"] = "changed"  # type: ignore[index]


def test_a_secret_stays_where_it_is() -> None:
    policy = SandboxPolicy(env={"KEY": Secret("hunter2-hunter2")})
    assert copy.deepcopy(policy) == policy
    with pytest.raises(TypeError, match="A Secret cannot be pickled"):
        pickle.dumps(policy)


def test_a_frozen_mapping_is_a_mapping() -> None:
    mapping: Mapping[str, int] = FrozenMapping({"a": 1})
    assert (mapping["a"], list(mapping), len(mapping), repr(mapping)) == (1, ["a"], 1, "{'a': 1}")
    assert mapping == {"a": 1}
    assert {**mapping, "b": 2} == {"a": 1, "b": 2}
    assert not FrozenMapping()


def _run(request: ExecutionRequest) -> ExecutionResult:
    import asyncio

    async def once() -> ExecutionResult:
        sandbox = local_sandbox()
        try:
            return await sandbox.run(request)
        finally:
            await sandbox.close()

    return asyncio.run(once())


def test_a_run_can_be_sent_to_another_process_and_its_result_back() -> None:
    request = ExecutionRequest(("sh", "-c", "echo there; echo x > made.txt"), SandboxPolicy(network="none"))
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        result = pool.submit(_run, request).result(timeout=60)
    assert (result.status, result.stdout, [file.path for file in result.files]) == (Status.OK, b"there\n", ["made.txt"])
