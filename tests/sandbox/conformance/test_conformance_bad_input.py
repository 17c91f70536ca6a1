"""Bad input is refused with a typed error before anything starts; a sandbox that fails says at which step (row 73).

The sentences of issue 3, "Bad input", one after the other. How a model's call is refused is in tests/scripts
(``InvalidArguments``, ``ScriptNotFound``); here it is the request to the sandbox.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import psutil
import pytest

from adk_skills_agent.errors import ConfigError, SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import ExecutionRequest, InputFile, Network, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.policy import resolve_policy

pytestmark = pytest.mark.host_side


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""


@pytest.fixture
def nothing_started(tmp_path: Path, private_tmp: Path):
    """A workspace that shows when something ran in it; after the test it is as before."""
    workspace = tmp_path / "lasting"
    workspace.mkdir()
    (workspace / "before").write_text("as it was")
    children = {child.pid for child in psutil.Process().children()}
    yield workspace
    assert [path.name for path in workspace.iterdir()] == ["before"]
    assert list(private_tmp.iterdir()) == []
    # What backends keep ready is of no run; it does not have the run's command line.
    new = [child for child in psutil.Process().children() if child.pid not in children]
    assert [child for child in new if "touch" in command_line(child)] == []


TOUCH = ("bash", "-c", "touch started")


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param((*TOUCH, "a\0b"), id="a NUL"),
        pytest.param((*TOUCH, "\ud800"), id="a lone surrogate"),
        pytest.param((*TOUCH, "x" * (1 << 20)), id="one argument too long"),
        pytest.param((*TOUCH, *["x" * 100_000] * 64), id="arguments too long together"),
        pytest.param(("to\0uch", "started"), id="a NUL in the command"),
        pytest.param((), id="no command"),
    ],
)
async def test_arguments_no_process_can_get_are_refused(box, nothing_started, argv):
    with pytest.raises(ValueError, match=r"\.$") as caught:
        await box.run(*argv, workspace=nothing_started)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a\0b", "", ".", "x" * 5000, "\ud800"])
async def test_an_input_file_outside_of_the_workspace_is_refused(box, nothing_started, path):
    with pytest.raises(ValueError, match=r"\.$"):
        await box.run(*TOUCH, workspace=nothing_started, input_files=(InputFile(path, b""),))


@pytest.mark.parametrize("cwd", ["/etc", "/work/../etc", "/", "/skill/../root", "/work/a\0b"])
async def test_a_working_directory_outside_of_workspace_and_skill_is_refused(box, nothing_started, cwd):
    with pytest.raises((ValueError, SandboxError)) as caught:
        await box.run(*TOUCH, workspace=nothing_started, cwd=PurePosixPath(cwd))
    assert str(caught.value).endswith(".")


async def test_a_skill_that_is_not_there_is_refused(box, nothing_started, tmp_path):
    missing = ReadOnlyMount(tmp_path / "nowhere")
    with pytest.raises((ValueError, SandboxError)) as caught:
        await box.run(*TOUCH, workspace=nothing_started, mounts=(missing,))
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"wall_seconds": -1}, {"wall_seconds": float("nan")}, {"memory_bytes": -1}, {"pids": 0}, {"open_files": 0}),
        *({"output_bytes": -1}, {"file_bytes": -5}, {"workspace_inodes": -1}, {"max_files": -1}, {"run_as": -1}),
        *({"term_grace_seconds": -0.5}, {"drain_seconds": -1}, {"output_flood_bytes": "1M"}, {"tmp_bytes": 1.5}),
        *({"isolation": "docker"}, {"network": Network("internet")}, {"network": Network("allow", ())}),
        *({"network": Network.allow("a b")}, {"network": Network.allow("example.org", ports=(0,))}),
    ],
    ids=str,
)
async def test_limits_that_cannot_be_are_refused(box, nothing_started, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong)).split("_", maxsplit=1)[0]):
        await box.run(*TOUCH, workspace=nothing_started, **wrong)


def test_a_setting_that_does_not_exist_is_refused():
    """More about the files and the layers: test_policy.py, test_policy_file.py."""
    with pytest.raises(ConfigError, match="does not exist"):
        resolve_policy({"wall_secs": 3})
    with pytest.raises(TypeError):
        SandboxPolicy(wall_secs=3)  # type: ignore[call-arg]


async def test_a_policy_that_cannot_be_met_is_refused_with_the_reason(box, backend, nothing_started):
    """Row 72: never silently weaker."""
    weaker = SandboxPolicy(isolation="process", min_isolation="landlock")
    with pytest.raises(SandboxUnavailable, match="weaker") as caught:
        await box.sandbox.run(ExecutionRequest(TOUCH, weaker, workspace=nothing_started))
    assert caught.value.reasons
    if backend.name == "landlock":
        with pytest.raises(SandboxUnavailable, match="network namespace"):
            await box.run(*TOUCH, workspace=nothing_started, network=Network.loopback())


async def test_a_sandbox_that_fails_is_an_error_with_its_step_and_no_result(
    box, nothing_started, tmp_path, monkeypatch
):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder for copies of skills should be")
    monkeypatch.setenv("ADK_SKILLS_SANDBOX_CACHE", str(blocked / "skills"))
    (box.skill / "new.txt").write_text(os.urandom(8).hex())
    with pytest.raises(SandboxError, match="skill cache cannot be made") as caught:
        await box.run(*TOUCH, workspace=nothing_started)
    assert not isinstance(caught.value, SandboxUnavailable)
    assert caught.value.message.endswith(".")
