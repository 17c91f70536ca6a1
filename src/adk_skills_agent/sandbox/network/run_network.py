"""The network of one run: none, a loopback of its own, listed hosts through a checking proxy, or the host's.

``allow`` needs a network namespace: there the proxy is the only thing that can be reached at all. Levels without one
refuse it. Landlock's rules for TCP name a port and no address, so permission to connect to the proxy's port would be
permission to connect to that port of every machine; and seccomp cannot look into the address a program passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from adk_skills_agent.errors import SandboxError, some_of
from adk_skills_agent.sandbox.contract import ExecutionRequest, Network, NetworkDecision, SandboxPolicy
from adk_skills_agent.sandbox.network.hosts import parse_hosts, parse_networks
from adk_skills_agent.sandbox.network.proxy import Proxy
from adk_skills_agent.sandbox.network.resolver import Resolver
from adk_skills_agent.sandbox.network.resolver import resolve as system_resolve
from adk_skills_agent.sandbox.output import secrets_of_run
from adk_skills_agent.sandbox.threads import served_loop

PROXY_HOST = "127.0.0.1"
PROXY_PORT = 3128
_BACKLOG = 64
_HELPER = os.path.join(os.path.dirname(__file__), "netns_helper.py")  # noqa: PTH118, PTH120
_SECONDS = 20.0  # it takes 20 ms; a machine that needs longer than this has another problem
_STOP_SECONDS = 5.0
_NOTED_HOSTS = 5
_PROXY_URL = f"http://{PROXY_HOST}:{PROXY_PORT}"
_DIRECT = "localhost,127.0.0.1,::1"
_PROXY_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), _PROXY_URL),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), _DIRECT),
        "NODE_USE_ENV_PROXY": "1",  # fetch and https of Node.js, from 22.21 and 24 on, go by the others then
    }
)


def listen_in(pid: int) -> socket.socket:
    """Listen on the loopback of another process's network namespace (SANDBOX.md, finding 8).

    The sandbox has no way out but this one address, and needs no relay, no mount and no program inside for it. Blocks
    for some 20 ms: call it in a worker. The process must be kept from going on meanwhile.
    """
    import subprocess

    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", _HELPER, str(pid), str(PROXY_PORT), str(_BACKLOG)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={},
                timeout=_SECONDS,
                check=False,
            )
        except OSError as error:
            raise _failure(error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            raise _failure(f"the helper did not end within {_SECONDS:.0f} s") from None
        ours.setblocking(False)
        descriptor = _receive(ours)
        if descriptor is None:
            said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise _failure(said or f"the helper ended with {done.returncode}")
        return socket.socket(fileno=descriptor)


def _receive(channel: socket.socket) -> int | None:
    """The descriptor that was sent, closed on exec from the start (``socket.recv_fds`` does not pass its flags on)."""
    channel.setblocking(False)
    try:
        _, control, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        return None
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            return int.from_bytes(data[:4], sys.byteorder, signed=True)
    return None


def _failure(reason: str) -> SandboxError:
    return SandboxError(f"The network proxy could not listen inside the sandbox: {reason}.")


def network_of_run(request: ExecutionRequest, policy: SandboxPolicy) -> RunNetwork | None:
    """The proxied network of a run, served by the loop this thread works for; None when it lists no hosts."""
    if policy.network.mode != "allow":
        return None
    secrets = secrets_of_run(request, policy)
    return RunNetwork(
        policy.network,
        served_loop(),
        resolve=functools.partial(system_resolve, share=request.share),
        label=request.label,
        user=request.share[0] if request.share else "",
        redact=None if secrets is None else secrets.host_name,
    )


class RunNetwork:
    """The proxy of one run, and the variables that lead programs to it.

    The course of a run: ``environment()`` when it is prepared; ``start()`` when its namespace exists and its first
    instruction has not run yet; ``stop()`` when it has ended. Both may be called from worker threads. ``loop`` serves
    the proxy; the other arguments are those of :class:`Proxy`.
    """

    def __init__(
        self,
        network: Network,
        loop: asyncio.AbstractEventLoop,
        *,
        resolve: Resolver = system_resolve,
        allow_addresses: Sequence[str] = (),
        label: str = "",
        user: str = "",
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._loop = loop
        self._started = False
        self._stopped = False
        self._proxy = Proxy(
            parse_hosts(network.hosts, network.refused),
            network.ports,
            resolve=resolve,
            allow_addresses=parse_networks(allow_addresses),
            label=label,
            user=user,
            redact=redact,
        )

    @property
    def decisions(self) -> tuple[NetworkDecision, ...]:
        """What the proxy decided so far, oldest first; see :class:`ProxyLimits` for how many are kept."""
        return tuple(self._proxy.decisions)

    def environment(self) -> dict[str, str]:
        """Variables that lead programs to the proxy; they must win over granted ones, nothing else can work."""
        return dict(_PROXY_ENVIRONMENT)

    def start(self, pid: int) -> None:
        """Listen inside and have the loop serve, which may be busy meanwhile. Blocking, for a worker thread."""
        listener = listen_in(pid)
        try:
            self._loop.call_soon_threadsafe(self._serve, listener)
        except RuntimeError as error:
            listener.close()
            raise SandboxError("The network proxy cannot be served: the event loop is closed.") from error
        self._started = True

    def stop(self) -> None:
        """End the proxy from any thread, and wait for it where waiting is possible (not in its own loop's thread)."""
        self._stopped = True
        if not self._started:
            return
        if not self._loop.is_running() or asyncio._get_running_loop() is self._loop:
            self._proxy.abort()
            return
        stopping = asyncio.run_coroutine_threadsafe(self._proxy.stop(), self._loop)
        with contextlib.suppress(TimeoutError):  # a loop that hangs ends the proxy when it goes on
            stopping.result(_STOP_SECONDS)

    def _serve(self, listener: socket.socket) -> None:
        if self._stopped:  # ended before it began
            listener.close()
        else:
            self._proxy.start(listener)

    def notes(self) -> tuple[str, ...]:
        """Sentences for the result about what was refused or went wrong."""
        proxy = self._proxy
        refused = list(
            dict.fromkeys(
                f"{decision.host or 'a request'}{f':{decision.port}' if decision.port else ''} ({decision.reason})"
                for decision in proxy.decisions
                if not decision.allowed
            )
        )
        sentences = []
        if refused:
            sentences.append(f"The network policy refused {some_of(refused, _NOTED_HOSTS)}.")
        if proxy.undisclosed:
            sentences.append(f"{proxy.undisclosed:,} more decisions of the network proxy were counted and not kept.")
        if proxy.failures:
            sentences.append(
                f"{proxy.failures:,} connections were dropped by errors of the network proxy; see the log."
            )
        return tuple(sentences)
