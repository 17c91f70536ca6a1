"""How this package was installed, and so the command that adds one of its extras.

The distribution on PyPI is ``adk-skills-runtime``; it is imported as ``adk_skills_agent``. Every hint to install
something of ours comes from ``install_hint``.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path

DISTRIBUTION = "adk-skills-runtime"


class InstalledBy(StrEnum):
    """What put this package into its environment."""

    PIP = "pip"
    UV = "uv pip"
    UV_PROJECT = "uv project"
    UV_TOOL = "uv tool"
    PIPX = "pipx"
    CHECKOUT = "checkout"
    OUR_CHECKOUT = "checkout with tools/setup"


def install_hint(extra: str = "") -> str:
    """The command that installs an extra of this package, for the environment this interpreter runs in.

    It names no folder of this machine, so that it may stand in a message for the model, too.

    Args:
        extra: The extra, such as ``container``; empty for the package itself.
    """
    quote = '"' if sys.platform == "win32" else "'"  # cmd.exe knows no single quotes
    suffix = f"[{extra}]" if extra else ""
    wanted = f"{quote}{DISTRIBUTION}{suffix}{quote}" if extra else DISTRIBUTION
    match installed_by():
        case InstalledBy.OUR_CHECKOUT:
            return f"tools/setup --extra {extra}" if extra else "tools/setup"
        case InstalledBy.CHECKOUT:
            program = "uv pip" if _uv_made_the_environment() else "pip"
            return f"{program} install -e {quote}.{suffix}{quote} in the checkout of {DISTRIBUTION}"
        case InstalledBy.UV_PROJECT:
            return f"uv add {wanted}"
        case InstalledBy.UV_TOOL:
            return f"uv tool install {wanted}"
        case InstalledBy.UV:
            return f"uv pip install {wanted}"
        case InstalledBy.PIPX:
            return f"pipx install --force {wanted}"
        case InstalledBy.PIP:
            return f"pip install {wanted}"


def installed_by() -> InstalledBy:
    """What put this package where it is: its own record of the installation decides, then the environment's files."""
    environment = Path(sys.prefix)
    checkout = _editable_folder()
    if checkout is not None:
        ours = (checkout / "tools" / "setup").is_file() and environment == checkout / ".venv"
        return InstalledBy.OUR_CHECKOUT if ours else InstalledBy.CHECKOUT
    if (environment / "uv-receipt.toml").is_file():
        return InstalledBy.UV_TOOL
    if (environment / "pipx_metadata.json").is_file():
        return InstalledBy.PIPX
    if (environment.parent / "uv.lock").is_file():
        return InstalledBy.UV_PROJECT
    return InstalledBy.UV if _uv_made_the_environment() else InstalledBy.PIP


def _uv_made_the_environment() -> bool:
    """Whether uv made it: such an environment has no pip of its own."""
    try:
        lines = (Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)


def _editable_folder() -> Path | None:
    """The checkout this package is imported from, after PEP 610; None for a wheel or a copy."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        record = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    if not record.get("dir_info", {}).get("editable"):
        return None
    return Path(url2pathname(urlsplit(str(record.get("url", ""))).path))
