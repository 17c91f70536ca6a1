"""Running a skill's script in an executor that runs Python code: google-adk's, and ours that keep state or run here.

Python, shell scripts, and what a ``#!`` line names (S0-1 to S0-8). The answer is the one our sandbox gives: the same
rules for arguments, statuses, codes and sentences (S0-34 to S0-66). An executor of ours hands over its whole result;
of any other counts what the program around the script reports, and else what the executor says. No executor is waited
for longer than the script's time and a little (S0-84, S1-6). The owner's grants do not reach one: there is no way to
pass them.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import logging
import os
import re
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from google.adk.code_executors import BaseCodeExecutor

from adk_skills_agent.adk.running import script_program
from adk_skills_agent.adk.running.call import ScriptCall, ScriptRun, saved_artifact
from adk_skills_agent.adk.skills.known import SKILL_FILE
from adk_skills_agent.errors import ErrorCode, ScriptError
from adk_skills_agent.executors.code_values import CodeExecutionInput, program_header, read_object
from adk_skills_agent.executors.remote import RemoteCodeExecutor, within_time
from adk_skills_agent.executors.sandboxed_code import SandboxedCodeExecutor
from adk_skills_agent.executors.threads import TooLate, in_thread
from adk_skills_agent.sandbox import (
    MAY_GO_ON,
    SKILL_DIR,
    SKILL_VARIABLES,
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    SandboxPolicy,
    Status,
    foreign_result,
    in_worker,
    log_exception,
    redacted_aside,
)
from adk_skills_agent.scripts import ScriptPlan, build_argv, execution_id, outcome_aside
from adk_skills_agent.scripts.interpreters import PYTHON
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime


logger = logging.getLogger(__name__)

PAYLOAD_BYTES = 16 << 20
"""Of a skill's files together; beyond it the owner is warned (S0-48)."""
_MOST_PAYLOAD_BYTES = 2 * PAYLOAD_BYTES
_MOST_TEXT_BYTES = 1 << 20
_GRACE_SECONDS = 3.0
"""After a script's time, for an executor to notice and to end it."""
_NO_LIMIT = 1e9
_PATH_BYTES = 4096
_MOST_NAMED = 100_000
_MOST_RETURNED = 2 * script_program.MAX_FILES
_MOST_REPORT_BYTES = 32 << 20  # what is left has 16 MiB, a third more as text, and the error output
_BEFORE = re.compile(rb"(?<![^\s\"'`(<\[=,:])[^\s\"'`(<\[=,:]*/$")
"""The folder that a path lies in, at the end of a text."""
_OF_EXECUTOR = re.compile(r"\n?Code execution (?:exited with status|timed out after) [\d.]+(?: seconds)?\.$")
"""The text that google-adk's local executor adds to a script's error output."""
KEPT_BYTES = 48 << 20
"""Of each stream: what an executor of others has returned is in memory already."""
_LOGGED_CHARS = 8_192
REPORT = "__ADK_SKILL_GENERATED_FILES__:"
"""google-adk's word for the line that holds what a script left."""


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file a script left."""

    path: str  # relative to where it ran
    mime_type: str
    size: int
    content: bytes | None  # all of it; None where nobody asked for it


@dataclass(frozen=True, slots=True)
class _Report:
    """The report of the program around a script."""

    exit_code: int | None  # of the script; None when it was interrupted
    timed_out: bool  # whether the program ended it
    stderr: str
    files: tuple[GeneratedFile, ...] = ()  # what it left
    skipped: tuple[str, ...] = field(default=())  # paths of what it left beyond the bounds


async def run_in_executor(
    runtime: SkillRuntime, tool_context: ToolContext, call: ScriptCall, executor: BaseCodeExecutor
) -> ScriptRun:
    """Run a script in any executor; what goes wrong there is the answer.

    Raises ``InvalidArguments`` when the arguments cannot be passed, ``UnsupportedScriptType`` when it is neither Python
    nor a shell script, and no ``#!`` line says what it is, and ``SkillsError`` when the skill cannot be read.
    """
    argv = build_argv(call.arguments)
    commands = await in_worker(_commands, runtime, call)
    seconds = _seconds_of(runtime, executor)
    plan = ScriptPlan(
        call.skill.name,
        call.path,
        ExecutionRequest(argv=(call.path, *argv), policy=SandboxPolicy(wall_seconds=seconds, output_bytes=KEPT_BYTES)),
    )
    program = SkillProgram(
        path=call.path,
        argv=argv,
        commands=commands,
        seconds=seconds,
        # A session ends its code by an interrupt; the process of others' sessions must not be ended at all.
        watch=not getattr(executor, "stateful", False) and not isinstance(executor, SandboxedCodeExecutor),
        contents=runtime.save_output_artifacts,
    )
    code = await in_worker(_source, call, program)
    code_input = CodeExecutionInput(
        code=code,
        execution_id=execution_id(call.skill.name, str(tool_context.session.id), tool_context.agent_name),
        # A script of another language is ended by its program, which keeps what it printed and the session it runs in.
        timeout_seconds=None if seconds is None else seconds + _told_later(executor, program),
    )
    began = time.monotonic()
    try:
        # The attribute is read here, in the task: an executor of ours learns from it whose call this is.
        # The program around a script ends it first, where it may: it knows what the script started.
        execute = _execution(executor, None if seconds is None else seconds + program.ends_itself)
        invocation = tool_context.get_invocation_context()
        wait = None
        # Ours end by themselves, and what waits there for its turn has not begun.
        if seconds is not None and not isinstance(executor, SandboxedCodeExecutor):
            wait = max(seconds, 0.0) + program.ends_itself + _GRACE_SECONDS
        found = await in_thread(lambda: execute(invocation, code_input), wait)
        if not hasattr(found, "stdout"):
            raise TypeError(f"the executor answered with a {type(found).__name__} instead of a result")
        ended = await in_worker(_ended, executor, plan, program, found, time.monotonic() - began)
    except SystemExit as error:  # an executor that runs code in this process lets it through (S0-68 to S0-70)
        status = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
        ended = Ended(told_result(executor, plan, b"", b"", status, time.monotonic() - began))
    except TooLate:
        logger.warning("the executor did not end %s in time; its thread is left alone", call.path)
        ended = Ended(told_result(executor, plan, b"", b"", None, time.monotonic() - began, given_up=True))
    except Exception as error:  # noqa: BLE001 - each executor has its own; the model gets one code for all
        log_exception(
            logger, runtime.grants.forms, "Error executing script '%s' from skill '%s'", call.path, call.skill.name
        )
        return ScriptRun(failed(call, runtime, f":\n{type(error).__name__}: {error}"))
    return await executor_answer(runtime, tool_context, call, plan, ended)


def _seconds_of(runtime: SkillRuntime, executor: BaseCodeExecutor) -> float | None:
    """The call's time: the toolset's, else the executor's own, else google-adk's 300 s."""
    if isinstance(executor, SandboxedCodeExecutor):
        return executor.effective_policy(runtime.script_timeout).wall_seconds
    if runtime.script_timeout is not None:
        return runtime.script_timeout
    own = getattr(executor, "timeout_seconds", None)
    return float(own) if isinstance(own, (int, float)) else runtime.adk_executor_timeout


def _execution(executor: BaseCodeExecutor, seconds: float | None) -> Callable[[Any, Any], Any]:
    """The way an executor limits time: those of this package take a limit from the call, others have their own."""
    if isinstance(executor, (SandboxedCodeExecutor, RemoteCodeExecutor)) or not isinstance(executor, BaseCodeExecutor):
        return executor.execute_code
    return within_time(executor, seconds)


def _told_later(executor: BaseCodeExecutor, program: SkillProgram) -> int:
    """Seconds that the executor is told beyond the script's time; a remote one knows no other limit than this."""
    return int(program.ends_itself if isinstance(executor, RemoteCodeExecutor) else program.in_child)


def _commands(runtime: SkillRuntime, call: ScriptCall) -> tuple[tuple[str, ...], ...]:
    return runtime.settings.interpreters.elsewhere(call.path, call.skill.read_bytes(call.path))


def _source(call: ScriptCall, program: SkillProgram) -> str:
    paths = call.skill.files() if call.skill.in_memory else (SKILL_FILE, *call.skill.files())
    files: dict[str, str | bytes] = {}
    total, inputs = 0, sum(len(file.content) for file in call.inputs)
    for path in paths:
        content = call.skill.read_bytes(path)
        total += len(content)
        if total + inputs > _MOST_PAYLOAD_BYTES:  # each call has several copies of it (row 478)
            raise ScriptError(
                f"The files of skill '{call.skill.name}' and those in 'files' have more than "
                f"{_MOST_PAYLOAD_BYTES >> 20} MiB, which is too much for the code executor of this agent. Give it "
                "fewer files, or tell the user."
            )
        try:
            # Text makes a program that can be read.
            files[path] = content if b"\0" in content or len(content) > _MOST_TEXT_BYTES else content.decode()
        except UnicodeDecodeError:
            files[path] = content
    executable = () if call.skill.in_memory else [file.path for file in call.skill.local().files() if file.executable]
    call.check_version()
    if total > PAYLOAD_BYTES:
        logger.warning(
            "Skill '%s' resources total %d bytes, exceeding the recommended limit of %d bytes. Our own executors mount "
            "the folder instead.",
            call.skill.name,
            total,
            PAYLOAD_BYTES,
        )
    files |= {file.path: file.content for file in call.inputs}
    return program.source(files, executable)


def _entry(path: str, content: str | bytes) -> str:
    """A file as a line of a program has it; the repr of bytes can be four times as long."""
    told = repr(content) if isinstance(content, str) else f"_b64({base64.b64encode(content).decode()!r})"
    return f"{path!r}: {told}"


@dataclass(frozen=True, slots=True)
class SkillProgram:
    """The program that carries one call into an executor, and how to read what it printed."""

    path: str  # the script, relative to the skill's root
    argv: Sequence[str]
    commands: Sequence[Sequence[str]]  # what may run it, best first; Python runs in the program itself
    seconds: float | None  # its time; None for no limit
    watch: bool = False  # whether the program may end its own process when a Python script takes longer (S0-85)
    contents: bool = False  # whether the files that the script leaves come back, and not only their names
    # a number used once, so that nothing a script prints by chance is taken for the report
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def marker(self) -> str:
        """The beginning of the report's line."""
        return f"{REPORT}{self.nonce}:"

    @property
    def in_child(self) -> bool:
        """Whether the script gets a process of its own below the program's."""
        return tuple(self.commands[0]) != PYTHON

    @property
    def ends_itself(self) -> bool:
        """Whether the program ends a script at its time; else the executor has to."""
        return self.watch or self.in_child

    @property
    def _folder(self) -> str:
        return f"adk-skill-{self.nonce[:12]}-"

    def source(self, files: Mapping[str, str | bytes], executable: Collection[str] = ()) -> str:
        """The program's text, with the skill's files in it."""
        seconds = _NO_LIMIT if self.seconds is None else self.seconds
        call = {
            "path": self.path,
            "argv": list(self.argv),
            "skill_dir": str(SKILL_DIR),
            "variables": list(SKILL_VARIABLES),
            "commands": [list(command) for command in self.commands],
            "seconds": seconds,
            "watch": self.watch,
            "contents": self.contents,
            "executable": sorted(executable),
            "agent": os.getpid(),
            "folder": self._folder,
            "marker": self.marker,
        }
        return (
            f"{program_header(self.marker)}{inspect.getsource(script_program)}\n"
            f"from base64 import b64decode as _b64\n_files = {{{', '.join(starmap(_entry, files.items()))}}}\n"
            f"run_skill_script(_files, {call!r})\n"
        )

    def read(self, stdout: bytes) -> tuple[bytes, _Report | None]:
        """The script's output, and the report behind it; None if the script never came to its end."""
        before, found, rest = stdout.rpartition(f"\n{self.marker}".encode())
        if not found:
            return stdout, None
        line, _, after = rest.partition(b"\n")
        try:
            # The script runs in the same interpreter, and may have written it (row 471).
            told = (read_object(line.decode()) if len(line) <= _MOST_REPORT_BYTES else None) or {}
            files = tuple(
                GeneratedFile(
                    str(file["path"])[:_PATH_BYTES],
                    str(file["mime_type"])[:_PATH_BYTES],
                    int(file["size"]),
                    base64.b64decode(file["content_b64"]) if "content_b64" in file else None,
                )
                for file in told["files"][: script_program.MAX_FILES]
            )
            code = told["return_code"]
            report = _Report(
                code if isinstance(code, int) else None,
                bool(told["timed_out"]),
                str(told["stderr"]),
                files,
                tuple(str(path)[:_PATH_BYTES] for path in told["skipped_paths"][: script_program.MAX_FILES]),
            )
        except (ValueError, KeyError, TypeError):
            logger.warning("what a script's program reported came back broken; the executor cut its output")
            report = None
        return before + after, report

    def as_seen(self, text: bytes) -> bytes:
        """The same with ``/skill`` where it names the folder the program ran in, a path of the host."""
        mark = self._folder.encode()
        first, *others = text.split(mark, _MOST_NAMED)
        if others and mark in others[-1]:  # each costs two searches, and there may be millions (row 477)
            others[-1] = b"\n[The rest is left out: it names the skill's folder too often.]\n"
        # Each piece ends with the path before the folder's name; looked at from its end, so a long line takes no time.
        pieces = [_BEFORE.sub(b"", first[-_PATH_BYTES:]) if others else first]
        if others:
            pieces[0] = first[:-_PATH_BYTES] + pieces[0]
        for number, piece in enumerate(others):
            rest = re.sub(rb"^\w+", b"", piece)
            if number + 1 < len(others):
                rest = rest[:-_PATH_BYTES] + _BEFORE.sub(b"", rest[-_PATH_BYTES:])
            pieces.append(b"/skill" + rest)
        return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome, the report in the output, the executor's own files, and whether an exit code was reported."""

    result: ExecutionResult
    report: _Report | None = None
    files: tuple[GeneratedFile, ...] = ()
    told_code: bool = True


def _ended(executor: BaseCodeExecutor, plan: ScriptPlan, program: SkillProgram, found: Any, took: float) -> Ended:
    """The outcome, from an executor's result and the report in its output."""
    execution, told_code = getattr(found, "execution", None), True
    own: list[GeneratedFile] = []
    if isinstance(execution, ExecutionResult):
        told, report = program.read(execution.stdout)
        stdout, stdout_cut_at = _seen(program, told, execution.stdout_cut_at)
        stderr, stderr_cut_at = _seen(program, execution.stderr, execution.stderr_cut_at)
        result = replace(
            execution,
            stdout=stdout,
            stdout_total=execution.stdout_total - len(execution.stdout) + len(stdout),
            stdout_cut_at=stdout_cut_at,
            stderr=stderr,
            stderr_total=execution.stderr_total - len(execution.stderr) + len(stderr),
            stderr_cut_at=stderr_cut_at,
        )
        if result.exit_code is not None:  # a service passes on what Python's subprocess says of a signal
            result = _with_code(result, result.exit_code)
    else:
        stdout, report = program.read(_bytes(str(found.stdout or "")))
        said = str(getattr(found, "stderr", None) or "")
        code = getattr(found, "exit_code", None)
        code = code if isinstance(code, int) else None
        if report is not None:
            said = _OF_EXECUTOR.sub("", said) or report.stderr
            code = report.exit_code if report.exit_code is not None else code
        elif code is None:
            told_code = False
            code = int(bool(said) and not stdout)  # google-adk's rule for those that report none
        left = list(getattr(found, "output_files", None) or ())
        if len(left) > _MOST_RETURNED:  # each is named to the model (row 471)
            logger.warning("The executor returned %d files, of which %d are looked at.", len(left), _MOST_RETURNED)
        for file in left[:_MOST_RETURNED]:
            content = _content(file.content)
            kind = str(file.mime_type or "application/octet-stream")
            own.append(GeneratedFile(str(file.name), kind, len(content), content))
        result = told_result(executor, plan, program.as_seen(stdout), program.as_seen(_bytes(said)), code, took)
        by_itself = report is not None and report.exit_code not in (None, script_program.INTERRUPTED)
        if report is not None and by_itself and not report.timed_out:
            result = replace(result, status=Status.ERROR, timed_out=False)  # it came to its end by itself
    if report is None or result.status not in {Status.OK, Status.ERROR}:
        return Ended(result, report, tuple(own), told_code or result.timed_out)
    if report.timed_out:
        result = replace(result, status=Status.TIMEOUT, timed_out=True, exit_code=None, signal=None)
    elif report.exit_code is not None:
        status = Status.OK if report.exit_code == 0 else Status.ERROR
        result = _with_code(replace(result, status=status), report.exit_code)
    return Ended(result, report, tuple(own))


def _seen(program: SkillProgram, text: bytes, cut_at: int | None) -> tuple[bytes, int | None]:
    """A stream without paths of the host, and where bytes are missing in it."""
    if cut_at is None:
        return program.as_seen(text), None
    head = program.as_seen(text[:cut_at])
    return head + program.as_seen(text[cut_at:]), len(head)


def told_result(
    whose: object,
    plan: ScriptPlan,
    stdout: bytes,
    stderr: bytes,
    code: int | None,
    took: float,
    *,
    timed_out: bool = False,
    given_up: bool = False,
) -> ExecutionResult:
    """The result of an executor or an environment of others, from what it tells."""
    result = foreign_result(
        type(whose).__name__,
        plan.request.policy,
        stdout,
        stderr,
        exit_code=code,
        files=(),
        seconds=took,
        given_up=given_up,
    )
    if not given_up:  # it answered, so nothing is left behind
        result = replace(result, notes=tuple(note for note in result.notes if note != MAY_GO_ON))
    if timed_out or result.timed_out:
        return replace(result, status=Status.TIMEOUT, timed_out=True)
    return _with_code(result, code) if code is not None else result


def _with_code(result: ExecutionResult, code: int) -> ExecutionResult:
    """The same with an exit code as Python's ``subprocess`` has it: below 0 it is a signal's number."""
    return replace(result, exit_code=code if code >= 0 else None, signal=-code if code < 0 else None)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _content(content: str | bytes) -> bytes:
    """google-adk's files are bytes, or base64 as text."""
    if isinstance(content, bytes):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return content.encode("utf-8", "replace")


async def executor_answer(
    runtime: SkillRuntime,
    tool_context: ToolContext,
    call: ScriptCall,
    plan: ScriptPlan,
    ended: Ended,
) -> ScriptRun:
    """The answer for the model; files are listed, and artifacts where the owner wants them (S0-66)."""
    result, report = await redacted_aside(ended.result, runtime.grants.forms), ended.report
    of_result = [GeneratedFile(file.path, file.mime_type, file.size, file.content) for file in result.files]
    files = [*(report.files if report is not None else ()), *of_result, *ended.files]
    outcome = await outcome_aside(plan, result, runtime.limits.error_chars)
    if outcome.error is not None:
        logger.info("stderr of %s: %s", plan.request.label, outcome.stderr[-_LOGGED_CHARS:])
    streams = {
        name: saved
        for name, text in (("stdout", outcome.stdout), ("stderr", outcome.stderr))
        if len(text) > MODEL_STREAM_CHARS and (saved := await save_stream(tool_context, call, name, text))
    }
    answer = outcome.to_model(streams=streams) | {"file_path": call.asked}
    if not ended.told_code:
        answer.pop("return_code", None)
    saved_files: list[str] = []
    skipped = [*(report.skipped if report is not None else ()), *(name for name, _ in result.skipped_files)]
    if runtime.save_output_artifacts:
        saved_files, unsaved = await save_generated(tool_context, files)
        skipped += unsaved
    if files:
        answer["output_files"] = [
            {"name": file.path, "mime_type": file.mime_type, "size": file.size}
            | ({"artifact": file.path} if file.path in saved_files else {})
            for file in files
        ]
    if saved_files or streams:
        answer["saved_artifacts"] = [*saved_files, *streams.values()]
    if skipped and runtime.save_output_artifacts:
        answer["skipped_artifacts"] = skipped
        logger.warning("files of script %s did not become artifacts: %s", call.path, ", ".join(skipped))
    elif skipped:
        answer["skipped_files"] = [{"name": name, "reason": "too large, or too many"} for name in skipped]
    return ScriptRun(
        answer,
        outcome.return_code if ended.told_code else None,
        result.stdout_total,
        result.stderr_total,
        len(files),
        "" if result.isolation.level is IsolationLevel.REMOTE else result.isolation.level.value,
    )


def failed(call: ScriptCall, runtime: SkillRuntime, cause: str) -> dict[str, object]:
    """The answer when an executor or an environment raised; google-adk's sentence, cut (S0-20, S0-34)."""
    text = f"Failed to execute script '{call.asked[:80]}'{cause}"
    if runtime.grants.forms is not None:
        text = runtime.grants.forms.text(text)
    limit = runtime.limits.error_chars
    if limit is not None and len(text) > limit:
        text = text[: max(0, limit - 3)] + "..."
    return {"error": text, "error_code": ErrorCode.EXECUTION_ERROR.value, "status": "error"}


# Files that a script left, as artifacts, within google-adk's bounds (S0-66).


async def save_generated(tool_context: ToolContext, files: Sequence[GeneratedFile]) -> tuple[list[str], list[str]]:
    """Save files as artifacts. Returns the names that were saved, and the paths that were not."""
    if files and tool_context.get_invocation_context().artifact_service is None:
        logger.warning("a script left %d file(s), and the application keeps no artifacts", len(files))
        return [], [file.path for file in files]
    saved: list[str] = []
    skipped: list[str] = []
    total = 0
    for file in files:
        content = file.content or b""
        size = len(content)
        fits = (
            size <= script_program.MAX_FILE_BYTES
            and total + size <= script_program.MAX_TOTAL_BYTES
            and len(saved) < script_program.MAX_FILES
        )
        path = PurePosixPath(file.path.replace("\\", "/"))
        # "user:" would share the file with all sessions of the user; a script must not choose that.
        is_safe = not path.is_absolute() and ".." not in path.parts and not str(path).startswith("user:") and path.name
        if fits and is_safe and await saved_artifact(tool_context, str(path), content, file.mime_type):
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
    return name if await saved_artifact(tool_context, name, text.encode("utf-8", "replace"), "text/plain") else None
