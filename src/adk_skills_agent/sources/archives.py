"""Archives of strangers: zip and tar, read into memory within bounds; what is odd refuses the whole archive (row 46).

Nothing is extracted to disk here. Sizes are counted while bytes come out, never believed.
"""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from adk_skills_agent.errors import SourceError
from adk_skills_agent.sources.tree import (
    MAX_FILE_BYTES,
    SKIPPED,
    SkillTree,
    TreeFile,
    check_paths,
    files_by_folder,
    skill_folders,
    tree_of,
)
from adk_skills_agent.storage.tar_members import BoundedMember

MAX_PACKED_BYTES = 64 << 20
MAX_MEMBERS = 20_000
"""Of one archive: a repository of 2,400 skills has about 16,000 files."""
MAX_UNPACKED_BYTES = 256 << 20
MAX_RATIO = 200
"""Unpacked to packed bytes of a file above a mebibyte; text packs to a fifth, a bomb to a thousandth."""
_RATIO_FROM = 1 << 20
_CHUNK = 1 << 16
_LISTED_IN_ZIP = b"PK\x01\x02"  # what the entry of each member begins with
_EXECUTABLE = stat.S_IXUSR


def read_archive(data: bytes, what: str) -> dict[str, TreeFile]:
    """The regular files of an archive.

    ``data`` is a ``.zip`` (or ``.skill``, ``.whl``), ``.tar`` or ``.tar.gz``; ``what`` names it in sentences. Returns
    Path to file, in the order of the archive. Raises ``SourceError`` when it is damaged, too large, or has a member
    that no archive of skills should have.
    """
    if len(data) > MAX_PACKED_BYTES:
        raise SourceError(f"{what} has more than {MAX_PACKED_BYTES >> 20} MiB. Ask its author to make it smaller.")
    try:
        members = _zip(data, what) if data[:4] in {b"PK\x03\x04", b"PK\x05\x06"} else _tar(data, what)
        files: dict[str, TreeFile] = {}
        total = 0
        for path, file in members:
            if path in files:
                raise SourceError(f"{what} has {path[:120]!r} twice, so nothing of it is taken.")
            total += len(file.data)
            if total > MAX_UNPACKED_BYTES:
                raise SourceError(f"{what} unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB. Make it smaller.")
            files[path] = file
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, struct.error) as error:
        raise SourceError(f"{what} is damaged or no archive: {error}. Get it again.") from error
    except (ValueError, NotImplementedError, RuntimeError, OverflowError, MemoryError, IndexError, KeyError) as error:
        raise SourceError(f"{what} cannot be read as an archive: {error}. Pack it again.") from error
    if not files:
        raise SourceError(f"{what} is empty.")
    return files


def skills_of(files: Mapping[str, TreeFile], what: str) -> dict[str, SkillTree]:
    """The skills in the files of an archive.

    Returns the folder in the archive (empty for its root) to the skill's tree. Raises ``SourceError`` when there is
    none.
    """
    folders = skill_folders(files)
    if not folders:
        raise SourceError(f"{what} has no SKILL.md, so there is no skill in it.")
    found = {}
    for folder, inside in files_by_folder(files, folders, folders).items():
        skip = len(folder) + 1 if folder else 0
        found[folder] = tree_of({path[skip:]: files[path] for path in inside}, f"{what}, folder {folder or '.'!r},")
    return found


def _member_problem(path: str, what: str) -> None:
    if not path or len(path) > 1024:
        raise SourceError(f"{what} has a member whose path is empty or too long, so nothing of it is taken.")


def _zip(data: bytes, what: str) -> Iterator[tuple[str, TreeFile]]:
    if data.count(_LISTED_IN_ZIP) > MAX_MEMBERS:  # before there is an object for each (row 141)
        raise SourceError(f"{what} has more than {MAX_MEMBERS:,} members, so nothing of it is taken.")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        _check_overlap(infos, what)
        names = [info.filename for info in infos if not info.is_dir()]
        _check_all(names, [info.filename for info in infos if info.is_dir()], what)
        for info in infos:
            mode = info.external_attr >> 16
            kind = stat.S_IFMT(mode)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise SourceError(
                    f"{what} has {info.filename[:120]!r}, which is a link or a device, so nothing of it is taken."
                )
            _check_mode(mode, info.filename, what)
            if info.is_dir():
                continue
            if info.flag_bits & 1:
                raise SourceError(f"{what} is encrypted. Pack it without a password.")
            if not SKIPPED.isdisjoint(info.filename.split("/")):
                continue
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # Of others Python unpacks at once whatever 64 KiB come to (row 321).
                raise SourceError(f"{what} is packed with bzip2 or LZMA. Pack it as .tar.gz or a usual .zip.")
            with archive.open(info) as stream:
                content = _bounded(stream, info.compress_size, info.filename, what)
            yield info.filename, TreeFile(content, bool(mode & _EXECUTABLE))


def _check_overlap(infos: list[zipfile.ZipInfo], what: str) -> None:
    """Members that share bytes are a bomb: each unpacks them again."""
    end = 0
    for info in sorted(infos, key=lambda one: one.header_offset):
        if info.header_offset < end:
            raise SourceError(f"{what} has members that overlap, so nothing of it is taken.")
        end = info.header_offset + 30 + info.compress_size


def _tar(data: bytes, what: str) -> Iterator[tuple[str, TreeFile]]:
    stream: IO[bytes] = io.BytesIO(data)
    if data[:2] == b"\x1f\x8b":
        stream = io.BytesIO(_gunzip(data, what))
    elif data[:6] == b"\xfd7zXZ\x00" or data[:3] == b"BZh":
        raise SourceError(f"{what} is packed with xz or bzip2. Pack it as .tar.gz or .zip.")
    with tarfile.open(fileobj=stream, mode="r:", tarinfo=BoundedMember) as archive:
        members = []
        for member in archive:
            members.append(member)
            if len(members) > MAX_MEMBERS:
                raise SourceError(f"{what} has more than {MAX_MEMBERS:,} members, so nothing of it is taken.")
        plain = [(_without_dot(member.name), member) for member in members]
        _check_all(
            [path for path, member in plain if not member.isdir()],
            [path for path, member in plain if member.isdir()],
            what,
        )
        for path, member in plain:
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise SourceError(
                    f"{what} has {path[:120]!r}, which is a link, a device or a sparse file, so nothing of it is taken."
                )
            _check_mode(member.mode, path, what)
            if not SKIPPED.isdisjoint(path.split("/")):
                continue
            content = archive.extractfile(member)
            if content is None:
                raise SourceError(f"{what} has {path[:120]!r}, which cannot be read, so nothing of it is taken.")
            with content:
                yield path, TreeFile(_bounded(content, None, path, what), bool(member.mode & _EXECUTABLE))


def _gunzip(data: bytes, what: str) -> bytes:
    """The bytes within the gzip stream, counted as they come out; headers of members count, too."""
    out: list[bytes] = []
    total = 0
    left = data
    while left:
        machine = zlib.decompressobj(wbits=31)
        while True:
            piece = machine.decompress(left, _CHUNK)
            total += len(piece)
            if total > MAX_UNPACKED_BYTES or (total > 16 * _RATIO_FROM and total > MAX_RATIO * len(data)):
                raise SourceError(f"{what} unpacks to far more than it is large, so nothing of it is taken.")
            out.append(piece)
            left = machine.unconsumed_tail
            if machine.eof:
                left = machine.unused_data.lstrip(b"\0")
                break
            if not piece and not left:
                raise EOFError("it ends in the middle")
    return b"".join(out)


def _without_dot(name: str) -> str:
    while name.startswith("./"):
        name = name[2:]
    return name.rstrip("/") if name not in {".", ""} else ""


def _check_all(files: list[str], folders: list[str], what: str) -> None:
    for path in (*files, *folders):
        if path or path in files:
            _member_problem(path, what)
    check_paths([path for path in files if SKIPPED.isdisjoint(path.split("/"))], what, most=MAX_MEMBERS)
    check_paths(filter(None, (folder.rstrip("/") for folder in folders)), what, most=MAX_MEMBERS)


def _check_mode(mode: int, path: str, what: str) -> None:
    if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX):
        raise SourceError(f"{what} has {path[:120]!r} with a set-id bit, so nothing of it is taken.")


def _bounded(stream: IO[bytes], packed: int | None, path: str, what: str) -> bytes:
    parts: list[bytes] = []
    total = 0
    while piece := stream.read(_CHUNK):
        total += len(piece)
        if total > MAX_FILE_BYTES:
            raise SourceError(f"{what}: {path[:120]!r} has more than {MAX_FILE_BYTES >> 20} MiB. Make it smaller.")
        if packed is not None and total > _RATIO_FROM and total > MAX_RATIO * max(packed, 1):
            raise SourceError(f"{what}: {path[:120]!r} unpacks to far more than it is large; nothing of it is taken.")
        parts.append(piece)
    return b"".join(parts)


# Packing: the same bytes for the same skill, whoever packs it and when.

_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack_zip(tree: SkillTree, prefix: str = "") -> bytes:
    """A ``.zip`` (``.skill``) of a skill; the same bytes for the same tree.

    ``prefix`` is a folder in the archive that everything is put into.
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, file in tree.files.items():
            info = zipfile.ZipInfo(f"{prefix}/{path}" if prefix else path, _EPOCH)
            info.create_system = 3
            info.external_attr = (stat.S_IFREG | (0o755 if file.executable else 0o644)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.data, compresslevel=9)
    return stream.getvalue()


def pack_tar(tree: SkillTree, prefix: str = "") -> bytes:
    """A ``.tar.gz`` of a skill; the same bytes for the same tree."""
    import gzip

    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, file in tree.files.items():
            info = tarfile.TarInfo(f"{prefix}/{path}" if prefix else path)
            info.size = len(file.data)
            info.mode = 0o755 if file.executable else 0o644
            archive.addfile(info, io.BytesIO(file.data))
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=9, mtime=0) as packed:
        packed.write(inner.getvalue())
    return stream.getvalue()


def read_archive_file(path: Path, what: str) -> bytes:
    """The bytes of an archive on disk, bounded. Raises ``SourceError`` when it cannot be read, or is too large."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_PACKED_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{what} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_PACKED_BYTES:
        raise SourceError(f"{what} has more than {MAX_PACKED_BYTES >> 20} MiB. Ask its author to make it smaller.")
    return data
