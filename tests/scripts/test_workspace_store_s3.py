"""The store of sessions on an S3 server (moto's, on the loopback interface), with the client that production has."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_workspace_store import HEX, KEY, Server
from test_workspace_store_processes import CALLS

from adk_skills_agent.errors import WorkspaceUnavailable
from adk_skills_agent.scripts.workspace_store import WorkspaceStore, collect_garbage, remove_session, stored_session

pytestmark = [
    pytest.mark.slow,
    # moto's and botocore's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
pytest.importorskip("s3fs", reason="make test-slow installs it")
moto = pytest.importorskip("moto.server", reason="make test-slow installs it")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    import s3fs

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"b{os.getpid()}-{abs(hash(tmp_path)) % 10**9}"
    s3fs.S3FileSystem(client_kwargs={"endpoint_url": endpoint}).mkdir(name)
    return f"s3://{name}/sessions"


def store(bucket: str, endpoint: str, **more: object) -> WorkspaceStore:
    settings = {"lease_seconds": 2.0, "wait_seconds": 30} | more
    return WorkspaceStore(bucket, client_kwargs={"endpoint_url": endpoint}, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [None, HEX])
async def test_a_session_moves_between_servers(bucket: str, endpoint: str, key: str | None) -> None:
    one, two = Server(store(bucket, endpoint, key=key)), Server(store(bucket, endpoint, key=key))
    await one.write(**{f"f{number}": str(number) for number in range(60)})
    assert len(await two.files()) == 60
    await two.write(f1="from two")
    assert (await one.files(writes=True))["f1"] == "from two"
    assert one.done("fetched")[-1].files == 1
    assert not one.problems + two.problems


async def test_servers_that_race_lose_nothing(bucket: str, endpoint: str) -> None:
    servers = [Server(store(bucket, endpoint, lease_seconds=20, wait_seconds=120)) for _ in range(3)]

    async def add(server: Server) -> None:
        for _ in range(4):
            async with server.call() as work:
                count = work / "count"
                count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))

    await asyncio.gather(*map(add, servers))
    assert await servers[0].files() == {"count": "12"}


async def test_the_operator_sees_and_removes_sessions(bucket: str, endpoint: str) -> None:
    kept = store(bucket, endpoint)
    one = Server(kept)
    for number in range(5):
        await one.write(a=str(number))
    (listed,) = [stored_session(log) for log in kept.logs()]
    assert (listed.owner.user, listed.files, listed.size) == ("u", 1, 1)
    assert collect_garbage(kept).objects > 0
    assert await Server(kept).files() == {"a": "4"}
    assert remove_session(kept, listed.name)
    assert list(kept.logs()) == []


async def test_a_server_that_is_killed_is_replaced(bucket: str, endpoint: str) -> None:
    kept = store(bucket, endpoint)
    await Server(kept).write(a="1")
    program = CALLS + (
        "def die(work):\n    (work / 'a').write_text('2')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "kept = WorkspaceStore(sys.argv[1], client_kwargs={'endpoint_url': sys.argv[2]}, lease_seconds=2)\n"
        "asyncio.run(Server(kept).call(die, 'the call that died'))"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", program, bucket, endpoint]).returncode == -9
    two = Server(kept)
    assert await two.files(writes=True) == {"a": "1"}
    assert "(the call that died) was cut off" in two.notes[0]
    assert KEY


async def test_a_bucket_that_is_not_there_is_a_sentence(endpoint: str, bucket: str) -> None:
    one = Server(store("s3://nobodys-bucket-0/x", endpoint))
    with pytest.raises(WorkspaceUnavailable):
        await one.write(a="1")
    assert "Check its address, the network, and what the credentials" in one.problems[0]


async def test_a_server_that_is_gone_is_a_sentence(bucket: str) -> None:
    one = Server(WorkspaceStore(bucket, client_kwargs={"endpoint_url": "http://127.0.0.1:9"}))
    with pytest.raises(WorkspaceUnavailable):
        await one.write(a="1")
    assert "cannot be" in one.problems[0]
