"""Running a skill's script in an executor of others, google-adk's way (S0-1 to S0-8, S0-43 to S0-57, S0-67).

Only Python and shell scripts, arguments as google-adk writes them, ``execute_code`` in a thread. What it does better:
no stream of a script is without bounds for the model, a thread of its own keeps the loop's pool free, and a Python
script that outlives its time is no longer waited for. The owner's grants do not reach it: there is no way to pass them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from google.genai import types

from adk_skills_agent.adk.running.call import ScriptCall, ScriptRun
from adk_skills_agent.adk.skills.known import SKILL_FILE
from adk_skills_agent.errors import ErrorCode, UnsupportedScriptType
from adk_skills_agent.executors.code_values import CodeExecutionInput
from adk_skills_agent.executors.threads import TooLate, in_thread
from adk_skills_agent.scripts import ScriptArguments, build_argv, execution_id
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS, cut
from adk_skills_agent.scripts.plan import PYTHON_SUFFIXES, SHELL_SUFFIXES, check_types

if TYPE_CHECKING:
    from google.adk.code_executors import BaseCodeExecutor
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill


logger = logging.getLogger(__name__)

PAYLOAD_BYTES = 16 << 20
"""Of a skill's files together; beyond it the owner is warned (S0-48)."""
MAX_ERROR_CHARS = 200
_GRACE_SECONDS = 5.0
"""After a script's time, for an executor to notice it by itself."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What an executor told of a script."""

    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool = False
    files: tuple[GeneratedFile, ...] = ()
    skipped: tuple[str, ...] = field(default=())


async def run_in_executor(
    runtime: SkillRuntime, tool_context: ToolContext, call: ScriptCall, executor: BaseCodeExecutor
) -> ScriptRun:
    """Run a script in any executor; what goes wrong there is the answer.

    Raises:
        InvalidArguments: The arguments have the wrong types.
        UnsupportedScriptType: It is neither Python nor a shell script.
        SkillsError: The skill cannot be read.
    """
    argv = google_argv(call)
    suffix = PurePosixPath(call.path).suffix.lower()
    if suffix not in (*PYTHON_SUFFIXES, *SHELL_SUFFIXES):
        kind = f"'{suffix}'" if suffix else "(no extension)"
        raise UnsupportedScriptType(f"Unsupported script type {kind}. Supported types: .py, .sh, .bash")
    shell = suffix in SHELL_SUFFIXES
    nonce = secrets.token_hex(16) if runtime.save_output_artifacts else None
    code = await asyncio.to_thread(_program, call, argv, shell, runtime.adk_executor_timeout, nonce)
    agent = tool_context.agent_name
    code_input = CodeExecutionInput(
        code=code,
        execution_id=execution_id(call.skill.name, str(tool_context.session.id), agent),
        timeout_seconds=runtime.adk_executor_timeout,
    )
    try:
        # The attribute is read here, in the task: an executor of ours learns from it whose call this is.
        execute = executor.execute_code
        invocation = tool_context.get_invocation_context()
        result = await in_thread(lambda: execute(invocation, code_input), runtime.adk_executor_timeout + _GRACE_SECONDS)
        if not hasattr(result, "stdout"):
            raise TypeError(f"the executor answered with a {type(result).__name__} instead of a result")
        told = _told(result, shell, nonce)
    except SystemExit as error:
        return _exited(call, error)
    except TooLate:
        logger.warning("the executor did not end %s in time; its thread is left alone", call.path)
        seconds = f"{runtime.adk_executor_timeout:g}s"
        told = _Told("", f"Timed out after {seconds}", -1, timed_out=True)
        return await _run_of(runtime, tool_context, call, told)
    except Exception as error:  # each executor has its own exceptions; the model gets one code for all
        logger.exception("Error executing script '%s' from skill '%s'", call.path, call.skill.name)
        return ScriptRun(_failed(call, f"\n{type(error).__name__}: {error}", runtime))
    return await _run_of(runtime, tool_context, call, told)


def google_argv(call: ScriptCall) -> list[str]:
    """The arguments as google-adk writes them: ``{"count": 3}`` is ``--count 3``, true is ``--flag True``.

    Raises:
        InvalidArguments: One has the wrong type, a NUL byte or too many bytes.
    """
    check_types(call.arguments)
    args, positional = call.arguments.args, call.arguments.positional_args
    argv: list[object] = []
    if isinstance(args, (list, tuple)):
        argv += args
    else:
        for dashes, options in (("--", args), ("-", call.arguments.short_options)):
            if isinstance(options, Mapping):
                argv += [part for key, value in options.items() for part in (f"{dashes}{key}", value)]
        if isinstance(positional, (list, tuple)) and positional:
            argv += ["--", *positional]
    return list(build_argv(ScriptArguments([str(element) for element in argv])))


def _program(call: ScriptCall, argv: list[str], shell: bool, seconds: float, nonce: str | None) -> str:
    files, executable = _files(call.skill)
    call.check_version()
    total = sum(len(content) for content in files.values())
    if total > PAYLOAD_BYTES:
        logger.warning(
            "Skill '%s' resources total %d bytes, exceeding the recommended limit of %d bytes. Our own executors mount "
            "the folder instead.",
            call.skill.name,
            total,
            PAYLOAD_BYTES,
        )
    files |= {file.path: file.content for file in call.inputs}
    return skill_program(
        files, call.path, argv, shell=shell, timeout_seconds=seconds, executable=executable, nonce=nonce
    )


def _files(skill: KnownSkill) -> tuple[dict[str, str | bytes], tuple[str, ...]]:
    paths = skill.files() if skill.in_memory else (SKILL_FILE, *skill.files())
    files: dict[str, str | bytes] = {}
    for path in paths:
        content = skill.read_bytes(path)
        try:
            # Text makes a program that is a third of the size, and can be read.
            files[path] = content if b"\0" in content else content.decode()
        except UnicodeDecodeError:
            files[path] = content
    executable = () if skill.in_memory else tuple(file.path for file in skill.local().files() if file.executable)
    return files, executable


def _told(result: Any, shell: bool, nonce: str | None) -> _Told:
    """What a result says; an executor's own output files are taken too (S0-66)."""
    stdout, stderr = str(result.stdout or ""), str(getattr(result, "stderr", None) or "")
    stdout, files, skipped = _without_files(stdout, nonce)
    exit_code = getattr(result, "exit_code", None)
    exit_code = exit_code if isinstance(exit_code, int) else None
    timed_out = False
    if shell:
        envelope = _envelope(stdout)
        exit_code = None
        if envelope is None:
            logger.debug("the executor returned no envelope of a shell script")
        else:
            stdout, stderr = str(envelope.get("stdout") or ""), str(envelope.get("stderr") or "")
            code = envelope.get("returncode", 0)
            exit_code = code if isinstance(code, int) else 1
            timed_out = bool(envelope.get("timeout"))
            if exit_code != 0 and not timed_out:
                stderr = f"{stderr.rstrip()}\nExit code {exit_code}" if stderr else f"Exit code {exit_code}"
    own = [
        GeneratedFile(str(file.name), _content(file.content), str(file.mime_type or "application/octet-stream"))
        for file in (getattr(result, "output_files", None) or () if nonce is not None else ())
    ]
    return _Told(stdout, stderr, exit_code, timed_out, (*files, *own), tuple(skipped))


def _envelope(stdout: str) -> Mapping[str, Any] | None:
    """The script's own result, from the last line that is one; other processes may have printed before it."""
    for line in (stdout, *reversed(stdout.splitlines())):
        text = line.strip()
        if not (text.startswith("{") and text.endswith("}")):
            continue
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("__shell_result__"):
            return found
    return None


def _without_files(stdout: str, nonce: str | None) -> tuple[str, list[GeneratedFile], list[str]]:
    marker = f"\n{GENERATED_FILES}{nonce}:"
    before, found, rest = stdout.partition(marker)
    if nonce is None or not found:
        return stdout, [], []
    line, _, after = rest.partition("\n")
    try:
        told = json.loads(line)
        files = [
            GeneratedFile(one["path"], base64.b64decode(one["content_b64"]), one["mime_type"]) for one in told["files"]
        ]
        return before + after, files, [str(path) for path in told["skipped_paths"]]
    except (ValueError, KeyError, TypeError):
        logger.warning("the files that a script left came back broken; the executor cut its output")
        return before + after, [], []


def _content(content: str | bytes) -> bytes:
    """google-adk's files are bytes, or base64 as text."""
    if isinstance(content, bytes):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return content.encode("utf-8", "replace")


async def _run_of(runtime: SkillRuntime, tool_context: ToolContext, call: ScriptCall, told: _Told) -> ScriptRun:
    stdout, stderr = _without_secrets(runtime, told.stdout), _without_secrets(runtime, told.stderr)
    status = "success"
    if (told.exit_code is not None and told.exit_code != 0) or (stderr and not stdout):
        status = "error"
    elif stderr:
        status = "warning"
    saved, skipped = await save_generated(tool_context, told.files)
    streams = {
        name: await save_stream(tool_context, call, name, text) if len(text) > MODEL_STREAM_CHARS else None
        for name, text in (("stdout", stdout), ("stderr", stderr))
    }
    answer: dict[str, object] = {
        "skill_name": call.skill.name,
        "file_path": call.asked,
        "stdout": cut(stdout, MODEL_STREAM_CHARS, artifact=streams["stdout"]),
        "stderr": cut(stderr, MODEL_STREAM_CHARS, artifact=streams["stderr"]),
        "status": status,
        "timed_out": told.timed_out,
    }
    if told.exit_code is not None:
        answer["return_code"] = told.exit_code
    if status == "error":
        answer["reason"] = "timeout" if told.timed_out else "exit_code"
    artifacts = [*saved, *(name for name in streams.values() if name)]
    if told.files:
        answer["output_files"] = [
            {"name": file.path, "mime_type": file.mime_type, "size": len(file.content)} for file in told.files
        ]
    if artifacts:
        answer["saved_artifacts"] = artifacts
    if told.skipped or skipped:
        answer["skipped_artifacts"] = [*told.skipped, *skipped]
        logger.warning(
            "files of script %s did not become artifacts: %s", call.path, ", ".join((*told.skipped, *skipped))
        )
    return ScriptRun(answer, told.exit_code, len(stdout.encode()), len(stderr.encode()), len(told.files))


def _without_secrets(runtime: SkillRuntime, text: str) -> str:
    """Nothing is granted to an executor of others, but a script may find a secret by itself."""
    forms = runtime.grants.forms
    return text if forms is None else forms.text(text)


def _exited(call: ScriptCall, error: SystemExit) -> ScriptRun:
    """An executor that runs code in this process lets ``sys.exit()`` through (S0-68 to S0-70)."""
    if error.code in (None, 0):
        answer: dict[str, object] = {
            "skill_name": call.skill.name,
            "file_path": call.asked,
            "stdout": "",
            "stderr": "",
            "status": "success",
            "return_code": 0,
            "timed_out": False,
        }
        return ScriptRun(answer, 0)
    code = error.code if isinstance(error.code, int) else 1
    return ScriptRun(_failed(call, f" exited with code {error.code}") | {"return_code": code}, code)


def _failed(call: ScriptCall, cause: str, runtime: SkillRuntime | None = None) -> dict[str, object]:
    text = f"Failed to execute script '{call.asked[:80]}':{cause}"
    if runtime is not None:
        text = _without_secrets(runtime, text)
    if len(text) > MAX_ERROR_CHARS:
        text = text[: MAX_ERROR_CHARS - 3] + "..."
    return {"error": text, "error_code": ErrorCode.EXECUTION_ERROR.value, "status": "error"}


# The program that carries a skill into an executor of others: it unpacks the files, runs the script and tells of it.
#
# An executor of google-adk's takes Python source and nothing else. So everything is in the source: the files as
# literals (S0-43 to S0-45), the call, and for a shell script an envelope of JSON around its result (S0-53), because
# the program's own exit code is not the script's.

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


# Files that a script left in an executor of others, as artifacts, within google-adk's bounds (S0-66).


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file a script left.

    Attributes:
        path: Relative to where it ran.
        content: All of it.
        mime_type: Its type.
    """

    path: str
    content: bytes
    mime_type: str


async def save_generated(tool_context: ToolContext, files: Sequence[GeneratedFile]) -> tuple[list[str], list[str]]:
    """Save files as artifacts.

    Returns:
        The names that were saved, and the paths that were not.
    """
    if files and tool_context.get_invocation_context().artifact_service is None:
        logger.warning("a script left %d file(s), and the application keeps no artifacts", len(files))
        return [], [file.path for file in files]
    saved: list[str] = []
    skipped: list[str] = []
    total = 0
    for file in files:
        size = len(file.content)
        fits = size <= MAX_FILE_BYTES and total + size <= MAX_TOTAL_BYTES and len(saved) < MAX_FILES
        path = PurePosixPath(file.path.replace("\\", "/"))
        # "user:" would share the file with all sessions of the user; a script must not choose that.
        is_safe = not path.is_absolute() and ".." not in path.parts and not str(path).startswith("user:") and path.name
        if fits and is_safe and await _save(tool_context, str(path), file.content, file.mime_type):
            saved.append(str(path))
            total += size
        else:
            skipped.append(file.path)
    return saved, skipped


async def save_stream(tool_context: ToolContext, call: ScriptCall, stream: str, text: str) -> str | None:
    """Save what a script printed, when it is too long for a model; the artifact's name, or None."""
    if tool_context.get_invocation_context().artifact_service is None:
        return None
    name = f"{call.skill.name}.{PurePosixPath(call.path).stem}.{stream}.txt"
    return name if await _save(tool_context, name, text.encode("utf-8", "replace"), "text/plain") else None


async def _save(tool_context: ToolContext, name: str, content: bytes, mime_type: str) -> bool:
    try:
        await tool_context.save_artifact(name, types.Part.from_bytes(data=content, mime_type=mime_type))
    except Exception:  # each artifact service has its own exceptions; the script's result must survive all of them
        logger.exception("artifact %r of %d bytes was not saved", name, len(content))
        return False
    return True
