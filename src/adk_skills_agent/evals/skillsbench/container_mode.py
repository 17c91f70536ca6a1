"""Container mode: tasks in a Docker or Podman engine, over the Docker SDK."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import posixpath
import shlex
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.evals.skillsbench.container_image import NOBODYS_LOGIN, BaseImages, EngineMachine, build_image
from adk_skills_agent.evals.skillsbench.dockerfile import Source, write_tar
from adk_skills_agent.evals.skillsbench.engine_options import TRUSTED, EngineOptions
from adk_skills_agent.evals.skillsbench.environment import (
    LOGS,
    MAX_OUTPUT_BYTES,
    BuiltImage,
    Phase,
    Ran,
    TaskEnvironment,
    TaskSandbox,
    until_scarce,
)
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.sandbox import (
    Capture,
    ContainerEngine,
    connect_engine,
    container_labels,
    engine_urls,
    sweep_orphans,
)
from adk_skills_agent.storage.tar_members import BoundedMember

_ANSWER_SECONDS = 600.0
_NETWORKS = ("bridge", "podman")
"""What Docker and Podman call the network every container may have."""
LABEL = "adk-skills.skillsbench.task"


class ContainerMode(TaskSandbox):
    """Use :func:`open_container_mode`."""

    name = "container"

    def __init__(
        self, engine: ContainerEngine, network: str | None, options: EngineOptions, machine: EngineMachine
    ) -> None:
        self._engine = engine
        self._client = client = engine.ask_now(lambda client: client, "answer")
        self._network = network
        self._options = options
        self._machine = machine
        self._bases = BaseImages(client, options, machine)
        client.api.auth = _without_logins

    def problem(self, task: Task) -> str | None:
        """The engine finds out; only the task's own reasons count before."""
        return " ".join(task.unsupported) or None

    async def build(self, task: Task, *, with_skills: bool, rebuild: bool, say: Callable[[str], None]) -> BuiltImage:
        """Build with the engine; the image of the same files is taken when it is there."""
        return await build_image(
            self._client,
            task,
            self._bases,
            self._options,
            with_skills=with_skills,
            rebuild=rebuild,
            say=say,
            machine=self._machine,
        )

    async def open(self, task: Task, image: BuiltImage) -> TaskEnvironment:
        """Start a container of the image that sleeps until it is removed."""
        import docker.errors
        import requests

        client: Any = self._client
        limits, network = task.limits, self._network
        memory = self._machine.memory(limits.memory_bytes)
        lasts = int(2 * limits.agent_seconds + limits.verifier_seconds + _LASTS_SECONDS)

        def start() -> Any:
            # Connected from the start where there is a network: disconnecting works everywhere, connecting does not.
            return client.containers.run(
                image.handle,
                ["sleep", str(lasts)],
                entrypoint="",
                detach=True,
                init=False,
                user="0",
                labels={LABEL: task.name, **container_labels(lasts=lasts)},
                cap_drop=list(_DROPPED),
                use_config_proxy=False,  # of the user's settings, with their logins (row 281)
                mem_limit=memory,
                memswap_limit=memory,
                nano_cpus=int(limits.cpus * _NANO),
                pids_limit=_PIDS,
                working_dir="/",
                **({"network": network} if network else {"network_mode": "none"}),
            )

        try:
            container = await asyncio.to_thread(start)
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise SandboxError(f"The container of {task.name} could not be started: {error}") from error
        environment = ContainerEnvironment(self._client, container, image, network, self._options, self._machine.disk)
        try:
            if self._options.certificates is not None:  # of the build
                await environment.remove(posixpath.dirname(TRUSTED))
            for folder in ("verifier", "agent"):
                await environment.empty(f"{LOGS}/{folder}")
        except BaseException:
            await asyncio.shield(environment.close())
            raise
        return environment

    async def prune(self) -> str:
        """Remove images without a name and what builds left; named images and other people's containers stay."""
        import docker.errors
        import requests

        try:
            done = await asyncio.to_thread(self._client.images.prune, filters={"dangling": True})
            freed = int(done.get("SpaceReclaimed") or 0)
            with contextlib.suppress(docker.errors.APIError):  # Podman has no such cache
                built = await asyncio.to_thread(self._client.api.prune_builds)
                freed += int(built.get("SpaceReclaimed") or 0)
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise SandboxError(f"The engine could not prune: {error}") from error
        return f"the engine freed {freed:,} bytes"

    def notes(self) -> tuple[str, ...]:
        """Whether containers can have a network."""
        return (
            ()
            if self._network
            else ("The engine has neither network 'bridge' nor 'podman': no phase of a task has a network.",)
        )

    def without_secrets(self, text: str) -> str:
        """Without the logins of the proxies that were given as build arguments."""
        return self._options.without_secrets(text)

    async def close(self) -> None:
        """Close the connections."""
        self._bases.close()
        await asyncio.to_thread(self._engine.close)


def open_container_mode(options: EngineOptions | None = None) -> ContainerMode:
    """Container mode with the engine that ``DOCKER_HOST`` names, or the usual one (S0-125).

    Raises ``SandboxUnavailable`` when the Docker SDK is missing, or no engine answers; says what to do.
    """
    try:
        # Not docker.from_env(): what it cannot connect it leaves open.
        engine = connect_engine(engine_urls())
        names, machine = engine.ask_now(_patient, "list its networks")
    except SandboxError as error:
        why = error.message.rstrip(".")
        missing = f"no engine answers ({why}). Start Docker or Podman, set DOCKER_HOST, or take --sandbox local"
        raise SandboxUnavailable(f"Tasks cannot run in containers: {missing}.", (missing,)) from error
    network = next((name for name in _NETWORKS if name in names), None)
    return ContainerMode(engine, network, options or EngineOptions(), machine)


def _patient(client: Any) -> tuple[set[str], EngineMachine]:
    client.api.timeout = _ANSWER_SECONDS
    sweep_orphans(client)  # what runners left that were killed goes on until then
    return {str(found.name) for found in client.networks.list()}, EngineMachine.of(client.info())


def _without_logins(request: Any) -> Any:
    """The SDK sends with each build the user's logins for all registries (row 281)."""
    from docker.auth import encode_header

    if urlsplit(request.url).path.endswith("/build"):
        request.headers["X-Registry-Config"] = encode_header(NOBODYS_LOGIN)
    return request


# A trial in a container that sleeps: each command is an exec of the engine with a time of its own (S0-130, S0-131).

_Result = TypeVar("_Result")
_PIDS = 4096
_LASTS_SECONDS = 3600.0
"""Beside the times of agent and verifier: after it a container ends by itself, also when its runner was killed."""
_DROPPED = ("NET_RAW", "MKNOD")
"""Capabilities that engines leave to containers, and local mode does not: others are on the same network."""
_NANO = 1_000_000_000
_ASKS_AGAIN = 0.2
_MOST_SAID = 1 << 20
_STDIN = "/tmp/.adk-skills-stdin"  # noqa: S108  # of the environment


class ContainerEnvironment(TaskEnvironment):
    """See :meth:`ContainerMode.open`. All calls of the engine are made in threads."""

    def __init__(
        self,
        client: Any,
        container: Any,
        image: BuiltImage,
        network: str | None,
        options: EngineOptions,
        disk: Path | None = None,
    ) -> None:
        self.workdir = image.workdir
        self._client = client
        self._container = container
        self._env = image.env
        self._options = options
        self._network_name = network
        self._connected = network is not None
        self._given: dict[str, Path] = {}
        self._turn = asyncio.Lock()
        self._threads = ThreadPoolExecutor(4, "adk-skills-exec")
        self._closed = False
        self._scarce: str | None = None
        self._watching = asyncio.create_task(self._watch(disk))

    async def _watch(self, disk: Path | None) -> None:
        """Remove it when the machine has next to nothing left, also while nobody has a command in it."""
        self._scarce = await until_scarce(disk)
        await self._in_thread(self._remove)

    async def run(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        phase: Phase | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Ran:
        """Run as an exec; after its time everything in the container is ended."""
        import docker.errors

        phase = phase or Phase()
        async with self._turn:
            await self._network(phase.network)
            for path, folder in phase.folders:
                if self._given.get(path) != folder:
                    await self._in_thread(self._give, path, folder)
            env = dict(phase.env)
            if phase.network:
                env = {**self._options.environment(self._env), **env}
                if self._options.certificates is not None:  # again each time: what ran before may have removed it
                    await self._in_thread(self._put_file, TRUSTED, self._options.certificates.encode(), above=1)
            argv = list(command)
            if stdin is not None:
                await self._in_thread(self._put_file, _STDIN, stdin)
                argv = ["sh", "-c", f"exec <{_STDIN}; rm -f {_STDIN}; exec {shlex.join(argv)}"]
            started, capture = time.monotonic(), Capture(MAX_OUTPUT_BYTES)

            def follow() -> int | None:
                api = self._client.api
                made = api.exec_create(self._container.id, argv, environment=env, workdir=cwd or self.workdir)
                pieces = api.exec_start(made["Id"], stream=True)
                try:
                    for piece in pieces:
                        capture.add(piece)
                        if on_output is not None:
                            on_output(piece)
                finally:
                    # Its own close() leaves the connection open, and there is no public way to that.
                    pieces._response.close()
                try:
                    while (state := api.exec_inspect(made["Id"]))["Running"]:
                        time.sleep(_ASKS_AGAIN)  # its output ended before it did
                except docker.errors.APIError as error:
                    # Ended with the container it was in; Podman 4.3 then says 500, and forgets an exec that was killed.
                    if error.status_code == 404 or "no such exec session" in str(error):
                        return None
                    raise
                code = state["ExitCode"]
                return code if isinstance(code, int) else None

            running = asyncio.ensure_future(self._in_thread(follow))
            timed_out = False
            try:
                done, _ = await asyncio.wait([running], timeout=seconds)
                if not done:
                    timed_out = True
                    await self._end_all()
                code = await running
            except asyncio.CancelledError:
                await asyncio.shield(self._end_all())
                await asyncio.wait([running], timeout=10)
                raise
        if self._scarce is not None:
            raise SandboxError(self._why_removed())
        killed = code is None or timed_out or code == 137
        return Ran(
            None if killed else code,
            bytes(capture.kept()),
            timed_out,
            capture.truncated,
            time.monotonic() - started,
        )

    async def end_processes(self) -> None:
        """End everything but the sleep that keeps the container."""
        async with self._turn:
            await self._end_all()

    async def empty(self, path: str) -> None:
        """Remove it as the container's root and make it anew."""
        async with self._turn:
            self._given.pop(path, None)
            parents = [path]
            while (above := posixpath.dirname(parents[-1])) != "/":
                parents.append(above)
            # What is no folder on the way, a link included, is removed; nothing is followed.
            lines = [f"[ -d {folder} ] && [ ! -L {folder} ] || rm -rf {folder}" for folder in reversed(parents[1:])]
            script = "; ".join([*lines, f"rm -rf {path} && mkdir -p {path} && chmod 777 {path}"])
            await self._in_thread(self._root, script)

    async def remove(self, path: str) -> None:
        """Remove it as the container's root."""
        async with self._turn:
            await self._in_thread(self._root, f"rm -rf {path}")

    async def read(self, path: str, most: int) -> bytes | None:
        """Read it through the engine's archive of the file, which follows no link."""
        if not path.startswith(f"{LOGS}/"):
            raise ValueError(f"{path} is not below {LOGS}")
        async with self._turn:
            return await self._in_thread(self._get, path, most)

    async def close(self) -> None:
        """Remove the container."""
        if not self._closed:
            self._closed = True
            if self._scarce is None:
                self._watching.cancel()
            await asyncio.wait([self._watching])  # it may be removing it
            await self._in_thread(self._remove)
            self._threads.shutdown(wait=False)

    async def _in_thread(self, work: Callable[..., _Result], *arguments: Any, **named: Any) -> _Result:
        import docker.errors
        import requests

        work = functools.partial(work, **named)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            if self._scarce is not None:
                raise SandboxError(self._why_removed()) from None
            raise SandboxError(f"The container of {self._container.name} failed: {error}") from error

    def _why_removed(self) -> str:
        return f"The container {self._container.name} was removed, because {self._scarce}."

    async def _end_all(self) -> None:
        """Restarting ends every process, whatever it did to hide, and keeps the files."""
        await self._in_thread(lambda: self._container.restart(timeout=0))
        await self._in_thread(self._container.reload)

    async def _network(self, wanted: bool) -> None:
        if not self._network_name or wanted == self._connected:
            return
        network = await self._in_thread(self._client.networks.get, self._network_name)
        await self._in_thread(network.connect if wanted else network.disconnect, self._container)
        self._connected = wanted

    def _give(self, path: str, folder: Path) -> None:
        self._root(f"rm -rf {path}; mkdir -p {path}")
        with tempfile.TemporaryFile() as packed:
            write_tar(packed, [Source(folder, folder=True)], {})
            packed.seek(0)
            self._container.put_archive(path, packed)
        self._root(f"chmod -R a+rX {path}; find {path} -name '*.sh' -exec chmod a+x {{}} +")
        self._given[path] = folder

    def _put_file(self, path: str, content: bytes, above: int = 0) -> None:
        """Put it there; of the folders above it, so many are made where they are not."""
        folder = path
        for _ in range(above + 1):
            folder = posixpath.dirname(folder)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(posixpath.relpath(path, folder))
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
        self._container.put_archive(folder, packed.getvalue())

    def _root(self, script: str) -> None:
        api = self._client.api
        made = api.exec_create(self._container.id, ["/bin/sh", "-c", script], user="0", workdir="/")
        said, pieces = b"", api.exec_start(made["Id"], stream=True)
        try:
            for piece in pieces:  # the shell is the task's: it may say anything, and without an end
                said += piece
                if len(said) > _MOST_SAID:
                    raise OSError("the shell of the container says too much")
        finally:
            pieces._response.close()
        if api.exec_inspect(made["Id"])["ExitCode"]:
            raise OSError(said.decode("utf-8", "replace").strip()[-300:])

    def _get(self, path: str, most: int) -> bytes | None:
        import docker.errors

        try:
            stream, status = self._container.get_archive(path)
        except docker.errors.NotFound:
            return None
        # Podman names the file itself as the target of what is no link.
        if status.get("linkTarget") not in (None, "", path) or status.get("size", 0) > most + (1 << 20):
            stream.close()
            return None
        packed = io.BytesIO()
        for piece in stream:
            packed.write(piece)
            if packed.tell() > most + (1 << 20):  # a folder, of which the size says nothing (row 156)
                stream.close()
                return None
        packed.seek(0)
        with tarfile.open(fileobj=packed, tarinfo=BoundedMember) as archive:
            member = archive.next()
            file = archive.extractfile(member) if member is not None and member.isfile() else None
            return file.read(most) if file is not None else None

    def _remove(self) -> None:
        import docker.errors

        try:
            self._container.remove(force=True, v=True)
        except docker.errors.NotFound:
            return
