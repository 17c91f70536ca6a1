from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry, is_trusted, trust_project, untrust_project
from adk_skills_agent.catalog.trust import read_trusted_projects, trust_file
from adk_skills_agent.errors import ConfigError


@pytest.mark.requirement("S4-23")
def test_a_project_is_trusted_until_it_is_not_any_more(tmp_path: Path) -> None:
    assert not is_trusted(tmp_path)
    trust_project(tmp_path)
    trust_project(tmp_path)
    assert is_trusted(tmp_path)
    assert not is_trusted(tmp_path / "sub")
    assert not is_trusted(tmp_path.parent)
    assert trust_file().read_text() == f"{tmp_path}\n"
    assert trust_file().stat().st_mode & 0o777 == 0o600
    untrust_project(tmp_path)
    untrust_project(tmp_path)
    assert not is_trusted(tmp_path)


def test_the_real_path_counts_so_that_a_link_cannot_be_turned(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "link").symlink_to("good")
    trust_project(tmp_path / "link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("bad")
    assert is_trusted(tmp_path / "good")
    assert not is_trusted(tmp_path / "link")


@pytest.mark.parametrize("name", ["line\nbreak", "edge ", "caf\udce9"])
def test_a_strange_path_is_refused_or_kept_exactly(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    os.mkdir(os.fsencode(folder))
    try:
        trust_project(folder)
    except ConfigError:
        assert not is_trusted(folder)
    else:
        assert is_trusted(folder)
    assert not is_trusted(tmp_path)
    assert not is_trusted(tmp_path / "line")
    assert not is_trusted(tmp_path / "edge")


@pytest.mark.parametrize("spoil", ["world", "group", "its folder", "owner", "link", "fifo", "folder", "large"])
def test_a_list_that_others_could_have_written_is_refused(spoil: str, tmp_path: Path) -> None:
    trust_project(tmp_path)
    path = trust_file()
    if spoil == "world":
        path.chmod(0o666)
    elif spoil == "group":
        path.chmod(0o660)
    elif spoil == "its folder":
        path.parent.chmod(0o770)
    elif spoil == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, 65534, 65534)
    elif spoil == "link":
        path.rename(tmp_path / "list")
        path.symlink_to(tmp_path / "list")
    elif spoil == "large":
        with path.open("ab") as file:
            file.truncate(10 << 20)
    else:
        path.unlink()
        if spoil == "fifo":
            os.mkfifo(path)
        else:
            path.mkdir()
    assert not is_trusted(tmp_path)
    problem = read_trusted_projects().problem
    assert problem is not None
    assert str(path) in problem.message
    with pytest.raises(ConfigError):
        trust_project(tmp_path / "other")
    (tmp_path / ".agents" / "skills" / "x").mkdir(parents=True)
    registry = SkillsRegistry(RegistryConfig(packages=False))
    registry.discover_scopes(tmp_path)
    assert {diagnostic.code for diagnostic in registry.diagnostics} == {"trust-file-refused", "untrusted-project"}


def test_comments_and_rubbish_in_the_list_trust_nothing(tmp_path: Path) -> None:
    trust_file().parent.mkdir(parents=True)
    trust_file().write_bytes(b"# trusted\n\n.\n*\n~\n\xff\xfe\n" + os.fsencode(tmp_path / "a") + b"  \r\n")
    assert is_trusted(tmp_path / "a")
    assert not is_trusted(tmp_path)
    assert not is_trusted("/")


def _trust(path: str) -> None:
    trust_project(path)


@pytest.mark.slow
def test_processes_at_the_same_time_lose_no_line(tmp_path: Path) -> None:
    paths = [str(tmp_path / str(number)) for number in range(24)]
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        list(pool.map(_trust, paths))
    assert all(is_trusted(path) for path in paths)
    assert os.listdir(trust_file().parent) == [trust_file().name]


def test_without_a_home_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(ConfigError, match="HOME"):
        trust_project(tmp_path)
    assert not is_trusted(tmp_path)
