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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.foreign_artifacts import GeneratedFile, save_generated, save_stream
from adk_skills_agent.adk.foreign_program import GENERATED_FILES, skill_program
from adk_skills_agent.adk.known_skill import SKILL_FILE
from adk_skills_agent.adk.script_call import ScriptCall, ScriptRun
from adk_skills_agent.errors import ErrorCode, UnsupportedScriptType
from adk_skills_agent.executors.code_input import CodeExecutionInput
from adk_skills_agent.executors.own_thread import TooLate, in_thread
from adk_skills_agent.scripts import ScriptArguments, build_argv, execution_id
from adk_skills_agent.scripts.arguments import check_types
from adk_skills_agent.scripts.interpreters import PYTHON_SUFFIXES, SHELL_SUFFIXES
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS, cut

if TYPE_CHECKING:
    from google.adk.code_executors import BaseCodeExecutor
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.known_skill import KnownSkill
    from adk_skills_agent.adk.skill_runtime import SkillRuntime

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
    code = await asyncio.to_thread(_program, call, argv, shell, runtime.foreign_timeout, nonce)
    agent = tool_context.agent_name
    code_input = CodeExecutionInput(
        code=code,
        execution_id=execution_id(call.skill.name, str(tool_context.session.id), agent),
        timeout_seconds=runtime.foreign_timeout,
    )
    try:
        # The attribute is read here, in the task: an executor of ours learns from it whose call this is.
        execute = executor.execute_code
        invocation = tool_context.get_invocation_context()
        result = await in_thread(lambda: execute(invocation, code_input), runtime.foreign_timeout + _GRACE_SECONDS)
        if not hasattr(result, "stdout"):
            raise TypeError(f"the executor answered with a {type(result).__name__} instead of a result")
        told = _told(result, shell, nonce)
    except SystemExit as error:
        return _exited(call, error)
    except TooLate:
        logger.warning("the executor did not end %s in time; its thread is left alone", call.path)
        seconds = f"{runtime.foreign_timeout:g}s"
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
    stdout, stderr = str(result.stdout or ""), str(result.stderr or "")
    stdout, files, skipped = _without_files(stdout, nonce)
    exit_code = result.exit_code if isinstance(result.exit_code, int) else None
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
        for file in (result.output_files or () if nonce is not None else ())
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
