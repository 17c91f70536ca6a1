"""Real git servers on loopback: https with a token and a private authority, ssh; what they refuse is said."""

from __future__ import annotations

import base64
import http.server
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from repositories import Repository, Run, skill_text

from adk_skills_agent.errors import SourceError
from adk_skills_agent.sources import git
from adk_skills_agent.sources.git import checkout, newest_commit

TOKEN = "glpat-0123456789abcdef"
BACKEND = Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip())


@contextmanager
def git_over_https(root: Path, certificate: Path | None, token: str = TOKEN) -> Iterator[str]:
    """git's own http-backend behind a server with TLS that asks for a token."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # with a length each: TLS is not cut off at the end

        def _answer(self) -> None:
            wanted = "Basic " + base64.b64encode(f"oauth2:{token}".encode()).decode()
            if token and self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            done = subprocess.run(
                [str(BACKEND / "git-http-backend")],
                input=body,
                capture_output=True,
                check=False,
                env={
                    "PATH": os.environ["PATH"],
                    "GIT_PROJECT_ROOT": str(root),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                    "REMOTE_USER": "oauth2",
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "safe.directory",
                    "GIT_CONFIG_VALUE_0": "*",
                },
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
            status = next((value for name, value in fields if name == "Status"), "200 OK")
            self.send_response(int(status.split()[0]))
            for name, value in fields:
                if name != "Status":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    about = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -days 2"
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem"
    subprocess.run(f"openssl req -x509 {key} {about}".split(), cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "cert.pem"


def test_a_private_repository_with_a_token_and_a_company_authority(
    repository: Repository, run: Run, tmp_path: Path, certificate: Path
):
    home = tmp_path / "home"
    subprocess.run(["git", "-C", str(repository.bare), "config", "uploadpack.allowFilter", "true"], check=True)
    with git_over_https(repository.bare.parent, certificate) as url:
        source = f"{url}/bare.git"
        untrusted = run("add", source, "--skill", "pdf", "--yes")
        assert untrusted.returncode == 1
        assert "http.sslCAInfo" in untrusted.stderr
        (home / ".gitconfig").write_text(f"[http]\n\tsslCAInfo = {certificate}\n")
        anonymous = run("add", source, "--skill", "pdf", "--yes")
        assert anonymous.returncode == 1
        assert "credential helper" in anonymous.stderr
        (home / ".git-credentials").write_text(url.replace("//", f"//oauth2:{TOKEN}@") + "\n")
        with (home / ".gitconfig").open("a") as settings:
            settings.write("[credential]\n\thelper = store\n")
        done = run("add", source, "--skill", "pdf", "--yes")
        assert done.returncode == 0, done.stderr
        project = tmp_path / "project"
        written = "".join(
            path.read_text() for path in project.rglob("*") if path.is_file() and ".git/" not in str(path)
        )
        assert TOKEN not in written + done.stdout + done.stderr
        shutil.rmtree(project / ".agents")
        shutil.rmtree(home / ".local")
        assert run("sync", "--frozen").returncode == 0
        (home / ".git-credentials").write_text(url.replace("//", "//oauth2:wrong@") + "\n")
        refused = run("outdated")
        assert refused.returncode == 1
        assert "wrong" not in refused.stderr


@contextmanager
def leads_elsewhere(old: str, new: Callable[[str], str]) -> Iterator[str]:
    """A server on which a repository has moved, as a renamed one of a hosting service has."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(301)
            self.send_header("Location", new(self.path.removeprefix(f"/{old}")))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{old}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_repository_that_has_moved_is_followed_but_not_into_a_private_network(repository: Repository):
    """Seen: git itself follows the first redirect wherever it leads."""
    with (
        git_over_https(repository.bare.parent, None, token="") as server,
        leads_elsewhere("old.git", lambda path: f"{server}/bare.git{path}") as url,
        leads_elsewhere("page", lambda _: f"{server}/bare.git/HEAD") as page,
    ):
        for ask in (newest_commit, lambda url, **more: checkout(url, **more).__enter__()):
            with pytest.raises(SourceError, match=r"old\.git: .*private address.*--allow-private"):
                ask(url)
        newest = newest_commit(f"{server}/bare.git")
        assert newest_commit(url, allow_private=True) == newest
        with checkout(url, allow_private=True) as found:
            assert found.commit == newest
            assert all(found.read(found.files).values())
        with pytest.raises(SourceError, match="which is no repository"):
            newest_commit(page, allow_private=True)


def test_only_the_files_of_the_skill_travel(repository: Repository, tmp_path: Path):
    large = os.urandom(3 << 20)
    repository.write({f"skills/other{n}/assets/large.bin": large[n << 20 : (n + 1) << 20] for n in range(3)})
    for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        subprocess.run(["git", "-C", str(repository.bare), "config", setting, "true"], check=True)
    with git_over_https(repository.bare.parent, None, token="") as url, checkout(f"{url}/bare.git") as git:
        assert git.skill_folders() == ["skills/csv", "skills/pdf"]
        tree = git.trees(["skills/pdf"])["skills/pdf"]
        assert sorted(tree.files) == ["SKILL.md", "scripts/count.py"]
        size = sum(path.stat().st_size for path in git._folder.rglob("*") if path.is_file())
        assert size < 200_000


def test_a_short_name_is_github_and_git_may_be_told_where_that_is(repository: Repository, run: Run, tmp_path: Path):
    (tmp_path / "home/.gitconfig").write_text(
        f'[url "{repository.url}"]\n\tinsteadOf = https://github.com/acme/skills\n'
    )
    done = run("add", "acme/skills/skills/pdf@main", "--yes")
    assert done.returncode == 0, done.stderr
    assert 'source = "https://github.com/acme/skills"' in (tmp_path / "project/adk-skills.lock").read_text()


def test_a_tag_a_branch_and_a_commit_can_be_asked_for(repository: Repository):
    first = repository.git("rev-parse", "HEAD")
    repository.git("tag", "-m", "one", "v1")
    second = repository.write({"skills/pdf/SKILL.md": skill_text("pdf", "Second.\n")})
    for ref, commit in (("v1", first), ("main", second), ("", second), (first, first)):
        with checkout(repository.url, ref) as git:
            assert git.commit == commit
        if ref:
            assert newest_commit(repository.url, ref) == commit


@pytest.mark.parametrize(
    ("url", "ref", "said"),
    [
        ("file:///nonexistent/repo.git", "", "no such repository"),
        ("{url}", "no-such-branch", "no such branch"),
        ("{url}", "0" * 40, "no such branch|not our ref|failed"),
        ("https://127.0.0.1:1/x.git", "", "cannot be reached"),
        ("ext::sh -c 'touch /tmp/planted'", "", "failed"),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(repository: Repository, url: str, ref: str, said: str):
    place = url.format(url=repository.url)
    with pytest.raises(SourceError, match=said) as refused, checkout(place, ref):
        pass
    assert str(refused.value).startswith(f"{place}: git ")
    assert str(refused.value).count("not our ref") <= 2
    assert not Path("/tmp/planted").exists()


def test_a_full_disk_and_a_file_that_is_too_large_are_named(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    said = "fatal: sha1 file 'objects/pack/tmp_idx_lySI3I' write error. Out of diskspace"
    assert "Make room, or set TMPDIR" in str(git._explained(("fetch",), said))
    monkeypatch.setattr(git, "MAX_FILE_BYTES", 60)
    with (
        checkout(repository.url) as source,
        pytest.raises(SourceError, match=r"skills/pdf/SKILL.+ has more than"),
    ):
        source.trees(["skills/pdf"])


@pytest.mark.slow
def test_what_a_killed_add_leaves_among_temporary_files_the_next_one_removes(repository: Repository, tmp_path: Path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    # The installed program: a fork of the preloaded one knows the place of temporary files already.
    add = [str(Path(sys.executable).with_name("adk-skills")), "add", "--yes"]
    environment = {**os.environ, "TMPDIR": str(temporary), "HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [*add, f"http://127.0.0.1:{silent.getsockname()[1]}/x.git"]
        with subprocess.Popen(command, cwd=tmp_path, env=environment) as killed, silent.accept()[0]:  # git waits now
            assert len(set(temporary.iterdir())) == 1
            killed.kill()
    command = [*add, str(repository.bare), "--skill", "pdf"]
    for _ in range(20):  # it is removed beside, and the rest by the next
        assert subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode == 0
        if not any(temporary.iterdir()):
            break
    assert not any(temporary.iterdir())


@contextmanager
def endless_git(kind: str) -> Iterator[str]:
    """A server that sends references, messages or a pack without end."""

    def line(data: bytes) -> bytes:
        return b"%04x%s" % (len(data) + 4, data)

    def references() -> Iterator[bytes]:
        for number in range(1 << 30):
            yield line(b"%040x refs/heads/%0200d/HEAD\n" % (number, number))

    def messages() -> Iterator[bytes]:
        while True:
            yield line(b"\x02" + b"x" * 60_000 + b"\n")

    def pack() -> Iterator[bytes]:
        yield line(b"\x01PACK" + struct.pack(">II", 2, 1_000_000))
        blob = zlib.compress(os.urandom(1 << 20), 0)
        while True:  # of 1 MiB, whose length takes four bytes
            data = b"\xb0\x80\x80\x04" + blob
            yield b"".join(line(b"\x01" + data[at : at + 60_000]) for at in range(0, len(data), 60_000))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _send(self, what: str, parts: Iterable[bytes]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", f"application/x-git-upload-pack-{what}")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(OSError):  # it hangs up
                for part in parts:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")

        def do_GET(self) -> None:
            told = (b"version 2\n", b"ls-refs=unborn\n", b"fetch=shallow filter\n", b"object-format=sha1\n")
            start = line(b"# service=git-upload-pack\n") + b"0000"
            self._send("advertisement", [start, *map(line, told), b"0000"])

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            if b"command=ls-refs" in asked and kind == "references":
                self._send("result", references())
            elif b"command=ls-refs" in asked:
                self._send("result", [line(b"a" * 40 + b" HEAD\n"), b"0000"])
            else:
                self._send("result", chain([line(b"packfile\n")], messages() if kind == "messages" else pack()))

        def log_message(self, *args: object) -> None:
            del args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/x.git"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("kind", "limit", "said"),
    [
        ("references", "MAX_MEMORY_BYTES", "takes too much memory"),
        ("messages", "MAX_SAID_BYTES", "messages without end"),
        ("pack", "MAX_REPOSITORY_BYTES", "GiB, so nothing of it is taken"),
    ],
)
def test_row_227_a_server_that_sends_without_end_fills_neither_memory_nor_disk(
    kind: str, limit: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    """Seen: 140 MB more each second in git, or in the agent; all of the disk."""
    monkeypatch.setattr(git, limit, 128 << 20 if kind == "references" else 4 << 20, raising=False)
    monkeypatch.setattr(git, "GIT_SECONDS", 30)
    with endless_git(kind) as url, pytest.raises(SourceError, match=said), checkout(url):
        pass


@pytest.mark.usefixtures("signals_by_default")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_git_and_leaves_nothing(number: signal.Signals, tmp_path: Path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "HOME": str(tmp_path)}
    program = str(Path(sys.executable).with_name("adk-skills"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [program, "add", "--yes", f"http://127.0.0.1:{silent.getsockname()[1]}/x.git"]
        add = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        connection = silent.accept()[0]  # git waits now
        add.send_signal(number)
        said = add.communicate(timeout=60)[1]
        with connection:
            connection.settimeout(60)
            while connection.recv(4096):  # git's end closes it
                pass
    assert (add.returncode, said.strip()) == (128 + number, f"adk-skills: ended by {number.name}")
    assert not any(temporary.iterdir())


def test_a_signal_while_git_starts_leaves_no_git(monkeypatch: pytest.MonkeyPatch):
    started: list[subprocess.Popen[bytes]] = []

    class Slow(subprocess.Popen):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            if {"fetch", "ls-remote"} & set(arguments[0]):
                started.append(self)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)

    monkeypatch.setattr("adk_skills_agent.sources.git.subprocess.Popen", Slow)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.git"
        with pytest.raises(KeyboardInterrupt), checkout(url):
            pass
    deadline = time.monotonic() + 30
    while started[0].returncode is None and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that this call did not see yet ends it
    assert [git.returncode is None for git in started] == [False]  # killed, or ended because its folder was gone


def test_what_a_repository_says_about_its_files_is_not_obeyed(repository: Repository, tmp_path: Path):
    repository.write(
        {
            ".gitattributes": "* text=auto eol=crlf filter=evil ident\n",
            "skills/pdf/SKILL.md": skill_text("pdf", "$Id$\n"),
            "skills/pdf/.gitattributes": "*.py export-ignore\n",
        }
    )
    with checkout(repository.url) as git:
        tree = git.trees(["skills/pdf"])["skills/pdf"]
    assert tree.files["SKILL.md"].data == skill_text("pdf", "$Id$\n").encode()
    assert "scripts/count.py" in tree.files


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../../README.md", "leads out"),
        ("/etc/passwd", "leads out"),
        ("nowhere", "leads out"),
        ("scripts/count.py", None),
    ],
)
def test_links_of_a_commit_stay_in_the_skill(repository: Repository, target: str, said: str):
    (repository.work / "skills/pdf/link.py").symlink_to(target)
    repository.write({})
    with checkout(repository.url) as git:
        if not said:
            assert git.trees(["skills/pdf"])["skills/pdf"].files["link.py"].data == b"print('pages')\n"
        else:
            with pytest.raises(SourceError, match=said):
                git.trees(["skills/pdf"])


def test_files_of_git_lfs_are_said_and_not_taken_for_the_real_ones(repository: Repository):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    repository.write({"skills/pdf/model.bin": pointer})
    with checkout(repository.url) as git, pytest.raises(SourceError, match="git LFS"):
        git.trees(["skills/pdf"])


def test_hostile_names_in_a_commit_are_refused(repository: Repository):
    blob = repository.git("hash-object", "-w", "skills/pdf/SKILL.md")
    for first, second in (("A.md", "a.md"), ("caf\u00e9", "cafe\u0301")):
        tree = subprocess.run(
            ["git", "mktree"],
            input="".join(f"100644 blob {blob}\t{name}\n" for name in ("SKILL.md", first, second)),
            cwd=repository.work,
            text=True,
            capture_output=True,
            check=True,
        ).stdout.strip()
        commit = repository.git("commit-tree", "-m", "x", tree)
        repository.git("push", "--quiet", "--force", "origin", f"{commit}:refs/heads/hostile")
        with checkout(repository.url, "hostile") as git, pytest.raises(SourceError, match="one on some systems"):
            git.trees([""])


def test_signatures_are_verified_by_git_with_the_keys_of_the_user(repository: Repository, run: Run, tmp_path: Path):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen (openssh-client) is not installed")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "author", "-f", str(key)], check=True)
    signed = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}")
    repository.git(*signed, "tag", "-s", "-m", "signed", "v1")
    repository.git("push", "--quiet", "--tags", "origin")
    source = (repository.bare, "--skill", "pdf", "--yes", "--require-signature", "--ref")
    unknown = run("add", *source, "v1")
    assert unknown.returncode == 1
    assert "is signed with a key that is nobody's known" in unknown.stderr
    (tmp_path / "signers").write_text(f"author@example.com {key.with_suffix('.pub').read_text()}")
    (tmp_path / "home/.gitconfig").write_text(f'[gpg "ssh"]\n\tallowedSignersFile = {tmp_path / "signers"}\n')
    assert run("add", *source, "main").returncode == 1
    done = run("add", *source, "v1")
    assert done.returncode == 0, done.stderr
    assert "signed    author@example.com" in done.stdout
    assert 'signer = "author@example.com"' in (tmp_path / "project/adk-skills.lock").read_text()


def test_over_ssh_with_a_key(repository: Repository, run: Run, tmp_path: Path):
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if sshd is None:
        pytest.skip("sshd (openssh-server) is not installed")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = (
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {tmp_path / 'host'}",
        f"AuthorizedKeysFile {tmp_path / 'user.pub'}",
        "PasswordAuthentication no",
        "StrictModes no",
        "UsePAM no",
        "PermitRootLogin yes",
        "PidFile none",
        "AcceptEnv GIT_PROTOCOL",
    )
    config = tmp_path / "sshd_config"
    config.write_text("\n".join(settings) + "\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        while "listening" not in (line := server.stderr.readline()):
            assert line, "sshd ended"
        options = f"-i {tmp_path / 'user'} -o UserKnownHostsFile={tmp_path / 'known'} -o IdentitiesOnly=yes"
        source = f"ssh://{os.environ.get('USER', 'root')}@127.0.0.1:{port}{repository.bare}"
        strange = run("add", source, "--all", "--yes", env={"GIT_SSH_COMMAND": f"ssh {options}"})
        assert strange.returncode == 1
        assert "ssh was refused" in strange.stderr
        accept = f"ssh {options} -o StrictHostKeyChecking=accept-new"
        done = run("add", source, "--all", "--yes", env={"GIT_SSH_COMMAND": accept})
        assert done.returncode == 0, done.stderr
        assert run("verify").returncode == 0
    finally:
        server.terminate()
        server.wait(20)
        server.stderr.close()
