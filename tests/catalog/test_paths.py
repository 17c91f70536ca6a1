from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from adk_skills_agent.catalog import Skill
from adk_skills_agent.catalog.files import MAX_FILE_BYTES, locate, read_inside
from adk_skills_agent.errors import CatalogError, ErrorCode, InvalidResourcePath, ResourceNotFound, nearest
from adk_skills_agent.format import parse_head

MakeSkill = Callable[..., Path]


@pytest.fixture
def folder(make_skill: MakeSkill, tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    return make_skill(
        "one",
        files={
            "root.md": "root",
            "references/guide.md": "guide",
            "references/with space.md": "space",
            "scripts/run.py": "print()",
            "scripts/sub/run.sh": "true",
            "core/engine.py": "engine",
            ".git/config": "token",
        },
    )


@pytest.fixture
def skill(folder: Path) -> Skill:
    return Skill(parse_head(folder / "SKILL.md").metadata)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "./",
        "/",
        "/etc/passwd",
        "..",
        "../secret.txt",
        "references/../../secret.txt",
        "references/..",
        "references\\guide.md",
        "..\\secret.txt",
        "\\\\server\\share",
        "C:/windows",
        "root.md\0.png",
        "root.md\n",
        "\udc80",
        "\ud800/x",
        "x" * 5000,
        "a/" * 600 + "b",
        ".git/config",
        "references/./.git/config",
        None,
        7,
        b"root.md",
        ["root.md"],
    ],
)
@pytest.mark.requirement("S4-22")
def test_a_path_that_is_none_or_leaves_is_invalid_s4_22(path: str, skill: Skill) -> None:
    for ask in (skill.resolve, skill.read_bytes, skill.read_text, skill.find):
        with pytest.raises(InvalidResourcePath) as caught:
            ask(path)
        assert caught.value.code is ErrorCode.INVALID_RESOURCE_PATH
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("root.md", "root.md"),
        ("./root.md", "root.md"),
        ("references//guide.md", "references/guide.md"),
        ("references/./with space.md", "references/with space.md"),
        ("scripts/sub/run.sh", "scripts/sub/run.sh"),
        ("SKILL.md", "SKILL.md"),
    ],
)
def test_a_file_of_the_skill_is_found(asked: str, found: str, skill: Skill, folder: Path) -> None:
    assert skill.resolve(asked) == folder / found


@pytest.mark.parametrize(
    ("asked", "best"),
    [
        ("guide.md", "references/guide.md"),
        ("references/guid.md", "references/guide.md"),
        ("REFERENCES/GUIDE.MD", "references/guide.md"),
        ("docs/guide.md", "references/guide.md"),
        ("engine", "core/engine.py"),
        ("references", "references/guide.md"),
    ],
)
def test_a_wrong_path_is_answered_with_the_nearest(asked: str, best: str, skill: Skill) -> None:
    with pytest.raises(ResourceNotFound) as caught:
        skill.resolve(asked)
    assert caught.value.suggestions[0] == best
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.requirement("S0-9", "S4-7")
def test_a_path_may_be_named_without_its_folder_s4_7_s0_9(skill: Skill) -> None:
    assert skill.find("guide.md", ("references",)) == "references/guide.md"
    assert skill.find("references/guide.md", ("references",)) == "references/guide.md"
    assert skill.find("root.md", ("references",)) == "root.md"
    assert skill.find("sub/run.sh", ("scripts",)) == "scripts/sub/run.sh"
    assert skill.find("engine.py", ("scripts/",)) == "core/engine.py"
    with pytest.raises(ResourceNotFound):
        skill.find("guide.md")
    with pytest.raises(ResourceNotFound):
        skill.find("nothing.md", ("references",))


def test_links_are_followed_inside_and_refused_outside(skill: Skill, folder: Path, tmp_path: Path) -> None:
    (folder / "alias.md").symlink_to("references/guide.md")
    (folder / "docs").symlink_to("references")
    (folder / "leak.md").symlink_to("../../secret.txt")
    (folder / "out").symlink_to(tmp_path)
    (folder / "token.md").symlink_to(".git/config")
    (folder / "loop").symlink_to("loop")
    (tmp_path / "skills" / "one-more").mkdir()
    (tmp_path / "skills" / "one-more" / "x.md").write_text("x")
    (folder / "sibling").symlink_to("../one-more")
    assert skill.resolve("alias.md") == folder / "references" / "guide.md"
    assert skill.read_text("docs/guide.md") == "guide"
    for path in ("leak.md", "out/secret.txt", "out/skills/one/root.md/../x", "token.md", "sibling/x.md"):
        with pytest.raises(InvalidResourcePath):
            skill.read_bytes(path)
    with pytest.raises(ResourceNotFound):
        skill.read_bytes("loop")


def test_a_skill_reached_by_a_link_is_read_like_any_other(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(folder)
    skill = Skill(parse_head(tmp_path / "alias" / "SKILL.md").metadata)
    assert skill.resolve("root.md") == tmp_path / "alias" / "root.md"
    assert skill.read_text("references/guide.md") == "guide"
    assert skill.scripts_dir == tmp_path / "alias" / "scripts"


def test_a_link_swapped_in_after_the_check_is_not_followed(skill: Skill, folder: Path, tmp_path: Path) -> None:
    """The check and the reading are two steps; what happens between them must not matter."""
    found = locate(str(folder), "references/guide.md")
    assert found == "references/guide.md"
    (folder / "references" / "guide.md").unlink()
    (folder / "references" / "guide.md").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InvalidResourcePath):
        read_inside(str(folder), found, None)
    (folder / "references").rename(folder / "old")
    (tmp_path / "guide.md").write_text("secret too")
    (folder / "references").symlink_to(tmp_path)
    with pytest.raises(InvalidResourcePath):
        read_inside(str(folder), found, None)


@pytest.mark.slow
def test_a_race_of_links_never_gives_the_secret(skill: Skill, folder: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    target = folder / "race.md"
    (folder / "honest.md").write_text("honest")

    def swap() -> None:
        while not stop.is_set():
            for name in ("honest.md", str(tmp_path / "secret.txt")):
                aside = folder / "aside"
                aside.unlink(missing_ok=True)
                aside.symlink_to(name)
                aside.rename(target)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(2000):
            try:
                seen.add(skill.read_bytes("race.md"))
            except CatalogError:
                continue
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"honest"}


def test_special_files_are_no_resources(skill: Skill, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    with pytest.raises(ResourceNotFound):
        skill.read_bytes("pipe")
    with pytest.raises(InvalidResourcePath):
        skill.read_bytes("zero")


def test_reading_is_bounded(skill: Skill, folder: Path) -> None:
    with (folder / "huge.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert skill.read_bytes("huge.bin", limit=10) == b"\0" * 10
    assert skill.read_bytes("root.md", limit=0) == b""
    assert skill.read_bytes("root.md", limit=2) == b"ro"
    assert skill.read_bytes("root.md", limit=100) == b"root"
    with pytest.raises(CatalogError, match="larger than"):
        skill.read_bytes("huge.bin")


def test_text_is_utf8_with_or_without_a_mark_or_utf16(skill: Skill, folder: Path) -> None:
    (folder / "bom.md").write_bytes(b"\xef\xbb\xbfmark")
    (folder / "wide.md").write_text("wide é", encoding="utf-16")
    (folder / "latin.md").write_bytes(b"caf\xe9")
    (folder / "empty.md").touch()
    assert skill.read_text("bom.md") == "mark"
    assert skill.read_text("wide.md") == "wide é"
    assert skill.read_text("latin.md") == "caf\ufffd"
    assert skill.read_text("empty.md") == ""


@pytest.mark.slow
def test_row_315_names_that_strangers_chose_are_compared_in_a_time_that_grows_with_their_number() -> None:
    """Seen: eight wrong names at a skill with 5,000 files, and no tool of any user answered for minutes."""
    random = Random(1)
    names = ["".join(random.choices("ab", k=199)) for _ in range(5_000)]
    for _ in range(10):
        assert len(nearest("".join(random.choices("ab", k=199)), names)) == 3
    assert nearest("scripts/cvs.py", ["docs/csv.md", "scripts/csv.py", *names])[0] == "scripts/csv.py"
