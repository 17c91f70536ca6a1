"""An engine that dies, comes back, or has no room: typed errors in seconds, then recovery; nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import time
from collections.abc import Iterator

import pytest

import container_engines
from adk_skills_agent.errors import CleanupFailed, EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from container_engines import StartedEngine, owned

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
