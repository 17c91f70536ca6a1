from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import adk_skills_agent
import preloaded
from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry

MakeSkill = Callable[..., Path]
COUNT = 12


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "adk-skills"


@pytest.fixture
def root(make_skill: MakeSkill, tmp_path: Path) -> Path:
    for number in range(COUNT):
        make_skill(f"s{number:02}", description=f"Skill: number {number}.", files={"templates/a.md": ""})
    (tmp_path / "skills" / "s03" / "SKILL.md").write_text(
        "---\nname: S 03\ndescription: Rich.\nlicense: MIT\ncompatibility: any\nallowed-tools: Read Bash(git:*)\n"
        "metadata:\n  version: 1.10\n  deep:\n    list: [a, b]\ndisable-model-invocation: true\nhooks: {a: [1, null]}\n"
        "---\nbody\n"
    )
    settle()
    return tmp_path / "skills"


def settle() -> None:
    """Wait until what was written is old enough for its stamps to be believed."""
    time.sleep(0.15)


def registry_of(root: Path, cache_dir: Path) -> SkillsRegistry:
    registry = SkillsRegistry(RegistryConfig(cache_dir=cache_dir))
    registry.discover([root])
    return registry


def content(registry: SkillsRegistry) -> tuple[object, object]:
    return registry.list_metadata(), [d for d in registry.diagnostics if d.code != "index-cache"]


def opened_skill_files(root: Path, cache_dir: Path) -> list[str]:
    """Which SKILL.md files a new process opens to know the catalog."""
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
        opened = []
        sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
        registry = SkillsRegistry(RegistryConfig(cache_dir=Path(sys.argv[2])))
        registry.discover([sys.argv[1]])
        registry.list_metadata()
        print(len(registry), *(path.split("/")[-2] for path in opened if path.endswith("SKILL.md")))
    """)
    done = subprocess.run(
        [preloaded.program("python"), "-c", script, root, cache_dir], capture_output=True, text=True, check=True
    )
    count, *opened = done.stdout.split()
    assert int(count) == len(registry_of(root, cache_dir))
    return opened


def test_an_unchanged_tree_is_not_read_again(root: Path, cache_dir: Path) -> None:
    first = registry_of(root, cache_dir)
    assert len(first) == COUNT
    assert opened_skill_files(root, cache_dir) == []
    again = registry_of(root, cache_dir)
    assert content(again) == content(first)
    rich = again.get_metadata("s-03")
    assert rich.metadata["version"] == "1.10"
    assert rich.extra["disable-model-invocation"] == "true"
    assert rich.original_name == "S 03"
    assert rich.repairs
    assert hash(again.list_metadata()[0].location)


def test_only_what_changed_is_read_again(root: Path, cache_dir: Path, make_skill: MakeSkill) -> None:
    registry_of(root, cache_dir)
    (root / "s05" / "SKILL.md").write_text("---\nname: s05\ndescription: Changed.\n---\n")
    make_skill("new")
    subprocess.run(["rm", "-r", root / "s07"], check=True)
    settle()
    assert sorted(opened_skill_files(root, cache_dir)) == ["new", "s05"]
    registry = registry_of(root, cache_dir)
    assert registry.get_metadata("s05").description == "Changed."
    assert "new" in registry
    assert "s07" not in registry
    assert opened_skill_files(root, cache_dir) == []


def test_an_edit_that_restores_size_and_mtime_is_seen(root: Path, cache_dir: Path) -> None:
    registry_of(root, cache_dir)
    file = root / "s05" / "SKILL.md"
    status = file.stat()
    text = file.read_text()
    file.write_text(text.replace("number 5", "number X"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size
    assert registry_of(root, cache_dir).get_metadata("s05").description == "Skill: number X."


def test_a_file_that_was_just_written_is_read_again_because_its_stamp_may_lie(root: Path, cache_dir: Path) -> None:
    file = root / "s05" / "SKILL.md"
    for number in range(20):
        file.write_text(f"---\nname: s05\ndescription: Version {number:02}.\n---\n")
        assert registry_of(root, cache_dir).get_metadata("s05").description == f"Version {number:02}."


def test_a_nested_skill_added_later_is_found(root: Path, cache_dir: Path, make_skill: MakeSkill) -> None:
    registry_of(root, cache_dir)
    make_skill("nested", root=root / "s02" / "templates")
    assert "nested" in registry_of(root, cache_dir)


def test_the_folder_and_the_files_are_private(root: Path, cache_dir: Path) -> None:
    registry_of(root, cache_dir)
    assert cache_dir.stat().st_mode & 0o777 == 0o700
    (file,) = cache_dir.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def reseal(payload: bytes) -> bytes:
    """A payload with a header that fits it."""
    return f"adk-skills-index 1 {len(payload)} {zlib.crc32(payload):08x}\n".encode() + payload


def spoilt(data: bytes) -> dict[str, bytes]:
    payload = data.split(b"\n", 1)[1]
    root, reader, rows = json.loads(payload)
    return {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "garbage": os.urandom(5000),
        "flipped": data[:900] + bytes([data[900] ^ 1]) + data[901:],
        "other version": data.replace(b"adk-skills-index 1", b"adk-skills-index 999", 1),
        "no json": reseal(b"\xff\xfe"),
        "deep json": reseal(b"[" * 100_000 + b"]" * 100_000),
        "null": reseal(b"null"),
        "other shape": reseal(json.dumps([root, reader, [["x"]]]).encode()),
        "other types": reseal(json.dumps([root, reader, [[7, "x", 7, 7, 7, 7, [1, 2, 3, 4]]]]).encode()),
        "other root": reseal(json.dumps(["/elsewhere", reader, rows]).encode()),
        "other reader": reseal(json.dumps([root, "00000000", rows]).encode()),
    }


def test_a_damaged_index_costs_nothing_but_time(root: Path, cache_dir: Path) -> None:
    first = registry_of(root, cache_dir)
    (file,) = cache_dir.iterdir()
    for variant, data in spoilt(file.read_bytes()).items():
        file.write_bytes(data)
        registry = registry_of(root, cache_dir)
        assert content(registry) == content(first), variant
        assert opened_skill_files(root, cache_dir) == [], f"not made again after: {variant}"


@pytest.mark.parametrize("what", ["fifo", "folder", "link", "writable", "owner"])
def test_an_index_that_is_not_the_users_own_is_not_used(what: str, root: Path, cache_dir: Path, tmp_path: Path) -> None:
    first = registry_of(root, cache_dir)
    (file,) = cache_dir.iterdir()
    forged = file.read_bytes()
    if what == "writable":
        file.chmod(0o666)
    elif what == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(file, 65534, 65534)
    else:
        file.unlink()
        if what == "fifo":
            os.mkfifo(file)
        elif what == "folder":
            file.mkdir()
        else:
            (tmp_path / "forged").write_bytes(forged)
            file.symlink_to(tmp_path / "forged")
    registry = registry_of(root, cache_dir)
    assert content(registry) == content(first)
    assert [d.severity for d in registry.diagnostics if d.code == "index-cache"]


@pytest.mark.parametrize("what", ["writable", "link", "file", "in a file"])
def test_a_cache_folder_that_cannot_be_used_is_an_information(
    what: str, root: Path, cache_dir: Path, tmp_path: Path
) -> None:
    cache_dir.parent.mkdir()
    if what == "writable":
        cache_dir.mkdir()
        cache_dir.chmod(0o777)
    elif what == "link":
        (tmp_path / "target").mkdir()
        cache_dir.symlink_to(tmp_path / "target")
    elif what == "file":
        cache_dir.touch()
    else:
        cache_dir.parent.rmdir()
        cache_dir.parent.touch()
    registry = registry_of(root, cache_dir)
    assert len(registry) == COUNT
    problems = [d for d in registry.diagnostics if d.code == "index-cache"]
    assert {problem.severity.value for problem in problems} == {"info"}


def test_without_the_cache_nothing_is_written(root: Path, private_home: Path) -> None:
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([root])
    assert list(private_home.rglob("*")) == []


def test_the_default_place_is_the_users_cache(root: Path, private_home: Path) -> None:
    SkillsRegistry().discover([root])
    assert len(list((private_home / ".cache" / "adk-skills").iterdir())) == 1


def test_old_indexes_do_not_pile_up(root: Path, cache_dir: Path) -> None:
    cache_dir.mkdir(parents=True, mode=0o700)
    for number in range(100):
        (cache_dir / f"index-{number:016}.json").touch()
        os.utime(cache_dir / f"index-{number:016}.json", (number, number))
    registry_of(root, cache_dir)
    assert len(list(cache_dir.iterdir())) == 64
    assert opened_skill_files(root, cache_dir) == []


@pytest.mark.slow
def test_many_processes_share_one_cache_while_the_tree_changes(root: Path, cache_dir: Path) -> None:
    script = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
        root, cache, number = sys.argv[1:]
        own = Path(root, "s" + number.zfill(2), "SKILL.md")
        for turn in range(15):
            aside = own.with_name("aside")
            aside.write_text(f"---\\nname: {own.parent.name}\\ndescription: Turn {turn} of {number}.\\n---\\n")
            aside.replace(own)  # so that the others never see half of it
            registry = SkillsRegistry(RegistryConfig(cache_dir=Path(cache)))
            registry.discover([root])
            assert len(registry) == 12, (len(registry), registry.diagnostics)
            description = registry.get_metadata(own.parent.name).description
            assert description == f"Turn {turn} of {number}.", description
            bad = [d for d in registry.diagnostics if d.code == "index-cache"]
            assert not bad, bad
    """)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, root, cache_dir, str(number)], stderr=subprocess.PIPE, text=True
        )
        for number in (0, 1, 2, 4)
    ]
    errors = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0, 0], errors
    settle()
    registry_of(root, cache_dir)
    assert opened_skill_files(root, cache_dir) == []
    assert [path.suffix for path in cache_dir.iterdir()] == [".json"], "a file written aside was left behind"


def test_a_folder_that_another_process_makes_meanwhile_is_used(root: Path, tmp_path: Path, monkeypatch) -> None:
    """As when several agents of a new user start at once."""
    folder, real = tmp_path / "new" / "cache", os.makedirs

    def makedirs(path: str, *args: Any, **kwargs: Any) -> None:
        real(path, *args, **kwargs)
        folder.mkdir(mode=0o700)

    monkeypatch.setattr(os, "makedirs", makedirs)
    registry = registry_of(root, folder)
    assert [entry for entry in registry.diagnostics if entry.code == "index-cache"] == []
    assert len(list(folder.iterdir())) == 1


def test_stamps_from_the_future_are_never_believed(root: Path, cache_dir: Path) -> None:
    file = root / "s05" / "SKILL.md"
    later = time.time() + 3600
    os.utime(file, (later, later))
    settle()
    registry_of(root, cache_dir)
    assert opened_skill_files(root, cache_dir) == ["s05"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (1, 5),
        (1, ["s00"]),
        (1, "../s00"),
        (2, []),
        (2, ["a", "b"]),
        (2, [7]),
        (2, ["d", None, None, None, 5, None, 0, None]),
        (2, ["d", None, None, None, None, "x", 0, None]),
        (2, ["d", None, None, None, None, None, 0, 7]),
        (3, [["code", "info", 7, None, None]]),
    ],
)
def test_an_index_with_the_right_checksum_and_wrong_types_is_made_again(
    root: Path, cache_dir: Path, column: int, value: object
) -> None:
    first = registry_of(root, cache_dir)
    (file,) = cache_dir.iterdir()
    rows = json.loads(file.read_bytes().partition(b"\n")[2])
    next(row[6] for row in rows[2] if row[6])[column] = value
    seal(file, rows)
    again = registry_of(root, cache_dir)
    assert content(again) == content(first)
    assert again.search("skill")


@pytest.mark.parametrize("children", [["../.."], [1], [".."], "s00/x", [""]])
def test_an_index_with_folders_that_are_no_names_is_made_again(root: Path, cache_dir: Path, children: object) -> None:
    first = registry_of(root, cache_dir)
    (file,) = cache_dir.iterdir()
    rows = json.loads(file.read_bytes().partition(b"\n")[2])
    rows[2][0][2] = children
    seal(file, rows)
    assert content(registry_of(root, cache_dir)) == content(first)


def seal(file: Path, rows: object) -> None:
    payload = json.dumps(rows, separators=(",", ":")).encode()
    file.write_bytes(f"adk-skills-index 1 {len(payload)} {zlib.crc32(payload):08x}\n".encode() + payload)


def test_a_package_in_a_zip_file_keeps_an_index_too(root: Path, cache_dir: Path, tmp_path: Path) -> None:
    source = Path(adk_skills_agent.__file__).parent
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for path in source.rglob("*.py"):
            archive.write(path, path.relative_to(source.parent))
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry, registry as module\n"
        "registry = SkillsRegistry(RegistryConfig(cache_dir=Path(sys.argv[3])))\n"
        "print('package.zip' in module.__file__, registry.discover([sys.argv[2]]))\n"
    )
    command = [sys.executable, "-c", script, tmp_path / "package.zip", root, cache_dir]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["True", str(COUNT)]
    assert list(cache_dir.iterdir())
