"""What COPY takes from a task's ``environment`` folder: found, digested, and packed for the box."""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from adk_skills_agent.evals.skillsbench.box import MissingSource

_NEVER_COPIED = ("Dockerfile", ".dockerignore")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Something that is copied.

    Attributes:
        path: The file or folder on the host.
        folder: Whether it is a folder, whose contents are copied.
        without: Top-level names of the folder that are left out.
    """

    path: Path
    folder: bool
    without: frozenset[str] = frozenset()

    def entries(self) -> Iterator[tuple[Path, str]]:
        """Each file, folder and link: its path and its name in the box, folders before what is in them, sorted."""
        if not self.folder:
            yield self.path, self.path.name
            return
        for place, folders, files in os.walk(self.path):
            here = Path(place)
            below = here.relative_to(self.path)
            if here == self.path:
                folders[:] = [name for name in folders if name not in self.without]
            folders.sort()
            left_out = self.without if here == self.path else ()
            for name in sorted([*folders, *(file for file in files if file not in left_out)]):
                yield here / name, str(below / name)


def find_sources(context: Path, patterns: Sequence[str], *, with_skills: bool, line: int) -> list[Source]:
    """What the words of a COPY stand for.

    Args:
        context: The task's environment folder.
        patterns: Its sources, with wildcards.
        with_skills: Whether the folder ``skills`` counts; without, it is as if it were not there.
        line: Line of the instruction, for errors.

    Raises:
        MissingSource: One matches nothing, or leaves the folder.
    """
    found = []
    for pattern in patterns:
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise MissingSource(
                f"Line {line} of the Dockerfile copies {pattern!r}, which is outside of the environment."
            )
        hits = [(context, ())] if not parts else list(_matches(context, tuple(parts), ()))
        hits = [hit for hit in hits if with_skills or hit[1][:1] != ("skills",)]
        if not hits:
            raise MissingSource(
                f"Line {line} of the Dockerfile copies {pattern!r}, and the environment has no such file."
            )
        for path, names in hits:
            if not _is_inside(path, context):
                raise MissingSource(f"Line {line} of the Dockerfile copies {pattern!r}, a link out of the environment.")
            without = set(_NEVER_COPIED) if not names else set()
            if not with_skills and not names:
                without.add("skills")
            found.append(Source(path, path.is_dir(), frozenset(without)))
    return found


def digest_of(sources: Sequence[Source]) -> str:
    """SHA-256 over names, kinds, permission bits and bytes."""
    total = hashlib.sha256()
    for source in sources:
        for path, name in source.entries():
            status = path.lstat()
            total.update(f"{name}\0{stat.S_IFMT(status.st_mode):o}\0{status.st_mode & 0o777:o}\0".encode())
            if stat.S_ISLNK(status.st_mode):
                total.update(str(path.readlink()).encode())
            elif stat.S_ISREG(status.st_mode):
                with path.open("rb") as file:
                    while piece := file.read(_PIECE):
                        total.update(piece)
        total.update(b"\n")
    return total.hexdigest()


def write_tar(file: IO[bytes], sources: Sequence[Source], documents: Mapping[str, str]) -> None:
    """Pack sources and here-documents; links stay links, what is no file, folder or link is left out."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        for source in sources:
            for path, name in source.entries():
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
                    archive.add(path, arcname=name, recursive=False, filter=_owned_by_root)
        for name, text in documents.items():
            member = tarfile.TarInfo(name)
            content = text.encode()
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content))


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _matches(folder: Path, parts: tuple[str, ...], above: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  # names, not paths
    except OSError:
        return
    for name in names:
        if not fnmatch.fnmatchcase(name, parts[0]):
            continue
        if len(parts) == 1:
            yield folder / name, (*above, name)
        else:
            yield from _matches(folder / name, parts[1:], (*above, name))


def _is_inside(path: Path, context: Path) -> bool:
    return path.resolve().is_relative_to(context.resolve())
