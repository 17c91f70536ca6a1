"""What code gets: google-adk's ``File`` and ``CodeExecutionInput`` with the fields they lack (S0-22, S0-23, S0-71)."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import logging
import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from google.adk.code_executors import code_execution_utils as google

from adk_skills_agent.sandbox import WORK_DIR, ExecutionResult, InputFile, SandboxPolicy, Status
from adk_skills_agent.scripts.outcome import cut
from adk_skills_agent.scripts.plan import share_of


@dataclass(frozen=True)
class File(google.File):
    """google-adk's ``File`` with a place.

    Attributes:
        path: Where the file goes, relative to the working directory; None takes ``name`` (S0-24).
    """

    path: str | None = None


@dataclass
class CodeExecutionInput(google.CodeExecutionInput):
    """google-adk's ``CodeExecutionInput`` with settings of one call; every executor of this package honours them.

    Attributes:
        timeout_seconds: Seconds of wall time; None leaves it to the executor, 0 is legal (S0-71, S0-73).
        working_dir: Folder the code starts in, relative to the workspace or absolute under ``/work``; made when it is
            missing. ``input_files`` are placed in it.
    """

    timeout_seconds: float | None = None
    working_dir: str | None = None


def call_timeout(code_input: google.CodeExecutionInput) -> float | None:
    """The call's own timeout in seconds, or None when it has none; any input with that attribute counts."""
    return getattr(code_input, "timeout_seconds", None)


def working_folder(code_input: google.CodeExecutionInput) -> PurePosixPath:
    """The folder the code starts in, relative to the workspace; ``.`` is the workspace itself.

    Raises ``ValueError`` when it is not inside the workspace.
    """
    asked = getattr(code_input, "working_dir", None)
    if asked is None:
        return PurePosixPath()
    folder = PurePosixPath(str(asked))
    if folder.is_absolute() and folder.is_relative_to(WORK_DIR):
        folder = folder.relative_to(WORK_DIR)
    if folder.is_absolute() or ".." in folder.parts or "\0" in str(asked):
        raise ValueError(f"working_dir {str(asked)!r} must be inside {WORK_DIR}: relative, and without '..'.")
    return folder


def input_files(code_input: google.CodeExecutionInput) -> tuple[InputFile, ...]:
    """The files of a call, as the sandbox takes them; of two at one place the later one wins, as in google-adk's own.

    Raises ``ValueError`` when the content of one is neither bytes nor text.
    """
    folder = working_folder(code_input)
    placed: dict[str, InputFile] = {}
    for file in code_input.input_files or ():
        path = getattr(file, "path", None)
        place = str(folder / (path if path is not None else file.name))
        placed[place] = InputFile(place, file_content(file))
    return tuple(placed.values())


def file_content(file: google.File) -> bytes:
    """The content of a file.

    Bytes are meant as they are. Text is base64 when it is exactly that, as google-adk passes it, else UTF-8. Raises
    ``ValueError`` when it is neither.
    """
    content: object = file.content  # a dataclass checks nothing
    if isinstance(content, bytes):
        return content
    if not isinstance(content, str):
        kind = type(content).__name__
        raise ValueError(f"The content of input file {file.name!r} must be bytes or text, not {kind}.")  # noqa: TRY004
    try:
        raw = content.encode()
        decoded = base64.b64decode(raw, validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return content.encode("utf-8", "surrogatepass")
    return decoded if base64.b64encode(decoded) == raw else raw


# From an ExecutionResult to google-adk's ``CodeExecutionResult``.
#
# google-adk takes any text in ``stderr`` for a failure, and shows the model nothing but ``stderr`` then. So it is
# filled exactly when the run failed, and never empty then.

logger = logging.getLogger(__name__)


@dataclass
class CodeExecutionResult(google.CodeExecutionResult):
    """google-adk's ``CodeExecutionResult`` with everything the sandbox knows.

    Attributes:
        execution: The whole result: status, isolation report, what a successful run wrote to stderr, skipped files.
            None when the code never reached a sandbox.
    """

    execution: ExecutionResult | None = field(default=None, repr=False)


def code_result(
    result: ExecutionResult, policy: SandboxPolicy, *, wrapper: SkillWrapper | None, max_chars: int | None
) -> CodeExecutionResult:
    """The result for google-adk.

    ``wrapper`` is set when the code is google-adk's own wrapper of a skill script.
    """
    files = [File(name=file.path, content=file.content, mime_type=file.mime_type) for file in result.files]
    for path, reason in result.skipped_files:
        logger.warning("Output file %r of a code execution was not taken: %s.", path, reason)
    taken = {file.name for file in files}
    stdout, stderr = streams_of(result)
    if wrapper is not None:
        out_text, err_text = _wrapper_text(stdout, wrapper, max_chars), stderr.shown(max_chars)
    else:
        out_text = stdout.shown(max_chars, artifact=stdout.save(files, taken, policy, max_chars))
        err_text = stderr.shown(max_chars, artifact=stderr.save(files, taken, policy, max_chars))
    code = exit_code(result)
    if code == 0:
        if err_text and wrapper is None:
            err_text = ""  # kept in .execution; it was a warning, not a failure
        elif err_text and not out_text:
            # A skill script that worked: google-adk knows "warning" only next to some stdout (rows E6, 8).
            out_text, err_text = f"[stderr]\n{err_text}", ""
    else:
        truncated = stdout.shortened(max_chars) or stderr.shortened(max_chars)
        err_text = "\n".join(filter(None, [err_text.rstrip(), *failure_lines(result, policy, err_text)]))
        if truncated:
            err_text += "\noutput truncated"
    return CodeExecutionResult(
        stdout=out_text, stderr=err_text, output_files=list(files), exit_code=code, execution=result
    )


def exit_code(result: ExecutionResult) -> int:
    """0 exactly on success; -1 after a timeout (S0-57), minus the signal when one ended the run."""
    if result.status is Status.OK:
        return 0
    if result.timed_out:
        return -1
    if result.exit_code:
        return result.exit_code
    return -(result.signal or signal.SIGKILL)


def failure_lines(result: ExecutionResult, policy: SandboxPolicy, said: str = "") -> list[str]:
    """Why a run failed, one line each: the limit that ended it, else its signal, else its exit code when it said
    nothing itself.
    """
    lines = {
        Status.TIMEOUT: [f"timed out after {policy.wall_seconds or 0:g} s"],
        Status.OUT_OF_MEMORY: ["killed: out of memory"],
        Status.OUTPUT_LIMIT: ["killed: too much output"],
        Status.DISK_LIMIT: ["killed: the workspace is full"],
        Status.CANCELLED: ["cancelled"],
        Status.SANDBOX_ERROR: ["the sandbox failed; this is not the code's fault"],
    }.get(result.status, [])
    if result.status is Status.ERROR:
        if result.signal == signal.SIGXCPU:
            lines = ["killed: out of CPU time"]
        elif result.signal == signal.SIGXFSZ:
            lines = ["killed: a file became too large"]
        elif result.signal is not None:
            lines = [f"killed by signal {result.signal}"]
        elif not said.strip():
            lines = [f"Exit code {result.exit_code}"]
    return [*lines, *result.notes] if result.status not in {Status.OK, Status.ERROR} else lines


@dataclass(frozen=True, slots=True)
class Stream:
    """What a run wrote to one of its outputs."""

    name: str
    kept: bytes
    total: int
    truncated: bool
    spill: Path | None
    cut_at: int | None

    @property
    def text(self) -> str:
        """As it can be shown."""
        return self.kept.decode("utf-8", "replace").replace("\0", "\ufffd")

    def shortened(self, max_chars: int | None) -> bool:
        """Whether not all of it is shown."""
        return self.truncated or (max_chars is not None and len(self.text) > max_chars)

    def shown(self, max_chars: int | None, *, artifact: str | None = None) -> str:
        """At most so many characters of it, with a mark where some are missing."""
        text = self.text
        missing = self.total - len(self.kept) if self.truncated else 0
        place = None if self.cut_at is None else len(self.kept[: self.cut_at].decode("utf-8", "replace"))
        limit = len(text) if max_chars is None else max_chars
        return cut(text, limit, missing_bytes=missing, cut_at=place, artifact=artifact)

    def save(self, files: list[File], taken: set[str], policy: SandboxPolicy, max_chars: int | None) -> str | None:
        """Add the whole text as an output file when the model gets only a part; its name, or None when it cannot."""
        if not self.shortened(max_chars):
            return None
        if not self.truncated:
            content = self.kept
        elif self.spill is not None and self.spill.stat().st_size <= policy.max_file_bytes:
            content = self.spill.read_bytes()
        else:
            return None
        if len(content) > policy.max_file_bytes:
            return None
        names = itertools.chain((f"{self.name}.txt",), (f"{self.name}-{number}.txt" for number in itertools.count(2)))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        files.append(File(name=name, content=content, mime_type="text/plain"))
        return name


def streams_of(result: ExecutionResult) -> tuple[Stream, Stream]:
    """Standard output and error of a run."""
    parts = ("", "_total", "_truncated", "_spill", "_cut_at")
    stdout, stderr = (
        Stream(name, *(getattr(result, f"{name}{part}") for part in parts)) for name in ("stdout", "stderr")
    )
    return stdout, stderr


_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_LINE_END = f"[{_LINE_ENDS}]"
"""What ends a line for google-adk, which reads with ``str.splitlines``; that makes an object of each line."""
_MOST_FILES = 50  # as google-adk's wrapper has them
_MOST_VALUES = 1_000_000
"""Of what a wrapper prints for google-adk: reading it makes an object of each."""


def _wrapper_text(stdout: Stream, wrapper: SkillWrapper, max_chars: int | None) -> str:
    """The wrapper's output, cut without tearing the data it prints for google-adk.

    The script runs in the wrapper and may write such data itself, so that is bounded, too (row 470). Our own program's
    report is read in ``execution``: who has seen its header, as its script can, gets no more than others.
    """
    text = stdout.text
    start = text.rfind(wrapper.marker) if wrapper.marker is not None else -1
    if max_chars is None or wrapper.is_ours or (start < 0 and not wrapper.shell):
        return stdout.shown(max_chars)
    data = ""
    if start >= 0:
        rest = text[start:]
        end = re.search(_LINE_END, rest)
        line = rest if end is None else rest[: end.start()]
        data = _bounded_files(line, wrapper.marker or "", max_chars)
        text = text[:start] + rest[len(line) :].lstrip("\n")
    visible = _bounded_envelope(text, max_chars) if wrapper.shell else cut(text, max_chars)
    if not data:
        return visible
    return f"{visible}\n{data}\n" if visible and not visible.endswith("\n") else f"{visible}{data}\n"


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text that a script may have written; None where there is none, or one of too many values."""
    if sum(map(text.count, ",[{")) > _MOST_VALUES:
        return None
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _bounded_files(line: str, marker: str, max_chars: int) -> str:
    """The line with the files that a script left, of which google-adk shows the names; empty for what it cannot be."""
    told = read_object(line[len(marker) :])
    if told is None:
        logger.warning("What a script printed in place of its list of files was left out.")
        return ""
    left = max_chars

    def fits(path: object) -> bool:
        nonlocal left
        size = len(path) if isinstance(path, str) else 0
        left -= size
        return size > 0 and left >= 0

    files, skipped = (given if isinstance(given := told.get(key), list) else [] for key in ("files", "skipped_paths"))
    kept = [
        {key: value for key in ("path", "content_b64", "mime_type") if isinstance(value := item.get(key), str)}
        for item in files[:_MOST_FILES]
        if isinstance(item, dict) and fits(item.get("path"))
    ]
    named = list(filter(fits, skipped[:_MOST_FILES]))
    if len(kept) + len(named) < len(files) + len(skipped):
        said = "Of the files that a script left, those beyond %d, or beyond %d characters of names, were left out."
        logger.warning(said, _MOST_FILES, max_chars)
    return f"{marker}{json.dumps({'files': kept, 'skipped_paths': named})}"


def _bounded_envelope(text: str, max_chars: int) -> str:
    """What a shell script printed, in the line of JSON in which google-adk looks for it; else the text, cut."""
    at = text.rfind('"__shell_result__"')
    start = max((text.rfind(end, 0, max(at, 0)) for end in _LINE_ENDS), default=-1) + 1
    end = re.compile(_LINE_END).search(text, max(at, 0))
    told = read_object(text[start : None if end is None else end.start()].strip()) if at >= 0 else None
    if told is None or not told.get("__shell_result__"):
        return cut(text, max_chars)
    streams = {key: cut(str(told.get(key) or ""), max_chars) for key in ("stdout", "stderr")}
    code = told.get("returncode")
    ended = {"returncode": code if isinstance(code, int) else 1, "timeout": bool(told.get("timeout"))}
    return json.dumps({"__shell_result__": True, **streams, **ended})


# Recognise the program google-adk's own SkillToolset, or ours, makes out of a skill's script.
#
# google-adk hands an executor one Python program that unpacks the skill, runs the script and prints what it left, all
# as text (``_SkillScriptCodeExecutor`` of google-adk 2.13). No public interface tells that such a program is a skill
# script, of which kind, and where its printed data begins, so this is the one place that looks. What is not
# recognised runs as any other code.

_START = "\n_files = {"
_START_WITHIN = 600
# The program holds the repr of the skill's files and of the model's arguments, in which line ends are escaped. So what
# is looked for has one: neither a script nor an argument can forge it.
_BODY = "\n    os.chdir(td)\n    try:\n"
_END = "\n_materialize_and_run()\n"
_SHELL = "      try:\n        _r = subprocess.run(\n"
_MARKER = re.compile(r"\n +print\('(?:\\n' \+ ')?(__ADK_SKILL_GENERATED_FILES__:[0-9a-f]+:)'")
_OURS = f"# A script of a skill, run by adk-skills-runtime {os.urandom(8).hex()}; its report follows "
"""Whoever writes such a line does not know this process's; a script in a session may find it out (row 481)."""


@dataclass(frozen=True, slots=True)
class SkillWrapper:
    """The facts about such a program."""

    shell: bool  # it runs a shell script, and prints its output as one line of JSON
    marker: str | None  # what the line starts with that holds the script's files; None when they are not wanted
    is_ours: bool = False  # it is not google-adk's, and nobody needs the line in the text


def program_header(marker: str) -> str:
    """The first line of our own program around a script, by which :func:`recognise` knows it."""
    return f"{_OURS}{marker}\n"


def recognise(code: str, invocation_context: object) -> SkillWrapper | None:
    """The kind of skill script that ``code`` wraps; None if it wraps none.

    A model can write what a wrapper has, but its own code is no call of a tool (row 481).
    """
    if not _is_call_of_tool(invocation_context):
        return None
    if code.startswith(_OURS):
        return SkillWrapper(shell=False, marker=code[len(_OURS) :].partition("\n")[0], is_ours=True)
    if _START not in code[:_START_WITHIN] or not code.endswith(_END):
        return None
    body = code.rfind(_BODY)
    if body < 0:
        return None
    body += len(_BODY)
    marker = _MARKER.search(code, body)
    # A blank line stands between google-adk's templates.
    return SkillWrapper(
        code[body : body + len(_SHELL) + 8].lstrip("\n").startswith(_SHELL), marker[1] if marker else None
    )


def _is_call_of_tool(invocation_context: object) -> bool:
    """Whether the agent's newest event is a call of a tool; True where there is no session to tell.

    Other agents, and the user of a live session, may have said something since; a call that the user confirmed is made
    again after his own event.
    """
    events = getattr(getattr(invocation_context, "session", None), "events", None)
    if not events:
        return True
    agent = getattr(invocation_context, "agent", None)
    for event in reversed(events):
        if event.invocation_id != getattr(invocation_context, "invocation_id", None):
            break
        if event.author == "user":
            if any(one.name == _CONFIRMATION for one in event.get_function_responses()):
                return _is_first_confirmation(event, events)
        elif (event.author, event.branch) == (
            getattr(agent, "name", None),
            getattr(invocation_context, "branch", None),
        ):
            return any(one.name != _CONFIRMATION for one in event.get_function_calls())
    return False


def _is_first_confirmation(confirming: Any, events: Sequence[Any]) -> bool:
    """Whether somebody was asked for what a user's event confirms, and it was not confirmed before."""
    asked: set[str | None] = set()
    for event in events:
        if event is confirming:
            break
        asked |= {one.id for one in event.get_function_calls() if one.name == _CONFIRMATION}
        asked -= {one.id for one in event.get_function_responses() if one.name == _CONFIRMATION}
    return any(one.id in asked for one in confirming.get_function_responses())


_CONFIRMATION = "adk_request_confirmation"


# Whose turn a run belongs to, for executors of others that keep something in the agent's session.

_invocation: ContextVar[Any] = ContextVar("adk_skills_invocation", default=None)


@contextmanager
def on_behalf_of(invocation_context: object) -> Iterator[None]:
    """Runs inside the block know the invocation, also those that go on in another thread or loop."""
    before = _invocation.set(invocation_context)
    try:
        yield
    finally:
        _invocation.reset(before)


def current_invocation() -> Any:
    """google-adk's ``InvocationContext`` of the turn; None outside of one."""
    return _invocation.get()


def names_of(invocation_context: Any) -> tuple[str, str, str | None]:
    """The ids of app, user and session, as far as there are any."""
    names = (getattr(invocation_context, "app_name", None), getattr(invocation_context, "user_id", None))
    app, user = (name if isinstance(name, str) else "" for name in names)
    session = getattr(getattr(invocation_context, "session", None), "id", None)
    return app, user, session if isinstance(session, str) else None


def share_of_invocation(invocation_context: Any) -> tuple[str, ...]:
    """Whose run it is, for a fair share of the turns; nobody's outside of an invocation."""
    app, user, session = names_of(invocation_context)
    return () if session is None else share_of(app, user, session)
