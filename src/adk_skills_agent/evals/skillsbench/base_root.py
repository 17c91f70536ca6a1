"""Root file systems that stand for the base images of tasks, made from Debian's and Ubuntu's package archives.

``ubuntu:24.04`` is Ubuntu's own release. The images of Python are Debian with a Python of their own; here they are the
release whose packaged Python has that version. What is not the same is said in ``Base.note``.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.evals.skillsbench.environment import BuildError, NotInterpretable
from adk_skills_agent.evals.skillsbench.user_range import UserRange, make_owned, remove_tree
from adk_skills_agent.sandbox import temporary_prefix

_DEBIAN, _UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
_DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU_KEYS = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_UBUNTU_KEYS_PACKAGE = f"{_UBUNTU}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
_UBUNTU_KEYS_DIGEST = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
_MAX_KEYS_BYTES = 1 << 20
_UBUNTU_RELEASES = {"20.04": "focal", "22.04": "jammy", "24.04": "noble", "latest": "noble"}
_DEBIAN_RELEASES = {"11": "bullseye", "12": "bookworm", "13": "trixie", "latest": "bookworm", "stable": "bookworm"}
_PYTHON_RELEASES = {
    "3.9": ("debian", "bullseye"),
    "3.10": ("ubuntu", "jammy"),
    "3.11": ("debian", "bookworm"),
    "3.12": ("ubuntu", "noble"),
    "3.13": ("debian", "trixie"),
}
_PYTHON_PACKAGES = ("apt", "python3", "python3-pip", "python3-venv", "python3-dev", "ca-certificates")
_BASE_PACKAGES = ("apt", "ca-certificates")
_LAST_LINES = 15
PREPARE_PYTHON = (
    "rm -f /usr/lib/python3*/EXTERNALLY-MANAGED; ln -sf /usr/bin/python3 /usr/local/bin/python; "
    "python3 -m pip install --quiet --ignore-installed pip"
)
"""Makes a base with Python like the images of Python: a current pip that installs without asking."""


@dataclass(frozen=True, slots=True)
class Base:
    """A release to make a root file system from."""

    image: str  # the name in the Dockerfile
    distribution: str  # ``debian`` or ``ubuntu``
    release: str
    packages: tuple[str, ...] = _BASE_PACKAGES
    python: bool = False  # whether ``python`` and ``pip`` are commands, as in the images of Python
    note: str = ""  # how it differs from the image, one sentence; empty when nothing matters

    @property
    def mirror(self) -> str:
        """The package archive."""
        return _UBUNTU if self.distribution == "ubuntu" else _DEBIAN

    @property
    def key(self) -> str:
        """A name for the cache."""
        return f"{self.release}{'-python' if self.python else ''}"


def base_of(image: str) -> Base:
    """What stands for an image.

    Raises ``NotInterpretable`` when there is nothing for it; says which images there are.
    """
    name, _, tag = image.rpartition("/")[2].partition(":")
    registry = image.rpartition("/")[0]
    tag = tag.partition("@")[0] or "latest"
    if registry in {"", "library", "docker.io", "docker.io/library"}:
        if name == "ubuntu":
            release = _UBUNTU_RELEASES.get(tag, tag)
            if release in _UBUNTU_RELEASES.values():
                return Base(image, "ubuntu", release)
        if name == "debian":
            release = _DEBIAN_RELEASES.get(tag.removesuffix("-slim"), tag.removesuffix("-slim"))
            if release in _DEBIAN_RELEASES.values():
                return Base(image, "debian", release)
        version = re.match(r"(3\.\d+)(?:\.\d+)?(?:-.*)?\Z", tag)
        if name == "python" and version and version[1] in _PYTHON_RELEASES:
            distribution, release = _PYTHON_RELEASES[version[1]]
            note = f"{image} is {distribution.capitalize()} {release} with its own Python {version[1]} here."
            return Base(image, distribution, release, _PYTHON_PACKAGES, python=True, note=note)
    raise NotInterpretable(
        f"Local mode has nothing that stands for the base image {image!r}. It knows ubuntu:20.04, 22.04 and 24.04, "
        f"debian:11 to 13, and python:3.9 to 3.13; use --sandbox container for others."
    )


def substitute(base: Base) -> Base | None:
    """What stands for a release of Ubuntu whose archive cannot be reached; None for all others."""
    if base.distribution != "ubuntu":
        return None
    packages = _PYTHON_PACKAGES if base.python else _BASE_PACKAGES
    return Base(base.image, "debian", "bookworm", packages, base.python)


async def make_root(base: Base, folder: Path, users: UserRange, seconds: float) -> Path:
    """The root file system of a base, made once: ``folder/<release>``, owned by the range's ids.

    Raises ``BuildError`` when mmdebstrap is missing or failed, or its time was over.
    """
    target = folder / base.key
    if target.is_dir():
        return target
    program = shutil.which("mmdebstrap")
    if program is None:
        raise BuildError("Local mode makes root file systems with mmdebstrap. Install it: apt-get install mmdebstrap")
    keys = await asyncio.to_thread(_keys, base, folder)
    holder = folder / f".{base.key}.{uuid.uuid4().hex}"
    await asyncio.to_thread(holder.mkdir, parents=True)
    await make_owned(holder, [base.key], users)
    aside = holder / base.key
    components = "--components=main,universe" if base.distribution == "ubuntu" else "--components=main"
    make = [
        *(program, "--mode=root" if os.geteuid() == 0 else "--mode=unshare", "--variant=minbase", "--quiet"),
        *(components, f"--keyring={keys}", f"--include={','.join(base.packages)}", base.release, "-", base.mirror),
    ]
    # In two processes, so that the files belong to the range: whoever unpacks maps their owners.
    unpack = [*users.entering, "tar", "--extract", "--preserve-permissions", "--numeric-owner", "--exclude=./dev/*"]
    read, write = os.pipe()
    try:
        descriptor = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
        try:
            first = await asyncio.create_subprocess_exec(
                *make, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE, env=_environment()
            )
            os.close(write)
            write = -1
            second = await asyncio.create_subprocess_exec(
                *(*unpack, "--directory", f"/proc/self/fd/{descriptor}"),
                stdin=read,
                stderr=subprocess.PIPE,
                pass_fds=(descriptor,),
            )
        finally:
            os.close(descriptor)
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
    try:
        async with asyncio.timeout(seconds):
            (_, made), (_, unpacked) = await asyncio.gather(first.communicate(), second.communicate())
    except BaseException as error:
        for process in (first, second):
            if process.returncode is None:
                process.kill()
                await process.wait()
        await remove_tree(holder, users)
        if isinstance(error, TimeoutError):
            raise BuildError(f"{base.release} could not be made within {seconds:g} seconds.") from None
        raise
    if first.returncode or second.returncode:
        await remove_tree(holder, users)
        why = "\n".join((made + unpacked).decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:])
        raise BuildError(f"{base.release} could not be made from {base.mirror}.", why)
    try:
        # Not moved: a plain user cannot move a folder of others.
        target.symlink_to(f"{holder.name}/{base.key}")
    except OSError:  # another runner was faster
        await remove_tree(holder, users)
    return target


def _keys(base: Base, folder: Path) -> str:
    """The file of the archive's public keys; Debian has no package of Ubuntu's, so theirs is fetched and checked."""
    installed = _UBUNTU_KEYS if base.distribution == "ubuntu" else _DEBIAN_KEYS
    if Path(installed).is_file():
        return installed
    if base.distribution == "debian":
        raise BuildError(
            "The keys of Debian's archive are missing. Install them: apt-get install debian-archive-keyring"
        )
    fetched = folder / "ubuntu-archive-keyring.gpg"
    if fetched.is_file():
        return str(fetched)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(_UBUNTU_KEYS_PACKAGE, timeout=30) as answer:  # noqa: S310  # a constant
            package = answer.read(_MAX_KEYS_BYTES)
    except OSError as error:
        raise BuildError(
            f"The keys of Ubuntu's archive cannot be fetched from {_UBUNTU_KEYS_PACKAGE}: {error}."
        ) from error
    if hashlib.sha256(package).hexdigest() != _UBUNTU_KEYS_DIGEST:
        raise BuildError(f"{_UBUNTU_KEYS_PACKAGE} is not the file it was when this runner was written; it is not used.")
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("bench")) as temporary:
        deb = Path(temporary, "keys.deb")
        deb.write_bytes(package)
        done = subprocess.run(["/usr/bin/dpkg-deb", "--extract", deb, temporary], capture_output=True, check=False)
        keys = Path(temporary, _UBUNTU_KEYS.lstrip("/"))
        if done.returncode or not keys.is_file():
            raise BuildError("The keys of Ubuntu's archive cannot be unpacked: dpkg-deb failed.")
        aside = fetched.with_suffix(f".{uuid.uuid4().hex[:8]}")
        aside.write_bytes(keys.read_bytes())
        aside.rename(fetched)
    return str(fetched)


def _environment() -> dict[str, str]:
    kept = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "TMPDIR")
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        **{name: os.environ[name] for name in kept if name in os.environ},
    }
