"""The network of a run in a real network namespace: allowed hosts through the proxy, nothing else (rows 56-58)."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest

from adk_skills_agent.errors import ConfigError, SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import ExecutionRequest, Network, SandboxPolicy
from adk_skills_agent.sandbox.local.sandbox import LocalSandbox
from adk_skills_agent.sandbox.network.run_network import PROXY_PORT, RunNetwork, listen_in, network_of_run
from own_descriptors import sockets_at

SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
PLAIN_USER = 65534


def _no_namespaces() -> str | None:
    if shutil.which("bwrap") is None:
        pytest.fail("bubblewrap is not installed: apt-get install bubblewrap")
    done = subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else f"user namespaces do not work here: {done.stderr.strip()}"


@pytest.fixture(scope="module")
def namespaces() -> None:
    if reason := _no_namespaces():
        pytest.skip(reason)


@dataclass
class Gated:
    """A command in namespaces of its own that waits for :meth:`go` before its first instruction."""

    process: subprocess.Popen[bytes]
    pid: int
    gate: int

    def go(self) -> None:
        os.close(self.gate)
        self.gate = -1

    def result(self) -> tuple[str, str]:
        out, err = self.process.communicate(timeout=30)
        return out.decode(), err.decode()


@contextmanager
def sandboxed(
    argv: Sequence[str], env: dict[str, str], *, own_network: bool = True, dropped: bool = True
) -> Iterator[Gated]:
    """``dropped``: a root agent gives up root before it makes the namespaces, not inside them."""
    info, info_write = os.pipe()
    gate_read, gate = os.pipe()
    drop = ["setpriv", f"--reuid={PLAIN_USER}", f"--regid={PLAIN_USER}", "--clear-groups", "--inh-caps=-all"]
    process = subprocess.Popen(
        [
            *(drop if os.geteuid() == 0 and dropped else []),
            *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
            *([] if own_network else ["--share-net"]),
            *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
            *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--clearenv"),
            *(part for name, value in env.items() for part in ("--setenv", name, value)),
            *("--info-fd", str(info_write), "--block-fd", str(gate_read), "--", *argv),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(info_write, gate_read),
    )
    os.close(info_write)
    os.close(gate_read)
    with open(info, "rb") as file:
        pid = json.load(file)["child-pid"]
    gated = Gated(process, pid, gate)
    try:
        yield gated
    finally:
        if gated.gate >= 0:
            os.close(gated.gate)
        process.kill()
        process.communicate()


SCRIPT = """
import http.client, json, os, socket, sys, urllib.request
port = sys.argv[1]
result = {}
def ask(url):
    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except OSError as error:
        return str(error)
result["allowed"] = ask(f"http://allowed.example:{port}/")
result["other"] = ask(f"http://evil.test:{port}/")
proxy, _, proxy_port = os.environ["https_proxy"].removeprefix("http://").partition(":")
tunnel = http.client.HTTPConnection(proxy, int(proxy_port), timeout=20)
tunnel.set_tunnel("allowed.example", int(port))
tunnel.request("GET", "/")
result["tunnel"] = tunnel.getresponse().read().decode()
for name, family, kind, address in (
    ("direct", socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443)),
    ("metadata", socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
    ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)),
    ("v6", socket.AF_INET6, socket.SOCK_STREAM, ("fd00:ec2::254", 80)),
    ("host", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port))),
):
    with socket.socket(family, kind) as s:
        s.settimeout(20)
        try:
            s.connect(address)
            result[name] = "connected"
        except OSError as error:
            result[name] = error.errno
print(json.dumps(result))
"""


@dataclass
class Origin:
    port: int
    seen: list[bytes]


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    """A server on the host's loopback."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield Origin(server.sockets[0].getsockname()[1], seen)
    server.close()
    await server.wait_closed()


async def to_loopback(host: str, port: int) -> Sequence[str]:
    return ("127.0.0.1",)


def run_network(port: int, loop: asyncio.AbstractEventLoop, **options: object) -> RunNetwork:
    return RunNetwork(
        Network.allow("allowed.example", ports=(port,)),
        loop,
        resolve=to_loopback,
        allow_addresses=("127.0.0.1",),
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("dropped", [True, False], ids=["a plain user's sandbox", "the agent's own sandbox"])
@pytest.mark.usefixtures("namespaces", "nothing_left")
async def test_a_sandbox_reaches_allowed_hosts_through_the_proxy_and_nothing_else(
    origin: Origin, dropped: bool
) -> None:
    network = run_network(origin.port, asyncio.get_running_loop())
    python = SYSTEM_PYTHON or pytest.skip("no python3 outside the agent's own environment")
    argv = [python, "-I", "-c", SCRIPT, str(origin.port)]
    with sandboxed(argv, network.environment(), dropped=dropped) as box:
        await asyncio.to_thread(network.start, box.pid)
        box.go()
        out, err = await asyncio.to_thread(box.result)
    await asyncio.to_thread(network.stop)
    assert err == ""
    assert json.loads(out) == {
        "allowed": "hello",
        "other": "HTTP Error 403: Forbidden",
        "tunnel": "hello",
        "direct": errno.ENETUNREACH,
        "metadata": errno.ENETUNREACH,
        "udp": errno.ENETUNREACH,
        "v6": errno.ENETUNREACH,
        "host": errno.ECONNREFUSED,
    }
    assert [(d.host, d.allowed, d.address) for d in network.decisions] == [
        ("allowed.example", True, "127.0.0.1"),
        ("evil.test", False, None),
        ("allowed.example", True, "127.0.0.1"),
    ]
    assert len(origin.seen) == 2
    assert network.notes() == (
        f"The network policy refused evil.test:{origin.port} (the host is not in the allow-list).",
    )


@pytest.mark.usefixtures("namespaces", "nothing_left")
async def test_worker_threads_can_start_and_stop_the_proxy_of_a_run(origin: Origin) -> None:
    network = run_network(origin.port, asyncio.get_running_loop(), label="skill/run.py")
    python = SYSTEM_PYTHON or pytest.skip("no python3 outside the agent's own environment")
    code = "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1]).read())"

    with sandboxed([python, "-I", "-c", code, f"http://allowed.example:{origin.port}/"], network.environment()) as box:

        def start() -> None:
            network.start(box.pid)
            box.go()

        await asyncio.to_thread(start)
        out, err = await asyncio.to_thread(box.result)
        await asyncio.to_thread(network.stop)
        await asyncio.to_thread(network.stop)
    assert (out, err) == ("b'hello'\n", "")


@pytest.mark.usefixtures("namespaces", "nothing_left")
async def test_a_run_that_ends_before_its_proxy_is_served_leaves_nothing(origin: Origin) -> None:
    with sandboxed(["true"], {}) as box:
        network = run_network(origin.port, asyncio.get_running_loop())
        done = threading.Event()

        def start_and_stop() -> None:
            network.start(box.pid)
            done.set()

        worker = threading.Thread(target=start_and_stop)
        worker.start()
        assert done.wait(30)  # the loop is busy: the proxy is not served yet
        assert len(sockets_at(PROXY_PORT)) == 1
        network.stop()
        worker.join()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sockets_at(PROXY_PORT) == []


@pytest.mark.usefixtures("namespaces")
def test_a_closed_loop_is_an_error_of_the_sandbox() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with sandboxed(["true"], {}) as box, pytest.raises(SandboxError, match="event loop is closed"):
        run_network(443, loop).start(box.pid)


@pytest.mark.usefixtures("namespaces", "nothing_left")
def test_a_loop_that_is_gone_does_not_keep_the_proxy_open() -> None:
    with sandboxed(["true"], {}) as box:

        async def serve() -> RunNetwork:
            network = run_network(443, asyncio.get_running_loop())
            await asyncio.to_thread(network.start, box.pid)
            await asyncio.sleep(0)
            return network

        network = asyncio.run(serve())
        assert len(sockets_at(PROXY_PORT)) == 1
        network.stop()
    assert sockets_at(PROXY_PORT) == []


@pytest.mark.usefixtures("namespaces")
def test_the_socket_listens_in_the_namespace_and_not_on_the_host() -> None:
    with sandboxed(["true"], {}) as box, listen_in(box.pid) as listener:
        assert listener.getsockname() == ("127.0.0.1", PROXY_PORT)
        assert not listener.get_inheritable()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", PROXY_PORT))


@pytest.mark.usefixtures("namespaces")
def test_the_proxy_never_listens_on_the_hosts_own_loopback() -> None:
    with sandboxed(["true"], {}, own_network=False) as box, pytest.raises(SandboxError, match="no network namespace"):
        listen_in(box.pid)
    with pytest.raises(SandboxError, match="no network namespace"):
        listen_in(os.getpid())


def test_a_sandbox_that_is_gone_is_an_error_of_the_sandbox() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(SandboxError, match="could not listen inside the sandbox"):
        listen_in(process.pid)


@pytest.mark.parametrize("network", [Network.none(), Network.loopback(), Network.host()])
async def test_without_an_allow_list_there_is_no_proxy(network: Network) -> None:
    policy = SandboxPolicy(network=network)
    assert network_of_run(ExecutionRequest(("true",), policy), policy) is None


async def test_the_environment_leads_to_the_proxy_and_its_own_loopback_stays_direct() -> None:
    environment = RunNetwork(Network.allow("example.org"), asyncio.get_running_loop()).environment()
    assert {environment[name] for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")} == {
        "http://127.0.0.1:3128"
    }
    assert environment["NO_PROXY"] == environment["no_proxy"] == "localhost,127.0.0.1,::1"
    assert "ALL_PROXY" not in environment


async def test_a_host_that_is_none_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="IP address"):
        RunNetwork(Network.allow("127.0.0.1"), asyncio.get_running_loop())


async def test_notes_stay_short_however_much_was_refused() -> None:
    from adk_skills_agent.sandbox.contract import NetworkDecision

    network = RunNetwork(Network.allow("example.org"), asyncio.get_running_loop())
    network._proxy.decisions.extend(NetworkDecision(f"h{n % 7}.test", 443, False, "no") for n in range(50))
    network._proxy.undisclosed = 1234
    network._proxy.failures = 1
    assert network.notes() == (
        "The network policy refused h0.test:443 (no), h1.test:443 (no), h2.test:443 (no), h3.test:443 (no), "
        "h4.test:443 (no) and 2 more.",
        "1,234 more decisions of the network proxy were counted and not kept.",
        "1 connections were dropped by errors of the network proxy; see the log.",
    )


@pytest.mark.behaviour(
    "better",
    "The network of a script",
    google="open",
    ours="none, or the hosts of a list, through a checking proxy",
    readme=19,
)
@pytest.mark.usefixtures("namespaces", "nothing_left")
@pytest.mark.parametrize(
    "network", [Network.allow("localhost", "*.wild.example"), Network.none()], ids=["allow", "none"]
)
async def test_a_run_of_the_local_sandbox_reaches_what_its_policy_lists_and_nothing_else(
    origin: Origin, network: Network
) -> None:
    if network.mode == "allow":
        network = Network.allow(*network.hosts, ports=(origin.port,))
    policy = SandboxPolicy(isolation="namespaces", network=network)
    code = (
        "import errno, os, socket, sys, urllib.request\n"
        "for host in ('localhost.', 'evil.test'):\n"
        "    try: print(urllib.request.urlopen(f'http://{host}:{sys.argv[1]}/').read())\n"
        "    except OSError as error: print(host, getattr(error, 'code', 'unreachable'))\n"
        "try: socket.create_connection(('1.1.1.1', 443), 20)\n"
        "except OSError as error: print(errno.errorcode[error.errno])\n"
    )
    python = SYSTEM_PYTHON or pytest.skip("no python3 outside the agent's own environment")
    result = await LocalSandbox().run(ExecutionRequest((python, "-c", code, str(origin.port)), policy))
    assert result.stderr == b""
    lines = result.stdout.decode().splitlines()
    assert lines[2] == "ENETUNREACH"
    assert origin.seen == []
    if network.mode == "none":
        assert lines[:2] == ["localhost. unreachable", "evil.test unreachable"]
        assert result.network == ()
        return
    assert lines[:2] == ["localhost. 403", "evil.test 403"]
    assert [(d.host, d.port, d.allowed) for d in result.network] == [
        ("localhost", origin.port, False),
        ("evil.test", origin.port, False),
    ]
    assert "loopback" in result.network[0].reason
    assert result.isolation.enforced["network"] == "network namespace+proxy"
    assert any("evil.test" in note for note in result.notes)


async def test_a_level_without_a_network_namespace_refuses_an_allow_list() -> None:
    policy = SandboxPolicy(isolation="landlock", network=Network.allow("example.org"))
    with pytest.raises(SandboxUnavailable, match="network namespace"):
        await LocalSandbox().run(ExecutionRequest(("true",), policy))
