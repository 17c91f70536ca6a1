"""Names to addresses, off the event loop, each in a thread of its own.

asyncio's pool is left alone: a name server that does not answer would let an agent's other work wait behind
scripts. The threads are daemons, so a lookup that hangs does not keep the agent from ending. They are no pool that runs
share, either: the C library may wait half a minute for the name server of one run's host.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence

from adk_skills_agent.sandbox.threads import OnePerProcess, Semaphore, Share, tell

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""``await resolve(host, port)``: numeric addresses, best first. Raises ``OSError`` when there are none."""

_MOST_THREADS = 128
_places = OnePerProcess(lambda: Semaphore(_MOST_THREADS, fair=True))
"""Each is had until its lookup has ended, whoever waits for it: runs that are over leave theirs behind (row 326)."""


async def resolve(host: str, port: int, share: Share = ()) -> list[str]:
    """The addresses of a normalised name, by the system's resolver; an OSError when there are none.

    ``share`` says for whom, as that of a run: who has many lookups that hang waits for a place, and nobody else does.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()
    places = _places()
    await places.take(share)
    try:
        work = (host, port, loop, answer, lambda: places.give_back(share))
        threading.Thread(target=_work, args=work, name="adk-skills-resolver", daemon=True).start()
    except RuntimeError as error:  # no more threads
        places.give_back(share)
        raise OSError(0, str(error)) from error
    return await answer


def look_up(host: str, port: int) -> list[str]:
    """The same, blocking."""
    # With a final dot the name is meant as it is: search domains of the host must not make another name of it.
    absolute = f"{host}." if "." in host else host
    found = socket.getaddrinfo(absolute, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _work(
    host: str,
    port: int,
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[list[str]],
    ended: Callable[[], None],
) -> None:
    addresses: list[str] = []
    problem: OSError | None = None
    try:
        addresses = look_up(host, port)
    except OSError as error:
        problem = error
    except UnicodeError as error:  # a label the codec of the socket module does not take
        problem = OSError(str(error))
    finally:
        ended()
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(tell, answer, addresses, problem)
