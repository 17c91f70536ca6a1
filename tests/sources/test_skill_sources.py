"""Sources of a registry: those that ship pass the suite; slow, dead and lying ones hold up nobody."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from repositories import Repository, skill_text

from adk_skills_agent import SkillToolset
from adk_skills_agent.catalog import RegistryConfig, Scope, SkillsRegistry, skill_source
from adk_skills_agent.catalog.skill_source import SkillSource, SourceFeed
from adk_skills_agent.errors import ConfigError, RegistryError, ResourceNotFound, SkillNotFound
from adk_skills_agent.format import parse_text
from adk_skills_agent.format.models import SkillMetadata
from adk_skills_agent.sources.archives import pack_zip
from adk_skills_agent.sources.skill_sources import FolderSource, FsspecSource, OriginSource, TreeSource
from adk_skills_agent.sources.tree import SkillTree, TreeFile, tree_of
from adk_skills_agent.testing import check_skill_source

CONTENTS = {
    "pdf": {
        "SKILL.md": skill_text("pdf").encode(),
        "scripts/count.py": b"print(7)\n",
        "assets/x.bin": bytes(range(256)),
    },
    "csv": {"SKILL.md": skill_text("csv").encode()},
}


def trees() -> dict[str, SkillTree]:
    return {
        name: tree_of({path: TreeFile(data) for path, data in files.items()}, "x") for name, files in CONTENTS.items()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, files in CONTENTS.items():
        for path, data in files.items():
            target = tmp_path / "skills" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    return tmp_path / "skills"


async def test_folders_conform(folder: Path):
    await check_skill_source(lambda: FolderSource(folder), CONTENTS)


async def test_trees_conform():
    await check_skill_source(lambda: TreeSource(trees()), CONTENTS)


async def test_repositories_conform(tmp_path: Path):
    repository = Repository(tmp_path / "remote")
    repository.write(
        {f"skills/{name}/{path}": data for name, files in CONTENTS.items() for path, data in files.items()}
    )
    await check_skill_source(lambda: OriginSource(repository.url), CONTENTS)


async def test_archives_conform(tmp_path: Path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "skills.zip", "w") as archive:
        for name, files in CONTENTS.items():
            for path, data in files.items():
                archive.writestr(f"{name}/{path}", data)
    await check_skill_source(lambda: OriginSource(str(tmp_path / "skills.zip")), CONTENTS)
    single = tmp_path / "pdf.skill"
    single.write_bytes(pack_zip(trees()["pdf"]))
    assert [item.name for item in await OriginSource(str(single)).list_metadata()] == ["pdf"]


async def test_file_systems_of_fsspec_conform(folder: Path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for name, files in CONTENTS.items():
        for path, data in files.items():
            memory.pipe_file(f"/bucket/skills/{name}/{path}", data)
    await check_skill_source(lambda: FsspecSource("memory://bucket/skills"), CONTENTS)
    await check_skill_source(lambda: FsspecSource(folder.as_uri()), CONTENTS)
    source = FsspecSource("memory://bucket/skills")
    assert await source.refresh()
    assert not await source.refresh()
    memory.pipe_file("/bucket/skills/csv/notes.md", b"new")
    assert await source.refresh()


async def test_row_464_a_new_folder_of_a_bucket_does_not_get_the_name_of_another(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    pytest.importorskip("fsspec")
    source = FsspecSource(folder.as_uri())
    expected = await source.list_metadata()
    (folder / "a" / "csv").mkdir(parents=True)
    (folder / "a" / "csv" / "SKILL.md").write_text(skill_text("csv") + "\nof a stranger")
    for _ in range(2):
        assert [item.name for item in await source.list_metadata()] == [*(item.name for item in expected), "csv"]
        assert b"stranger" not in await source.read_file("csv", "SKILL.md")
    (folder / "csv").rename(tmp_path / "away")  # as while it is uploaded anew
    assert [item.name for item in await source.list_metadata()] == ["pdf"]
    (tmp_path / "away").rename(folder / "csv")
    (folder / "a" / "csv" / "SKILL.md").write_text(skill_text("pdf"))
    for _ in range(2):
        assert await source.list_metadata() == expected
    assert [record.message for record in caplog.records] == [
        "The skill 'a/csv' of a source is left out until the program starts again: 'csv', which is away, had its name "
        "first.",
        "The skill 'a/csv' of a source was called 'csv', and calls itself 'pdf' now, so it is left out.",
    ]


@pytest.mark.parametrize("tells_sizes", [True, False])
def test_row_437_no_file_of_a_file_system_is_read_beyond_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tells_sizes: bool
):
    """Seen: a file of 2.5 GB took as much memory before the skill was refused; a SKILL.md, whenever it was listed."""
    local = pytest.importorskip("fsspec.implementations.local").LocalFileSystem
    for name, large in (("small", ""), ("large", "references/large.md"), ("long", "SKILL.md")):
        (tmp_path / name / "references").mkdir(parents=True)
        (tmp_path / name / "SKILL.md").write_text(skill_text(name))
        (tmp_path / name / "references" / "empty.md").touch()
        if large:
            (tmp_path / name / large).touch()
            os.truncate(tmp_path / name / large, 200 << 20)
    read, found, most = local.cat_file, local.find, 0

    def counted(self: object, *args: object, **options: object) -> bytes:
        nonlocal most
        data: bytes = read(self, *args, **options)
        most = max(most, len(data))
        return data

    def sizeless(self: object, *args: object, detail: bool = False, **options: object) -> object:
        paths = found(self, *args, detail=True, **options)
        return {path: {**info, "size": None} for path, info in paths.items()} if detail else list(paths)

    monkeypatch.setattr(local, "cat_file", counted)
    if not tells_sizes:
        monkeypatch.setattr(local, "find", sizeless)
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.add_source(FsspecSource(tmp_path.as_uri()), name="files")
    names = {metadata.name for metadata in registry.list_metadata()}
    assert names == ({"small", "large"} if tells_sizes else {"small", "large", "long"})
    assert most <= 256 << 10
    asyncio.run(registry.fetch("small"))
    for name in names - {"small"}:
        with pytest.raises(RegistryError, match=r"more than (64|4) MiB"):
            asyncio.run(registry.fetch(name))
    assert most <= (64 << 20) + 1


def test_an_unknown_file_system_says_what_is_missing():
    pytest.importorskip("fsspec")
    with pytest.raises(ConfigError, match="nosuch://"):
        FsspecSource("nosuch://x")
    for place in ("http://127.0.0.1:1/skills", "https://example.com/x", "simplecache::https://example.com/x"):
        with pytest.raises(ConfigError, match="Use OriginSource for a web site"):  # row 482: of any length
            FsspecSource(place)


# The suite finds what is wrong


class Wrong(TreeSource):
    """A source with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__(trees())
        self.fault = fault

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        items = list(await super().list_metadata())
        if self.fault == "twice":
            return [*items, items[0]]
        if self.fault == "other description":
            return [SkillMetadata(item.name, "Another.") for item in items]
        return items

    async def list_files(self, name: str) -> Sequence[str]:
        return () if self.fault == "no files" else await super().list_files(name)

    async def read_file(self, name: str, path: str) -> bytes:
        if self.fault == "escapes" and path.startswith("/"):
            return Path(path).read_bytes()
        if self.fault == "key error" and name not in CONTENTS:
            raise KeyError(name)
        return await super().read_file(name, path)

    async def refresh(self) -> bool:
        return None if self.fault == "says nothing" else True  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("twice", "each skill once"),
        ("other description", "description of"),
        ("no files", "list_files"),
        ("escapes", "must raise"),
        ("key error", "must raise SkillNotFound, not KeyError"),
        ("says nothing", "refresh"),
    ],
)
async def test_the_suite_finds_a_fault(fault: str, said: str):
    with pytest.raises(AssertionError, match=said):
        await check_skill_source(lambda: Wrong(fault), CONTENTS)


# In a registry


@pytest.fixture
def registry() -> SkillsRegistry:
    return SkillsRegistry(RegistryConfig(cache=False, refresh_interval=0))


class Steered(TreeSource):
    """A source whose answers can be held back or made to fail."""

    def __init__(self) -> None:
        super().__init__(lambda: self.trees)
        self.trees = trees()
        self.hold: asyncio.Event | None = None
        self.fails = False
        self.blocks: threading.Event | None = None
        self.reads: list[tuple[str, str]] = []

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        if self.blocks is not None:
            self.blocks.wait(20)
        if self.hold is not None:
            await self.hold.wait()
        if self.fails:
            raise ConnectionError("the database is away.")
        return await super().list_metadata()

    async def read_file(self, name: str, path: str) -> bytes:
        if self.fails:
            raise ConnectionError("the database is away.")
        self.reads.append((name, path))
        return await super().read_file(name, path)


def test_nothing_is_fetched_before_a_skill_is_loaded(registry: SkillsRegistry):
    source = Steered()
    assert registry.add_source(source, name="db") == 2
    assert registry.scope_of("pdf") is Scope.SOURCE
    assert registry.search("pdf")[0].name == "pdf"
    assert source.reads == []
    skill = registry.load_skill("pdf")
    assert skill.instructions == "Do it."
    assert skill.read_bytes("assets/x.bin") == bytes(range(256))
    assert {name for name, _ in source.reads} == {"pdf"}
    registry.remove_source("db")


def test_folders_win_and_both_origins_are_told(registry: SkillsRegistry, folder: Path):
    registry.discover([folder])
    registry.add_source(Steered(), name="db")
    assert registry.scope_of("pdf") is Scope.EXPLICIT
    (told,) = [one for one in registry.diagnostics if one.code == "shadowed-skill" and "'pdf'" in one.message]
    assert "source scope" in told.message
    assert "explicit scope" in told.message
    registry.remove_source("db")


def test_row_463_a_source_with_ever_new_skills_takes_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch):
    """Seen: each minute all turns of all users waited for 20,000 new skills of one source, 50 s."""
    monkeypatch.setattr(SourceFeed, "_take", lambda _self, _items: time.sleep(0.1))
    feed = SourceFeed(TreeSource(trees()), "db", interval=0)
    began = time.monotonic()
    feed.look(now=True)
    assert feed._next >= began + 0.1 + 10 * 0.1
    feed.close()


def test_row_463_while_new_skills_are_written_others_are_had(monkeypatch: pytest.MonkeyPatch):
    """Seen: whoever loaded another skill of the source waited for all of them, in the event loop."""
    feed = SourceFeed(TreeSource(trees()), "db")
    began, ended = threading.Event(), threading.Event()
    had: list[bool] = []
    real = feed._write

    def written(name: str, files: dict[str, bytes]) -> None:
        began.set()
        real(name, files)
        had.append(ended.is_set())

    def have() -> None:
        assert began.wait(30)
        with feed._lock:
            ended.set()

    monkeypatch.setattr(feed, "_write", written)
    waiting = threading.Thread(target=have)
    waiting.start()
    feed._take([SkillMetadata(f"s{number}", "d") for number in range(500)])
    waiting.join()
    assert had[-1]
    feed.close()


async def test_row_463_who_loads_a_skill_meanwhile_does_not_hold_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    """A look that writes thousands of skills has the lock for as long; a call of load_skill waited for it."""
    feed = SourceFeed(TreeSource(trees()), "db", interval=0)
    await asyncio.to_thread(feed.look, now=True)
    writing, go_on = threading.Event(), threading.Event()

    def held(*_: object) -> None:
        writing.set()
        assert go_on.wait(60)

    monkeypatch.setattr(SourceFeed, "_write", held)
    feed._listed = {}
    look = asyncio.create_task(asyncio.to_thread(feed.look, now=True))
    assert await asyncio.to_thread(writing.wait, 30)
    asyncio.get_running_loop().call_later(0.1, go_on.set)  # never, where the loop stands still
    began = time.monotonic()
    await feed.fetch("csv")
    await look
    assert time.monotonic() - began < 30
    feed.close()


def test_row_464_first_names_of_ever_new_folders_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(skill_source, "_MOST_PLACES", 5)
    names = skill_source.FirstNames()
    for look in range(4):
        found = names.places({f"{look}/{number}": f"s{look}-{number}" for number in range(4)})
        assert len(found) == (4, 1, 0, 0)[look]
    assert names.places({"0/1": "s0-1"}) == ["0/1"]
    assert caplog.text.count("further ones are left out") == 1


def test_row_483_what_a_source_lists_beside_is_no_field():
    """Seen: ``extra={"name": "weather"}`` was the name, which the filter had not seen."""
    told = {"name": "weather", "allowed-tools": "Bash(*)", "more": 1}
    text = skill_source._level1("odd", SkillMetadata("odd", "Does it.", extra=told)).decode()
    read = parse_text(text, folder_name="odd").metadata
    assert (read.name, read.allowed_tools, read.extra) == ("odd", None, {"more": "1"})


async def test_row_483_a_filter_holds_for_what_is_loaded():
    """Seen: a source listed a skill without allowed-tools, which the filter asks for, and its file had some."""

    class Lying(TreeSource):
        async def list_metadata(self) -> Sequence[SkillMetadata]:
            return [SkillMetadata(one.name, one.description) for one in await super().list_metadata()]

    text = skill_text("pdf").replace("---\n", "---\nallowed-tools: Bash(*)\n", 1)
    tree = tree_of({"SKILL.md": TreeFile(text.encode())}, "x")
    feed = SourceFeed(Lying({"pdf": tree}), "db", keep=lambda one: not one.allowed_tools)
    await asyncio.to_thread(feed.look)
    assert list(feed._listed or ()) == ["pdf"]
    with pytest.raises(RegistryError, match="not what its source lists"):
        await feed.fetch("pdf")
    feed.close()


def test_the_higher_priority_wins_and_a_filter_hides(registry: SkillsRegistry):
    other = Steered()
    changed = {**CONTENTS["pdf"], "SKILL.md": skill_text("pdf", "The other one.\n").encode()}
    other.trees = {"pdf": tree_of({path: TreeFile(data) for path, data in changed.items()}, "x")}
    registry.add_source(Steered(), name="low", filter=lambda item: item.name != "csv")
    registry.add_source(other, name="high", priority=5)
    assert list(registry) == ["pdf"]
    assert registry.load_skill("pdf").instructions == "The other one."
    registry.remove_source("high")
    assert registry.load_skill("pdf").instructions == "Do it."
    registry.remove_source("low")


def listing(*names: str) -> Steered:
    source = Steered()
    source.trees = {name: trees()[name] for name in names}
    return source


def test_row_485_a_source_does_not_get_the_name_that_one_before_it_took_back(registry: SkillsRegistry):
    first, other = listing("pdf", "csv"), listing("csv")
    registry.add_source(first, name="first")
    registry.add_source(other, name="other")
    first.trees = {"csv": trees()["csv"]}
    other.trees = trees()
    registry.refresh()
    assert list(registry) == ["csv"]
    (told,) = [one for one in registry.diagnostics if one.code == "name-taken"]
    assert "'pdf'" in told.message
    first.trees = trees()
    registry.refresh()
    assert list(registry) == ["csv", "pdf"]
    registry.remove_source("first")  # that is the owner's wish
    assert list(registry) == ["csv", "pdf"]
    registry.remove_source("other")


def test_row_485_of_two_sources_of_one_priority_the_one_that_had_a_name_keeps_it(registry: SkillsRegistry):
    stranger, own = listing("csv"), listing("csv", "pdf")
    own.trees["pdf"] = trees()["pdf"]
    registry.add_source(stranger, name="stranger")
    registry.add_source(own, name="own")
    stranger.trees = trees()
    registry.refresh()
    assert registry.load_skill("pdf").instructions == "Do it."
    assert ([read[0] for read in own.reads], stranger.reads) == (["pdf"] * 3, [])
    assert [one.code for one in registry.diagnostics if "'pdf'" in one.message] == ["name-taken"]
    registry.remove_source("stranger")
    registry.remove_source("own")


def test_row_485_a_source_that_answers_late_gets_the_names_that_are_its_own(registry: SkillsRegistry):
    first, other = listing("pdf"), listing("pdf", "csv")
    first.fails = True
    registry.add_source(first, name="first", interval=0)
    registry.add_source(other, name="other")
    assert (registry.unanswered("pdf"), registry.unanswered("no-such")) == ("first", "first")
    first.fails = False
    registry.refresh()
    assert (registry.unanswered("pdf"), registry.unanswered("no-such")) == ("", "")
    assert registry.load_skill("pdf").instructions == "Do it."
    assert other.reads == []
    registry.remove_source("first")
    registry.remove_source("other")


def test_row_485_a_skill_that_grants_name_is_hidden_until_it_is_known_whose_the_name_is(registry: SkillsRegistry):
    first, other = listing("pdf"), listing("pdf", "csv")
    first.fails = True
    registry.add_source(first, name="first", interval=0)
    registry.add_source(other, name="other")
    for settings in (
        {"grants": {"pdf/count.py": {"KEY": "x"}}},
        {"grants": {"pdf": {"KEY": "x"}}},
        {"permissions": {"default": "ask", "skills": {"pdf": "allow"}}},
    ):
        toolset = SkillToolset(registry, **settings)  # type: ignore[arg-type]
        assert toolset.runtime.source.names() == ["csv"]
        assert toolset.runtime.source.local("pdf") is None
        assert [one.code for one in toolset.diagnostics if "hidden until" in one.message] == ["name-awaited"]
    assert SkillToolset(registry).runtime.source.names() == ["csv", "pdf"]
    first.fails = False
    registry.refresh()
    assert toolset.runtime.source.names() == ["csv", "pdf"]
    registry.remove_source("first")
    registry.remove_source("other")


@pytest.mark.parametrize("how", ["hangs", "blocks its thread", "raises"])
def test_a_dead_source_holds_up_nobody(registry: SkillsRegistry, folder: Path, how: str):
    dead = Steered()
    release = threading.Event()
    dead.hold = asyncio.Event() if how == "hangs" else None
    dead.blocks = release if how == "blocks its thread" else None
    dead.fails = how == "raises"
    registry.add_source(dead, name="dead", deadline=0.1)
    registry.discover([folder])
    assert list(registry) == ["csv", "pdf"]
    (told,) = [one for one in registry.diagnostics if one.code == "source-unavailable"]
    assert "'dead'" in told.message
    assert ".." not in told.message
    release.set()
    registry.remove_source("dead")
    assert not any(one.code == "source-unavailable" for one in registry.diagnostics)


def test_the_last_good_list_stays_while_a_source_is_away(registry: SkillsRegistry):
    source = Steered()
    registry.add_source(source, name="db", interval=0, deadline=1)
    registry.load_skill("pdf")
    source.fails = True
    registry.refresh()
    assert list(registry) == ["csv", "pdf"]
    assert registry.load_skill("pdf").read_bytes("scripts/count.py") == b"print(7)\n"
    (told,) = [one for one in registry.diagnostics if one.code == "source-unavailable"]
    assert "the database is away" in told.message
    with pytest.raises(RegistryError, match="its source failed") as failed:
        registry.load_skill("csv")
    assert "database" not in failed.value.message
    source.fails = False
    source.trees = {"pdf": source.trees["pdf"]}
    registry.refresh()
    assert list(registry) == ["pdf"]
    assert not registry.diagnostics
    registry.remove_source("db")


class Named(Steered):
    """A source whose list may be kept."""

    def __init__(self, key: str = "postgres://skills") -> None:
        super().__init__()
        self.key = key

    def cache_key(self) -> str:
        return self.key


def kept_lists(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache/sources").glob("*"))


def cached_registry(tmp_path: Path) -> SkillsRegistry:
    return SkillsRegistry(RegistryConfig(cache_dir=tmp_path / "cache", home=tmp_path))


def test_the_last_good_list_survives_a_restart_and_its_age_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cached_registry(tmp_path)
    first.add_source(Named(), name="db")
    first.remove_source("db")
    (kept,) = kept_lists(tmp_path)
    assert kept.stat().st_mode & 0o077 == 0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3 * 3600 + 5)
    again, away = cached_registry(tmp_path), Named()
    away.fails = True
    assert again.add_source(away, name="db", interval=0) == 2
    assert again.search("pdf")[0].name == "pdf"
    (told,) = [one for one in again.diagnostics if one.code == "source-unavailable"]
    assert "the database is away" in told.message
    assert "What it listed last is shown, of " in told.message
    assert "(3 hours old when it went away)" in told.message
    version = again.version
    monkeypatch.setattr(time, "time", lambda: real() + 4 * 3600)
    again.refresh()
    assert again.version == version, "growing older is no news"
    with pytest.raises(RegistryError, match="its source failed"):
        again.load_skill("pdf")
    away.fails = False
    away.trees = {"csv": away.trees["csv"]}
    again.refresh()
    assert list(again) == ["csv"]
    assert not again.diagnostics
    again.remove_source("db")


def test_a_source_that_says_nothing_changed_is_listed_all_the_same_after_a_restart(tmp_path: Path) -> None:
    class Unchanged(Named):
        async def refresh(self) -> bool:
            return False

    first = cached_registry(tmp_path)
    first.add_source(Unchanged(), name="db")
    first.remove_source("db")
    again, away = cached_registry(tmp_path), Unchanged()
    away.fails = True
    again.add_source(away, name="db", interval=0)
    away.fails, away.trees = False, {"csv": away.trees["csv"]}
    again.refresh()
    assert list(again) == ["csv"]
    again.remove_source("db")


@pytest.mark.parametrize("how", ["another key", "too old", "damaged", "a link", "no key"])
def test_a_list_that_is_not_this_source_s_or_not_whole_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    first = cached_registry(tmp_path)
    first.add_source(Named("" if how == "no key" else "postgres://skills"), name="db")
    first.remove_source("db")
    real = time.time
    match how:
        case "no key":
            assert kept_lists(tmp_path) == []
        case "too old":
            monkeypatch.setattr(time, "time", lambda: real() + 31 * 86_400)
        case "damaged":
            kept_lists(tmp_path)[0].write_text('{"version": 1, "time": 0, "skills": [{"name": 3}]}')
        case "a link":
            (kept,) = kept_lists(tmp_path)
            kept.rename(tmp_path / "moved.json")
            kept.symlink_to(tmp_path / "moved.json")
    again = cached_registry(tmp_path)
    away = Named({"another key": "postgres://other", "no key": ""}.get(how, "postgres://skills"))
    away.fails = True
    assert again.add_source(away, name="db") == 0
    (told,) = again.diagnostics
    assert "is shown" not in told.message
    again.remove_source("db")


def test_a_source_that_does_not_close_is_told_to_the_owner(
    registry: SkillsRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(Steered):
        async def close(self) -> None:
            raise ConnectionError("still busy")

    registry.add_source(Stuck(), name="db")
    registry.remove_source("db")
    assert "'db' cannot be closed: still busy" in caplog.text


def test_two_users_see_their_own_parts_of_one_source(registry: SkillsRegistry) -> None:
    registry.add_source(Steered(), name="db")
    may_see = {"ann": {"pdf"}, "bob": {"csv"}}
    views = {user: registry.view(predicate=lambda item, seen=seen: item.name in seen) for user, seen in may_see.items()}
    assert {user: list(view) for user, view in views.items()} == {"ann": ["pdf"], "bob": ["csv"]}
    with pytest.raises(SkillNotFound) as hidden:
        views["bob"].load_skill("pdf")
    assert "pdf" not in hidden.value.suggestions
    assert views["ann"].load_skill("pdf").read_bytes("scripts/count.py") == b"print(7)\n"
    registry.remove_source("db")


async def test_new_bytes_of_a_source_are_fetched_when_the_skill_is_loaded_again(registry: SkillsRegistry):
    source = Steered()
    await asyncio.to_thread(registry.add_source, source, name="db", interval=0)
    await registry.fetch("pdf")
    changed = {**CONTENTS["pdf"], "scripts/count.py": b"print(8)\n"}
    del changed["assets/x.bin"]
    source.trees = {"pdf": tree_of({path: TreeFile(data) for path, data in changed.items()}, "x")}
    await asyncio.to_thread(registry.refresh)
    await registry.fetch("pdf")
    skill = registry.load_skill("pdf")
    assert skill.read_bytes("scripts/count.py") == b"print(8)\n"
    assert [file.path for file in skill.files()] == ["scripts/count.py"]
    await asyncio.to_thread(registry.remove_source, "db")


def test_one_loader_for_many_threads(registry: SkillsRegistry):
    source = Steered()
    registry.add_source(source, name="db")
    threads = [threading.Thread(target=registry.load_skill, args=("pdf",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(source.reads) == len(set(source.reads))
    registry.remove_source("db")


class Odd(SkillSource):
    """Lists what it must not."""

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        return [SkillMetadata("ok", "Fine."), SkillMetadata("", "x"), "text", SkillMetadata("Ok", "Again.")]  # type: ignore[list-item]

    async def list_files(self, name: str) -> Sequence[str]:
        return ["../../outside.txt"]

    async def read_file(self, name: str, path: str) -> bytes:
        return skill_text("ok").encode() if path == "SKILL.md" else b"planted"


def test_odd_entries_are_diagnostics_and_odd_paths_are_refused(registry: SkillsRegistry, tmp_path: Path):
    registry.add_source(Odd(), name="odd")
    assert list(registry) == ["ok"]
    assert [one.code for one in registry.diagnostics] == ["source-entry", "source-entry", "shadowed-skill"]
    with pytest.raises(RegistryError, match=r"'\.\.'"):
        registry.load_skill("ok")
    assert not list(tmp_path.rglob("outside.txt"))
    registry.remove_source("odd")


def test_names_of_sources_are_checked(registry: SkillsRegistry):
    registry.add_source(Steered(), name="db")
    with pytest.raises(ConfigError, match="already"):
        registry.add_source(Steered(), name="db")
    with pytest.raises(ConfigError, match="no name"):
        registry.add_source(Steered(), name="My DB")
    with pytest.raises(ConfigError, match="no source 'x'"):
        registry.remove_source("x")
    with pytest.raises(ConfigError, match="takes a SkillSource, not 'owner/repo'"):
        registry.add_source("owner/repo", name="short")  # type: ignore[arg-type]
    registry.remove_source("db")


async def test_views_show_each_agent_its_part_of_a_source(registry: SkillsRegistry):
    await asyncio.to_thread(registry.add_source, Steered(), name="db")
    view = registry.view(allow=["csv"])
    assert list(view) == ["csv"]
    await view.fetch("pdf")  # hidden: nothing happens
    await view.fetch("csv")
    assert view.load_skill("csv").instructions == "Do it."
    with pytest.raises(SkillNotFound):
        view.load_skill("pdf")
    await asyncio.to_thread(registry.remove_source, "db")


async def test_sources_say_what_is_not_there(folder: Path):
    make: list[Callable[[], SkillSource]] = [lambda: FolderSource(folder), lambda: TreeSource(trees())]
    for one in make:
        with pytest.raises(SkillNotFound) as missing:
            await one().read_file("pdff", "SKILL.md")
        assert missing.value.suggestions == ("pdf",)
        with pytest.raises(ResourceNotFound):
            await one().read_file("pdf", "scripts/cont.py")
