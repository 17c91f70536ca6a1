"""The network of one run: none, a loopback of its own, listed hosts through a checking proxy, or the host's.

``allow`` needs a network namespace: there the proxy is the only thing that can be reached at all. Levels without one
refuse it. Landlock's rules for TCP name a port and no address, so permission to connect to the proxy's port would be
permission to connect to that port of every machine; and seccomp cannot look into the address a program passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, Network, NetworkDecision, SandboxPolicy
from adk_skills_agent.sandbox.hostnames import parse_hosts
from adk_skills_agent.sandbox.local.addresses import parse_networks
from adk_skills_agent.sandbox.local.netns_listener import PROXY_HOST, PROXY_PORT, listen_in
from adk_skills_agent.sandbox.local.proxy import Proxy, ProxyLimits
from adk_skills_agent.sandbox.local.resolver import resolve as system_resolve

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.local.resolver import Resolver

_STOP_SECONDS = 5.0
_NOTED_HOSTS = 5
_PROXY_URL = f"http://{PROXY_HOST}:{PROXY_PORT}"
_DIRECT = "localhost,127.0.0.1,::1"
_PROXY_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), _PROXY_URL),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), _DIRECT),
    }
)


def network_of_run(request: ExecutionRequest, policy: SandboxPolicy) -> RunNetwork | None:
    """The proxied network of a run, served by the loop this thread works for; None when it lists no hosts."""
    if policy.network.mode != "allow":
        return None
    from adk_skills_agent.sandbox.local import workers
    from adk_skills_agent.sandbox.local.output_filter import secrets_of_run

    secrets = secrets_of_run(request, policy)
    return RunNetwork(
        policy.network,
        label=request.label,
        redact=None if secrets is None else secrets.host_name,
        loop=workers.served_loop(),
    )


class RunNetwork:
    """What one run may reach, and the proxy that sees to it when the policy lists hosts.

    The course of a run: ``environment()`` when it is prepared; ``listen_inside()`` when its namespace exists and its
    first instruction has not run yet; ``serve()`` in the event loop, before or soon after that (connections wait in the
    listener's queue); ``close()`` when it has ended. ``start()`` and ``stop()`` are the same for worker threads.

    Args:
        network: The policy's.
        resolve: Gives a name's addresses; None takes the system's resolver.
        allow_addresses: Addresses and networks that may be reached although they are private. For tests: no policy
            can set it.
        limits: Of the proxy; None takes the defaults.
        label: Whose network this is, for the log.
        redact: Takes secrets out of a name before it is logged or kept; None when there are none.
        loop: Serves the proxy when a worker thread starts it.

    Raises:
        ConfigError: A host of the policy is no host name.
    """

    def __init__(
        self,
        network: Network,
        *,
        resolve: Resolver | None = None,
        allow_addresses: Sequence[str] = (),
        limits: ProxyLimits | None = None,
        label: str = "",
        redact: Callable[[str], str] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._network = network
        self._loop = loop
        self._started = False
        self._proxy = Proxy(
            parse_hosts(network.hosts),
            network.ports,
            resolve=resolve or system_resolve,
            allow_addresses=parse_networks(allow_addresses),
            limits=limits,
            label=label,
            redact=redact,
        )
        self._closed = False

    @property
    def proxied(self) -> bool:
        """Whether the run has a proxy; without one, the methods below do nothing."""
        return self._network.mode == "allow"

    @property
    def decisions(self) -> tuple[NetworkDecision, ...]:
        """What the proxy decided so far, oldest first; see :class:`ProxyLimits` for how many are kept."""
        return tuple(self._proxy.decisions)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent to hosts and received from them, through the proxy."""
        return self._proxy.traffic.sent, self._proxy.traffic.received

    def environment(self) -> dict[str, str]:
        """Variables that lead programs to the proxy; they must win over granted ones, nothing else can work."""
        return dict(_PROXY_ENVIRONMENT) if self.proxied else {}

    def listen_inside(self, pid: int) -> socket.socket:
        """Open the proxy's socket in the namespace of a sandbox. Blocking; see :func:`listen_in`."""
        return listen_in(pid)

    async def serve(self, listener: socket.socket) -> None:
        """Serve a socket of :meth:`listen_inside` from this event loop until :meth:`close`."""
        self._serve(listener)

    async def open(self, pid: int) -> None:
        """Listen inside and serve, with the blocking half in a worker thread.

        Raises:
            SandboxError: See :meth:`listen_inside`.
        """
        from adk_skills_agent.sandbox.local import workers

        if not self.proxied:
            return
        listening = workers.submit(asyncio.get_running_loop(), lambda: self.listen_inside(pid))
        try:
            listener = await asyncio.shield(listening)
        except asyncio.CancelledError:
            listening.add_done_callback(_close_unwanted)
            raise
        self._serve(listener)

    async def close(self) -> None:
        """End the proxy and every connection through it. Safe to call twice."""
        self._closed = True
        await self._proxy.stop()

    def start(self, pid: int) -> None:
        """Listen inside and have the loop serve, which may be busy meanwhile. Blocking, for a worker thread.

        Raises:
            SandboxError: See :meth:`listen_inside`; or the loop is closed.
        """
        if not self.proxied:
            return
        if self._loop is None:
            raise SandboxError("The network proxy cannot be served: it was given no event loop.")
        listener = self.listen_inside(pid)
        try:
            self._loop.call_soon_threadsafe(self._serve, listener)
        except RuntimeError as error:
            listener.close()
            raise SandboxError("The network proxy cannot be served: the event loop is closed.") from error
        self._started = True

    def stop(self) -> None:
        """End the proxy from any thread, and wait for it where waiting is possible (not in its own loop's thread)."""
        self._closed = True
        loop = self._loop
        if not self._started:
            return
        if loop is None or loop.is_closed() or not loop.is_running() or _running_here() is loop:
            self._proxy.abort()
            return
        stopping = asyncio.run_coroutine_threadsafe(self._proxy.stop(), loop)
        with contextlib.suppress(TimeoutError):  # a loop that hangs ends the proxy when it goes on
            stopping.result(_STOP_SECONDS)

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
            more = f" and {len(refused) - _NOTED_HOSTS} more" if len(refused) > _NOTED_HOSTS else ""
            sentences.append(f"The network policy refused {', '.join(refused[:_NOTED_HOSTS])}{more}.")
        if proxy.undisclosed:
            sentences.append(f"{proxy.undisclosed:,} more decisions of the network proxy were counted and not kept.")
        if proxy.failures:
            sentences.append(
                f"{proxy.failures:,} connections were dropped by errors of the network proxy; see the log."
            )
        return tuple(sentences)

    def _serve(self, listener: socket.socket) -> None:
        if self._closed:  # ended before it began
            listener.close()
            return
        self._loop = asyncio.get_running_loop()
        self._started = True
        self._proxy.start(listener)


def _running_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _close_unwanted(listening: asyncio.Future[socket.socket]) -> None:
    if not listening.cancelled() and listening.exception() is None:
        listening.result().close()
