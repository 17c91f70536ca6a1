"""A container engine that speaks Docker's API: found, asked through the Docker SDK, its errors in sentences.

The SDK blocks, so it is used in a few threads that all engines of a process share. The stream of a container's main
process does not go through it: see :mod:`.streams`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adk_skills_agent.errors import ConfigError, EngineUnavailable, ImageUnavailable, SandboxError, SkillsError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sandbox.threads import OnePerProcess, Workers

if TYPE_CHECKING:
    from docker import DockerClient


_Result = TypeVar("_Result")

THREADS = 8
"""Questions an agent process has open at its engines at the same time."""
REMOVERS = 4
"""Containers it removes at the same time besides: what is made takes seconds, and must not hold up what is to end."""
SENDERS = 2
"""Skills it sends at the same time besides: of two a user has one, and nobody's questions wait for a large skill."""
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
    """What an engine says about itself; what it does not tell is empty.

    Attributes:
        product: ``docker`` or ``podman``.
        runtimes: OCI runtimes it knows, by name.
        default_runtime: The one it takes.
        cgroups: ``1`` or ``2``.
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
            f"{source}={url!r} is not the address of an engine: use unix:///path/to/socket or tcp://host:port."
        )
    return url


class Engine:
    """A connection to one engine."""

    def __init__(self, url: str, client: DockerClient, info: EngineInfo) -> None:
        self.url = url
        self.info = info
        self._client = client

    async def ask(
        self, question: Callable[[DockerClient], _Result], doing: str, *, seconds: float | None = ANSWER_SECONDS + 5
    ) -> _Result:
        """Let a thread ask the engine; what was begun goes on when the wait ends. ``doing`` completes "could not".

        Raises:
            EngineUnavailable: It is gone, or does not answer within ``seconds``.
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
        """The same in this thread, blocking."""
        try:
            return question(self._client)
        except Exception as error:
            raise self.translated(error, doing, at=True) from error

    def translated(self, error: BaseException, doing: str, *, at: bool = False) -> SkillsError:
        """An error of the SDK or of the transport as one of this package; ``doing`` completes "could not"."""
        return _translated(error, f"{self.info.title} at {self.url}" if at else self.info.title, doing, self.url)

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


def connect_now(urls: tuple[str, ...]) -> Engine:
    """The first engine that answers; see :func:`engine_urls`. Blocking.

    Raises:
        EngineUnavailable: No engine is installed or running, or this user may not use it; the sentence says what to do.
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
    """Connect and hang up: a socket that the SDK could not connect is left open by it."""
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
        max_pool_size=THREADS + REMOVERS + SENDERS,
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
            "Containers need the Docker SDK for Python, which also speaks to Podman. "
            f"Install it with: {install_hint('container')}"
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
        # Podman has a name of its own for it, and does not say it among these.
        rootless="rootless" in security or told.get("Rootless") is True,
    )


_questions = OnePerProcess(lambda: ThreadPoolExecutor(THREADS, thread_name_prefix="adk-skills-engine"))
_removers = OnePerProcess(lambda: ThreadPoolExecutor(REMOVERS, thread_name_prefix="adk-skills-removal"))
_senders = OnePerProcess(lambda: Workers(SENDERS, "adk-skills-sending"))


def submit(work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run ``work`` in one of the engines' threads; the future belongs to the running loop."""
    future = asyncio.wrap_future(_questions().submit(work))
    future.add_done_callback(seen)  # who waited may have given up
    return future


def remove_in_background(work: Callable[[], object]) -> None:
    """Run ``work``, which removes something and which nobody waits for, in a thread of its kind; needs no loop."""
    _removers().submit(work)


def send_in_background(work: Callable[[], object]) -> None:
    """Run ``work``, which sends files and tells itself what came of it, in a thread of its kind; users have these in
    turn. A RuntimeError when no thread can be started.
    """
    _senders().begin(work)


def seen(future: asyncio.Future[Any]) -> None:
    """Take the error of what nobody may be waiting for any more, so that it is not reported as lost."""
    if not future.cancelled():
        future.exception()


_INSTALL = (
    "Install one: Debian or Ubuntu: sudo apt-get install podman, then systemctl --user start podman.socket; or Docker: "
    "https://docs.docker.com/engine/install/."
)
_START = (
    "{}: systemctl --user start podman.socket, or sudo systemctl start docker; elsewhere: podman system service "
    "--time=0, or dockerd."
)
_INSTALL_ON_MACOS = (
    "Install one: Docker Desktop, or: brew install podman && podman machine init && podman machine start."
)
_START_ON_MACOS = "{}: open Docker Desktop, or: podman machine start, or: colima start."
_MOST_CHARS = 300
_WANTS_TLS = "it wants TLS"
_NO_TLS = "TLS with it failed"


def unreachable(reasons: Sequence[tuple[str, BaseException]], why: str = "") -> EngineUnavailable:
    """No engine answered."""
    if not reasons:
        there = [name for name, program in (("Podman", "podman"), ("Docker", "dockerd")) if shutil.which(program)]
        verb, start = ("are", "Start one") if len(there) > 1 else ("is", "Start it")
        waiting = f"{' and '.join(there)} {verb} installed but not running. {_start().format(start)}"
        advice = waiting if there else _install()
        return EngineUnavailable(f"There is no container engine here: {why}. {advice}", (why,))
    said = tuple(f"{url}: {_clause(error)}" for url, error in reasons)
    return EngineUnavailable(f"No container engine can be used: {'; '.join(said)}. {_advice(reasons)}", said)


def _translated(error: BaseException, engine: str, doing: str, url: str) -> SkillsError:
    from docker import errors

    if isinstance(error, SkillsError):
        return error
    if isinstance(error, errors.ImageNotFound):
        return ImageUnavailable(f"{engine} could not {doing}: {_said(error)}.")
    if isinstance(error, errors.APIError):
        said = _said(error)
        if _means_full(said):
            return SandboxError(
                f"{engine} could not {doing}: its disk is full. Free space where it keeps its data (docker system "
                "prune, podman system prune) and try again."
            )
        if "no such image" in said.lower() or "image not known" in said.lower():
            return ImageUnavailable(f"{engine} could not {doing}: {said}.")
        return SandboxError(f"{engine} could not {doing}: {said}.")
    return EngineUnavailable(
        f"{engine} could not {doing}: {_clause(error)}. {_advice([(url, error)])}", (f"{url}: {_clause(error)}",)
    )


def is_missing(error: BaseException) -> bool:
    """Whether the engine says that what is to be removed is not there."""
    from docker import errors

    return _says(error, "no such container") or any(isinstance(cause, errors.NotFound) for cause in _causes(error))


def is_going(error: BaseException) -> bool:
    """Whether the engine says that it is just removing it."""
    return _says(error, "already in progress")


def _says(error: BaseException, text: str) -> bool:
    from docker import errors

    return any(isinstance(cause, errors.APIError) and text in _said(cause).lower() for cause in _causes(error))


def _said(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or error)
    text = re.sub(r"\s+", " ", text).strip(" .")
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."


def _means_full(said: str) -> bool:
    return any(text in said.lower() for text in ("no space left on device", "disk quota exceeded"))


def _clause(error: BaseException) -> str:
    """The innermost cause that means something to a person."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not one of DOCKER_CERT_PATH's authority ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return f"{_NO_TLS} ({cause.reason or 'no reason given'})"
        if "HTTP request to an HTTPS server" in str(cause):
            return _WANTS_TLS
        if isinstance(cause, PermissionError):
            return "permission denied"
        if isinstance(cause, FileNotFoundError):
            return "there is no such socket"
        if isinstance(cause, ConnectionRefusedError):
            return "nobody listens there"
        if isinstance(cause, TimeoutError) or "timed out" in str(cause).lower():
            return "it does not answer"
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return "the disk is full"
        if isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE}:
            return "this process has too many open files"
        if isinstance(cause, (ConnectionResetError, BrokenPipeError)) or "connection aborted" in str(cause).lower():
            return "the connection was closed"
    return _said(error)


def _install() -> str:
    system: str = sys.platform
    return _INSTALL_ON_MACOS if system == "darwin" else _INSTALL


def _start() -> str:
    system: str = sys.platform
    return _START_ON_MACOS if system == "darwin" else _START


def _advice(reasons: Sequence[tuple[str, BaseException]]) -> str:
    clauses = [_clause(error) for _, error in reasons]
    if "permission denied" in clauses:
        return (
            "This user may not use that socket: use a rootless engine (systemctl --user start podman.socket), or let "
            "an administrator give access. Who is in the group docker is as good as root."
        )
    if any(
        clause in {"nobody listens there", "there is no such socket", "the connection was closed"} for clause in clauses
    ):
        return _start().format("Start it")
    if any(clause == _WANTS_TLS or clause.startswith((_NO_TLS, "its certificate")) for clause in clauses):
        return "Let DOCKER_CERT_PATH name the folder with ca.pem, cert.pem and key.pem for this engine."
    if "it does not answer" in clauses:
        return "Look at the engine's log, or restart it."
    return "Look at base_url and DOCKER_HOST."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it wraps in its arguments, and what it came from; innermost last but one's kinds first."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        nested = [item for item in current.args if isinstance(item, BaseException)]
        nested += [item for item in (current.__cause__, current.__context__) if item is not None]
        reason = getattr(current, "reason", None)
        if isinstance(reason, BaseException):
            nested.append(reason)
        waiting.extend(reversed(nested))
