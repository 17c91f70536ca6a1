"""What runs first on another service's machine: one file that has the box's program and everything the run needs in it.

A zip file that Python starts (``python3 -I FILE``). It makes the run's folders, lets the program of :mod:`.box_program`
have the frames as its input, and tells the answer on its standard output, behind a number used once. The program's
output is a file without a name: nothing that runs there can write to it, and by the time it is told, nothing of the
run is left.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.sandbox.box_program import program_text

_MAIN = Path(__file__).with_name("remote_main.py")

_INSIDE_PYTHON = """\
import base64 as _base64, os as _os, shutil as _shutil, subprocess as _subprocess, sys as _sys, tempfile as _tempfile
_home = _os.path.realpath({home!r})
_os.makedirs(_home, mode=0o700, exist_ok=True)
try:
  with open(_os.path.join(_home, 'bundle'), 'wb') as _file:
    _file.write(_base64.b64decode({bundle!r}))
  _run = _subprocess.run(
    [_sys.executable or 'python3', '-I', _os.path.join(_home, 'bundle')], stdin=_subprocess.DEVNULL,
    stdout=_subprocess.PIPE, stderr=_subprocess.STDOUT,
  )
  print('\\n' + _run.stdout.decode('utf-8', 'replace'))
finally:
  _shutil.rmtree(_home, ignore_errors=True)
"""


class AnswerError(ValueError):
    """What came back is not what the launcher tells."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run on a remote machine; all paths are the remote machine's.

    Attributes:
        nonce: Begins the launcher's lines.
        home: Where the launcher's own files are.
        work: The workspace; it is the program's working directory.
        folders: Made when they are missing.
        remove: Emptied at the end.
        inline: Most bytes of an answer told on standard output, a larger one becomes a file; None for no bound.
    """

    nonce: str
    home: str
    work: str
    folders: tuple[str, ...]
    remove: tuple[str, ...]
    inline: int | None

    @property
    def bundle(self) -> str:
        """Where the launcher itself is put."""
        return f"{self.home}/bundle-{self.nonce}"

    @property
    def answer(self) -> str:
        """Where a large answer is."""
        return f"{self.home}/answer-{self.nonce}.frames"


def bundle(job: Job, request: bytes) -> bytes:
    """The launcher with everything in it.

    Args:
        job: The run.
        request: Its frames.
    """
    packed = io.BytesIO()
    told = {
        "nonce": job.nonce,
        "home": job.home,
        "work": job.work,
        "folders": [job.home, *job.folders],
        "remove": list(job.remove),
        "inline": job.inline,
        "answer": job.answer,
    }
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as parts:
        parts.writestr("__main__.py", _MAIN.read_text(encoding="utf-8"))
        parts.writestr("job.json", json.dumps(told))
        parts.writestr("box.py", program_text())
        parts.writestr("request", request)
    return packed.getvalue()


def as_code(job: Job, packed: bytes) -> str:
    """The same as Python code, for a service that runs nothing else; the home is its own and is removed."""
    return _INSIDE_PYTHON.format(home=job.home, bundle=base64.b64encode(packed).decode("ascii"))


def told(nonce: str, stdout: str) -> bytes | int:
    """What a launcher told: the answer, or the size of the file it is in.

    Args:
        nonce: Of the job.
        stdout: All that came back; others may have printed before and after.

    Raises:
        AnswerError: There is no answer, with what is known of why.
    """
    start = re.search(rf"^{nonce} (inline|file|failed) (.*)$", stdout, re.MULTILINE)
    if start is None:
        raise AnswerError("it did not start the program that was sent, or its output was cut")
    kind, rest = start[1], start[2].strip()
    if kind == "failed":
        raise AnswerError(f"the program that was sent did not run: {_trouble(rest)}")
    size = int(rest) if rest.isdecimal() and len(rest) < 16 else -1
    if kind == "file":
        return size
    text, end, _ = stdout[start.end() :].partition(f"\n{nonce} end")
    if not end:
        raise AnswerError("its output was cut before the end of the answer")
    try:
        answer = b"".join(binascii.a2b_base64(line) for line in text.split())
    except ValueError:
        raise AnswerError("its output was changed on the way") from None
    if len(answer) != size:
        raise AnswerError("its output was changed on the way")
    return answer


def _trouble(rest: str) -> str:
    try:
        status, said = json.loads(rest)
    except (ValueError, TypeError):
        return "no reason is known"
    last = str(said).strip().splitlines()[-1:] or [f"status {status}"]
    return last[0][:200]
