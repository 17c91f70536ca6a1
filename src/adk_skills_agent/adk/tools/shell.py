"""``execute``, ``read_file``, ``write_file``, ``edit_file``, ``job_output`` and ``stop_job``: a shell in the workspace.

The arguments of the first four are those of google-adk's ``EnvironmentToolset``; a model that calls them by its names
(``Execute``, ``ReadFile``, ``WriteFile``, ``EditFile``) is answered, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.events.events import (
    CommandFinished,
    CommandStarted,
    Origin,
    OutputEvents,
    ScriptOutput,
    origin_of,
)
from adk_skills_agent.adk.hosts import HostsOfCall, hosts_of_call, rules_without_skill, tell_refused
from adk_skills_agent.adk.running.adk_environment import EnvironmentRunner, note_user
from adk_skills_agent.adk.running.call import save_outputs, share_of_session
from adk_skills_agent.adk.running.packages import approve_packages, in_own_thread
from adk_skills_agent.adk.running.runner import agent_executor, both_hear, script_backend_of, workspace_claim
from adk_skills_agent.adk.shell.command_approval import permit_command, shown_line
from adk_skills_agent.adk.shell.commands import (
    COMMAND,
    EnvironmentShell,
    SandboxShell,
    Shell,
    ShellCall,
    checked_command,
    command_answer,
    told_missing,
)
from adk_skills_agent.adk.shell.files import NeedsApproval
from adk_skills_agent.adk.shell.jobs import JOBS, Job, bring_back, copy_workspace
from adk_skills_agent.adk.shell.skills import mounted_skills, permit_shell
from adk_skills_agent.adk.skills.resources import mime_type_of
from adk_skills_agent.adk.tools.base import ToolsetTool, answer_undeclared, failure, required_text, whole_number
from adk_skills_agent.errors import ErrorCode, InvalidArguments, PackageError, SandboxError, SkillsError
from adk_skills_agent.sandbox import Redactor, in_worker, temporary_folder, uninterrupted
from adk_skills_agent.scripts import workspace_key
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS, refused_hosts
from adk_skills_agent.scripts.plan import check_text

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.sandbox import ExecutionResult, SandboxPolicy
    from adk_skills_agent.scripts import ScriptOutcome

logger = logging.getLogger(__name__)

_MOST_MATCHES = 5
_MAX_WAIT = 30
_PIECE_BYTES = 1 << 20
_MOST_EDITED_BYTES = 2 << 20  # an edit has the text several times in the agent's memory
_MOST_COMPARED_CHARS = 256 << 10  # by words, for which the interpreter's lock is held all the time (row 425)


class ShellTool(ToolsetTool):
    """A tool that works where the toolset's scripts run.

    ``other_name`` is google-adk's name for it.
    """

    skill_argument = "skill"
    free_repeats = 20

    def __init__(self, runtime: SkillRuntime, base_name: str, description: str, other_name: str = "") -> None:
        super().__init__(runtime, base_name, description)
        self._other_name = other_name
        self._environments = EnvironmentRunner()

    def offered(self, tool_context: ToolContext) -> bool:
        """The places where commands can run: the sandbox, or an environment."""
        runtime = self.runtime
        if runtime.code_executor is None and (runtime.environment is not None or runtime.sandbox is not None):
            return True
        return runtime.code_executor is None and agent_executor(tool_context) is not None

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Declare the tool, and answer to google-adk's name for it."""
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        if self._other_name:
            named = copy.copy(self)
            named.name = self._other_name
            answer_undeclared(llm_request, named.name, named)

    def shell(self, tool_context: ToolContext) -> Shell:
        """The place where commands run now. Raises ``InvalidArguments`` when the agent has none."""
        backend = script_backend_of(self.runtime, tool_context, self._environments)
        if backend is not None and backend.own is not None:
            return SandboxShell(self.runtime, backend.own)
        if self.runtime.environment is not None and self.runtime.code_executor is None:
            note_user(self.runtime.environment, tool_context)
            return EnvironmentShell(self.runtime, self.runtime.environment)
        raise InvalidArguments(
            f"{self.name} needs a sandbox or an environment; the agent's executor has no shell. Do not call it again."
        )

    async def skill_for(self, args: dict[str, Any], tool_context: ToolContext) -> str:
        """The skill whose variables a command gets: the one that is named, else the only active one.

        Raises ``InvalidArguments`` when the one that is named is not active.
        """
        active = self.runtime.active.active(tool_context)
        named = args.get("skill")
        if named in (None, ""):
            return active[0] if len(active) == 1 else ""
        if named not in active:
            there = f"Active: {', '.join(active)}." if active else "None is active."
            raise InvalidArguments(f"'skill' must be an active skill, not {str(named)[:60]!r}. {there}")
        return str(named)


def _string(args: dict[str, Any], name: str, *, empty: bool = False) -> str:
    value = args.get(name)
    if empty and value == "":
        return ""
    return check_text(required_text(args, name), f"'{name}'")


class ExecuteTool(ShellTool):
    """Runs a command. A failing command is an answer with ``status: error``, never an exception."""

    required = ("command",)

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            "execute",
            "Run a bash command.",
            "Execute",
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """The command, its time, whether to wait for it, and whose variables it gets."""
        properties: dict[str, dict[str, object]] = {
            "command": {"type": "string"},
            "timeout": {"type": "number", "description": "Seconds, below the usual limit."},
        }
        shell = self.runtime.shell
        if shell is not None and shell.jobs and self.runtime.environment is None:
            properties["background"] = {
                "type": "boolean",
                "description": "Return a job id at once; its files come back at its end.",
            }
        if self.runtime.source.registry is not None or len(self.runtime.source):
            properties["skill"] = {
                "type": "string",
                "description": "The active skill whose keys and hosts it needs, if several are active.",
            }
        return properties

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The outcome of the command, or why it was not run."""
        runtime, began = self.runtime, time.monotonic()
        command = checked_command(_string(args, "command"))
        shell = self.shell(tool_context)
        seconds = shell.seconds(_seconds(args.get("timeout")))
        background = args.get("background") or False
        if not isinstance(background, bool):
            raise InvalidArguments("'background' must be true or false.")
        skills = await mounted_skills(runtime, tool_context)
        skill = await self.skill_for(args, tool_context)
        mounted = next((one for one in skills if one.skill.name == skill), None)
        if mounted is None and skill:
            if args.get("skill"):
                return {
                    "status": "error",
                    "error": f"The scripts of '{skill}' may not run here, so no command gets its keys and hosts. "
                    "Do it without them, or tell the user.",
                    "error_code": ErrorCode.PERMISSION_DENIED.value,
                }
            skill = ""  # what its scripts may not do, a command must not do in their place
        refusal, versions = await permit_shell(runtime, tool_context, skills)
        if refusal is not None:
            return refusal
        refusal = await permit_command(runtime, tool_context, command, skill)
        if refusal is not None:
            return refusal
        hosts = HostsOfCall(rules_without_skill(runtime.permissions, runtime.active.active(tool_context)))
        if runtime.permissions.hosts and mounted is not None and isinstance(shell, SandboxShell):
            hosts = await hosts_of_call(runtime, tool_context, mounted.skill)
            if hosts.pending:
                question = replace(hosts.decision(shown_line(command)), action="execute")
                weighed = await hosts.weigh(tool_context, mounted.skill, question, runtime)
                if weighed.refusal is not None:
                    return weighed.refusal
        call = ShellCall(command, seconds, skill, skills, versions, hosts=hosts.approved())
        answered = await self._with_packages(call, shell, tool_context)
        if isinstance(answered, dict):
            return answered
        call = answered
        run_id = os.urandom(16).hex()
        if background:
            return await self._start_job(tool_context, shell, call, run_id, _seconds(args.get("timeout")))
        origin = origin_of(tool_context)
        printed = _output_events(runtime, origin, skill, run_id)
        call = replace(call, on_output=printed)
        started = CommandStarted(origin=origin, skill=skill, command=command, run=run_id, executor=shell.name)
        with _told(runtime, started, began) as ended:
            try:
                answer, result, refused = await shell.run(tool_context, call)
            finally:
                if printed is not None:
                    printed.flush()
            if refused:
                tell_refused(runtime, tool_context, skill, COMMAND, run_id, origin, refused, answer)
            ended(answer, result)
        return answer

    async def _with_packages(
        self, call: ShellCall, shell: Shell, tool_context: ToolContext
    ) -> ShellCall | dict[str, Any]:
        """The call with the packages of its skill, or the tool's answer when the user has not approved them (yet)."""
        packages = self.runtime.settings.packages
        known = next((mounted.skill for mounted in call.skills if mounted.skill.name == call.skill), None)
        if known is None or packages is None or not packages.on or not isinstance(shell, SandboxShell):
            return call
        if not shell.own.sandbox.runs_here:
            return call
        from adk_skills_agent.packages import PackagesNotApproved  # few skills get here, and it imports much

        skill = await in_worker(known.local)
        python = shell.own.settings.policy.python
        approved: tuple[str, ...] = ()
        while True:
            try:
                found = await in_own_thread(
                    tool_context, packages.environment_for, skill, python=python, approved=approved
                )
            except PackagesNotApproved as missing:
                refusal = await approve_packages(self.runtime, tool_context, missing)
                if refusal is not None or approved:
                    return refusal or failure(missing)
                approved = (missing.lock.digest,)
            except PackageError as error:
                logger.warning("%s %s", error.message, " ".join(getattr(error, "__notes__", ())))
                return replace(call, notes=(error.message,))
            else:
                return replace(call, environment=found)

    async def _start_job(
        self, tool_context: ToolContext, shell: Shell, call: ShellCall, run_id: str, wanted: float | None
    ) -> dict[str, object]:
        runtime, settings = self.runtime, self.runtime.shell
        # Output is kept as it comes, so whatever has no filter of its own could put a secret there.
        filtered = isinstance(shell, SandboxShell) and getattr(shell.own.sandbox, "filters_secrets", False)
        if not isinstance(shell, SandboxShell) or not filtered or settings is None or not settings.jobs:
            raise InvalidArguments("This environment has no background jobs. Run the command without 'background'.")
        origin = origin_of(tool_context)
        policy = replace(
            shell.own.settings.policy,
            wall_seconds=_shorter(settings.job_seconds, wanted),
            output_bytes=min(settings.job_output_bytes, 1 << 20),
        )

        async def run(job: Job) -> None:
            if runtime.grants.forms is not None:
                job.redactor = Redactor(runtime.grants.forms)
            started = CommandStarted(
                origin=origin, skill=call.skill, command=call.command, run=run_id, job=job.name, executor=shell.name
            )
            with _told(runtime, started, time.monotonic()) as ended:
                outcome, notes, stopped = await self._in_copy(tool_context, shell, call, policy, job, started)
                notes += told_missing(call, outcome)
                answer = command_answer(outcome.to_model(notes=notes))
                answer.pop("stdout", None)
                answer.pop("stderr", None)
                if "error" in answer:  # its output has another name here
                    answer["error"] = str(answer["error"]).replace("is in stdout.", "is in output.")
                result, job.skill, job.run = outcome.result, call.skill, run_id
                job.refused = refused_hosts(outcome.plan.request.policy, result)
                # The output is told in pages, from what the job has kept of it.
                files_only = replace(result, stdout=b"", stderr=b"", stdout_spill=None, stderr_spill=None)
                job.outcome = replace(outcome, stdout="", stderr="", result=files_only)
                ended(answer, result)
                if result.stdout_truncated or result.stderr_truncated:  # what the sandbox itself left out
                    job.left_out = max(job.left_out, result.stdout_total + result.stderr_total - job.kept)
                job.end(answer)
                if stopped:
                    raise asyncio.CancelledError

        job = JOBS.start(
            _session_key(tool_context),
            share_of_session(tool_context)[0],
            runtime.owner,
            call.command,
            settings.jobs,
            settings.job_output_bytes,
            run,
        )
        return {"status": "running", "job": job.name, "next": f"Read it with {runtime.tool_name('job_output')}."}

    async def _in_copy(
        self,
        tool_context: ToolContext,
        shell: SandboxShell,
        call: ShellCall,
        policy: SandboxPolicy,
        job: Job,
        started: CommandStarted,
    ) -> tuple[ScriptOutcome, list[str], bool]:
        """Run a job in a copy of the workspace, and bring back what it left.

        Returns how it ended, sentences about its files, and whether it was stopped while they were brought back.
        """
        async with workspace_claim(self.runtime, tool_context, call.skill) as claim:
            workspace = await in_worker(claim.open)
            # Of this process, so that the next agent removes it when this one is killed.
            folder, remove = await in_worker(temporary_folder, "job", JOBS)
            copy = folder / "work"
            try:
                async with claim.turn(writes=False):
                    before = await in_worker(copy_workspace, workspace.path, copy)
                printed = _output_events(self.runtime, started.origin, call.skill, started.run)
                heard = replace(call, on_output=both_hear(job.take, printed))
                plan = await shell.plan(tool_context, heard, replace(workspace, path=copy), job=policy)
                # A turn of its own in /tmp would be lost in another's; a job has one that is its own.
                plan = replace(plan, request=replace(plan.request, tmp=None))
                try:
                    outcome = await shell.execute(tool_context, plan)
                finally:
                    if printed is not None:
                        printed.flush()
                stopped = False
                async with claim.turn(call=f"the background job {job.name}"):
                    # To its end, once it has begun: nobody must see half of it.
                    back = asyncio.ensure_future(
                        in_worker(bring_back, copy, before, workspace.path, shell.own.settings.policy)
                    )
                    try:
                        await uninterrupted(back)
                    except asyncio.CancelledError:
                        stopped = True
                    notes = back.result()
                return outcome, [*notes, *claim.notes], stopped
            finally:
                # In a thread that counts for the user: a copy may have 20,000 folders (row 450).
                with contextlib.suppress(RuntimeError, SandboxError):  # the loop is closed
                    await in_worker(remove)


@contextlib.contextmanager
def _told(
    runtime: SkillRuntime, started: CommandStarted, began: float
) -> Iterator[Callable[[Mapping[str, Any], ExecutionResult], None]]:
    """Tells that a command starts and, after the block, how it ended; call what it gives with answer and result."""
    runtime.events.emit(started)
    ended = CommandFinished(
        origin=started.origin,
        skill=started.skill,
        command=started.command,
        run=started.run,
        job=started.job,
        status="error",
        reason="cancelled",
        executor=started.executor,
    )

    def end(answer: Mapping[str, Any], result: ExecutionResult) -> None:
        nonlocal ended
        ended = replace(
            ended,
            status=str(answer["status"]),
            reason=str(answer.get("reason") or ""),
            exit_code=result.exit_code if result.signal is None else -result.signal,
            stdout_bytes=result.stdout_total,
            stderr_bytes=result.stderr_total,
            files=len(result.files),
            level=result.isolation.level.value,
        )

    try:
        yield end
    except SkillsError as error:
        ended = replace(ended, reason="not_started", error_code=error.code.value)
        raise
    finally:
        runtime.events.emit(replace(ended, seconds=time.monotonic() - began))


def _output_events(runtime: SkillRuntime, origin: Origin, skill: str, run: str) -> OutputEvents | None:
    """The events of what a command prints; None when nobody listens to them."""
    if not runtime.events.output_heard:
        return None
    return OutputEvents(runtime.events, ScriptOutput(origin=origin, skill=skill, script=COMMAND, run=run))


def _shorter(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _session_key(tool_context: ToolContext) -> str:
    session = tool_context.session
    return workspace_key(session.app_name, session.user_id, session.id)


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise InvalidArguments(f"'timeout' must be a number of seconds above 0, got {str(value)[:40]!r}.")
    return float(value)


class ReadFileTool(ShellTool):
    """Reads a text file, a page of lines at a time."""

    required = ("path",)

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            "read_file",
            "Read a text file, with line numbers. Long files come in pages.",
            "ReadFile",
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """The path and the lines."""
        return {
            "path": {"type": "string", "description": "Relative to the working directory, or absolute."},
            "start_line": {"type": "integer"},
            "end_line": {"type": "integer"},
        }

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The lines, or why they cannot be read."""
        path = _string(args, "path")
        start = whole_number(args, "start_line", 1) or 1
        end = whole_number(args, "end_line")
        skill = await self.skill_for(args, tool_context)
        most = self.runtime.shell.read_chars if self.runtime.shell is not None else MODEL_STREAM_CHARS
        files = self.shell(tool_context).files(tool_context, skill)
        try:
            return await files.read(path, lambda content: _page(path, content, start, end, most))
        except NeedsApproval as pending:
            return pending.answer


def _page(path: str, content: bytes, start: int, end: int, most: int) -> dict[str, object]:
    if _is_binary(content):
        return {
            "status": "error",
            "error": f"'{path}' is binary ({mime_type_of(path, content)}, {len(content):,} bytes). Work on it with a "
            "program, by execute.",
            "error_code": ErrorCode.BINARY_FILE.value,
        }
    total = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    if not total:
        return {"status": "ok", "content": "", "total_lines": 0}
    last = min(end or total, total)
    if start > total:
        raise InvalidArguments(f"'start_line' {start} is past the end; the file has {total} lines.")
    if start > last:
        raise InvalidArguments(f"'start_line' ({start}) is after 'end_line' ({end}).")
    shown: list[str] = []
    size = 0
    place = _beginning_of(content, start)
    for number in range(start, last + 1):
        after = content.find(b"\n", place) + 1 or len(content)
        line = f"{number:6d}\t{_decoded(content[place : min(after, place + 4 * most)])}"
        if shown and size + len(line) > most:
            break
        if len(line) > most or after - place > 4 * most:
            line = line[:most]
            left_out = after - place - len(line[7:].encode())
            line = f"{line}[... {left_out:,} bytes of this line left out ...]\n"
        shown.append(line)
        size += len(line)
        place = after
    read = start + len(shown) - 1
    answer: dict[str, object] = {"status": "ok", "content": "".join(shown)}
    if start > 1 or read < total:
        answer["total_lines"] = total
    if read < last:
        answer["next_line"] = read + 1
    return answer


def _beginning_of(content: bytes, line: int) -> int:
    """Where a line begins that is there. A file may have millions: they are counted a piece at a time."""
    place, passed = 0, 1
    while passed < line:
        lines = content.count(b"\n", place, place + _PIECE_BYTES)
        if passed + lines < line:
            place, passed = place + _PIECE_BYTES, passed + lines
            continue
        for _ in range(line - passed):
            place = content.index(b"\n", place) + 1
        break
    return place


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _is_binary(content: bytes) -> bool:
    head = content[:8_192]
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start >= len(head) - 4:
            return False  # the cut is in a character
        odd = sum(byte < 9 or 13 < byte < 32 for byte in head)
        return odd > len(head) // 50
    return False


class WriteFileTool(ShellTool):
    """Writes a text file."""

    required = ("path", "content")

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(runtime, "write_file", "Create or overwrite a text file.", "WriteFile")

    def properties(self) -> dict[str, dict[str, object]]:
        """The path and the content."""
        return {
            "path": {"type": "string"},
            "content": {"type": "string"},
        }

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """That it was written, or why it cannot be."""
        path, content = _string(args, "path"), _string(args, "content", empty=True)
        skill = await self.skill_for(args, tool_context)
        notes = await self.shell(tool_context).files(tool_context, skill).write(path, content)
        return {"status": "ok", "message": f"Wrote {len(content.encode()):,} bytes to {path}.", **_noted(notes)}


class EditFileTool(ShellTool):
    """Replaces one passage of a text file."""

    required = ("path", "old_string", "new_string")

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            "edit_file",
            "Replace a passage of a text file; old_string must be there exactly once.",
            "EditFile",
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """The path, what is there and what shall be."""
        return {
            "path": {"type": "string"},
            "old_string": {"type": "string"},
            "new_string": {"type": "string"},
        }

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """That it was changed, or why it was not."""
        path, old = _string(args, "path"), _string(args, "old_string")
        new = _string(args, "new_string", empty=True)
        skill = await self.skill_for(args, tool_context)
        files = self.shell(tool_context).files(tool_context, skill)
        line, notes = await files.edit(path, lambda content: _edited_file(path, content, old, new))
        return {"status": "ok", "message": f"Edited {path} at line {line}.", **_noted(notes)}


def _noted(notes: Sequence[str]) -> dict[str, object]:
    return {"notes": list(notes)} if notes else {}


def _edited_file(path: str, content: bytes, old: str, new: str) -> tuple[str, int]:
    if len(content) > _MOST_EDITED_BYTES:
        raise InvalidArguments(
            f"'{path}' has {len(content):,} bytes; at most {_MOST_EDITED_BYTES:,} can be edited. Use a program."
        )
    if _is_binary(content):
        raise InvalidArguments(f"'{path}' is binary; it cannot be edited as text.")
    text: str | None = None
    with contextlib.suppress(UnicodeDecodeError):  # which knows the whole content
        text = content.decode("utf-8")
    if text is None:
        raise InvalidArguments(f"'{path}' is no valid UTF-8; an edit would damage it. Use a program.")
    return _edited(path, text, old, new)


def _edited(path: str, text: str, old: str, new: str) -> tuple[str, int]:
    """The text with its one passage replaced, and the line it is at; line ends of the file are kept.

    Raises ``InvalidArguments`` when the passage is not there, or more than once.
    """
    windows = text.count("\r\n")
    if windows and (old not in text or windows == text.count("\n")):  # a model writes Unix line ends, as it was shown
        old, new = (one.replace("\r\n", "\n").replace("\n", "\r\n") for one in (old, new))
    places: list[int] = []
    at = text.find(old)
    while at >= 0 and len(places) <= 1_000:
        places.append(at)
        at = text.find(old, at + 1)
    if not places:
        words = " ".join(old.split()) if len(text) <= _MOST_COMPARED_CHARS else ""
        loosely = bool(words) and words in " ".join(text.split())
        hint = " It is there with other spaces or line ends; copy it exactly." if loosely else ""
        raise InvalidArguments(f"'old_string' is not in '{path}'.{hint} Read the file first.")
    if len(places) > 1:
        lines = [*dict.fromkeys(str(text.count("\n", 0, place) + 1) for place in places[:_MOST_MATCHES])]
        more = " and more" if len(places) > _MOST_MATCHES else ""
        count = "more than 1,000" if len(places) > 1_000 else str(len(places))
        at_lines = f"at line{'s' if len(lines) > 1 or more else ''} {', '.join(lines)}{more}"
        raise InvalidArguments(
            f"'old_string' is in '{path}' {count} times, {at_lines}. Add the text around the one you mean."
        )
    at = places[0]
    return text[:at] + new + text[at + len(old) :], text.count("\n", 0, at) + 1


class JobOutputTool(ShellTool):
    """Tells how a background job goes on."""

    required = ("id",)
    free_repeats = 200  # it is asked again and again until something happens

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(runtime, "job_output", "Output of a background job, and its end.")

    def properties(self) -> dict[str, dict[str, object]]:
        """The job, where to go on, and how long to wait for more."""
        return {
            "id": {"type": "string"},
            "offset": {"type": "integer", "description": "The last next_offset."},
            "wait": {
                "type": "integer",
                "description": f"Seconds to wait for more, at most {_MAX_WAIT}.",
            },
        }

    def offered(self, tool_context: ToolContext) -> bool:
        """Where there can be jobs."""
        return super().offered(tool_context) and self.runtime.environment is None

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Its output from the offset on, and its end when it has ended."""
        runtime = self.runtime
        job = JOBS.of(_session_key(tool_context), _string(args, "id"))
        offset, wait = whole_number(args, "offset"), min(whole_number(args, "wait"), _MAX_WAIT)
        if wait:
            await job.wait(offset, wait)
        await _tell_of_the_end(runtime, job, tool_context)
        return job_answer(job, offset)


async def _tell_of_the_end(runtime: SkillRuntime, job: Job, tool_context: ToolContext) -> None:
    """When the model hears of a job's end for the first time: artifacts of what it left, and hosts it was refused."""
    outcome, job.outcome = job.outcome, None  # the agent's memory is not for what was told
    if outcome is None or job.answer is None:
        return
    if job.refused:
        origin = origin_of(tool_context)
        tell_refused(runtime, tool_context, job.skill, COMMAND, job.run, origin, job.refused, job.answer)
    saved = await save_outputs(tool_context, outcome, MODEL_STREAM_CHARS)
    if saved.files:
        job.answer["saved_artifacts"] = list(saved.files.values())
    if saved.notes:
        notes = job.answer.get("notes")
        job.answer["notes"] = [*(notes if isinstance(notes, list) else []), *saved.notes]


class StopJobTool(ShellTool):
    """Ends a background job."""

    required = ("id",)

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(runtime, "stop_job", "End a background job; its files are not kept.")

    def properties(self) -> dict[str, dict[str, object]]:
        """The job."""
        return {"id": {"type": "string"}}

    def offered(self, tool_context: ToolContext) -> bool:
        """Where there can be jobs."""
        return super().offered(tool_context) and self.runtime.environment is None

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The end of the job."""
        job = JOBS.of(_session_key(tool_context), _string(args, "id"))
        await JOBS.stop(job)
        return job_answer(job, max(job.output(0, 0)[1] - 2_000, 0))


def job_answer(job: Job, offset: int) -> dict[str, object]:
    """The answer about a job."""
    output, total = job.output(offset, MODEL_STREAM_CHARS)
    answer: dict[str, object] = {"job": job.name, "status": "running"}
    answer["seconds"] = round((job.ended if job.ended is not None else time.monotonic()) - job.started, 1)
    answer["output"] = output
    if job.answer is None or offset + len(output) < total:
        answer["next_offset"] = min(offset, total) + len(output)
    if job.answer is None and job.kept >= job.most_bytes:
        answer["notes"] = ["No more of its output is kept. Commands that print much should write to a file."]
    if job.answer is not None:
        answer |= job.answer
        if job.left_out:
            answer["left_out_bytes"] = job.left_out
    return answer


def shell_tools(runtime: SkillRuntime) -> tuple[ToolsetTool, ...]:
    """The tools of a toolset's shell; none when it has none."""
    if runtime.shell is None:
        return ()
    tools: list[ToolsetTool] = [
        ExecuteTool(runtime),
        ReadFileTool(runtime),
        WriteFileTool(runtime),
        EditFileTool(runtime),
    ]
    if runtime.shell.jobs:
        tools += [JobOutputTool(runtime), StopJobTool(runtime)]
    return tuple(tools)
