"""Carries bytes between two connected sockets, in the event loop, with one bounded buffer per direction."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from dataclasses import dataclass

BUFFER_BYTES = 64 << 10
_RESCHEDULE_SECONDS = 1.0  # moving the idle deadline for every chunk would cost more than the chunk


@dataclass(slots=True)
class Traffic:
    """Bytes carried for a run: ``sent`` to the hosts, ``received`` from them."""

    sent: int = 0
    received: int = 0


class _Over(Exception):  # no error: the exchange is complete
    """The host has sent everything."""


class Tunnel:
    """One connection through the proxy; its sockets stay the owner's to close.

    Args:
        client: The script's side, non-blocking.
        upstream: The host's side, non-blocking.
        traffic: Where the bytes are counted.
        idle_seconds: The tunnel ends when nothing moved for so long.
    """

    def __init__(self, client: socket.socket, upstream: socket.socket, traffic: Traffic, idle_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._upstream = upstream
        self._traffic = traffic
        self._idle_seconds = idle_seconds
        self._deadline = asyncio.timeout(idle_seconds)
        self._moved = self._loop.time()

    async def carry(self, early: bytes) -> None:
        """Carry both directions until both have ended.

        Args:
            early: What the client sent before it was told to.

        Raises:
            TimeoutError: Nothing moved for ``idle_seconds``.
            OSError: A side broke off.
        """
        await self._both(self._send(early), self._receive())

    async def exchange(self, head: bytes, early: bytes, body_bytes: int) -> None:
        """Send one request and carry its answer until the host closes.

        A second request on the same connection is never read as one: it ends the exchange, and the client has to open
        a new connection, which is checked.

        Args:
            head: The head of the request, as the proxy wrote it.
            early: What the client sent after its own head.
            body_bytes: The length of the body.

        Raises:
            TimeoutError: Nothing moved for ``idle_seconds``.
            OSError: A side broke off, or the client sent more than one request.
        """
        try:
            await self._both(self._send_one(head, early, body_bytes), self._receive_one())
        except _Over:
            return

    async def _both(self, *directions: Coroutine[None, None, None]) -> None:
        tasks = [self._loop.create_task(direction) for direction in directions]
        try:
            async with self._deadline:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _send(self, early: bytes) -> None:
        data = early or await self._loop.sock_recv(self._client, BUFFER_BYTES)
        while data:
            await self._pass_on(data)
            data = await self._loop.sock_recv(self._client, BUFFER_BYTES)
        self._upstream.shutdown(socket.SHUT_WR)

    async def _send_one(self, head: bytes, early: bytes, body_bytes: int) -> None:
        await self._pass_on(head)
        left = body_bytes
        data = early
        while left > 0:
            data = data or await self._loop.sock_recv(self._client, min(left, BUFFER_BYTES))
            if not data:
                raise ConnectionAbortedError("the client closed before its request was complete")
            part, data = data[:left], data[left:]
            left -= len(part)
            await self._pass_on(part)
        if data or await self._loop.sock_recv(self._client, 1):
            raise ConnectionAbortedError("the client sent more than one request")
        self._upstream.shutdown(socket.SHUT_WR)  # the client has closed, as the host would see it without a proxy

    async def _pass_on(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._upstream, data)
        self._traffic.sent += len(data)
        self._touch()

    async def _receive(self) -> None:
        while data := await self._loop.sock_recv(self._upstream, BUFFER_BYTES):
            self._touch()
            await self._loop.sock_sendall(self._client, data)
            self._traffic.received += len(data)
            self._touch()
        self._client.shutdown(socket.SHUT_WR)

    async def _receive_one(self) -> None:
        await self._receive()
        raise _Over

    def _touch(self) -> None:
        now = self._loop.time()
        if now - self._moved >= _RESCHEDULE_SECONDS and not self._deadline.expired():
            self._moved = now
            self._deadline.reschedule(now + self._idle_seconds)
