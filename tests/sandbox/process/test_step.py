"""Whatever goes wrong inside the sandbox is a SandboxError that names the step; what has a type already keeps it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from adk_skills_agent.errors import ConfigError, SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local import sandbox as course
from adk_skills_agent.sandbox.local.levels import base
from adk_skills_agent.sandbox.local.levels.base import LocalRun
from adk_skills_agent.sandbox.threads import Step

pytestmark = pytest.mark.filterwarnings("ignore::adk_skills_agent.errors.SecurityWarning")
POLICY = SandboxPolicy(isolation="process", min_isolation="process")


def overflow(*_: object, **__: object) -> object:
    raise OverflowError("int too large for /home/somebody")


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        (course, "choose", "choose an isolation level"),
        (LocalRun, "_prepare_and_spawn", "prepare the run"),
        (course, "Supervision", "watch the command"),
        (base, "end_run", "end the run"),
        (base, "drain", "end the run"),
        (base, "reap_adopted", "end the run"),
        (base, "collect", "end the run"),
    ],
)
def test_an_unforeseen_exception_names_the_step_and_no_path_and_leaves_nothing(
    owner, name, said, monkeypatch, caplog, nothing_left
):
    sandbox = local_sandbox()
    short = replace(POLICY, wall_seconds=0.3, term_grace_seconds=0.0)
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(owner, name, overflow)
        with pytest.raises(SandboxError, match=f"could not {said}: an unexpected OverflowError") as caught:
            asyncio.run(sandbox.run(ExecutionRequest(("sh", "-c", "exec >&- 2>&-; exec sleep 100"), short)))
    assert "somebody" not in caught.value.message
    assert any(record.exc_info for record in caplog.records)
    assert asyncio.run(sandbox.run(ExecutionRequest(("sh", "-c", "exit 0"), POLICY))).status == "ok"


@pytest.mark.parametrize("error", [ConfigError("a setting"), asyncio.CancelledError(), UserWarning("said"), KeyError()])
def test_what_means_something_passes_a_step(error):
    with pytest.raises(type(error)), Step("be ready", KeyError):
        raise error


def test_a_listeners_own_exception_comes_out_as_it_is():
    request = ExecutionRequest(("sh", "-c", "echo x"), POLICY, on_output=overflow)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        asyncio.run(local_sandbox().run(request))


def test_an_interpreter_that_is_not_there_is_named_without_its_folder():
    policy = SandboxPolicy(python="/somewhere/of/the/owner/python9")
    with pytest.raises(ConfigError, match="'python9'") as caught:
        asyncio.run(local_sandbox().run(ExecutionRequest(("sh", "-c", "exit 0"), policy)))
    assert "/somewhere" not in caught.value.message
    assert caught.value.__notes__ == ["On the host: /somewhere/of/the/owner/python9"]
