from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
from adk_skills_agent.catalog import registry as registry_module
from adk_skills_agent.catalog.untrusted_files import open_real, skill_file_opener
from adk_skills_agent.errors import ErrorCode, ParseError, SkillNotFound

MakeSkill = Callable[..., Path]
PLAIN = RegistryConfig(cache=False)


def registry_of(root: Path, config: RegistryConfig = PLAIN) -> SkillsRegistry:
    registry = SkillsRegistry(config)
    registry.discover([root])
    return registry


def test_an_empty_registry_answers_everything(tmp_path: Path) -> None:
    registry = SkillsRegistry(PLAIN)
    assert len(registry) == 0
    assert registry
    assert list(registry) == []
    assert "x" not in registry
    assert registry.list_metadata() == []
    assert registry.diagnostics == ()
    assert registry.search("anything") == []
    assert registry.to_available_skills_xml() == "<available_skills>\n</available_skills>"
    assert not registry.refresh()
    assert registry.discover([]) == 0
    assert registry.discover([tmp_path]) == 0
    with pytest.raises(SkillNotFound, match="There are no skills"):
        registry.load_skill("x")


@pytest.mark.requirement("S4-10", "S4-15")
def test_the_api_of_s4_10(make_skill: MakeSkill, tmp_path: Path) -> None:
    for name in ("pdf", "csv", "excel"):
        make_skill(name, description=f"Works on {name} files.", body=f"# {name}\n\n## Rotate pages\n")
    registry = SkillsRegistry(PLAIN)
    assert registry.discover([tmp_path / "skills"]) == 3
    assert registry.discover([tmp_path / "skills"]) == 3
    assert len(registry) == 3
    assert list(registry) == ["csv", "excel", "pdf"]
    assert [metadata.name for metadata in registry.list_metadata()] == ["csv", "excel", "pdf"]
    assert registry.get_metadata("pdf").description == "Works on pdf files."
    assert registry.load_skill("pdf").instructions.startswith("# pdf")
    assert registry.load_skill("pdf") is registry.load_skill("pdf")
    assert "<name>\npdf\n</name>" in registry.to_available_skills_xml()
    assert str(tmp_path) not in registry.to_available_skills_xml()
    assert str(tmp_path) in registry.to_available_skills_xml(location=True)
    assert registry.search("works on excel")[0].name == "excel"
    text = registry.catalog_text(1000)
    assert text.shown == ("csv", "excel", "pdf")
    assert registry.catalog_text(model="gemini-2.5-flash").shown == text.shown


def test_one_bad_skill_loses_nothing_else_l8(make_skill: MakeSkill) -> None:
    folder = make_skill("bad")
    (folder / "SKILL.md").write_bytes(b"")
    make_skill("good")
    registry = registry_of(folder.parent)
    assert list(registry) == ["good"]
    assert [diagnostic.file for diagnostic in registry.diagnostics] == [str(folder / "SKILL.md")]


@pytest.mark.parametrize("asked", ["my-skill", "My Skill", "my_skill", " MY-SKILL "])
def test_a_name_may_be_spelled_differently(asked: str, make_skill: MakeSkill) -> None:
    registry = registry_of(make_skill("my-skill").parent)
    assert asked in registry
    assert registry.load_skill(asked).name == "my-skill"


@pytest.mark.parametrize("asked", ["pdf-form", "PDFS", "forms", "pdf form"])
def test_a_wrong_name_is_answered_with_the_nearest(asked: str, make_skill: MakeSkill) -> None:
    make_skill("csv")
    registry = registry_of(make_skill("pdf-forms").parent)
    with pytest.raises(SkillNotFound) as caught:
        registry.load_skill(asked)
    assert caught.value.suggestions[0] == "pdf-forms"
    assert caught.value.code is ErrorCode.SKILL_NOT_FOUND


@pytest.mark.parametrize("asked", ["", "x" * 1_000_000, "../../etc", "a\0b", "\ud800", None, 7, ["csv"]])
def test_a_hostile_name_is_a_typed_error(asked: str, make_skill: MakeSkill) -> None:
    registry = registry_of(make_skill("csv").parent)
    assert asked not in registry
    with pytest.raises(SkillNotFound) as caught:
        registry.get_metadata(asked)
    assert len(caught.value.message) < 300


def test_adding_removing_and_editing_are_seen_without_new_objects(make_skill: MakeSkill) -> None:
    first = make_skill("first")
    registry = registry_of(first.parent)
    skill = registry.load_skill("first")
    version = registry.version
    assert not registry.refresh()
    assert registry.version == version

    second = make_skill("second")
    assert registry.refresh()
    assert list(registry) == ["first", "second"]

    (first / "SKILL.md").write_text("---\nname: first\ndescription: Edited.\n---\nNew body.\n")
    assert registry.refresh()
    assert registry.get_metadata("first").description == "Edited."
    assert skill.instructions == "New body."
    assert registry.load_skill("first").description == "Edited."

    (first / "SKILL.md").write_text("---\nname: first\ndescription: Edited.\n---\nOnly the body changed.\n")
    assert registry.refresh()

    subprocess.run(["rm", "-r", second], check=True)
    assert registry.refresh()
    assert list(registry) == ["first"]
    assert registry.version == version + 4
    assert not registry.refresh()


def test_a_repaired_skill_comes_back(make_skill: MakeSkill) -> None:
    folder = make_skill("one")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text("")
    registry = registry_of(folder.parent)
    assert len(registry) == 0
    (folder / "SKILL.md").write_text(text)
    assert registry.refresh()
    assert list(registry) == ["one"]
    assert registry.diagnostics == ()


def test_a_skill_moved_to_another_name_is_found_under_it(make_skill: MakeSkill) -> None:
    folder = make_skill("old-name")
    registry = registry_of(folder.parent)
    (folder / "SKILL.md").write_text("---\nname: new-name\ndescription: D.\n---\n")
    assert registry.refresh()
    assert list(registry) == ["new-name"]
    assert registry.load_skill("new-name").name == "new-name"


def test_search_sees_changes(make_skill: MakeSkill) -> None:
    root = make_skill("one", description="Rotates images.").parent
    registry = registry_of(root)
    assert [hit.name for hit in registry.search("invoices")] == []
    make_skill("two", description="Reads invoices.")
    registry.refresh()
    assert [hit.name for hit in registry.search("invoices")] == ["two"]


def test_diagnostics_are_stable_and_without_duplicates(make_skill: MakeSkill, tmp_path: Path) -> None:
    for number in range(5):
        make_skill(f"s{number}", description="Uses: colons")
    registry = registry_of(tmp_path / "skills")
    registry.discover([tmp_path / "missing", tmp_path / "skills" / "s1"])
    before = registry.diagnostics
    assert len(set(before)) == len(before) > 5
    registry.refresh()
    assert registry.diagnostics == before


async def test_refresh_if_due_looks_at_most_once_an_interval(make_skill: MakeSkill) -> None:
    root = make_skill("one").parent
    registry = registry_of(root, RegistryConfig(cache=False, refresh_interval=3600))
    make_skill("two")
    assert not await registry.refresh_if_due()
    assert list(registry) == ["one"]
    eager = registry_of(root, RegistryConfig(cache=False, refresh_interval=0))
    make_skill("three")
    assert await eager.refresh_if_due()
    assert list(eager) == ["one", "three", "two"]
    assert not await eager.refresh_if_due()


async def test_callers_at_the_same_time_share_one_look_and_the_loop_stays_free(
    make_skill: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_skill("one").parent
    registry = registry_of(root, RegistryConfig(cache=False, refresh_interval=0))
    looks: list[str] = []
    whole = SkillsRegistry._look

    def slow_look(self: SkillsRegistry) -> bool:
        looks.append(threading.current_thread().name)
        deadline = time.monotonic() + 30
        while ticks <= 20 and time.monotonic() < deadline:
            time.sleep(0.005)
        return whole(self)

    monkeypatch.setattr(SkillsRegistry, "_look", slow_look)
    make_skill("two")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    ticking = asyncio.create_task(tick())
    cancelled = asyncio.create_task(registry.refresh_if_due())
    waiting = [asyncio.create_task(registry.refresh_if_due()) for _ in range(50)]
    await asyncio.sleep(0.02)
    cancelled.cancel()
    assert await asyncio.gather(*waiting) == [True] * 50
    ticking.cancel()
    assert len(looks) == 1
    assert looks[0] != threading.main_thread().name
    assert ticks > 20
    assert list(registry) == ["one", "two"]


async def test_a_look_at_the_disk_does_not_make_readers_wait(
    make_skill: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = registry_of(make_skill("one").parent, RegistryConfig(cache=False, refresh_interval=0))
    looking, go_on = threading.Event(), threading.Event()
    whole = SkillsRegistry._look

    def held_look(self: SkillsRegistry) -> bool:
        looking.set()
        assert go_on.wait(30)
        return whole(self)

    monkeypatch.setattr(SkillsRegistry, "_look", held_look)
    look = asyncio.create_task(registry.refresh_if_due())
    await asyncio.to_thread(looking.wait)
    assert list(registry) == ["one"]
    assert registry.load_skill("one").instructions
    assert registry.scope_of("one") == "explicit"
    assert registry.view("o*").search("thing")
    assert not look.done()
    make_skill("two")
    monkeypatch.setattr(registry_module, "LOOK_SECONDS", 0.01)
    assert not await registry.refresh_if_due()  # row 463: a long look keeps no turn waiting, and goes on
    go_on.set()
    assert await look
    assert list(registry) == ["one", "two"]


async def test_a_look_that_fails_when_nobody_waits_is_in_the_log(
    make_skill: MakeSkill, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = registry_of(make_skill("one").parent, RegistryConfig(cache=False, refresh_interval=0))
    go_on = threading.Event()

    def failing_look(self: SkillsRegistry) -> bool:
        assert go_on.wait(30)
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(SkillsRegistry, "_look", failing_look)
    monkeypatch.setattr(registry_module, "LOOK_SECONDS", 0.01)
    assert not await registry.refresh_if_due()
    go_on.set()
    assert registry._flight is not None
    await asyncio.wait({registry._flight[1]})
    assert "A look at the skills failed" in caplog.text
    assert list(registry) == ["one"]


def test_refreshes_from_several_event_loops_and_threads_agree(make_skill: MakeSkill) -> None:
    root = make_skill("one").parent
    registry = registry_of(root, RegistryConfig(cache=False, refresh_interval=0))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        async def rounds() -> None:
            for turn in range(20):
                if number == 0:
                    make_skill(f"new-{turn}")
                await registry.refresh_if_due()
                for name in registry:
                    if name in registry:
                        assert registry.get_metadata(name).name == name
                        assert registry.load_skill(name).instructions
                registry.search("thing")

        try:
            asyncio.run(rounds())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registry.refresh()
    assert failures == []
    assert len(registry) == 21


@pytest.mark.requirement("C21")
def test_a_skill_loaded_before_an_edit_is_not_given_out_after_it_c21(make_skill: MakeSkill, tmp_path: Path) -> None:
    folder = make_skill("one", description="Old.")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "skills"])
    assert registry.load_skill("one").description == "Old."
    _ = registry.load_skill("one").instructions
    (folder / "SKILL.md").write_text("---\nname: one\ndescription: New one.\nlicense: MIT\n---\n")
    assert registry.refresh()
    skill = registry.load_skill("one")
    assert (skill.description, skill.metadata.license) == ("New one.", "MIT")
    assert registry.load_skill("one") is skill


def test_a_change_behind_a_link_is_found_by_search(make_skill: MakeSkill, tmp_path: Path) -> None:
    folder = make_skill("one", body="# alpha\n")
    (folder / "SKILL.md").rename(folder / "real.md")
    (folder / "SKILL.md").symlink_to("real.md")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "skills"])
    assert registry.search("alpha")
    (folder / "real.md").write_text((folder / "real.md").read_text().replace("alpha", "zulu heading"))
    assert registry.refresh()
    assert registry.search("zulu")
    assert not registry.search("alpha")


@pytest.mark.requirement("S4-23")
def test_a_held_skill_does_not_follow_its_folder_out_of_the_trusted_roots_s4_23(
    make_skill: MakeSkill, tmp_path: Path
) -> None:
    folder = make_skill("one", files={"a.txt": "a"})
    outside = make_skill("one", body="# SECRET", files={"a.txt": "SECRET"}, root=tmp_path / "outside")
    registry = SkillsRegistry(RegistryConfig(cache=False, trusted_roots=(tmp_path / "skills",)))
    registry.discover([tmp_path / "skills"])
    skill = registry.load_skill("one")
    assert skill.instructions
    folder.rename(tmp_path / "old")
    folder.symlink_to(outside)
    for ask in (lambda: skill.instructions, skill.files, lambda: skill.read_text("a.txt"), lambda: skill.find("a.txt")):
        with pytest.raises(ParseError, match="outside what is trusted"):
            ask()
    assert not registry.search("SECRET")


def test_a_link_swapped_in_for_a_skill_file_is_never_read(make_skill: MakeSkill, tmp_path: Path) -> None:
    folder = make_skill("one")
    (tmp_path / "secret").write_text("---\nname: one\ndescription: SECRET\n---\n# SECRET\n")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "skills"])
    (folder / "SKILL.md").unlink()
    (folder / "SKILL.md").symlink_to(tmp_path / "secret")
    assert not registry.search("SECRET")  # the headings are read now
    assert [d.code for d in registry.diagnostics] == ["headings-unreadable"]
    opener = skill_file_opener(None)
    with pytest.raises(ParseError, match="outside its skill"):
        opener(folder / "SKILL.md", os.O_RDONLY)
    with pytest.raises(OSError, match="SKILL"):
        open_real(str(folder.resolve() / "SKILL.md"), os.O_RDONLY)
