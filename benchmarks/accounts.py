"""Who runs the sides of a measurement: this user, and, when that is root, a user without privileges, too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from script_skills import make_skills
from subjects import HERE, Account

PLAIN_UID = 61_235
"""Owns nothing on any machine and runs nothing else, so that its limit of processes is the measurement's own."""
_COMPILED = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")


@contextmanager
def this_user() -> Iterator[Account]:
    """The current user, with folders of its own and compiled bytecode."""
    with TemporaryDirectory(prefix="adk-skills-bench-") as name:
        folder = Path(name)
        env = {key: value for key, value in os.environ.items() if key not in _COMPILED}
        env |= {"PYTHONPYCACHEPREFIX": f"{name}/bytecode", "HOME": f"{name}/home", "XDG_CACHE_HOME": f"{name}/cache"}
        env |= {"ADK_SKILLS_SANDBOX_CACHE": f"{name}/skill-cache"}
        if os.geteuid() == 0:
            # As root the run itself is another user, who must be able to get to the copy of a skill.
            folder.chmod(0o711)
        make_skills(folder / "skills")
        yield Account(sys.executable, env, folder)


@contextmanager
def plain_user() -> Iterator[Account | str]:
    """A user without privileges, with a copy of the library; or why there is none."""
    if os.geteuid() != 0:
        yield "this user has no privileges already"
        return
    with TemporaryDirectory(prefix="adk-skills-bench-user-", dir="/tmp") as name:
        folder = Path(name)
        for part in ("src", "benchmarks"):
            shutil.copytree(HERE.parent / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "packages").symlink_to(sysconfig.get_paths()["purelib"])
        make_skills(folder / "skills")
        for place, names, files in os.walk(folder):
            for item in (place, *(os.path.join(place, each) for each in (*names, *files))):
                os.chown(item, PLAIN_UID, PLAIN_UID, follow_symlinks=False)
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": name, "PYTHONPYCACHEPREFIX": f"{name}/bytecode"}
        env |= {"PYTHONPATH": f"{name}/src:{name}/packages", "LANG": "C.UTF-8"}
        python, problem = _python_for_others(env, folder)
        yield problem if python is None else Account(python, env, folder, PLAIN_UID)


def _python_for_others(env: dict[str, str], folder: Path) -> tuple[str | None, str]:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import sys, google.adk, adk_skills_agent, yaml; print('%d.%d' % sys.version_info[:2])"
    said = ""
    for candidate in (f"/usr/bin/python{version}", f"/usr/local/bin/python{version}", sys.executable):
        try:
            done = subprocess.run(
                [candidate, "-c", code],
                user=PLAIN_UID,
                group=PLAIN_UID,
                extra_groups=[],
                env=env,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            said = f"{candidate}: {error.strerror}"
            continue
        if done.stdout.strip() == version:
            return candidate, ""
        said = (done.stderr.strip().splitlines() or [said])[-1]
    return None, f"no Python {version} with the library's packages that other users may run ({said})"
