from __future__ import annotations

import io
import shutil
import stat
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from adk_skills_agent.evals.skillsbench.dockerfile import Source, digest_of, find_sources, write_tar
from adk_skills_agent.evals.skillsbench.environment import BuildError, MissingSource


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name in ("Dockerfile", "data.txt", "src/main.py", "src/skills/kept.txt", "skills/pdf/SKILL.md"):
        (tmp_path / "context" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "context" / name).write_text(name)
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "context" / "escape").symlink_to(tmp_path / "outside")
    return tmp_path / "context"


def names(sources: list[Source]) -> set[str]:
    packed = io.BytesIO()
    write_tar(packed, sources, {})
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        assert {member.uid for member in archive} == {0}
        return set(archive.getnames())


def test_without_skills_the_folder_is_as_if_it_were_not_there(context: Path) -> None:
    assert "skills/pdf/SKILL.md" in names(find_sources(context, ["."], with_skills=True, line=1))
    rest = names(find_sources(context, ["."], with_skills=False, line=1))
    assert not any(name.startswith("skills") for name in rest)
    assert {"data.txt", "src/skills/kept.txt"} <= rest
    with pytest.raises(MissingSource):
        find_sources(context, ["skills/*"], with_skills=False, line=3)


@pytest.mark.parametrize("pattern", ["nothing", "../outside", "escape", "src/*.txt"])
def test_what_is_not_there_or_outside_is_named_with_its_line(context: Path, pattern: str) -> None:
    with pytest.raises(MissingSource, match="Line 7"):
        find_sources(context, [pattern], with_skills=True, line=7)


def test_a_digest_changes_with_names_modes_and_bytes(context: Path) -> None:
    sources = find_sources(context, ["src"], with_skills=True, line=1)
    seen = {digest_of(sources)}
    (context / "src/main.py").chmod(0o755)
    seen.add(digest_of(sources))
    (context / "src/main.py").write_text("changed")
    seen.add(digest_of(sources))
    (context / "src/main.py").rename(context / "src/other.py")
    seen.add(digest_of(sources))
    assert len(seen) == 4


def test_row_468_one_file_is_not_two(context: Path) -> None:
    """Seen: a task's file had the digest of two files of another task, and was what that one's COPY put there."""
    (context / "a").mkdir()
    (context / "b").mkdir()
    for folder in ("a", "b"):
        (context / folder / "data").write_text("X")
    (context / "a" / "tool").write_text("Y")
    one, two = (find_sources(context, [f"a/{name}"], with_skills=True, line=1)[0] for name in ("data", "tool"))
    kind = f"{stat.S_IFREG:o}\0{(context / 'a/tool').stat().st_mode & 0o777:o}"
    for size in ("", "1\0"):
        (context / "b/data").write_text(f"X\ntool\0{kind}\0{size}Y")
        whole = find_sources(context, ["b/data"], with_skills=True, line=1)
        assert digest_of(whole) != digest_of([one, two])


def test_row_286_what_has_no_room_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_bytes(b"x" * 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=(1 << 30) + 99))
    with pytest.raises(BuildError, match="no room to pack 100 bytes"):
        write_tar(io.BytesIO(), [Source(tmp_path, folder=True)], {})
