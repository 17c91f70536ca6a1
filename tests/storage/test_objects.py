"""A store of objects: whole or not there, created once, and sentences when it does not work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError, StorageDamaged, StorageError
from adk_skills_agent.storage import ObjectStore, Sealer, open_objects
from adk_skills_agent.storage.objects import _why


@pytest.fixture(params=["folder", "file-url", "local-url", "memory"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    place = {
        "folder": str(tmp_path / "store"),
        "file-url": f"file://{tmp_path}/store",
        "local-url": f"local://{tmp_path}/store",
        "memory": f"memory://{tmp_path.name}/store",
    }[request.param]
    yield open_objects(place)
    import fsspec

    fsspec.filesystem("memory").store.clear()


def test_what_is_written_is_read_listed_and_removed(objects: ObjectStore) -> None:
    assert objects.read("a/b/c") is None
    assert objects.names("a/b") == {}
    assert objects.folders() == []
    objects.write("a/b/c", b"1")
    objects.write("a/b/c", b"22")
    objects.write("a/b/d", b"")
    assert (objects.read("a/b/c"), objects.read("a/b/d")) == (b"22", b"")
    assert objects.names("a/b") == {"c": 2, "d": 0}
    assert objects.names("a") == {}  # folders are no objects
    assert list(objects.folders()) == ["a"]
    objects.delete(["a/b/c", "a/b/d", "a/b/never"])
    assert objects.read("a/b/c") is None
    assert objects.names("a/b") == {}


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1/x", "zip:///", "nothing://x"])
def test_a_store_that_cannot_even_be_opened_is_a_sentence(url: str) -> None:
    """Some file systems connect, or open a file, as soon as they are made: that was a traceback."""
    with pytest.raises(ConfigError, match=rf"The store {url} cannot be used: "):
        open_objects(url)


def test_of_many_who_create_one_does(objects: ObjectStore) -> None:
    won: list[int] = []

    def create(number: int) -> None:
        for each in range(20):
            if objects.create(f"log/{each}", f"{number}".encode()):
                won.append(each)  # noqa: PERF401

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))
    assert objects.names("log").keys() == {str(each) for each in range(20)}


def test_an_answer_that_got_lost_is_told_by_the_content(objects: ObjectStore) -> None:
    assert objects.create("log/1", b"mine")
    assert objects.create("log/1", b"mine")  # asked again
    assert not objects.create("log/1", b"another's")


def test_processes_that_write_and_remove_in_one_folder_disturb_nobody(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom adk_skills_agent.storage import open_objects\nobjects = open_objects(sys.argv[1])\n"
        "for number in range(150):\n"
        "    name = f'a/alive/{sys.argv[2]}-{number}'\n"
        "    objects.write(name, b'x'); assert objects.read(name) == b'x'; objects.delete([name])\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(each)]) for each in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]


def test_problems_are_sentences_for_the_owner(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    objects = open_objects(tmp_path / "file")
    for do in (lambda: objects.write("a/b", b""), lambda: objects.create("a/b", b"")):
        with pytest.raises(StorageError, match=r"cannot be written: .*Check that the folder is there"):
            do()
    with pytest.raises(ConfigError, match=r"nosuch://x.* cannot be used"):
        open_objects("nosuch://x")
    with pytest.raises(ConfigError, match="A store is a folder or a URL"):
        open_objects("")


def test_credentials_of_a_url_are_in_no_sentence() -> None:
    objects = open_objects("memory://user:password@host/path?token=secret")
    assert objects.shown == "memory://host/path"


def test_credentials_of_a_url_are_in_no_sentence_about_what_went_wrong() -> None:
    """Seen: what a library of others says names the URL as it was given, with its password."""
    with pytest.raises(ConfigError, match=r"store zip://a\.zip::nosuch://host/x cannot be used") as told:
        open_objects("zip://a.zip::nosuch://bob:hunter2@host/x?sig=hunter2")
    assert "hunter2" not in str(told.value)
    assert _why(ValueError('Invalid bucket name "bob:hunter2@b"'), "s3://bob:hunter2@b") == 'Invalid bucket name "b"'


@pytest.mark.parametrize("kind", ["folder", "fsspec"])
def test_a_folder_of_too_many_objects_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("adk_skills_agent.storage.objects.MOST_NAMES", 3)
    store = open_objects(tmp_path if kind == "folder" else f"memory://{tmp_path.name}")
    for number in range(3):
        store.write(f"s/log/{number}", b"")
    assert len(store.names("s/log")) == 3
    store.write("s/log/3", b"")
    with pytest.raises(StorageDamaged, match="s/log has more objects than are ever written"):
        store.names("s/log")


def test_a_sealed_object_opens_under_its_name_with_its_key_alone() -> None:
    old, new = "00" * 32, "11" * 32
    sealed = Sealer([old]).seal("a", b"text")
    assert b"text" not in sealed
    assert Sealer([new, old]).open("a", sealed) == b"text"
    with pytest.raises(StorageError, match="another key"):
        Sealer([new]).open("a", sealed)
    with pytest.raises(StorageDamaged):
        Sealer([old]).open("b", sealed)
    for at in (-1, len(sealed) // 2):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(StorageDamaged):
            Sealer([old]).open("a", bytes(changed))
    with pytest.raises(StorageDamaged):
        Sealer([old]).open("a", sealed[:-3])
    with pytest.raises(StorageError, match="not encrypted"):
        Sealer([old]).open("a", b"text")
    assert Sealer([old]).seal("a", b"text") != sealed  # each with a number of its own


@pytest.mark.parametrize("key", ["", "x", "00" * 31, "zz" * 32, b"short", "A" * 43 + "!"])
def test_a_key_of_another_form_is_refused_and_never_shown(key: str | bytes) -> None:
    with pytest.raises(ConfigError, match="key must be 32 bytes") as told:
        Sealer([key])
    assert not key or repr(key) not in str(told.value)


def test_a_key_may_be_bytes_or_base64() -> None:
    import base64

    raw = os.urandom(32)
    sealed = Sealer([raw]).seal("a", b"x")
    for form in (raw.hex(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        assert Sealer([form]).open("a", sealed) == b"x"


@pytest.mark.parametrize("link", ["session", "session/blobs"])
def test_row_231_a_link_in_the_place_of_a_folder_is_no_part_of_the_store(tmp_path: Path, link: str) -> None:
    """Seen: who can write to a store puts a link there, and each server deletes the files of the folder it leads to."""
    private = tmp_path / "private"
    for folder in (private, private / "blobs"):
        folder.mkdir()
        (folder / "letter").write_bytes(b"mine")
        (folder / ".aside-of-mine").write_bytes(b"mine")
    (private / "blobs" / "empty").mkdir()
    objects = open_objects(tmp_path / "store")
    objects.write("session/log/1", b"1")
    place = tmp_path / "store" / link
    if link == "session":
        place.rename(tmp_path / "store" / "other")
    place.symlink_to(private)
    assert objects.names("session/blobs") == {}
    assert objects.read("session/blobs/letter") is None
    assert "session" not in objects.folders() or link != "session"
    objects.sweep("session/blobs", -1.0)
    objects.delete(["session/blobs/letter"])
    objects.remove_folders("session/blobs")
    for put in (objects.write, objects.create):
        with pytest.raises(StorageError, match="cannot be written"):
            put("session/blobs/planted", b"theirs")
    assert sorted(path.name for path in private.rglob("*")) == sorted(
        [".aside-of-mine", ".aside-of-mine", "blobs", "empty", "letter", "letter"]
    )
