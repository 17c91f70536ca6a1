"""``workspace_store``: which store has the files of a call's session, google-adk's artifact services among them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from google.adk.artifacts import BaseArtifactService
from google.genai import types

from adk_skills_agent.adk.events.events import WorkspaceStored, origin_of
from adk_skills_agent.errors import ConfigError, StorageError, nearest, said_by
from adk_skills_agent.scripts.stored_workspace import SessionStore, StoreReport
from adk_skills_agent.scripts.workspace_store import Owner, WorkspaceStore, workspace_store_of
from adk_skills_agent.storage import MOST_BYTES, ObjectStore, within

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.sandbox import SandboxPolicy

_T = TypeVar("_T")

ARTIFACTS = "artifacts"
"""The setting that takes the artifact service of the Runner."""
_APP = "adk-skills-workspaces"
"""The app under which files are artifacts: no session of a user lists them."""
_USER = "sessions-of-all/./workspaces"
"""Not a user's id: no path of an HTTP API has a slash in one. Where a service joins ids with slashes, one of the parts
would have to be ``.``, which all refuse (row 306)."""
_INDEX = "user:"
_SECONDS = 120.0
_MOST_SERVICES = 7
"""Remembered besides the newest one: a toolset may serve several Runners."""


def check_word(setting: object) -> None:
    """Refuse a word that was meant to be ``artifacts``: as a folder it would keep files on this server alone.

    Raises ``ConfigError`` that says how such a folder is written.
    """
    if isinstance(setting, str) and setting != ARTIFACTS and "/" not in setting and nearest(setting, (ARTIFACTS,), 1):
        raise ConfigError(f"workspace_store={setting!r}: did you mean {ARTIFACTS!r}? Write './{setting}' for a folder.")


class WorkspaceStores:
    """The setting of one toolset.

    ``setting`` is None, a folder, a URL, a :class:`WorkspaceStore`, an artifact service, or ``"artifacts"`` for that of
    the Runner. Raises ``ConfigError`` when it is something else, or cannot be used.
    """

    def __init__(self, setting: object) -> None:
        check_word(setting)
        self._of_runner = setting == ARTIFACTS
        self._services: list[tuple[BaseArtifactService, WorkspaceStore]] = []
        if isinstance(setting, BaseArtifactService):
            setting = WorkspaceStore(ArtifactObjects(setting))
        self._store = None if self._of_runner else workspace_store_of(setting)

    def of(self, runtime: SkillRuntime, tool_context: ToolContext) -> SessionStore | None:
        """What a call says about the store of its session; None when there is none.

        Raises ``ConfigError`` when the runner's artifact service cannot be one.
        """
        store = self._service_store(tool_context) if self._of_runner else self._store
        if store is None:
            return None
        session, origin, loop = tool_context.session, origin_of(tool_context), asyncio.get_running_loop()
        context = contextvars.copy_context()

        def tell(report: StoreReport) -> None:
            event = WorkspaceStored(
                origin=origin,
                action=report.action,
                files=report.files,
                bytes=report.bytes,
                seconds=report.seconds,
                problem=report.problem,
            )
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(runtime.events.emit, event, context=context)

        return SessionStore(
            store,
            Owner(session.app_name, session.user_id, session.id),
            _most_bytes(runtime.settings.policy),
            runtime.grants.forms,
            tell,
        )

    def _service_store(self, tool_context: ToolContext) -> WorkspaceStore:
        service = tool_context.get_invocation_context().artifact_service
        if service is None:
            raise ConfigError(
                "workspace_store='artifacts' needs a Runner with an artifact service. Give it one, or give the toolset "
                "a folder or a URL."
            )
        for known, store in self._services:
            if known is service:
                return store
        made = WorkspaceStore(ArtifactObjects(service))
        self._services = [*self._services[-_MOST_SERVICES:], (service, made)]
        return made


def _most_bytes(policy: SandboxPolicy) -> int | None:
    """What the policy lets the workspace, ``/tmp`` and copies of skills hold together."""
    if policy.workspace_bytes is None or policy.tmp_bytes is None:
        return None
    return 2 * policy.workspace_bytes + policy.tmp_bytes


class ArtifactObjects(ObjectStore):
    """Objects as artifacts of a google-adk service, in an app of their own.

    An object is version 0 of its artifact. google-adk gives each version to one save, which makes *create* safe where
    the service does so on all servers: ``GcsArtifactService``, and ``FileArtifactService`` on a shared folder. The
    service is called on an event loop of this store's own thread.
    """

    def __init__(self, service: BaseArtifactService) -> None:
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()
        self._indexed: set[str] = set()
        self.shown = type(service).__name__

    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """See :meth:`ObjectStore.read`; google-adk's services read an artifact whole."""
        data = self._done("read", self._load(name))
        return None if data is None else within(data, most, name, self.shown)

    async def _load(self, name: str) -> bytes | None:
        scope, filename = _scope(name)
        last = None if _is_replaced(name) else 0
        part = await self._service.load_artifact(**scope, filename=filename, version=last)
        if part is None or part.inline_data is None:
            return None
        return part.inline_data.data or b""

    def write(self, name: str, data: bytes) -> None:
        """See :meth:`ObjectStore.write`."""
        self._done("written", self._replace(name, data))

    async def _replace(self, name: str, data: bytes) -> None:
        scope, filename = _scope(name)
        if not _is_replaced(name):  # version 0 is the object: a second write of the same content changes nothing
            if await self._load(name) == data:
                return
            await self._service.delete_artifact(**scope, filename=filename)
        await self._service.save_artifact(**scope, filename=filename, artifact=_part(data))

    def create(self, name: str, data: bytes) -> bool:
        """See :meth:`ObjectStore.create`."""
        return self._done("written", self._create(name, data))

    async def _create(self, name: str, data: bytes) -> bool:
        scope, filename = _scope(name)
        session = scope["session_id"]
        if session not in self._indexed:
            if await self._service.load_artifact(**_index(session)) is None:
                await self._service.save_artifact(**_index(session), artifact=_part(b"1"))
            self._indexed.add(session)
        present = await self._load(name)
        if present is not None:
            return present == data
        version = await self._service.save_artifact(**scope, filename=filename, artifact=_part(data))
        return version == 0 or await self._load(name) == data

    def names(self, folder: str) -> Mapping[str, int]:
        """See :meth:`ObjectStore.names`; sizes are not known."""
        return dict.fromkeys(self._done("read", self._names(folder)), 0)

    async def _names(self, folder: str) -> list[str]:
        scope, prefix = _scope(f"{folder}/")
        found = await self._service.list_artifact_keys(**scope)
        return [one.removeprefix(prefix) for one in found if one.startswith(prefix)]

    def folders(self) -> Sequence[str]:
        """See :meth:`ObjectStore.folders`."""
        found = self._done("read", self._service.list_artifact_keys(app_name=_APP, user_id=_USER))
        return sorted(one.removeprefix(_INDEX) for one in found)

    def delete(self, names: Iterable[str]) -> None:
        """See :meth:`ObjectStore.delete`."""
        self._done("changed", self._delete(list(names)))

    async def _delete(self, names: list[str]) -> None:
        for name in names:
            scope, filename = _scope(name)
            await self._service.delete_artifact(**scope, filename=filename)
        for session in {_scope(name)[0]["session_id"] for name in names}:
            if not await self._service.list_artifact_keys(**_scope(f"{session}/")[0]):
                self._indexed.discard(session)
                await self._service.delete_artifact(**_index(session))

    def _done(self, done: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Do it on this store's own loop: a service may keep its connections to one."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="adk-skills-artifacts", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_SECONDS)
        except Exception as error:  # each service has its own exceptions
            future.cancel()
            why = said_by(error, 200)
            raise StorageError(
                f"The artifact service {self.shown} cannot be {done}: {why}. Check its address and its credentials."
            ) from error


def _scope(name: str) -> tuple[dict[str, Any], str]:
    """The place of an object: its session, and its name there without slashes, which services treat each in its way.

    Each session is a user's of its own: google-adk lists what is a user's beside what is a session's (row 480).
    """
    session, _, rest = name.partition("/")
    return {"app_name": _APP, "user_id": f"{_USER}-{session}", "session_id": session}, rest.replace("/", "--")


def _index(session: str) -> dict[str, Any]:
    """The entry that says that there is a session."""
    return {"app_name": _APP, "user_id": _USER, "session_id": session, "filename": f"{_INDEX}{session}"}


def _is_replaced(name: str) -> bool:
    """Whether an object is written again and again: its last version counts."""
    return name.split("/")[1:2] == ["alive"]


def _part(data: bytes) -> types.Part:
    return types.Part.from_bytes(data=data, mime_type="application/octet-stream")
