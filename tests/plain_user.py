"""What tests need that act as a user without privileges: an id, an interpreter, and installed packages it may read."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"
PLAIN_USER = 61_234
"""Owns nothing on any machine and runs nothing else, so that its limit of processes is the tests' own."""


def readable_packages(folder: Path) -> Path:
    """A folder in ``folder`` with the installed packages, for a user who may not enter the clone they are in.

    Where every folder on the way is open, a link does; a clone of mode 0700, which is what a home folder gives, needs
    a copy: of hard links on the same file system, of bytes elsewhere.
    """
    installed = Path(sysconfig.get_paths()["purelib"])
    packages = folder / "packages"
    if all(place.stat().st_mode & stat.S_IXOTH for place in (installed, *installed.resolve().parents)):
        packages.symlink_to(installed)
        return packages

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    shutil.copytree(installed, packages, copy_function=link)  # with the bytecode, which that user cannot write
    return packages


def readable_copy(source: Path, target: Path) -> Path:
    """``target``: a copy of the folder that every user may read, whatever the umask of the clone was."""

    def copy(file: str, to: str) -> None:
        shutil.copyfile(file, to)
        os.chmod(to, 0o644)

    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), copy_function=copy)
    for folder in (target, *filter(Path.is_dir, target.rglob("*"))):
        folder.chmod(0o755)
    return target


def python_of_plain_user() -> str:
    """An interpreter of this version that other users may run; skips the test where there is none."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in (f"/usr/bin/python{wanted}", f"/usr/local/bin/python{wanted}", sys.executable):
        try:
            done = subprocess.run(
                [candidate, "-c", code], user=PLAIN_USER, env={}, cwd="/", capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        if done.stdout.strip() == wanted:
            return candidate
    pytest.skip(f"no Python {wanted} that other users may run")
