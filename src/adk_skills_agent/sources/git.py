"""Skills in git repositories, by the git program itself: the newest commit without its files, then the files wanted.

Blobs are read from git's object store, never checked out: no filter, hook, attribute or link of a stranger's has a say,
and only what is asked for travels. Tokens, keys and certificates are git's own matter: its credential helpers, ssh and
``http.sslCAInfo``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from adk_skills_agent.errors import SourceError
from adk_skills_agent.packages.uv import with_little_memory, without_credentials
from adk_skills_agent.platforms import bytes_in, is_nearly_full
from adk_skills_agent.sandbox import temporary_prefix
from adk_skills_agent.sources.tree import (
    MAX_FILE_BYTES,
    MAX_TREE_BYTES,
    SkillTree,
    TreeFile,
    check_paths,
    files_by_folder,
    skill_folders,
    tree_of,
)

if TYPE_CHECKING:
    from adk_skills_agent.sources.signatures import SignaturePolicy

GIT_SECONDS = 300.0
"""Wall time of one git command."""
MAX_LISTED = 1_000_000
"""Files of one commit that are looked at; a repository of 2,400 skills has 16,000."""
MAX_ANSWER_BYTES, MAX_SAID_BYTES = 64 << 20, 4 << 20
"""Of what one git command prints, and of what it and the server say of errors."""
MAX_REPOSITORY_BYTES = 4 << 30
"""Of the disk: of a server that cannot leave files out, all files of a commit come."""
MAX_MEMORY_BYTES = 4 << 30
"""Of each process of git."""
_PATH_BYTES = 256
MAX_LISTED_DEPTH, MAX_LISTED_BYTES = 256, 4_096
"""Of the path of a file in a repository; what Linux can check out has no longer ones."""
_LOOK_SECONDS = 0.1
_SERVER_OPTIONS = "git -c uploadpack.allowFilter=true -c uploadpack.allowAnySHA1InWant=true upload-pack"
"""For a repository on this machine, whose own settings rarely allow what GitHub and GitLab do."""
_FOREIGN = (
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR "
    "GIT_NAMESPACE GIT_PREFIX GIT_CEILING_DIRECTORIES GIT_EXTERNAL_DIFF GIT_TRACE GIT_TRACE_CURL GIT_CURL_VERBOSE"
)
_KNOWS_ADDRESSES = (2, 37)
"""The first git with the setting ``http.curloptResolve``."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LFS = b"version https://git-lfs.github.com/spec/"
_ENTRY = re.compile(rb"(\d{6}) (\w+) ([0-9a-f]+)\t(.+)", re.DOTALL)
_FILE_MODES = {b"100644": False, b"100664": False, b"100755": True}


def is_commit(ref: str) -> bool:
    """Whether a ref is the whole name of a commit."""
    return _COMMIT.fullmatch(ref) is not None


@dataclass(frozen=True, slots=True)
class GitFile:
    """A file of a commit: the name of its blob, whether it may be executed, whether it is a link."""

    blob: str
    executable: bool = False
    link: bool = False


class GitCheckout:
    """One commit of a repository: its files are listed at once and read when they are asked for.

    Made by :func:`checkout`.
    """

    def __init__(self, folder: Path, url: str, commit: str) -> None:
        self._folder = folder
        self.url = url
        self.commit = commit  # the full name of the commit
        self.files: Mapping[str, GitFile] = dict(self._listed())  # path to file; nothing in sub-modules
        self._blobs: dict[str, bytes] = {}

    @property
    def committed(self) -> int:
        """When it was committed, in seconds since 1970; a signature covers it."""
        return int(_git(self._folder, "rev-list", "--max-count=1", "--timestamp", self.commit).split()[0])

    def follows(self, commit: str) -> bool:
        """Whether a commit is among those that this one, by what it says itself, was made after.

        Asks for the commits that lead to this one, without trees and files. Raises ``SourceError`` when it cannot.
        """
        with _naming(self.url):
            if (self._folder / "shallow").exists():
                base = ("fetch", "--quiet", "--no-tags", "--filter=tree:0", "--unshallow", *_server(self.url))
                _git(self._folder, *base, "--", "origin", self.commit)
            return commit.encode() in _git(self._folder, "rev-list", self.commit).split()

    def skill_folders(self, subpath: str = "") -> list[str]:
        """The folders with a SKILL.md at or below a path."""
        below = [path for path in self.files if not subpath or path.startswith(subpath + "/")]
        return skill_folders(below)

    def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of some files, fetched in one request where they are not here yet.

        Raises ``SourceError`` when the server does not send one, or one is larger than a file of a skill may be.
        """
        wanted = {path: self.files[path].blob for path in paths}
        missing = sorted(set(wanted.values()) - set(self._blobs))
        if missing:
            self._prefetch(missing)
            self._blobs.update(self._batch(missing, {blob: path for path, blob in wanted.items()}))
        return {path: self._blobs[blob] for path, blob in wanted.items()}

    def trees(self, folders: Sequence[str]) -> dict[str, SkillTree]:
        """The skills of some folders.

        Raises:
            SourceError: As :func:`~.tree.tree_of`, and for links that leave a skill and files that git LFS keeps.
        """
        inside = files_by_folder(self.files, folders, self.skill_folders())
        for folder, paths in inside.items():
            check_paths((path[len(folder) + 1 :] if folder else path for path in paths), self._what(folder))
        self.read(path for paths in inside.values() for path in paths)
        return {folder: self._tree(folder, paths) for folder, paths in inside.items()}

    def _what(self, folder: str) -> str:
        return f"{without_credentials(self.url)}, folder {folder or '.'!r},"

    def _tree(self, folder: str, paths: Sequence[str]) -> SkillTree:
        what = self._what(folder)
        skip = len(folder) + 1 if folder else 0
        files: dict[str, TreeFile] = {}
        total = 0
        for path in paths:
            data = self._blobs[self.files[path].blob]
            file = self.files[path]
            if file.link:
                data, file = self._linked(path, data, folder, what)
            if data.startswith(_LFS):
                raise SourceError(
                    f"{what} keeps {path[skip:]!r} in git LFS, which is not fetched. Ask its author to commit it."
                )
            total += len(data)
            if total > MAX_TREE_BYTES:
                raise SourceError(
                    f"{what} has more than {MAX_TREE_BYTES >> 20} MiB. Ask its author to make it smaller."
                )
            files[path[skip:]] = TreeFile(data, file.executable)
        return tree_of(files, what)

    def _linked(self, path: str, target: bytes, folder: str, what: str) -> tuple[bytes, GitFile]:
        here = path.rpartition("/")[0]
        aim = os.path.normpath(
            f"{here}/{target.decode('utf-8', 'replace')}" if here else target.decode("utf-8", "replace")
        )
        found = self.files.get(aim)
        if found is None or found.link or (folder and not aim.startswith(folder + "/")):
            raise SourceError(
                f"{what} has a link {path!r} that leads out of the skill or to no file, so nothing of it is taken. "
                "Ask its author to put a copy in its place."
            )
        return self.read([aim])[aim], found

    def _listed(self) -> Iterator[tuple[str, GitFile]]:
        listed = _listing(self._folder, self.commit)
        if listed is None:
            raise SourceError(f"{without_credentials(self.url)} has more than {MAX_LISTED:,} files.")
        for entry in filter(None, listed.split(b"\0")):
            match = _ENTRY.fullmatch(entry)
            if match is None or match[2] != b"blob":
                continue  # a sub-module: a repository of its own
            if len(match[4]) > MAX_LISTED_BYTES or match[4].count(b"/") > MAX_LISTED_DEPTH:  # row 457
                raise SourceError(
                    f"{without_credentials(self.url)} has a path of {len(match[4]):,} bytes, "
                    f"{match[4].count(b'/'):,} folders deep, so it is not read. Ask its author for a shorter one."
                )
            path = match[4].decode("utf-8", "surrogateescape")
            yield path, GitFile(match[3].decode(), _FILE_MODES.get(match[1], False), match[1] == b"120000")

    def _prefetch(self, blobs: Sequence[str]) -> None:
        """Ask for all blobs at once; a server that cannot is asked for each by git itself when it is read."""
        _git(
            self._folder,
            "-c",
            "fetch.negotiationAlgorithm=noop",
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--recurse-submodules=no",
            "--filter=blob:none",
            *_server(self.url),
            "--stdin",
            "origin",
            feed="".join(f"{blob}\n" for blob in blobs).encode(),
            may_fail=True,
        )

    def _batch(self, blobs: Sequence[str], paths: Mapping[str, str]) -> dict[str, bytes]:
        sizes = _git(
            self._folder, "cat-file", "--batch-check", feed="".join(f"{blob}\n" for blob in blobs).encode()
        ).decode()
        total = 0
        for line in sizes.splitlines():
            name, kind, *size = line.split()
            if kind != "blob":
                raise SourceError(
                    f"{without_credentials(self.url)} does not send the file {paths[name]!r}. Try again later."
                )
            total += int(size[0])
            if int(size[0]) > MAX_FILE_BYTES:
                raise SourceError(
                    f"{without_credentials(self.url)}: the file {paths[name]!r} has more than "
                    f"{MAX_FILE_BYTES >> 20} MiB. Ask its author to make it smaller."
                )
        if total > 16 * MAX_TREE_BYTES:
            raise SourceError(f"The skills of {without_credentials(self.url)} are too large together. Name fewer.")
        content = _git(
            self._folder,
            *("cat-file", "--batch"),
            feed="".join(f"{blob}\n" for blob in blobs).encode(),
            most=total + len(blobs) * _PATH_BYTES,
        )
        found: dict[str, bytes] = {}
        at = 0
        for _ in blobs:
            end = content.index(b"\n", at)
            blob, _kind, length = content[at:end].split()
            found[blob.decode()] = content[end + 1 : end + 1 + int(length)]
            at = end + 2 + int(length)
        return found

    def signature(self, ref: str, policy: SignaturePolicy) -> tuple[str, str]:
        """Who signed the tag ``ref``, else the commit, as git verifies it.

        A tag is fetched with its signature, and must lead to this commit and be called so in what was signed: an older
        release under a new name is none of its author's (row 195). When ``policy`` names nobody, git's own
        ``gpg.ssh.allowedSignersFile`` and keyring count. Returns the signer, and when there is none (an empty text)
        why.
        """
        if ref and not is_commit(ref):
            name = f"refs/tags/{ref}"
            fetch = ("fetch", "--quiet", "--depth=1", "--filter=blob:none", *_server(self.url), "--", "origin")
            if _run_git(self._folder, *fetch, f"+{name}:{name}")[0] == 0:
                signer, reason = self._signer("verify-tag", name, policy)
                same = _git(self._folder, "rev-parse", f"{name}^{{commit}}", may_fail=True).decode().strip()
                called = _name_of_tag(_git(self._folder, "cat-file", "tag", name, may_fail=True))
                if same != self.commit:
                    signer, reason = "", f"is not what the tag {ref!r} names now ({same[:12] or 'nothing'})"
                elif called and called != ref:
                    signer, reason = "", f"is signed as the tag {called[:80]!r}, and not as {ref!r}"
                if signer:
                    return signer, ""
                commit, _ = self._signer("verify-commit", self.commit, policy)
                return (commit, "") if commit else ("", reason)
        return self._signer("verify-commit", self.commit, policy)

    def _signer(self, verb: str, name: str, policy: SignaturePolicy) -> tuple[str, str]:
        options: tuple[str, ...] = ()
        if policy.names_signers:
            options = ("-c", f"gpg.ssh.allowedSignersFile={policy.ssh or os.devnull}")
        code, output, said = _run_git(self._folder, *options, verb, "--raw", name)
        text = (output + said).decode("utf-8", "replace")
        if code != 0:
            return "", _reason(text)
        if found := re.search(r'^Good "git" signature for (.+) with', text, re.MULTILINE):
            return found[1], ""
        good = re.search(r"^\[GNUPG:\] GOODSIG \S+ (.+)", text, re.MULTILINE)
        valid = re.search(r"^\[GNUPG:\] VALIDSIG (\w+)(?:.* (\w+))?$", text, re.MULTILINE)
        if good is None or valid is None:
            return "", _reason(text)
        keys = {valid[1], valid[2] or valid[1]}
        if policy.names_signers and not keys & set(policy.gpg):
            return "", f"is signed with the OpenPGP key {valid[1]}, which is nobody's who is trusted"
        return f"{good[1].strip()} {(keys & set(policy.gpg) or {valid[1]}).pop()}", ""


def _name_of_tag(tag: bytes) -> str:
    """What a tag calls itself in what its author signed; empty for what is no tag."""
    found = re.search(rb"^tag (.*)$", tag.partition(b"\n\n")[0], re.MULTILINE)
    return found[1].decode("utf-8", "replace") if found is not None else ""


_REASONS = (
    (r"BADSIG|incorrect signature|Could not verify signature|Signature verification failed", "has a wrong signature"),
    (r"EXPKEYSIG|EXPSIG", "is signed with a key, or a signature, that has expired"),
    (r"REVKEYSIG", "is signed with a key that was revoked"),
    (r"NO_PUBKEY|ERRSIG|No principal|no principal|allowedSignersFile", "is signed with a key that is nobody's known"),
    (r"cannot run|No such file", "is signed, but gpg or ssh-keygen, which git checks with, is not installed"),
)


def _reason(said: str) -> str:
    return next((reason for pattern, reason in _REASONS if re.search(pattern, said)), "is not signed")


@contextlib.contextmanager
def checkout(
    url: str, ref: str = "", *, allow_private: bool = False, addresses: Sequence[str] | None = None
) -> Iterator[GitCheckout]:
    """Fetch one commit of a repository without its files.

    With ``allow_private`` its server may send us to private addresses. Only ``addresses`` of a web server are connected
    to, where they were looked at before; None for any. Raises ``SourceError`` when there is no git, no
    such repository or ref, or the server refuses.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=temporary_prefix("git")))
    except OSError as error:
        raise _no_room(error) from error
    try:
        _configure(folder, url, _pinned_inside(url) if addresses is None else _pinned(url, addresses))
        with _naming(url):
            try:
                commit = _fetched(folder, url, ref)
            except _Moved:
                url, pinned = _moved_to(url, allow_private, named="" if addresses is not None else url)
                _git(folder, "config", "remote.origin.url", url)
                for key, value in pinned:
                    _git(folder, "config", key, value)
                commit = _fetched(folder, url, ref)
        yield GitCheckout(folder, url, commit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, url: str, more: Sequence[tuple[str, str]]) -> None:
    """A repository that fetches from a URL without files, with more settings."""
    _git(folder, "init", "--quiet", "--bare", "--template=", ".")
    try:
        for key, value in (
            ("core.repositoryFormatVersion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.url", url),
            ("remote.origin.promisor", "true"),
            ("remote.origin.partialCloneFilter", "blob:none"),
            ("core.hooksPath", "/dev/null"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            *((("remote.origin.uploadpack", _SERVER_OPTIONS),) if _server(url) else ()),
            *more,
        ):
            with (folder / "config").open("a", encoding="utf-8") as settings:
                section, _, name = key.rpartition(".")
                head = '[remote "origin"]' if section == "remote.origin" else f"[{section}]"
                settings.write(f"{head}\n\t{name} = {_quoted(value)}\n")
    except OSError as error:
        raise _no_room(error) from error


def _no_room(error: OSError) -> SourceError:
    return SourceError(
        f"The temporary folder {tempfile.gettempdir()} cannot be written: {error.strerror}. Make room, or set TMPDIR."
    )


@contextlib.contextmanager
def _naming(url: str) -> Iterator[None]:
    """Say of which repository git could not do what it was asked for."""
    try:
        yield
    except SourceError as error:
        raise SourceError(f"{without_credentials(url)}: {error.message}") from error


_REFS = "/info/refs?service=git-upload-pack"


def _moved_to(url: str, allow_private: bool, *, named: str) -> tuple[str, Sequence[tuple[str, str]]]:
    """Where a server sends us that has the repository elsewhere, and the settings with which git goes there.

    ``named`` is the URL that the user wrote, or empty where somebody else did.

    git itself would follow the redirect to any address, also one in our private network.
    """
    from adk_skills_agent.sources.http import WebClient, authority, refuse_private

    with WebClient(named, allow_private=allow_private) as client:
        found = client.moved_to(url.rstrip("/") + _REFS)
    if not found.endswith(_REFS):
        raise SourceError(f"it leads to {without_credentials(found)}, which is no repository. Check the address.")
    place = found.removesuffix(_REFS)
    is_free = allow_private or authority(place) == authority(named)
    return place, () if is_free else _pinned(place, refuse_private(place))


def _pinned(url: str, addresses: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The setting with which git connects to these addresses of a web server alone (row 190).

    git looks a name up again, and then it may have a private address (DNS rebinding). A name without an address gets
    one that nobody has: a proxy, which looks it up itself, is asked all the same.

    Raises ``SourceError`` when git is too old to know the setting: it would pass over it without a word.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or parts.hostname is None:
        return ()
    version = _git_version()
    if version < _KNOWS_ADDRESSES:
        raise SourceError(
            f"{without_credentials(url)} was named by somebody else, and git {'.'.join(map(str, version)) or 'here'} "
            f"can be led to a private address by it. Update git to {'.'.join(map(str, _KNOWS_ADDRESSES))} or newer, or "
            "allow private addresses (--allow-private)."
        )
    listed = ",".join(f"[{one}]" if ":" in one else one for one in addresses or ("255.255.255.255",))
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return (("http.curloptResolve", f"{parts.hostname}:{port}:{listed}"),)


def _pinned_inside(url: str) -> tuple[tuple[str, str], ...]:
    """The same for a server that the user named, if it is in a private network: then its skills may need others there.

    That holds only for what surely came from there (row 486), so not with a git that cannot be told.
    """
    from adk_skills_agent.sources.http import addresses_inside, note_place

    if not url.startswith(("http://", "https://")):
        return ()
    addresses = addresses_inside(url)
    is_inside = bool(addresses) and _git_version() >= _KNOWS_ADDRESSES
    note_place(url, inside=is_inside)
    return _pinned(url, addresses) if is_inside else ()


def _as_options(settings: Iterable[tuple[str, str]]) -> list[str]:
    return [word for key, value in settings for word in ("-c", f"{key}={value}")]


def _git_version() -> tuple[int, ...]:
    """The version of git, its first two numbers; empty when git does not tell one."""
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("git")) as folder:  # what is in it is counted
        said = _git(Path(folder), "--version").decode("utf-8", "replace")
    found = re.search(r"(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found is not None else ()


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _server(url: str) -> tuple[str, ...]:
    return ("--upload-pack", _SERVER_OPTIONS) if url.startswith("file://") else ()


def _fetched(folder: Path, url: str, ref: str) -> str:
    wanted = ref or "HEAD"
    base = ("fetch", "--quiet", "--no-tags", "--filter=blob:none", *_server(url))
    try:
        _git(folder, *base, "--depth=1", "--", "origin", wanted)
    except SourceError:
        if not is_commit(wanted):
            raise
        # Some servers send no commit by its name alone: all branches and tags, still without files.
        _git(folder, *base, "origin", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        return _git(folder, "rev-parse", "--verify", "--end-of-options", f"{wanted}^{{commit}}").decode().strip()
    return _git(folder, "rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()


def newest_commit(
    url: str, ref: str = "", *, allow_private: bool = False, addresses: Sequence[str] | None = None
) -> str:
    """The commit that a ref of a repository names now; asks the server for names alone.

    ``allow_private`` and ``addresses`` are as for :func:`checkout`. Raises ``SourceError`` when the server does not
    answer, or has no such ref.
    """
    if is_commit(ref):
        return ref
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("git")) as folder:
        names = ["HEAD"] if not ref else [f"refs/heads/{ref}", f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}", ref]
        with _naming(url):
            try:
                pinned: Sequence[tuple[str, str]] = () if addresses is None else _pinned(url, addresses)
                said = _git(Path(folder), *_as_options(pinned), "ls-remote", "--quiet", "--", url, *names)
            except _Moved:
                place, pinned = _moved_to(url, allow_private, named="" if addresses is not None else url)
                said = _git(Path(folder), *_as_options(pinned), "ls-remote", "--quiet", "--", place, *names)
    found = {
        name: commit
        for commit, _, name in (line.partition("\t") for line in said.decode("utf-8", "replace").splitlines())
    }
    for name in (f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", ref, "HEAD" if not ref else ""):
        if name in found:
            return found[name]
    raise SourceError(f"{without_credentials(url)} has no branch or tag {ref!r}. Check its name.")


# The program.


class _Moved(SourceError):
    """The server says that the repository is elsewhere."""


def _git(
    folder: Path, *arguments: str, feed: bytes = b"", may_fail: bool = False, most: int = MAX_ANSWER_BYTES
) -> bytes:
    """What git prints; with ``may_fail`` a failure gives nothing."""
    code, output, said = _run_git(folder, *arguments, feed=feed, most=most)
    if len(output) > most:
        raise SourceError("git was ended: the server sends more than can be taken.")
    if code == 0:
        return output
    if may_fail:
        return b""
    raise _explained(arguments, said.decode("utf-8", "replace"))


def _listing(folder: Path, commit: str) -> bytes | None:
    """The files of a commit; None when they are too many: a few trees that hold each other are billions (row 139)."""
    arguments = ("ls-tree", "-r", "-z", "--full-tree", commit)
    code, listed, said = _run_git(folder, *arguments, most=MAX_LISTED * _PATH_BYTES)
    if len(listed) > MAX_LISTED * _PATH_BYTES or listed.count(b"\0") > MAX_LISTED:
        return None
    if code != 0:
        raise _explained(arguments, said.decode("utf-8", "replace"))
    return listed


def _run_git(
    folder: Path, *arguments: str, feed: bytes = b"", most: int = MAX_ANSWER_BYTES
) -> tuple[int, bytes, bytes]:
    """The exit code of git, what it prints, and what it says of errors.

    It is ended when it prints more than ``most`` bytes, of which one more is returned. Raises ``SourceError`` when it
    takes too long, or too much of the disk, or says without end: servers send what they like (row 227).
    """
    try:
        with contextlib.ExitStack() as files:
            output, said, given = (files.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(3))
            given.write(feed)
            given.seek(0)
            started: list[subprocess.Popen[bytes]] = []
            over = threading.Event()

            def start() -> None:
                started.append(_started(folder, given, output, said, *arguments))
                if over.is_set():  # the call ended meanwhile, and may not have seen it
                    _end(started)

            with contextlib.ExitStack() as running:
                running.callback(_end, started)
                running.callback(over.set)
                # In a thread of its own: a signal that ends this call would lose a git that is about to start.
                running.enter_context(ThreadPoolExecutor(1)).submit(start).result()
                watch = _Watch(started[0], folder, {output.fileno(): most, said.fileno(): MAX_SAID_BYTES})
                try:
                    watch.start()
                    started[0].wait()
                finally:
                    watch.ended.set()
                    watch.join()
            said.seek(0)
            if watch.problem or os.fstat(said.fileno()).st_size > MAX_SAID_BYTES:
                raise SourceError(f"git was ended: {watch.problem or _SAYS_TOO_MUCH}.")
            output.seek(0)
            return started[0].returncode, output.read(most + 1), said.read(MAX_SAID_BYTES)
    except OSError as error:
        raise _no_room(error) from error


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    for process in started:
        _kill(process)
        process.wait()


_SAYS_TOO_MUCH = "the server sends messages without end, so nothing of it is taken"


class _Watch(threading.Thread):
    """Ends a git that takes too long, or takes too much of the disk; ``problem`` says which."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, sizes: Mapping[int, int]) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._folder = folder
        self._sizes = sizes  # descriptors of the files that it writes, and how many bytes each may have
        self.ended = threading.Event()
        self.problem = ""

    def run(self) -> None:
        """See :class:`threading.Thread`."""
        deadline = time.monotonic() + GIT_SECONDS
        while not self.ended.wait(_LOOK_SECONDS):
            if time.monotonic() > deadline:
                self.problem = f"it did not end within {GIT_SECONDS:g} seconds. Check the network and the server"
            elif is_nearly_full(self._folder):
                self.problem = "the disk with the temporary folder is nearly full. Make room, or set TMPDIR"
            elif bytes_in(self._folder) > MAX_REPOSITORY_BYTES:
                self.problem = f"the server sends more than {MAX_REPOSITORY_BYTES >> 30} GiB, so nothing of it is taken"
            elif all(os.fstat(number).st_size <= most for number, most in self._sizes.items()):
                continue
            _kill(self._process)
            return


def _started(
    folder: Path, given: IO[bytes], output: IO[bytes], said: IO[bytes], *arguments: str
) -> subprocess.Popen[bytes]:
    program = shutil.which("git")  # the user's own
    if program is None:
        raise SourceError("There is no git program. Install git (apt install git, or from git-scm.com).")
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN.split()}
    environment |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:file:git",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),  # others may have made a repository of /tmp (row 476)
        "SSH_ASKPASS_REQUIRE": "never",
        "LC_ALL": "C",
    }
    try:
        return subprocess.Popen(
            with_little_memory([program, "-c", "http.followRedirects=false", *arguments], MAX_MEMORY_BYTES),
            cwd=folder,
            env=environment,
            stdin=given,
            stdout=output,
            stderr=said,
            start_new_session=True,  # no terminal: neither git nor ssh can ask there
        )
    except OSError as error:
        raise SourceError(f"git cannot be started: {error.strerror}.") from error


def _kill(process: subprocess.Popen[bytes]) -> None:
    import signal

    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


_CAUSES = (
    (
        re.compile(r"No space left|Out of diskspace|[Dd]isk quota exceeded"),
        "the disk with the temporary folder is full. Make room, or set TMPDIR",
    ),
    (
        re.compile(r"[Oo]ut of memory|Cannot allocate memory"),
        "the repository takes too much memory, so nothing of it is taken. Ask its author to make it smaller",
    ),
    (
        re.compile(
            r"could not read Username|Authentication failed|HTTP Basic: Access denied|\b40[13]\b", re.IGNORECASE
        ),
        "the server asks for a login. Give git a credential helper with a token that may read it",
    ),
    (
        re.compile(r"Permission denied \(|Host key verification failed|no mutual signature", re.IGNORECASE),
        "ssh was refused. Try: ssh -T with the same host, and add your key or its host key",
    ),
    (
        re.compile(r"certificate|self.signed|local issuer", re.IGNORECASE),
        "its certificate is not trusted. For a company's own authority: git config --global http.sslCAInfo FILE",
    ),
    (
        re.compile(r"couldn't find remote ref|not our ref|unknown revision|Needed a single revision|bad object"),
        "it has no such branch, tag or commit. Check the ref; a commit needs its whole name",
    ),
    (
        re.compile(r"not found|does not exist|does not appear to be a git repository|No such file", re.IGNORECASE),
        "there is no such repository, or you may not see it. Check its name and your login",
    ),
    (
        re.compile(
            r"Could not resolve host|Connection (?:refused|timed out|reset)|unable to access|Network is unreach"
        ),
        "the server cannot be reached. Check the network and the name",
    ),
)


def _explained(arguments: Sequence[str], said: str) -> SourceError:
    tail = " ".join(" ".join(dict.fromkeys(without_credentials(said).splitlines())).split())[-400:]
    verb = next((one for one in arguments if not one.startswith("-") and "=" not in one), "")
    if re.search(r"returned error: 30[12378]\b", said):
        return _Moved(f"git {verb} failed: the server says that it is elsewhere. git says: {tail}")
    for pattern, cause in _CAUSES:
        if pattern.search(said):
            return SourceError(f"git {verb} failed: {cause}. git says: {tail}")
    return SourceError(f"git {verb} failed: {tail or 'it says nothing'}")
