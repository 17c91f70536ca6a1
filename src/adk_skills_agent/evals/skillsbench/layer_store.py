"""Where layers are kept: one folder for each, complete or not there at all."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.evals.skillsbench.range_folders import OPEN_TO_PASS, make_owned, remove_tree
from adk_skills_agent.evals.skillsbench.user_range import UserRange


@dataclass(slots=True)
class NewLayer:
    """A layer in the making; ``top`` and ``scratch`` are names below the store."""

    store: Path
    name: str
    kept: bool = False

    @property
    def top(self) -> str:
        """The folder that takes what is written."""
        return f"{self.name}/top"

    @property
    def scratch(self) -> str:
        """The kernel's folder beside it."""
        return f"{self.name}/scratch"

    def keep(self, key: str) -> None:
        """Give it its lasting name; when another runner was faster, theirs stays."""
        with contextlib.suppress(OSError):
            (self.store / self.name / "done").touch()
            (self.store / self.name).rename(layer_folder(self.store, key))
            self.kept = True


@contextlib.asynccontextmanager
async def new_layer(store: Path, users: UserRange, below: str = "layers") -> AsyncIterator[NewLayer]:
    """An empty layer; it is removed at the end unless it was kept."""
    layer = NewLayer(store, f"{below}/new-{os.getpid()}-{uuid.uuid4().hex[:12]}")
    folder = store / layer.name
    await asyncio.to_thread(_make_open, folder)
    try:
        await make_owned(folder, ["top", "scratch"], users)
        yield layer
    finally:
        if not layer.kept:
            await asyncio.shield(remove_tree(folder, users))


def _make_open(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.parent.chmod(OPEN_TO_PASS)


def layer_folder(store: Path, key: str) -> Path:
    """Where the layer of that key is, or would be."""
    return store / "layers" / key


def has_layer(store: Path, key: str) -> bool:
    """Whether it is complete."""
    return (layer_folder(store, key) / "done").is_file()


def layer_key(*parts: str) -> str:
    """A name made of everything the layer depends on."""
    total = hashlib.sha256()
    for part in parts:
        total.update(f"{len(part)}:{part}".encode())
    return total.hexdigest()[:40]
