"""Building a task's image with an engine: its Dockerfile, with the context of the arm (S0-128)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.base_root import PREPARE_PYTHON, Base, base_of, make_root
from adk_skills_agent.evals.skillsbench.dockerfile import (
    Source,
    bases_of,
    check_sizes,
    copied_images,
    digest_of,
    for_engine,
    for_machine,
    images_of,
    with_bases,
    without_skills,
    write_tar,
)
from adk_skills_agent.evals.skillsbench.engine_options import TRUST_VARIABLES, TRUSTED, EngineOptions
from adk_skills_agent.evals.skillsbench.environment import BuildError, BuiltImage, NotInterpretable
from adk_skills_agent.evals.skillsbench.local_image import layer_key
from adk_skills_agent.evals.skillsbench.task import Task, text_of
from adk_skills_agent.evals.skillsbench.user_range import UserRange, open_user_range
from adk_skills_agent.sandbox import what_is_scarce

_DIGEST = "adk-skills.skillsbench"
_LEAST_MEMORY = 2 << 30
"""Bytes that a step of a build may have, as in local mode."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class EngineMachine:
    """What the engine's machine has for tasks."""

    memory_bytes: int | None = None  # most for one; None where it does not say
    disk: Path | None = None  # where the engine keeps its files; None when that is not on this machine
    architecture: str = field(default_factory=platform.machine)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> EngineMachine:
        """From what the engine tells of itself."""
        total, root = told.get("MemTotal"), str(told.get("DockerRootDir") or "")
        return cls(
            total * 3 // 4 if isinstance(total, int) and total > 0 else None,
            Path(root) if root.startswith("/") and Path(root).is_dir() else None,
            str(told.get("Architecture") or platform.machine()),
        )

    def memory(self, wanted: int) -> int:
        """What a task's settings want, and no more than leaves room for others (rows 161 and 282)."""
        return wanted if self.memory_bytes is None else min(wanted, self.memory_bytes)


async def build_image(
    client: Any,
    task: Task,
    bases: BaseImages,
    options: EngineOptions,
    *,
    with_skills: bool,
    rebuild: bool,
    say: Callable[[str], None],
    machine: EngineMachine,
) -> BuiltImage:
    """Build, or take the image of the same Dockerfile and context that is there.

    Raises ``BuildError`` when a step failed, the engine refused, or the task's build time was over.
    """
    started = time.monotonic()
    file = task.environment / "Dockerfile"
    text = text_of(file) if file.is_file() else f"FROM {task.settings.image}\n"
    arguments = options.build_arguments
    try:
        check_sizes(text)
        text = for_machine(for_engine(text), arguments, machine.architecture)
        text = text if with_skills else without_skills(text)[0]
        images = images_of(text, arguments) if options.changes_bases else ()
        found = {image: await bases.get(image, seconds=task.limits.build_seconds, say=say) for image in images}
        if found:
            text = with_bases(text, arguments, {image: base.name for image, base in found.items()}, bases.arguments)
    except ConfigError as error:
        raise BuildError(f"{task.name}: {error.message}") from error
    left = task.limits.build_seconds - (time.monotonic() - started)
    tag = f"skillsbench-{task.name.lower()}:{'latest' if with_skills else 'no-skill'}"

    def built() -> tuple[Any, bool]:
        left_out = frozenset(("Dockerfile", *(() if with_skills else ("skills",))))
        context = Source(task.environment, folder=True, without=left_out)
        kept = json.dumps(options.kept_arguments, sort_keys=True)
        digest = hashlib.sha256(f"{text}\0{kept}\0{digest_of([context])}".encode()).hexdigest()
        image = None if rebuild else _there(client, tag, digest)
        if image is not None:
            return image, True
        with tempfile.TemporaryFile() as packed:
            write_tar(packed, [context], {DOCKERFILE: text})
            packed.seek(0)
            memory = machine.memory(max(task.limits.memory_bytes, _LEAST_MEMORY))
            named = bases_of(text, arguments)
            own = {*found, *(base.name for base in found.values())}
            fetched = _of_strangers(text, named, own, options)
            wanted = EngineBuild(
                *(task.name, tag, packed, max(1.0, left), {_DIGEST: digest}, memory, machine.disk, rebuild),
                bases=named,
                fetched=fetched,
            )
            return build(client, wanted, options, say), False

    image, cached = await asyncio.to_thread(built)
    config = image.attrs.get("Config") or {}
    env = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    notes = tuple(base.note for base in found.values() if base.note)
    seconds = time.monotonic() - started
    return BuiltImage(tag, env, config.get("WorkingDir") or "/", seconds, notes, image.id, cached)


def _there(client: Any, tag: str, digest: str) -> Any:
    import docker.errors

    try:
        image = client.images.get(tag)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.DockerException as error:
        raise BuildError(f"The engine does not answer: {error}") from error
    return image if (image.labels or {}).get(_DIGEST) == digest else None


# Base images of container mode that are not the ones a Dockerfile names.
#
# Another image may stand for one (a mirror), one may be made of Debian's and Ubuntu's packages where the engine has
# no registry, and one may be made over another that trusts certificates while it is built upon.

_NAME = "localhost/adk-skills-base"
_CERTIFICATES = "ca-certificates.crt"
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class BaseImage:
    """What stands for an image: its name for the engine, and a sentence when it is not the same."""

    name: str
    note: str = ""


class BaseImages:
    """The bases of a run; close it at the end."""

    def __init__(self, client: Any, options: EngineOptions, machine: EngineMachine) -> None:
        self._client = client
        self._options = options
        self._machine = machine
        self._users: UserRange | None = None
        self._made: dict[str, BaseImage] = {}
        self._turn = asyncio.Lock()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The ARG lines that every stage needs."""
        return trusting(self._options)

    async def get(self, image: str, *, seconds: float, say: Callable[[str], None]) -> BaseImage:
        """What stands for an image, made when it has to be. Raises ``BuildError`` when it cannot be made."""
        async with self._turn:
            found = self._made.get(image)
            if found is None:
                found = self._made[image] = await self._make(image, seconds, say)
            return found

    def close(self) -> None:
        """End the process that keeps the user range, where one was needed."""
        if self._users is not None:
            self._users.close()

    async def _make(self, image: str, seconds: float, say: Callable[[str], None]) -> BaseImage:
        mapped = self._options.base_images.get(image)
        if mapped is not None:
            name, note, script = mapped, f"{mapped} stands for {image}.", ""
            await asyncio.to_thread(self._get, mapped)
        elif self._options.packages is not None:
            try:
                base = base_of(image)
            except NotInterpretable:
                note = f"Nothing of packages stands for {image}; the engine has to have it or to get it."
                name, script = image, ""
            else:
                say(f"{image}: made of the packages of {base.release}")
                name, note = await self._of_packages(base, self._options.packages, seconds), base.note
                script = PREPARE_PYTHON if base.python else ""
        else:
            name, note, script = image, "", ""
        if not script and self._options.certificates is None:
            return BaseImage(name, note)
        return BaseImage(await asyncio.to_thread(self._over, name, script, seconds, say), note)

    def _get(self, name: str) -> None:
        """Have the engine get an image that the owner named, with the owner's login: builds get no login (row 281)."""
        import docker.errors
        import requests

        try:
            try:
                self._client.images.get(name)
            except docker.errors.ImageNotFound:
                self._client.images.pull(name)
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise BuildError(f"The engine could not get {name}: {error}") from error

    async def _of_packages(self, base: Base, folder: Path, seconds: float) -> str:
        import docker.errors
        import requests

        if self._users is None:
            self._users = await asyncio.to_thread(open_user_range)
        root = await make_root(base, folder, self._users, seconds)
        repository = f"{_NAME}-{base.key}-{root.stat().st_mtime_ns:x}"
        name = f"{repository}:latest"  # Podman gives what it imports no other tag

        def imported() -> None:
            try:
                self._client.images.get(name)
            except docker.errors.ImageNotFound:
                assert self._users is not None  # noqa: S101  # opened above
                with tempfile.TemporaryFile(dir=folder) as packed:
                    _pack(root, self._users, packed)
                    packed.seek(0)
                    self._client.api.import_image_from_data(
                        packed, repository=repository, tag="latest", changes=[f"ENV PATH={_DEFAULT_PATH}"]
                    )
                self._client.images.get(name)

        try:
            await asyncio.to_thread(imported)
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise BuildError(f"The engine could not take the base made of {base.release}: {error}") from error
        return name

    def _over(self, name: str, script: str, seconds: float, say: Callable[[str], None]) -> str:
        """An image over another, with the certificates and what Python's images have; the engine caches it."""
        lines = [f"FROM {name}", *(f"ARG {argument}" for argument in self.arguments)]
        documents = {}
        if self._options.certificates is not None:
            lines.append(f"COPY {_CERTIFICATES} {TRUSTED}")
            documents[_CERTIFICATES] = self._options.certificates
        if script:
            lines.append(f"RUN {script}")
        text = "".join(f"{line}\n" for line in lines)
        tag = f"{_NAME}:{layer_key(text, documents.get(_CERTIFICATES, ''))}"
        with tempfile.TemporaryFile() as packed:
            write_tar(packed, [], {DOCKERFILE: text, **documents})
            packed.seek(0)
            memory, disk = self._machine.memory_bytes, self._machine.disk
            wanted = EngineBuild(f"The base {name}", tag, packed, seconds, {}, memory, disk)
            build(self._client, wanted, self._options, say)
        return tag


def trusting(options: EngineOptions) -> tuple[str, ...]:
    """``NAME=VALUE`` of the build arguments that make the RUNs of a stage trust the certificates."""
    return tuple(f"{name}={TRUSTED}" for name in TRUST_VARIABLES) if options.certificates is not None else ()


def _pack(root: Path, users: UserRange, file: IO[bytes]) -> None:
    # From within: the users of the range may not pass the folders above it, such as a home of mode 0700.
    command = [*users.entering, "tar", "--numeric-owner", "--exclude=./dev/*", "-cf", "-", "."]
    done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False, cwd=root)
    if done.returncode:
        raise BuildError(f"{root.name} could not be packed: {done.stderr.decode('utf-8', 'replace').strip()[-300:]}")


DOCKERFILE = "Dockerfile.adk-skills"
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """What to build."""

    what: str  # for messages: the task, or the base
    tag: str
    context: IO[bytes]  # a tar with ``DOCKERFILE`` in it, at its start
    seconds: float
    labels: Mapping[str, str]
    memory_bytes: int | None  # most for a step; None leaves it to the engine
    disk: Path | None  # it is ended when the disk of this folder is nearly full
    nocache: bool = False  # whether the engine's layers of earlier builds do not count
    bases: tuple[tuple[str, str], ...] = ()  # a stranger's, with the platform of each
    fetched: tuple[str, ...] = ()  # images that a stranger names, and not the owner


def build(client: Any, build: EngineBuild, options: EngineOptions, say: Callable[[str], None]) -> Any:
    """Build it and return the engine's image; blocks. Raises ``BuildError`` when that fails.

    What it builds is a stranger's, so of the SDK's settings of the user it gets neither the proxies nor the logins for
    registries, with which a FROM or COPY would get the user's private images (row 281).
    """
    import docker.errors
    import requests
    import urllib3

    lines: list[str] = []
    ends = time.monotonic() + build.seconds
    too_long = BuildError(f"{build.what}: the build took longer than {build.seconds:g} seconds")
    limits = {} if build.memory_bytes is None else dict.fromkeys(("memory", "memswap"), build.memory_bytes)
    scarce: list[str] = []
    try:
        with _ended_when_scarce(client, build.disk, scarce):
            if _is_podman(client):
                _refuse_logins(build.what, build.fetched)
            for image, wanted in build.bases:
                _check_base(client, build.what, image, wanted, ends)
            messages = client.api.build(
                fileobj=build.context,
                custom_context=True,
                dockerfile=DOCKERFILE,
                tag=build.tag,
                rm=True,
                forcerm=True,
                nocache=build.nocache,
                decode=True,
                labels=dict(build.labels),
                network_mode=options.build_network,
                buildargs=dict(options.build_arguments),
                use_config_proxy=False,
                container_limits=limits,
                timeout=build.seconds,  # of silence; a build that says something is ended below
            )
            for message in messages:
                line = options.without_secrets(str(message.get("stream") or message.get("status") or "").rstrip())
                if line:
                    lines.append(line)
                    del lines[:-_LAST_LINES]
                    say(f"{build.what}: {line[:120]}")
                if "error" in message:
                    why = options.without_secrets(str(message["error"])).strip()
                    raise BuildError(f"{build.what}: the engine could not build it: {why}", "\n".join(lines))
                if time.monotonic() > ends:
                    messages.close()  # the engine ends a build nobody listens to
                    too_long.output = "\n".join(lines)
                    raise too_long
        if scarce:
            raise BuildError(f"{build.what}: the build was ended, because {scarce[0]}", "\n".join(lines))
        return client.images.get(build.tag)
    except requests.exceptions.Timeout:
        too_long.output = "\n".join(lines)
        raise too_long from None
    except (docker.errors.DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        if scarce:
            raise BuildError(f"{build.what}: the build was ended, because {scarce[0]}", "\n".join(lines)) from None
        why = options.without_secrets(str(error))
        raise BuildError(f"{build.what}: the engine could not build it: {why}", "\n".join(lines)) from error


def _check_base(client: Any, what: str, image: str, wanted: str, ends: float) -> None:
    """Refuse a base with instructions for what is built on it, which nobody has looked at (row 472); pulls it.

    ``wanted`` is its platform, or empty. Raises ``BuildError`` also when it is for another machine, or cannot be had.
    """
    import docker.errors

    told: Mapping[str, Any] = {}
    with contextlib.suppress(docker.errors.ImageNotFound):
        told = client.api.inspect_image(image)
    is_here = f"is for {told.get('Architecture')} here, and not for {wanted}" if told else ""
    if not told or not _is_for(told, wanted):
        _pull(client, f"{what}: the base {image} {is_here or 'cannot be had'}", image, wanted, ends)
        told = client.api.inspect_image(image)
    if not _is_for(told, wanted):
        raise BuildError(f"{what}: the base {image} is for {told.get('Architecture')}, and not for {wanted}")
    if (told.get("Config") or {}).get("OnBuild") or _has_triggers(client, what, image, str(told.get("Id")), ends):
        raise BuildError(f"{what}: the base {image} has ONBUILD instructions, which are not run for a stranger's task")


def _is_for(told: Mapping[str, Any], wanted: str) -> bool:
    return not wanted or wanted.lower().split("/")[1:2] == [told.get("Architecture")]


def _is_podman(client: Any) -> bool:
    return "Podman" in str(client.api.version().get("Components"))


def _refuse_logins(what: str, images: Iterable[str]) -> None:
    """Refuse images that Podman would fetch with the user's own login, which it takes from files (row 490).

    Podman 4.3 looks into them for whatever registry a request brings no login for.
    """
    for image in images:
        host, slash, path = image.lower().partition("/")
        if not slash or not (set(host) & set(".:") or host == "localhost"):
            host, path = "docker.io", image
        is_official = host == "docker.io" and "/" not in path.removeprefix("library/")
        if _REGISTRIES.get(host, host) in _logins() and not is_official:
            raise BuildError(
                f"{what}: Podman would fetch {image} with your login for {host}, which a stranger's task does not get. "
                f"If you want that, name it: --base-image {image}={image}. Else: podman logout {host}"
            )


def _of_strangers(
    text: str, bases: Iterable[tuple[str, str]], own: Iterable[str], options: EngineOptions
) -> tuple[str, ...]:
    """The images that a task names, and not the owner: by ``--base-image`` also those that it only copies from."""
    known = {*own, *options.base_images.values()}
    return tuple(one for one in (*(image for image, _ in bases), *copied_images(text)) if one not in known)


def _logins() -> frozenset[str]:
    """The registries for which Podman finds a login of this user."""
    home, runtime = Path.home(), os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    configured = os.environ.get("DOCKER_CONFIG", str(home / ".docker"))
    found: set[str] = set()
    for file in (
        os.environ.get("REGISTRY_AUTH_FILE", ""),
        f"/run/containers/{os.getuid()}/auth.json",
        f"{runtime}/containers/auth.json",
        f"{os.environ.get('XDG_CONFIG_HOME', home / '.config')}/containers/auth.json",
        f"{configured}/config.json",
    ):
        with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError, TypeError):
            told = json.loads(Path(file).read_bytes()) if file else {}
            for table in ("auths", "credHelpers"):
                found |= {re.sub(r"^https?://", "", str(name)).partition("/")[0] for name in told.get(table) or ()}
    return frozenset(_REGISTRIES.get(name.lower(), name.lower()) for name in found)


_REGISTRIES = dict.fromkeys(("index.docker.io", "registry-1.docker.io"), "docker.io")


NOBODYS_LOGIN = {"nobody.invalid": {"username": "-", "password": "-"}}
"""In place of the user's, which Podman takes from its files where there is no login in a request (row 490)."""


def _pull(client: Any, what: str, image: str, wanted: str, ends: float) -> None:
    import docker.errors
    from docker.utils import parse_repository_tag

    name, tag = parse_repository_tag(image)
    options: dict[str, Any] = {"stream": True, "decode": True, "platform": wanted or None, "auth_config": NOBODYS_LOGIN}
    try:
        for message in client.api.pull(name, tag or "latest", **options):
            if "error" in message or time.monotonic() > ends:
                raise BuildError(f"{what}: {message.get('error') or 'it took too long'}")
    except docker.errors.APIError as error:
        raise BuildError(f"{what}: {error.explanation or error}") from error


_MOST_SETTINGS_BYTES = 4 << 20
_MOST_KNOWN = 1000
_without_triggers: set[str] = set()
"""Ids of images that were read whole; an id is a checksum of what it names."""


def _has_triggers(client: Any, what: str, image: str, found_id: str, ends: float) -> bool:
    """Whether an image has ONBUILD instructions, which Podman does not tell: they are in its settings, which come with
    all of it.
    """
    if found_id in _without_triggers or not _is_podman(client):
        return False
    left = max(1.0, ends - time.monotonic())
    found: dict[str, Any] = {}
    triggers: list[object] = []

    def pairs(values: list[tuple[str, Any]]) -> dict[str, Any]:
        triggers.extend(value for key, value in values if key.casefold() == "onbuild" and value)  # as Go reads it
        return dict(values)

    try:
        answer = client.api._get(client.api._url("/images/{0}/get", found_id), stream=True, timeout=left)
        client.api._raise_for_status(answer)
        with answer, tarfile.open(fileobj=answer.raw, mode="r|") as packed:
            for member in packed:
                content = packed.extractfile(member) if member.isreg() and member.name.endswith(".json") else None
                if content is not None and member.size <= _MOST_SETTINGS_BYTES:
                    found[member.name] = json.load(content, object_pairs_hook=pairs)
                if time.monotonic() > ends:
                    raise BuildError(f"{what}: looking at the base {image} took too long")
        if not all(one["Config"] in found for one in found["manifest.json"]):
            raise ValueError("its settings are not there, or too long")
    except (tarfile.TarError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BuildError(f"{what}: the base {image} cannot be looked at: {error}") from error
    if not triggers and len(_without_triggers) < _MOST_KNOWN:
        _without_triggers.add(found_id)
    return bool(triggers)


@contextlib.contextmanager
def _ended_when_scarce(client: Any, disk: Path | None, scarce: list[str]) -> Iterator[None]:
    """Hang up on the build of this thread when the machine has next to nothing left; ``scarce`` then says of what.

    Engines limit neither what a build writes nor what it has beside memory (row 283).
    """
    answers: list[Any] = []
    mine, over = threading.get_ident(), threading.Event()
    hooks = client.api.hooks["response"]

    def hook(answer: Any, **_: object) -> None:
        if threading.get_ident() == mine:
            answers.append(answer)

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            found = what_is_scarce(disk)
            if found is not None and answers:
                scarce.append(found)
                with contextlib.suppress(AttributeError, ValueError, RuntimeError, OSError):  # urllib3 before 2.3
                    answers[-1].raw.shutdown()
                return

    hooks.append(hook)
    watcher = threading.Thread(target=watch, name="adk-skills-build", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        hooks.remove(hook)
        for answer in answers:  # what was not read to its end would stay open
            answer.close()
