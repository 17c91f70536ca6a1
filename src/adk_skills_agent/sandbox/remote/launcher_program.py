"""The launcher's own text: the first that runs on another service's machine; see :mod:`.remote`.

Runs on Python 3.8. What it imports of this package is in the zip file with it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import zipfile
from typing import Any, Dict, Iterable, Tuple  # Python 3.8 there

from adk_skills_agent.sandbox.supervisor.process import end_orphans, guard

_PIECE_BYTES = 57 * 4096


def main() -> None:
    """Start the program with its frames, wait for its end, tell the answer."""
    bundle = os.path.abspath(sys.argv[0])
    with zipfile.ZipFile(bundle) as parts:
        job = json.loads(parts.read("job.json").decode("utf-8"))
        for folder in job["folders"]:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        request, answer, trouble = _nameless(job["home"], job["nonce"])
        with parts.open("request") as source, os.fdopen(os.dup(request), "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        program = parts.read("supervisor.py").decode("utf-8")
    os.unlink(bundle)
    os.lseek(request, 0, os.SEEK_SET)
    guard()
    status = _run(program, job["work"], (request, answer, trouble))
    end_orphans(None, 0.0)
    _empty(job["remove"])
    _tell(job, answer, trouble, status)


def _nameless(home: str, nonce: str) -> Tuple[int, int, int]:
    """Three files nobody else can open."""
    found = []
    for name in ("request", "answer", "trouble"):
        path = os.path.join(home, name + "-" + nonce)
        found.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(path)
    return found[0], found[1], found[2]


def _run(program: str, work: str, channel: Tuple[int, int, int]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            for number, descriptor in enumerate(channel):
                os.dup2(descriptor, number)
            for descriptor in channel:
                os.close(descriptor)
            os.chdir(work)
            os.execv(sys.executable, [sys.executable, "-I", "-c", program])  # noqa: S606
        finally:
            os._exit(127)
    while True:
        ended, status = os.wait()
        if ended == pid:
            return status


def _empty(folders: Iterable[str]) -> None:
    for folder in folders:
        try:
            os.chmod(folder, 0o700)  # the script may have taken its own permissions away
        except OSError:
            continue
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                # Not shutil's: folders in folders, as deep as a script could make them, end in a RecursionError there.
                subprocess.call(["chmod", "-R", "u+rwX", path], stderr=subprocess.DEVNULL)  # noqa: S607
                subprocess.call(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL)  # noqa: S607
            else:
                os.unlink(path)


def _tell(job: Dict[str, Any], answer: int, trouble: int, status: int) -> None:
    nonce = job["nonce"]
    size = os.lseek(answer, 0, os.SEEK_END)
    os.lseek(answer, 0, os.SEEK_SET)
    if size == 0:
        os.lseek(trouble, 0, os.SEEK_SET)
        _say("{} failed {}".format(nonce, json.dumps([status, os.read(trouble, 4000).decode("utf-8", "replace")])))
        return
    with os.fdopen(answer, "rb") as source:
        if job["inline"] is not None and size > job["inline"]:
            with open(job["answer"], "xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            _say("{} file {}".format(nonce, size))
            return
        _say("{} inline {}".format(nonce, size))
        while True:
            piece = source.read(_PIECE_BYTES)
            if not piece:
                break
            _say(base64.b64encode(piece).decode("ascii"))
    try:
        os.rmdir(job["home"])
    except OSError:
        pass  # others are in it
    _say(nonce + " end")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
