"""The conformance suite's registry: every backend that ships is an entry of ``BACKENDS`` and passes every row.

A test names the attack row of SANDBOX.md section 3 it covers. ``@pytest.mark.level("landlock")`` says that a row
holds from that level up; without the mark it holds for all. ``@pytest.mark.local("why")`` marks rows about this
machine's own levels, which say nothing about a container.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import backend_matrix
import container_engines
import level_table
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    ReadOnlyMount,
    Sandbox,
    SandboxPolicy,
)
from adk_skills_agent.sandbox.local import zygote_control
from adk_skills_agent.sandbox.local.own_folder import own_folder


@dataclass(frozen=True)
class Backend:
    """One way to run. ``require`` skips or fails the test when it cannot run on this machine."""

    name: str
    level: IsolationLevel
    make: Callable[[], Sandbox]
    require: Callable[[], None] = lambda: None
    slots: bool = False  # every run of the fixture ``box`` uses a sandbox that was started before it
    forked: bool = False  # every sandbox of it is made by the zygote; else none is
    is_local: bool = True  # this machine contains its runs itself
    is_elsewhere: bool = False  # what contains them there is not ours, and on loopback not there at all


def _local() -> Sandbox:
    from adk_skills_agent.sandbox.local import local_sandbox

    return local_sandbox()


def _in(engine: str, runtime: str | None = None) -> Sandbox:
    from adk_skills_agent.sandbox.container import ContainerOptions, ContainerSandbox

    found = container_engines.shared(engine)
    return ContainerSandbox(found.image, base_url=found.url, options=ContainerOptions(runtime=runtime))


def _require_gvisor() -> None:
    problem = container_engines.missing("runsc")
    if problem is not None:
        pytest.skip(problem)
    container_engines.require("podman")


def _container(name: str, make: Callable[[], Sandbox], require: Callable[[], object]) -> Backend:
    return Backend(f"container-{name}", IsolationLevel.CONTAINER, make, lambda: void(require()), is_local=False)


@functools.cache
def _cluster() -> Any:
    from loopback_cluster import Cluster

    made = Cluster()
    atexit.register(made.close)
    return made


def _pods() -> Sandbox:
    made: Sandbox = _cluster().sandbox()
    return made


def _service() -> Sandbox:
    from adk_skills_agent.executors import remote_sandbox
    from remote_services import ElsewhereEnvironment

    return remote_sandbox(ElsewhereEnvironment(Path(tempfile.mkdtemp(prefix="elsewhere-", dir=_SERVICES))))


_SERVICES, _ = own_folder("services", _local)


def void(_value: object) -> None:
    """Nothing, whatever it was."""


LOCAL_LEVELS = ("cgroup", "namespaces", "landlock", "seccomp", "process")
BACKENDS = (
    *(
        Backend(name, IsolationLevel(name), _local, functools.partial(level_table.require, name))
        for name in LOCAL_LEVELS
    ),
    *(
        Backend(
            f"{name}-{variant}",
            IsolationLevel(name),
            _local,
            functools.partial(level_table.require, name),
            slots=variant == "slots",
            forked=True,
        )
        for name, variant in (("cgroup", "zygote"), ("namespaces", "zygote"), ("namespaces", "slots"))
    ),
    *(
        _container(engine, functools.partial(_in, engine), functools.partial(container_engines.require, engine))
        for engine in container_engines.ENGINES
    ),
    _container("gvisor", functools.partial(_in, "podman", "runsc"), _require_gvisor),
    Backend(
        "kubernetes",
        IsolationLevel.CONTAINER,
        _pods,
        functools.partial(level_table.require, "namespaces"),
        is_local=False,
        is_elsewhere=True,
    ),
    Backend("remote", IsolationLevel.REMOTE, _service, is_local=False, is_elsewhere=True),
)


OURS_ELSEWHERE = frozenset(
    {"test_conformance_bad_input", "test_conformance_files", "test_conformance_invocation", "test_supported_profile"}
)
"""What this package does on other machines; memory, disk and what ends with a cancelled run are theirs."""
NOT_ELSEWHERE = {
    "test_row_42_output_is_read_only_after_every_writer_is_dead": "left-over processes are not counted",
    "test_a_hard_link_to_elsewhere_keeps_the_earlier_version_and_says_so": "hard links are the place's",
    "test_row_50_a_script_whose_interpreter_is_missing_cannot_be_started": "the reason is the place's",
    "test_a_persistent_workspace_is_kept_after_a_timeout_and_never_outgrows_its_limit": "the place's disk",
    "test_a_script_inside_the_profile_behaves_the_same_at_every_level": "packages are the place's",
    "test_a_policy_is_met_exactly_or_refused_with_reasons": "there are no levels to choose from",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "level(name): the row holds from this isolation level up")
    config.addinivalue_line("markers", "local(why): the row is about this machine's own levels")


SLOW = frozenset({"cgroup", "namespaces-zygote", "namespaces-slots"})
"""In `make test` each level has one way of being made, and both ways are there: bubblewrap at namespaces, the zygote at
cgroup, what a root agent and a plain user get first. All others are in `make test-slow`."""


@pytest.fixture(
    params=[
        pytest.param(one, marks=() if one.is_local and one.name not in SLOW else pytest.mark.slow, id=one.name)
        for one in BACKENDS
    ]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    told: dict[str, Any] = {
        "backend": chosen.name,
        "test": f"{request.module.__name__}::{request.function.__name__}",
        "applies": False,
        "setup_ms": [],
    }
    request.node.user_properties.append((backend_matrix.PROPERTY, told))
    mark = request.node.get_closest_marker("level")
    if mark is not None and chosen.level.strength < IsolationLevel(mark.args[0]).strength:
        pytest.skip(f"holds from level {mark.args[0]} up; {chosen.name} is {chosen.level.value}")
    if chosen.is_elsewhere and (
        mark is not None or request.module.__name__ not in OURS_ELSEWHERE or request.function.__name__ in NOT_ELSEWHERE
    ):
        why = NOT_ELSEWHERE.get(request.function.__name__, "the place's own")
        pytest.skip(f"{chosen.name}: {why}")
    own = request.node.get_closest_marker("local")
    if own is not None and not chosen.is_local:
        pytest.skip(f"about this machine's own levels: {own.args[0]}")
    told["applies"] = True
    chosen.require()
    return chosen


LATE_SECONDS = 1.5
"""How late a limit may strike on a loaded machine; row 2 of the table wants 0.3 s on an idle one."""


@dataclass
class Box:
    """Runs attacks: real scripts of a skill, mounted at /skill, under a policy of the backend's level."""

    sandbox: Sandbox
    skill: Path
    policy: dict[str, object]
    setup_ms: list[float] = field(default_factory=list)
    _count: int = field(default=0)

    @property
    def has_own_file_system(self) -> bool:
        """The workspace is a file system of its limited size: full is an error in the script, not a stop of the run."""
        return IsolationLevel(str(self.policy["isolation"])).strength >= IsolationLevel.NAMESPACES.strength

    def script(self, code: str | bytes, suffix: str = ".py", name: str | None = None) -> str:
        """Write a script into the skill; its path in the sandbox."""
        self._count += 1
        path = self.skill / "scripts" / (name or f"attack_{self._count}{suffix}")
        path.write_bytes(code if isinstance(code, bytes) else code.encode())
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return f"/skill/scripts/{path.name}"

    def request(self, *argv: str, **settings: object) -> ExecutionRequest:
        """A request; settings that are fields of the policy go there, the others into the request."""
        policy = dict(self.policy)
        rest = {}
        for key, value in settings.items():
            (policy if key in SandboxPolicy.__dataclass_fields__ and key != "env" else rest)[key] = value
        rest.setdefault("mounts", (ReadOnlyMount(self.skill),))
        return ExecutionRequest(argv=argv, policy=SandboxPolicy(**policy), **rest)  # type: ignore[arg-type]

    async def run(self, *argv: str, **settings: object) -> ExecutionResult:
        result = await self.sandbox.run(self.request(*argv, **settings))
        self.setup_ms.append(result.setup_ms)
        return result

    def assert_on_time(self, result: ExecutionResult, seconds: float) -> None:
        """The command ended when its deadline, with the grace, says: not before ``seconds`` and not much later."""
        assert seconds * 1000 - 50 < result.wall_ms < (seconds + LATE_SECONDS) * 1000

    async def python(self, code: str | bytes, *args: str, **settings: object) -> ExecutionResult:
        return await self.run("python3", self.script(code), *args, **settings)

    async def bash(self, code: str | bytes, *args: str, **settings: object) -> ExecutionResult:
        return await self.run("bash", self.script(code, ".sh"), *args, **settings)


@pytest.fixture
def maker(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes are all forked, or all made by bubblewrap; both happen in one process otherwise."""
    if not backend.is_local or backend.level.strength < IsolationLevel.NAMESPACES.strength:
        return
    from adk_skills_agent.sandbox.local import zygote_life

    ready = zygote_life.ZygoteLife.ready

    def at_once(life: zygote_life.ZygoteLife, uid: int | None) -> zygote_control.Zygote:
        found = ready(life, uid)
        if found is None:
            assert life.wait(20.0), "no zygote can be started here"
            found = ready(life, uid)
        assert found is not None
        return found

    if backend.forked:
        monkeypatch.setattr(zygote_life, "_FIRST_OF_USE", 1)
        monkeypatch.setattr(zygote_life.ZygoteLife, "ready", at_once)
        monkeypatch.setattr(zygote_life.ZygoteLife, "_failed", _refuse)
    else:
        monkeypatch.setattr(zygote_life.ZygoteLife, "ready", lambda _life, _uid: None)


def _refuse(_life: object, _zygote: object, error: Exception) -> None:
    raise AssertionError("bubblewrap made a sandbox that should have been forked") from error


@pytest.fixture
def box(
    request: pytest.FixtureRequest,
    backend: Backend,
    tmp_path: Path,
    nothing_left: None,
    maker: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Box]:
    if backend.slots:
        from adk_skills_agent.sandbox.local import sandbox, slots

        async def keeps_slots() -> bool:
            return True

        # Made the moment it is needed: the same sandbox and the same job, without the wait for an idle one.
        monkeypatch.setattr(slots.SlotPool, "take", lambda _pool, key, _wanted, **_: key.make())
        monkeypatch.setattr(sandbox, "keeps_slots", keeps_slots)
    skill = tmp_path / "skill"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: skill\ndescription: attacks\n---\n")
    sandbox = backend.make()
    yield Box(
        sandbox,
        skill,
        {"isolation": backend.level.value, "min_isolation": backend.level.value, "wall_seconds": 20.0},
        dict(request.node.user_properties)[backend_matrix.PROPERTY]["setup_ms"],
    )
    if not backend.is_local:
        asyncio.run(sandbox.close())


Run = Callable[..., Awaitable[ExecutionResult]]


@pytest.fixture
def agent_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose own environment is full of what must not get through."""
    for name, value in {
        "GOOGLE_API_KEY": "hunter2",
        "PYTHONPATH": "/hunter2",
        "BASH_ENV": "/hunter2",
        "ENV": "/hunter2",
        "IFS": "hunter2",
        "PYTHONSTARTUP": "/hunter2",
        "NODE_OPTIONS": "hunter2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"/hunter2:{os.environ['PATH']}")
