"""Opponents that need an environment of their own, made from a lock with hashes; and the versions of all of them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys

from subjects import HERE
from table import say

_ENVIRONMENT = HERE.parent / ".venv-bench-pydantic-ai-skills"
_LOCK = HERE / "pydantic-ai-skills.txt"


def pydantic_ai_python() -> tuple[str | None, str]:
    """The interpreter with pydantic-ai-skills in it, made when it is missing; or None and why there is none."""
    python = _ENVIRONMENT / "bin" / "python"
    stamp = _ENVIRONMENT / ".made-from"
    wanted = _LOCK.read_text()
    if stamp.is_file() and stamp.read_text() == wanted and python.exists():
        return str(python), ""
    say("installing pydantic-ai-skills into an environment of its own")
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    uv = beside if os.access(beside, os.X_OK) else shutil.which("uv")
    if uv is None:
        return None, "uv is not installed"
    env = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    shutil.rmtree(_ENVIRONMENT, ignore_errors=True)
    install = ["pip", "install", "--require-hashes", "--compile-bytecode", "--python", python, "-r", _LOCK]
    for command in (["venv", "--python", sys.executable, _ENVIRONMENT], install):
        done = subprocess.run([uv, *command], capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            return None, f"it cannot be installed here: {done.stderr.strip().splitlines()[-1]}"
    stamp.write_text(wanted)
    return str(python), ""


def machine() -> dict[str, object]:
    """What a reader must know to compare numbers: versions, kernel, cores, load."""
    names = ("adk-skills-runtime", "google-adk", "pyyaml")
    facts: dict[str, object] = {name: importlib.metadata.version(name) for name in names}
    locked = next(line for line in _LOCK.read_text().splitlines() if line.startswith("pydantic-ai-skills=="))
    facts |= {"pydantic-ai-skills": locked.partition("==")[2].split()[0], "python": platform.python_version()}
    facts |= {"kernel": f"{platform.system()} {platform.release()} {platform.machine()}", "cores": os.cpu_count()}
    return facts | {"load": round(os.getloadavg()[0], 1), "user": "root" if os.geteuid() == 0 else "without privileges"}
