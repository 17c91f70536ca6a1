"""Every sandbox with namespaces comes from here: a description goes in, a started sandbox comes out.

Two makers are behind it, the zygote and bubblewrap; over them is the warm pool of this process. A sandbox that waits in
it waits for a job in its init program. It knows nothing of the run to come: command, variables, secrets and files
arrive with the job, and limits count from there. Each takes 6 MB.
"""

from __future__ import annotations

import atexit
import contextlib

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.files.workspace import Workspace, link_mounts
from adk_skills_agent.sandbox.local.cgroup import group_of_run, group_pool
from adk_skills_agent.sandbox.local.namespaces.bubblewrap import start_with_bubblewrap
from adk_skills_agent.sandbox.local.namespaces.sandbox import SandboxSpec, StartedSandbox
from adk_skills_agent.sandbox.local.namespaces.zygote import zygote_life
from adk_skills_agent.sandbox.threads import OnePerProcess
from adk_skills_agent.sandbox.warm_pool import WarmPool

_PATIENCE_SECONDS = 5.0
_RUN_FIRST_SECONDS = 0.02
"""How long the start of one is put off: without that the run that ends or begins now takes 2 ms longer."""


def start_sandbox(spec: SandboxSpec) -> StartedSandbox:
    """Make a sandbox, forked if that is possible now, else by bubblewrap. Blocking, for a worker thread."""
    with contextlib.ExitStack() as undo:
        group = None
        if spec.grouped:
            group = group_of_run()
            undo.callback(group_pool().give_back, group)
        life = zygote_life()
        zygote = life.ready(spec.uid) if life.can_make(spec) else None
        started = None
        if zygote is not None:
            try:
                started = zygote.start(spec, () if group is None else group.task_files())
                life.succeeded()
            except (SandboxError, OSError) as error:
                problem = error
        if started is None:
            started = start_with_bubblewrap(spec, contextlib.nullcontext if group is None else group.membership)
            if zygote is not None:
                life.failed(zygote, problem)  # only now: else it was not the zygote's fault
        undo.pop_all()
    started.group = group
    if group is not None:
        try:
            group.confine(started.first_pid, spec.memory_bytes, spec.pids)
        except BaseException:
            started.discard()
            raise
    return started


def start_waiting(spec: SandboxSpec) -> StartedSandbox:
    """Make a sandbox that will wait for a run, with the run's mounts linked into its workspace already."""
    started = start_sandbox(spec)
    try:
        if spec.preload and spec.memory_bytes is not None and _resident(started.first_pid) > spec.memory_bytes:
            raise SandboxError("The modules that are imported ahead take more memory than memory_bytes.")
        started.workspace = Workspace("", started.folders.work, started.folders.tmp)
        link_mounts(started.workspace, spec.mounts, inside=True)
    except BaseException:
        started.discard()
        raise
    started.was_waiting = True
    return started


def _resident(pid: int) -> int:
    """Bytes of memory a process has of its own or shares; no limit of its own counts what is shared."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as stream:
        lines = (line.split() for line in stream if line.startswith((b"RssAnon:", b"RssShmem:")))
        return sum(int(fields[1]) for fields in lines) * 1024
    return 0


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
