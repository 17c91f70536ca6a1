"""Read-only folders in containers: each content is sent once, as a tar stream, into a volume that containers share.

A volume works with an engine on another machine, is not counted as a run's memory, and can be mounted read-only, which
no file system in memory can that is filled from inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tarfile
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.container.engine import Engine, send_in_background
from adk_skills_agent.sandbox.container.removals import SANDBOX_LABEL, containers, labels, owner
from adk_skills_agent.sandbox.threads import uninterrupted

if TYPE_CHECKING:
    from docker import DockerClient

_AT = "/skill"
_NAME_DIGITS = 32
_SPOOLED_BYTES = 8 << 20
_FILL_SECONDS = 60.0
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Volumes:
    """The volumes of one sandbox on one engine, by content. A container of ``image`` takes the stream.

    ``token`` is the sandbox's label. Names are no other sandbox's of this agent, which may have the same skills and
    removes its own when it is closed, nor those of an engine that was lost, which runs may go on with.
    """

    def __init__(self, engine: Engine, image: str, token: str) -> None:
        self._engine = engine
        self._image = image
        self._token = token
        self._own = os.urandom(8).hex()
        self._lock = threading.Lock()
        self._made: dict[str, Future[str]] = {}

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._made)

    async def name_of(self, folder: Path, digest: str) -> str:
        """The volume with the content of a folder, made when there is none; who waits for it needs no thread.

        Who makes it waits to its end, also when cancelled: others may not begin in its place meanwhile.
        """
        with self._lock:
            found = self._made.get(digest)
            ours = found is None
            if found is None:
                found = self._made[digest] = Future()
                found.set_running_or_notify_cancel()  # a wait that is cancelled does not cancel it
        if not ours:
            return await asyncio.wrap_future(found)
        making = found
        try:
            send_in_background(lambda: self._make(making, folder, digest))
        except RuntimeError as error:
            self._failed(making, digest, SandboxError(f"The sandbox could not send a skill's files: {error}."))
        return await uninterrupted(asyncio.wrap_future(making))

    def _make(self, making: Future[str], folder: Path, digest: str) -> None:
        name = f"adk-skills-{owner()}-{self._own}-{digest[:_NAME_DIGITS]}"
        marks = {**labels(), SANDBOX_LABEL: self._token}
        try:
            with self._lock:
                if self._made.get(digest) is not making:
                    raise SandboxError("The sandbox was closed before a skill's files were sent.")
            self._engine.ask_now(lambda client: _fill(client, name, marks, self._image, folder), "send a skill's files")
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            self._failed(making, digest, error)
        else:
            making.set_result(name)

    def _failed(self, making: Future[str], digest: str, error: BaseException) -> None:
        with self._lock:
            if self._made.get(digest) is making:
                del self._made[digest]
        making.set_exception(error)

    def remove(self, spared: Collection[str] = ()) -> list[str]:
        """Remove them all, those too that the engine made while it broke; a sentence for each in the way. Blocking.

        ``spared`` are containers of runs that go on.
        """
        with self._lock:
            made, self._made = self._made, {}
        wait(made.values(), _FILL_SECONDS)
        names = {one.result() for one in made.values() if one.done() and one.exception() is None}
        try:
            names.update(self._engine.ask_now(self._listed, "list volumes"))
        except SandboxError as error:
            return [error.message]
        problems = []
        for name in sorted(names):
            try:
                self._engine.ask_now(lambda client, name=name: _drop(client, name, spared), "remove a volume")  # type: ignore[misc]
            except SandboxError as error:
                problems.append(f"Volume {name} could not be removed: {error.message}")
        return problems

    def _listed(self, client: DockerClient) -> list[str]:
        found = client.api.volumes(filters={"label": f"{SANDBOX_LABEL}={self._token}"}) or {}
        return [str(one["Name"]) for one in found.get("Volumes") or ()]


def _fill(client: DockerClient, name: str, marks: Mapping[str, str], image: str, folder: Path) -> None:
    client.volumes.create(name=name, labels=dict(marks))
    try:
        from docker.types import Mount

        helper: Any = client.containers.create(
            image,
            entrypoint=["-"],
            command=[],
            mounts=[Mount(_AT, name, type="volume", no_copy=True)],
            network_mode="none",
            use_config_proxy=False,
            labels=labels(lasts=0),
        )
        try:
            with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as stream:
                with tarfile.open(fileobj=stream, mode="w", dereference=False) as archive:
                    archive.add(folder, arcname=".", filter=_anybody)
                stream.seek(0)
                if not client.api.put_archive(helper.id, _AT, stream):
                    raise SandboxError(f"The engine did not take the files of {folder.name}.")
        finally:
            client.api.remove_container(helper.id, force=True, v=False)
    except BaseException:
        _drop(client, name)
        raise


def _anybody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, and readable by everybody: the container's user is another one."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o555 if member.isdir() or member.mode & 0o100 else 0o444
    return member


def _drop(client: DockerClient, name: str, spared: Collection[str] = ()) -> None:
    from docker import errors

    for pause in (*_PAUSES, None):
        try:
            client.api.remove_volume(name, force=True)
        except errors.NotFound:
            return
        except errors.APIError:
            if pause is None:
                raise
            _remove_users(client, name, spared)
            time.sleep(pause)
        else:
            return


def _remove_users(client: DockerClient, name: str, spared: Collection[str]) -> None:
    """What has a volume nobody needs any more: the engine is just removing it, or broke before it did."""
    from docker import errors

    with contextlib.suppress(errors.APIError):  # of who removes one at the same time
        for found in containers(client, {"volume": name}):
            if found["Id"] not in spared:
                client.api.remove_container(found["Id"], force=True)
