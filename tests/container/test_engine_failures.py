"""An engine that dies, comes back, or has no room: typed errors in seconds, then recovery; nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import subprocess
import time
from collections.abc import Iterator

import pytest

import container_engines
from adk_skills_agent.errors import CleanupFailed, EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.container.removals import containers, labels
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from container_engines import StartedEngine, client, owned

docker = pytest.importorskip("docker")
pytestmark = [
    pytest.mark.slow,
    # The SDK leaves a socket to the collector when nobody listens at its other end.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
HELLO = ExecutionRequest(("echo", "hello"), SandboxPolicy(warm_slots=0))


@pytest.fixture(params=container_engines.ENGINES)
def own_engine(request: pytest.FixtureRequest) -> Iterator[StartedEngine]:
    with container_engines.private(request.param) as engine:
        yield engine
    gc.collect()  # those sockets, here and not in another test


async def test_an_engine_that_is_killed_is_a_typed_error_and_then_forgotten(own_engine: StartedEngine) -> None:
    box = ContainerSandbox(own_engine.image, base_url=own_engine.url)
    assert (await box.run(HELLO)).stdout == b"hello\n"
    began = asyncio.Event()
    request = ExecutionRequest(
        ("sh", "-c", "echo begun; sleep 20"), SandboxPolicy(warm_slots=0), on_output=lambda *_: began.set()
    )
    running = asyncio.create_task(box.run(request))
    async with asyncio.timeout(60):
        await began.wait()
    own_engine.kill()
    asked = time.monotonic()
    with pytest.raises(SandboxError):
        await running
    with pytest.raises(SandboxError) as caught:
        await box.run(HELLO)
    assert isinstance(caught.value, (EngineUnavailable, CleanupFailed))
    assert time.monotonic() - asked < 60
    own_engine.restart()
    await box.reinitialize()
    assert box.healthy
    assert (await box.run(HELLO)).stdout == b"hello\n"
    await box.close()
    assert owned(own_engine) == []


async def test_an_engine_whose_disk_is_full_is_said(own_engine: StartedEngine) -> None:
    assert own_engine.folder is not None
    place = own_engine.folder / ("root" if own_engine.name == "podman" else "data")
    box = ContainerSandbox(own_engine.image, base_url=own_engine.url)
    assert (await box.run(HELLO)).status is Status.OK
    with small_disk(own_engine, str(place)) as full:
        if not full:
            pytest.skip("needs the right to mount a small file system")
        with pytest.raises(SandboxError) as caught:
            await box.run(HELLO)
        assert any(word in caught.value.message for word in ("disk is full", "read-only", "no image", "could not"))
    with contextlib.suppress(SandboxError):
        await box.close()


async def test_a_container_podman_was_removing_when_it_was_killed_keeps_nobody_from_working() -> None:
    """Podman 4.3 does not list anything any more then."""
    with container_engines.private("podman") as engine:
        assert engine.folder is not None
        with contextlib.closing(client(engine)) as found:
            made = [
                found.containers.create(engine.image, ["true"], labels=labels(), network_mode="none").id
                for _ in range(2)
            ]
        engine.kill()
        (kept,) = (engine.folder / "root").glob("*-containers/containers.json")
        kept.write_text(json.dumps([one for one in json.loads(kept.read_text()) if one["id"] not in made]))
        engine.restart()
        with contextlib.closing(client(engine)) as found, pytest.raises(docker.errors.APIError, match="not known"):
            found.api.containers(all=True)
        box = ContainerSandbox(engine.image, base_url=engine.url)
        assert (await box.run(HELLO)).stdout == b"hello\n"
        await box.close()
        assert owned(engine) == []
    gc.collect()


class Listing:
    """An engine that lists when it has said often enough that it does not know a container of its own."""

    def __init__(self, *refusals: str) -> None:
        self.refusals = list(refusals)
        self.removed: list[str] = []

    @property
    def api(self) -> Listing:
        return self

    def containers(self, **_: object) -> list[dict[str, str]]:
        if self.refusals:
            raise docker.errors.APIError("500", explanation=self.refusals.pop(0))
        return [{"Id": "there"}]

    def remove_container(self, name: str, **_: object) -> None:
        self.removed.append(name)


@pytest.mark.parametrize(("times", "removed"), [(1, 0), (2, 1), (4, 3)])
def test_a_container_the_engine_does_not_get_over_is_removed_unless_it_is_just_at_it(times: int, removed: int) -> None:
    one, other = "a" * 64, "b" * 64
    said = 'getting container from store "{}": container not known'
    engine = Listing(*[said.format(one)] * times, said.format(other))
    assert containers(engine, {"label": "x"}) == [{"Id": "there"}]  # type: ignore[arg-type]
    assert engine.removed == [one] * removed


@pytest.mark.parametrize("said", ["disk", 'getting container from store "{}": container not known'.format("a" * 64)])
def test_what_an_engine_says_again_and_again_comes_out(said: str) -> None:
    with pytest.raises(docker.errors.APIError, match=said[:20]):
        containers(Listing(*[said] * 100), {"label": "x"})  # type: ignore[arg-type]


@contextlib.contextmanager
def small_disk(engine: StartedEngine, place: str) -> Iterator[bool]:
    """Let the engine's folders for new containers have no room."""
    where = {"podman": ("overlay-containers", "overlay"), "docker": ("containers",)}[engine.name]
    mounted = []
    for name in where[:1]:
        target = f"{place}/{name}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2", "tmpfs", target], capture_output=True, check=False
        )
        if done.returncode == 0:
            mounted.append(target)
    try:
        yield bool(mounted)
    finally:
        for target in mounted:
            subprocess.run(["umount", "-l", target], check=False, capture_output=True)
