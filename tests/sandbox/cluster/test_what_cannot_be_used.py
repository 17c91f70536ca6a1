"""A cluster that cannot be used is a sentence, before anything runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import adk_skills_agent
from adk_skills_agent.errors import ConfigError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import ExecutionRequest
from adk_skills_agent.sandbox.ray import pool as ray_pool
from adk_skills_agent.sandbox.ray.cluster import join, why_no_worker
from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
from adk_skills_agent.sandbox.ray.wire import pack, unpack
from adk_skills_agent.sandbox.secrets import Secret
from ray_nodes import LOOPBACK, Nodes

Make = Callable[..., RaySandbox]
Asked = Callable[..., ExecutionRequest]
DEGRADED = Path(__file__).parents[1] / "levels" / "degradations.py"


# Without a cluster.


def test_no_secret_is_in_what_is_packed_and_each_comes_back() -> None:
    request = ExecutionRequest(
        ("x",), env={"A": Secret("hunter2-hunter2"), "B": "plain"}, redact=(("C", Secret("other-secret")),)
    )
    data, secrets = pack(request)
    assert b"hunter2" not in data
    assert b"other-secret" not in data
    assert sorted(secrets) == ["hunter2-hunter2", "other-secret"]
    assert unpack(data, secrets) == request


def test_without_ray_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SandboxUnavailable, match=r"sandbox='ray' needs Ray\. Run: .*cluster"):
        asyncio.run(RaySandbox("127.0.0.2:1").run(ExecutionRequest(("true",))))


def test_a_node_without_this_package_is_told_to_install_it_and_errors_of_ray_have_no_colours() -> None:
    said = "died in its creation task, \x1b[36mray::Worker.__init__()\x1b[39m (pid=9, ip=127.0.0.4)"
    error = RuntimeError(f"{said}\n{'  File x' * 40}\nModuleNotFoundError: No module named 'adk_skills_agent.evals'")
    assert why_no_worker(error).startswith("it has no adk-skills-runtime ")
    assert why_no_worker(error, "a node of it").endswith("install the same version there as here")
    assert why_no_worker(RuntimeError(said)) == (
        "a worker did not start (RuntimeError: died in its creation task, ray::Worker.__init__() (pid=9, ip=127.0.0.4))"
    )


@pytest.mark.parametrize("options", [{"min_workers": 0}, {"min_workers": 3, "max_workers": 2}, {"runs_per_worker": 0}])
def test_numbers_that_make_no_pool_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"use numbers of at least 1|at least one place"):
        RaySandbox(**options)  # type: ignore[arg-type]


# With one.


@pytest.mark.slow
def test_an_address_nobody_answers_is_said_at_once_and_asked_again_by_the_next_run() -> None:
    pytest.importorskip("ray")
    code = (
        "import asyncio, sys, time\nfrom adk_skills_agent.sandbox import ExecutionRequest, RaySandbox\n"
        "async def main():\n"
        "    sandbox = RaySandbox(sys.argv[1])\n"
        "    for _ in range(2):\n"
        "        began = time.monotonic()\n"
        "        try: await sandbox.run(ExecutionRequest(('true',)))\n"
        "        except Exception as error:\n"
        "            print(type(error).__name__, error.code, error, time.monotonic() - began < 9)\n"
        "    await sandbox.close()\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code, "127.0.0.1:1"], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line in lines:
        assert line.startswith("SandboxUnavailable SANDBOX_UNAVAILABLE The cluster '127.0.0.1:1' cannot be joined: ")
        assert line.endswith("Check the address; `ray status` shows it. True"), line


async def test_the_address_of_rays_client_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # tests before this one may have joined a cluster
    with pytest.raises(SandboxUnavailable, match=r"`ray start --address HOST:PORT --num-cpus 0`"):
        await RaySandbox("ray://127.0.0.1:1").run(ExecutionRequest(("true",)))


@pytest.mark.slow
async def test_another_version_of_this_package_is_said(
    on_nodes: Make, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = adk_skills_agent.__version__
    monkeypatch.setattr(adk_skills_agent, "__version__", "0.0.1")
    with pytest.raises(SandboxUnavailable, match=rf"it has adk-skills-runtime {real} on Python .* and here is 0\.0\.1"):
        await on_nodes().run(asked("pass"))


@pytest.mark.slow
async def test_no_room_for_a_worker_is_said(on_nodes: Make, asked: Asked) -> None:
    with pytest.raises(SandboxUnavailable, match=r"no node has room for one \(0\.1 CPU, 1 sandboxes\)"):
        await on_nodes(resources={"sandboxes": 1.0}, start_seconds=3.0).run(asked("pass"))


@pytest.mark.slow
async def test_a_process_uses_one_cluster(nodes: Nodes, on_nodes: Make, asked: Asked) -> None:
    assert (await on_nodes().run(asked("print(1)"))).stdout == b"1\n"
    assert nodes.ray.is_initialized()
    other = RaySandbox("127.0.0.1:1")  # the program has connected itself: that is what is used
    assert (await other.run(asked("print(2)"))).stdout == b"2\n"
    await other.close()
    assert nodes.ray.is_initialized()


@contextlib.contextmanager
def joined_node(nodes: Nodes, resource: str, *before: str, address: str = LOOPBACK, **env: str) -> Iterator[str]:
    """A node that is started by a command of its own, behind ``before``; its custom resource, which names it."""
    folder = tempfile.mkdtemp(prefix=f"{resource}-", dir="/tmp")
    line = [sys.executable, *before, str(Path(sys.executable).with_name("ray")), "start", "--block"]
    line += ["--address", nodes.address, "--node-ip-address", address, "--num-cpus", "1"]
    line += ["--resources", f'{{"{resource}": 1}}', "--disable-usage-stats"]
    with subprocess.Popen(
        line,
        env={**os.environ, "TMPDIR": folder, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        yield resource
        process.terminate()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_a_machine_that_is_no_node_of_the_cluster_is_told_how_to_become_one(nodes: Nodes) -> None:
    """Ray aborted the whole process there, an agent's server with it."""
    hide = f'mount -t tmpfs none {nodes.temporary} && exec "$@"'  # with the sockets of its nodes
    elsewhere = ["unshare", "--map-root-user", "--mount", "sh", "-c", hide, "-"]
    if subprocess.run([*elsewhere, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount of its own")
    code = (
        "import asyncio, sys\nfrom adk_skills_agent.sandbox import ExecutionRequest, RaySandbox\n"
        "async def main():\n"
        "    try: await RaySandbox(sys.argv[1]).run(ExecutionRequest(('true',)))\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
        "asyncio.run(main())"
    )
    line = [*elsewhere, sys.executable, "-W", "ignore", "-c", code, nodes.address]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    said = f"SandboxUnavailable The cluster '{nodes.address}' cannot be joined: this machine is none of its nodes. "
    assert done.stdout.startswith(said), done.stderr[-500:]
    assert f"`ray start --address {nodes.address} --num-cpus 0`" in done.stdout


@pytest.mark.parametrize("address", ["", "head", "http://127.0.0.1:8265", "127.0.0.1:6379,x"])
def test_what_is_no_address_is_told_what_one_is(address: str) -> None:
    ray = pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=r"is no address of a Ray cluster\. Write HOST:PORT, or auto"):
        join(ray, address)


def test_an_address_of_rays_client_is_refused() -> None:
    ray = pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=r"an address of Ray's client, which is not used: make this machine a node"):
        join(ray, "ray://127.0.0.1:10001")


@pytest.fixture
def without_sandbox(nodes: Nodes) -> Iterator[str]:
    """A node on which nothing isolates scripts: it joins from a process that may make no namespaces and no rules."""
    with joined_node(nodes, "bare", str(DEGRADED), "gvisor") as resource:
        yield resource


@pytest.fixture
def without_package(nodes: Nodes, tmp_path: Path) -> Iterator[str]:
    """A node on which this package is not installed."""
    (tmp_path / "adk_skills_agent").mkdir()
    (tmp_path / "adk_skills_agent" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'adk_skills_agent'\", name='adk_skills_agent')\n"
    )
    with joined_node(nodes, "other", address="127.0.0.3", PYTHONPATH=str(tmp_path)) as resource:
        yield resource


@pytest.mark.slow
async def test_a_node_without_this_package_is_named_and_holds_up_no_other(
    nodes: Nodes, on_nodes: Make, asked: Asked, without_package: str
) -> None:
    """Three workers that landed there in a row, before the first one elsewhere was ready, failed the whole cluster."""
    async with asyncio.timeout(60):
        while without_package not in nodes.ray.cluster_resources():
            await asyncio.sleep(0.2)
    sandbox = on_nodes(min_workers=6, max_workers=6)
    assert (await sandbox.run(asked("print(1)"))).stdout == b"1\n"
    async with asyncio.timeout(60):
        while len((await sandbox.describe()).workers) < 6:
            await asyncio.sleep(0.2)
    alone = on_nodes(resources={without_package: 0.1}, start_seconds=20.0)
    with pytest.raises(SandboxUnavailable) as caught:
        await alone.run(asked("pass"))
    assert any("is not used: it has no adk-skills-runtime" in one for one in caught.value.reasons)


@pytest.mark.slow
async def test_a_node_without_a_sandbox_is_told_and_not_used(
    nodes: Nodes, on_nodes: Make, asked: Asked, without_sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(60):
        while without_sandbox not in nodes.ray.cluster_resources():
            await asyncio.sleep(0.2)
    alone = on_nodes(resources={without_sandbox: 0.1}, start_seconds=20.0)
    monkeypatch.setattr(ray_pool, "_MOST_FAILURES", 1)
    with pytest.raises(SandboxUnavailable) as caught:
        await alone.run(asked("pass"))
    assert any(
        "is not used: it has no sandbox: scripts would run at level 'process'" in one for one in caught.value.reasons
    )
    # With room elsewhere every worker is there in the end.
    both = on_nodes(min_workers=4, max_workers=4)
    assert (await both.run(asked("print(1)"))).stdout == b"1\n"
    async with asyncio.timeout(60):
        while len((await both.describe()).workers) < 4:
            await asyncio.sleep(0.2)
