"""A container engine that speaks Docker's API: found, asked through the Docker SDK, its errors in sentences.

The SDK blocks, so it is used in a few threads that all engines of a process share. The stream of a container's main
process does not go through it: see :mod:`.attach`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adk_skills_agent.errors import ConfigError, EngineUnavailable
from adk_skills_agent.sandbox.container.engine_errors import translated, unreachable

if TYPE_CHECKING:
    from docker import DockerClient

_Result = TypeVar("_Result")

THREADS = 8
"""Questions an agent process has open at its engines at the same time."""
REMOVERS = 4
"""Containers it removes at the same time besides: what is made takes seconds, and must not hold up what is to end."""
CONNECT_SECONDS = 15.0
"""How long an engine may take to say who it is."""
ANSWER_SECONDS = 60
"""How long it may take for anything else but pulling and building an image."""

_SOCKETS = (
    "/var/run/docker.sock",
    "{runtime}/docker.sock",
    "{home}/.docker/run/docker.sock",
    "{runtime}/podman/podman.sock",
    "/run/podman/podman.sock",
)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says about itself.

    Attributes:
        product: ``docker`` or ``podman``.
        version: Its version.
        runtimes: OCI runtimes it knows, by name; empty when it does not tell.
        default_runtime: The one it takes; empty when it does not tell.
        cgroups: ``1``, ``2``, or empty when it does not tell.
        rootless: It runs as a plain user.
    """

    product: str
    version: str
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    cgroups: str = ""
    rootless: bool = False

    @property
    def is_podman(self) -> bool:
        """Whether it is Podman, which differs in some details."""
        return self.product == "podman"

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.product.capitalize()} {self.version}"


def engine_urls(base_url: str | None = None, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Where an engine may listen, best first.

    ``base_url``, else ``DOCKER_HOST``, else ``CONTAINER_HOST`` (Podman's) is the only place when given. Otherwise the
    usual sockets that exist: of Docker, of a user's own Docker, of Docker Desktop, of Podman.

    Raises:
        ConfigError: A place that cannot be used: ``ssh://``, or no URL.
    """
    environ = os.environ if environ is None else environ
    for source, url in (
        ("base_url", base_url),
        ("DOCKER_HOST", environ.get("DOCKER_HOST")),
        ("CONTAINER_HOST", environ.get("CONTAINER_HOST")),
    ):
        if url:
            return (_checked(url, source),)
    places = {
        "runtime": environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}",
        "home": environ.get("HOME") or "/nonexistent",
    }
    found = (path.format(**places) for path in _SOCKETS)
    return tuple(f"unix://{path}" for path in dict.fromkeys(found) if os.path.exists(path))  # noqa: PTH110


def _checked(url: str, source: str) -> str:
    kind, separator, place = url.partition("://")
    if kind == "ssh":
        raise ConfigError(
            f"{source}={url!r}: ssh:// is not supported. Forward the engine's socket (ssh -NL /tmp/engine.sock:"
            "/var/run/docker.sock HOST) and use unix:///tmp/engine.sock."
        )
    if not separator or kind not in {"unix", "tcp", "http", "https"} or not place:
        raise ConfigError(
            f"{source}={url!r} is no address of an engine: use unix:///path/to/socket or tcp://host:port."
        )
    return url


class Engine:
    """A connection to one engine.

    Attributes:
        url: Where it listens.
        info: What it is.
    """

    def __init__(self, url: str, client: DockerClient, info: EngineInfo) -> None:
        self.url = url
        self.info = info
        self._client = client

    async def ask(
        self, question: Callable[[DockerClient], _Result], doing: str, *, seconds: float | None = ANSWER_SECONDS + 5
    ) -> _Result:
        """Let a thread ask the engine; what was begun goes on when the wait for it ends.

        Args:
            question: Called in the thread.
            doing: Completes "The engine could not", for errors.
            seconds: How long to wait; None for as long as it takes.

        Raises:
            EngineUnavailable: It is gone, or does not answer.
            ImageUnavailable: There is no such image.
            SandboxError: It refuses.
        """
        asked = submit(lambda: self.ask_now(question, doing))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(asked)
        except TimeoutError:
            raise EngineUnavailable(
                f"{self.info.title} at {self.url} did not {doing} within {seconds:g} s. Look at the engine's log, or "
                "restart it."
            ) from None

    def ask_now(self, question: Callable[[DockerClient], _Result], doing: str) -> _Result:
        """The same in this thread, blocking.

        Raises:
            SandboxError: See :meth:`ask`.
        """
        try:
            return question(self._client)
        except Exception as error:
            raise translated(error, f"{self.info.title} at {self.url}", doing, self.url) from error

    @contextmanager
    def answers(self, listen: Callable[[Any], None]) -> Iterator[None]:
        """Meanwhile ``listen`` gets every answer of the engine (of ``requests``) as soon as it begins."""
        hooks = self._client.api.hooks["response"]

        def hook(answer: Any, **_: object) -> None:
            listen(answer)

        hooks.append(hook)
        try:
            yield
        finally:
            hooks.remove(hook)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


async def connect(base_url: str | None = None) -> Engine:
    """The first engine that answers; see :func:`engine_urls`.

    Raises:
        EngineUnavailable: There is none, it is not running, or this user may not use it; the sentence says what to do.
        ConfigError: ``base_url`` is no address of an engine.
    """
    urls = engine_urls(base_url)
    return await asyncio.shield(submit(lambda: connect_now(urls)))


def connect_now(urls: tuple[str, ...]) -> Engine:
    """The same, blocking.

    Raises:
        EngineUnavailable: See :func:`connect`.
    """
    docker = _sdk()
    if not urls:
        raise unreachable((), "no socket of Docker or Podman was found")
    reasons = []
    for url in urls:
        try:
            _knock(url)
            client = _client(docker, url, _api_version(docker, url))
            try:
                info = _info(client)
            except BaseException:
                client.close()
                raise
            client.api.timeout = ANSWER_SECONDS
            return Engine(url, client, info)
        except (docker.errors.DockerException, OSError) as error:
            reasons.append((url, error))
    raise unreachable(reasons)


def _knock(url: str) -> None:
    """Connect and hang up: a socket that the SDK could not connect is left open by it.

    Raises:
        OSError: Nobody is there, or this user may not connect.
    """
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(url.removeprefix("unix://"))


def _api_version(docker: Any, url: str) -> str:
    """What the engine speaks. The SDK asks by itself, and then nobody can close the client when there is no answer."""
    oldest = docker.constants.MINIMUM_DOCKER_API_VERSION
    asking = _client(docker, url, oldest)
    try:
        told = str(asking.api.version(api_version=False)["ApiVersion"])
    finally:
        asking.close()
    return min(told, str(docker.constants.DEFAULT_DOCKER_API_VERSION), key=_numbers)


def _client(docker: Any, url: str, version: str) -> DockerClient:
    made: DockerClient = docker.DockerClient(
        base_url=url,
        version=version,
        timeout=CONNECT_SECONDS,
        max_pool_size=THREADS + REMOVERS,
        **_tls(docker, url),
    )
    # The environment's certificates (REQUESTS_CA_BUNDLE) would take the place of the engine's own; its proxies and
    # .netrc are for the web, and attaching does not go through them either.
    made.api.trust_env = False
    return made


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _sdk() -> Any:
    try:
        import docker
    except ImportError as error:
        raise EngineUnavailable(
            "Containers need the Docker SDK for Python, which also speaks to Podman. Install it with: pip install "
            "'adk-skills-agent[container]'."
        ) from error
    return docker


def _tls(docker: Any, url: str) -> dict[str, Any]:
    """DOCKER_TLS_VERIFY and DOCKER_CERT_PATH mean what they mean to the docker command."""
    folder = os.environ.get("DOCKER_CERT_PATH")
    if url.startswith("unix://") or not (os.environ.get("DOCKER_TLS_VERIFY") or folder):
        return {}
    place = Path(folder) if folder else Path.home() / ".docker"
    certificate = (str(place / "cert.pem"), str(place / "key.pem"))
    return {"tls": docker.tls.TLSConfig(client_cert=certificate, ca_cert=str(place / "ca.pem"), verify=True)}


def _info(client: DockerClient) -> EngineInfo:
    version: dict[str, Any] = client.version()
    told: dict[str, Any] = client.info()
    names = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    security = " ".join(told.get("SecurityOptions") or ())
    return EngineInfo(
        product="podman" if any("Podman" in name for name in names) else "docker",
        version=str(version.get("Version", "?")),
        runtimes=tuple(sorted(told.get("Runtimes") or ())),
        default_runtime=str(told.get("DefaultRuntime") or ""),
        cgroups=str(told.get("CgroupVersion") or ""),
        rootless="rootless" in security,
    )


_pools: dict[str, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def submit(work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run ``work`` in one of the engines' threads; the future belongs to the running loop.

    Raises:
        RuntimeError: The interpreter is shutting down.
    """
    future = asyncio.wrap_future(_threads("adk-skills-engine", THREADS).submit(work))
    future.add_done_callback(_seen)  # who waited may have given up
    return future


def remove_in_background(work: Callable[[], object]) -> None:
    """Run ``work``, which removes something and which nobody waits for, in a thread of its kind; also without a loop.

    Raises:
        RuntimeError: The interpreter is shutting down.
    """
    _threads("adk-skills-removal", REMOVERS).submit(work)


def _threads(name: str, most: int) -> ThreadPoolExecutor:
    with _lock:
        if name not in _pools:  # one per process is the point
            _pools[name] = ThreadPoolExecutor(most, thread_name_prefix=name)
        return _pools[name]


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # taken, so that it is not reported as lost


def _forget() -> None:
    global _pools, _lock  # noqa: PLW0603  # threads do not survive a fork, and the lock may have been held
    _pools = {}
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
