"""Wheels of packages that have none: built in the sandbox, without the network, where the owner allows it.

A build runs the package's own code. So the source comes by its hash from the configured index and is unpacked and built
inside a sandbox with the limits of a run: the packages it needs for that are an environment of wheels like any other,
and nothing is fetched meanwhile. The wheel that comes out is as untrusted as a wheel of an index, and is checked like
one when it is installed.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import html
import io
import json
import os
import re
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from adk_skills_agent.errors import PackageError, SkillsError
from adk_skills_agent.packages.npm import is_node_requirement
from adk_skills_agent.packages.uv import Index, Progress, failure
from adk_skills_agent.sandbox import ExecutionRequest, InputFile, SandboxPolicy, Status, local_sandbox
from adk_skills_agent.settings import parsed_json, parsed_toml
from adk_skills_agent.storage.tar_members import BoundedMember

BUILD_SECONDS = 900.0
MAX_SOURCE_BYTES = 200 << 20
MAX_WHEEL_BYTES = 200 << 20
_PAGE_BYTES = 32 << 20
_PAGE_VALUES, _PIECE_BYTES = 1_000_000, 1 << 16
_MOST_READ_BYTES = 1 << 20
_MOST_UNPACKED_BYTES = 1 << 30
_ANSWER_SECONDS, _FETCH_SECONDS = 30, 900
_PYPI = "https://pypi.org/simple"
_JSON = "application/vnd.pypi.simple.v1+json"
_USUAL_BACKEND = "setuptools.build_meta:__legacy__"
_USUAL_REQUIRES = ("setuptools>=61", "wheel")
_LINK = re.compile(r"<a\s([^<>]{1,4000}+)>", re.IGNORECASE)
_HREF = re.compile(r"""href\s{0,9}=\s{0,9}["']([^"']{1,2000}+)["']""", re.IGNORECASE)
# What uv says of a package that has sources only.
_SOURCE_ONLY = re.compile(r"Wheels are required for `([A-Za-z0-9][\w.-]*)`")
_MOST_REQUIRES_ROUNDS = 3

_BUILD = """
import importlib, json, os, sys, tarfile
archive, backend, folders, more = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
out, source = os.path.abspath("out"), os.path.abspath("source")
os.mkdir(out)
with tarfile.open(archive) as opened:
    checked = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # this is the sandbox: it contains the rest
    opened.extractall(source, **checked)
os.remove(archive)
(top,) = os.listdir(source)
os.chdir(os.path.join(source, top))
sys.path[:0] = [os.path.abspath(folder) for folder in folders]
name, _, attributes = backend.partition(":")
found = importlib.import_module(name)
for attribute in filter(None, attributes.split(".")):
    found = getattr(found, attribute)
asked = getattr(found, "get_requires_for_build_wheel", lambda settings=None: [])(None) or []
if set(asked) - set(more):
    print("\\nADK-SKILLS-REQUIRES " + json.dumps(sorted(set(map(str, asked)))), flush=True)
    sys.exit(0)
print("\\nADK-SKILLS-BUILT " + found.build_wheel(out), flush=True)
"""


@dataclass(frozen=True, slots=True)
class _Source:
    """A source distribution in an index."""

    file: str
    url: str
    sha256: str
    published: datetime | None

    @property
    def version(self) -> Version:
        """Of the package; 0 where the name of the file says none."""
        try:
            return parse_sdist_filename(self.file)[1]
        except InvalidSdistFilename:
            return Version("0")


def source_only(error: PackageError, requirements: Collection[str]) -> Requirement | None:
    """The package that a failed resolution had no wheel of, with the versions that would do.

    Returns None if it failed for another reason.
    """
    said = " ".join(getattr(error, "__notes__", ()))
    found = _SOURCE_ONLY.search(said)
    if found is None:
        return None
    name = canonicalize_name(found[1])
    exactly = re.search(rf"{re.escape(found[1])}==([\w.+!-]+) has no (?:usable )?wheels", said)
    wanted = Requirement(f"{name}=={exactly[1]}" if exactly is not None else name)
    for text in requirements:
        one = Requirement(text)
        if canonicalize_name(one.name) == name:
            wanted.specifier &= one.specifier
    return wanted


def may_build(name: str, allowed: Collection[str] | bool) -> bool:
    """Whether the owner allows the build of a package."""
    if isinstance(allowed, bool):
        return allowed
    return name in {canonicalize_name(one) for one in allowed}


def built_folders(cache: Path, hashes: Collection[str]) -> list[Path]:
    """Folders of wheels that were built here and are meant by these hashes."""
    return [folder for digest in hashes if (folder := _wheels(cache) / digest).is_dir()]


def build(
    wanted: Requirement,
    *,
    cache: Path,
    python: str | None = None,
    index: Index,
    before: datetime | None = None,
    what: str = "the packages",
    progress: Progress | None = None,
) -> Path:
    """Build the wheel of the newest version of a package; what was built before is taken again. Blocks.

    ``python`` None is the interpreter that runs this. Only files that were published ``before`` count. Returns the
    folder with the wheel, named by the wheel's SHA-256. Raises ``PackageError`` when it cannot be fetched or built.
    """
    from adk_skills_agent.packages.lock import python_of, this_platform

    name = canonicalize_name(wanted.name)
    source = _find_source(wanted, index, before, what)
    version = source.version
    kept = cache / "builds" / f"{source.sha256}-{python_of(python).minor}-{this_platform()}.json"
    try:
        folder = _wheels(cache) / str(json.loads(kept.read_text(encoding="utf-8"))["wheel"])
        if folder.is_dir():
            return folder
    except (OSError, ValueError, KeyError, TypeError):
        pass
    if progress is not None:
        progress(f"Building {name} {version} in the sandbox")
    wheel, data = _built(source, _download(source, what), cache, python, index, before, what, progress)
    _check_wheel(wheel, name, version, what)
    digest = hashlib.sha256(data).hexdigest()
    folder = _wheels(cache) / digest
    if not folder.is_dir():
        _wheels(cache).mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".making-", dir=_wheels(cache)))
        (aside / wheel).write_bytes(data)
        aside.chmod(0o755)
        try:
            aside.rename(folder)
        except OSError:  # another process was first, with the same bytes
            (aside / wheel).unlink()
            aside.rmdir()
    written = kept.with_name(f".{kept.name}.{os.getpid()}")
    written.write_text(json.dumps({"wheel": digest, "source": source.file}), encoding="utf-8")
    written.replace(kept)
    return folder


def _wheels(cache: Path) -> Path:
    return cache / "builds" / "wheels"


# The source in the index


def _find_source(wanted: Requirement, index: Index, before: datetime | None, what: str) -> _Source:
    name = canonicalize_name(wanted.name)
    for page in () if index.offline else _pages(index):
        found = [
            source
            for source in _sources(f"{page.rstrip('/')}/{name}/", what)
            if source.file.lower().replace("_", "-").replace(".", "-").startswith(f"{name}-")
            and wanted.specifier.contains(source.version)
            and (before is None or (source.published is not None and source.published < before))
        ]
        if found:
            return max(found, key=lambda source: source.version)
    raise failure(
        f"{_capital(what)} cannot be built: the source of one is not in the index. Do it without, or tell the user.",
        f"There is no .tar.gz with a SHA-256 of {wanted} in the index"
        + (f" that was published before {before:%Y-%m-%d}." if before is not None else "."),
    )


def _pages(index: Index) -> tuple[str, ...]:
    from adk_skills_agent.packages.uv import environment_index

    return index.urls or ((given,) if (given := environment_index()) else (_PYPI,))


def _sources(page: str, what: str) -> Iterator[_Source]:
    try:
        kind, data = _get(page, _PAGE_BYTES, f"{_JSON}, text/html;q=0.5")
    except urllib.error.HTTPError:
        return  # this index does not have it
    except (OSError, ValueError) as error:
        raise _no_answer(what, page, error) from error
    text = data.decode("utf-8", "replace")
    if "json" in kind:
        try:
            for entry in parsed_json(data, _PAGE_VALUES)["files"]:
                sha, file = str(entry.get("hashes", {}).get("sha256", "")), str(entry["filename"])
                if re.fullmatch(r"[0-9a-f]{64}", sha) and not entry.get("yanked") and file.endswith(".tar.gz"):
                    yield _Source(file, urllib.parse.urljoin(page, str(entry["url"])), sha, _date(entry))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise _no_answer(what, page, error) from error
        return
    for attributes in _LINK.findall(text):
        href = _HREF.search(attributes)
        if href is None or "data-yanked" in attributes.lower():
            continue
        url, _, fragment = urllib.parse.urljoin(page, html.unescape(href[1])).partition("#")
        file = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
        sha = fragment.removeprefix("sha256=")
        if file.endswith(".tar.gz") and re.fullmatch(r"[0-9a-f]{64}", sha):
            yield _Source(file, url, sha, None)


def _date(entry: dict[str, object]) -> datetime | None:
    try:
        return datetime.fromisoformat(str(entry.get("upload-time"))).astimezone(UTC)
    except ValueError:
        return None


def _get(url: str, most: int, accept: str = "*/*") -> tuple[str, bytes]:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http"):
        raise ValueError(f"not a web address: {parts.scheme}")
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = urllib.request.Request(address, headers={"Accept": accept, "User-Agent": "adk-skills"})  # noqa: S310
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        token = base64.b64encode(pair.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")  # for this host and no other
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310
        data, until = bytearray(), time.monotonic() + _FETCH_SECONDS
        while part := answer.read1(_PIECE_BYTES):  # what comes in drops would keep a whole read for ever
            data += part
            if len(data) > most:
                raise ValueError(f"more than {most >> 20} MiB")
            if time.monotonic() > until:
                raise ValueError(f"not all was sent within {_FETCH_SECONDS} s")
        return str(answer.headers.get("Content-Type", "")), bytes(data)


def _download(source: _Source, what: str) -> bytes:
    try:
        _, data = _get(source.url, MAX_SOURCE_BYTES)
    except (OSError, ValueError) as error:
        raise _no_answer(what, source.file, error) from error
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise failure(
            f"{_capital(what)} were refused: what the index sent is not what it announced. Do it without them, or "
            "tell the user.",
            f"{source.file} has another SHA-256 than the index says. Find out why.",
        )
    return data


def _no_answer(what: str, place: str, error: Exception) -> PackageError:
    return failure(
        f"{_capital(what)} cannot be fetched: the package index does not answer. Do it without, or tell the user.",
        f"{place}: {error}",
    )


# The build


def _built(
    source: _Source,
    data: bytes,
    cache: Path,
    python: str | None,
    index: Index,
    before: datetime | None,
    what: str,
    progress: Progress | None,
) -> tuple[str, bytes]:
    from adk_skills_agent.packages.environments import prepare
    from adk_skills_agent.packages.lock import resolve

    requires, backend, folders = _system_of(data, source.file, what)
    if any(is_node_requirement(text) for text in requires):
        raise _not_built(source, what, "it asks for packages of npm")
    more: tuple[str, ...] = ()
    for _ in range(_MOST_REQUIRES_ROUNDS):
        its_own = f"what the build of {source.file} needs"
        lock = resolve(
            (*requires, *more),
            cache=cache / "uv",
            python=python,
            index=index,
            exclude_newer=before,
            what=its_own,
            progress=progress,
        )
        environment = prepare(lock, cache=cache, python=python, index=index, what=its_own, progress=progress)
        policy = SandboxPolicy(
            min_isolation="landlock",
            python=str(environment.python),
            extra_ro=(str(environment.folder),),
            wall_seconds=BUILD_SECONDS,
            cpu_seconds=None,
            memory_bytes=4 << 30,
            pids=512,
            open_files=4096,
            file_bytes=1 << 30,
            workspace_bytes=2 << 30,
            workspace_inodes=200_000,
            tmp_bytes=1 << 30,
            max_files=2,
            max_file_bytes=MAX_WHEEL_BYTES,
            max_total_file_bytes=MAX_WHEEL_BYTES,
            warm_slots=0,
        )
        arguments = ("-c", _BUILD, "source.tar.gz", backend, json.dumps(folders), json.dumps(list(more)))
        request = ExecutionRequest(
            (str(environment.python), *arguments),
            policy,
            input_files=(InputFile("source.tar.gz", data),),
            label="build",
        )
        with ThreadPoolExecutor(1) as thread:  # there may be an event loop in this one
            try:
                result = thread.submit(lambda: asyncio.run(local_sandbox().run(request))).result()  # noqa: B023
            except SkillsError as error:
                raise _not_built(source, what, error.message) from error
        said = result.stdout.decode("utf-8", "replace")
        asked = re.findall(r"^ADK-SKILLS-REQUIRES (\[.*\])$", said, re.MULTILINE)
        built = re.findall(r"^ADK-SKILLS-BUILT ([\w.+!-]+\.whl)$", said, re.MULTILINE)
        if result.status is Status.OK and built:
            for file in result.files:
                if file.path == f"out/{built[-1]}":
                    return built[-1], file.content
        if result.status is not Status.OK or not asked:
            tail = " ".join(result.stderr.decode("utf-8", "replace")[-1_500:].split())
            raise _not_built(source, what, f"{result.status.value}: {tail}")
        try:
            more = tuple(str(one) for one in json.loads(asked[-1]))
        except (ValueError, RecursionError) as error:
            raise _not_built(source, what, "what it asks for cannot be read") from error
        if any(is_node_requirement(text) for text in more):
            raise _not_built(source, what, "it asks for packages of npm")
    raise _not_built(source, what, "it asks for other packages each time")


def _system_of(data: bytes, file: str, what: str) -> tuple[tuple[str, ...], str, list[str]]:
    """What a source's build needs, its backend, and folders of the source where that is (PEP 517, 518)."""
    text = ""
    try:
        with tarfile.open(fileobj=_Bounded(data), mode="r:", tarinfo=BoundedMember) as archive:
            for member in archive:
                if member.isfile() and re.fullmatch(r"[^/]+/pyproject\.toml", member.name) and member.size < 1 << 20:
                    opened = archive.extractfile(member)
                    text = opened.read().decode("utf-8") if opened is not None else ""
                    break
        table = parsed_toml(text).get("build-system", {})
        requires = tuple(str(one) for one in table.get("requires", _USUAL_REQUIRES))
        backend = str(table.get("build-backend", _USUAL_BACKEND))
        folders = [str(one) for one in table.get("backend-path", [])]
    except (tarfile.TarError, OSError, EOFError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise failure(
            f"{_capital(what)} cannot be built: a source is damaged. Do it without them, or tell the user.",
            f"{file} cannot be read: {error}",
        ) from error
    return requires, backend, folders


class _Bounded(gzip.GzipFile):
    """A compressed archive that gives no more than a bound, at once and in all: a header may claim a gigabyte."""

    def __init__(self, data: bytes) -> None:
        super().__init__(fileobj=io.BytesIO(data), mode="rb")

    def read(self, size: int | None = -1) -> bytes:
        """See :meth:`io.RawIOBase.read`. Raises ``ValueError`` when too much is asked for."""
        if size is None or not 0 <= size <= _MOST_READ_BYTES or self.tell() > _MOST_UNPACKED_BYTES:
            raise ValueError("it has a header or a content of too many bytes")
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See :meth:`io.IOBase.seek`. Raises ``ValueError`` when too much would be unpacked."""
        if whence == io.SEEK_END or offset > _MOST_UNPACKED_BYTES:
            raise ValueError("it unpacks to too many bytes")
        return super().seek(offset, whence)


def _check_wheel(file: str, name: str, version: Version, what: str) -> None:
    try:
        project, its_version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename:
        project, its_version = canonicalize_name(""), Version("0")
    if project != canonicalize_name(name) or its_version != version:
        raise failure(
            f"{_capital(what)} were refused: a build made another package than it should. Do it without them, or tell "
            "the user.",
            f"The build of {name} {version} made {file}.",
        )


def _not_built(source: _Source, what: str, why: str) -> PackageError:
    return failure(
        f"{_capital(what)} cannot be built here. Do it without them, or tell the user.",
        f"The build of {source.file} in the sandbox failed, {why}. A compiler or a library may be missing on this "
        f"machine (Python {sys.version_info.major}.{sys.version_info.minor}).",
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
