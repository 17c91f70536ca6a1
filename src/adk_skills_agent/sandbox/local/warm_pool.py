"""The warm pool of this process: sandboxes with namespaces that were started ahead, each used once.

A sandbox that waits in it waits for a job in its init program. It knows nothing of the run to come: command, variables,
secrets and files arrive with the job, and limits count from there. Each takes 6 MB.
"""

from __future__ import annotations

import atexit

from adk_skills_agent.sandbox.local.namespaces.sandbox import SandboxSpec, StartedSandbox
from adk_skills_agent.sandbox.local.namespaces.zygote import start_waiting
from adk_skills_agent.sandbox.threads import OnePerProcess
from adk_skills_agent.sandbox.warm_pool import WarmPool

_PATIENCE_SECONDS = 5.0
_RUN_FIRST_SECONDS = 0.02
"""How long the start of one is put off: without that the run that ends or begins now takes 2 ms longer."""


def _end(sandboxes: list[StartedSandbox]) -> None:
    for sandbox in sandboxes:
        sandbox.end()
    for sandbox in sandboxes:
        sandbox.discard()


def _let_go(pool: WarmPool[SandboxSpec, StartedSandbox]) -> None:
    """In a forked child: what is the parent's is let go of, and left alone."""
    for kind in list(pool._kinds.values()):  # without its lock, which the parent may have held
        for sandbox in list(kind.ready):
            sandbox.close()
            sandbox.folders.close()


warm_pool = OnePerProcess(
    lambda: WarmPool(
        start_waiting,
        StartedSandbox.is_waiting,
        _end,
        delay=_RUN_FIRST_SECONDS,
        patience=_PATIENCE_SECONDS,
        from_second=True,
    ),
    _let_go,
)


def close_warm_pool() -> None:
    """End all waiting sandboxes of this process, if there are any; see :meth:`WarmPool.close`."""
    if (pool := warm_pool.made) is not None:
        pool.close()


atexit.register(close_warm_pool)
