"""Where programs of this system are, and the command that installs a package, for the one who lacks it."""

from __future__ import annotations

import os

PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs of the system are; the agent's own ``PATH`` may be empty or a stranger's."""
_MANAGERS = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "apk": "apk add",
    "pacman": "pacman -S",
    "zypper": "zypper install",
}


def install_command(package: str) -> str:
    """For the package manager that is here; a sentence without a command where none is known."""
    for program, command in _MANAGERS.items():
        if find_program(program) is not None:
            return f"{command} {package}"
    return f"install the package {package}"


def find_program(name: str, path: str = PROGRAMS) -> str | None:
    """Where a program is that this user may run; None when it is nowhere. As ``shutil.which``, without its import."""
    for folder in path.split(":"):
        found = f"{folder}/{name}"
        if os.access(found, os.X_OK) and os.path.isfile(found):  # noqa: PTH113
            return found
    return None
