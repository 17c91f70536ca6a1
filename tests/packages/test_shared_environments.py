"""Environments in a store: one server prepares, another fetches the same, and nothing else than what was stored."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.cli.sources import open_skill
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.packages import Dependencies, SkillEnvironments
from adk_skills_agent.packages.environments import Environment, prepare
from adk_skills_agent.packages.lock import Lock, resolve
from adk_skills_agent.packages.shared_environments import SharedEnvironments
from adk_skills_agent.packages.uv import Index
from adk_skills_agent.sandbox import Secret
from local_index import LocalIndex

KEY = "5a" * 32


@pytest.fixture
def lock(index: LocalIndex, cache: Path) -> Lock:
    index.add("alpha", "1.0", requires=["beta>=2"])
    index.add("beta", "2.5")
    return resolve(["alpha"], cache=cache / "uv", index=Index((index.url,)), what="the packages of skill 'x'")


@pytest.fixture
def made(index: LocalIndex, cache: Path, lock: Lock) -> Environment:
    return prepare(lock, cache=cache, index=Index((index.url,)), what="the packages of skill 'x'")


def contents(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            found[str(path.relative_to(folder))] = ("link", os.readlink(path))
        elif path.is_file():
            found[str(path.relative_to(folder))] = (info.st_mode, int(info.st_mtime), path.read_bytes())
    return found


@pytest.mark.parametrize("key", [None, KEY])
def test_another_server_fetches_the_very_environment(
    made: Environment, lock: Lock, cache: Path, tmp_path: Path, key: str | None
) -> None:
    shared = SharedEnvironments(tmp_path / "store", key)
    assert shared.save(made)
    before = contents(made.folder)
    shutil.rmtree(cache / "environments")
    fetched = SharedEnvironments(tmp_path / "store", key).fetch(lock, cache=cache)
    assert fetched is not None
    assert contents(fetched.folder) == before
    said = subprocess.run([fetched.python, "-c", "import alpha, beta; print(beta.__file__)"], capture_output=True)
    assert said.stdout.decode().strip().startswith(str(fetched.site))
    stored = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert (b'"parts"' in stored) == (key is None)


def test_a_toolset_fetches_what_another_server_prepared_and_asks_no_index(
    make_skill: Callable[..., Path], index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    index.add("alpha", "1.0")
    folder = make_skill("x", files={"requirements.txt": "alpha==1.0\n", "scripts/a.py": "import alpha\n"})
    skill = open_skill(str(folder), ())
    settings = {"indexes": (index.url,), "cache": cache, "store": tmp_path / "store", "store_key": Secret(KEY)}
    first = SkillEnvironments(Dependencies("install", **settings)).environment_for(skill)  # type: ignore[arg-type]
    assert first is not None
    shutil.rmtree(cache / "environments")
    asked = list(index.requests)
    second = SkillEnvironments(Dependencies("locked", **settings)).environment_for(skill)  # type: ignore[arg-type]
    assert second is not None
    assert second.digest == first.digest
    assert index.requests == asked


def test_what_is_not_there_or_damaged_is_not_fetched_and_the_log_says_why(
    made: Environment, lock: Lock, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = SharedEnvironments(tmp_path / "store")
    assert SharedEnvironments(tmp_path / "empty").fetch(lock, cache=tmp_path / "other") is None
    assert shared.save(made)
    shutil.rmtree(cache / "environments")
    (part,) = (tmp_path / "store").rglob("part-*")
    whole = part.read_bytes()
    part.write_bytes(whole[:-100])
    assert shared.fetch(lock, cache=cache) is None
    assert "is missing or damaged" in caplog.text
    assert [path for path in (cache / "environments").iterdir() if path.is_dir()] == []
    part.write_bytes(whole)
    assert shared.fetch(lock, cache=cache) is not None


def test_an_environment_of_which_a_part_was_removed_is_stored_again(
    made: Environment, lock: Lock, cache: Path, tmp_path: Path
) -> None:
    shared = SharedEnvironments(tmp_path / "store")
    assert shared.save(made)
    (part,) = (tmp_path / "store").rglob("part-*")
    part.unlink()
    assert shared.save(made)
    shutil.rmtree(cache / "environments")
    assert shared.fetch(lock, cache=cache) is not None


def test_another_key_opens_nothing(
    made: Environment, lock: Lock, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert SharedEnvironments(tmp_path / "store", KEY).save(made)
    shutil.rmtree(cache / "environments")
    assert SharedEnvironments(tmp_path / "store", "00" * 32).fetch(lock, cache=cache) is None
    assert "another key" in caplog.text


@pytest.mark.parametrize(
    "kind",
    [
        "up",
        "through-link",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("absolute", "link-out", "link-python-elsewhere", "device", "long-header")
        ),
    ],
)
def test_row_116_an_archive_that_leaves_the_environment_is_refused(
    kind: str, made: Environment, lock: Lock, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import hashlib

    shared = SharedEnvironments(tmp_path / "store")
    assert shared.save(made)
    shutil.rmtree(cache / "environments")
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:

        def add(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b"x") -> None:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, len(data) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(data))

        match kind:
            case "up":
                add("../evil")
            case "absolute":
                add("/tmp/evil")
            case "link-out":
                add("lib/evil", tarfile.SYMTYPE, "../../evil")
            case "link-python-elsewhere":
                add("bin/python", tarfile.SYMTYPE, "/bin/sh")
            case "device":
                add("lib/evil", tarfile.CHRTYPE)
            case "long-header":  # row 169: a name of gigabytes was read whole
                info = tarfile.TarInfo("././@LongLink")
                info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2 << 20
                archive.addfile(info, io.BytesIO(b"a/" * (1 << 20)))
                add("evil")
            case _:
                add("lib", tarfile.SYMTYPE, "bin")
                add("lib/evil")
    data = zlib.compress(written.getvalue())
    (part,) = (tmp_path / "store").rglob("part-*")
    part.write_bytes(data)
    listed = part.with_name("list")
    listed.write_text(json.dumps({"format": 1, "parts": [[part.name, hashlib.sha256(data).hexdigest()]]}))
    assert shared.fetch(lock, cache=cache) is None
    assert "was not fetched" in caplog.text
    assert ("header longer" in caplog.text) == (kind == "long-header")
    assert not list(tmp_path.rglob("evil"))


def test_settings_are_checked_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a store"):
        Dependencies("ask", store_key=KEY)
    with pytest.raises(ConfigError, match="nosuch"):
        SkillEnvironments(Dependencies("ask", store="nosuch://x"))
