"""Where skills can be got: what a user may write for a source, and the one form of it that a lock keeps."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from adk_skills_agent.errors import ConfigError

ARCHIVE_SUFFIXES = (".zip", ".skill", ".tar.gz", ".tgz", ".tar")
_SHORT = r"(?P<repo>[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100})(?:/(?P<path>[^@]+))?(?:@(?P<ref>.+))?"
_SCP = r"(?P<user>[A-Za-z0-9._-]+)@(?P<host>[A-Za-z0-9._-]+):(?!//)(?P<path>[^@]+?)(?:@(?P<ref>.+))?"
_PACKAGE = r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[A-Za-z0-9.+!_-]+))?"
_TREE = r"/(?P<repo>.+?)(?:/-)?/(?:tree|blob)/(?P<ref>[^/]+)(?:/(?P<path>.+))?"
_SERVER = r"(?:[^\s@:/\\\[\]%]+@)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\w*)?"
"""As git reads one, too, which takes ``127.0.0.%31`` or ``ssh://127.0.0.1%2Fx@host`` for ``127.0.0.1`` (row 458)."""
_FETCHED_AT = r"[A-Za-z0-9][A-Za-z0-9._:+!-]{0,250}"
_REF = r"(?!-)[A-Za-z0-9][A-Za-z0-9._/+-]{0,250}"


class OriginKind(StrEnum):
    """How skills are fetched from a place."""

    GIT = "git"
    FOLDER = "folder"
    ARCHIVE = "archive"
    WELL_KNOWN = "well-known"
    PACKAGE = "pypi"
    MCP = "mcp"


@dataclass(frozen=True, slots=True)
class Origin:
    """A place that has skills."""

    kind: OriginKind  # how it is fetched from
    location: str  # a URL, an absolute path, a distribution's name, or the command of an MCP server
    ref: str = ""  # branch, tag or commit of a repository, or version of a package; empty for the newest
    subpath: str = ""  # the folder in it that is meant, with ``/``; empty for all of it

    def __str__(self) -> str:
        ref = f"@{self.ref}" if self.ref else ""
        path = f"#{self.subpath}" if self.subpath else ""
        match self.kind:
            case OriginKind.GIT:
                return f"git+{self.location}{ref}{path}"
            case OriginKind.PACKAGE:
                return f"pypi:{self.location}" + (f"=={self.ref}" if self.ref else "")
            case OriginKind.MCP:
                return f"mcp:{self.location}"
            case _:
                return self.location

    def at(self, ref: str) -> Origin:
        """The same place at another ref."""
        return replace(self, ref=ref)


def read_origin(text: str, *, ref: str | None = None, base: Path | None = None, missing_ok: bool = False) -> Origin:
    """What a user means by a source.

    ``text`` is ``owner/repo``, ``owner/repo/path@ref``, a git URL, a folder, an archive, ``https://host``,
    ``pypi:name`` or ``mcp:URL-or-command``; ``ref`` (branch, tag or commit) wins over one in it. Relative paths start
    from ``base``, the working directory by default. With ``missing_ok`` a path may lead nowhere: what is in the store
    needs no source. Raises ``ConfigError`` when it is none of these, or carries a password.
    """
    given = text.strip()
    if not given or any(ord(char) < 32 or ord(char) == 127 for char in given):
        raise ConfigError(f"{text!r} is no source. Write owner/repo, a git URL, a folder, an archive or https://host.")
    try:
        origin = _read(given, base or Path.cwd(), missing_ok=missing_ok)
        if "://" in origin.location:
            _ = urlsplit(origin.location).port
        if origin.kind is OriginKind.MCP:
            shlex.split(origin.location)
    except ValueError as error:
        raise ConfigError(f"{given[:200]!r} is no source: {error}. Correct the address.") from error
    if ref is not None:
        if origin.kind not in {OriginKind.GIT, OriginKind.PACKAGE}:
            instead = f", or name its repository: {url}" if (url := repository_of(origin)) else ""
            raise ConfigError(f"--ref {ref!r}: {given!r} has no versions. Leave out --ref{instead}.")
        origin = origin.at(ref)
    if origin.ref and not re.fullmatch(_REF, origin.ref):
        raise ConfigError(f"{origin.ref!r} is no branch, tag, commit or version. Write one, such as main or v1.2.")
    if origin.subpath:
        parts = [part for part in origin.subpath.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise ConfigError(f"The path {origin.subpath!r} leaves the source. Write a folder inside it.")
        if parts and parts[-1].lower() == "skill.md":  # the address of the file, copied from a browser
            parts.pop()
        origin = replace(origin, subpath="/".join(parts))
    return origin


def check_locked(origin: Origin, commit: str) -> None:
    """Refuse a source of a lock, which may be anybody's, that a user could not have written (row 138).

    Raises ``ValueError``: a part would be an option of git or uv, or leaves the source.
    """
    is_package = origin.kind is OriginKind.PACKAGE
    controls = any(ord(char) < 32 or ord(char) == 127 for char in origin.location)
    if not origin.location or origin.location.startswith("-") or controls:
        raise ValueError(f"{origin.location[:80]!r} is no source")
    if "://" in origin.location and origin.kind is not OriginKind.MCP:
        _ = urlsplit(origin.location).port  # raises for one that is none
    if origin.kind is OriginKind.GIT and not _is_repository(origin.location):
        raise ValueError(f"{origin.location[:80]!r} is no URL of a repository")
    if is_package and not re.fullmatch(_PACKAGE, origin.location):
        raise ValueError(f"{origin.location[:80]!r} is no name of a package")
    for text, pattern in ((origin.ref, _REF), (commit, _FETCHED_AT)):
        if text and not re.fullmatch(pattern, text):
            raise ValueError(f"{text[:80]!r} is no branch, tag, commit or version")
    if origin.subpath and not {"", ".", ".."}.isdisjoint(origin.subpath.split("/")):
        raise ValueError(f"the path {origin.subpath[:80]!r} leaves the source")


@lru_cache(maxsize=256)
def _is_repository(location: str) -> bool:
    """Whether git and we take it for the same place: ``/x`` is a folder for git, ``http::http://x`` a server."""
    try:
        return _git_url(location).location == location
    except (ConfigError, ValueError):
        return False


def repository_of(origin: Origin) -> str:
    """The URL of the git repository of this machine whose work tree a folder is in; empty without one."""
    if origin.kind is not OriginKind.FOLDER:
        return ""
    place = Path(origin.location)
    return next((one.as_uri() for one in (place, *place.parents) if (one / ".git").exists()), "")


def strangers_origin(
    text: str, *, ref: str | None = None, base: Path | None = None, missing_ok: bool = False
) -> Origin:
    """The same for a source that the user did not name, but a file of a stranger: no MCP server (row 138).

    One over stdio is a command of this machine, and one over HTTP may be one that gets a token of the user's.

    Raises:
        ConfigError: As :func:`read_origin`, and for an MCP server.
    """
    origin = read_origin(text, ref=ref, base=base, missing_ok=missing_ok)
    if origin.kind is OriginKind.MCP:
        raise ConfigError(
            f"{text[:200]!r} is an MCP server, which only you can name: it is a program that would be started here, or "
            "gets your token. If you trust it, add it yourself with adk-skills add."
        )
    return origin


def _read(text: str, base: Path, *, missing_ok: bool) -> Origin:
    if text.startswith("pypi:"):
        if found := re.fullmatch(_PACKAGE, text[5:].strip()):
            return Origin(OriginKind.PACKAGE, found["name"].lower(), found["version"] or "")
        raise ConfigError(f"{text!r} names no package. Write pypi:name or pypi:name==1.2.")
    if text.startswith("mcp:"):
        if text[4:].strip():
            return Origin(OriginKind.MCP, text[4:].strip())
        raise ConfigError("mcp: names no server. Write mcp:https://host/mcp or mcp:'command arguments'.")
    if text.startswith("git+"):
        return _git_url(text[4:])
    if "://" in text:
        return _url(text)
    if text.startswith(("/", "./", "../", "~")) or text in {".", ".."}:
        return _local(text, base, missing_ok=missing_ok)
    if (base / text).exists():
        return _local(text, base, missing_ok=missing_ok)
    if found := re.fullmatch(_SCP, text):
        return Origin(OriginKind.GIT, f"{found['user']}@{found['host']}:{found['path']}", found["ref"] or "")
    if found := re.fullmatch(_SHORT, text):
        return Origin(
            OriginKind.GIT, f"https://github.com/{found['repo']}", found["ref"] or "", (found["path"] or "").strip("/")
        )
    raise ConfigError(
        f"{text!r} is no source: there is no such folder, and it is no owner/repo and no URL. "
        "Write owner/repo, a git URL (for ssh git@host:path), a folder, an archive, https://host, pypi:name or mcp:URL."
    )


def _local(text: str, base: Path, *, missing_ok: bool) -> Origin:
    path = Path(text).expanduser()
    path = Path(*(base / path).parts) if not path.is_absolute() else path
    path = path.resolve()
    if path.is_dir():
        if (path / "HEAD").is_file() and (path / "objects").is_dir():
            return Origin(OriginKind.GIT, path.as_uri())
        return Origin(OriginKind.FOLDER, str(path))
    if path.is_file() and path.name.lower().endswith(ARCHIVE_SUFFIXES):
        return Origin(OriginKind.ARCHIVE, str(path))
    if path.name.lower() == "skill.md" and path.is_file():
        return Origin(OriginKind.FOLDER, str(path.parent))
    if missing_ok and not path.exists():
        is_archive = path.name.lower().endswith(ARCHIVE_SUFFIXES)
        return Origin(OriginKind.ARCHIVE if is_archive else OriginKind.FOLDER, str(path))
    what = "is neither a folder nor an archive" if path.exists() else "does not exist"
    raise ConfigError(f"{text} {what}. Give a folder, or a file that ends with {', '.join(ARCHIVE_SUFFIXES)}.")


def _url(text: str) -> Origin:
    parts = urlsplit(text)
    if parts.scheme in {"ssh", "git", "file"}:
        return _git_url(text)
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ConfigError(f"{text!r} is no URL that skills can be got from. Use https, ssh or file.")
    if parts.path.lower().endswith(ARCHIVE_SUFFIXES):
        return Origin(OriginKind.ARCHIVE, _plain_url(text))
    path = parts.path.rstrip("/")
    if not path or "/.well-known/" in parts.path:
        return Origin(OriginKind.WELL_KNOWN, _plain_url(urlunsplit((parts.scheme, parts.netloc, path, "", ""))))
    if found := re.fullmatch(_TREE, path):
        place = urlunsplit((parts.scheme, parts.netloc, f"/{found['repo']}", "", ""))
        return Origin(OriginKind.GIT, _plain_url(place), found["ref"], found["path"] or "")
    return _git_url(text)


def _git_url(text: str) -> Origin:
    url, _, subpath = text.partition("#")
    if "://" not in url:
        if (found := re.fullmatch(_SCP, url)) is None:
            raise ConfigError(f"{text!r} is no URL of a repository. Write git+https://host/path.git@ref#folder.")
        return Origin(OriginKind.GIT, f"{found['user']}@{found['host']}:{found['path']}", found["ref"] or "", subpath)
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http", "ssh", "git", "file"}:
        raise ConfigError(f"{parts.scheme}:// is not fetched from. Use https, ssh or file.")
    path, _, ref = parts.path.partition("@")
    place = _plain_url(urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", "")))
    return Origin(OriginKind.GIT, place, ref, subpath)


def _plain_url(url: str) -> str:
    """The URL, refused with a password, because a lock is committed, or with a host that others may read otherwise."""
    parts = urlsplit(url)
    if parts.password is not None or (parts.username and parts.scheme in {"https", "http"}):
        raise ConfigError(
            f"The URL of {parts.hostname} has a user or a token in it, and it would be written into the lock. "
            "Leave it out, and give it to git's credential helper."
        )
    if parts.scheme != "file" and not re.fullmatch(_SERVER, parts.netloc):
        raise ConfigError(
            f"{url!r} names no server. Write https://host/path, in plain letters and digits (xn--... for others)."
        )
    return url
