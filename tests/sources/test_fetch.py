"""Which skills of a source are meant: names, plugins of marketplaces, packages of Python."""

from __future__ import annotations

import http.server
import io
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repositories import Repository, Run, skill_text

from adk_skills_agent.errors import SourceError
from adk_skills_agent.sources import git
from adk_skills_agent.sources import http as web
from adk_skills_agent.sources.fetch import fetch_skills, opened
from adk_skills_agent.sources.origin import read_origin
from adk_skills_agent.sources.plugins import read_marketplace
from adk_skills_agent.sources.tree import SKIPPED, files_by_folder, skill_folders
from local_index import LocalIndex, serving, wheel


@pytest.fixture
def market(repository: Repository, tmp_path: Path) -> Repository:
    """A marketplace with a plugin of its own and one that lives in another repository."""
    other = Repository(tmp_path / "other")
    other.write({"skills/deploy/SKILL.md": skill_text("deploy"), "plugin.json": '{"name": "ops"}'})
    plugins = [
        {"name": "office", "source": "./plugins/office"},
        {"name": "ops", "source": {"source": "url", "url": other.url, "ref": "main"}},
        {"name": "npm-one", "source": {"source": "npm", "package": "x"}},
        {"name": "outside", "source": "../../etc"},
        {"source": "./nameless"},
    ]
    repository.write(
        {
            ".claude-plugin/marketplace.json": json.dumps({"name": "m", "owner": {"name": "o"}, "plugins": plugins}),
            "plugins/office/.claude-plugin/plugin.json": '{"name": "office"}',
            "plugins/office/skills/word/SKILL.md": skill_text("word"),
            "plugins/office/skills/excel/SKILL.md": skill_text("excel"),
        }
    )
    return repository


def names(source: Repository, *wanted: str) -> list[str]:
    return [skill.name for skill in fetch_skills(read_origin(source.url), wanted)]


@pytest.mark.requirement("S4-30")
def test_a_plugin_stands_for_its_skills_here_and_elsewhere(market: Repository):
    assert names(market, "office") == ["excel", "word"]
    assert names(market, "word") == ["word"]
    assert names(market, "ops") == ["deploy"]
    assert names(market, "pdf", "ops") == ["pdf", "deploy"]
    (deploy,) = fetch_skills(read_origin(market.url), ["ops"])
    assert deploy.origin.location.endswith("other/bare.git")
    assert deploy.origin.ref == "main"
    with pytest.raises(SourceError, match=r"no skill 'npm-one'.*at 'npm', which skills are not fetched from"):
        names(market, "npm-one")


def test_a_skill_that_is_not_there_is_answered_with_those_that_are(repository: Repository):
    repository.write({f"skills/{name}/SKILL.md": skill_text(name) for name in ("word", "excel")})
    with pytest.raises(SourceError, match=r"has no skill 'zzz'\. It has: csv, excel, pdf, word\.$"):
        names(repository, "zzz")


def test_a_plugin_has_the_skills_that_an_authoritative_entry_lists(repository: Repository):
    """As the marketplace of anthropics/skills: several plugins share one folder."""
    plugins = [
        {"name": "documents", "source": "./", "strict": False, "skills": ["./skills/word", "./skills/excel"]},
        {"name": "art", "source": "./", "strict": False, "skills": "./skills/paint/"},
        {"name": "bare", "source": "./", "strict": False, "skills": []},
        {"name": "out", "source": "./", "strict": False, "skills": ["../word"]},
        {"name": "whole", "source": "./", "skills": ["./skills/word"]},
    ]
    repository.write(
        {
            ".claude-plugin/marketplace.json": json.dumps({"plugins": plugins}),
            **{f"skills/{name}/SKILL.md": skill_text(name) for name in ("word", "excel", "paint")},
        }
    )
    assert names(repository, "documents") == ["excel", "word"]
    assert names(repository, "art") == ["paint"]
    assert {"excel", "paint", "word"} <= set(names(repository, "whole"))
    with pytest.raises(SourceError, match=r"'bare' .* has no skills"):
        names(repository, "bare")
    with pytest.raises(SourceError, match="'out' is outside the source"):
        names(repository, "out")


def test_what_all_leaves_out_is_told_and_nothing_is_no_success(repository: Repository, run: Run, tmp_path: Path):
    plugins = [{"name": "ops", "source": {"source": "url", "url": repository.url}}]
    only = Repository(tmp_path / "only")
    only.write({"marketplace.json": json.dumps({"plugins": plugins})})
    done = run("add", only.url, "--all", "--yes")
    assert done.returncode == 1
    assert "not a part of all: ops" in done.stderr
    assert "has no skill, so nothing was installed" in done.stderr
    assert not (tmp_path / "project/adk-skills.lock").exists()
    done = run("add", only.url, "--yes")
    assert "Name those you want with --skill: ops." in done.stderr
    assert run("add", only.url, "--skill", "ops", "--yes").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_folder_of_a_source_that_cannot_be_read_is_named(caplog):
    with tempfile.TemporaryDirectory(dir="/tmp") as source:
        os.chmod(source, 0o755)
        for name in ("open", "closed"):
            Path(source, name, "skill").mkdir(parents=True)
            Path(source, name, "skill", "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
        Path(source, "closed").chmod(0o700)
        origin = read_origin(source)
        os.seteuid(65534)
        try:
            with opened(origin) as there:
                found = there.skills.folders()
        finally:
            os.seteuid(0)
    assert found == ["open/skill"]
    assert f"{source}/closed cannot be read, so no skill in it is found: Permission denied." in caplog.text


def test_what_a_marketplace_cannot_give_is_said():
    plugins = [{"name": "a", "source": {"source": "npm", "package": "x"}}, {"name": "b", "source": "../x"}, {}, "text"]
    found = read_marketplace({"marketplace.json": json.dumps({"plugins": plugins}).encode()}.get)
    assert not found.plugins
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        "the plugin 'a' is at 'npm', which skills are not fetched from.",
        "the plugin 'b' is outside the source.",
        "an entry has no name.",
        "an entry has no name.",
    ]
    for junk in (b"[]", b"{", b"\xff", b'{"plugins": {"a": 1}}', b'{"plugins": "x"}'):
        assert not read_marketplace({"marketplace.json": junk}.get).plugins


def test_row_138_nothing_that_a_repository_says_starts_a_program(repository: Repository, run: Run, tmp_path: Path):
    """Seen: a program of the repository's choice ran at ``adk-skills add --dry-run``, before anybody was asked."""
    planted = tmp_path / "planted"
    command = f"mcp:touch {planted}"
    plugins = [
        {"name": "one", "source": {"source": "github", "repo": command}},
        {"name": "two", "source": {"source": "pip", "package": "--python=/bin/false"}},
        {"name": "three", "source": {"source": "github", "repo": str(tmp_path)}},
    ]
    repository.write(
        {
            "marketplace.json": json.dumps({"plugins": plugins}),
            "skills/csv/SKILL.md": skill_text("csv", requires_skills=f"b @ {command}"),
        }
    )
    for arguments in (("csv",), ("one",), ("two",), ("three",)):
        done = run("add", repository.url, "--skill", *arguments, "--dry-run")
        assert done.returncode == 1, (arguments, done.stderr)
    assert not planted.exists()


def _inner_service() -> tuple[http.server.ThreadingHTTPServer, list[str]]:
    """A service of the inner network, started, and the paths that it was asked for."""
    asked: list[str] = []

    class Inner(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Inner)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, asked


def test_row_148_what_a_repository_names_is_not_asked_for_at_a_private_address(
    repository: Repository, run: Run, tmp_path: Path
):
    """Seen: ``adk-skills add --dry-run`` sent GETs of a stranger's choice to services of this machine."""
    server, asked = _inner_service()
    inner = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        plugins = [{"name": "one", "source": {"source": "url", "url": f"{inner}/restart.git"}}]
        repository.write(
            {
                "marketplace.json": json.dumps({"plugins": plugins}),
                "skills/csv/SKILL.md": skill_text("csv", requires_skills=f"b @ {inner}/deploy.zip"),
            }
        )
        with pytest.raises(SourceError, match="private address"):
            names(repository, "one")
        done = run("add", repository.url, "--skill", "csv", "--dry-run")
        assert done.returncode == 1
        assert "private address" in done.stderr
        assert asked == []
        run("add", repository.url, "--skill", "csv", "--dry-run", "--allow-private")
        assert asked == ["/deploy.zip"]
    finally:
        server.shutdown()
        server.server_close()


def test_row_198_a_file_from_elsewhere_names_nothing_of_this_machine(repository: Repository, tmp_path: Path):
    """Seen: ``requires-skills: b @ /`` of a web server's skill walked the whole disk, at --dry-run already."""
    elsewhere = read_origin("git+https://example.com/x.git")
    here = read_origin(str(repository.work / "skills/csv"))
    for origin in (read_origin("/"), here, read_origin(repository.url)):
        with pytest.raises(SourceError, match="is on this machine"):
            fetch_skills(origin, ["b"], named_by=(elsewhere,))
    assert [one.name for one in fetch_skills(here, named_by=(read_origin(repository.url),))] == ["csv"]


@pytest.mark.parametrize(
    ("named", "scheme"),
    [
        ("git+ssh://git@nas.example.com/srv/b.git", "ssh"),
        ("git@nas.example.com:srv/b.git", "ssh"),
        ("git://8.8.8.8/b.git", "git"),
    ],
)
def test_row_456_neither_ssh_nor_git_go_where_only_they_know_what_others_named(
    named: str, scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Seen: ssh looked a name up in the user's settings, and logged in on a machine of the inner network."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho >> {tmp_path}/asked\nexit 1\n")
    ssh.chmod(0o700)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    real = socket.getaddrinfo

    def unknown(host: str, *more: Any, **options: Any) -> Any:
        if host == "nas.example.com":
            raise socket.gaierror
        return real(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    elsewhere = (read_origin("git+https://example.com/x.git"),)
    with pytest.raises(SourceError, match=f"may be in a private network.* by {scheme}://.*--allow-private"):
        fetch_skills(read_origin(named), ["b"], named_by=elsewhere)
    with pytest.raises(SourceError, match="--allow-private if that is meant, or trust the project"):  # of a lock
        fetch_skills(read_origin(named), ["b"], named_by=())
    assert not (tmp_path / "asked").exists()
    for allowed in ({"allow_private": True}, {"named_by": (read_origin("git+ssh://git@nas.example.com/srv/a.git"),)}):
        if scheme == "ssh":  # control
            with pytest.raises(SourceError, match="git"):
                fetch_skills(read_origin(named), ["b"], **{"named_by": elsewhere, **allowed})
            assert (tmp_path / "asked").exists()
            (tmp_path / "asked").unlink()


@pytest.mark.parametrize(
    "place",
    [
        "vault:8200",
        "vault.corp",
        "x.internal.",
        "vault.corp.invalid:8200",
        "127.0.0.%31",
        "l%6fcalhost",
        "127。0。0。1",
    ],
)
def test_row_475_names_of_an_inner_network_are_none_for_a_proxy(place: str, monkeypatch: pytest.MonkeyPatch):
    """Seen: the proxy of the environment was asked for what others named, and knew it."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(socket.gaierror()))
    with pytest.raises(SourceError, match=r"inner network|by more than letters"):
        web.refuse_private(f"http://{place}/x.git")
    assert web.refuse_private("https://vault.example.com/x.git") == ()


def test_row_476_a_repository_above_the_temporary_folder_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Seen: another user made one of /tmp, and root's look for a newest commit ran what its settings say."""
    for name in ("objects", "refs"):
        (tmp_path / name).mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "config").write_text(
        f'[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tsshCommand = "touch {tmp_path}/ran; false"\n'
        '[url "ssh://git@nowhere.invalid/"]\n\tinsteadOf = http://\n'
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SourceError):
        git.newest_commit("http://127.0.0.1:1/x.git")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("moved", [False, True])
def test_row_190_git_does_not_reach_a_private_address_that_a_name_gets_after_it_was_looked_up(
    moved: bool, monkeypatch: pytest.MonkeyPatch
):
    """Seen: git looked the name up again, and its GET reached a service of this machine."""
    server, asked = _inner_service()
    place = f"http://localhost:{server.server_address[1]}/x.git"
    real = socket.getaddrinfo

    def first_answer(host: str | bytes, *more: object, **how: object) -> list[tuple[object, ...]]:
        return real("127.0.0.2" if host == "localhost" else host, *more, **how)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(socket, "getaddrinfo", first_answer)
    monkeypatch.setattr("adk_skills_agent.sources.http._refuse_address", lambda *_: None)  # 127.0.0.2 stands for public
    user = read_origin("git+http://example.com/y.git")
    try:
        if moved:
            monkeypatch.setattr("adk_skills_agent.sources.http.WebClient.moved_to", lambda *_: place + git._REFS)
            monkeypatch.setattr(git, "_fetched", _moves_once(git._fetched))
            with pytest.raises(SourceError, match="cannot be reached"):
                fetch_skills(user)
        else:
            with pytest.raises(SourceError, match="cannot be reached"):
                fetch_skills(read_origin(f"git+{place}"), named_by=(user,))
        assert asked == []
    finally:
        server.shutdown()
        server.server_close()


def test_row_190_a_git_that_does_not_know_the_setting_fetches_nothing_that_others_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Seen: git before 2.37 passes over ``http.curloptResolve`` without a word, and looks the name up again."""
    real = shutil.which("git")
    old = tmp_path / "git"
    old.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && [ "$3" = --version ] && echo git version 2.34.1 && exit\nexec {real} "$@"\n'
    )
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    server, asked = _inner_service()
    place = f"http://localhost:{server.server_address[1]}/x.git"
    monkeypatch.setattr("adk_skills_agent.sources.http._refuse_address", lambda *_: None)
    user = read_origin("git+http://example.com/y.git")
    try:
        with pytest.raises(SourceError, match=r"git 2\.34 can be led to a private address.* 2\.37 or newer"):
            fetch_skills(read_origin(f"git+{place}"), named_by=(user,))
        assert asked == []
        with pytest.raises(SourceError, match=r"no such repository|cannot be reached"):  # allowed, and asked
            fetch_skills(read_origin(f"git+{place}"), named_by=(user,), allow_private=True)
        assert asked != []
    finally:
        server.shutdown()
        server.server_close()


def _moves_once(fetched: Callable[..., str]) -> Callable[..., str]:
    def fetching(folder: Path, url: str, ref: str) -> str:
        if "example.com" in url:
            raise git._Moved("the server says that it is elsewhere.")
        return fetched(folder, url, ref)

    return fetching


@pytest.mark.slow
def test_row_139_trees_that_hold_each_other_are_not_listed_to_their_end(repository: Repository):
    """Seen: a repository of 240 KB took all memory there was when a skill of it was added."""
    tree = repository.git("rev-parse", "HEAD^{tree}")
    for _ in range(9):
        made = "".join(f"040000 tree {tree}\td{number}\n" for number in range(10))
        tree = subprocess.run(
            ["git", "mktree"], cwd=repository.work, input=made, capture_output=True, text=True, check=True
        ).stdout.strip()
    commit = repository.git("commit-tree", tree, "-m", "many")
    repository.git("push", "--quiet", "--force", "origin", f"{commit}:refs/heads/main")
    began = time.monotonic()
    with pytest.raises(SourceError, match="more than 1,000,000 files"):
        fetch_skills(read_origin(repository.url), everything=True)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(("name", "depth"), [("a" * 250, 17), ("a", 258)])
def test_row_457_a_repository_with_endless_paths_is_not_read(repository: Repository, name: str, depth: int):
    """Seen: all that each path lies in was listed: 312 KB of folders in folders took 2 GB."""
    tree = repository.git("rev-parse", "HEAD^{tree}")
    for _ in range(depth):
        tree = subprocess.run(
            ["git", "mktree"],
            cwd=repository.work,
            input=f"040000 tree {tree}\t{name}\n",
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    repository.git("push", "--quiet", "--force", "origin", f"{repository.git('commit-tree', tree, '-m', 'deep')}:main")
    with pytest.raises(SourceError, match="folders deep, so it is not read"):
        fetch_skills(read_origin(repository.url), everything=True)


def test_row_457_paths_within_the_limits_are_read_in_seconds():
    """Seen: 26 s of CPU for 65,000, as all that each one lies in was listed anew."""
    base = "/".join("d" * 15 for _ in range(254))
    paths = [f"{base}/{number}/SKILL.md" for number in range(30_000)]
    started = time.process_time()
    folders = skill_folders(paths)
    found = files_by_folder(paths, folders, folders)
    assert time.process_time() - started < 6
    assert [found[path.removesuffix("/SKILL.md")] for path in paths] == [[path] for path in paths]


def test_a_gemini_extension_and_an_agent_plugin_are_known_by_their_manifests(repository: Repository):
    repository.write({"gemini-extension.json": '{"name": "gem", "version": "1"}'})
    assert names(repository, "gem") == ["csv", "pdf"]


def test_a_name_is_the_one_in_the_frontmatter_whatever_the_folder_is_called(repository: Repository):
    repository.write({"skills/folder-name/SKILL.md": skill_text("real-name")})
    assert names(repository, "real-name") == ["real-name"]
    assert names(repository, "Real Name") == ["real-name"]
    with pytest.raises(SourceError, match="no skill 'folder-name'"):
        names(repository, "folder-name")


def test_two_skills_of_one_name_must_be_told_apart_by_their_folder(repository: Repository):
    repository.write({"more/pdf/SKILL.md": skill_text("pdf", "Another.\n")})
    with pytest.raises(SourceError, match="more/pdf"):
        names(repository, "pdf")
    (other,) = fetch_skills(read_origin(f"git+{repository.url}#more/pdf"))
    assert "Another." in other.tree.files["SKILL.md"].data.decode()


def test_a_skill_at_the_root_does_not_swallow_the_others(repository: Repository):
    repository.write({"SKILL.md": skill_text("top"), "notes.md": "x\n"})
    found = {
        skill.name: sorted(skill.tree.files) for skill in fetch_skills(read_origin(repository.url), everything=True)
    }
    assert found["top"] == ["README.md", "SKILL.md", "notes.md"]
    assert found["pdf"] == ["SKILL.md", "scripts/count.py"]


def test_skills_in_a_package_are_installed_and_nothing_of_it_runs(run: Run, tmp_path: Path):
    planted = tmp_path / "planted"
    # Row 474: uv took the interpreter that another user had put into the folder of temporary files.
    others = tmp_path / "tmp/.venv"
    (others / "bin").mkdir(parents=True)
    (others / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (others / "bin/python").write_text(f"#!/bin/sh\necho > {planted}\nexit 1\n")
    (others / "bin/python").chmod(0o755)
    files = {
        "tools/__init__.py": f"open({str(planted)!r}, 'w')\n",
        "tools/.agents/skills/lint/SKILL.md": skill_text("lint"),
        "tools/.agents/skills/lint/scripts/run.py": "print(1)\n",
    }
    with serving(LocalIndex()) as index:
        index.add("tools", "1.0", files=files)
        index.add("plain", "1.0")
        env = {"UV_DEFAULT_INDEX": index.url, "TMPDIR": str(tmp_path / "tmp")}
        done = run("add", "pypi:tools", "--yes", env=env)
        assert done.returncode == 0, done.stderr
        lock = (tmp_path / "project/adk-skills.lock").read_text()
        assert 'kind = "pypi"' in lock
        assert 'commit = "1.0"' in lock
        assert (tmp_path / "project/.agents/skills/lint/scripts/run.py").is_file()
        none = run("add", "pypi:plain", "--yes", env=env)
        assert none.returncode == 1
        assert "has no skills" in none.stderr
    assert not planted.exists()


def test_a_wheel_is_an_archive_like_any_other():
    data = wheel("tools", "1.0", {"tools/.agents/skills/lint/SKILL.md": skill_text("lint")})
    assert zipfile.is_zipfile(io.BytesIO(data))


PARTS = st.sampled_from(["a", "b", "a b", "skills", "node_modules", "SKILL.md", "x.py"])
PATHS = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=25).map(sorted)


@given(PATHS)
def test_each_file_belongs_to_the_outermost_skill_it_lies_in(paths: list[str]):
    files = [path for path in paths if SKIPPED.isdisjoint(path.split("/"))]
    holders = {path.rpartition("/")[0] for path in files if path.rpartition("/")[2] == "SKILL.md"}
    tops = [one for one in holders if not any(two and one.startswith(two + "/") for two in holders)]
    assert skill_folders(paths) == sorted(tops)
    found = files_by_folder(paths, tops, tops)
    for path in files:
        inside = [top for top in tops if top and path.startswith(top + "/")] or ([""] if "" in tops else [])
        assert [top for top in tops if path in found[top]] == inside
    assert {path for listed in found.values() for path in listed} <= set(files)


def test_finding_one_of_many_skills_does_not_take_long():
    paths = [f"skills/skill-{number}/{name}" for number in range(20_000) for name in ("SKILL.md", "a.md")]
    folders = skill_folders(paths)  # comparing each with each would take minutes
    assert len(folders) == 20_000
    assert files_by_folder(paths, folders, folders)["skills/skill-7"] == [
        "skills/skill-7/SKILL.md",
        "skills/skill-7/a.md",
    ]


def test_what_a_proxy_does_not_give_names_the_proxy(monkeypatch: pytest.MonkeyPatch):
    """Seen: "502 Bad Gateway", as if the server had said it."""
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    for name in ("https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SourceError, match=r"at the proxy http://127\.0\.0\.1:9 of the environment") as refused:
        fetch_skills(read_origin("https://skills.example/skills.zip"))
    assert "secret" not in refused.value.message
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(SourceError, match="Check the address and the network"):
        fetch_skills(read_origin("https://127.0.0.1:9/skills.zip"))


def test_a_web_server_that_does_not_answer_is_said_without_an_error_number():
    with pytest.raises(SourceError) as refused:
        fetch_skills(read_origin("http://127.0.0.1:9/skills.zip"))
    said = "http://127.0.0.1:9/skills.zip cannot be fetched: Connection refused. Check the address and the network."
    assert refused.value.message == said
