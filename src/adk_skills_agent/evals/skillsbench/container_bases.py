"""Base images of container mode that are not the ones a Dockerfile names.

Another image may stand for one (a mirror), one may be made of Debian's and Ubuntu's packages where the engine has no
registry, and one may be made over another that trusts certificates while it is built upon.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from adk_skills_agent.evals.skillsbench.base_root import PREPARE_PYTHON, Base, base_of, make_root
from adk_skills_agent.evals.skillsbench.box import BuildError, NotInterpretable
from adk_skills_agent.evals.skillsbench.build_context import write_tar
from adk_skills_agent.evals.skillsbench.engine_build import DOCKERFILE, EngineBuild, build
from adk_skills_agent.evals.skillsbench.engine_options import EngineOptions
from adk_skills_agent.evals.skillsbench.layer_store import layer_key
from adk_skills_agent.evals.skillsbench.outside_network import TRUST_VARIABLES, TRUSTED
from adk_skills_agent.evals.skillsbench.user_range import UserRange, open_user_range

_NAME = "localhost/adk-skills-base"
_CERTIFICATES = "ca-certificates.crt"
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class BaseImage:
    """What stands for an image: its name for the engine, and a sentence when it is not the same."""

    name: str
    note: str = ""


class BaseImages:
    """The bases of a run; close it at the end.

    Args:
        client: Of the Docker SDK.
        options: Where bases come from and what builds trust.
    """

    def __init__(self, client: Any, options: EngineOptions) -> None:
        self._client = client
        self._options = options
        self._users: UserRange | None = None
        self._made: dict[str, BaseImage] = {}
        self._turn = asyncio.Lock()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The ARG lines that every stage needs."""
        return trusting(self._options)

    async def get(self, image: str, *, seconds: float, say: Callable[[str], None]) -> BaseImage:
        """What stands for an image, made when it has to be.

        Args:
            image: As the Dockerfile names it.
            seconds: Most seconds to make it.
            say: Gets a line for each step.

        Raises:
            BuildError: It cannot be made.
        """
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
            build(self._client, EngineBuild(f"The base {name}", tag, packed, seconds, {}), self._options, say)
        return tag


def trusting(options: EngineOptions) -> tuple[str, ...]:
    """``NAME=VALUE`` of the build arguments that make the RUNs of a stage trust the certificates."""
    return tuple(f"{name}={TRUSTED}" for name in TRUST_VARIABLES) if options.certificates is not None else ()


def _pack(root: Path, users: UserRange, file: IO[bytes]) -> None:
    command = [*users.entering, "tar", "--numeric-owner", "--exclude=./dev/*", "-C", str(root), "-cf", "-", "."]
    done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise BuildError(f"{root.name} could not be packed: {done.stderr.decode('utf-8', 'replace').strip()[-300:]}")
