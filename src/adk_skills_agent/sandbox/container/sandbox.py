"""Runs commands in containers of Docker or Podman, each in a fresh one (issue 5, S0-77 to S0-81, S0-99 to S0-104)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import PurePosixPath

from adk_skills_agent.errors import CleanupFailed, EngineUnavailable, SandboxError, SandboxUnavailable, some_of
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.container.container import MAX_RUNNING, ContainerChannel, start_container
from adk_skills_agent.sandbox.container.engine import Engine, EngineInfo, submit
from adk_skills_agent.sandbox.container.image import OnProgress, Preparation, Ready, Wanted
from adk_skills_agent.sandbox.container.options import ContainerDescription, ContainerOptions, Plan
from adk_skills_agent.sandbox.container.pool import Pool
from adk_skills_agent.sandbox.container.removals import SANDBOX_LABEL, Removals, containers, labels
from adk_skills_agent.sandbox.contract import (
    SERVED_FOLDERS,
    STRICT_ELSEWHERE,
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    ReadOnlyMount,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.sessions.session import SessionHost
from adk_skills_agent.sandbox.skill_store import stage
from adk_skills_agent.sandbox.supervisor.command import Layout, check_level, run_command
from adk_skills_agent.sandbox.threads import MAX_WAITING, Semaphore

_LASTS_SECONDS = 7200.0
_CLOSE_SECONDS = 60.0
_RUNNING = Semaphore(MAX_RUNNING, fair=True, most_waiting=MAX_WAITING)


class ContainerSandbox(Sandbox):
    """Runs each command in a container of its own; see :class:`Sandbox` for the contract.

    Nothing is asked of an engine before the first use. One object serves any number of event loops and threads.

    Args:
        image: Name of the image; None takes the pinned default, or what ``docker_path`` builds.
        docker_path: Folder with a Dockerfile to build the image from, at the first use.
        base_url: Where the engine listens, such as ``unix:///run/podman/podman.sock``; None looks at ``DOCKER_HOST``,
            ``CONTAINER_HOST`` and the usual sockets.
        options: How containers are made.
        on_progress: Gets the lines of a build or a pull, in a thread of the engine's; None logs them.
    """

    name = "container"
    filters_secrets = True

    def __init__(
        self,
        image: str | None = None,
        *,
        docker_path: str | None = None,
        base_url: str | None = None,
        options: ContainerOptions | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._options = ContainerOptions() if options is None else options
        self._token = os.urandom(8).hex()
        self._preparation = Preparation(Wanted(image, docker_path, base_url, on_progress, self._token))
        self._pool = Pool()
        self._removals = Removals()
        self._orphans: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether every container that had to be removed was; if not, :meth:`reinitialize` tries again (S0-79)."""
        return not self._removals.failed

    @property
    def waiting(self) -> int:
        """Containers that wait, started, for the next runs."""
        return self._pool.waiting()

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`.

        Raises:
            EngineUnavailable: No engine can be used; says what to install or to start.
            ImageUnavailable: The image cannot be had, or has no Python.
            CleanupFailed: A container of an earlier run could not be removed; see :meth:`reinitialize`.
            SandboxError: See :meth:`Sandbox.run`.
        """
        policy = check_policy(request.policy)
        self.check_usable(policy)
        async with _RUNNING.turn(request.share):
            if request.mounts:
                staged = await threads.in_worker(lambda: stage(request))
            else:
                staged = stage(request)
            try:
                warm = False

                async def open_channel(_policy: SandboxPolicy) -> ContainerChannel:
                    nonlocal warm
                    channel, warm = await self.take_container(policy, staged.request.mounts)
                    return channel

                layout = Layout(python=self._options.python, mounted=True, alone=True)
                # These are the copies already, and the container has them.
                mounts = tuple(replace(mount, copied=False, without=(), digest="") for mount in staged.request.mounts)
                result = await run_command(open_channel, replace(staged.request, mounts=mounts), layout)
            finally:
                staged.release()
        return replace(result, warm=warm, notes=(*staged.notes, *self._orphans, *result.notes))

    async def take_container(
        self, policy: SandboxPolicy, mounts: tuple[ReadOnlyMount, ...] = ()
    ) -> tuple[ContainerChannel, bool]:
        """A started container for a policy, and whether it was waiting."""
        ready = await self._prepared()
        self._removals.begin_of_closed_loops()
        try:
            plan = await self._plan(ready, policy, mounts)
            isolation = self._report(ready.engine.info, plan)
            marks = labels(lasts=None if policy.wall_seconds is None else policy.wall_seconds + _LASTS_SECONDS)
            marks[SANDBOX_LABEL] = self._token
            key = _key(plan, ready.engine.info)

            async def start() -> ContainerChannel:
                return await start_container(ready.engine, plan, marks, isolation, self._removals)

            return await self._pool.take(key, policy.warm_slots, start)
        except EngineUnavailable:
            self._forget(ready)
            raise

    async def probe(self) -> IsolationReport:
        """Run a command that does nothing in a container and report what held."""
        result = await self.run(ExecutionRequest(("true",), SandboxPolicy(wall_seconds=10.0, warm_slots=0)))
        if result.status is not Status.OK:
            raise SandboxError(f"A trial run of 'true' did not end well: {result.status.value}.")
        return result.isolation

    def session_host(self) -> SessionHost:
        """Python sessions in containers of their own (S0-109)."""
        return ContainerSessions(self)

    async def describe(self) -> ContainerDescription:
        """What is there, found by starting a container."""
        ready = await self._prepared()
        info = ready.engine.info
        channel, _ = await self.take_container(SandboxPolicy(warm_slots=0))
        try:
            python = channel.python
        finally:
            await channel.close()
        return ContainerDescription(
            engine=info.title,
            url=ready.engine.url,
            runtime=self._options.runtime or info.default_runtime,
            runtimes=info.runtimes,
            rootless=info.rootless,
            cgroups=info.cgroups,
            image=ready.image,
            python=python,
            weakened=self._options.weakened(),
        )

    async def reinitialize(self) -> None:
        """Begin anew (S0-81): end what waits, try again to remove what is left, find the engine and the image again.

        Raises:
            CleanupFailed: A container still cannot be removed.
            SandboxError: The engine or the image cannot be used.
        """
        await self._pool.close()
        self._removals.begin_of_closed_loops()
        left = dict(self._removals.failed)
        if left and (known := self._preparation.known) is not None:
            self._preparation.forget(known)
        ready = await self._prepared()
        for container in left:
            self._removals.begin(ready.engine, container)
        await self._removals.wait(_CLOSE_SECONDS)
        await self._remove_strays(ready.engine)
        self._forget(ready)
        self._check_healthy()
        await self.probe()

    async def close(self) -> None:
        """End the containers that wait and remove everything of this sandbox from the engine. Safe to call twice.

        Raises:
            CleanupFailed: Something is left behind; says what and why.
        """
        await self._pool.close()
        self._removals.begin_of_closed_loops()
        await self._removals.wait(_CLOSE_SECONDS)
        try:
            ready = self._preparation.end() or await submit(self._preparation.connect_again)
        except EngineUnavailable as error:
            raise CleanupFailed(f"Volumes with skills may be left on the engine: {error.message}") from error
        if ready is not None:
            problems = await self._remove_strays(ready.engine)
            spared = self._removals.known()
            problems += await submit(lambda: ready.volumes.remove(spared))
            ready.engine.close()
            if problems:
                raise CleanupFailed(" ".join(problems))
        self._check_healthy()

    async def _remove_strays(self, engine: Engine) -> list[str]:
        """Containers nobody here knows of: the engine died when it was asked for one, or brought one back."""
        wanted = {"label": f"{SANDBOX_LABEL}={self._token}"}
        try:
            found = await engine.ask(lambda client: containers(client, wanted), "list containers")
        except SandboxError as error:
            return [error.message]
        strays = {str(one["Id"]) for one in found} - self._removals.known()
        for name in strays:
            self._removals.begin(engine, name)
        if strays:
            await self._removals.wait(_CLOSE_SECONDS)
        return []

    def _check_healthy(self) -> None:
        failed = dict(self._removals.failed)
        if failed:
            reason = next(iter(failed.values()))
            raise CleanupFailed(
                f"Cleanup failed: container {some_of([name[:12] for name in failed], 1)} could not be removed "
                f"({reason}). Nothing is run until it is gone: call reinitialize(), which tries again.",
                tuple(failed),
            )

    def check_usable(self, policy: SandboxPolicy) -> None:
        """Refuse what cannot be run, before anything is started."""
        self._check_healthy()
        check_level(policy, IsolationLevel.CONTAINER, "containers have this level alone")
        if policy.network.mode == "allow":
            reason = "containers have no proxy for a list of allowed hosts"
            raise SandboxUnavailable(
                f"The policy's network 'allow' cannot be kept: {reason}. Use the local sandbox, or network 'none'.",
                (f"container: {reason}",),
            )

    async def _plan(self, ready: Ready, policy: SandboxPolicy, mounts: tuple[ReadOnlyMount, ...]) -> Plan:
        """Sends what the engine has not got."""
        volumes: list[tuple[str, PurePosixPath]] = []
        folders = [(path, path) for path in policy.extra_ro]
        for mount in mounts:
            if mount.copied:
                volumes.append((await ready.volumes.name_of(mount.source, mount.source.name), mount.target))
            else:
                folders.append((str(await threads.in_worker(mount.source.resolve)), str(mount.target)))
        if folders and not ready.engine.url.startswith("unix://"):
            raise SandboxUnavailable(
                "Folders that are not copied (extra_ro, copied=False) need an engine on this machine.",
                ("container: the engine is on another machine",),
            )
        options = self._options
        if policy.run_as is not None:
            options = replace(options, user=f"{policy.run_as}:{policy.run_as}")
        return Plan(ready.image, options, policy, tuple(volumes), tuple(folders))

    def _report(self, info: EngineInfo, plan: Plan) -> IsolationReport:
        policy = plan.policy
        degraded = list(plan.options.weakened())
        if policy.preload:
            degraded.append("preload: a container imports nothing before its command.")
        if policy.syscalls == "strict":
            degraded.append(STRICT_ELSEWHERE)
        degraded += plan.uncharged(info)
        if plan.folders:
            degraded.append(SERVED_FOLDERS)
        if policy.workspace_bytes is None or policy.tmp_bytes is None:
            degraded.append("Without workspace_bytes and tmp_bytes files are bounded by memory only.")
        if info.is_podman or plan.options.user is None:
            degraded.append("files: the working directory is root's there; a script cannot change its mode or owner.")
        if info.is_podman and info.cgroups != "2":
            degraded.append(
                "memory: that a container had none left for its own program may be an error of the sandbox there, "
                "and not out_of_memory."
            )
        return IsolationReport(IsolationLevel.CONTAINER, plan.report_of(info), tuple(degraded))

    async def _prepared(self) -> Ready:
        ready = await self._preparation.ready()
        self._orphans = ready.notes
        return ready

    def _forget(self, ready: Ready) -> None:
        """The engine may be another one by now: the next run looks again."""
        self._preparation.forget(ready)
        self._pool.abandon()


def _key(plan: Plan, info: EngineInfo) -> str:
    """Containers with the same settings serve the same runs."""
    return json.dumps([plan.settings(info, "", {}), plan.hello(info)], sort_keys=True, default=repr)


class ContainerSessions:
    """Starts sessions in containers of a sandbox; see :class:`~..sessions.session.SessionHost`."""

    def __init__(self, sandbox: ContainerSandbox) -> None:
        self._sandbox = sandbox

    async def start(self, policy: SandboxPolicy) -> ContainerChannel:
        """A container whose program answers; see ``SessionHost``."""
        self._sandbox.check_usable(policy)
        # What is one execution's is enforced by the program in it; here it would be the session's.
        channel, _ = await self._sandbox.take_container(replace(policy, wall_seconds=None, cpu_seconds=None))
        return channel
