"""Names to addresses, off the event loop, in a few permanent threads of its own.

asyncio's pool is left alone: a name server that does not answer would let an agent's other work wait behind
scripts. The threads are daemons, so a lookup that hangs does not keep the agent from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence

from adk_skills_agent.sandbox.threads import OnePerProcess

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""``await resolve(host, port)``: numeric addresses, best first. Raises ``OSError`` when there are none."""

THREADS = 4

_Job = tuple[str, int, asyncio.AbstractEventLoop, "asyncio.Future[list[str]]"]


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a normalised name, by the system's resolver; an OSError when there are none."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()
    _jobs().put((host, port, loop, answer))
    return await answer


def look_up(host: str, port: int) -> list[str]:
    """The same, blocking."""
    # With a final dot the name is meant as it is: search domains of the host must not make another name of it.
    absolute = f"{host}." if "." in host else host
    found = socket.getaddrinfo(absolute, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _work(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        host, port, loop, answer = jobs.get()
        if answer.cancelled():  # its run has ended while it was waiting here
            continue
        addresses: list[str] = []
        problem: OSError | None = None
        try:
            addresses = look_up(host, port)
        except OSError as error:
            problem = error
        except UnicodeError as error:  # a label the codec of the socket module does not take
            problem = OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_deliver, answer, addresses, problem)
        del host, port, loop, answer


def _deliver(answer: asyncio.Future[list[str]], addresses: list[str], problem: OSError | None) -> None:
    if answer.done():  # cancelled meanwhile
        return
    if problem is None:
        answer.set_result(addresses)
    else:
        answer.set_exception(problem)


def _start() -> queue.SimpleQueue[_Job]:
    jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
    for number in range(THREADS):
        threading.Thread(target=_work, args=(jobs,), name=f"adk-skills-resolver-{number}", daemon=True).start()
    return jobs


_jobs = OnePerProcess(_start)
