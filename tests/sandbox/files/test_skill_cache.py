"""The read-only copy a script sees instead of its skill's folder (attack rows 43 to 45)."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox import skill_store
from adk_skills_agent.sandbox import skill_store as skill_copy
from adk_skills_agent.sandbox.contract import ExecutionRequest, ReadOnlyMount, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.skill_store import Materialised, clean_up, digest_of, materialise
from own_descriptors import open_below


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "skill"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: skill\n---\n")
    (folder / "scripts" / "run.sh").write_text("echo ran\n")
    (folder / "scripts" / "run.sh").chmod(0o4755)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def settle() -> None:
    """Let the files be older than what the file system's clock can tell apart."""
    time.sleep(0.12)


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def unlocked(copy: Path) -> None:
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)


def test_the_copy_has_the_same_files_read_only_under_the_name_of_its_digest(skill: Path, cache: Path) -> None:
    copy = materialise(skill, cache)
    assert copy.path == cache / copy.digest
    assert (copy.path / "SKILL.md").read_bytes() == (skill / "SKILL.md").read_bytes()
    modes = {str(p.relative_to(copy.path)): stat.S_IMODE(p.lstat().st_mode) for p in copy.path.rglob("*")}
    assert modes == {"SKILL.md": 0o444, "empty": 0o555, "scripts": 0o555, "scripts/run.sh": 0o555}
    assert stat.S_IMODE(copy.path.stat().st_mode) == 0o555
    assert (copy.files, copy.notes) == (4, ())
    assert copy.bytes == sum(p.stat().st_size for p in skill.rglob("*") if p.is_file())
    assert entries(cache) == [copy.digest]
    copy.release()


def test_the_same_content_anywhere_is_one_copy_and_a_change_is_another(
    skill: Path, cache: Path, tmp_path: Path
) -> None:
    first = materialise(skill, cache).digest
    other = tmp_path / "elsewhere"
    subprocess.run(["cp", "-r", skill, other], check=True)
    assert materialise(other, cache).digest == first
    seen = {first}
    changes: list[Callable[[], object]] = [
        lambda: (skill / "SKILL.md").write_text("x"),
        lambda: (skill / "new").write_text("x"),
        lambda: (skill / "new").chmod(0o755),
        lambda: (skill / "new").rename(skill / "renamed"),
        lambda: (skill / "link").symlink_to("SKILL.md"),
        lambda: (skill / "empty").rmdir(),
    ]
    for change in changes:
        settle()
        change()
        copy = materialise(skill, cache)
        assert copy.digest not in seen
        assert digest_of(str(copy.path)) == copy.digest
        seen.add(copy.digest)


def test_a_change_that_keeps_size_and_time_is_seen(skill: Path, cache: Path) -> None:
    settle()
    before = materialise(skill, cache)
    info = (skill / "SKILL.md").stat()
    text = (skill / "SKILL.md").read_text()
    (skill / "SKILL.md").write_text(text.swapcase())
    os.utime(skill / "SKILL.md", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert materialise(skill, cache).digest != before.digest


def test_a_change_right_after_the_copy_is_seen_although_no_clock_shows_it(skill: Path, cache: Path) -> None:
    digests = set()
    for number in range(20):
        (skill / "SKILL.md").write_text(f"{number:04}")
        digests.add(materialise(skill, cache).digest)
    assert len(digests) == 20


def test_an_unchanged_skill_is_not_read_again(skill: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (skill / "asset.bin").write_bytes(os.urandom(1 << 20))
    settle()
    first = materialise(skill, cache)
    read: list[object] = []
    opened = os.open
    this = threading.get_ident()  # threads of the sandbox may look at processes meanwhile

    def noted(path: object, *args: object, **more: object) -> int:
        if threading.get_ident() == this:
            read.append(path)
        return opened(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", noted)
    assert materialise(skill, cache) == first
    assert read == []


def test_links_inside_stay_links_and_everything_foreign_is_left_out_with_a_note(skill: Path, cache: Path) -> None:
    (skill / "a").mkdir()
    (skill / "a" / "up").symlink_to("../SKILL.md")
    (skill / "absolute").symlink_to(skill / "scripts")
    (skill / "chain").symlink_to("absolute/run.sh")
    (skill / "root").symlink_to(".")
    (skill / "passwd").symlink_to("/etc/passwd")
    (skill / "parent").symlink_to("..")
    (skill / "trick").symlink_to("a/../../outside")
    (skill / "nothing").symlink_to("missing")
    (skill / "loop").symlink_to("loop")
    os.mkfifo(skill / "fifo")
    (skill / "to-fifo").symlink_to("fifo")
    if os.geteuid() == 0:
        os.mknod(skill / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    copy = materialise(skill, cache)
    assert os.readlink(copy.path / "a" / "up") == "../SKILL.md"
    assert os.readlink(copy.path / "absolute") == "scripts"
    assert os.readlink(copy.path / "chain") == "scripts/run.sh"
    assert os.readlink(copy.path / "root") == "."
    left_out = {"passwd", "parent", "trick", "nothing", "loop", "fifo", "to-fifo"} | (
        {"null"} if os.geteuid() == 0 else set()
    )
    for name in left_out:
        assert not os.path.lexists(copy.path / name)
        assert [note for note in copy.notes if note.startswith(f"'{name}' ")]
    assert len(copy.notes) == len(left_out)
    assert str(skill) not in "".join(copy.notes)
    assert materialise(skill, cache).digest == copy.digest


def test_a_copy_somebody_changed_is_made_again(skill: Path, cache: Path) -> None:
    """At the process level a script has the right to do that."""
    copy = materialise(skill, cache)
    good = {p: p.read_bytes() for p in copy.path.rglob("*") if p.is_file()}
    attacks: list[Callable[[], object]] = [
        lambda: (copy.path / "SKILL.md").write_text("evil"),
        lambda: (copy.path / "more").write_text("evil"),
        lambda: (copy.path / "SKILL.md").unlink(),
        lambda: (copy.path / "scripts" / "run.sh").rename(copy.path / "gone"),
        lambda: (copy.path / "SKILL.md").chmod(0o666),
        lambda: (copy.path / "scripts").rename(cache / "elsewhere"),
    ]
    for attack in attacks:
        unlocked(copy.path)
        attack()
        again = materialise(skill, cache)
        assert again.digest == copy.digest
        assert {p: p.read_bytes() for p in copy.path.rglob("*") if p.is_file()} == good
        assert not any(p.lstat().st_mode & 0o222 for p in copy.path.rglob("*"))


def test_what_is_planted_under_a_digest_is_not_believed(skill: Path, cache: Path) -> None:
    digest = materialise(skill, cache / "a").digest
    (cache / "b").mkdir(mode=0o700)
    (cache / "b" / digest).mkdir()
    (cache / "b" / digest / "SKILL.md").write_text("planted")
    copy = materialise(skill, cache / "b")
    assert (copy.path / "SKILL.md").read_bytes() == (skill / "SKILL.md").read_bytes()


def test_a_cache_of_somebody_else_or_open_to_others_is_refused(skill: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(SandboxError, match="written by others") as refused:
        materialise(skill, shared)
    assert str(shared) not in refused.value.message
    link = tmp_path / "link"
    (tmp_path / "own").mkdir(mode=0o700)
    link.symlink_to(tmp_path / "own")
    with pytest.raises(SandboxError, match="symbolic link"):
        materialise(skill, link)
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir(mode=0o700)
        os.chown(foreign, 12345, 12345)
        with pytest.raises(SandboxError, match="belongs to user 12345"):
            materialise(skill, foreign)


def test_another_user_id_can_reach_the_copy_but_not_list_the_cache_when_we_are_root(skill: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root drops its user id")
    copy = materialise(skill)
    nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/", "capture_output": True, "text": True}
    text = subprocess.run(["cat", copy.path / "SKILL.md"], check=True, **nobody).stdout
    assert text == (skill / "SKILL.md").read_text()
    assert "scripts" in subprocess.run(["ls", copy.path], check=True, **nobody).stdout
    assert "denied" in subprocess.run(["ls", copy.path.parent], check=False, **nobody).stderr


def test_a_folder_that_is_too_large_has_too_many_files_or_is_not_there_is_refused(
    skill: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SandboxError, match="No such file") as refused:
        materialise(tmp_path / "none", cache)
    assert str(tmp_path) not in refused.value.message
    with (skill / "sparse").open("wb") as stream:
        stream.truncate(skill_copy.MAX_BYTES + 1)
    monkeypatch.setattr(skill_copy, "MAX_BYTES", 1 << 20)
    with pytest.raises(SandboxError, match="holds more than 1 MiB"):
        materialise(skill, cache)
    (skill / "sparse").unlink()
    monkeypatch.setattr(skill_copy, "MAX_FILES", 3)
    with pytest.raises(SandboxError, match="more than 3 files"):
        materialise(skill, cache)
    assert not cache.exists() or entries(cache) == []


def test_many_threads_and_processes_make_one_copy(skill: Path, cache: Path) -> None:
    (skill / "asset.bin").write_bytes(os.urandom(3 << 20))
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        others = pool.starmap_async(_digest, [(skill, cache)] * 6)
        found: list[Materialised] = []
        threads = [threading.Thread(target=lambda: found.append(materialise(skill, cache))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        digests = {copy.digest for copy in found} | set(others.get(60))
    assert len(digests) == 1
    assert entries(cache) == list(digests)
    assert len(found) == 6


def _digest(skill: Path, cache: Path) -> str:
    return materialise(skill, cache).digest


def test_the_cache_is_kept_inside_its_bounds_and_what_is_in_use_stays(skill: Path, cache: Path) -> None:
    digests = []
    for number in range(4):
        (skill / "SKILL.md").write_text(f"{number}" * 1000)
        copy = materialise(skill, cache)
        digests.append(copy.digest)
        os.utime(cache / f"{copy.digest}.lock", (number, number))
    assert clean_up(str(cache), max_entries=1) == 0  # all are locked by this process
    child = f"""
from pathlib import Path
from adk_skills_agent.sandbox.skill_store import clean_up
print(clean_up({str(cache)!r}, max_bytes=2500))
"""
    assert subprocess.run([sys.executable, "-c", child], check=True, capture_output=True).stdout == b"0\n"
    for entry in list(skill_store._entries.values()):
        if entry.root == str(cache) and entry.digest != digests[0]:
            os.close(entry.lock)
            del skill_store._entries[entry.root, entry.digest]
    assert subprocess.run([sys.executable, "-c", child], check=True, capture_output=True).stdout == b"2\n"
    assert entries(cache) == sorted([digests[0], digests[3]])


def test_an_entry_that_was_thrown_away_is_made_again(skill: Path, cache: Path) -> None:
    settle()
    copy = materialise(skill, cache)
    skill_store.discard(str(cache), str(copy.path))
    assert materialise(skill, cache).path.is_dir()


def test_idle_entries_do_not_keep_descriptors_without_bound(skill: Path, cache: Path) -> None:
    for number in range(skill_store._IDLE_ENTRIES + 20):
        (skill / "SKILL.md").write_text(str(number))
        materialise(skill, cache).release()
    assert 0 < len(open_below(cache)) <= skill_store._IDLE_ENTRIES + 1


def test_a_skill_that_somebody_edits_meanwhile_gives_one_of_its_states(skill: Path, cache: Path) -> None:
    over = threading.Event()

    def edit() -> None:
        number = 0
        while not over.is_set():
            number += 1
            for name in ("one", "two"):
                (skill / name).write_text(str(number))
            time.sleep(0.03)

    (skill / "one").write_text("0")
    (skill / "two").write_text("0")
    editor = threading.Thread(target=edit)
    editor.start()
    try:
        for _ in range(10):
            copy = materialise(skill, cache)
            assert digest_of(str(copy.path)) == copy.digest
            states = [(copy.path / name).read_text() for name in ("one", "two")]
            # Between the two writes, or with one just emptied, which is a state as well.
            assert "" in states or abs(int(states[0]) - int(states[1])) <= 1
    finally:
        over.set()
        editor.join()


# Through a real run, at the weakest level and at the strongest one that works here


@pytest.fixture(params=["process", "landlock", "auto"])
def limits(request: pytest.FixtureRequest) -> SandboxPolicy:
    return SandboxPolicy(min_isolation="process", isolation=request.param, wall_seconds=20.0)


async def test_a_script_never_sees_the_original_folder_and_cannot_change_it(
    skill: Path, limits: SandboxPolicy, nothing_left: None
) -> None:
    (skill / "scripts" / "evil.py").write_text(
        "import os, pathlib\n"
        "here = os.path.realpath(__file__)\n"
        "print(os.stat(here).st_ino)\n"
        "try: os.chmod(here, 0o777); pathlib.Path(here).write_text('print(666)')\n"
        "except OSError as error: pass\n"
    )
    original = (skill / "scripts" / "evil.py").read_text()
    request = ExecutionRequest(("python3", "/skill/scripts/evil.py"), limits, mounts=(ReadOnlyMount(skill),))
    for _ in range(2):
        result = await local_sandbox().run(request)
        assert result.status is Status.OK, result.stderr
        assert int(result.stdout) != (skill / "scripts" / "evil.py").stat().st_ino
        assert (skill / "scripts" / "evil.py").read_text() == original


async def test_what_was_left_out_is_said_and_a_large_folder_can_be_given_as_it_is(
    skill: Path, limits: SandboxPolicy, nothing_left: None
) -> None:
    (skill / "leak").symlink_to("/etc/passwd")
    code = "import os; print(os.path.lexists('/skill/leak'), os.path.lexists('leak'))"
    mounted = ExecutionRequest(("python3", "-c", code), limits, mounts=(ReadOnlyMount(skill),))
    result = await local_sandbox().run(mounted)
    assert result.stdout.split()[1] == b"False"
    assert [note for note in result.notes if "'leak' of the skill was left out" in note]
    itself = ExecutionRequest(("cat", "/skill/SKILL.md"), limits, mounts=(ReadOnlyMount(skill, copied=False),))
    assert (await local_sandbox().run(itself)).stdout == (skill / "SKILL.md").read_bytes()
