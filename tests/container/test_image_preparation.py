"""Looking for engine and image takes minutes, and whoever waits for it may be gone before: nothing is held up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import CleanupFailed, ImageUnavailable, SandboxError
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.container.engine import Engine, submit
from adk_skills_agent.sandbox.container.image import Ready
from adk_skills_agent.sandbox.container.removals import SANDBOX_LABEL
from adk_skills_agent.sandbox.container.volumes import Volumes
from adk_skills_agent.sandbox.contract import ExecutionRequest, ReadOnlyMount, SandboxPolicy, Status
from adk_skills_agent.sandbox.threads import acting_for
from container_engines import StartedEngine, client, owned

pytest.importorskip("docker")
TRUE = ExecutionRequest(("true",), SandboxPolicy(warm_slots=0))


@dataclass
class Registry:
    """An engine that knows no image and pulls each one without an end, or until it is let go."""

    url: str
    pulling: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)
    enough: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    path = tmp_path / "engine.sock"
    told = Registry(f"unix://{path}")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def address_string(self) -> str:
            return "agent"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, body: object, status: int = 200) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            asked = re.sub(r"^/v[\d.]+|\?.*", "", self.path)
            told.asked.append(asked)
            answers: dict[str, object] = {
                "/version": {"ApiVersion": "1.41", "Version": "1", "Components": []},
                "/info": {},
                "/containers/json": [],
                "/volumes": {"Volumes": []},
            }
            found = answers.get(asked)
            self.answer(found if found is not None else {"message": "no such image"}, 404 if found is None else 200)

        def do_POST(self) -> None:
            told.asked.append("pull")
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            told.pulling.set()
            try:
                while not told.enough.wait(0.02):
                    self.chunk(b'{"status": "Waiting"}\n')
                self.chunk(b'{"error": "the registry is closed"}\n')
                self.chunk(b"")
            except OSError:
                told.hung_up.set()
                self.close_connection = True

        def chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(path), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        yield told
        told.enough.set()
        server.shutdown()
        serving.join()


async def test_closing_while_an_image_is_pulled_hangs_up_and_tells_who_waits(registry: Registry) -> None:
    box = ContainerSandbox("image", base_url=registry.url)
    waiting = asyncio.create_task(box.run(TRUE))
    assert await asyncio.to_thread(registry.pulling.wait, 20)
    late = 0.0

    async def heartbeat() -> None:
        nonlocal late
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            late = max(late, time.monotonic() - before)

    beating = asyncio.create_task(heartbeat())
    async with asyncio.timeout(20):
        await box.close()
    with pytest.raises(SandboxError, match="closed while its engine and its image were looked for"):
        async with asyncio.timeout(20):
            await waiting
    assert await asyncio.to_thread(registry.hung_up.wait, 20)
    beating.cancel()
    assert late < 2


async def test_the_environment_names_the_image_where_the_code_names_none(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the command line nothing else does, and without a registry the image of the default cannot be had."""
    registry.enough.set()
    monkeypatch.setenv("ADK_SKILLS_CONTAINER_IMAGE", "ours")
    for image, wanted in ((None, "ours"), ("theirs", "theirs")):
        box = ContainerSandbox(image, base_url=registry.url)
        with pytest.raises(ImageUnavailable, match=f"has no image '{wanted}'"):
            await box.run(TRUE)
        assert f"/images/{wanted}/json" in registry.asked
        await box.close()


async def test_a_cancelled_run_disturbs_nobody_who_waits_for_the_same_image(registry: Registry) -> None:
    box = ContainerSandbox("image", base_url=registry.url)
    waiting = [asyncio.create_task(box.run(TRUE)) for _ in range(8)]
    assert await asyncio.to_thread(registry.pulling.wait, 20)
    for task in waiting[:4]:
        task.cancel()
    async with asyncio.timeout(20):
        gone = await asyncio.gather(*waiting[:4], return_exceptions=True)
    assert [type(one) for one in gone] == [asyncio.CancelledError] * 4
    assert not registry.hung_up.is_set()
    registry.enough.set()
    async with asyncio.timeout(20):
        said = await asyncio.gather(*waiting[4:], return_exceptions=True)
    assert [type(one) for one in said] == [ImageUnavailable] * 4
    assert all("the registry is closed" in str(one) for one in said)
    assert registry.asked.count("pull") == 1
    await box.close()


def test_an_agent_that_is_interrupted_while_an_image_is_pulled_ends_at_once(registry: Registry) -> None:
    agent = """
import asyncio, sys
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest
asyncio.run(ContainerSandbox("image", base_url=sys.argv[1]).run(ExecutionRequest(("true",))))
"""
    line = [sys.executable, "-c", agent, registry.url]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert registry.pulling.wait(30)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert "exception calling callback" not in said
    assert registry.hung_up.wait(20)


class Slow(Engine):
    """An engine that takes a skill's files only when it is let go, and refuses them then."""

    def __init__(self) -> None:
        self.url = "unix:///slow.sock"
        self.enough = threading.Event()
        self.asked = 0

    def ask_now(self, *_: object) -> Any:
        self.asked += 1
        assert self.enough.wait(60)
        raise SandboxError("refused")

    def close(self) -> None:
        pass


async def test_row_436_a_skill_that_is_being_sent_keeps_nobodys_containers_waiting(tmp_path: Path) -> None:
    """Seen: ten runs of one user waited for 700 MB, and another user's ``echo hi`` for 54 s."""
    slow, box = Slow(), ContainerSandbox("image")
    made = Volumes(slow, "image", box._token)
    box._preparation._ready = Ready(slow, "image", made, ())

    def run(user: str, name: str) -> asyncio.Task[object]:
        with acting_for((user, "session")):
            mounts = (ReadOnlyMount(tmp_path / name),)
            return asyncio.create_task(box.take_container(TRUE.policy, mounts))

    same = [run("mallory", "skill") for _ in range(10)]
    tasks = [*same, *(run("mallory", f"skill{number}") for number in range(10))]
    try:
        await asyncio.sleep(0.2)
        assert await asyncio.wait_for(submit(lambda: "answered"), 10) == "answered"
        assert slow.asked == 1
        tasks.append(run("alice", "hers"))
        async with asyncio.timeout(10):
            while slow.asked < 2:  # a user's skills leave a thread for another's
                await asyncio.sleep(0.01)
            same[5].cancel()
            with pytest.raises(asyncio.CancelledError):
                await same[5]
        assert not same[6].done()
        removing = asyncio.create_task(asyncio.to_thread(made.remove))
        await asyncio.sleep(0.1)
    finally:
        slow.enough.set()
    async with asyncio.timeout(20):
        said = [str(one) for one in await asyncio.gather(*tasks, return_exceptions=True)]
        await removing
    assert said[:5] == ["refused"] * 5
    assert said[10:] == [*["The sandbox was closed before a skill's files were sent."] * 10, "refused"]
    assert slow.asked == 3  # and once for what there is to remove


@pytest.mark.slow
async def test_two_sandboxes_of_one_agent_with_the_same_skill_do_not_take_it_from_each_other(
    engine: StartedEngine, tmp_path: Path
) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text("the same\n")
    request = ExecutionRequest(("cat", "/skill/SKILL.md"), SandboxPolicy(warm_slots=0), mounts=(ReadOnlyMount(skill),))
    boxes = [ContainerSandbox(engine.image, base_url=engine.url) for _ in range(2)]
    for box in boxes:
        assert (await box.run(request)).stdout == b"the same\n"
    await boxes[0].close()
    assert (await boxes[1].run(request)).stdout == b"the same\n"
    await boxes[1].close()
    assert volumes(engine, *boxes) == []


@pytest.mark.slow
async def test_volumes_that_were_made_before_the_engine_was_lost_go_with_the_sandbox(
    engine: StartedEngine, tmp_path: Path
) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text("text\n")
    request = ExecutionRequest(("true",), SandboxPolicy(warm_slots=0), mounts=(ReadOnlyMount(skill),))
    box = ContainerSandbox(engine.image, base_url=engine.url)
    await box.run(request)
    await box.reinitialize()
    await box.run(request)
    assert len(volumes(engine, box)) == 2
    ready = await box._preparation.ready()
    box._forget(ready)  # as when the engine did not answer
    await box.close()
    assert volumes(engine, box) == []
    await box.run(request)
    box._forget(await box._preparation.ready())
    box._preparation._wanted = type(box._preparation._wanted)(None, None, "unix:///gone.sock", None, box._token)
    with pytest.raises(CleanupFailed, match="Volumes with skills may be left"):
        await box.close()
    found = client(engine)
    try:
        for name in volumes(engine, box):
            found.api.remove_volume(name)
    finally:
        found.close()


@pytest.mark.slow
async def test_a_container_in_the_way_of_a_volume_is_removed_and_one_that_runs_is_spared(
    engine: StartedEngine, tmp_path: Path
) -> None:
    (tmp_path / "SKILL.md").write_text("text\n")
    box = ContainerSandbox(engine.image, base_url=engine.url)
    ready = await box._preparation.ready()
    made = Volumes(ready.engine, ready.image, box._token)
    name = await made.name_of(tmp_path, "0" * 64)
    user = await ready.engine.ask(lambda found: using(found, engine.image, name), "make a container")
    assert any("could not be removed" in said for said in await asyncio.to_thread(made.remove, {user}))
    assert await asyncio.to_thread(made.remove) == []
    assert volumes(engine, box) == []
    await box.close()


def using(found: Any, image: str, volume: str) -> str:
    from docker.types import Mount

    mounts = [Mount("/skill", volume, type="volume", read_only=True)]
    return str(found.containers.create(image, ["true"], mounts=mounts, network_mode="none").id)


@pytest.mark.slow
async def test_an_agent_that_gives_up_while_an_image_is_built_leaves_nothing(
    docker_engine: StartedEngine, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {docker_engine.image}\nUSER 0\nRUN echo begun; sleep 600\n")
    begun = threading.Event()
    box = ContainerSandbox(
        f"adk-skills-test-endless-{os.getpid()}",
        docker_path=str(tmp_path),
        base_url=docker_engine.url,
        on_progress=lambda line: (
            begun.set() if line.strip().endswith("begun") else None
        ),  # not at "RUN echo begun; ..."
    )
    running = asyncio.create_task(box.run(TRUE))
    assert await asyncio.to_thread(begun.wait, 120)
    building = builds(docker_engine)
    assert building
    running.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await running
        await box.close()
    deadline = time.monotonic() + 60
    while builds(docker_engine) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert builds(docker_engine) == []
    assert owned(docker_engine) == []
    (tmp_path / "Dockerfile").write_text(f"FROM {docker_engine.image}\n")
    assert (await box.run(TRUE)).status is Status.OK  # it can be used again
    await box.close()


def builds(engine: StartedEngine) -> list[str]:
    """Containers that run a step of our Dockerfile."""
    with contextlib.closing(client(engine)) as found:
        return [one["Id"] for one in found.api.containers(all=True) if "sleep 600" in one["Command"]]


def volumes(engine: StartedEngine, *boxes: ContainerSandbox) -> list[str]:
    """Those of some sandboxes."""
    with contextlib.closing(client(engine)) as found:
        listed = [found.api.volumes(filters={"label": f"{SANDBOX_LABEL}={box._token}"}) for box in boxes]
        return [one["Name"] for told in listed for one in told.get("Volumes") or ()]
