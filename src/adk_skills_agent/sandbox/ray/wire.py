"""What travels between an agent and a worker of the cluster: both run the same version of this package.

A request is one byte string without its secrets, and each secret is an argument of its own: Ray sends arguments below
100 KB inside of the call itself, and only larger ones by way of its object store, which may write them to a disk.
"""

from __future__ import annotations

import io
import pickle
import platform
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adk_skills_agent.platforms import extract_all_below
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, IsolationReport
from adk_skills_agent.sandbox.secrets import Secret
from adk_skills_agent.sandbox.streaming import ResourceSample

Event = tuple[str, bytes] | ResourceSample
"""What happens while a script runs: a piece of ``stdout`` or ``stderr``, or what it uses."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """One run as a worker gets it.

    Attributes:
        request: Without callbacks and folders of the agent's machine; the source of a mount is the name of its digest.
        own_python: The command is the agent's own interpreter, so there it is the worker's.
        kept: The bounds within which changed files of the workspace come back; None for a run without a workspace.
        spills: Whether the whole text of a long stream is wanted.
        hears: Whether output is wanted while it lasts.
        looks: Whether samples of its resources are wanted.
    """

    request: ExecutionRequest
    own_python: bool
    kept: dict[str, int] | None
    spills: bool
    hears: bool
    looks: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended there.

    Attributes:
        result: What came of it; None when there is ``error`` or ``cancelled``.
        error: What the sandbox there raised.
        cancelled: It was cancelled, and nothing of it is left.
        changes: The frames of what it changed in the workspace.
        unlisted: How many changed files are neither among them nor named.
        spilled: The whole text of each stream that was longer than what is kept; None for the others.
    """

    result: ExecutionResult | None = None
    error: Exception | None = None
    cancelled: bool = False
    changes: bytes = b""
    unlisted: int = 0
    spilled: tuple[bytes | None, bytes | None] = (None, None)

    @property
    def size(self) -> int:
        """Bytes of its files, which whoever gets it holds until they are written."""
        return len(self.changes) + sum(map(len, filter(None, self.spilled)))


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What a worker says of itself: its node, the versions there, what scripts get there or why no sandbox works."""

    host: str
    node_id: str
    version: str
    python: str
    report: IsolationReport | None
    problem: str


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.secrets: dict[Secret, int] = {}

    def persistent_id(self, value: object) -> int | None:
        if type(value) is not Secret:
            return None
        return self.secrets.setdefault(value, len(self.secrets))


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, secrets: tuple[str, ...]) -> None:
        super().__init__(file)
        self._secrets = secrets

    def persistent_load(self, number: int) -> Secret:
        return Secret(self._secrets[number])


def pack(value: object) -> tuple[bytes, tuple[str, ...]]:
    """A value as bytes in which no secret is, and the secrets; each is at most 32 KiB."""
    held = io.BytesIO()
    packer = _Packer(held)
    packer.dump(value)
    return held.getvalue(), tuple(secret.reveal() for secret in packer.secrets)


def unpack(data: bytes, secrets: tuple[str, ...]) -> Any:
    """The value again. For bytes of the agent that started this worker, and of nobody else."""
    return _Unpacker(io.BytesIO(data), secrets).load()


def packed_folder(folder: Path) -> bytes:
    """A skill's copy as an archive. Blocking."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".")
    return held.getvalue()


def unpack_folder(packed: bytes, folder: Path) -> None:
    """Write such an archive into a folder; nothing leaves it. Blocking."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        extract_all_below(archive, folder)


def package_version() -> str:
    """Of this package, in this process."""
    return str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", ""))  # no import upwards


def python_version() -> str:
    """``3.11``."""
    return ".".join(platform.python_version_tuple()[:2])
