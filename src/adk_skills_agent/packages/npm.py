"""npm packages of skills: exact versions with hashes in a package-lock, installed without running any of them.

npm is run as uv is: with a time limit, in an empty folder, and never with install scripts. A package-lock is a
stranger's text until :func:`checked_lock` has read it: every package in it comes from the registry, has a SHA-512, and
lies inside ``node_modules``.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import PackageError
from adk_skills_agent.packages.findings import word_set
from adk_skills_agent.packages.uv import OUT_OF_MEMORY, Cause, Index, Progress, failure, run_program
from adk_skills_agent.platforms import open_regular
from adk_skills_agent.sandbox import temporary_prefix

PREFIX = "npm:"
"""Begins a requirement that npm answers: ``npm:docx@^9``."""
NODE_DIR = "node"
"""The folder in an environment that has ``node_modules``."""

_NAME = re.compile(r"(?:@[a-z0-9~][\w.~-]{0,100}/)?[a-z0-9~][\w.~-]{0,200}", re.IGNORECASE)
_SPEC = re.compile(r"[\w.^~<>=*|&+ -]{0,100}")
_VERSION = re.compile(r"\d[\w.+-]{0,99}")
_PLACE = re.compile(rf"(?:node_modules/{_NAME.pattern}/)*node_modules/{_NAME.pattern}", re.IGNORECASE)
_MAX_PACKAGES = 5_000
_MAX_PLACE = 4_096
_MAX_LOCK_BYTES = 32 << 20  # a lock of 5,000 packages has 3 MB
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_KEPT = word_set(
    """
    version name integrity dependencies optionalDependencies peerDependencies peerDependenciesMeta bin engines os
    cpu libc optional dev devOptional peer inBundle bundleDependencies hasInstallScript
    """
)
# A folder above may claim to be a workspace, and its settings would be read; a dependency may name any address.
_ONLY_REGISTRY = ("--allow-git=none", "--allow-remote=none", "--allow-file=none", "--allow-directory=none")
_QUIET = (
    "--ignore-scripts",
    "--workspaces=false",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--omit=dev",
    "--loglevel=error",
)

_CAUSES: tuple[Cause, ...] = (
    Cause(
        re.compile(r"ENOSPC|EDQUOT"),
        "cannot be installed: the disk is full",
        "The disk is full. Free some space (adk-skills prepare --collect removes unused environments).",
    ),
    OUT_OF_MEMORY,
    Cause(
        re.compile(r"EINTEGRITY"),
        "were refused: what the registry sent is not what was locked",
        "A file has another hash than the lock says. Find out why before you lock again.",
    ),
    Cause(
        re.compile(r"ENOTCACHED|cache mode is 'only-if-cached'"),
        "are not on this machine, and nothing may be fetched",
        "Prepare them where the network is allowed: adk-skills prepare.",
    ),
    Cause(
        re.compile(r"E404|404 Not Found|ETARGET|notarget|No matching version"),
        "cannot be installed: one of them does not exist in the package registry",
        "A package or version does not exist in the registry. Check the name.",
        of_some=True,
    ),
    Cause(
        re.compile(r"ERESOLVE"),
        "cannot be installed together: their versions exclude one another",
        "The requirements exclude one another. Change one of them.",
    ),
    Cause(
        re.compile(r"EBADPLATFORM|EBADENGINE"),
        "cannot be installed: one of them is not made for this machine",
        "A package does not support this machine or this version of Node.",
    ),
    Cause(
        re.compile(r"SELF_SIGNED_CERT|UNABLE_TO_(?:VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT)|self.signed certificate"),
        "cannot be fetched: the certificate of the package registry is not trusted here",
        "For a company's own authority set NODE_EXTRA_CA_CERTS or npm's cafile to the file of its certificates.",
    ),
    Cause(
        re.compile(
            r"ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|FETCH_ERROR|ERR_SOCKET_TIMEOUT|E50\d|network"
        ),
        "cannot be fetched: the package registry does not answer",
        "The registry cannot be reached. Check the network and the registry.",
    ),
)


def is_node_requirement(text: str) -> bool:
    """Whether npm answers it."""
    return text.startswith(PREFIX)


def node_requirement(name: str, spec: str = "") -> str | None:
    """A requirement for npm; None for one that names a URL, a folder or a repository instead of versions."""
    spec = spec.strip()
    if not _NAME.fullmatch(name) or not _SPEC.fullmatch(spec):
        return None
    return f"{PREFIX}{name}@{spec}" if spec and spec not in {"*", "latest"} else f"{PREFIX}{name}"


def _name_and_spec(requirement: str) -> tuple[str, str]:
    name, _, spec = requirement.removeprefix(PREFIX).removeprefix("@").partition("@")
    scope = "@" if requirement.startswith(f"{PREFIX}@") else ""
    return scope + name, spec or "*"


def npm_program() -> str | None:
    """The path of npm on this machine; None where it or Node is missing."""
    return shutil.which("npm") if shutil.which("node") else None


@functools.lru_cache(maxsize=4)
def _keeps_to_the_registry(npm: str) -> bool:
    """Whether this npm can be told to ask nobody but the registry: from version 11 on."""
    asked = [npm, "config", "get", "allow-git", "--no-workspaces", "--userconfig=/dev/null"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False, cwd="/")
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() not in {"", "undefined"}


@functools.lru_cache(maxsize=4)
def _asked_version(node: str, _stamp: int) -> str:
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=True, cwd="/")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().removeprefix("v")[:40]


def node_version() -> str:
    """The version of this machine's Node (``20.19.0``); empty where there is none."""
    node = shutil.which("node")
    if node is None:
        return ""
    try:
        return _asked_version(node, Path(node).stat().st_mtime_ns)
    except OSError:
        return ""


def resolve_node(
    requirements: Sequence[str],
    *,
    cache: Path,
    index: Index,
    exclude_newer: datetime | None,
    what: str,
    seconds: float,
    progress: Progress | None = None,
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The package-lock that requirements come to. Asks the registry; blocks.

    Versions of ``known``, the author's package-lock, stay where they will do. Raises ``PackageError`` when there is
    no solution, or the registry does not answer.
    """
    arguments = ["install", "--package-lock-only", "--lockfile-version=3"]
    if exclude_newer is not None:
        arguments.append(f"--before={exclude_newer.isoformat()}")
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("npm")) as folder:
        _write_manifest(Path(folder), requirements, known)
        _run_npm(arguments, folder, cache=cache, index=index, what=what, seconds=seconds, progress=progress)
        with open_regular(Path(folder, "package-lock.json")) as stream:
            made = stream.read(_MAX_LOCK_BYTES + 1)
    if len(made) > _MAX_LOCK_BYTES:
        raise _refused(what, f"It has more than {_MAX_LOCK_BYTES >> 20} MiB.")
    return checked_lock(json.loads(made), what)


def install_node(
    lock: Mapping[str, Any],
    target: Path,
    *,
    cache: Path,
    index: Index,
    what: str,
    seconds: float,
    progress: Progress | None = None,
    hold: int | None = None,
) -> None:
    """Install what a checked package-lock names into ``target/node_modules``, with the hook that makes Node find it.

    Raises ``PackageError`` when a package cannot be fetched, or is not what was locked.
    """
    target.mkdir()
    root = lock["packages"][""]
    _write(target / "package.json", {"private": True, "dependencies": root.get("dependencies", {})})
    _write(target / "package-lock.json", lock)
    _run_npm(["ci"], str(target), cache=cache, index=index, what=what, seconds=seconds, progress=progress, hold=hold)
    (target / "node_modules").mkdir(exist_ok=True)
    _check_bundled(lock["packages"], target / "node_modules" / ".package-lock.json", what)
    (target / "node_modules" / ".package-lock.json").unlink(missing_ok=True)
    if has_hooks(node_version()):
        (target / "hook.mjs").write_text(_HOOK, encoding="utf-8")
        (target / "resolve.mjs").write_text(_RESOLVE, encoding="utf-8")


def link_commands(env: Path, taken: Collection[str]) -> list[str]:
    """Put the commands of npm packages beside those of Python's, but for names that are taken.

    Returns a sentence for each that was left out.
    """
    notes = []
    commands = env / NODE_DIR / "node_modules" / ".bin"
    for entry in sorted(commands.iterdir()) if commands.is_dir() else ():
        place = env / "bin" / entry.name
        read_by_python = entry.name.lower().endswith(("._pth", ".cfg", ".txt")) or entry.name.lower().startswith(
            "python"
        )
        if (
            read_by_python
            or entry.name in taken
            or place.is_symlink()
            or place.exists()
            or shutil.which(entry.name, path=_SYSTEM_PATH)
        ):
            notes.append(f"The command {entry.name} of an npm package was left out: the name is taken.")
        else:
            place.symlink_to(Path("..", NODE_DIR, "node_modules", ".bin", entry.name))
    return notes


def write_node(env: Path, place: Path) -> None:
    """Put a ``node`` among the environment's commands that finds its packages: by ``require`` and by ``import``."""
    modules = place / NODE_DIR
    load = f" --import={shlex.quote((modules / 'hook.mjs').as_uri())}" if (env / NODE_DIR / "hook.mjs").exists() else ""
    node = shlex.quote(str(shutil.which("node")))
    lines = (
        "#!/bin/sh",
        f"NODE_PATH=${{NODE_PATH:+$NODE_PATH:}}{shlex.quote(str(modules / 'node_modules'))}",
        f'export NODE_PATH\nexec {node}{load} "$@"\n',
    )
    command = env / "bin" / "node"
    command.write_text("\n".join(lines), encoding="utf-8")
    command.chmod(0o755)


def has_hooks(version: str) -> bool:
    """Whether this Node takes ``--import`` and ``module.register``: from 18.19 and 20.6 on."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor = int(found[1]), int(found[2])
    return (major, minor) >= (20, 6) or (major == 18 and minor >= 19)


# ``import`` looks only beside the file and above it, so a skill's script would not find packages that lie elsewhere.
_HOOK = """\
import { register } from 'node:module';
register('./resolve.mjs', import.meta.url);
"""
_RESOLVE = """\
const here = new URL('./any.mjs', import.meta.url).href;
export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context);
  } catch (error) {
    if (error?.code !== 'ERR_MODULE_NOT_FOUND' || /^[./]|^[a-z]+:/.test(specifier)) throw error;
    return next(specifier, { ...context, parentURL: here });
  }
}
"""


def checked_lock(table: object, what: str) -> dict[str, Any]:
    """The part of a package-lock that is used, after every entry of it was checked.

    Raises ``PackageError`` when it is not a package-lock of version 3, or names something that no registry has.
    """
    packages = table.get("packages") if isinstance(table, Mapping) else None
    root = packages.get("") if isinstance(packages, Mapping) else None
    if not isinstance(packages, Mapping) or not isinstance(root, Mapping) or len(packages) > _MAX_PACKAGES:
        raise _refused(what, "It is not a package-lock of version 3.")
    kept: dict[str, Any] = {"": {"dependencies": _names(root.get("dependencies"))}}
    for place, entry in packages.items():
        if place == "":
            continue
        fits = len(place) <= _MAX_PLACE and _PLACE.fullmatch(place)  # row 492
        if not isinstance(entry, Mapping) or not fits or entry.get("link"):
            raise _refused(what, f"{str(place)[:100]!r} is not a package of the registry.")
        if entry.get("dev"):
            continue
        problem = _problem(place, entry, packages)
        if problem:
            raise _refused(what, f"{place[:100]}: {problem}")
        kept[place] = {key: value for key, value in entry.items() if key in _KEPT}
    return {"lockfileVersion": 3, "requires": True, "packages": kept}


def _problem(place: str, entry: Mapping[str, Any], packages: Mapping[str, Any]) -> str:
    version, integrity, resolved = (entry.get(key) for key in ("version", "integrity", "resolved"))
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        return "it has no version."
    name = entry.get("name")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        return "it has no proper name."
    if entry.get("inBundle"):  # it comes inside another package, whose hash covers it
        return "" if _is_bundled(place, packages) else "it says that it comes in a package, and none brings it."
    if not isinstance(integrity, str) or not sha512_of(integrity):
        return "it has no SHA-512."
    # Where it was once is not kept: the registry is asked by name and version, and the hash decides.
    if resolved is not None and not (isinstance(resolved, str) and resolved.startswith(("https://", "http://"))):
        return "it comes from elsewhere than a registry."
    return ""


def _is_bundled(place: str, packages: Mapping[str, Any]) -> bool:
    """Whether a package that is shown and hashed says that it brings others along, and this one lies in it.

    Which ones that are npm alone knows: :func:`_check_bundled` asks it what it took from where.
    """
    inside = place
    while "/node_modules/" in inside:
        inside = inside.rpartition("/node_modules/")[0]
        outer = packages.get(inside)
        if isinstance(outer, Mapping) and outer.get("bundleDependencies") and sha512_of(str(outer.get("integrity"))):
            return True
    return False


def _check_bundled(locked: Mapping[str, Any], told: Path, what: str) -> None:
    """Refuse what npm fetched without a hash, because no package that is hashed brings it along (row 491).

    ``told`` is npm's own account of what it installed.
    """
    if not any(entry.get("inBundle") for entry in locked.values()):
        return  # npm has checked all of them
    try:
        packages = json.loads(told.read_bytes())["packages"]
        strange = [
            place
            for place, entry in packages.items()
            if not entry.get("inBundle") and not sha512_of(str(locked.get(place, {}).get("integrity", "")))
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _refused(what, f"npm does not say what it installed: {error}.") from error
    if strange:
        raise _refused(what, f"{strange[0][:100]}: it says that it comes in a package, and none brings it.")


def sha512_of(integrity: str) -> str:
    """The SHA-512 of a Subresource Integrity text, in hexadecimal; empty where it has none."""
    for part in integrity.split():
        kind, _, value = part.partition("-")
        if kind == "sha512":
            try:
                digest = base64.b64decode(value.partition("?")[0], validate=True)
            except (binascii.Error, ValueError):
                continue
            if len(digest) == 64:
                return digest.hex()
    return ""


def locked_packages(lock: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, version and SHA-512 of each package of a checked package-lock, sorted; bundled ones come in another."""
    found = set()
    for place, entry in lock["packages"].items():
        if place and entry.get("integrity"):
            name = entry.get("name") or place.rpartition("node_modules/")[2]
            found.add((name, entry["version"], sha512_of(entry["integrity"])))
    return sorted(found)


def _names(table: object) -> dict[str, str]:
    if not isinstance(table, Mapping):
        return {}
    return {
        name: spec
        for name, spec in table.items()
        if isinstance(name, str) and isinstance(spec, str) and _NAME.fullmatch(name) and _SPEC.fullmatch(spec)
    }


def _refused(what: str, why: str) -> PackageError:
    return failure(
        f"{what[:1].upper()}{what[1:]} were refused: their package-lock is not safe to use. Do it without them, or "
        "tell the user.",
        why,
    )


def _write(path: Path, table: object) -> None:
    path.write_text(json.dumps(table, indent=1), encoding="utf-8")


def _write_manifest(folder: Path, requirements: Sequence[str], known: Mapping[str, Any] | None) -> None:
    wanted = dict(_name_and_spec(text) for text in requirements)
    _write(folder / "package.json", {"private": True, "dependencies": wanted})
    if known is not None:
        root = {"": {"dependencies": wanted}}
        _write(folder / "package-lock.json", {**known, "packages": {**known["packages"], **root}})


_PASSED_ON = (
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS NPM_CONFIG_USERCONFIG npm_config_userconfig "
    "NPM_CONFIG_REGISTRY npm_config_registry NPM_CONFIG_CAFILE npm_config_cafile LANG LC_ALL TMPDIR"
)


def _run_npm(
    arguments: Sequence[str],
    folder: str,
    *,
    cache: Path,
    index: Index,
    what: str,
    seconds: float,
    progress: Progress | None = None,
    hold: int | None = None,
) -> None:
    npm = npm_program()
    if npm is None:
        raise failure(
            f"{what[:1].upper()}{what[1:]} cannot be prepared on this machine: npm is not installed. "
            "Do it without them, or tell the user.",
            "npm is not installed. Install Node with it: apt-get install nodejs npm.",
        )
    if not _keeps_to_the_registry(npm):
        raise failure(
            f"{what[:1].upper()}{what[1:]} cannot be prepared on this machine: its npm is too old. "
            "Do it without them, or tell the user.",
            "This npm would fetch what a dependency names by an address of its own. Install npm 11: npm install -g npm",
        )
    environment = {name: os.environ[name] for name in _PASSED_ON.split() if os.environ.get(name)}
    environment |= {
        "PATH": os.pathsep.join((str(Path(npm).parent), _SYSTEM_PATH)),
        "HOME": str(Path("~").expanduser()),  # its configuration names the owner's registry
        "npm_config_cache": str(cache),
        "npm_config_fetch_retries": "1",
        "npm_config_fetch_timeout": "20000",
        "NO_COLOR": "1",
    }
    options = [*_QUIET, *_ONLY_REGISTRY, *([f"--registry={index.npm_registry}"] if index.npm_registry else [])]
    options += ["--offline"] if index.offline else ["--prefer-offline"] if arguments[0] == "ci" else []
    run_program(
        [npm, *arguments, *options],
        environment,
        folder,
        seconds=seconds,
        what=what,
        causes=_CAUSES,
        place=Path(folder),
        progress=progress,
        hold=hold,
    )
