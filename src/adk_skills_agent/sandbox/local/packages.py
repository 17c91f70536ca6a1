"""The command that installs a package of this system, for the one who reads why something does not work."""

from __future__ import annotations

import shutil

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
        if shutil.which(program, path=PROGRAMS) is not None:
            return f"{command} {package}"
    return f"install the package {package}"
