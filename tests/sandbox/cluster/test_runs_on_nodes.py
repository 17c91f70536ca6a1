"""``sandbox="ray"`` on real nodes: what is lost is told and never run twice, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from adk_skills_agent.errors import RunLost, SandboxUnavailable, TooManyRuns
from adk_skills_agent.sandbox.contract import ExecutionRequest, InputFile, IsolationLevel, Status
from adk_skills_agent.sandbox.ray import sandbox as ray_sandbox
from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
from adk_skills_agent.sandbox.secrets import Secret
from ray_nodes import Nodes

pytestmark = pytest.mark.slow  # a cluster takes seconds to start

Make = Callable[..., RaySandbox]
Asked = Callable[..., ExecutionRequest]


class Begun:
    """Counts the scripts that have begun, wherever they run: each connects to it and says its name."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Begun:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.names[(await reader.readline()).decode().strip()] += 1
            writer.close()

        self._server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def code(self) -> str:
        """What a script does first."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return (
            "import socket, sys, time\n"
            f"with socket.create_connection(('127.0.0.1', {port})) as line:\n"
            "    line.sendall(sys.argv[1].encode() + b'\\n')\n"
        )

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.names.total() < count:
                await asyncio.sleep(0.02)


@pytest.fixture
async def begun() -> AsyncIterator[Begun]:
    async with Begun() as found:
        yield found


def only_worker(nodes: Nodes) -> psutil.Process:
    found = nodes.workers()
    assert len(found) == 1, found
    return found[0]


async def gone(marker: str) -> None:
    """Wait until no process has the marker among its arguments."""
    async with asyncio.timeout(20):
        while any(marker in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])):
            await asyncio.sleep(0.05)


async def test_a_script_runs_on_a_node_and_the_report_says_where(on_nodes: Make, asked: Asked, tmp_path: Path) -> None:
    workspace = tmp_path / "session"
    (workspace / "out").mkdir(parents=True)
    (workspace / "kept.txt").write_text("kept ")
    (workspace / "old.txt").write_text("old")
    code = (
        "import os, sys\nprint(sum(map(int, open('in.csv').read().split(','))), os.getcwd())\n"
        "open('out/a.txt', 'w').write(open('kept.txt').read() + sys.argv[1])\nos.remove('old.txt')\nsys.exit(3)\n"
    )
    sandbox = on_nodes()
    result = await sandbox.run(
        asked(code, "$(id) ü", input_files=(InputFile("in.csv", b"1,2,3"),), workspace=workspace)
    )
    assert (result.status, result.exit_code, result.stdout) == (Status.ERROR, 3, b"6 /work\n"), result
    assert {file.path: file.content.decode() for file in result.files} == {"out/a.txt": "kept $(id) ü"}
    assert (workspace / "out" / "a.txt").read_text() == "kept $(id) ü"
    assert not (workspace / "old.txt").exists()
    assert result.isolation.level is IsolationLevel.NAMESPACES
    assert result.isolation.node.startswith(f"{socket.gethostname()}/")
    assert (await sandbox.probe()).level is IsolationLevel.NAMESPACES
    assert result.isolation.node in (await sandbox.describe()).workers


async def test_a_worker_that_is_killed_is_told_replaced_and_its_script_never_run_twice(
    nodes: Nodes, on_nodes: Make, asked: Asked, begun: Begun
) -> None:
    sandbox, name = on_nodes(), f"run-{os.urandom(8).hex()}"
    run = asyncio.ensure_future(
        sandbox.run(asked(f"{begun.code}time.sleep(60)", name, network="host", wall_seconds=90.0))
    )
    await begun.until(1)
    only_worker(nodes).kill()
    with pytest.raises(RunLost, match="was not run again: check what it changed") as caught:
        await asyncio.wait_for(run, 30)
    assert caught.value.code == "RUN_LOST"
    assert "Node " in "".join(caught.value.__notes__)
    await gone(name)
    after = await asyncio.wait_for(sandbox.run(asked(f"{begun.code}print('here')", "after", network="host")), 60)
    assert after.stdout == b"here\n"
    assert begun.names == {name: 1, "after": 1}


async def test_a_worker_that_hangs_is_lost_and_replaced(nodes: Nodes, on_nodes: Make, asked: Asked) -> None:
    sandbox = on_nodes(hang_seconds=2.0)
    assert (await sandbox.run(asked("print(1)"))).stdout == b"1\n"
    worker = only_worker(nodes)
    worker.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(RunLost):
            await asyncio.wait_for(sandbox.run(asked("print(1)")), 60)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
    assert (await asyncio.wait_for(sandbox.run(asked("print(2)")), 60)).stdout == b"2\n"


async def test_a_cancelled_run_is_over_on_its_node_and_its_worker_goes_on(
    nodes: Nodes, on_nodes: Make, asked: Asked, begun: Begun
) -> None:
    sandbox, name = on_nodes(), f"run-{os.urandom(8).hex()}"
    run = asyncio.ensure_future(sandbox.run(asked(f"{begun.code}time.sleep(60)", name, network="host")))
    await begun.until(1)
    worker = only_worker(nodes)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not any(name in " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))
    assert (await sandbox.run(asked("print(1)"))).stdout == b"1\n"
    assert only_worker(nodes).pid == worker.pid


async def test_a_deadline_holds_there_and_what_was_written_before_it_is_kept(
    on_nodes: Make, asked: Asked, tmp_path: Path
) -> None:
    (workspace := tmp_path / "session").mkdir()
    code = "open('f.txt', 'w').write('half')\nprint('before', flush=True)\nimport time\ntime.sleep(60)"
    result = await on_nodes().run(asked(code, wall_seconds=1.0, workspace=workspace))
    assert (result.status, result.timed_out, result.stdout) == (Status.TIMEOUT, True, b"before\n")
    assert (workspace / "f.txt").read_text() == "half"


async def test_output_and_samples_come_while_the_script_runs(on_nodes: Make, asked: Asked) -> None:
    seen: list[tuple[str, bytes]] = []
    samples: list[Any] = []
    first = asyncio.Event()

    def hear(name: str, chunk: bytes) -> None:
        seen.append((name, chunk))
        first.set()

    code = "import sys, time\nprint('one', flush=True)\ntime.sleep(1.5)\nprint('two', file=sys.stderr)"
    run = asyncio.ensure_future(on_nodes().run(asked(code, on_output=hear, on_sample=samples.append)))
    await asyncio.wait_for(first.wait(), 20)
    assert not run.done()
    result = await run
    assert (result.stdout, result.stderr) == (b"one\n", b"two\n")
    assert b"".join(chunk for _, chunk in seen) == b"one\ntwo\n"
    assert [name for name, _ in seen] == sorted((name for name, _ in seen), reverse=True)
    assert samples


async def test_a_secret_stays_in_the_run_and_out_of_everything_ray_writes(
    nodes: Nodes, on_nodes: Make, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = f"s3cret-{os.urandom(8).hex()}"
    inherited = f"t0ken-{os.urandom(8).hex()}"
    monkeypatch.setenv("SOME_TOKEN", inherited)
    code = (
        "import os, sys\nassert len(os.environ['KEY']) == 23\nprint(os.environ['KEY'], os.environ['SOME_TOKEN'])\n"
        "print('x' * 300_000)\nraise ValueError(os.environ['KEY'])"
    )
    result = await on_nodes().run(
        asked(
            code,
            env={"KEY": Secret(value)},
            inherit_env=("SOME_TOKEN",),
            allow_secrets=True,
            input_files=(InputFile("large", b"x" * 1_000_000),),
            spill_dir=tmp_path / "spill",
        )
    )
    assert result.stdout.startswith(b"[secret KEY] [secret SOME_TOKEN]\n")
    assert b"ValueError: [secret KEY]" in result.stderr
    assert result.stdout_spill is not None
    assert result.stdout_spill.read_bytes() == b"[secret KEY] [secret SOME_TOKEN]\n" + b"x" * 300_000 + b"\n"
    session = Path(nodes.ray._private.worker._global_node.get_session_dir_path())
    found = []
    for path in session.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and any(one.encode() in path.read_bytes() for one in (value, inherited)):
                found.append(path)
    assert found == []


async def test_a_skill_travels_once_to_a_node_whoever_runs_it_and_again_when_it_was_thrown_away(
    nodes: Nodes, on_nodes: Make, asked: Asked, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[str] = []
    pack = ray_sandbox.packed_folder

    def counted(folder: Path) -> bytes:
        packed.append(folder.name)
        return pack(folder)

    monkeypatch.setattr(ray_sandbox, "packed_folder", counted)
    (skill / "large.bin").write_bytes(os.urandom(1 << 20))
    sandbox = on_nodes(min_workers=2, max_workers=2, runs_per_worker=4)
    code = "import time\nprint(len(open('/skill/large.bin', 'rb').read()))\ntime.sleep(0.3)"
    request = asked(code)
    results = await asyncio.gather(*(sandbox.run(request) for _ in range(8)))
    assert {result.stdout for result in results} == {b"1048576\n"}
    async with asyncio.timeout(30):
        while len(nodes.workers()) < 2:
            await asyncio.sleep(0.1)
    results = await asyncio.gather(*(sandbox.run(request) for _ in range(8)))
    assert len(packed) == 1
    (skill / "large.bin").write_bytes(b"x")  # another skill, as far as anybody can tell
    changed = await sandbox.run(request)
    assert (changed.stdout, len(packed)) == (b"1\n", 2)
    assert len(set(packed)) == 2
    # What was thrown away on the node, whatever the reason, comes again, from Ray's object store.
    for worker in nodes.workers():
        worker.kill()
    for entry in (nodes.temporary / "cache").iterdir():
        if entry.name.startswith(packed[-1]):
            os.system(f"chmod -R u+w {entry} && rm -rf {entry}")
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(RunLost, SandboxUnavailable):
                assert (await sandbox.run(request)).stdout == b"1\n"
                break
            await asyncio.sleep(0.2)
    assert len(packed) == 2


async def test_more_workers_come_while_runs_wait_and_go_when_they_have_nothing_to_do(
    nodes: Nodes, on_nodes: Make, asked: Asked
) -> None:
    sandbox = on_nodes(max_workers=3, runs_per_worker=1, idle_seconds=1.0)
    request = asked("import time\ntime.sleep(4)")
    runs = [asyncio.ensure_future(sandbox.run(request)) for _ in range(6)]
    async with asyncio.timeout(60):
        while len(nodes.workers()) < 3:
            await asyncio.sleep(0.1)
    assert {result.status for result in await asyncio.gather(*runs)} == {Status.OK}
    async with asyncio.timeout(30):
        while len(nodes.workers()) > 1:
            await asyncio.sleep(0.1)


async def test_sessions_get_their_turns_evenly_and_too_many_that_wait_get_an_answer(
    on_nodes: Make, asked: Asked
) -> None:
    sandbox = on_nodes(runs_per_worker=2, most_waiting=50)
    request = asked("pass")
    await sandbox.run(request)
    done: Counter[str] = Counter()

    async def keep_running(name: str, until: float) -> None:
        while time.monotonic() < until:
            await sandbox.run(_with_share(request, ("user" + name, name)))
            done[name] += 1

    until = time.monotonic() + 15
    await asyncio.gather(*(keep_running(str(number), until) for number in range(20)))
    assert min(done.values()) >= 0.8 * max(done.values()), done
    runs = [asyncio.ensure_future(sandbox.run(_with_share(request, (f"u{number}", "s")))) for number in range(70)]
    results = await asyncio.gather(*runs, return_exceptions=True)
    refused = [one for one in results if isinstance(one, TooManyRuns)]
    assert len(refused) == 70 - 52
    assert "50 in all" in str(refused[0])
    assert all(one in refused or one.status is Status.OK for one in results)  # type: ignore[union-attr]


def _with_share(request: ExecutionRequest, share: tuple[str, ...]) -> ExecutionRequest:
    return dataclasses.replace(request, share=share)


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
async def test_a_script_cannot_end_its_worker(nodes: Nodes, on_nodes: Make, asked: Asked, level: str) -> None:
    sandbox = on_nodes()
    assert (await sandbox.run(asked("print(1)"))).stdout == b"1\n"
    worker = only_worker(nodes)
    code = (
        "import os, signal\nreached = []\n"
        "for pid in [os.getppid(), *range(2, 70_000)]:\n"
        "    if pid in {os.getpid(), 1}: continue\n"
        "    try: os.kill(pid, signal.SIGKILL)\n"
        "    except OSError: continue\n"
        "    reached.append(pid)\nprint(reached)"
    )
    result = await sandbox.run(asked(code, isolation=level, min_isolation=level, wall_seconds=30.0))
    assert str(worker.pid) not in result.stdout.decode()
    assert (await sandbox.run(asked("print(2)"))).stdout == b"2\n"
    assert only_worker(nodes).pid == worker.pid


async def test_the_process_level_is_refused(on_nodes: Make, asked: Asked) -> None:
    with pytest.raises(SandboxUnavailable, match="a script at that level could end its worker"):
        await on_nodes().run(asked("pass", isolation="process", min_isolation="process"))


AGENT = """\
import asyncio, sys
from pathlib import Path
from adk_skills_agent.sandbox import ExecutionRequest, RaySandbox, ReadOnlyMount, SandboxPolicy

async def main():
    policy = SandboxPolicy(wall_seconds=300.0, network="host")
    argv = ("python3", "/skill/scripts/" + sys.argv[2], sys.argv[3])
    mounts = (ReadOnlyMount(Path(sys.argv[4])),)
    await RaySandbox(sys.argv[1], cpus=0.1).run(ExecutionRequest(argv, policy, mounts=mounts))

asyncio.run(main())
"""


async def test_an_agent_that_is_killed_takes_its_worker_and_its_scripts_along(
    nodes: Nodes, asked: Asked, begun: Begun, skill: Path
) -> None:
    name = f"run-{os.urandom(8).hex()}"
    script = asked(f"{begun.code}time.sleep(290)").argv[1].rpartition("/")[2]
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", AGENT, nodes.address, script, name, str(skill)
    )
    try:
        await begun.until(1)
        assert len(nodes.workers()) == 1
    finally:
        agent.kill()
        await agent.wait()
    await gone(name)
    async with asyncio.timeout(60):
        while nodes.workers():
            await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        while nodes.left():  # by the next agent of the same user there, if its worker could not
            await asyncio.sleep(0.1)


SERVER = """\
import asyncio, os, signal, sys
from adk_skills_agent.sandbox import ExecutionRequest, RaySandbox

async def main():
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    sandbox = RaySandbox(sys.argv[1], cpus=0.1)
    answer = ExecutionRequest((sys.executable, "-c", "print(42)"))
    await sandbox.run(answer)
    os.kill(os.getpid(), signal.SIGTERM)
    await told.wait()
    await asyncio.sleep(4)
    print((await sandbox.run(answer)).stdout)
    await sandbox.close()

asyncio.run(main())
"""


async def test_a_server_that_is_asked_to_end_goes_on_with_what_it_has(nodes: Nodes) -> None:
    """Ray's handler of SIGTERM aborted the process three seconds later."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", SERVER, nodes.address, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(server.communicate(), 120)
    assert (server.returncode, out) == (0, b"b'42\\n'\n"), errors[-500:]
    assert b"SIGTERM received" not in errors
