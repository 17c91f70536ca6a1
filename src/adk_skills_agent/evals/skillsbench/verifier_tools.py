"""Commands that stand before a verifier's own, for what its ``test.sh`` wants from the network and need not.

Nearly every ``test.sh`` installs pytest first, many through ``curl -LsSf https://astral.sh/uv/install.sh | sh``. Here
that gives the uv which was fetched once from PyPI; with ``--verifier-network off``, apt-get says that what is
installed is there, and pip and uv take packages from a folder of wheels.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import platform
import shutil
import sys
import urllib.parse
import urllib.request
import uuid
import zipfile
from pathlib import Path

from adk_skills_agent.evals.skillsbench.environment import BuildError

TOOLS = "/opt/adk-skills-verifier"
WHEELS = "/opt/adk-skills-wheels"
_INDEX = "https://pypi.org/pypi/uv/json"
_MAX_WHEEL_BYTES = 200 << 20
_SECONDS = 120

_FIND_REAL = f"""
here={TOOLS}
real() {{
  name=$1; shift
  IFS=:
  for folder in $PATH; do
    if [ "$folder" != "$here" ] && [ -x "$folder/$name" ]; then unset IFS; exec "$folder/$name" "$@"; fi
  done
  echo "$name: not found" >&2
  exit 127
}}
"""
_CURL = (
    """#!/bin/sh
# The installer of uv comes from here; everything else is the real %(name)s's.
"""
    + "%(find)s"
    + """
out=; next=
for word; do
  if [ -n "$next" ]; then out=$word; next=; continue; fi
  case "$word" in
    %(flag)s) next=1 ;;
    https://astral.sh/uv/*install.sh) found=1 ;;
  esac
done
if [ -n "$found" ]; then
  if [ -n "$out" ] && [ "$out" != - ]; then cat %(tools)s/install-uv.sh >"$out"; else cat %(tools)s/install-uv.sh; fi
  exit 0
fi
real %(name)s "$@"
"""
)
_INSTALLER = """#!/bin/sh
set -e
folder="${UV_INSTALL_DIR:-$HOME/.local/bin}"
mkdir -p "$folder"
cp %(tools)s/bin/uv %(tools)s/bin/uvx "$folder"/
printf 'case ":$PATH:" in *:"%%s":*) ;; *) export PATH="%%s:$PATH" ;; esac\\n' "$folder" "$folder" >"$folder/env"
echo "uv is in $folder" >&2
"""
_APT = """#!/bin/sh
# There is no network: what is installed is there, what is not cannot be had.
verb=
for word; do
  case "$word" in
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$word
       elif [ "$verb" = install ] && ! dpkg -s "${word%%=*}" >/dev/null 2>&1; then
         echo "E: ${word} is not installed, and the verifier has no network (--verifier-network)" >&2; exit 100
       fi ;;
  esac
done
exit 0
"""


def write_tools(folder: Path, uv: Path | None, *, network: bool) -> None:
    """Write the commands into an empty folder, to be given to the environment as ``TOOLS``.

    ``uv`` is a folder with the programs ``uv`` and ``uvx``; None leaves its installer to the network. Without a
    network, ``apt-get`` and ``apt`` are among the commands.
    """
    (folder / "bin").mkdir(parents=True)
    texts = {}
    if uv is not None:
        for name in ("uv", "uvx"):
            shutil.copyfile(uv / name, folder / "bin" / name)
            (folder / "bin" / name).chmod(0o755)
        texts = {
            "install-uv.sh": _INSTALLER % {"tools": TOOLS},
            "curl": _CURL % {"name": "curl", "find": _FIND_REAL, "flag": "-o|--output", "tools": TOOLS},
            "wget": _CURL % {"name": "wget", "find": _FIND_REAL, "flag": "-O|-qO|--output-document", "tools": TOOLS},
        }
    if not network:
        texts |= {"apt-get": _APT, "apt": _APT}
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def tool_environment(path: str, *, network: bool, wheels: bool) -> tuple[tuple[str, str], ...]:
    """Variables of the verifier: the tools come first; without a network pip and uv do not try it."""
    env = {"PATH": f"{TOOLS}:{path}"}
    if wheels:
        env |= {"PIP_FIND_LINKS": WHEELS, "UV_FIND_LINKS": WHEELS}
    if not network:
        env |= {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}
        if wheels:
            env["UV_NO_INDEX"] = "1"
    return tuple(env.items())


async def uv_programs(store: Path) -> Path:
    """A folder with ``uv`` and ``uvx``, fetched once from PyPI; those beside this Python are taken first.

    Raises ``BuildError`` when there are none, and PyPI cannot be reached.
    """
    folder = store / "tools" / "uv"
    if not (folder / "uvx").is_file():
        await asyncio.to_thread(_get_uv, folder)
    return folder


def _get_uv(folder: Path) -> None:
    aside = folder.with_name(f".uv-{uuid.uuid4().hex[:8]}")
    aside.mkdir(parents=True)
    try:
        beside = Path(sys.executable).parent
        if (beside / "uvx").is_file() and _is_program(beside / "uv"):
            for name in ("uv", "uvx"):
                shutil.copyfile(beside / name, aside / name)
        else:
            _fetch_uv(aside)
        for name in ("uv", "uvx"):
            (aside / name).chmod(0o755)
        if not folder.exists():
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _is_program(path: Path) -> bool:
    """Whether it is the program itself and not a script that would need its Python."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _fetch_uv(folder: Path) -> None:
    tag = f"musllinux_1_1_{platform.machine()}"
    try:
        with urllib.request.urlopen(_INDEX, timeout=_SECONDS) as answer:
            files = json.load(answer)["urls"]
        wheel = next(
            file for file in files if file["filename"].endswith(".whl") and (tag in file["filename"] or _plain(file))
        )
        address = urllib.parse.urljoin(_INDEX, wheel["url"])  # mirrors of the index name it relative to themselves
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310  # of the index
            content = answer.read(_MAX_WHEEL_BYTES)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise BuildError(f"uv, which most verifiers install, cannot be fetched from {_INDEX}: {error!r}.") from error
    if hashlib.sha256(content).hexdigest() != wheel["digests"]["sha256"]:
        raise BuildError(f"{wheel['url']} is not the file the index names; it is not used.")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if os.path.basename(name) in {"uv", "uvx"} and "/scripts/" in name:  # noqa: PTH119  # not a path here
                (folder / os.path.basename(name)).write_bytes(archive.read(name))  # noqa: PTH119


def _plain(file: dict[str, str]) -> bool:
    return "manylinux" in file["filename"] and platform.machine() in file["filename"]
