"""Packages without a wheel are built in the sandbox, and only where the owner allows it (issue 16, row 112)."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import io
import os
import subprocess
import tarfile
import threading
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adk_skills_agent.errors import PackageError
from adk_skills_agent.packages import builds
from adk_skills_agent.packages.environments import prepare
from adk_skills_agent.packages.lock import resolve
from adk_skills_agent.packages.uv import Index
from local_index import LocalIndex, serving

BACKEND = """
import base64, hashlib, os, sys, zipfile

def get_requires_for_build_wheel(settings=None):
    return {requires}

def build_wheel(folder, settings=None, metadata=None):
    {code}
    name = "{wheel}"
    info = "alpha-1.0.dist-info"
    files = {{"alpha.py": "BUILT = True\\n",
             info + "/METADATA": "Metadata-Version: 2.1\\nName: alpha\\nVersion: 1.0\\n",
             info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}}
    record = "".join(f"{{path}},sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(
        b"=").decode() + f",{{len(text)}}\\n" for path, text in files.items())
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for path, text in {{**files, info + "/RECORD": record + info + "/RECORD,,\\n"}}.items():
            archive.writestr(path, text)
    return name
"""


def source(code: str = "pass", *, wheel: str = "alpha-1.0-py3-none-any.whl", requires: str = "[]") -> bytes:
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "alpha"\nversion = "1.0"\n',
        "backend.py": BACKEND.format(code=code, wheel=wheel, requires=requires),
        "PKG-INFO": "Metadata-Version: 2.2\nName: alpha\nVersion: 1.0\n",
    }
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"alpha-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with serving(LocalIndex()) as made:
        yield made


def places(index: LocalIndex, builds: tuple[str, ...] | bool = True) -> Index:
    return Index((index.url,), builds=builds)


def refused(index: LocalIndex, cache: Path, builds: tuple[str, ...] | bool = True) -> str:
    with pytest.raises(PackageError) as caught:
        resolve(["alpha"], cache=cache / "uv", index=places(index, builds))
    return f"{caught.value} {' '.join(caught.value.__notes__)}"


def test_a_package_without_a_wheel_is_built_and_used_again(index: LocalIndex, tmp_path: Path) -> None:
    index.files["alpha-1.0.tar.gz"] = source()
    lock = resolve(["alpha"], cache=tmp_path / "uv", index=places(index, ("Alpha",)))
    environment = prepare(lock, cache=tmp_path, index=places(index))
    said = subprocess.run(
        [environment.python, "-I", "-c", "import alpha; print(alpha.BUILT)"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "True\n"
    fetched = len(index.downloads)
    again = resolve(["alpha"], cache=tmp_path / "uv", index=places(index))
    assert again.packages == lock.packages
    assert len(index.downloads) == fetched  # neither fetched nor built again


def test_nothing_is_built_that_the_owner_did_not_name(index: LocalIndex, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    index.files["alpha-1.0.tar.gz"] = source(f"open({str(mark)!r}, 'w')")
    for allowed in (False, ("beta",)):
        assert "no ready-made wheel" in refused(index, tmp_path, allowed)
    assert not mark.exists()


def test_row_112_a_build_reaches_neither_the_host_nor_the_network(
    index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, address = tmp_path / "ran", index.url.split("/")[2].split(":")
    monkeypatch.setenv("A_KEY", "hunter2-of-the-agent")
    code = f"""
    import socket
    seen = ["key"] if "A_KEY" in os.environ else []
    for what in (lambda: open({str(mark)!r}, "w"), lambda: open("/etc/shadow").read() and os.getuid() or 1 / 0,
                 lambda: socket.create_connection(({address[0]!r}, {address[1]}), 2)):
        try:
            what()
            seen.append("got")
        except (OSError, ZeroDivisionError):
            pass
    if seen:
        raise SystemExit(str(seen))"""
    index.files["alpha-1.0.tar.gz"] = source(code.strip())
    resolve(["alpha"], cache=tmp_path / "uv", index=places(index))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (source("sys.exit('no compiler here')"), "no compiler here"),
        (source(wheel="requests-9.9-py3-none-any.whl"), "made requests-9.9"),
        (source(wheel="../alpha-1.0-py3-none-any.whl"), "failed"),
        (source("print('\\nADK-SKILLS-REQUIRES [x]'); os._exit(0)"), "cannot be read"),
        (source("print('\\nADK-SKILLS-REQUIRES [\"npm:left-pad@1\"]'); os._exit(0)"), "packages of npm"),
        (b"no archive", "cannot be read"),
    ],
    ids=["fails", "another package", "a path", "a forged line", "npm", "damaged"],
)
def test_a_build_that_goes_wrong_is_a_sentence(index: LocalIndex, tmp_path: Path, made: bytes, said: str) -> None:
    index.files["alpha-1.0.tar.gz"] = made
    text = refused(index, tmp_path)
    assert said in text
    assert str(tmp_path) not in text.split(".")[0]
    assert not list((tmp_path / "builds").rglob("*.whl")) if (tmp_path / "builds").exists() else True


def test_a_source_with_another_hash_than_announced_is_refused(index: LocalIndex, tmp_path: Path) -> None:
    index.files["alpha-1.0.tar.gz"] = source()
    index.lies.add("alpha-1.0.tar.gz")
    assert "another SHA-256" in refused(index, tmp_path)


def test_the_owners_date_holds_for_sources(index: LocalIndex, tmp_path: Path) -> None:
    """An index that does not say when a file was published cannot answer."""
    index.files["alpha-1.0.tar.gz"] = source()
    with pytest.raises(PackageError):
        resolve(["alpha"], cache=tmp_path / "uv", index=places(index), exclude_newer=datetime(2020, 1, 1, tzinfo=UTC))


@pytest.mark.slow
def test_what_a_build_asks_for_itself_comes_as_wheels(index: LocalIndex, tmp_path: Path) -> None:
    index.add("helper")
    index.files["alpha-1.0.tar.gz"] = source("import helper", requires='["helper"]')
    lock = resolve(["alpha"], cache=tmp_path / "uv", index=places(index))
    assert [one.name for one in lock.packages] == ["alpha"]
    assert any("helper" in path for path in index.downloads)
    assert os.listdir(tmp_path / "builds" / "wheels") == [lock.packages[0].hashes[0]]


@pytest.mark.slow
def test_row_112_a_header_of_a_source_does_not_fill_the_agents_memory(index: LocalIndex, tmp_path: Path) -> None:
    """Seen: 800 MiB of memory and 20 seconds of standstill from a file of 3.6 MB."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=9) as packed:
        member = tarfile.TarInfo("././@PaxHeader")
        member.type, member.size = tarfile.XHDTYPE, 300 << 20
        packed.write(member.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(300):
            packed.write(b"1" * (1 << 20))
    index.files["alpha-1.0.tar.gz"] = stream.getvalue()
    tracemalloc.start()
    try:
        assert "cannot be read" in refused(index, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()


def test_an_index_that_sends_in_drops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drop came in time, so nothing ended it."""
    stop = threading.Event()

    class Drops(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            with contextlib.suppress(OSError):
                while not stop.wait(0.02):
                    self.wfile.write(b"x")

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Drops)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(builds, "_FETCH_SECONDS", 0.2)
    try:
        with pytest.raises(ValueError, match="not all was sent"):
            builds._get(f"http://127.0.0.1:{server.server_address[1]}/", 1 << 20)
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
