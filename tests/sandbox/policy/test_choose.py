"""Which sandbox runs scripts, and that nothing weaker is ever taken instead (issue 5, attack row 72)."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError, EngineUnavailable, SandboxUnavailable
from adk_skills_agent.sandbox.choose import DEFAULT, SANDBOX_NAMES, AutoSandbox, choose_sandbox, sandbox_of
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local.sandbox import LocalSandbox
from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
from adk_skills_agent.sandbox.remote.kubernetes import KubernetesSandbox


class Place(Sandbox):
    """A backend of one level; ``reason`` is why it refuses everything."""

    def __init__(self, name: str, level: str, reason: str | None = None) -> None:
        self.name = name
        self.level = IsolationLevel(level)
        self.reason = reason
        self.ran: list[SandboxPolicy] = []
        self.closed = 0

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        policy = request.policy
        if self.reason is not None:
            raise SandboxUnavailable(f"{self.name} cannot: {self.reason}.", (f"{self.name}: {self.reason}",))
        if IsolationLevel(policy.min_isolation).strength > self.level.strength:
            raise SandboxUnavailable(f"{self.name} is too weak.", (f"{self.level.value}: weaker than wanted",))
        self.ran.append(policy)
        return ExecutionResult(Status.OK, 0, IsolationReport(self.level, {}))

    async def probe(self) -> IsolationReport:
        if self.reason is not None:
            raise SandboxUnavailable(f"{self.name} cannot: {self.reason}.", (f"{self.name}: {self.reason}",))
        return IsolationReport(self.level, {})

    async def close(self) -> None:
        self.closed += 1


def auto(monkeypatch: pytest.MonkeyPatch, local: Place, container: Place) -> AutoSandbox:
    monkeypatch.setattr("adk_skills_agent.sandbox.local.local_sandbox", lambda: local)
    monkeypatch.setattr("adk_skills_agent.sandbox.container.ContainerSandbox", lambda: container)
    return AutoSandbox()


def asking(**policy: object) -> ExecutionRequest:
    return ExecutionRequest(("true",), SandboxPolicy(**policy))  # type: ignore[arg-type]


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    return path


FILE = '[tool.adk-skills]\nsandbox = "container"\n'


@pytest.mark.parametrize(
    ("call", "code", "variable", "file", "name", "source"),
    [
        ("local", "container", "kubernetes", True, "local", "the option --sandbox"),
        (None, "container", "kubernetes", True, "container", "the argument sandbox="),
        (None, None, "kubernetes", True, "kubernetes", "the environment variable ADK_SKILLS_SANDBOX"),
        (None, None, "", True, "container", "the file"),
        (None, None, None, False, DEFAULT, "default"),
    ],
)
def test_the_first_place_that_names_one_decides(tmp_path, call, code, variable, file, name, source):
    """Call, code, environment, file, default."""
    environ = {} if variable is None else {"ADK_SKILLS_SANDBOX": variable}
    path = config(tmp_path, FILE) if file else None
    chosen = choose_sandbox(call, code, file=path, environ=environ)
    assert (chosen.name, chosen.source.startswith(source)) == (name, True)


def test_each_name_is_its_backend_and_making_it_touches_nothing(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    made = {name: type(choose_sandbox(name).sandbox) for name in SANDBOX_NAMES}
    assert made == {
        "auto": AutoSandbox,
        "local": LocalSandbox,
        "container": ContainerSandbox,
        "kubernetes": KubernetesSandbox,
        "ray": RaySandbox,
    }


def test_an_object_is_taken_as_it_is():
    place = Place("mine", "remote")
    assert sandbox_of(place) is place
    chosen = choose_sandbox(code=place, environ={"ADK_SKILLS_SANDBOX": "local"})
    assert (chosen.sandbox, chosen.name) == (place, "mine")


def test_the_file_of_the_variable_is_read_and_no_other(tmp_path, monkeypatch):
    path = config(tmp_path, FILE)
    monkeypatch.chdir(tmp_path)
    assert choose_sandbox(environ={}).name == DEFAULT  # the pyproject.toml somebody stands next to is nobody's word
    assert choose_sandbox(environ={"ADK_SKILLS_CONFIG": str(path)}).name == "container"
    path.write_text("[tool.adk-skills.policy]\nwall_seconds = 3\n")
    assert choose_sandbox(environ={"ADK_SKILLS_CONFIG": str(path)}).name == DEFAULT


@pytest.mark.parametrize(
    ("environ", "text", "said"),
    [
        ({"ADK_SKILLS_SANDBOX": "contaner"}, None, "ADK_SKILLS_SANDBOX.*Did you mean 'container'"),
        ({}, '[tool.adk-skills]\nsandbox = "docker"\n', "'docker'.*pyproject.toml.*Did you mean 'container'"),
        ({}, "[tool.adk-skills]\nsandbox = 3\n", "no sandbox 3"),
        ({}, '[tool.adk-skills]\nsandbx = "local"\n', "has no setting 'sandbx'. Did you mean 'sandbox'"),
        ({}, '[tool.adk-skills]\nSandbox = "local"\n', "has no setting 'Sandbox'. Did you mean 'sandbox'"),
        (
            {},
            '[tool.adk-skills]\nexecutor = "container"\n',
            "no setting 'executor'. It has permissions, policy, sandbox",
        ),
        ({}, '[tool.adk-skills.policy]\nsandbox = "container"\n', r"under \[tool.adk-skills.policy\]. Move it up"),
        ({}, "[tool", "cannot be read"),
        ({"ADK_SKILLS_CONFIG": "/nowhere/x.toml"}, None, "/nowhere/x.toml cannot be read: No such file"),
        ({"ADK_SKILLS_CONFIG": "/nowhere/x.yaml"}, None, "must be a .toml file"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path, environ, text, said):
    file = None if text is None else config(tmp_path, text)
    with pytest.raises(ConfigError, match=said):
        choose_sandbox(file=file, environ=environ)


def test_a_file_that_was_named_for_nothing_but_this_must_have_the_table(tmp_path):
    path = config(tmp_path, '[tool.adk_skills]\nsandbox = "container"\n')
    with pytest.raises(ConfigError, match=r"has no table \[tool.adk-skills\]"):
        choose_sandbox(environ={"ADK_SKILLS_CONFIG": str(path)})
    assert (
        choose_sandbox(file=path, environ={}).name == DEFAULT
    )  # a policy file may have none: it is read for its policy


async def test_row_72_auto_takes_this_machine_where_it_meets_the_policy(monkeypatch):
    local, container = Place("local", "landlock"), Place("container", "container")
    result = await auto(monkeypatch, local, container).run(asking())
    assert (result.isolation.level, result.isolation.reasons, container.ran) == (IsolationLevel.LANDLOCK, (), [])


async def test_row_72_auto_takes_a_container_where_this_machine_refuses_and_says_why(monkeypatch):
    local, container = Place("local", "process"), Place("container", "container")
    result = await auto(monkeypatch, local, container).run(asking())
    assert result.isolation.level is IsolationLevel.CONTAINER
    assert result.isolation.reasons == ("local: process: weaker than wanted",)


async def test_row_72_auto_refuses_with_the_reasons_of_both(monkeypatch):
    sandbox = auto(monkeypatch, Place("local", "process"), Place("container", "container", "no engine"))
    with pytest.raises(SandboxUnavailable, match=r"local is too weak\. No container either") as refused:
        await sandbox.run(asking())
    assert refused.value.reasons == ("process: weaker than wanted", "container: no engine")


async def test_row_72_auto_never_goes_below_the_policy_and_prefers_more_than_it_asks(monkeypatch):
    local, container = Place("local", "process"), Place("container", "container")
    result = await auto(monkeypatch, local, container).run(asking(min_isolation="process"))
    assert (result.isolation.level, local.ran) == (IsolationLevel.CONTAINER, [])
    alone = auto(monkeypatch, local, Place("container", "container", "no engine"))
    result = await alone.run(asking(min_isolation="process"))
    # As weak as the policy explicitly allows, and the report says why not more.
    assert result.isolation.level is IsolationLevel.PROCESS
    assert result.isolation.reasons == ("container: no engine",)
    assert local.ran[-1].min_isolation == "process"


async def test_row_72_a_named_sandbox_that_is_not_there_is_not_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    sandbox = choose_sandbox("container").sandbox
    with pytest.raises(EngineUnavailable):
        await sandbox.run(asking(min_isolation="process"))
    await sandbox.close()


async def test_the_probe_says_what_a_run_would_get_and_close_closes_both(monkeypatch):
    local, container = Place("local", "process"), Place("container", "container")
    sandbox = auto(monkeypatch, local, container)
    report = await sandbox.probe()
    assert (report.level, report.reasons) == (IsolationLevel.CONTAINER, ("local: it reaches only 'process'",))
    await sandbox.close()
    assert (local.closed, container.closed) == (1, 1)


async def test_where_nothing_can_run_on_the_system_itself_a_container_is_taken(monkeypatch):
    def windows() -> Sandbox:
        raise SandboxUnavailable("Scripts cannot be run on Windows itself.", ("Windows has no sessions",))

    container = Place("container", "container")
    monkeypatch.setattr("adk_skills_agent.sandbox.container.ContainerSandbox", lambda: container)
    monkeypatch.setattr("adk_skills_agent.sandbox.local.local_sandbox", windows)
    result = await AutoSandbox().run(asking())
    assert result.isolation.reasons == ("local: Windows has no sessions",)
    report = await AutoSandbox().probe()
    assert report.level is IsolationLevel.CONTAINER
