"""The conformance suite's registry: every backend that ships is an entry of ``BACKENDS`` and passes every row.

A test names the attack row of SANDBOX.md section 3 it covers. ``@pytest.mark.level("landlock")`` says that a row
holds from that level up; without the mark it holds for all.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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


@dataclass(frozen=True)
class Backend:
    """One way to run. ``require`` skips or fails the test when it cannot run on this machine."""

    name: str
    level: IsolationLevel
    make: Callable[[], Sandbox]
    require: Callable[[], None] = lambda: None
    slots: bool = False  # every run of the fixture ``box`` uses a sandbox that was started before it
    forked: bool = False  # every sandbox of it is made by the zygote; else none is


def _local() -> Sandbox:
    from adk_skills_agent.sandbox.local import local_sandbox

    return local_sandbox()


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
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "level(name): the row holds from this isolation level up")


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    mark = request.node.get_closest_marker("level")
    if mark is not None and chosen.level.strength < IsolationLevel(mark.args[0]).strength:
        pytest.skip(f"holds from level {mark.args[0]} up; {chosen.name} is {chosen.level.value}")
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
        return await self.sandbox.run(self.request(*argv, **settings))

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
    if backend.level.strength < IsolationLevel.NAMESPACES.strength:
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
def box(backend: Backend, tmp_path: Path, nothing_left: None, maker: None, monkeypatch: pytest.MonkeyPatch) -> Box:
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
    return Box(
        backend.make(),
        skill,
        {"isolation": backend.level.value, "min_isolation": backend.level.value, "wall_seconds": 20.0},
    )


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
