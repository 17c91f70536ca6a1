"""The program that carries a skill into an executor of others: it unpacks the files, runs the script and tells of it.

An executor of google-adk's takes Python source and nothing else. So everything is in the source: the files as literals
(S0-43 to S0-45), the call, and for a shell script an envelope of JSON around its result (S0-53), because the program's
own exit code is not the script's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

GENERATED_FILES = "__ADK_SKILL_GENERATED_FILES__:"
"""Begins the line that holds the files a script left, with a number used once, so that no script can forge it."""
MAX_FILE_BYTES = 5 << 20
MAX_TOTAL_BYTES = 16 << 20
MAX_FILES = 50
"""google-adk's bounds of what becomes artifacts."""

_START = """\
import json as _json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
_files = {files!r}
_executable = {executable!r}
def _materialize_and_run():
  _before = os.getcwd()
  td = os.path.realpath(tempfile.mkdtemp())
  try:
    for _name, content in _files.items():
      _target = os.path.normpath(os.path.join(td, _name))
      if os.path.commonpath([td, _target]) != td or _target == td:
        raise PermissionError('Path outside of the skill: ' + repr(_name))
      os.makedirs(os.path.dirname(_target), exist_ok=True)
      mode = 'wb' if isinstance(content, bytes) else 'w'
      with open(_target, mode, encoding='utf-8' if mode == 'w' else None, newline='' if mode == 'w' else None) as _out:
        _out.write(content)
      if _name in _executable:
        os.chmod(_target, 0o755)
    _known = {{}}
    for _folder, _, _names in os.walk(td):
      for _name in _names:
        _status = os.lstat(os.path.join(_folder, _name))
        _known[os.path.join(_folder, _name)] = (_status.st_size, _status.st_mtime_ns)
    os.chdir(td)
    try:
"""

_PYTHON = """\
      sys.argv = {argv!r}
      sys.path.insert(0, os.path.dirname(os.path.abspath({path!r})))
      try:
        runpy.run_path({path!r}, run_name='__main__')
      except SystemExit as _end:
        if _end.code not in (None, 0):
          raise
"""

_SHELL = """\
      try:
        _run = subprocess.run(
          {argv!r}, cwd=td, stdin=subprocess.DEVNULL, capture_output=True, timeout={timeout!r},
          encoding='utf-8', errors='replace',
        )
        _told = dict(stdout=_run.stdout, stderr=_run.stderr, returncode=_run.returncode)
      except subprocess.TimeoutExpired as _late:
        _kept = _late.stdout.decode('utf-8', 'replace') if isinstance(_late.stdout, bytes) else _late.stdout
        _told = dict(stdout=_kept or '', stderr='Timed out after {timeout}s', returncode=-1, timeout=True)
      print('\\n' + _json.dumps(dict(__shell_result__=True, **_told)))
"""

_COLLECT = """\
    finally:
      sys.stdout.flush()
      import base64, mimetypes, stat
      _left, _skipped, _total = [], [], 0
      for _folder, _folders, _names in os.walk(td):
        _folders[:] = [_one for _one in _folders if _one != '__pycache__']
        for _name in sorted(_names):
          _full = os.path.join(_folder, _name)
          _path = os.path.relpath(_full, td)
          try:
            _status = os.lstat(_full)
            if not stat.S_ISREG(_status.st_mode) or _name.endswith('.pyc'):
              continue
            if _known.get(_full) == (_status.st_size, _status.st_mtime_ns):
              continue
            if _status.st_size > {max_file} or _total + _status.st_size > {max_total} or len(_left) >= {max_files}:
              _skipped.append(_path)
              continue
            with open(_full, 'rb') as _in:
              _data = _in.read()
          except OSError:
            _skipped.append(_path)
            continue
          _total += len(_data)
          _kind = mimetypes.guess_type(_path)[0] or 'application/octet-stream'
          _left.append(dict(path=_path, content_b64=base64.b64encode(_data).decode(), mime_type=_kind))
      if _left or _skipped:
        print('\\n' + {marker!r} + _json.dumps(dict(files=_left, skipped_paths=_skipped[:{max_files}])))
      os.chdir(_before)
"""

_END = """\
    finally:
      os.chdir(_before)
"""

_RUN = """\
  finally:
    shutil.rmtree(td, ignore_errors=True)
_materialize_and_run()
"""


def skill_program(
    files: Mapping[str, str | bytes],
    path: str,
    argv: Sequence[str],
    *,
    shell: bool,
    timeout_seconds: float,
    executable: Collection[str] = (),
    nonce: str | None = None,
) -> str:
    """The source of the program.

    Args:
        files: Content by path relative to the skill's root; text is written as UTF-8.
        path: The script among them.
        argv: Its arguments.
        shell: Whether bash runs it; else it is Python, and runs in the program itself.
        timeout_seconds: For a shell script; Python's time is the executor's business.
        executable: Paths that get the executable bit.
        nonce: Set to get the files it leaves back on stdout.
    """
    timeout = int(timeout_seconds) if float(timeout_seconds).is_integer() else timeout_seconds
    parts = [_START.format(files=dict(files), executable=tuple(sorted(executable)))]
    if shell:
        parts.append(_SHELL.format(argv=["bash", path, *argv], timeout=timeout))
    else:
        parts.append(_PYTHON.format(argv=[path, *argv], path=path))
    if nonce is None:
        parts.append(_END)
    else:
        limits = {"max_file": MAX_FILE_BYTES, "max_total": MAX_TOTAL_BYTES, "max_files": MAX_FILES}
        parts.append(_COLLECT.format(marker=f"{GENERATED_FILES}{nonce}:", **limits))
    return "".join([*parts, _RUN])
