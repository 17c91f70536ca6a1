"""Who named a source: the user, or a lock or list that came with somebody else's repository (row 427)."""

from __future__ import annotations

import http.server
import io
import json
import shutil
import socket
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from repositories import Repository, Run, make_tree, skill_text

from adk_skills_agent.errors import ConfigError, SourceError
from adk_skills_agent.sources import http as web
from adk_skills_agent.sources import named
from adk_skills_agent.sources.fetch import FetchedSkill, fetch_skills, is_beside
from adk_skills_agent.sources.lock_file import SkillLock, write_skill_lock
from adk_skills_agent.sources.origin import Origin, OriginKind, read_origin
from adk_skills_agent.sources.project import Project


@dataclass
class Inner:
    """A service of the inner network and the paths that it was asked for."""

    url: str
    asked: list[str] = field(default_factory=list)
    answer: bytes = b""


@pytest.fixture
def inner() -> Iterator[Inner]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_response(200 if found.answer else 404)
            self.send_header("Content-Length", str(len(found.answer)))
            self.end_headers()
            self.wfile.write(found.answer)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Inner(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def cloned(tmp_path: Path, origin: Origin, name: str = "pdf", requires: tuple[str, ...] = ()) -> Path:
    """A stranger's repository whose lock and manifest name a source."""
    root = tmp_path / "project"
    root.mkdir(exist_ok=True)
    (root / ".git").mkdir(exist_ok=True)
    skill = FetchedSkill(name, "Does it.", make_tree(), origin, requires=requires)
    write_skill_lock(root / "adk-skills.lock", SkillLock().having([Project(root).lock_entry(skill)]))
    (root / "adk-skills.toml").write_text(
        f"[tool.adk-skills.skills]\n{name} = {{ source = {json.dumps(str(origin))} }}\n"
    )
    return root


@pytest.mark.parametrize(
    ("kind", "path"),
    [(OriginKind.ARCHIVE, "/delete-all.zip?yes=1"), (OriginKind.WELL_KNOWN, ""), (OriginKind.GIT, "/restart.git")],
)
def test_row_427_the_lock_of_a_cloned_repository_asks_no_service_of_the_inner_network(
    kind: OriginKind, path: str, inner: Inner, run: Run, tmp_path: Path
):
    """Seen: ``adk-skills sync`` in the clone sent ``GET /delete-all.zip?yes=1`` to a service of this machine."""
    cloned(tmp_path, Origin(kind, inner.url + path))
    for command in (("sync",), ("sync", "--frozen"), ("outdated",), ("update", "--yes")):
        done = run(*command)
        assert done.returncode == 1
        assert "private address" in done.stderr, command
        assert "adk-skills trust" in done.stderr
    assert inner.asked == []
    run("sync", "--allow-private")
    assert inner.asked != []
    inner.asked.clear()
    run("trust")
    for command in ("sync", "outdated"):
        run(command)
        assert inner.asked != []
        inner.asked.clear()


@pytest.mark.parametrize("kind", ["git", "zip", "site"])
def test_row_427_the_list_of_another_installer_asks_none_either(kind: str, inner: Inner, run: Run, tmp_path: Path):
    path = {"git": "/x.git", "zip": "/two.zip?x=1", "site": ""}[kind]
    (tmp_path / "project").mkdir(exist_ok=True)
    entry = {"source": inner.url + path, "sourceType": "well-known" if kind == "site" else "git"}
    text = json.dumps({"version": 1, "skills": {"t": entry}})
    (tmp_path / "project/skills-lock.json").write_text(text)
    for more in ((), ("--scope", "user")):
        done = run("add", "skills-lock.json", "--dry-run", *more)
        assert done.returncode == 1
        assert "private address" in done.stderr
    assert inner.asked == []
    run("add", "skills-lock.json", "--dry-run", "--allow-private")
    assert inner.asked != []
    inner.asked.clear()
    own = tmp_path / "home/.agents/.skill-lock.json"  # what the user himself installed with npx skills
    own.parent.mkdir()
    own.write_text(text.replace('"version": 1', '"version": 3'))
    run("add", own, "--dry-run")
    assert inner.asked != []


def test_row_427_marks_of_gh_ask_none_either(inner: Inner, run: Run, tmp_path: Path):
    for place in (tmp_path / "project", tmp_path / "home"):
        folder = place / ".agents/skills/pdf"
        folder.mkdir(parents=True)
        about = {"github-repo": f"{inner.url}/x", "github-path": "pdf"}
        (folder / "SKILL.md").write_text(skill_text("pdf", **about).replace("github_", "github-"))
    for scope in ("project", "user"):
        done = run("add", "gh:", "--dry-run", "--scope", scope)
        assert "private address" in done.stderr
    assert inner.asked == []


def test_row_427_a_lock_walks_no_folder_of_the_machine_and_begins_no_git_in_one(
    repository: Repository, run: Run, tmp_path: Path
):
    here = [Origin(OriginKind.FOLDER, str(repository.work)), Origin(OriginKind.ARCHIVE, str(tmp_path / "a.zip"))]
    here += [Origin(OriginKind.FOLDER, "../remote"), Origin(OriginKind.GIT, repository.url)]
    for origin in here:
        cloned(tmp_path, origin)
        for command in ("sync", "outdated"):
            done = run(command)
            assert done.returncode == 1
            assert "is on this machine" in done.stderr, (origin, done.stderr)
    (tmp_path / "project/out").symlink_to(repository.work)
    cloned(tmp_path, Origin(OriginKind.FOLDER, "out"))
    assert "is on this machine" in run("sync").stderr
    project = Project(tmp_path / "project")
    assert project.named_by(Origin(OriginKind.FOLDER, str(project.root), "", "out/skills")) == ()
    assert project.named_by(Origin(OriginKind.FOLDER, str(project.root), "", "skills")) is None


def test_row_427_a_skill_that_needs_one_of_the_lock_does_not_ask_for_it(inner: Inner, run: Run, tmp_path: Path):
    cloned(tmp_path, Origin(OriginKind.ARCHIVE, f"{inner.url}/b.zip"), name="b")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "SKILL.md").write_text(skill_text("mine", requires_skills="b"))
    assert run("add", folder, "--dry-run").returncode == 1
    assert inner.asked == []


@pytest.mark.parametrize(
    "location", ["/usr/share", "../x", "x", "http::http://127.0.0.1:8500/x", "http:///x", r"http://a\@127.0.0.1/x"]
)
def test_row_427_a_lock_names_repositories_in_the_form_in_which_they_are_looked_at(
    location: str, run: Run, tmp_path: Path
):
    """git takes these for another place than we do."""
    cloned(tmp_path, Origin(OriginKind.GIT, location))
    done = run("outdated", "--allow-private")
    assert done.returncode == 2
    assert "no URL of a repository" in done.stderr
    with pytest.raises(ConfigError):
        read_origin(f"git+{location}")


def test_row_427_a_name_that_changes_its_address_is_not_asked(inner: Inner, monkeypatch: pytest.MonkeyPatch):
    """As row 190 for archives and sites: the address is looked at when the connection is there, too."""
    monkeypatch.setattr(web, "refuse_private", lambda _: ("192.0.2.1",))
    for origin in (Origin(OriginKind.ARCHIVE, f"{inner.url}/x.zip"), Origin(OriginKind.WELL_KNOWN, inner.url)):
        with pytest.raises(SourceError, match="private address"):
            fetch_skills(origin, named_by=())
    assert inner.asked == []


def test_what_the_user_added_is_restored_and_updated_without_a_question(
    repository: Repository, run: Run, tmp_path: Path
):
    """His own folder, and a git server: for him they are named, in every project of his and without the store."""
    root = tmp_path / "project"
    (root / ".git").mkdir()
    inside = root / "ours/note"
    inside.mkdir(parents=True)
    (inside / "SKILL.md").write_text(skill_text("note"))
    for source, name in ((repository.bare, "pdf"), (repository.work / "skills/csv", "csv"), ("./ours/note", "note")):
        done = run("add", source, "--skill", name, "--yes")
        assert done.returncode == 0, done.stderr
    shutil.copytree(root, tmp_path / "clone")
    for place in (root, tmp_path / "clone"):
        shutil.rmtree(place / ".agents")
        shutil.rmtree(tmp_path / "home/.local")  # no store
        done = run("sync", "--frozen", cwd=place)
        assert done.returncode == 0, done.stderr
        assert run("outdated", cwd=place).returncode == 0
    repository.write({"skills/pdf/SKILL.md": skill_text("pdf", "Newer.\n")})
    assert "1 updated" in run("update", "--yes").stdout


def test_on_another_machine_a_trusted_project_or_the_own_manifest_names_them(
    repository: Repository, run: Run, tmp_path: Path
):
    root = tmp_path / "project"
    (root / ".git").mkdir()
    assert run("add", repository.bare, "--skill", "pdf", "--yes").returncode == 0

    def another_machine() -> None:
        shutil.rmtree(root / ".agents", ignore_errors=True)
        shutil.rmtree(tmp_path / "home")
        (tmp_path / "home/.config/adk-skills").mkdir(parents=True)

    another_machine()
    assert "is on this machine" in run("sync").stderr
    assert run("trust").returncode == 0
    assert run("sync", "--frozen").returncode == 0
    another_machine()
    manifest = tmp_path / "home/.config/adk-skills/adk-skills.toml"
    manifest.write_text(f'[tool.adk-skills.skills]\npdf = "git+{repository.url}"\n')
    assert run("sync", "--frozen").returncode == 0
    another_machine()
    (tmp_path / "home/.config/adk-skills/named-sources").write_text(f"git {repository.url}\n")
    (tmp_path / "home/.config/adk-skills/named-sources").chmod(0o666)  # others may have written it
    assert "is on this machine" in run("sync").stderr


def test_row_469_what_a_skill_needs_is_not_named_by_the_user(
    repository: Repository, inner: Inner, run: Run, tmp_path: Path
):
    """Seen: its server was on the list of the user's own sources, and could get a private address later."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("SKILL.md", skill_text("b"))
    inner.answer = data.getvalue()
    repository.write({"skills/a/SKILL.md": skill_text("a", requires_skills=f"b @ {inner.url}/b.zip")})
    done = run("add", repository.url, "--skill", "a", "--yes", "--allow-private")
    assert done.returncode == 0, done.stderr
    assert "b" in (tmp_path / "project/adk-skills.lock").read_text()
    assert (tmp_path / "home/.config/adk-skills/named-sources").read_text().splitlines() == [f"git {repository.url}"]


def test_what_a_skill_of_this_machine_needs_here_is_updated_as_it_was_added(
    repository: Repository, run: Run, tmp_path: Path
):
    """Seen: ``add`` took it, and after that ``outdated``, ``update`` and ``sync`` refused it."""
    other = Repository(tmp_path / "other")
    other.write({"skills/b/SKILL.md": skill_text("b")})
    repository.write({"skills/a/SKILL.md": skill_text("a", requires_skills=f"b @ git+{other.url}")})
    assert run("add", repository.url, "--skill", "a", "--yes").returncode == 0
    assert run("outdated").returncode == 0
    other.write({"skills/b/SKILL.md": skill_text("b", "Newer.\n")})
    assert "1 updated" in run("update", "--yes").stdout


@pytest.mark.parametrize("inside", [True, False])
def test_row_469_what_is_needed_from_the_same_host_is_where_the_user_went_himself(
    inside: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(web, "_inside", {"git.corp"} if inside else set())
    user = read_origin("git+https://git.corp/a/x.git")
    for needed, is_same in (
        ("git+https://git.corp/b/y.git", inside),
        ("git@git.corp:b/y.git", inside),
        ("git+https://rebind.example/b/y.git", False),
        ("/etc", False),
    ):
        assert is_beside(read_origin(needed), [user]) == is_same
    assert not is_beside(read_origin("/etc"), [read_origin("/usr")])
    by_ssh = read_origin("git@git.corp:a/x.git")
    assert is_beside(read_origin("git@git.corp:b/y.git"), [by_ssh])  # ssh asks for its key
    assert is_beside(read_origin("git+https://git.corp/b/y.git"), [by_ssh]) == inside


@dataclass
class TwoAddresses:
    """A name with one server at an address that stands for a public one, and another one on this machine."""

    url: str
    public: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    now: str = "127.0.0.2"
    archive: bytes = b""


@pytest.fixture
def rebind(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoAddresses]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = str(self.server.server_address[0])
            (found.public if place == "127.0.0.2" else found.private).append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(found.archive)))
            self.end_headers()
            self.wfile.write(found.archive)

        def log_message(self, *_: object) -> None:
            pass

    outer = http.server.ThreadingHTTPServer(("127.0.0.2", 0), Handler)
    inner = http.server.ThreadingHTTPServer(("127.0.0.1", outer.server_address[1]), Handler)
    for server in (outer, inner):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    found = TwoAddresses(f"http://rebind.example:{outer.server_address[1]}")
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: real(found.now if host == "rebind.example" else host, *a, **k)
    )
    monkeypatch.setattr(web, "_is_private", lambda address: address != "127.0.0.2")
    monkeypatch.setattr(web, "_inside", set())
    monkeypatch.setattr(web, "_outside", set())
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield found
    for server in (outer, inner):
        server.shutdown()
        server.server_close()


def test_row_486_a_host_does_not_lead_inside_once_its_content_came_from_outside(rebind: TwoAddresses):
    """Seen: the name got the address of this machine, and a path of the stranger's choice was asked for there."""
    needing = io.BytesIO()
    with zipfile.ZipFile(needing, "w") as archive:
        archive.writestr("a/SKILL.md", skill_text("a"))
    rebind.archive = needing.getvalue()
    user = read_origin(f"{rebind.url}/a.zip")
    fetch_skills(user)
    rebind.now = "127.0.0.1"
    with pytest.raises(SourceError, match="private address"):
        fetch_skills(read_origin(f"{rebind.url}/delete.zip"), named_by=(user,))
    assert (rebind.public, rebind.private) == (["/a.zip"], [])
    fetch_skills(user)  # the user's own wish, now from inside
    with pytest.raises(SourceError, match="private address"):  # what needs it may be what came from outside
        fetch_skills(read_origin(f"{rebind.url}/delete.zip"), named_by=(user,))
    assert rebind.private == ["/a.zip"]


def test_row_486_a_second_question_about_the_same_source_does_not_lead_inside_either(rebind: TwoAddresses):
    """Seen: the bundle beside an archive was looked for inside, and so was what the archive needs after that."""
    user = read_origin(f"{rebind.url}/a.zip")
    with web.WebClient(user.location) as client:
        client.get(user.location, 1000)
    rebind.now = "127.0.0.1"
    with web.WebClient(user.location) as client:
        client.get(f"{user.location}.sigstore.json", 1000)
    assert not web.is_inside(user.location)


def test_row_486_git_does_not_lead_inside_what_it_had_from_outside(rebind: TwoAddresses):
    user = read_origin(f"git+{rebind.url}/x.git")
    for address in ("127.0.0.2", "127.0.0.1"):
        rebind.now = address
        with pytest.raises(SourceError):  # no repository there
            fetch_skills(user)
    assert not web.is_inside(rebind.url)


def test_what_an_inner_host_needs_of_itself_is_fetched(rebind: TwoAddresses):
    rebind.now = "127.0.0.1"
    needing = io.BytesIO()
    with zipfile.ZipFile(needing, "w") as archive:
        archive.writestr("a/SKILL.md", skill_text("a"))
    rebind.archive = needing.getvalue()
    user = read_origin(f"{rebind.url}/a.zip")
    fetch_skills(user)
    fetch_skills(read_origin(f"{rebind.url}/b.zip"), named_by=(user,))
    assert rebind.private == ["/a.zip", "/b.zip"]


def test_row_486_an_index_does_not_lead_inside_on_its_own_host(rebind: TwoAddresses):
    with web.WebClient(f"{rebind.url}/index.json") as client:
        client.get(f"{rebind.url}/index.json", 1000)
        rebind.now = "127.0.0.1"
        with pytest.raises(SourceError, match="had a public address and has a private one now"):
            client.get(f"{rebind.url}/delete", 1000)
    assert rebind.private == []


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_row_486_git_goes_inside_only_where_it_cannot_be_led_elsewhere(rebind: TwoAddresses, address: str):
    rebind.now = address
    with pytest.raises(SourceError):  # no repository there
        fetch_skills(read_origin(f"git+{rebind.url}/x.git"))
    assert web.is_inside(rebind.url) == (address == "127.0.0.1")


def test_an_inner_host_that_a_proxy_knows_leads_to_itself(monkeypatch: pytest.MonkeyPatch):
    """Seen: behind a company's proxy, a skill of http://art.corp could not need another one from there."""
    for name in ("http_proxy", "all_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    places = ("http://art.corp/b.zip", "http://art/b.zip", "http://art.example/b.zip")
    pairs = [(read_origin(place), [read_origin(place.replace("b.zip", "a.zip"))]) for place in places]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert [is_beside(*pair) for pair in pairs] == [True, True, False]
    assert not is_beside(pairs[0][0], pairs[1][1])
    monkeypatch.setenv("NO_PROXY", "*")
    assert not any(is_beside(*pair) for pair in pairs)


def test_a_part_of_a_trusted_project_is_trusted(tmp_path: Path):
    inner = tmp_path / "project/part"
    inner.mkdir(parents=True)
    (tmp_path / "project/.git").mkdir()
    assert not named.is_trusted_project(inner)
    from adk_skills_agent.catalog import trust_project

    trust_project(tmp_path / "project")
    assert named.is_trusted_project(inner)


def test_a_list_that_cannot_be_kept_stops_no_installation(
    project: Project, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(named, "_named_sources", lambda: (_ for _ in ()).throw(ConfigError("The list is full.")))
    project.add([FetchedSkill("pdf", "Does it.", make_tree(), Origin(OriginKind.FOLDER, "/src"))])
    assert "The list is full" in caplog.text
    assert project.named_by(Origin(OriginKind.FOLDER, "/src")) == ()
    assert project.named_by(Origin(OriginKind.FOLDER, "/src"), allow_private=True) is None
    assert Project(project.root, "user").named_by(Origin(OriginKind.FOLDER, "/src")) is None
    named.keep_named([Origin(OriginKind.FOLDER, "/a\nb"), Origin(OriginKind.PACKAGE, "x")])


def test_behind_a_proxy_the_address_of_the_proxy_is_no_reason(monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert not web._has_proxy("http://example.com/x")
    monkeypatch.setenv("http_proxy", "http://10.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "inner.example")
    assert web._has_proxy("http://example.com/x")
    assert not web._has_proxy("https://example.com/x")
    assert not web._has_proxy("http://inner.example:80/x")
